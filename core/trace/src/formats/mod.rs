//! The formats that are read, by name. A format of columns is a [`crate::text::Layout`], others of lines are row parsers, and
//! binary ones have readers of their own.

mod blktrace;
mod cos;
mod fio;
mod headers;
mod ids;
mod matching;
mod opcodes;
mod oracle;
mod references;
mod rows;
mod text_layouts;
mod vscsi;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::OptionError;

pub(crate) use blktrace::{
    BlkForm, Kind, begins_summary, blktrace_reader, is_device, is_event, kind_of,
};
pub(crate) use cos::{cos_reader, is_cos};
pub(crate) use fio::{FIO2_HEADER, FIO3_HEADER, fio_reader};
pub(crate) use headers::{by_header, fitted_layout};
pub use ids::IdPlacement;
pub(crate) use opcodes::{nvme_op, scsi_op};
pub(crate) use oracle::{OracleReader, plausible_oracle};
pub(crate) use references::{References, reference_reader};
pub(crate) use text_layouts::{CAPTURE_HEADER, text_layout};
pub(crate) use vscsi::{VscsiReader, VscsiVersion, plausible};

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Our own, mapped ([`crate::native`]).
    Native,
    /// Our own capture: CSV `time_ns,volume,op,offset_bytes,length_bytes,latency_ns`.
    Capture,
    /// Any CSV, by its header or by a column mapping.
    Csv,
    /// Microsoft Research Cambridge: file time, host, disk, type, byte offset, bytes, response time (100 ns).
    Msr,
    /// VMware vscsi, version 1: records of 32 bytes.
    Vscsi1,
    /// VMware vscsi, version 2: records of 40 bytes with response times.
    Vscsi2,
    /// DiskSim ASCII: time in ms with a fraction, device, 512-byte block, blocks, hexadecimal flags (bit 0: read).
    DiskSim,
    /// SSDsim ASCII: time in µs, device, 512-byte block, blocks, 1 = read.
    SsdSim,
    /// MQSim ASCII: time in ns, device, 512-byte block, blocks, 1 = read.
    MqSim,
    /// As DiskSim, but with byte offsets and bytes: time in ms, device, offset, length, 1 = read.
    AsciiBytesMs,
    /// DiskMon: sequence, time in s, service time in s, disk, Read/Write, 512-byte sector, sectors; tabs.
    DiskMon,
    /// Hadoop block traces: CSV `time_s,node,op,offset_bytes,size_bytes`.
    HadoopCsv,
    /// SPC: CSV of application storage unit, 512-byte block, bytes, R/W, time in s.
    Spc,
    /// libCacheSim oracleGeneral: records of 24 bytes; ids, not addresses ([`IdPlacement`]).
    OracleGeneral,
    /// blkparse's default output: one event per line, several per request.
    Blkparse,
    /// Events derived from it: pid, action, kind, byte offset, bytes, time in s, …
    BlkEvents,
    /// Alibaba block traces: CSV of device, R/W, byte offset, bytes, Unix time in µs.
    Alibaba,
    /// Tencent block traces: CSV of Unix time in s, 512-byte offset and size, 0 = read, volume.
    Tencent,
    /// SYSTOR '17 (virtual desktops): CSV of Unix time in s, response time in s, R/W, LUN, byte offset, bytes.
    Systor,
    /// FIU: time in ns, process id, process, 512-byte block, blocks, R/W, major and minor device number, checksums.
    Fiu,
    /// fio's log of I/O, version 2: no times.
    Fio2,
    /// fio's log of I/O, version 3: times in µs.
    Fio3,
    /// The ARC paper's `.lis`: 512-byte block, blocks, two numbers that are not used; no times, no kinds.
    Lis,
    /// The same, where the third number is a day: times are whole days. Never assumed, always named.
    LisDays,
    /// A block id per line, as the LIRS paper's: no times, no kinds ([`IdPlacement`]).
    Lirs,
    /// IBM's object-store traces: time in ms, operation, object, size, range.
    IbmCos,
    /// Parquet with the columns of our capture.
    Parquet,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 27] = [
        Format::Native,
        Format::Capture,
        Format::Csv,
        Format::Msr,
        Format::Vscsi1,
        Format::Vscsi2,
        Format::DiskSim,
        Format::SsdSim,
        Format::MqSim,
        Format::AsciiBytesMs,
        Format::DiskMon,
        Format::HadoopCsv,
        Format::Spc,
        Format::OracleGeneral,
        Format::Blkparse,
        Format::BlkEvents,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Fiu,
        Format::Fio2,
        Format::Fio3,
        Format::Lis,
        Format::LisDays,
        Format::Lirs,
        Format::IbmCos,
        Format::Parquet,
    ];

    /// Whether it has ids whose place can be chosen ([`IdPlacement`]).
    pub fn has_ids(self) -> bool {
        matches!(
            self,
            Format::Lis | Format::LisDays | Format::Lirs | Format::OracleGeneral
        )
    }

    /// The name by which it is chosen and reported.
    pub fn name(self) -> &'static str {
        match self {
            Format::Native => "native",
            Format::Capture => "capture-csv",
            Format::Csv => "csv",
            Format::Msr => "msr",
            Format::Vscsi1 => "vscsi1",
            Format::Vscsi2 => "vscsi2",
            Format::DiskSim => "disksim",
            Format::SsdSim => "ssdsim",
            Format::MqSim => "mqsim",
            Format::AsciiBytesMs => "ascii-bytes-ms",
            Format::DiskMon => "diskmon",
            Format::HadoopCsv => "hadoop-csv",
            Format::Spc => "spc",
            Format::OracleGeneral => "oraclegeneral",
            Format::Blkparse => "blkparse",
            Format::BlkEvents => "blk-events",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Fiu => "fiu",
            Format::Fio2 => "fio2",
            Format::Fio3 => "fio3",
            Format::Lis => "lis",
            Format::LisDays => "lis-days",
            Format::Lirs => "lirs",
            Format::IbmCos => "ibm-cos",
            Format::Parquet => "parquet",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        Format::ALL
            .into_iter()
            .find(|f| f.name() == text)
            .ok_or_else(|| OptionError::Format {
                text: text.into(),
                known: Format::ALL.map(Format::name).join(", "),
            })
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}
