//! Headers of published traces, and their layouts.
//!
//! A header may have its columns in another order, with further columns between them, and with any case, blanks and
//! quotes. The units are those of the published description, because names such as `Timestamp` and `Size` have none.

use super::Format;
use super::text_layouts::{CAPTURE_HEADER, HADOOP_HEADER, text_layout};
use crate::source::SourceClock;
use crate::text::{
    Delimiter, Layout, OpColumn, OpRule, TimeUnit, VolumeColumns, cells, looks_like_date,
    normalized,
};

/// Layout with the names of its columns in order, without the separators of their words.
struct Header {
    format: Format,
    names: &'static str,
    layout: Layout,
}

const SECTOR_BYTES: u64 = 512;

/// Names of columns in headers, by format.
const NAMES: [(Format, &str); 7] = [
    (Format::Capture, CAPTURE_HEADER),
    (Format::HadoopCsv, HADOOP_HEADER),
    (
        Format::Msr,
        "timestamp,hostname,disknumber,type,offset,size,responsetime",
    ),
    (Format::Systor, "timestamp,response,iotype,lun,offset,size"),
    (Format::Alibaba, "deviceid,opcode,offset,length,timestamp"),
    (Format::Tencent, "timestamp,offset,size,iotype,volumeid"),
    (Format::Spc, "asu,lba,size,opcode,timestamp"),
];

fn headers() -> impl Iterator<Item = Header> {
    let fixed = NAMES.into_iter().filter_map(|(format, names)| {
        text_layout(format).map(|layout| Header {
            format,
            names,
            layout,
        })
    });
    let csv = |names, time, volume, op, offset, length| Header {
        format: Format::Csv,
        names,
        layout: Layout {
            delimiter: Delimiter::Byte(b','),
            header: true,
            columns: None,
            time: (time, TimeUnit::Seconds),
            clock: SourceClock::Relative,
            volume,
            op: OpColumn::new(op, OpRule::Words),
            offset,
            length: (length, 1),
            latency: None,
        },
    };
    fixed.chain([
        // CloudPhysics in the form of libCacheSim: SCSI codes, 512-byte blocks.
        csv(
            "version,time,op,size,lbn",
            1,
            VolumeColumns::Single,
            2,
            (4, SECTOR_BYTES),
            3,
        ),
        // Meta's block traces: offsets within blocks.
        csv(
            "blockid,iooffset,iosize,optime,opname",
            3,
            VolumeColumns::One(0),
            4,
            (1, 1),
            2,
        ),
    ])
}

/// Layout found by its header.
pub(crate) struct ByHeader {
    pub(crate) format: Format,
    pub(crate) layout: Layout,
    /// True for the published header, false for a header with additional columns.
    pub(crate) exact: bool,
}

/// Returns the layout of a file whose first row is such a header.
pub(crate) fn by_header(first_row: &[u8]) -> Option<ByHeader> {
    let delimiter = Delimiter::guess(first_row);
    let mut names: Vec<String> = cells(first_row, delimiter)
        .into_iter()
        .map(|cell| normalized(cell).unwrap_or_default().replace('_', ""))
        .collect();
    // A delimiter behind the last name is allowed, as in rows.
    names.pop_if(|last| last.is_empty());
    let mut loose = None;
    for header in headers() {
        let joined = header.names.replace('_', "");
        let expected: Vec<&str> = joined.split(',').collect();
        let exact = names == expected;
        let at = |i: usize| {
            names
                .iter()
                .position(|name| Some(&name.as_str()) == expected.get(i))
        };
        let Some(layout) = permuted(&header.layout, at) else {
            continue;
        };
        let format = header.format;
        let layout = Layout {
            delimiter,
            header: true,
            columns: header.layout.columns.filter(|_| exact),
            ..layout
        };
        let found = ByHeader {
            format,
            layout,
            // The names of this format are unique.
            exact: exact || format == Format::Csv,
        };
        if found.exact {
            return Some(found);
        }
        loose = loose.or(Some(found));
    }
    loose
}

