//! Detection of a file's format from its first bytes. It never guesses silently: uncertain results are marked.

use crate::detect_rows::detect_rows;
use crate::formats::{Format, VscsiVersion, by_header, plausible, plausible_oracle};
use crate::native::MAGIC;
use crate::text::{
    ColumnSpec, Delimiter, ResolvedLayout, TimeUnit, cells, looks_like_date, parse_time, parse_u64,
};

/// Bytes of a file (after decompression) that detection reads.
pub const DETECT_BYTES: usize = 64 << 10;
/// First bytes of a Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Rows that detection reads.
const ROWS_MAX: usize = 1000;
/// Rows that are used to explain an unknown format.
const ROWS_EXPLAINED: usize = 20;

/// Result of the detection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detection {
    /// Only this format fits.
    Known(Format),
    /// Best guess; the content cannot confirm it.
    Assumed {
        /// Assumed format.
        format: Format,
        /// Reason of the uncertainty.
        why: String,
    },
    /// Several formats fit equally well.
    Ambiguous(Vec<Format>),
    /// No format fits.
    Unknown {
        /// Description of the content, and a suggestion.
        hint: String,
    },
}

/// Detects the format from a file's first [`DETECT_BYTES`] uncompressed bytes (fewer only if the file is shorter). The
/// file's name only helps to explain an unknown format; it never decides.
pub fn detect(first: &[u8], file_name: &str) -> Detection {
    let unknown = |hint: &str| Detection::Unknown {
        hint: hint.to_owned(),
    };
    if first.is_empty() {
        return unknown("the file is empty");
    }
    if first.starts_with(&MAGIC) {
        return Detection::Known(Format::Native);
    }
    if first.starts_with(PARQUET_MAGIC) {
        return Detection::Known(Format::Parquet);
    }
    match (
        plausible(first, VscsiVersion::V1),
        plausible(first, VscsiVersion::V2),
    ) {
        (true, false) => return Detection::Known(Format::Vscsi1),
        (false, true) => return Detection::Known(Format::Vscsi2),
        (true, true) => return Detection::Ambiguous(vec![Format::Vscsi1, Format::Vscsi2]),
        (false, false) => {}
    }
    if crate::measurements::plausible(first) {
        return unknown(
            "the file has measurements of load, not requests: only `trace info` reads it",
        );
    }
    if plausible_oracle(first) {
        return Detection::Known(Format::OracleGeneral);
    }
    if first.get(257..262) == Some(b"ustar") {
        return unknown("the file is a tar archive: unpack it first");
    }
    if first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff") {
        return unknown("the file is UTF-16 text: convert it to UTF-8 first");
    }
    if first.contains(&0) {
        return unknown("unknown binary data");
    }
    let rows = rows(first);
    let Some(line) = rows.first() else {
        return unknown("the file has only blank lines");
    };
    detect_text(line, &rows, file_name)
}

/// Returns the complete rows of the first bytes, without blank lines, comments, and a last line that may be truncated.
pub(crate) fn rows(first: &[u8]) -> Vec<&[u8]> {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    let complete = match text.iter().rposition(|b| *b == b'\n') {
        Some(end) if first.len() >= DETECT_BYTES => &text[..end],
        _ => text,
    };
    let lines = complete.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    lines
        .filter(|l| !l.trim_ascii().is_empty() && l[0] != b'#')
        .take(ROWS_MAX)
        .collect()
}

pub(crate) fn is_word(cell: &[u8]) -> bool {
    cell.eq_ignore_ascii_case(b"read") || cell.eq_ignore_ascii_case(b"write")
}

pub(crate) fn is_number(cell: &[u8]) -> bool {
    parse_u64("", cell).is_ok()
}

/// Returns true for a whole number or a date.
pub(crate) fn is_moment(cell: &[u8]) -> bool {
    is_number(cell) || looks_like_date(cell)
}

