//! The formats that are read, by name. A text format is a [`Layout`]; only vscsi has a reader of its own.

mod text_layouts;
mod vscsi;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

pub(crate) use text_layouts::{CAPTURE_HEADER, HADOOP_HEADER, text_layout};
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
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 12] = [
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
    ];

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
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Format::ALL
            .into_iter()
            .find(|f| f.name() == text)
            .ok_or_else(|| {
                let names = Format::ALL.map(Format::name).join(", ");
                format!("\"{text}\" is not a trace format: use one of {names}")
            })
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}
