//! Format of numbers for people. A number that is not finite is a dash, never `NaN`.

/// Shown for an unknown value.
pub(crate) const NONE: &str = "-";

/// Microseconds, the unit of latencies in tables.
pub(crate) const MICROS: &str = "µs";

/// Second line of the heading of columns with mean latencies.
pub(crate) const LATENCY: &str = "latency, µs";

pub(crate) fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NONE.into();
    }
    let text = format!("{value:.digits$}");
    // No "-0.0".
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| matches!(b, b'0' | b'.')) => rest.into(),
        _ => text,
    }
}

pub(crate) fn maybe(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NONE.into(), |v| fixed(v, digits))
}

/// Formats a number with four significant digits, for values of unknown magnitude.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => NONE.into(),
        s if s >= 1000.0 || value.fract() == 0.0 => fixed(value, 0),
        s if s >= 100.0 => fixed(value, 1),
        s if s >= 10.0 => fixed(value, 2),
        s if s >= 0.1 => fixed(value, 3),
        s if s >= 0.001 => fixed(value, 5),
        _ => format!("{value:.2e}"),
    }
}

/// Formats digits in groups of three with narrow spaces; only for the page, because programs do not read it.
pub(crate) fn grouped(text: &str) -> String {
    let whole = text.find(['.', 'e']).unwrap_or(text.len());
    let digits = text[..whole].trim_start_matches('-').len();
    if digits < 5 || text.starts_with(|c: char| c != '-' && !c.is_ascii_digit()) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 6);
    for (i, c) in text[..whole].char_indices() {
        let left = whole - i;
        if i > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out + &text[whole..]
}

/// Formats a time or a duration in seconds, without a trailing ".0".
pub(crate) fn seconds(value: f64) -> String {
    let text = fixed(value, 1);
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// Formats a duration in seconds, and a long one also in a larger unit.
pub(crate) fn long(value: f64) -> String {
    let larger = match value {
        s if s < 300.0 => return seconds(value),
        s if s < 3.0 * 3600.0 => format!("{} min", significant(s / 60.0)),
        s if s < 3.0 * 86_400.0 => format!("{} h", significant(s / 3600.0)),
        s => format!("{} days", significant(s / 86_400.0)),
    };
    format!("{} ({larger})", seconds(value))
}

/// Formats a duration in one unit: `250 ms`, `12 s`, `3 min`, `4.5 h`, `2.0 days`.
pub(crate) fn span(ns: u64) -> String {
    match ns as f64 / 1e9 {
        s if ns > 0 && s < 1.0 => format!("{} ms", fixed(s * 1e3, 0)),
        s if s < 120.0 => format!("{} s", fixed(s, 0)),
        s if s < 2.0 * 3600.0 => format!("{} min", fixed(s / 60.0, 0)),
        s if s < 2.0 * 86_400.0 => format!("{} h", fixed(s / 3600.0, 1)),
        s => format!("{} days", fixed(s / 86_400.0, 1)),
    }
}

/// Formats date and time in UTC, by the proleptic Gregorian calendar (days from civil, in eras of 400 years). `unix_ns` is in
/// nanoseconds since 1970.
pub fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, second) = (
        seconds.div_euclid(86_400) + 719_468,
        seconds.rem_euclid(86_400),
    );
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months count from March, which makes the leap day the last day of the year.
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC")
}

pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

pub(crate) fn mib(bytes: f64) -> f64 {
    bytes / (1u64 << 20) as f64
}

/// Formats a change relative to a base in percent, with its sign; a dash if the base is zero.
pub(crate) fn change(base: f64, value: f64) -> String {
    match change_ratio(base, value) {
        Some(ratio) => {
            let text = fixed(ratio * 100.0, 1);
            let sign = if text.starts_with('-') || text == "0.0" {
                ""
            } else {
                "+"
            };
            format!("{sign}{text} %")
        }
        None => NONE.into(),
    }
}

/// Returns a change relative to a base, as a ratio.
pub(crate) fn change_ratio(base: f64, value: f64) -> Option<f64> {
    let ratio = value / base - 1.0;
    (base > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// Formats a number with the unit that its name ends with, as in the evidence of a decision: `latency_mean_us` is in
/// microseconds.
pub(crate) fn with_unit_of(name: &str, value: f64) -> String {
    const UNITS: [(&str, &str); 6] = [
        ("_us", MICROS),
        ("_ms", "ms"),
        ("_s", "s"),
        ("_mib_per_s", "MiB/s"),
        ("_bytes", "B"),
        ("iops", "/s"),
    ];
    let unit = UNITS
        .iter()
        .filter(|(suffix, _)| name.ends_with(suffix))
        .max_by_key(|(suffix, _)| suffix.len());
    match unit {
        Some((_, unit)) => format!("{} {unit}", significant(value)),
        None => significant(value),
    }
}

/// Shortens a text to at most `most` characters, with an ellipsis.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_values_are_a_dash() {
        assert_eq!(fixed(f64::NAN, 1), "-");
        assert_eq!(significant(f64::INFINITY), "-");
        assert_eq!(change(0.0, 3.0), "-");
        assert_eq!(change(f64::NAN, 3.0), "-");
    }

    #[test]
    fn relative_changes_have_a_sign() {
        assert_eq!(change(100.0, 112.34), "+12.3 %");
        assert_eq!(change(100.0, 50.0), "-50.0 %");
        assert_eq!(change(100.0, 99.9999), "0.0 %");
    }

    #[test]
    fn time_spans_have_one_unit() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.25, "250 ms"),
            (1.0, "1 s"),
            (119.0, "119 s"),
            (180.0, "3 min"),
            (16_200.0, "4.5 h"),
            (172_800.0, "2.0 days"),
        ] {
            assert_eq!(span((seconds * 1e9) as u64), text);
        }
    }

    #[test]
    fn dates_respect_leap_years() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(utc(1_172_167_431_000_000_000), "2007-02-22 18:03:51 UTC");
    }

    #[test]
    fn digits_are_grouped_from_five_digits_on() {
        assert_eq!(grouped("1234.5"), "1234.5");
        assert_eq!(grouped("12345.6"), "12\u{202f}345.6");
        assert_eq!(grouped("-123456"), "-123\u{202f}456");
        assert_eq!(grouped("1234567"), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped("-"), "-");
    }

    #[test]
    fn evidence_has_the_unit_of_its_name() {
        assert_eq!(with_unit_of("latency_mean_us", 123.456), "123.5 µs");
        assert_eq!(with_unit_of("iops", 12345.6), "12346 /s");
        assert_eq!(with_unit_of("sensitivity_m", 0.98765), "0.988");
    }
}
