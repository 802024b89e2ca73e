//! Dates with times of day: ISO 8601 and its usual variants.
//!
//! ```text
//! 2024-03-01T12:00:00.002Z    2024/03/01 12:00    2024-03-01 12:00:00,002 +01:00
//! ```
//!
//! A date without a zone is in UTC. Dates that do not begin with the year are rejected, because the order of day and
//! month is unknown.

use crate::error::FieldError;

const NS_PER_S: i128 = 1_000_000_000;
/// Digits of a fraction down to a nanosecond; further ones are dropped.
const FRACTION_DIGITS: usize = 9;

/// Returns true if a value has the form of a date, even of one that [`parse_date`] refuses.
pub(crate) fn looks_like_date(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let separator = value.get(digits);
    (1..=4).contains(&digits)
        && value.get(digits + 1).is_some_and(u8::is_ascii_digit)
        && match separator {
            Some(b'/') => true,
            Some(b'-' | b'.') => value[digits + 1..].iter().any(|b| Some(b) == separator),
            _ => false,
        }
}

/// Parses a date to nanoseconds since the Unix epoch.
pub(super) fn parse_date(field: &'static str, value: &[u8]) -> Result<i64, Box<FieldError>> {
    parse(value).map_err(|reason| FieldError::new(field, value, reason))
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn next_is(&mut self, bytes: &[u8]) -> Option<u8> {
        let first = *self.0.first()?;
        bytes.contains(&first).then(|| {
            self.0 = &self.0[1..];
            first
        })
    }

    /// Parses a number of exactly `digits` digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        if !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(number.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
    }

    fn number_within(&mut self, from: i64, to: i64) -> Option<i64> {
        self.number(2).filter(|n| (from..=to).contains(n))
    }
}

fn parse(value: &[u8]) -> Result<i64, &'static str> {
    const FORM: &str = "not a date such as 2024-03-01T12:00:00.002Z";
    if value.is_empty() {
        return Err("empty");
    }
    let year_digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    if year_digits < 4 && looks_like_date(value) {
        return Err(
            "an ambiguous date: its order of day and month is unknown; write it as \
             2024-03-01 12:00:00",
        );
    }
    let mut text = Cursor(value);
    let year = text.number(4).ok_or(FORM)?;
    let separator = text.next_is(b"-/.").ok_or(FORM)?;
    let month = text
        .number_within(1, 12)
        .ok_or("a month that is not 01 to 12")?;
    text.next_is(&[separator]).ok_or(FORM)?;
    let day = text
        .number_within(1, days_in(year, month))
        .ok_or("a day that the month does not have")?;
    let mut ns = i128::from(days_since_epoch(year, month, day)) * 86_400 * NS_PER_S;
    if !text.0.is_empty() {
        text.next_is(b"Tt ").ok_or(FORM)?;
        while text.next_is(b" ").is_some() {}
        ns += time_of_day(&mut text)?;
        ns -= zone(&mut text)?;
    }
    i64::try_from(ns).map_err(|_| "not within 1677 to 2262")
}

fn time_of_day(text: &mut Cursor<'_>) -> Result<i128, &'static str> {
    const FORM: &str = "not a time of day such as 12:00:00.002";
    let hour = text.number_within(0, 23).ok_or(FORM)?;
    text.next_is(b":").ok_or(FORM)?;
    let minute = text.number_within(0, 59).ok_or(FORM)?;
    let (mut second, mut fraction) = (0, 0);
    if text.next_is(b":").is_some() {
        // 60 is a leap second.
        second = text.number_within(0, 60).ok_or(FORM)?;
        if text.next_is(b".,").is_some() {
            let digits = text.0.iter().take_while(|b| b.is_ascii_digit()).count();
            if digits == 0 {
                return Err(FORM);
            }
            for at in 0..FRACTION_DIGITS {
                let digit = text.0[..digits].get(at).map_or(0, |b| i128::from(b - b'0'));
                fraction = fraction * 10 + digit;
            }
            text.0 = &text.0[digits..];
        }
    }
    Ok(i128::from((hour * 60 + minute) * 60 + second) * NS_PER_S + fraction)
}

/// Parses the offset of the zone from UTC, positive to the east.
fn zone(text: &mut Cursor<'_>) -> Result<i128, &'static str> {
    const FORM: &str = "only a time zone, Z or +01:00, may follow the time of day";
    while text.next_is(b" ").is_some() {}
    if [b"".as_slice(), b"Z", b"z", b"UTC", b"GMT"].contains(&text.0) {
        return Ok(0);
    }
    let sign = match text.next_is(b"+-").ok_or(FORM)? {
        b'-' => -1,
        _ => 1,
    };
    let hours = text.number_within(0, 23).ok_or(FORM)?;
    let has_colon = text.next_is(b":").is_some();
    let minutes = match text.0.is_empty() && !has_colon {
        true => 0,
        false => text.number_within(0, 59).ok_or(FORM)?,
    };
    if !text.0.is_empty() {
        return Err(FORM);
    }
    Ok(i128::from(sign * (hours * 60 + minutes)) * 60 * NS_PER_S)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let months: i64 = (1..month).map(|m| days_in(year, m)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> Result<i64, String> {
        parse_date("time", text.as_bytes()).map_err(|e| e.reason.into_owned())
    }

    #[test]
    fn dates_are_nanoseconds_since_the_epoch() {
        let noon = 1_709_294_400_000_000_000;
        for (text, expected) in [
            ("1970-01-01 00:00:00", 0),
            ("2024-03-01 12:00:00.002", noon + 2_000_000),
            ("2024-03-01T12:00:00,002Z", noon + 2_000_000),
            ("2024/03/01 12:00", noon),
            ("2024-03-01t14:00:00+02:00", noon),
            ("2024-03-01 07:30:00 -0430", noon),
            ("2024-03-01T21:00:00.1234567891+09", noon + 123_456_789),
            ("2024.03.01 12:00:00 UTC", noon),
            ("2024-03-01", noon - 43_200_000_000_000),
            ("1969-12-31 23:59:59.5", -500_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),
            ("2000-02-29 00:00:00", 951_782_400_000_000_000),
        ] {
            assert_eq!(ns(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unsupported_dates_are_refused_with_the_reason() {
        for (text, says) in [
            ("", "empty"),
            ("01/03/2024 12:00:00", "ambiguous"),
            ("1.3.2024 12:00", "ambiguous"),
            ("3-1-24 12:00", "ambiguous"),
            ("2024-13-01 12:00", "month"),
            ("2023-02-29 12:00", "day"),
            ("2024-03-01 24:01", "time of day"),
            ("2024-03-01 12:00:00.", "time of day"),
            ("2024-03-01 12:00:00 PM", "zone"),
            ("2024-03-01 12:00:00+1", "zone"),
            ("2024-03/01", "not a date"),
            ("9999-03-01", "1677"),
            ("12:00:00", "not a date"),
            ("5633898", "not a date"),
        ] {
            let reason = ns(text).unwrap_err();
            assert!(reason.contains(says), "{text}: {reason}");
        }
        assert!(!looks_like_date(b"1.5") && !looks_like_date(b"-3") && !looks_like_date(b"1e-5-3"));
    }
}
