//! Results over time of reads and writes together.
//!
//! A run has percentiles per direction and window. Means of both directions are exact (weighted by requests). Percentiles
//! cannot be merged: this module has the worse of the two directions and the median over windows, and every table and chart
//! that shows them is labelled accordingly.

use sim::{DirectionSeries, GroupKind, GroupSeries, Series};

/// One value per window; `None` for windows without a measurement.
pub(crate) type Values = Vec<Option<f64>>;

/// Number of windows of a group.
pub(crate) fn windows(group: &GroupSeries) -> usize {
    group.reads.iops.len().max(group.writes.iops.len())
}

/// Length of all windows, seconds.
pub(crate) fn covered_s(series: &Series) -> f64 {
    let of_groups = series.groups.iter().map(windows).max().unwrap_or(0);
    let of_devices = series
        .devices
        .iter()
        .map(|d| d.used_bytes.len())
        .max()
        .unwrap_or(0);
    of_groups.max(of_devices) as f64 * series.window_s
}

fn at(values: &[f64], i: usize) -> f64 {
    values
        .get(i)
        .copied()
        .filter(|v| v.is_finite())
        .unwrap_or(0.0)
}

/// Requests per second, both directions.
pub(crate) fn iops(group: &GroupSeries) -> Values {
    (0..windows(group))
        .map(|i| Some(at(&group.reads.iops, i) + at(&group.writes.iops, i)))
        .collect()
}

/// MiB per second, both directions.
pub(crate) fn mib_per_s(group: &GroupSeries) -> Values {
    (0..windows(group))
        .map(|i| Some(at(&group.reads.mib_per_s, i) + at(&group.writes.mib_per_s, i)))
        .collect()
}

/// Mean latency over some windows, both directions, weighted by requests.
pub(crate) fn mean_us_over(
    group: &GroupSeries,
    windows: impl Iterator<Item = usize>,
) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for i in windows {
        for direction in [&group.reads, &group.writes] {
            let iops = at(&direction.iops, i);
            sum += iops * at(&direction.mean_us, i);
            weight += iops;
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Mean latency, both directions.
pub(crate) fn mean_us(group: &GroupSeries) -> Values {
    (0..windows(group))
        .map(|i| mean_us_over(group, std::iter::once(i)))
        .collect()
}

/// One statistic of one direction; `None` for windows without requests.
pub(crate) fn measured(direction: &DirectionSeries, values: &[f64]) -> Values {
    (0..direction.iops.len())
        .map(|i| (at(&direction.iops, i) > 0.0).then(|| at(values, i)))
        .collect()
}

/// The higher of the p99 of reads and the p99 of writes: an upper bound of the p99 of both.
pub(crate) fn worse_p99_us(group: &GroupSeries) -> Values {
    let of = |d: &DirectionSeries, i: usize| (at(&d.iops, i) > 0.0).then(|| at(&d.p99_us, i));
    let worse = |i: usize| match (of(&group.reads, i), of(&group.writes, i)) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    (0..windows(group)).map(worse).collect()
}

pub(crate) fn median(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut there: Vec<f64> = values.flatten().filter(|v| v.is_finite()).collect();
    there.sort_by(f64::total_cmp);
    let middle = there.len() / 2;
    match there.len() {
        0 => None,
        n if n % 2 == 1 => Some(there[middle]),
        _ => Some((there[middle - 1] + there[middle]) / 2.0),
    }
}

/// The first and the last third of the windows after the warm-up; `None` for fewer than two such windows.
pub(crate) fn thirds(
    windows: usize,
    window_s: f64,
    warmup_s: f64,
) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let first = (0..windows).find(|i| *i as f64 * window_s >= warmup_s)?;
    let counted = windows - first;
    let third = (counted / 3).max(1);
    (counted >= 2).then(|| (first..first + third, windows - third..windows))
}

/// Returns the series of a group.
pub(crate) fn group<'a>(
    series: &'a Series,
    kind: GroupKind,
    name: &str,
) -> Option<&'a GroupSeries> {
    series
        .groups
        .iter()
        .find(|g| g.kind == kind && g.name == name)
}

