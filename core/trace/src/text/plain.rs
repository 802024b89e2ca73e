//! Fast path for ordinary lines of the Microsoft Research Cambridge form.
//!
//! ```text
//! 128166372003061629,web,0,Read,8192,4096,1331
//! digits            │known │one of│digits … then LF or CR LF
//!                   │before│ two  │
//! ```
//!
//! A line is *plain* if it has exactly this form and all numbers are in range. The fast path reads plain lines, eight
//! digits per word and without a prior search for the line end. The general reader handles all other lines, and it
//! alone produces errors. So there is one set of rules and messages. A test with mutated lines checks that both read
//! plain lines alike. Volume names come from the general reader too: the fast path only compares their bytes.

use model::Op;

use super::field::FILETIME_UNIX_EPOCH;
use crate::record::RawRecord;

/// Longest `host,disk,` that is cached. The general reader handles lines with longer ones.
const PREFIX_BYTES_MAX: usize = 16;
/// Number of cached names, one per hash value; a power of two. Traces have tens of volumes.
const NAMES: usize = 512;
/// Mask for positions in a line, which shows the compiler that they are within the window. Plain lines have at most 106
/// bytes: four numbers of up to 19 digits, a prefix, a word, commas and the end.
const AT_MASK: usize = 127;
/// Bytes that must be available for the fast path: any position, and a word after it. The general reader handles the
/// last lines of a buffer.
const WINDOW_BYTES: usize = AT_MASK + 1 + PREFIX_BYTES_MAX;
type Window = [u8; WINDOW_BYTES];
/// Bytes that are searched for commas. The general reader handles lines whose last comma is beyond them; in published
/// traces it is at about 50.
const MASK_BYTES: usize = 64;
const ASCII_COMMAS: u64 = 0x2c2c_2c2c_2c2c_2c2c;
const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const POWERS: [u64; 9] = [
    1,
    10,
    100,
    1000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Bytes of `host,disk,` in the file, and the volume.
#[derive(Debug, Clone, Copy)]
struct Name {
    /// Bytes, followed by zeros. An unused entry has a value that no text can have.
    bytes: u128,
    volume: u32,
}

const NOBODY: Name = Name {
    bytes: u128::MAX,
    volume: 0,
};

/// Cached names of volumes and the state of the fast path.
#[derive(Debug)]
pub(super) struct PlainMsr {
    names: [Name; NAMES],
    last: usize,
}

impl PlainMsr {
    pub(super) fn new() -> Self {
        Self {
            names: [NOBODY; NAMES],
            last: 0,
        }
    }

    /// Reads plain lines from the front of `window` until one is not plain, `out` has `limit` records, or time goes
    /// back. Returns the number of bytes and lines.
    pub(super) fn parse_many(
        &mut self,
        window: &[u8],
        out: &mut Vec<RawRecord>,
        limit: usize,
    ) -> (usize, u64) {
        let (mut at, mut lines) = (0, 0);
        let mut last_ns = out.last().map_or(i64::MIN, |last| last.time_ns);
        while out.len() < limit
            && let Some((record, length)) = self.parse(&window[at..])
        {
            out.push(record);
            at += length;
            lines += 1;
            if record.time_ns < last_ns {
                break;
            }
            last_ns = record.time_ns;
        }
        (at, lines)
    }

    /// Reads one line as [`Self::parse_many`] does.
    #[inline(never)]
    pub(super) fn parse_one(&mut self, window: &[u8]) -> Option<(RawRecord, usize)> {
        self.parse(window)
    }

    /// Reads the line at the front of `window`, if it is plain and complete. Returns the record and the length
    /// including the line end.
    #[inline(always)]
    fn parse(&mut self, window: &[u8]) -> Option<(RawRecord, usize)> {
        let window = window.first_chunk::<WINDOW_BYTES>()?;
        // The commas of the whole line are found at once, so no field depends on the previous one.
        let mut commas = commas(window);
        let ends: [usize; 6] = std::array::from_fn(|_| {
            let at = commas.trailing_zeros() as usize;
            commas &= commas.wrapping_sub(1);
            at
        });
        let [time_end, _, disk_end, op_end, offset_end, length_end] = ends;
        if length_end >= MASK_BYTES {
            return None;
        }
        let filetime = number(window, 0, time_end)?;
        let volume = self.volume(window, time_end + 1, disk_end)?;
        let op = op(window, disk_end + 1, op_end)?;
        let offset_bytes = number(window, op_end + 1, offset_end)?;
        let length = number(window, offset_end + 1, length_end)?;
        let mut at = length_end + 1;
        let response = digits(window, &mut at)?;
        at += usize::from(window[at & AT_MASK] == b'\r');
        if window[at & AT_MASK] != b'\n' {
            return None;
        }
        let steps = i64::try_from(filetime).ok()? - FILETIME_UNIX_EPOCH as i64;
        let length_bytes = u32::try_from(length).ok().filter(|l| *l > 0)?;
        offset_bytes.checked_add(length)?;
        let latency_ns = response
            .checked_mul(100)
            .filter(|ns| *ns <= i64::MAX as u64)?;
        let record = RawRecord {
            time_ns: steps.checked_mul(100)?,
            offset_bytes,
            latency_ns,
            length_bytes,
            volume,
            op,
        };
        Some((record, at + 1))
    }

    /// Caches the volume's name of a line that the general reader has parsed.
    #[cold]
    pub(super) fn learn(&mut self, line: &[u8], volume: u32) {
        let mut commas = memchr::memchr_iter(b',', line);
        let (Some(first), Some(_), Some(third)) = (commas.next(), commas.next(), commas.next())
        else {
            return;
        };
        let prefix = &line[first + 1..=third];
        // A quote anywhere changes the split of the whole line.
        if prefix.len() > PREFIX_BYTES_MAX || memchr::memchr(b'"', line).is_some() {
            return;
        }
        let mut bytes = [0; PREFIX_BYTES_MAX];
        bytes[..prefix.len()].copy_from_slice(prefix);
        let bytes = u128::from_le_bytes(bytes);
        self.names[slot(bytes)] = Name { bytes, volume };
    }

    /// Returns the volume of the prefix that begins at `at` and ends with the comma at `end`.
    #[inline(always)]
    fn volume(&mut self, window: &Window, at: usize, end: usize) -> Option<u32> {
        let length = end + 1 - at;
        if length > PREFIX_BYTES_MAX {
            return None;
        }
        let ahead: &[u8; PREFIX_BYTES_MAX] = window[at & AT_MASK..].first_chunk()?;
        let prefix = u128::from_le_bytes(*ahead) & mask(length);
        let name = &self.names[self.last];
        if prefix == name.bytes {
            return Some(name.volume);
        }
        let slot = slot(prefix);
        let name = &self.names[slot];
        if prefix != name.bytes {
            return None;
        }
        self.last = slot;
        Some(name.volume)
    }
}

/// Returns a mask of the first bytes of a word.
#[inline]
fn mask(bytes: usize) -> u128 {
    u128::MAX >> (8 * (PREFIX_BYTES_MAX - bytes))
}

/// Returns the cache slot of a name.
#[inline]
fn slot(prefix: u128) -> usize {
    let folded = (prefix as u64) ^ ((prefix >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % NAMES
}

/// Returns a bit for each of the first [`MASK_BYTES`] bytes that is a comma.
#[inline(always)]
fn commas(window: &Window) -> u64 {
    let mut all = 0;
    for i in 0..MASK_BYTES / 8 {
        let word = u64::from_le_bytes(std::array::from_fn(|b| window[8 * i + b])) ^ ASCII_COMMAS;
        // High bit of every zero byte, without carries between bytes.
        let zeros = !((word & !HIGH_BITS).wrapping_add(!HIGH_BITS) | word) & HIGH_BITS;
        // The product moves bit 8 k of the factor to bit 56 + k.
        let bits = (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        all |= bits << (8 * i);
    }
    all
}

/// Returns the number in `window[start..end]`. It has 1 to 19 digits and cannot overflow.
#[inline(always)]
fn number(window: &Window, start: usize, end: usize) -> Option<u64> {
    let full = |behind: usize| Some(word(window, end.wrapping_sub(behind))? ^ ASCII_ZEROS);
    let some = |count: usize| Some((word(window, start)? ^ ASCII_ZEROS) << (64 - 8 * count));
    // One test for all words, because the position of a wrong byte does not matter.
    let (number, others) = match end.wrapping_sub(start) {
        length @ 1..=8 => {
            let word = some(length)?;
            (eight(word), others(word))
        }
        length @ 9..=16 => {
            let (high, low) = (some(length - 8)?, full(8)?);
            (
                eight(high).wrapping_mul(POWERS[8]).wrapping_add(eight(low)),
                others(high) | others(low),
            )
        }
        length @ 17..=19 => {
            let (high, middle, low) = (some(length - 16)?, full(16)?, full(8)?);
            let number = eight(high)
                .wrapping_mul(POWERS[8])
                .wrapping_add(eight(middle))
                .wrapping_mul(POWERS[8]);
            (
                number.wrapping_add(eight(low)),
                others(high) | others(middle) | others(low),
            )
        }
        _ => return None,
    };
    (others == 0).then_some(number)
}

/// Returns the high bit of every byte above nine, up to the first such byte. Later bits may be wrong.
#[inline(always)]
fn others(word: u64) -> u64 {
    (word.wrapping_add(0x7676_7676_7676_7676) | word) & HIGH_BITS
}

#[inline(always)]
fn word(window: &Window, at: usize) -> Option<u64> {
    let bytes = window[at & AT_MASK..].first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Returns `Read` or `Write` up to the comma at `end`. It has no branch on the kind, which is unpredictable.
#[inline(always)]
fn op(window: &Window, at: usize, end: usize) -> Option<Op> {
    const WORDS: [(u64, u64, usize, Op); 2] = [
        (
            u64::from_le_bytes(*b"Read,\0\0\0"),
            u64::MAX >> 24,
            4,
            Op::Read,
        ),
        (
            u64::from_le_bytes(*b"Write,\0\0"),
            u64::MAX >> 16,
            5,
            Op::Write,
        ),
    ];
    let word = word(window, at)?;
    let (bytes, mask, length, op) = WORDS[usize::from(end - at == 5)];
    (word & mask == bytes && end - at == length).then_some(op)
}

/// Parses a number of 1 to 19 digits with an unknown end.
#[inline(always)]
fn digits(window: &Window, at: &mut usize) -> Option<u64> {
    let start = *at;
    let mut number = 0u64;
    loop {
        let word = word(window, *at)? ^ ASCII_ZEROS;
        let count = (others(word).trailing_zeros() / 8) as usize;
        if count > 0 {
            // The first digit goes to the most significant of eight places.
            number = number
                .wrapping_mul(POWERS[count])
                .wrapping_add(eight(word << (64 - 8 * count)));
        }
        *at += count;
        if count < 8 {
            break;
        }
        if *at - start > 16 {
            return None;
        }
    }
    let length = *at - start;
    (1..=19).contains(&length).then_some(number)
}

/// Converts eight digits, the first one in the lowest byte: pairs, then fours, then all.
#[inline(always)]
fn eight(word: u64) -> u64 {
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(100 + (1_000_000 << 32));
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(1 + (10_000 << 32));
    low.wrapping_add(high) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TraceError;
    use crate::formats::{Format, text_layout};
    use crate::source::RecordSource;
    use crate::text::ColumnReader;
    use proptest::prelude::*;

    type Outcome = (Vec<Result<RawRecord, String>>, Vec<String>, u64);

    /// Returns the complete result of a file: records and errors in order, volumes, lines read by the fast path.
    fn read(text: &[u8], fast: bool) -> Outcome {
        let layout = text_layout(Format::Msr).unwrap();
        let mut reader = ColumnReader::new("x", text, layout);
        if !fast {
            reader.read_carefully();
        }
        let mut out = Vec::new();
        let mut record = RawRecord::EMPTY;
        loop {
            match reader.next(&mut record) {
                Ok(true) => out.push(Ok(record)),
                Ok(false) => break,
                Err(TraceError::BadRecord(bad)) => out.push(Err(bad.to_string())),
                Err(other) => panic!("{other}"),
            }
        }
        let volumes = reader.volumes().iter().map(str::to_owned).collect();
        (out, volumes, reader.plain_lines())
    }

    fn window(text: &str) -> Window {
        let mut window = [b' '; WINDOW_BYTES];
        window[..text.len()].copy_from_slice(text.as_bytes());
        window
    }

    fn agree(text: &[u8]) -> u64 {
        let (fast, careful) = (read(text, true), read(text, false));
        assert_eq!((&fast.0, &fast.1), (&careful.0, &careful.1));
        fast.2
    }

    fn line() -> impl Strategy<Value = String> {
        let number = || {
            prop_oneof![
                0..3u64,
                any::<u64>(),
                0..1u64 << 40,
                Just(99_999_999),
                Just(100_000_000)
            ]
        };
        let time = prop_oneof![
            100_000_000_000_000_000..200_000_000_000_000_000u64,
            any::<u64>(),
            0..99u64
        ];
        let host = prop_oneof![
            "[a-z]{1,4}",
            Just("web".to_owned()),
            Just("a b".to_owned()),
            "[ \"\u{e4}\t]{0,3}"
        ];
        let op = prop_oneof![
            Just("Read"),
            Just("Write"),
            Just("read"),
            Just("Reads"),
            Just("W")
        ];
        let end = prop_oneof![
            Just("\n"),
            Just("\r\n"),
            Just(",\n"),
            Just(" \n"),
            Just("\n\n")
        ];
        (
            time,
            host,
            0..12u32,
            op,
            number(),
            prop_oneof![1..1u64 << 33, number()],
            number(),
            end,
        )
            .prop_map(|(time, host, disk, op, offset, length, response, end)| {
                format!("{time},{host},{disk},{op},{offset},{length},{response}{end}")
            })
    }

    proptest! {
        #[test]
        fn fast_and_general_parser_agree(lines in prop::collection::vec(line(), 0..40)) {
            agree(lines.concat().as_bytes());
        }

        #[test]
        fn fast_and_general_parser_agree_on_mutated_lines(
            lines in prop::collection::vec(line(), 1..20),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..12),
        ) {
            let mut text = lines.concat().into_bytes();
            for (at, byte, kind) in damage {
                let at = at.index(text.len());
                match kind {
                    0 => text[at] = byte,
                    1 => text.insert(at, b"0,9\n\" \r"[usize::from(byte) % 7]),
                    _ if text.len() > 1 => drop(text.remove(at)),
                    _ => {}
                }
            }
            agree(&text);
        }

        #[test]
        fn digit_parser_matches_the_decimal_text(number in any::<u64>(), behind in "[^0-9]{8}") {
            let number = number / 10;
            let text = format!("{number}{behind}");
            let mut at = 0;
            prop_assert_eq!(digits(&window(&text), &mut at), Some(number));
            prop_assert_eq!(at, number.to_string().len());
        }
    }

    /// Checks that the fast path is used: nearly all lines of a plain file go through it, across buffers.
    #[test]
    fn plain_lines_use_the_fast_parser() {
        let row = |i: u64| {
            format!(
                "{},h{},{},Read,{},4096,{}\n",
                128_166_372_003_061_629 + i,
                i % 20,
                i % 3,
                i * 512,
                i % 1000
            )
        };
        let text: String = (0..50_000).map(row).collect();
        let plain = agree(text.as_bytes());
        // A few of the 60 names share a slot and evict each other.
        assert!(plain > 40_000, "{plain}");
        assert_eq!(
            digits(&window("12345678901234567890,"), &mut 0),
            None,
            "twenty digits"
        );
        assert_eq!(digits(&window(","), &mut 0), None, "no digit");
    }
}
