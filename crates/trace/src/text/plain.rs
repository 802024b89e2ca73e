//! The fast way through lines of the Microsoft Research Cambridge form that hold nothing unusual.
//!
//! ```text
//! 128166372003061629,web,0,Read,8192,4096,1331
//! digits            │known │one of│digits … then LF or CR LF
//!                   │before│ two  │
//! ```
//!
//! A line is either *plain* (these bytes and no others, all numbers in range) and read here, eight digits at a time in one
//! word and without looking for its end first, or it is left to the careful reader, which is the only one that knows what is wrong with
//! a line. So there is one set of rules and of messages; that both read a plain line alike is tested on mutated
//! lines. A volume's name is taken from the careful reader too: here only its bytes are compared.

use model::Op;

use super::field::FILETIME_UNIX_EPOCH;
use crate::record::RawRecord;

/// Longest `host,disk,` that is remembered; longer ones are read carefully each time.
const PREFIX_BYTES_MAX: usize = 16;
/// Names that are remembered, one for each value of a hash; a power of two. Traces have tens of volumes.
const NAMES: usize = 512;
/// Positions in a line are taken modulo this, so that the compiler sees that they lie within the window. Plain lines have
/// at most 106 bytes: four numbers of up to 19 digits, a prefix, a word, commas and the end.
const AT_MASK: usize = 127;
/// What must be there for a line to be read the fast way: any position, and a word behind it. The last lines of a buffer
/// are read carefully.
const WINDOW_BYTES: usize = AT_MASK + 1 + PREFIX_BYTES_MAX;
type Window = [u8; WINDOW_BYTES];
/// Bytes that are searched for commas. A line whose last comma lies behind them is read carefully: those of published traces
/// have it at about 50.
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

/// `host,disk,` as it stands in the file, and its volume.
#[derive(Debug, Clone, Copy)]
struct Name {
    /// The bytes, zeros behind them; what no text can have where nothing is remembered.
    bytes: u128,
    volume: u32,
}

const NOBODY: Name = Name {
    bytes: u128::MAX,
    volume: 0,
};

/// Names that the careful reader has seen, and the fast way itself.
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

    /// Reads plain lines from the front of `window` until one is not, or `out` has `limit` records, or time goes back:
    /// bytes and lines.
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

    /// [`Self::parse_many`] for one line.
    #[inline(never)]
    pub(super) fn parse_one(&mut self, window: &[u8]) -> Option<(RawRecord, usize)> {
        self.parse(window)
    }

    /// Reads the line at the front of `window`, if it is plain and its end is there: the record and its length with the
    /// line end.
    #[inline(always)]
    fn parse(&mut self, window: &[u8]) -> Option<(RawRecord, usize)> {
        let window = window.first_chunk::<WINDOW_BYTES>()?;
        // Where the commas are is found for the whole line at once, so that no field waits for the one before it.
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

    /// Remembers the name of a line that the careful reader took for a volume's.
    #[cold]
    pub(super) fn learn(&mut self, line: &[u8], volume: u32) {
        let mut commas = memchr::memchr_iter(b',', line);
        let (Some(first), Some(_), Some(third)) = (commas.next(), commas.next(), commas.next())
        else {
            return;
        };
        let prefix = &line[first + 1..=third];
        // A quote anywhere changes how the whole line is split.
        if prefix.len() > PREFIX_BYTES_MAX || memchr::memchr(b'"', line).is_some() {
            return;
        }
        let mut bytes = [0; PREFIX_BYTES_MAX];
        bytes[..prefix.len()].copy_from_slice(prefix);
        let bytes = u128::from_le_bytes(bytes);
        self.names[slot(bytes)] = Name { bytes, volume };
    }

    /// The volume of the prefix that begins at `at` and ends with the comma at `end`.
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

/// Ones in the first bytes of a word.
#[inline]
fn mask(bytes: usize) -> u128 {
    u128::MAX >> (8 * (PREFIX_BYTES_MAX - bytes))
}

/// Where a name is remembered.
#[inline]
fn slot(prefix: u128) -> usize {
    let folded = (prefix as u64) ^ ((prefix >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % NAMES
}

/// A bit for each of the first [`MASK_BYTES`] bytes that is a comma.
#[inline(always)]
fn commas(window: &Window) -> u64 {
    let mut all = 0;
    for i in 0..MASK_BYTES / 8 {
        let word = u64::from_le_bytes(std::array::from_fn(|b| window[8 * i + b])) ^ ASCII_COMMAS;
        // The high bit of every byte that is zero, without carries between bytes.
        let zeros = !((word & !HIGH_BITS).wrapping_add(!HIGH_BITS) | word) & HIGH_BITS;
        // The product brings bit 8 k of the factor to bit 56 + k.
        let bits = (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        all |= bits << (8 * i);
    }
    all
}

/// The number in `window[start..end]`, of 1 to 19 digits, which cannot overflow.
#[inline(always)]
fn number(window: &Window, start: usize, end: usize) -> Option<u64> {
    let full = |behind: usize| Some(word(window, end.wrapping_sub(behind))? ^ ASCII_ZEROS);
    let some = |count: usize| Some((word(window, start)? ^ ASCII_ZEROS) << (64 - 8 * count));
    // One test for all words: which of them has something else does not matter.
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

/// The high bit of every byte that is above nine, up to the first such one; what is behind it may be wrong.
#[inline(always)]
fn others(word: u64) -> u64 {
    (word.wrapping_add(0x7676_7676_7676_7676) | word) & HIGH_BITS
}

#[inline(always)]
fn word(window: &Window, at: usize) -> Option<u64> {
    let bytes = window[at & AT_MASK..].first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// `Read` or `Write` up to the comma at `end`: without a branch on which, since which is hard to foresee.
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

/// A number of 1 to 19 digits whose end is not known.
#[inline(always)]
fn digits(window: &Window, at: &mut usize) -> Option<u64> {
    let start = *at;
    let mut number = 0u64;
    loop {
        let word = word(window, *at)? ^ ASCII_ZEROS;
        let count = (others(word).trailing_zeros() / 8) as usize;
        if count > 0 {
            // The first digit goes to the most significant place of eight.
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

/// Eight digits, the first one in the lowest byte: pairs, then fours, then all.
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

    /// Everything a file comes to: records and errors in order, volumes, fast lines.
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
        fn plain_and_careful_agree(lines in prop::collection::vec(line(), 0..40)) {
            agree(lines.concat().as_bytes());
        }

        #[test]
        fn they_agree_on_mutated_lines(
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
        fn eight_digits_at_a_time(number in any::<u64>(), behind in "[^0-9]{8}") {
            let number = number / 10;
            let text = format!("{number}{behind}");
            let mut at = 0;
            prop_assert_eq!(digits(&window(&text), &mut at), Some(number));
            prop_assert_eq!(at, number.to_string().len());
        }
    }

    /// The fast way is taken, and not by chance: nearly all lines of a plain file go through it, across buffers.
    #[test]
    fn plain_lines_are_read_the_fast_way() {
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
        // Of 60 names, a few share a place and push one another out.
        assert!(plain > 40_000, "{plain}");
        assert_eq!(
            digits(&window("12345678901234567890,"), &mut 0),
            None,
            "twenty digits"
        );
        assert_eq!(digits(&window(","), &mut 0), None, "no digit");
    }
}
