//! Parsing of sizes in common notations: `256 GiB`, and `256G`, `1.5T`, `64k` as in `qemu-img` and `lvcreate`.
//!
//! A single letter is binary, in either case, and so is a letter with `iB`. Two letters that end in `B` are decimal, as
//! on data sheets, and accepted only in their usual form: `480 GB`. A bare number is refused, because `qemu-img` reads
//! it as bytes and `lvcreate` as MiB.

use crate::text::{ParseUnitError, parts};

/// Letters of binary units, each 1024 times the previous one.
const LETTERS: &str = "KMGTPE";

/// Decimal units of data sheets.
const DECIMAL: [(&str, u64); 6] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
];

/// List of all units, for messages.
const KNOWN: &str = "B; K, M, G, T, P, E or KiB, MiB, GiB, TiB, PiB, EiB (of 1024); kB, MB, GB, TB, PB, EB (of 1000)";

/// Parses a size into bytes.
pub(crate) fn parse_size(text: &str, expected: &'static str) -> Result<u64, ParseUnitError> {
    let parts = parts(text, expected)?;
    if parts.unit.is_empty() {
        return Err(ParseUnitError::BareSize {
            text: text.into(),
            number: parts.number(),
        });
    }
    let scale = scale(parts.unit).ok_or_else(|| ParseUnitError::UnknownUnit {
        text: text.into(),
        unit: parts.unit.into(),
        known: KNOWN.into(),
    })?;
    parts
        .scaled(scale)
        .ok_or_else(|| ParseUnitError::OutOfRange {
            text: text.into(),
            smallest: "B".into(),
        })
}

/// Returns the bytes of a unit.
fn scale(unit: &str) -> Option<u64> {
    let decimal = DECIMAL.iter().find(|(name, _)| *name == unit);
    if let Some((_, scale)) = decimal {
        return Some(*scale);
    }
    if unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let mut characters = unit.chars();
    let letter = characters.next()?.to_ascii_uppercase();
    let rest = characters.as_str();
    let place = LETTERS.find(letter)?;
    let binary = rest.is_empty() || rest.eq_ignore_ascii_case("ib");
    binary.then(|| 1 << (10 * (place + 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::Bytes;

    fn refused(text: &str) -> String {
        text.parse::<Bytes>().unwrap_err().to_string()
    }

    #[test]
    fn sizes_parse_like_in_other_tools() {
        for (text, bytes) in [
            ("10G", 10 << 30),
            ("512M", 512 << 20),
            ("1.5T", 3 << 39),
            ("64k", 64 << 10),
            ("64K", 64 << 10),
            ("2p", 2 << 50),
            ("1E", 1 << 60),
            ("4096B", 4096),
            ("4096 b", 4096),
            ("10GiB", 10 << 30),
            ("10 gib", 10 << 30),
            (" 0.5 KiB ", 512),
            ("480 GB", 480_000_000_000),
            ("7kB", 7000),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn refusals_suggest_the_correct_form() {
        assert_eq!(
            refused("4096"),
            "\"4096\" has no unit: `qemu-img` would take it for bytes, `lvcreate` for MiB; write \"4096B\" or \"4096M\""
        );
        assert_eq!(
            refused("10gb"),
            "unknown unit \"gb\" in \"10gb\": use one of B; K, M, G, T, P, E or KiB, MiB, GiB, TiB, PiB, EiB (of 1024); \
             kB, MB, GB, TB, PB, EB (of 1000)"
        );
        assert_eq!(
            refused("0.3K"),
            "\"0.3K\" is not a whole number of B, or is out of range"
        );
        assert_eq!(
            refused("16E"),
            "\"16E\" is not a whole number of B, or is out of range"
        );
        assert_eq!(
            refused("ten G"),
            "\"ten G\" is not a size such as \"256 GiB\" or \"256G\""
        );
        for other in [
            "10GG", "10iB", "10Gi", "10 G B", "10Ki", "1,5G", "10kib/s", "-1G",
        ] {
            refused(other);
        }
    }

    proptest! {
        /// A letter, in either case, with or without `iB`, shifts the number. Beyond 2^64 it is refused, never wrapped.
        #[test]
        fn unit_letter_shifts_the_number(
            number in any::<u64>(), place in 0..6usize, lower: bool, long: bool, space: bool, leading in 0..3usize,
        ) {
            let mut unit = ["K", "M", "G", "T", "P", "E"][place].to_string();
            if long {
                unit += "iB";
            }
            if lower {
                unit = unit.to_lowercase();
            }
            // Spread over all magnitudes, not only the largest.
            let number = number >> (number % 64);
            let text = format!("{number}{}{unit}", if space { " " } else { "" });
            let exact = u128::from(number) << (10 * (place + 1));
            let taken = text.parse::<Bytes>().ok().map(|b| u128::from(b.0));
            prop_assert_eq!(taken, (exact <= u128::from(u64::MAX)).then_some(exact));
            let padded = format!("{}{text}", "0".repeat(leading));
            if padded.len() < 20 {
                prop_assert_eq!(padded.parse::<Bytes>().ok().map(|b| u128::from(b.0)), taken);
            }
        }

        /// A decimal fraction is exact or refused: `thousandths` ÷ 1000 of a unit is a whole number of bytes or not.
        #[test]
        fn fraction_is_exact_or_refused(whole in 0..1u64 << 20, thousandths in 0..1000u64, place in 0..4usize) {
            let unit = ["k", "M", "g", "T"][place];
            let text = format!("{whole}.{thousandths:03}{unit}");
            let exact = u128::from(whole * 1000 + thousandths) << (10 * (place + 1));
            let taken = text.parse::<Bytes>().ok().map(|b| u128::from(b.0));
            prop_assert_eq!(taken, exact.is_multiple_of(1000).then_some(exact / 1000));
        }

        /// Every bare number is refused.
        #[test]
        fn bare_number_is_refused(number in any::<u64>()) {
            prop_assert!(refused(&number.to_string()).contains("has no unit"));
        }
    }
}
