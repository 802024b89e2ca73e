//! Parser of single fields: integers and times. Decimal times are scaled exactly in integers, without floats.

use super::date::{looks_like_date, parse_date};
use crate::error::FieldError;
use crate::source::SourceClock;

type FieldResult<T> = Result<T, Box<FieldError>>;

/// 100-ns steps from 1601-01-01 (Windows file time) to 1970-01-01 (Unix).
pub(super) const FILETIME_UNIX_EPOCH: i128 = 116_444_736_000_000_000;
/// Significant digits of a decimal: 10^28 · 10^9 fits 128 bits. Further digits of a fraction are dropped.
const DIGITS_MAX: u32 = 28;

/// Unit of a column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, with an optional fraction.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// Windows file time: steps of 100 ns since 1601-01-01. As a duration: steps of 100 ns.
    Filetime,
    /// Date and time of day (ISO 8601): `2024-03-01 12:00:00.002`. Never a duration.
    Date,
}

impl TimeUnit {
    /// Returns the unit of a name in a column mapping or in the suffix of a header.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "s" | "sec" | "seconds" => TimeUnit::Seconds,
            "ms" => TimeUnit::Millis,
            "us" => TimeUnit::Micros,
            "ns" => TimeUnit::Nanos,
            "filetime" => TimeUnit::Filetime,
            "date" => TimeUnit::Date,
            _ => return None,
        })
    }

    /// Returns the default origin of times in this unit.
    pub(crate) fn clock(self) -> SourceClock {
        match self {
            TimeUnit::Filetime | TimeUnit::Date => SourceClock::Unix,
            _ => SourceClock::Relative,
        }
    }

    fn ns(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Millis => 1_000_000,
            TimeUnit::Micros => 1_000,
            TimeUnit::Nanos | TimeUnit::Date => 1,
            TimeUnit::Filetime => 100,
        }
    }
}

