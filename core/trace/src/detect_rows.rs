//! Formats that are detected by the content of their rows, in order. The first one that fits is used.

use crate::detect::{Detection, is_decimal, is_number, is_word};
use crate::formats::{
    FIO2_HEADER, FIO3_HEADER, Format, begins_summary, is_cos, is_device, is_event,
};
use crate::text::{Delimiter, cells};

/// Returns the format of the rows, if it is one of these.
pub(crate) fn detect_rows(rows: &[&[u8]]) -> Option<Detection> {
    let line = rows.first()?.trim_ascii();
    let known = |format| Some(Detection::Known(format));
    if line == FIO2_HEADER {
        return known(Format::Fio2);
    }
    if line == FIO3_HEADER {
        return known(Format::Fio3);
    }
    if is_cos(line) {
        return known(Format::IbmCos);
    }
    if is_event(line) {
        return known(Format::BlkEvents);
    }
    // blkparse prints the names of its input files, and joined outputs may begin with totals.
    let event = rows
        .iter()
        .find(|row| !begins_summary(row))
        .unwrap_or(&line);
    let blanks = cells(event, Delimiter::Whitespace);
    match blanks.as_slice() {
        [device, cpu, sequence, time, pid, action, ..]
            if is_device(device)
                && [*cpu, *sequence, *pid].into_iter().all(is_number)
                && is_decimal(time)
                && action.iter().all(u8::is_ascii_alphabetic) =>
        {
            return known(Format::Blkparse);
        }
        [time, pid, _, block, count, op, major, minor, ..]
            if (is_letter(op) || is_word(op))
                && [*time, *pid, *block, *count, *major, *minor]
                    .into_iter()
                    .all(is_number) =>
        {
            return known(Format::Fiu);
        }
        [block, count, day, sequence]
            if [*block, *count, *day, *sequence].into_iter().all(is_number) =>
        {
            return known(Format::Lis);
        }
        _ => {}
    }
    if rows.iter().all(|row| is_id(row)) && rows.iter().any(|row| *row != b"*") {
        return known(Format::Lirs);
    }
    detect_commas(rows)
}

fn is_id(row: &[u8]) -> bool {
    let row = row.trim_ascii();
    row == b"*" || is_number(row)
}

fn is_letter(cell: &[u8]) -> bool {
    matches!(cell, b"R" | b"r" | b"W" | b"w")
}

fn detect_commas(rows: &[&[u8]]) -> Option<Detection> {
    let line = rows.first()?;
    let delimiter = Delimiter::guess(line);
    if delimiter == Delimiter::Whitespace {
        return None;
    }
    match cells(line, delimiter).as_slice() {
        [time, response, op, lun, offset, size]
            if (is_letter(op) || is_word(op))
                && is_decimal(time)
                && (response.is_empty() || is_decimal(response))
                && [*lun, *offset, *size].into_iter().all(is_number) =>
        {
            Some(Detection::Known(Format::Systor))
        }
        [unit, block, size, op, time, ..]
            if is_letter(op)
                && [*unit, *block, *size].into_iter().all(is_number)
                && is_decimal(time) =>
        {
            Some(Detection::Known(Format::Spc))
        }
        [device, op, offset, length, time]
            if (is_letter(op) || is_word(op))
                && [*device, *offset, *length, *time].into_iter().all(is_number) =>
        {
            Some(Detection::Known(Format::Alibaba))
        }
        [..] if rows.iter().all(|row| is_tencent(row, delimiter)) => Some(Detection::Assumed {
            format: Format::Tencent,
            why: "the rows only resemble Tencent's: five numbers with commas, of which the first is a Unix time and \
                  the fourth is 0 or 1"
                .into(),
        }),
        _ => None,
    }
}

/// Returns true for a row of Unix time in seconds (2001 to 2065), offset, size, 0 or 1, volume.
fn is_tencent(row: &[u8], delimiter: Delimiter) -> bool {
    match cells(row, delimiter).as_slice() {
        [time, offset, size, op, volume] => {
            time.len() == 10
                && [*time, *offset, *size, *volume].into_iter().all(is_number)
                && matches!(*op, b"0" | b"1")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::detect;

    #[test]
    fn rows_identify_their_format() {
        for (text, format) in [
            ("0,20941264,8192,W,0.551706,x\n", Format::Spc),
            ("419,W,8792731648,16384,1577808144360767\n", Format::Alibaba),
            (
                "  8,16 5 2 0.000001850 18615 Q R 14 + 256 [java]\n",
                Format::Blkparse,
            ),
            (
                "35181 D read 136318976 4096 0.000000000 0 False\n",
                Format::BlkEvents,
            ),
            (
                "Input file sda.blktrace.0 added\n  8,16 5 2 0.000001850 18615 Q R 14 + 256 [java]\n",
                Format::Blkparse,
            ),
            (
                "1455592511.181391000,0.000221,R,4,1069133824,4096\n",
                Format::Systor,
            ),
            (
                "1455592511.181391000,,W,4,1069133824,4096\n",
                Format::Systor,
            ),
            (
                "329131208190249 4892 syslogd 904265560 8 W 6 0 531e77\n",
                Format::Fiu,
            ),
            (
                "128166372003061629;web;0;Read;8192;4096;1331\n",
                Format::Msr,
            ),
            (
                "2024-03-01 12:00:00.002,web,0,Read,8192,4096,1331\n",
                Format::Msr,
            ),
            ("fio version 2 iolog\r\nx add\n", Format::Fio2),
            ("fio version 3 iolog\n1 x add\n", Format::Fio3),
            ("3050771 25 0 0\n", Format::Lis),
            ("7\n*\n8\n", Format::Lirs),
            ("1219008 REST.PUT.OBJECT 8d4f 1056\n", Format::IbmCos),
        ] {
            assert_eq!(
                detect(text.as_bytes(), "x"),
                Detection::Known(format),
                "{text}"
            );
        }
        let tencent = detect(
            b"1538323200,12910952,128,0,1063\n1538323200,6265688,8,1,1063\n",
            "x",
        );
        assert!(
            matches!(
                tencent,
                Detection::Assumed {
                    format: Format::Tencent,
                    ..
                }
            ),
            "{tencent:?}"
        );
    }
}
