//! Format of numbers for people. An unknown value is a dash, never a zero.

/// Shown for an unknown value.
pub(super) const NONE: &str = "–";

/// Formats a number with three significant digits; larger numbers have all integer digits, in groups of three.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => NONE.into(),
        s if s >= 99.95 || s == 0.0 => grouped(&format!("{value:.0}")),
        s if s >= 9.995 => format!("{value:.1}"),
        s if s >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// [`number`], or a dash for an unknown value.
pub(super) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), number)
}

pub(super) fn count(value: impl Into<u64>) -> String {
    grouped(&value.into().to_string())
}

/// Formats a count with its noun.
pub(super) fn counted(value: u32, one: &str, many: &str) -> String {
    match value {
        1 => format!("1 {one}"),
        n => format!("{} {many}", count(n)),
    }
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let mut out = String::from(sign);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

/// Formats a size with its IEC unit.
pub(super) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value} B"),
        unit => format!("{} {}", number(scaled), UNITS[unit]),
    }
}

/// Formats a rate in MiB/s, without the unit.
pub(super) fn mib_per_s(bytes_per_s: f64) -> String {
    number(bytes_per_s / f64::from(1 << 20))
}

/// Formats a duration with its unit.
pub(super) fn duration(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        s if s < 0.1 => format!("{} ms", number(s * 1e3)),
        s if s < 120.0 => format!("{} s", number(s)),
        s if s < 7200.0 => format!("{} min", number(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", number(s / 3600.0)),
        s => format!("{} days", number(s / 86_400.0)),
    }
}

/// Formats a past time as its age.
pub(super) fn ago(now_ns: u64, at_ns: u64) -> String {
    format!("{} ago", duration(now_ns.saturating_sub(at_ns)))
}

/// Formats a ratio, 0..=1, as a percentage.
pub(super) fn percent(share: f64) -> String {
    match share.is_finite() {
        true => format!("{} %", number(share * 100.0)),
        false => NONE.into(),
    }
}

/// Formats a relative change as a percentage with its sign.
pub(super) fn signed_percent(share: f64) -> String {
    match share.is_finite() {
        true if share > 0.0 => format!("+{}", percent(share)),
        _ => percent(share),
    }
}

/// Formats a time as `2026-02-03 04:05:06`, UTC.
pub(super) fn date_time(unix_ms: u64) -> String {
    let s = unix_ms / 1000;
    let (days, rest) = (s / 86_400, s % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Converts days since 1970 to year, month and day. Years begin in March here, which makes the leap day the last day.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all_integer_digits() {
        let all = [
            0.0, 0.01234, 0.5, 9.99, 9.996, 99.94, 99.96, 1234.5, 12345.6, -98765.0,
        ];
        let texts = all.map(number);
        let narrow = [
            "0",
            "0.012",
            "0.50",
            "9.99",
            "10.0",
            "99.9",
            "100",
            "1234",
            "12\u{202f}346",
            "-98\u{202f}765",
        ];
        assert_eq!(texts, narrow);
        assert_eq!(maybe(None), NONE);
        assert_eq!(number(f64::NAN), NONE);
    }

    #[test]
    fn quantities_have_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(u64::MAX), "16\u{202f}777\u{202f}216 TiB");
        assert_eq!(duration(1_500_000), "1.50 ms");
        assert_eq!(duration(90_000_000_000), "90.0 s");
        assert_eq!(duration(7_000_000_000_000), "117 min");
        assert_eq!(signed_percent(0.1234), "+12.3 %");
        assert_eq!(signed_percent(-0.5), "-50.0 %");
        assert_eq!(counted(1, "job", "jobs"), "1 job");
    }

    #[test]
    fn date_conversion_is_correct_at_boundaries() {
        assert_eq!(date_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_time(951_827_696_000), "2000-02-29 12:34:56");
        assert_eq!(date_time(1_767_225_599_999), "2025-12-31 23:59:59");
        assert_eq!(date_time(4_107_542_400_000), "2100-03-01 00:00:00");
    }
}
