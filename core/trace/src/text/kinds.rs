//! Kinds of requests in a column: words, letters of the block tracer, operation codes, and values with a meaning
//! defined by the user.

use std::borrow::Cow;

use model::Op;

use crate::error::{ColumnError, FieldError};
use crate::formats::{Kind, kind_of, nvme_op, scsi_op};

/// Largest number of values with a defined meaning. Protects the search in each row.
const MEANINGS_MAX: usize = 256;

/// Encoding of the kind in a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OpRule {
    /// Words or letters, in any case: `read`, `W`, `discard`, `flush`, `putChunk`; blktrace's `RS`, `WSM` and similar
    /// ones; codes of SCSI commands in hexadecimal.
    #[default]
    Words,
    /// `1` is a read, `0` a write.
    Read1,
    /// `0` is a read, `1` a write.
    Read0,
    /// Hexadecimal flags whose lowest bit means read. Only DiskSim's own format has them. Elsewhere a value other than
    /// 0 and 1 is more likely an operation code.
    DiskSimFlags,
    /// Codes of SCSI commands, in hexadecimal.
    Scsi,
    /// Codes of NVMe commands, in hexadecimal.
    Nvme,
}

impl OpRule {
    pub(super) const NAMES: &str = "words, read1, read0, scsi or nvme";

    /// Returns the rule of a name in a column mapping.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "words" => OpRule::Words,
            "read1" | "bit0" => OpRule::Read1,
            "read0" => OpRule::Read0,
            "scsi" => OpRule::Scsi,
            "nvme" => OpRule::Nvme,
            _ => return None,
        })
    }

    #[inline]
    pub(crate) fn parse(self, value: &[u8]) -> Result<Op, Box<FieldError>> {
        let op = match (self, value) {
            (OpRule::Words, b"R" | b"Read") | (OpRule::Read1, b"1") | (OpRule::Read0, b"0") => {
                return Ok(Op::Read);
            }
            (OpRule::Words, b"W" | b"Write") | (OpRule::Read1, b"0") | (OpRule::Read0, b"1") => {
                return Ok(Op::Write);
            }
            (OpRule::Words, _) => word(value),
            (OpRule::Read1 | OpRule::Read0, _) => None,
            (OpRule::DiskSimFlags, _) => {
                hexadecimal(value).map(|flags| if flags & 1 == 1 { Op::Read } else { Op::Write })
            }
            (OpRule::Scsi, _) => code(value).and_then(scsi_op),
            (OpRule::Nvme, _) => code(value).and_then(nvme_op),
        };
        op.ok_or_else(|| FieldError::new("op", value, self.expected(value)))
    }

    #[cold]
    fn expected(self, value: &[u8]) -> &'static str {
        match self {
            _ if value.is_empty() => "empty",
            OpRule::Words => "not a known kind of request (read, write, trim or flush)",
            OpRule::Read1 | OpRule::Read0 => "neither 0 nor 1",
            OpRule::DiskSimFlags => "not a hexadecimal number",
            OpRule::Scsi => "not the code of a SCSI command that reads, writes, unmaps or flushes",
            OpRule::Nvme => {
                "not the code of an NVMe command that reads, writes, deallocates or flushes"
            }
        }
    }
}

/// Column of the kind, or the kind of all requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpColumn {
    /// Fixed kind of all requests.
    All(Op),
    /// Column with the kind.
    In {
        /// Number of the column, from 0.
        index: usize,
        /// Rule for values without a defined meaning.
        rule: OpRule,
        /// Values with meanings defined by the user.
        meanings: Meanings,
    },
}

impl OpColumn {
    pub(crate) fn new(index: usize, rule: OpRule) -> Self {
        OpColumn::In {
            index,
            rule,
            meanings: Meanings::default(),
        }
    }
}

/// Values with kinds defined by the user; `None` for rows to skip. Case does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meanings(Vec<(String, Option<Op>)>);

