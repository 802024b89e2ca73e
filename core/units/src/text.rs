//! Parsing and printing of "number unit".

use thiserror::Error;

/// Reason a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseUnitError {
    /// No digits at the start.
    #[error("\"{text}\" is not {expected}")]
    NotANumber {
        /// Faulty text.
        text: String,
        /// Expected form.
        expected: &'static str,
    },
    /// A number without a unit.
    #[error("\"{text}\" has no unit: expected {expected}")]
    NoUnit {
        /// Faulty text.
        text: String,
        /// Expected form.
        expected: &'static str,
    },
    /// A size without a unit, which other tools interpret differently.
    #[error(
        "\"{text}\" has no unit: `qemu-img` would take it for bytes, `lvcreate` for MiB; write \"{number}B\" or \"{number}M\""
    )]
    BareSize {
        /// Faulty text.
        text: String,
        /// Its number.
        number: String,
    },
    /// The unit is unknown.
    #[error("unknown unit \"{unit}\" in \"{text}\": use one of {known}")]
    UnknownUnit {
        /// Faulty text.
        text: String,
        /// Unit in the text.
        unit: String,
        /// Known units.
        known: String,
    },
    /// The value is not a whole number of the smallest unit, or is beyond 2^64.
    #[error("\"{text}\" is not a whole number of {smallest}, or is out of range")]
    OutOfRange {
        /// Faulty text.
        text: String,
        /// Smallest unit.
        smallest: String,
    },
}

/// Number of a text and the rest after it.
pub(crate) struct Parts<'a> {
    whole: &'a str,
    fraction: &'a str,
    /// Unit without the space before it.
    pub(crate) unit: &'a str,
}

/// Splits `"12.5 MiB"`.
pub(crate) fn parts<'a>(
    text: &'a str,
    expected: &'static str,
) -> Result<Parts<'a>, ParseUnitError> {
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
    Ok(Parts {
        whole,
        fraction,
        unit,
    })
}

impl Parts<'_> {
    /// Returns the number in units of 1; `None` if it is not whole or is beyond 2^64. The result is exact: decimal
    /// digits are scaled as integers, never as floats.
    pub(crate) fn scaled(&self, scale: u64) -> Option<u64> {
        let ten_pow = 10u128.pow(self.fraction.len() as u32);
        let digits: u128 = format!("{}{}", self.whole, self.fraction).parse().ok()?;
        let scaled = digits.checked_mul(scale as u128)?;
        let whole = scaled.is_multiple_of(ten_pow);
        whole
            .then_some(scaled / ten_pow)
            .and_then(|n| u64::try_from(n).ok())
    }

    /// Returns the number as written.
    pub(crate) fn number(&self) -> String {
        match self.fraction {
            "" => self.whole.into(),
            fraction => format!("{}.{fraction}", self.whole),
        }
    }
}

/// Parses `"12.5 MiB"` into units of 1.
pub(crate) fn parse_scaled(
    text: &str,
    expected: &'static str,
    units: &[(&str, u64)],
) -> Result<u64, ParseUnitError> {
    let parts = parts(text, expected)?;
    if parts.unit.is_empty() {
        return Err(ParseUnitError::NoUnit {
            text: text.into(),
            expected,
        });
    }
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == parts.unit) else {
        let known = units.iter().map(|u| u.0).collect::<Vec<_>>().join(", ");
        return Err(ParseUnitError::UnknownUnit {
            text: text.into(),
            unit: parts.unit.into(),
            known,
        });
    };
    let smallest = units.iter().min_by_key(|u| u.1);
    parts
        .scaled(scale)
        .ok_or_else(|| ParseUnitError::OutOfRange {
            text: text.into(),
            smallest: smallest.map(|u| u.0.to_string()).unwrap_or_default(),
        })
}

/// Prints with the largest unit in which the value is a whole number, so the text is exact.
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