pub(crate) fn is_decimal(cell: &[u8]) -> bool {
    parse_time("", cell, TimeUnit::Nanos).is_ok()
}

fn detect_text(line: &[u8], rows: &[&[u8]], file_name: &str) -> Detection {
    if let Some(found) = by_header(line) {
        let format = found.format;
        return match found.exact {
            true => Detection::Known(format),
            false => Detection::Assumed {
                format,
                why: format!(
                    "the header has the columns of {format} in another order or with other columns, without \
                     their units"
                ),
            },
        };
    }
    let delimiter = match Delimiter::guess(line) {
        Delimiter::Whitespace => Delimiter::Byte(b','),
        character => character,
    };
    match cells(line, delimiter).as_slice() {
        [time, _, disk, op, offset, size, latency]
            if is_word(op)
                && is_moment(time)
                && [*disk, *offset, *size, *latency].into_iter().all(is_number) =>
        {
            return Detection::Known(Format::Msr);
        }
        _ => {}
    }
    match cells(line, Delimiter::Byte(b'\t')).as_slice() {
        [
            sequence,
            time,
            service,
            disk,
            op,
            sector,
            sectors,
            rest @ ..,
        ] if is_word(op)
            && rest.iter().all(|c| c.is_empty())
            && [*sequence, *disk, *sector, *sectors]
                .into_iter()
                .all(is_number)
            && is_decimal(time)
            && is_decimal(service) =>
        {
            return Detection::Known(Format::DiskMon);
        }
        _ => {}
    }
    if let Some(detection) = detect_rows(rows) {
        return detection;
    }
    if let Some(detection) = detect_five_columns(rows) {
        return detection;
    }
    match ColumnSpec::default().resolve(rows) {
        Ok(ResolvedLayout { assumed: None, .. }) => Detection::Known(Format::Csv),
        Ok(ResolvedLayout {
            assumed: Some(why), ..
        }) => Detection::Assumed {
            format: Format::Csv,
            why,
        },
        Err(reason) => Detection::Unknown {
            hint: explain(line, rows, file_name, &reason.to_string()),
        },
    }
}

/// Detects DiskSim's family: time, device, offset, length, kind. The columns have no units. The first row and three in
/// four rows must fit, because a trace may have a few bad rows.
fn detect_five_columns(rows: &[&[u8]]) -> Option<Detection> {
    let (mut fraction, mut thousands, mut sectors, mut flags) = (false, true, true, false);
    let mut misfits = 0;
    for (i, row) in rows.iter().enumerate() {
        let Some(FiveColumns {
            time,
            offset,
            length,
            kind,
        }) = five_columns(row)
        else {
            misfits += 1;
            if i == 0 || misfits > rows.len() / 4 {
                return None;
            }
            continue;
        };
        fraction |= !is_number(time);
        thousands &= time.ends_with(b"000") || time == b"0";
        sectors &= offset.is_multiple_of(512) && length.is_multiple_of(512);
        flags |= !matches!(kind, b"0" | b"1");
    }
    let (format, why) = match (fraction, sectors) {
        _ if flags => (
            Format::DiskSim,
            "the fifth column has values other than 0 and 1: flags whose lowest bit means read (disksim) or, \
             equally likely, operation codes (--columns op=5:scsi)",
        ),
        (true, false) => return Some(Detection::Known(Format::DiskSim)),
        (true, true) => (
            Format::AsciiBytesMs,
            "all offsets and lengths are multiples of 512, so they may be bytes (ascii-bytes-ms) or, less likely, \
             blocks (disksim)",
        ),
        (false, _) if thousands => (
            Format::MqSim,
            "the file does not name its unit of time: probably nanoseconds (mqsim), since all times end in 000, \
             otherwise microseconds (ssdsim)",
        ),
        (false, _) => (
            Format::SsdSim,
            "the file does not name its unit of time: probably microseconds (ssdsim), since not all times end in 000, \
             otherwise nanoseconds (mqsim)",
        ),
    };
    Some(Detection::Assumed {
        format,
        why: why.into(),
    })
}

