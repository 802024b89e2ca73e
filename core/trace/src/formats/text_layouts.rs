//! Layouts of the text formats.

use super::Format;
use crate::source::SourceClock;
use crate::text::{Delimiter, Layout, OpColumn, OpRule, TimeUnit, VolumeColumns};

/// Header of Terrace's capture CSV.
pub(crate) const CAPTURE_HEADER: &str = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns";
/// Header of the Hadoop block traces.
pub(crate) const HADOOP_HEADER: &str = "time_s,node,op,offset_bytes,size_bytes";

const SECTOR_BYTES: u64 = 512;

/// Returns the layout of a text format with a fixed layout.
pub(crate) fn text_layout(format: Format) -> Option<Layout> {
    Some(match format {
        Format::Native
        | Format::Vscsi1
        | Format::Vscsi2
        | Format::Csv
        | Format::OracleGeneral
        | Format::Blkparse
        | Format::BlkEvents
        | Format::Fio2
        | Format::Fio3
        | Format::Lis
        | Format::LisDays
        | Format::Lirs
        | Format::IbmCos
        | Format::Parquet => return None,
        Format::Spc => Layout {
            delimiter: Delimiter::Byte(b','),
            header: false,
            // The format allows custom fields after these.
            columns: None,
            time: (4, TimeUnit::Seconds),
            clock: SourceClock::Relative,
            volume: VolumeColumns::One(0),
            op: OpColumn::new(3, OpRule::Words),
            offset: (1, SECTOR_BYTES),
            length: (2, 1),
            latency: None,
        },
        Format::Alibaba => Layout {
            delimiter: Delimiter::Byte(b','),
            header: false,
            columns: Some(5),
            time: (4, TimeUnit::Micros),
            clock: SourceClock::Unix,
            volume: VolumeColumns::One(0),
            op: OpColumn::new(1, OpRule::Words),
            offset: (2, 1),
            length: (3, 1),
            latency: None,
        },
        Format::Tencent => Layout {
            delimiter: Delimiter::Byte(b','),
            header: false,
            columns: Some(5),
            time: (0, TimeUnit::Seconds),
            clock: SourceClock::Unix,
            volume: VolumeColumns::One(4),
            op: OpColumn::new(3, OpRule::Read0),
            offset: (1, SECTOR_BYTES),
            length: (2, SECTOR_BYTES),
            latency: None,
        },
        Format::Msr => Layout {
            delimiter: Delimiter::Byte(b','),
            header: false,
            columns: Some(7),
            time: (0, TimeUnit::Filetime),
            clock: SourceClock::Unix,
            volume: VolumeColumns::Two(1, 2),
            op: OpColumn::new(3, OpRule::Words),
            offset: (4, 1),
            length: (5, 1),
            latency: Some((6, TimeUnit::Filetime)),
        },
        Format::Systor => Layout {
            delimiter: Delimiter::Byte(b','),
            header: false,
            columns: Some(6),
            time: (0, TimeUnit::Seconds),
            clock: SourceClock::Unix,
            volume: VolumeColumns::One(3),
            op: OpColumn::new(2, OpRule::Words),
            offset: (4, 1),
            length: (5, 1),
            latency: Some((1, TimeUnit::Seconds)),
        },
        Format::Fiu => Layout {
            delimiter: Delimiter::Whitespace,
            header: false,
            // A checksum of each page follows these columns.
            columns: None,
            time: (0, TimeUnit::Nanos),
            clock: SourceClock::Relative,
            volume: VolumeColumns::Two(6, 7),
            op: OpColumn::new(5, OpRule::Words),
            offset: (3, SECTOR_BYTES),
            length: (4, SECTOR_BYTES),
            latency: None,
        },
        Format::DiskMon => Layout {
            delimiter: Delimiter::Byte(b'\t'),
            header: false,
            columns: Some(7),
            time: (1, TimeUnit::Seconds),
            clock: SourceClock::Relative,
            volume: VolumeColumns::One(3),
            op: OpColumn::new(4, OpRule::Words),
            offset: (5, SECTOR_BYTES),
            length: (6, SECTOR_BYTES),
            latency: Some((2, TimeUnit::Seconds)),
        },
        Format::Capture => Layout {
            delimiter: Delimiter::Byte(b','),
            header: true,
            columns: Some(6),
            time: (0, TimeUnit::Nanos),
            clock: SourceClock::Recording,
            volume: VolumeColumns::One(1),
            op: OpColumn::new(2, OpRule::Words),
            offset: (3, 1),
            length: (4, 1),
            latency: Some((5, TimeUnit::Nanos)),
        },
        Format::HadoopCsv => Layout {
            delimiter: Delimiter::Byte(b','),
            header: true,
            columns: Some(5),
            time: (0, TimeUnit::Seconds),
            clock: SourceClock::Relative,
            volume: VolumeColumns::One(1),
            op: OpColumn::new(2, OpRule::Words),
            offset: (3, 1),
            length: (4, 1),
            latency: None,
        },
        Format::DiskSim => five_columns(TimeUnit::Millis, SECTOR_BYTES, OpRule::DiskSimFlags),
        Format::SsdSim => five_columns(TimeUnit::Micros, SECTOR_BYTES, OpRule::Read1),
        Format::MqSim => five_columns(TimeUnit::Nanos, SECTOR_BYTES, OpRule::Read1),
        Format::AsciiBytesMs => five_columns(TimeUnit::Millis, 1, OpRule::Read1),
    })
}

/// Returns the layout of the simulators' family: time, device, offset, length, kind.
fn five_columns(time: TimeUnit, unit_bytes: u64, op: OpRule) -> Layout {
    Layout {
        delimiter: Delimiter::Whitespace,
        header: false,
        columns: Some(5),
        time: (0, time),
        clock: SourceClock::Relative,
        volume: VolumeColumns::One(1),
        op: OpColumn::new(4, op),
        offset: (2, unit_bytes),
        length: (3, unit_bytes),
        latency: None,
    }
}
