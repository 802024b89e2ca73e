//! Numbers as people read them. What is not finite is shown as a dash, never as `NaN`.

/// Shown where there is no value.
pub(crate) const NONE: &str = "-";

/// Microseconds, the unit of latencies in tables.
pub(crate) const MICROS: &str = "µs";

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

/// Four significant digits, for values whose size is not known beforehand.
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

/// Digits in groups of three with narrow spaces; for the page only, since it is not read by programs.
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

/// A point in time or a length of time in seconds, without a needless ".0".
pub(crate) fn seconds(value: f64) -> String {
    let text = fixed(value, 1);
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// A length of time in seconds, and for people in a larger unit.
pub(crate) fn long(value: f64) -> String {
    let larger = match value {
        s if s < 300.0 => return seconds(value),
        s if s < 3.0 * 3600.0 => format!("{} min", significant(s / 60.0)),
        s if s < 3.0 * 86_400.0 => format!("{} h", significant(s / 3600.0)),
        s => format!("{} days", significant(s / 86_400.0)),
    };
    format!("{} ({larger})", seconds(value))
}

pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Change against a base in percent, signed; a dash where the base is nothing.
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

/// Change against a base, as a ratio.
pub(crate) fn change_ratio(base: f64, value: f64) -> Option<f64> {
    let ratio = value / base - 1.0;
    (base > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// A number named with its unit, as in the evidence of a decision: `latency_mean_us` is in microseconds.
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

/// At most `most` characters, with an ellipsis.
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
    fn what_is_not_finite_is_a_dash() {
        assert_eq!(fixed(f64::NAN, 1), "-");
        assert_eq!(significant(f64::INFINITY), "-");
        assert_eq!(change(0.0, 3.0), "-");
        assert_eq!(change(f64::NAN, 3.0), "-");
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(change(100.0, 112.34), "+12.3 %");
        assert_eq!(change(100.0, 50.0), "-50.0 %");
        assert_eq!(change(100.0, 99.9999), "0.0 %");
    }

    #[test]
    fn digits_are_grouped_from_five_on() {
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
