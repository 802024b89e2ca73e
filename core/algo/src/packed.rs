//! Dense arrays of integers as short text, for states that are written as JSON.
//!
//! ```text
//!   numbers ──▶ tokens: value·2, or repeats·2 + 1 of the value before ──▶ varints ──▶ base64 (RFC 4648, no padding)
//! ```
//!
//! Arrays of counters are mostly zeroes and small numbers: a million counters with a thousand in use take a few KiB.
//! Decoding returns exactly the encoded numbers, also for floating-point numbers (their bits are packed). Not a
//! compressor: arrays without runs and with large values grow by a third.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

use crate::StateError;

/// Maximum number of numbers that are decoded: a short text could otherwise request any amount of memory.
const NUMBERS_MAX: usize = 1 << 28;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Packs numbers.
pub fn encode(numbers: impl Iterator<Item = u32>) -> String {
    let mut bytes = Vec::new();
    let mut last: Option<u32> = None;
    let mut repeats = 0u64;
    for number in numbers {
        if last == Some(number) {
            repeats += 1;
            continue;
        }
        flush(&mut bytes, last, &mut repeats);
        varint(&mut bytes, u64::from(number) << 1);
        last = Some(number);
    }
    flush(&mut bytes, last, &mut repeats);
    base64(&bytes)
}

fn flush(bytes: &mut Vec<u8>, last: Option<u32>, repeats: &mut u64) {
    if let (Some(_), 1..) = (last, *repeats) {
        varint(bytes, *repeats << 1 | 1);
    }
    *repeats = 0;
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = 0u32;
        for i in 0..3 {
            group = group << 8 | u32::from(*chunk.get(i).unwrap_or(&0));
        }
        for i in 0..=chunk.len() {
            text.push(ALPHABET[(group >> (18 - 6 * i) & 63) as usize] as char);
        }
    }
    text
}

/// Unpacks numbers.
///
/// # Errors
/// [`StateError`], if the text was not made by [`encode`].
pub fn decode(text: &str) -> Result<Vec<u32>, StateError> {
    let bytes = unbase64(text)?;
    let mut numbers: Vec<u32> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let token = read_varint(&bytes, &mut at)?;
        let (value, count) = if token & 1 == 0 {
            let value =
                u32::try_from(token >> 1).map_err(|_| StateError::WideNumber(token >> 1))?;
            (value, 1)
        } else {
            let last = *numbers.last().ok_or(StateError::RepeatOfNothing)?;
            (last, token >> 1)
        };
        if count > (NUMBERS_MAX - numbers.len()) as u64 {
            return Err(StateError::TooManyNumbers { max: NUMBERS_MAX });
        }
        numbers.resize(numbers.len() + count as usize, value);
    }
    Ok(numbers)
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Result<u64, StateError> {
    let mut value = 0u64;
    for shift in (0..42).step_by(7) {
        let byte = *bytes.get(*at).ok_or(StateError::PartialNumber)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(StateError::LongNumber)
}

fn unbase64(text: &str) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut group, mut bits) = (0u32, 0);
    for (at, c) in text.bytes().enumerate() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(StateError::NotBase64 { at }),
        };
        group = group << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits) as u8);
        }
    }
    if bits == 6 || group & ((1 << bits) - 1) != 0 {
        return Err(StateError::Truncated);
    }
    Ok(bytes)
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).map_err(D::Error::custom)
}

/// Module for `#[serde(with)]` on a `Vec<u32>`.
pub mod u32s {
    use super::*;

    /// Serializes as packed text.
    pub fn serialize<S: Serializer>(numbers: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(numbers.iter().copied()))
    }

    /// Deserializes packed text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
        read(deserializer)
    }
}

/// Module for `#[serde(with)]` on a `Vec<u16>`.
pub mod u16s {
    use super::*;

    /// Serializes as packed text.
    pub fn serialize<S: Serializer>(numbers: &[u16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(numbers.iter().map(|n| u32::from(*n))))
    }

    /// Deserializes packed text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
        let wide = read(deserializer)?.into_iter();
        let narrow = wide.map(|n| {
            u16::try_from(n).map_err(|_| D::Error::custom("packed value exceeds 16 bits"))
        });
        narrow.collect()
    }
}

/// Module for `#[serde(with)]` on a `Vec<u64>`: each number as its lower and its upper half.
pub mod u64s {
    use super::*;

    /// Serializes as packed text.
    pub fn serialize<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        let halves = numbers.iter().flat_map(|n| [*n as u32, (*n >> 32) as u32]);
        serializer.serialize_str(&encode(halves))
    }

    /// Deserializes packed text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let halves = read(deserializer)?;
        if halves.len() % 2 != 0 {
            return Err(D::Error::custom("packed text ends after half of a number"));
        }
        let pairs = halves.chunks(2);
        Ok(pairs
            .map(|h| u64::from(h[0]) | u64::from(h[1]) << 32)
            .collect())
    }
}

/// Module for `#[serde(with)]` on a `Vec<f32>`: the bits of the numbers.
pub mod f32s {
    use super::*;

    /// Serializes as packed text.
    pub fn serialize<S: Serializer>(numbers: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(numbers.iter().map(|n| n.to_bits())))
    }

    /// Deserializes packed text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        Ok(read(deserializer)?
            .into_iter()
            .map(f32::from_bits)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        #[serde(with = "u16s")]
        a: Vec<u16>,
        #[serde(with = "u32s")]
        b: Vec<u32>,
        #[serde(with = "u64s")]
        c: Vec<u64>,
        #[serde(with = "f32s")]
        d: Vec<f32>,
    }

    proptest! {
        #[test]
        fn packed_values_round_trip(
            a in proptest::collection::vec(any::<u16>(), 0..50),
            b in proptest::collection::vec(prop_oneof![Just(0u32), Just(u32::MAX), any::<u32>()], 0..200),
            c in proptest::collection::vec(any::<u64>(), 0..50),
            d in proptest::collection::vec(-1e30f32..1e30, 0..50),
        ) {
            let all = All { a, b, c, d };
            let text = serde_json::to_string(&all).unwrap();
            prop_assert_eq!(serde_json::from_str::<All>(&text).unwrap(), all);
        }

        #[test]
        fn arbitrary_text_is_read_or_refused(text in "[A-Za-z0-9+/=]{0,40}") {
            if let Ok(numbers) = decode(&text) {
                prop_assert!(numbers.len() <= NUMBERS_MAX);
            }
        }
    }

    #[test]
    fn sparse_counters_are_encoded_compactly() {
        let mut counters = vec![0u32; 1_000_000];
        for i in 0..1000 {
            counters[i * 997] = 1 + i as u32 % 90;
        }
        let text = encode(counters.iter().copied());
        assert!(text.len() < 8_000, "{}", text.len());
        assert_eq!(decode(&text).unwrap(), counters);
    }

    #[test]
    fn known_encodings_match_and_invalid_ones_are_refused() {
        // 5, 5, 5, 1: tokens 10, 5 (two repeats), 2.
        assert_eq!(encode([5, 5, 5, 1].into_iter()), "CgUC");
        assert_eq!(decode("CgUC").unwrap(), [5, 5, 5, 1]);
        for (text, why) in [
            ("Cg=", "character 2"),
            ("C", "truncated"),
            ("gA", "ends within"),
            ("BQ", "begins with a repeat"),
            ("Cv////8H", "more than"),
            ("gICAgICAAA", "too long"),
        ] {
            let error = decode(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