/// Returns the layout with its columns at other positions; `None` if a column other than the latency is missing.
fn permuted(layout: &Layout, at: impl Fn(usize) -> Option<usize>) -> Option<Layout> {
    let op = match &layout.op {
        OpColumn::All(_) => layout.op.clone(),
        OpColumn::In { index, rule, .. } => OpColumn::new(at(*index)?, *rule),
    };
    Some(Layout {
        time: (at(layout.time.0)?, layout.time.1),
        volume: match layout.volume {
            VolumeColumns::Single => VolumeColumns::Single,
            VolumeColumns::One(a) => VolumeColumns::One(at(a)?),
            VolumeColumns::Two(a, b) => VolumeColumns::Two(at(a)?, at(b)?),
        },
        op,
        offset: (at(layout.offset.0)?, layout.offset.1),
        length: (at(layout.length.0)?, layout.length.1),
        latency: layout
            .latency
            .and_then(|(index, unit)| Some((at(index)?, unit))),
        ..layout.clone()
    })
}

/// Returns the layout of a column format for a file that begins with `rows`: with or without a header, with another
/// delimiter than a comma, or with dates as times.
pub(crate) fn fitted_layout(format: Format, rows: &[&[u8]]) -> Option<Layout> {
    let first = rows.first().copied().unwrap_or_default();
    let header = by_header(first).filter(|found| found.format == format);
    let mut layout = match header {
        Some(found) => found.layout,
        None => {
            let layout = text_layout(format)?;
            let delimiter = match (layout.delimiter, Delimiter::guess(first)) {
                (Delimiter::Byte(b','), Delimiter::Byte(other)) => Delimiter::Byte(other),
                (own, _) => own,
            };
            Layout {
                delimiter,
                ..layout
            }
        }
    };
    let data = rows.get(usize::from(layout.header));
    let time = data.and_then(|row| cells(row, layout.delimiter).get(layout.time.0).copied());
    if time.is_some_and(looks_like_date) {
        layout.time.1 = TimeUnit::Date;
        layout.clock = TimeUnit::Date.clock();
    }
    Some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_headers_identify_their_format_in_any_spelling() {
        for (text, format) in [
            (
                "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
                Format::Msr,
            ),
            (
                "\"TIMESTAMP\"; \"Host Name\" ;disk_number;type;offset;SIZE;response time",
                Format::Msr,
            ),
            (
                "timestamp\thostname\tdisknumber\ttype\toffset\tsize\tresponsetime",
                Format::Msr,
            ),
            ("Timestamp,Response,IOType,LUN,Offset,Size", Format::Systor),
            ("device_id,opcode,offset,length,timestamp", Format::Alibaba),
            ("Timestamp,Offset,Size,IOType,VolumeID", Format::Tencent),
            ("ASU,LBA,Size,Opcode,Timestamp", Format::Spc),
            ("version, time, op, size, lbn", Format::Csv),
            (
                "op_time,block_id,io_offset,io_size,op_name,pipeline",
                Format::Csv,
            ),
            (CAPTURE_HEADER, Format::Capture),
        ] {
            let found = by_header(text.as_bytes()).map(|f| (f.format, f.exact));
            assert_eq!(found, Some((format, true)), "{text}");
        }
        let reordered = by_header(b"disknumber,hostname,timestamp,type,size,offset").unwrap();
        assert_eq!((reordered.format, reordered.exact), (Format::Msr, false));
        assert_eq!(reordered.layout.time.0, 2);
        assert_eq!(reordered.layout.volume, VolumeColumns::Two(1, 0));
        assert_eq!(
            (reordered.layout.offset.0, reordered.layout.length.0),
            (5, 4)
        );
        assert_eq!(reordered.layout.latency, None);
        assert!(by_header(b"time_us,offset_bytes,length_bytes").is_none());
    }
}
