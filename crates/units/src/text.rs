//! Parsing and printing of "number unit".

use thiserror::Error;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseUnitError {
    /// No digits at the start.
    #[error("\"{text}\" is not {expected}")]
    NotANumber {
        /// The offending text.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A number without a unit.
    #[error("\"{text}\" has no unit: expected {expected}")]
    NoUnit {
        /// The offending text.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A unit nobody knows.
    #[error("unknown unit \"{unit}\" in \"{text}\": use one of {known}")]
    UnknownUnit {
        /// The offending text.
        text: String,
        /// The unit as written.
        unit: String,
        /// What may be written.
        known: String,
    },
    /// Not a whole number of the smallest unit, or beyond 2^64.
    #[error("\"{text}\" is not a whole number of {smallest}, or is out of range")]
    OutOfRange {
        /// The offending text.
        text: String,
        /// The smallest unit.
        smallest: String,
    },
}

/// Parses `"12.5 MiB"` into units of 1. Exact: decimal digits are scaled in integers, never through a float.
pub(crate) fn parse_scaled(
    text: &str,
    expected: &'static str,
    units: &[(&str, u64)],
) -> Result<u64, ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > 12 || whole.len() > 20 {
        return Err(ParseUnitError::NotANumber {
            text: text.into(),
            expected,
        });
    }
    if unit.is_empty() {
        return Err(ParseUnitError::NoUnit {
            text: text.into(),
            expected,
        });
    }
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        let known = units.iter().map(|u| u.0).collect::<Vec<_>>().join(", ");
        return Err(ParseUnitError::UnknownUnit {
            text: text.into(),
            unit: unit.into(),
            known,
        });
    };
    let out_of_range = || ParseUnitError::OutOfRange {
        text: text.into(),
        smallest: units
            .iter()
            .min_by_key(|u| u.1)
            .map(|u| u.0.to_string())
            .unwrap_or_default(),
    };
    let ten_pow = 10u128.pow(fraction.len() as u32);
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| out_of_range())?;
    let scaled = digits.checked_mul(scale as u128).ok_or_else(out_of_range)?;
    if !scaled.is_multiple_of(ten_pow) {
        return Err(out_of_range());
    }
    u64::try_from(scaled / ten_pow).map_err(|_| out_of_range())
}

/// Prints with the largest unit in which the value is a whole number; exact by construction.
pub(crate) fn print_scaled(value: u64, units: &[(&str, u64)]) -> String {
    let smallest = units
        .iter()
        .min_by_key(|u| u.1)
        .expect("a quantity has units");
    let (name, scale) = units
        .iter()
        .filter(|u| value != 0 && value.is_multiple_of(u.1))
        .max_by_key(|u| u.1)
        .unwrap_or(smallest);
    let space = if name.ends_with('B') || name.ends_with("/s") {
        " "
    } else {
        ""
    };
    format!("{}{space}{name}", value / scale)
}
