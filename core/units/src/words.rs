//! Rounded quantities for sentences. `Display` prints exact values instead.

use std::fmt::Display;

use crate::{Bytes, Nanos};

/// Formats a count with its noun, which has a regular plural: "1 move", "2 moves".
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let s = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Units of time from seconds up, with their length in seconds.
const LONG: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Formats three digits without trailing zeroes.
fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

impl Nanos {
    /// Returns a rounded text in one or two units: `250us`, `4.21ms`, `2.5s`, `4m 10s`, `3h 5m`, `2d`.
    pub fn words(self) -> String {
        let ns = self.0 as f64;
        match self.0 {
            0 => "0s".into(),
            1..1_000 => format!("{}ns", self.0),
            1_000..999_500 => format!("{}us", three_digits(ns / 1e3)),
            999_500..999_500_000 => format!("{}ms", three_digits(ns / 1e6)),
            999_500_000..59_950_000_000 => format!("{}s", three_digits(ns / 1e9)),
            _ => {
                let seconds = self.0.div_ceil(500_000_000) / 2;
                // Rounded to the second unit: days and hours, hours and minutes, minutes and seconds.
                let first = LONG.iter().position(|u| seconds >= u.1).unwrap_or(2).min(2);
                let small = LONG[first + 1].1;
                let whole = (seconds + small / 2) / small * small;
                let (first, unit) = match first {
                    // Rounding up may reach the next larger unit: 59m 59s must not become 60m.
                    f if f > 0 && whole >= LONG[f - 1].1 => (f - 1, LONG[f - 1].1),
                    f => (f, LONG[f].1),
                };
                let (large, rest) = (whole / unit, whole % unit / LONG[first + 1].1);
                match rest {
                    0 => format!("{large}{}", LONG[first].0),
                    rest => format!("{large}{} {rest}{}", LONG[first].0, LONG[first + 1].0),
                }
            }
        }
    }
}

impl Bytes {
    /// Returns a text rounded to three digits: `512 B`, `4 KiB`, `93.4 GiB`.
    pub fn words(self) -> String {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return format!("{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        format!("{} {}", three_digits(value), UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_one_or_two_units() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_000, "1us"),
            (250_400, "250us"),
            (4_213_000, "4.21ms"),
            (42_000_000, "42ms"),
            (999_600_000, "1s"),
            (2_500_000_000, "2.5s"),
            (59_900_000_000, "59.9s"),
            (60_000_000_000, "1m"),
            (250_000_000_000, "4m 10s"),
            (250_400_000_000, "4m 10s"),
            (3_599_900_000_000, "1h"),
            (11_100_000_000_000, "3h 5m"),
            (172_800_000_000_000, "2d"),
            (183_600_000_000_000, "2d 3h"),
            (86_399_000_000_000, "1d"),
        ] {
            assert_eq!(Nanos(ns).words(), text, "{ns}");
        }
    }

    #[test]
    fn sizes_are_printed_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (1 << 40, "1 TiB"),
            (100_286_000_000, "93.4 GiB"),
            ((1 << 30) - 1, "1 GiB"),
        ] {
            assert_eq!(Bytes(bytes).words(), text, "{bytes}");
        }
    }
}