/// Parses a whole number.
#[inline]
pub(crate) fn parse_u64(field: &'static str, value: &[u8]) -> FieldResult<u64> {
    // Nineteen digits cannot overflow.
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return parse_u64_slow(field, value);
    }
    Ok(value.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

#[cold]
fn parse_u64_slow(field: &'static str, value: &[u8]) -> FieldResult<u64> {
    if value.is_empty() {
        return Err(FieldError::new(field, value, "empty"));
    }
    let mut n = 0u64;
    for b in value {
        if !b.is_ascii_digit() {
            return Err(FieldError::new(field, value, "not a whole number"));
        }
        let next = n
            .checked_mul(10)
            .and_then(|n| n.checked_add(u64::from(b - b'0')));
        n = next.ok_or_else(|| FieldError::new(field, value, "beyond 2^64"))?;
    }
    Ok(n)
}

/// Parses a time to nanoseconds: since the Unix epoch for file times and dates, else since the column's own origin.
#[inline]
pub(crate) fn parse_time(field: &'static str, value: &[u8], unit: TimeUnit) -> FieldResult<i64> {
    if unit == TimeUnit::Filetime {
        let steps = i128::from(parse_u64(field, value)?) - FILETIME_UNIX_EPOCH;
        return i64::try_from(steps * 100)
            .map_err(|_| FieldError::new(field, value, "not within 1677 to 2262"));
    }
    if unit == TimeUnit::Date {
        return parse_date(field, value);
    }
    parse_decimal(field, value, unit.ns())
}

/// Parses a duration to nanoseconds; it must not be negative.
#[inline]
pub(super) fn parse_duration(
    field: &'static str,
    value: &[u8],
    unit: TimeUnit,
) -> FieldResult<u64> {
    let ns = parse_decimal(field, value, unit.ns())?;
    u64::try_from(ns).map_err(|_| FieldError::new(field, value, "negative"))
}

fn parse_decimal(field: &'static str, value: &[u8], unit_ns: u64) -> FieldResult<i64> {
    let out_of_range = || FieldError::new(field, value, "beyond 2^63 ns (292 years)");
    // Most fields are whole numbers or have few digits.
    let mut n = 0u64;
    let mut fraction_digits = None;
    for b in value {
        match b {
            b'0'..=b'9' => {
                n = n.wrapping_mul(10).wrapping_add(u64::from(b - b'0'));
                fraction_digits = fraction_digits.map(|d: u32| d + 1);
            }
            b'.' if fraction_digits.is_none() => fraction_digits = Some(0),
            _ => return parse_decimal_slow(field, value, unit_ns),
        }
    }
    let fraction = fraction_digits.unwrap_or(0);
    if value.is_empty() || value.len() > 19 || value == b"." {
        return parse_decimal_slow(field, value, unit_ns);
    }
    if fraction == 0 {
        return n
            .checked_mul(unit_ns)
            .and_then(|v| i64::try_from(v).ok())
            .ok_or_else(out_of_range);
    }
    let scaled = scale_down(u128::from(n) * u128::from(unit_ns), fraction);
    i64::try_from(scaled).map_err(|_| out_of_range())
}

/// Returns `n / 10^digits`, rounded to nearest.
fn scale_down(n: u128, digits: u32) -> u128 {
    match 10u128.checked_pow(digits) {
        // 64-bit division is several times faster, and nearly always sufficient.
        Some(divisor) => match (u64::try_from(n), u64::try_from(divisor)) {
            (Ok(n), Ok(d)) if n < u64::MAX - d => u128::from((n + d / 2) / d),
            _ => (n + divisor / 2) / divisor,
        },
        None => 0,
    }
}

/// Parses the general form: sign, digits, fraction, exponent.
#[cold]
fn parse_decimal_slow(field: &'static str, value: &[u8], unit_ns: u64) -> FieldResult<i64> {
    let fail = |reason: &'static str| FieldError::new(field, value, reason);
    if value.is_empty() {
        return Err(fail("empty"));
    }
    let (negative, rest) = match value {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, value),
    };
    let split = rest.iter().position(|b| matches!(b, b'e' | b'E'));
    let (number, exponent) = match split {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let exponent = match exponent {
        None => 0i64,
        Some(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|t| t.parse::<i16>().ok())
            .map(i64::from)
            .ok_or_else(|| fail("not a number"))?,
    };
    let (mut n, mut digits, mut shift, mut any, mut in_fraction) =
        (0u128, 0u32, exponent, false, false);
    for b in number {
        match b {
            b'0'..=b'9' if digits < DIGITS_MAX => {
                n = n * 10 + u128::from(b - b'0');
                digits += u32::from(n > 0);
                shift -= i64::from(in_fraction);
                any = true;
            }
            b'0'..=b'9' => shift += i64::from(!in_fraction),
            b'.' if !in_fraction => in_fraction = true,
            _ if looks_like_date(value) => {
                return Err(fail(
                    "a date, not a number: --columns time=COLUMN:date reads it",
                ));
            }
            _ => return Err(fail("not a number")),
        }
    }
    if !any {
        return Err(fail("not a number"));
    }
    let out_of_range = || fail("beyond 2^63 ns (292 years)");
    let n = n * u128::from(unit_ns);
    let n = if n == 0 {
        0
    } else if shift >= 0 {
        let factor = u32::try_from(shift)
            .ok()
            .and_then(|s| 10u128.checked_pow(s))
            .ok_or_else(out_of_range)?;
        n.checked_mul(factor).ok_or_else(out_of_range)?
    } else {
        scale_down(n, u32::try_from(-shift).map_err(|_| out_of_range())?)
    };
    let n = i64::try_from(n).map_err(|_| out_of_range())?;
    Ok(if negative { -n } else { n })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(text: &str) -> Result<i64, String> {
        parse_time("time", text.as_bytes(), TimeUnit::Seconds).map_err(|e| e.reason.into_owned())
    }

    #[test]
    fn decimal_times_are_exact() {
        assert_eq!(seconds("3.031770723"), Ok(3_031_770_723));
        assert_eq!(
            seconds("1600000000.123456789"),
            Ok(1_600_000_000_123_456_789)
        );
        assert_eq!(seconds("0.00003815"), Ok(38_150));
        assert_eq!(seconds("1.67560000002e-05"), Ok(16_756));
        assert_eq!(seconds("-0.5"), Ok(-500_000_000));
        assert_eq!(seconds("7."), Ok(7_000_000_000));
        assert_eq!(
            seconds("0.00000000000000000000000000000000000000000000000001"),
            Ok(0)
        );
        assert_eq!(seconds("1e-30000"), Ok(0));
        assert_eq!(
            parse_time("time", b"15849.28847", TimeUnit::Millis).unwrap(),
            15_849_288_470
        );
        for bad in [
            "",
            ".",
            "-",
            "1.2.3",
            "1e",
            "e5",
            "nan",
            "inf",
            "0x10",
            "1 2",
            "1e99999",
            "9e30",
            "99999999999",
        ] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn filetimes_become_unix_times() {
        // 2007-02-22 18:03:51.8061 UTC, the start of the MSR traces.
        let ns = parse_time("time", b"128166410318060999", TimeUnit::Filetime).unwrap();
        assert_eq!(ns / 1_000_000_000, 1_172_167_431);
        assert!(parse_time("time", b"0", TimeUnit::Filetime).is_err());
        assert!(parse_time("time", b"18446744073709551615", TimeUnit::Filetime).is_err());
    }

    proptest! {
        #[test]
        fn nanoseconds_survive_conversion_to_seconds(ns in 0..i64::MAX) {
            let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            prop_assert_eq!(seconds(&text), Ok(ns));
        }

        #[test]
        fn field_parsers_do_not_panic(value in prop::collection::vec(any::<u8>(), 0..60), digits in "[0-9.eE+-]{0,60}") {
            for text in [value.as_slice(), digits.as_bytes()] {
                for unit in [TimeUnit::Seconds, TimeUnit::Nanos, TimeUnit::Filetime, TimeUnit::Date] {
                    let _ = parse_time("time", text, unit);
                    let _ = parse_duration("latency", text, unit);
                }
                let _ = parse_u64("offset", text);
            }
        }
    }
}
