//! Axes: units that fit the values, ticks on round numbers.

use crate::format::{fixed, grouped};

/// Quantity of an axis; it determines the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Requests per second.
    Iops,
    /// MiB per second.
    MibPerS,
    /// Microseconds.
    Latency,
    /// 0..=1, shown in percent.
    Share,
    Gib,
    Volumes,
}

impl Quantity {
    /// Returns the unit for values up to `most`, and its size.
    pub(crate) fn unit(self, most: f64) -> (&'static str, f64) {
        match self {
            Quantity::Iops if most >= 20_000.0 => ("thousand requests/s", 1e3),
            Quantity::Iops => ("requests/s", 1.0),
            Quantity::MibPerS if most >= 10_240.0 => ("GiB/s", 1024.0),
            Quantity::MibPerS => ("MiB/s", 1.0),
            Quantity::Latency if most >= 5e6 => ("s", 1e6),
            Quantity::Latency if most >= 5e3 => ("ms", 1e3),
            Quantity::Latency => ("µs", 1.0),
            Quantity::Share => ("%", 0.01),
            Quantity::Gib if most >= 10_240.0 => ("TiB", 1024.0),
            Quantity::Gib => ("GiB", 1.0),
            Quantity::Volumes => ("volumes", 1.0),
        }
    }
}

/// Labelled position on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// Position, in the numbers of the axis.
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Ticks in a unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    pub(crate) unit: &'static str,
    pub(crate) ticks: Vec<Tick>,
}

/// Returns the smallest of 1, 2, 5 × 10ⁿ that is at least `least`.
fn round_up(least: f64) -> f64 {
    let magnitude = libm::pow(10.0, libm::log10(least).floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|f| f * magnitude);
    steps
        .into_iter()
        .find(|s| *s >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * magnitude)
}

/// Number of digits after the point that distinguish steps of `step`.
fn digits(step: f64) -> usize {
    (-libm::log10(step).floor()).clamp(0.0, 9.0) as usize
}

/// Returns ticks from 0 to at least `most`, and the end of the axis.
pub(crate) fn linear(most: f64, intervals: usize, whole: bool) -> (Vec<Tick>, f64) {
    let most = if most.is_finite() && most > 0.0 {
        most
    } else {
        1.0
    };
    let mut step = round_up(most / intervals as f64);
    if whole {
        step = step.max(1.0);
    }
    let count = (most / step - 1e-9).ceil().max(1.0) as usize;
    let ticks = (0..=count)
        .map(|i| Tick {
            at: i as f64 * step,
            label: grouped(&fixed(i as f64 * step, digits(step))),
        })
        .collect();
    (ticks, count as f64 * step)
}

/// Returns ticks for a logarithmic axis over `least..=most`, and its ends: each decade, and 2 and 5 if there are few decades.
pub(crate) fn logarithmic(least: f64, most: f64) -> (Vec<Tick>, f64, f64) {
    let down = |v: f64| {
        let magnitude = libm::pow(10.0, libm::log10(v).floor());
        [5.0, 2.0, 1.0]
            .map(|f| f * magnitude)
            .into_iter()
            .find(|s| *s <= v * (1.0 + 1e-9))
            .unwrap_or(magnitude)
    };
    let (from, to) = (down(least), round_up(most));
    let first = libm::log10(from).floor() as i32;
    let last = libm::log10(to).ceil() as i32;
    let factors: &[f64] = if last - first <= 3 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let ticks = (first..=last)
        .flat_map(|e| {
            factors
                .iter()
                .map(move |f| f * libm::pow(10.0, f64::from(e)))
        })
        .filter(|v| *v >= from * (1.0 - 1e-9) && *v <= to * (1.0 + 1e-9))
        .map(|v| Tick {
            at: v,
            label: grouped(&fixed(v, digits(v))),
        })
        .collect();
    (ticks, from, to)
}

/// Returns ticks at round times; `at` is in seconds, labels are in a unit that suits the length.
pub(crate) fn time_scale(end_s: f64, most_ticks: usize) -> Scale {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 3600.0;
    const DAY: f64 = 86_400.0;
    let (unit, one, steps): (_, _, &[f64]) = match end_s {
        s if s <= 5.0 * MINUTE => ("s", 1.0, &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0]),
        s if s <= 3.0 * HOUR => (
            "min",
            MINUTE,
            &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0],
        ),
        s if s <= 3.0 * DAY => ("h", HOUR, &[0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0, 24.0]),
        _ => ("days", DAY, &[0.5, 1.0, 2.0, 5.0, 7.0, 14.0, 28.0]),
    };
    let least = end_s / one / most_ticks.max(1) as f64;
    // Below the smallest and above the largest listed step, any round one.
    let listed = steps
        .iter()
        .copied()
        .find(|s| *s >= least)
        .filter(|_| least >= steps[0] / 2.0);
    let step = listed.unwrap_or_else(|| round_up(least.max(1e-9)));
    let count = (end_s / one / step + 1e-9).floor() as usize;
    let ticks = (0..=count)
        .map(|i| Tick {
            at: i as f64 * step * one,
            label: grouped(&fixed(i as f64 * step, digits(step))),
        })
        .collect();
    Scale { unit, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|t| t.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_include_the_largest_value() {
        assert_eq!(
            labels(&linear(93.0, 5, false).0),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&linear(0.93, 5, false).0),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(labels(&linear(1.0, 5, true).0), ["0", "1"]);
        assert_eq!(labels(&linear(0.0, 5, false).0).len(), 6);
        assert_eq!(labels(&linear(f64::NAN, 5, true).0), ["0", "1"]);
    }

    #[test]
    fn logarithmic_ticks_cover_the_range() {
        let (ticks, from, to) = logarithmic(80.0, 9000.0);
        assert_eq!((from, to), (50.0, 10_000.0));
        assert_eq!(
            labels(&ticks),
            [
                "50",
                "100",
                "200",
                "500",
                "1000",
                "2000",
                "5000",
                "10\u{202f}000"
            ]
        );
        assert_eq!(
            labels(&logarithmic(80.0, 9e7).0),
            [
                "100",
                "1000",
                "10\u{202f}000",
                "100\u{202f}000",
                "1\u{202f}000\u{202f}000",
                "10\u{202f}000\u{202f}000",
                "100\u{202f}000\u{202f}000"
            ]
        );
    }

    #[test]
    fn time_axis_has_a_suitable_unit() {
        assert_eq!(
            labels(&time_scale(240.0, 8).ticks),
            ["0", "30", "60", "90", "120", "150", "180", "210", "240"]
        );
        let hour = time_scale(3600.0, 8);
        assert_eq!(
            (hour.unit, labels(&hour.ticks)),
            ("min", vec!["0", "10", "20", "30", "40", "50", "60"])
        );
        assert_eq!(time_scale(86_400.0, 8).unit, "h");
        assert_eq!(time_scale(0.02, 4).ticks.len(), 5);
        assert!(time_scale(1e9, 8).ticks.len() <= 10);
    }
}