impl Meanings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses and adds `read=28|a8`, or `28=read`.
    pub(super) fn add(&mut self, left: &str, right: &str) -> Result<(), ColumnError> {
        let refuse = |why| {
            let part = format!("{left}={right}");
            ColumnError::Meaning { part, why }
        };
        let (kind, values) = match (meaning(left), meaning(right)) {
            (Some(kind), _) => (kind, right),
            (None, Some(kind)) => (kind, left),
            (None, None) => {
                return Err(refuse(
                    "maps neither a column nor a kind: use time=, volume=, op=, offset=, length= or \
                     latency=, or for values of the op column read=, write=, trim=, flush= or skip=",
                ));
            }
        };
        for value in values.split('|').map(str::trim) {
            if value.is_empty() {
                return Err(refuse("has an empty value"));
            }
            if self
                .get(value.as_bytes())
                .is_some_and(|known| known != kind)
            {
                return Err(ColumnError::TwoKinds(value.into()));
            }
            if self.0.len() == MEANINGS_MAX {
                return Err(ColumnError::TooManyValues { max: MEANINGS_MAX });
            }
            self.0.push((value.to_owned(), kind));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn get(&self, value: &[u8]) -> Option<Option<Op>> {
        let found = |(known, _): &&(String, _)| value.eq_ignore_ascii_case(known.as_bytes());
        self.0.iter().find(found).map(|(_, kind)| *kind)
    }
}

/// Returns the kind for a word of a mapping.
fn meaning(word: &str) -> Option<Option<Op>> {
    Some(match word.trim() {
        "read" => Some(Op::Read),
        "write" => Some(Op::Write),
        "trim" => Some(Op::Trim),
        "flush" => Some(Op::Flush),
        "skip" => None,
        _ => return None,
    })
}

/// Appends the option that maps a value of the op column to the message.
#[cold]
pub(super) fn with_remedy(
    mut error: Box<FieldError>,
    index: usize,
    value: &[u8],
) -> Box<FieldError> {
    let column = index + 1;
    let shown = if error.value.is_empty() || value.iter().any(|b| b",|=\"".contains(b)) {
        "VALUE"
    } else {
        error.value.as_str()
    };
    error.reason = Cow::Owned(format!(
        "{} in column {column}: map the value with --columns op={column}:read={shown} (or write=, trim=, flush=, \
         skip=), or name the rule: op={column}:read1, read0, scsi or nvme",
        error.reason
    ));
    error
}

/// Words of applications and drivers, in any case, without the separators of their parts.
const WORDS: [(&str, Op); 40] = [
    ("r", Op::Read),
    ("rd", Op::Read),
    ("rs", Op::Read),
    ("read", Op::Read),
    ("reads", Op::Read),
    ("get", Op::Read),
    ("gets", Op::Read),
    ("load", Op::Read),
    ("pread", Op::Read),
    ("readv", Op::Read),
    ("diskread", Op::Read),
    ("w", Op::Write),
    ("wr", Op::Write),
    ("ws", Op::Write),
    ("write", Op::Write),
    ("writes", Op::Write),
    ("put", Op::Write),
    ("set", Op::Write),
    ("store", Op::Write),
    ("pwrite", Op::Write),
    ("writev", Op::Write),
    ("writesame", Op::Write),
    ("diskwrite", Op::Write),
    ("d", Op::Trim),
    ("t", Op::Trim),
    ("trim", Op::Trim),
    ("discard", Op::Trim),
    ("unmap", Op::Trim),
    ("delete", Op::Trim),
    ("del", Op::Trim),
    ("deallocate", Op::Trim),
    ("writezeroes", Op::Trim),
    ("writezeros", Op::Trim),
    ("f", Op::Flush),
    ("flush", Op::Flush),
    ("sync", Op::Flush),
    ("fsync", Op::Flush),
    ("fdatasync", Op::Flush),
    ("synchronizecache", Op::Flush),
    ("diskflush", Op::Flush),
];

#[inline]
fn word(value: &[u8]) -> Option<Op> {
    // Longer than any of the words with its suffixes.
    const BYTES_MAX: usize = 64;
    if value.len() > BYTES_MAX {
        return None;
    }
    // Examples: getChunkData.NotInitialized; READ(10)
    let end = value.iter().position(|b| b".(".contains(b));
    let stem = value[..end.unwrap_or(value.len())].trim_ascii();
    let stem = [b"_6".as_slice(), b"_10", b"_12", b"_16", b"_32"]
        .iter()
        .find_map(|length| stem.strip_suffix(*length))
        .unwrap_or(stem);
    let letters = || stem.iter().filter(|b| !b"_- ".contains(b));
    let found = WORDS
        .iter()
        .find(|(word, _)| letters().map(u8::to_ascii_lowercase).eq(word.bytes()));
    if let Some((_, op)) = found {
        return Some(*op);
    }
    // Examples: getChunkData, putChunk
    if let [a, b, c, next, ..] = stem
        && next.is_ascii_uppercase()
    {
        match &[*a, *b, *c].map(|b| b.to_ascii_lowercase()) {
            b"get" if c.is_ascii_lowercase() => return Some(Op::Read),
            b"put" if c.is_ascii_lowercase() => return Some(Op::Write),
            _ => {}
        }
    }
    match kind_of(value) {
        Some(Kind::Transfer(op)) => return Some(op),
        Some(Kind::Flush) => return Some(Op::Flush),
        Some(Kind::Nothing) | None => {}
    }
    // With fewer digits it may also be a flag or an NVMe code.
    let digits = value.strip_prefix(b"0x").or(value.strip_prefix(b"0X"));
    if digits.is_none() && value.len() != 2 {
        return None;
    }
    code(value).and_then(scsi_op)
}

/// Parses an operation code of one or two hexadecimal digits.
fn code(value: &[u8]) -> Option<u16> {
    hexadecimal(value)
        .and_then(|n| u8::try_from(n).ok())
        .map(u16::from)
}

fn hexadecimal(value: &[u8]) -> Option<u64> {
    let digits = value.strip_prefix(b"0x").or(value.strip_prefix(b"0X"));
    let digits = std::str::from_utf8(digits.unwrap_or(value)).ok()?;
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(rule: OpRule, text: &str) -> Option<Op> {
        rule.parse(text.as_bytes()).ok()
    }

    #[test]
    fn kind_words_of_applications_and_drivers_are_known() {
        for (op, words) in [
            (
                Op::Read,
                "R r Read READ rd GET get RS RA RSM getChunkData.NotInitialized getChunkData READ(10) READ_16 ",
            ),
            (Op::Read, "28 08 a8 A8 88 0x28 0X88 0x8"),
            (
                Op::Write,
                "W w WRITE Write WS WSM WFS ZA ZAS PUT putChunk.Permanent Set WRITE_SAME WRITE(6) WAU",
            ),
            (Op::Write, "2a 2A 0x2a 0a 8a aa AA 2e 8e ae 41 93 0x93"),
            (
                Op::Trim,
                "D d trim DISCARD unmap delete DE DS WZ WZS Write-Zeroes write_zeroes 42",
            ),
            (
                Op::Flush,
                "F flush SYNC FF FN fsync SYNCHRONIZE_CACHE 35 91 0x35",
            ),
        ] {
            for word in words.split_whitespace() {
                assert_eq!(kind(OpRule::Words, word), Some(op), "{word}");
            }
        }
        assert_eq!(kind(OpRule::Words, "write zeroes"), Some(Op::Trim));
        for word in [
            "",
            "Rubbish",
            "0",
            "1",
            "00",
            "02",
            "2",
            "8",
            "a",
            "288",
            "getter",
            "GETX",
            "N",
            "ZR",
            "readwrite",
        ] {
            assert_eq!(kind(OpRule::Words, word), None, "{word}");
        }
    }

    #[test]
    fn kind_rules_refuse_unknown_values() {
        assert_eq!(kind(OpRule::DiskSimFlags, "b"), Some(Op::Read));
        assert_eq!(kind(OpRule::DiskSimFlags, "+1"), None);
        assert_eq!(kind(OpRule::Read0, "0"), Some(Op::Read));
        assert_eq!(kind(OpRule::Read1, "2a"), None);
        assert_eq!(OpRule::from_name("bit0"), Some(OpRule::Read1));
        assert_eq!(kind(OpRule::Scsi, "8"), Some(Op::Read));
        assert_eq!(kind(OpRule::Scsi, "12"), None);
        for (code, op) in [
            ("0", Op::Flush),
            ("01", Op::Write),
            ("0x02", Op::Read),
            ("9", Op::Trim),
            ("7D", Op::Write),
        ] {
            assert_eq!(kind(OpRule::Nvme, code), Some(op), "{code}");
        }
        assert_eq!(kind(OpRule::Nvme, "2a"), None);
    }

    #[test]
    fn meanings_may_be_given_in_either_order() {
        let mut meanings = Meanings::default();
        meanings.add("read", "28|a8").unwrap();
        meanings.add("2a", "write").unwrap();
        meanings.add("skip", "12").unwrap();
        assert_eq!(meanings.get(b"A8"), Some(Some(Op::Read)));
        assert_eq!(meanings.get(b"2a"), Some(Some(Op::Write)));
        assert_eq!(meanings.get(b"12"), Some(None));
        assert_eq!(meanings.get(b"13"), None);
        for (left, right, says) in [
            ("28", "2a", "neither a column nor a kind"),
            ("read", "2a", "two kinds"),
            ("read", "1||2", "empty"),
        ] {
            let error = meanings.add(left, right).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn kind_parsers_do_not_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            for rule in [OpRule::Words, OpRule::Read1, OpRule::DiskSimFlags, OpRule::Scsi, OpRule::Nvme] {
                let _ = rule.parse(&value);
            }
        }
    }
}