struct FiveColumns<'a> {
    time: &'a [u8],
    offset: u64,
    length: u64,
    kind: &'a [u8],
}

fn five_columns(row: &[u8]) -> Option<FiveColumns<'_>> {
    let row = cells(row, Delimiter::Whitespace);
    let [time, device, offset, length, kind] = *row.as_slice() else {
        return None;
    };
    let is_kind = kind.len() <= 8 && kind.iter().all(u8::is_ascii_hexdigit);
    if !is_decimal(time) || !is_number(device) || !is_kind {
        return None;
    }
    let (offset, length) = (parse_u64("", offset).ok()?, parse_u64("", length).ok()?);
    Some(FiveColumns {
        time,
        offset,
        length,
        kind,
    })
}

fn explain(line: &[u8], rows: &[&[u8]], file_name: &str, reason: &str) -> String {
    let delimiter = Delimiter::guess(line);
    let columns = cells(line, delimiter);
    let numbers = columns.iter().any(|c| is_decimal(c));
    // Prose has commas too, but not the same number in most of its lines.
    let looked_at = &rows[..rows.len().min(ROWS_EXPLAINED)];
    let alike = looked_at
        .iter()
        .filter(|row| cells(row, delimiter).len() == columns.len())
        .count();
    let table = columns.len() > 1 && 2 * alike > looked_at.len();
    if table && (delimiter != Delimiter::Whitespace || numbers) || file_name.contains(".csv") {
        return format!(
            "{} columns that match no known format: {reason}",
            columns.len()
        );
    }
    "neither a known binary format nor rows of columns; see --format for the supported formats"
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Format {
        match detect(text.as_bytes(), "x") {
            Detection::Known(format) => format,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn assumed(text: &str) -> Format {
        match detect(text.as_bytes(), "x") {
            Detection::Assumed { format, .. } => format,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn formats_with_a_signature_are_detected() {
        assert_eq!(
            known("128166410318060999,host,1,Write,512,4096,1189\n"),
            Format::Msr
        );
        assert_eq!(
            known("0\t4.65\t0.00003815\t0\tWrite\t61\t32\r\n"),
            Format::DiskMon
        );
        assert_eq!(
            known("0\t0.047339\t0.00019073\t0\tRead\t13\t8\t\r\n"),
            Format::DiskMon
        );
        assert_eq!(known("7961.833 0 20228336 8 0\n"), Format::DiskSim);
        assert_eq!(
            known("time_s,node,op,offset_bytes,size_bytes\r\n3.03,2,R,37,512\n"),
            Format::HadoopCsv
        );
        assert_eq!(
            known("\u{feff}time_us,op,offset_sectors,size_bytes\n1,R,37,512\n"),
            Format::Csv
        );
        assert_eq!(
            known("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n"),
            Format::Capture
        );
    }

    #[test]
    fn formats_without_units_are_assumed() {
        assert_eq!(
            assumed("938513000 4 264719034 16 0\n938828000 3 1 16 0"),
            Format::MqSim
        );
        assert_eq!(
            assumed("0 0 280605840 2 1\n979 0 287641400 128 1\n"),
            Format::SsdSim
        );
        assert_eq!(
            assumed("0.000 0 3242508288 4096 0\n22.8 0 512 4096 1\n"),
            Format::AsciiBytesMs
        );
    }

    #[test]
    fn unknown_format_is_explained() {
        for (text, says) in [
            ("", "empty"),
            ("\n\n", "blank"),
            ("when,what\n1,2\n", "no column for the time"),
            ("hello world", "neither"),
            ("a\0b", "binary"),
        ] {
            match detect(text.as_bytes(), "x") {
                Detection::Unknown { hint } => assert!(hint.contains(says), "{text:?}: {hint}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}