/// Returns the points of a line: the middle of each window and its value.
pub(crate) fn points(values: &[Option<f64>], window_s: f64) -> Vec<(f64, Option<f64>)> {
    values
        .iter()
        .enumerate()
        .map(|(i, v)| ((i as f64 + 0.5) * window_s, v.filter(|v| v.is_finite())))
        .collect()
}

/// Several neighbouring windows as one point, for lines with more windows than pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    /// Middle, seconds.
    pub(crate) at_s: f64,
    /// Minimum, median and maximum; `None` without a measurement.
    pub(crate) values: Option<(f64, f64, f64)>,
}

/// Divides all points into `count` stretches.
pub(crate) fn stretches(points: &[(f64, Option<f64>)], count: usize) -> Vec<Stretch> {
    let count = count.clamp(1, points.len().max(1));
    let bounds = |s: usize| s * points.len() / count;
    (0..count)
        .map(|s| &points[bounds(s)..bounds(s + 1)])
        .filter(|windows| !windows.is_empty())
        .map(|windows| {
            let there = || windows.iter().filter_map(|w| w.1).filter(|v| v.is_finite());
            let middle = median(there().map(Some));
            Stretch {
                at_s: (windows[0].0 + windows[windows.len() - 1].0) / 2.0,
                values: middle.map(|m| {
                    (
                        there().fold(f64::INFINITY, f64::min),
                        m,
                        there().fold(f64::NEG_INFINITY, f64::max),
                    )
                }),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_preserve_extremes_and_order() {
        let mut points: Vec<(f64, Option<f64>)> =
            (0..5000).map(|i| (f64::from(i), Some(1.0))).collect();
        points[1234].1 = Some(99.0);
        points[4321].1 = Some(-5.0);
        let out = stretches(&points, 200);
        assert_eq!(out.len(), 200);
        assert!(out.is_sorted_by(|a, b| a.at_s < b.at_s));
        let greatest = out
            .iter()
            .filter_map(|s| s.values)
            .map(|v| v.2)
            .fold(0.0, f64::max);
        let least = out
            .iter()
            .filter_map(|s| s.values)
            .map(|v| v.0)
            .fold(0.0, f64::min);
        assert_eq!((least, greatest), (-5.0, 99.0));
        assert_eq!(out[49].values, Some((1.0, 1.0, 99.0)));
    }

    #[test]
    fn stretch_without_values_is_a_gap() {
        let points: Vec<(f64, Option<f64>)> = (0..100)
            .map(|i| (f64::from(i), (i >= 50).then_some(1.0)))
            .collect();
        let out = stretches(&points, 5);
        assert_eq!(out.iter().filter(|s| s.values.is_none()).count(), 2);
        assert!(stretches(&[], 5).is_empty());
    }

    #[test]
    fn thirds_exclude_the_warm_up_and_do_not_overlap() {
        assert_eq!(thirds(12, 10.0, 30.0), Some((3..6, 9..12)));
        assert_eq!(thirds(2, 10.0, 0.0), Some((0..1, 1..2)));
        assert_eq!(thirds(1, 10.0, 0.0), None);
        assert_eq!(thirds(5, 10.0, 100.0), None);
    }

    #[test]
    fn mean_of_both_directions_is_weighted() {
        let direction = |iops: f64, mean: f64| DirectionSeries {
            iops: vec![iops],
            mean_us: vec![mean],
            p99_us: vec![mean * 2.0],
            ..DirectionSeries::default()
        };
        let group = GroupSeries {
            reads: direction(300.0, 100.0),
            writes: direction(100.0, 500.0),
            ..GroupSeries::default()
        };
        assert_eq!(mean_us(&group), vec![Some(200.0)]);
        assert_eq!(worse_p99_us(&group), vec![Some(1000.0)]);
        let idle = GroupSeries {
            reads: direction(0.0, 0.0),
            ..GroupSeries::default()
        };
        assert_eq!(
            (mean_us(&idle), worse_p99_us(&idle)),
            (vec![None], vec![None])
        );
    }
}
