//! Detection of workloads that disturb each other, from correlated changes of their measurements.
//!
//! ```text
//!  series ─▶ first differences ─▶ correlations at every circular shift ─▶ largest near shift 0, against all other shifts
//!         ─▶ p per pair ─▶ Benjamini–Hochberg over all pairs ─▶ edges ─▶ sets of connected workloads
//! ```
//!
//! Levels correlate through the time of day alone, so only changes are compared. The statistic of a pair (a, b) is the
//! largest of |corr(ΔIOPS of a, Δlatency of b)|, the same with a and b exchanged, and |corr(Δlatency, Δlatency)|, over
//! lags of some samples in either direction. For such a maximum, a fixed threshold finds dependence in noise (|r| ≥ 0.5
//! over 30 samples: in 15 to 18 % of the pairs). So its significance is computed from the same two series shifted
//! against each other around a circle. That keeps their autocorrelation and accounts for taking the maximum.
//!
//! One pair has few shifts, too few for the small probabilities that a test of many pairs needs. So each pair's values
//! are normalized by the mean and deviation of its own shifts, and then compared with the shifts of all pairs. All
//! shifts are used; nothing is drawn at random.
//!
//! Limits: the test does not show which workload is the cause, or whether a third one is. It does not detect a constant
//! disturbance.

use std::collections::BTreeMap;

/// Measurements of a workload, sample by sample.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredSeries<'a> {
    /// Requests per second.
    pub iops: &'a [f64],
    /// Mean latency in any unit; a sample without requests repeats the previous one.
    pub latency: &'a [f64],
}

/// Comparison of two series of differences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Correlation {
    /// By values.
    Pearson,
    /// By ranks, because latencies have heavy tails and a few spikes would dominate.
    #[default]
    Spearman,
}

/// Parameters, with defaults for samples of 10 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterferenceRule {
    /// Comparison of two series.
    pub correlation: Correlation,
    /// Largest lag in samples.
    pub lag_max: usize,
    /// Minimum number of samples for a test.
    pub samples_min: usize,
    /// Accepted share of false edges among all edges.
    pub false_discovery: f64,
    /// Minimum correlation of an edge, 0..=1, however significant. A smaller effect is not worth an action.
    pub correlation_min: f64,
}

impl Default for InterferenceRule {
    fn default() -> Self {
        Self {
            correlation: Correlation::default(),
            lag_max: 2,
            samples_min: 60,
            false_discovery: 0.05,
            correlation_min: 0.0,
        }
    }
}

/// Result of the test of a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairTest {
    /// Index of the first workload.
    pub a: usize,
    /// Index of the second workload, above the first.
    pub b: usize,
    /// Correlation with the largest absolute value, with its sign.
    pub correlation: f64,
    /// Number of samples by which b follows a at that correlation; negative if a follows b.
    pub lag: i32,
    /// Probability of such a large correlation without dependence.
    pub p: f64,
    /// True if the pair is an edge.
    pub edge: bool,
}

/// Result of all tests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interference {
    /// All pairs that could be tested, in order.
    pub pairs: Vec<PairTest>,
    /// Candidate pairs without a test: series too short, of different lengths, constant, or with values that are not
    /// finite.
    pub untested: Vec<(usize, usize)>,
    /// Sets of connected workloads, two or more, each in order.
    pub sets: Vec<Vec<usize>>,
}

/// Differences of one workload, as unit vectors around their mean; `None` for a constant series.
struct Changes {
    samples: usize,
    iops: Option<Vec<f64>>,
    latency: Option<Vec<f64>>,
}

/// Tests all pairs that `candidate` admits: those that share a device, a link or a controller, if that is known.
pub fn interference(
    series: &[MeasuredSeries<'_>],
    candidate: impl Fn(usize, usize) -> bool,
    rule: &InterferenceRule,
) -> Interference {
    let changes: Vec<Option<Changes>> = series.iter().map(|s| changes(s, rule)).collect();
    let mut found = Interference::default();
    let mut scores = Vec::new();
    let mut null = Vec::new();
    for a in 0..series.len() {
        for b in (a + 1)..series.len() {
            if !candidate(a, b) {
                continue;
            }
            let both = changes[a].as_ref().zip(changes[b].as_ref());
            match both.and_then(|(a, b)| compare(a, b, rule, &mut null)) {
                Some(compared) => {
                    scores.push(compared.score);
                    found.pairs.push(PairTest {
                        a,
                        b,
                        correlation: compared.correlation,
                        lag: compared.lag,
                        p: 1.0,
                        edge: false,
                    });
                }
                None => found.untested.push((a, b)),
            }
        }
    }
    null.sort_by(f64::total_cmp);
    for (pair, score) in found.pairs.iter_mut().zip(&scores) {
        let as_large = null.len() - null.partition_point(|n| n < score);
        pair.p = (as_large + 1) as f64 / (null.len() + 1) as f64;
    }
    let p: Vec<f64> = found.pairs.iter().map(|pair| pair.p).collect();
    for (pair, edge) in found
        .pairs
        .iter_mut()
        .zip(discoveries(&p, rule.false_discovery))
    {
        pair.edge = edge && pair.correlation.abs() >= rule.correlation_min;
    }
    found.sets = connected(series.len(), &found.pairs);
    found
}

/// Returns the largest absolute correlation of one pair, 0..=1, without a test, to follow it over time. `None` if the
/// pair could not be tested either.
pub fn interference_strength(
    a: &MeasuredSeries<'_>,
    b: &MeasuredSeries<'_>,
    rule: &InterferenceRule,
) -> Option<f64> {
    let (a, b) = (changes(a, rule)?, changes(b, rule)?);
    Some(compare(&a, &b, rule, &mut Vec::new())?.correlation.abs())
}

fn changes(series: &MeasuredSeries<'_>, rule: &InterferenceRule) -> Option<Changes> {
    let samples = series.iops.len();
    let finite = |s: &[f64]| s.iter().all(|v| v.is_finite());
    // Each shift is compared with those that share no lag with it, so some of these must exist.
    let least = rule.lag_max.saturating_mul(8).saturating_add(20);
    let long = samples >= rule.samples_min.max(least);
    if samples != series.latency.len() || !long || !finite(series.iops) || !finite(series.latency) {
        return None;
    }
    Some(Changes {
        samples,
        iops: unit(series.iops, rule.correlation),
        latency: unit(series.latency, rule.correlation),
    })
}

/// Returns first differences, or their ranks, minus their mean and normalized to length one.
fn unit(values: &[f64], correlation: Correlation) -> Option<Vec<f64>> {
    let mut changes: Vec<f64> = values.windows(2).map(|w| w[1] - w[0]).collect();
    if correlation == Correlation::Spearman {
        changes = ranks(&changes);
    }
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    changes.iter_mut().for_each(|c| *c -= mean);
    let length = changes.iter().map(|c| c * c).sum::<f64>().sqrt();
    changes.iter_mut().for_each(|c| *c /= length);
    changes.iter().all(|c| c.is_finite()).then_some(changes)
}

/// Returns ranks; equal values have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let first = order.partition_point(|i| values[*i].total_cmp(&values[equal[0]]).is_lt());
        let mean = first as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|i| ranks[*i] = mean);
    }
    ranks
}

struct LagScore {
    correlation: f64,
    lag: i32,
    /// Statistic, in standard deviations from the mean of its shifts.
    score: f64,
}

/// Compares a pair, and adds the scores of its shifts to `null`.
fn compare(
    a: &Changes,
    b: &Changes,
    rule: &InterferenceRule,
    null: &mut Vec<f64>,
) -> Option<LagScore> {
    if a.samples != b.samples {
        return None;
    }
    let n = a.samples - 1;
    let kinds = [
        (&a.iops, &b.latency),
        (&a.latency, &b.iops),
        (&a.latency, &b.latency),
    ];
    let kinds: Vec<Vec<f64>> = kinds
        .into_iter()
        .filter_map(|(x, y)| Some(circular(x.as_ref()?, y.as_ref()?)))
        .collect();
    if kinds.is_empty() {
        return None;
    }
    // Maximum of all kinds at each shift, then over the lags around it.
    let at_shift: Vec<f64> = (0..n)
        .map(|s| kinds.iter().map(|k| k[s].abs()).fold(0.0, f64::max))
        .collect();
    let lags = rule.lag_max as i32;
    let around = |shift: usize| {
        let near = (-lags..=lags).map(|lag| at_shift[wrapped(shift, lag, n)]);
        near.fold(0.0, f64::max)
    };
    // Fisher's transformation, so that differences near one are not compressed.
    let score = |r: f64| libm::atanh(r.min(1.0 - 1e-12));
    let scores: Vec<f64> = (0..n).map(|shift| score(around(shift))).collect();
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    // Shifts whose lags could overlap the true ones are excluded from the comparison.
    let clear = 2 * rule.lag_max + 1;
    for v in &scores[clear..=n - clear] {
        (sum, squares, count) = (sum + v, squares + v * v, count + 1.0);
    }
    let standardized = |value: f64, sum: f64, squares: f64, count: f64| {
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(1e-18);
        (value - mean) / variance.sqrt()
    };
    // A shift is compared with those that share no lag with it, like the pair itself. A large value raises its
    // neighbours as well, and would look too small among them.
    for shift in clear..=n - clear {
        let (mut sum, mut squares, mut count) = (sum, squares, count);
        let near = (shift + 1 - clear).max(clear)..=(shift + clear - 1).min(n - clear);
        for v in &scores[near] {
            (sum, squares, count) = (sum - v, squares - v * v, count - 1.0);
        }
        null.push(standardized(scores[shift], sum, squares, count));
    }
    let (mut correlation, mut lag) = (0.0, 0);
    for at in -lags..=lags {
        for kind in &kinds {
            let r: f64 = kind[wrapped(0, at, n)];
            if r.abs() > f64::abs(correlation) {
                (correlation, lag) = (r, at);
            }
        }
    }
    Some(LagScore {
        correlation,
        lag,
        score: standardized(scores[0], sum, squares, count),
    })
}

fn wrapped(shift: usize, lag: i32, n: usize) -> usize {
    (shift as i64 + i64::from(lag)).rem_euclid(n as i64) as usize
}

/// Returns the correlation of x with y for every circular shift of y.
fn circular(x: &[f64], y: &[f64]) -> Vec<f64> {
    let n = x.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    (0..n)
        .map(|s| dot(&x[..n - s], &y[s..]) + dot(&x[n - s..], &y[..s]))
        .collect()
}

/// Marks the discoveries among these probabilities, for a mean share of false discoveries (Benjamini and Hochberg, JRSS
/// B 1995).
fn discoveries(p: &[f64], share: f64) -> Vec<bool> {
    let mut sorted = p.to_vec();
    sorted.sort_by(f64::total_cmp);
    let tests = p.len() as f64;
    let limit = (1..=p.len())
        .rev()
        .map(|k| (sorted[k - 1], share * k as f64 / tests))
        .find(|(p, limit)| p <= limit);
    p.iter()
        .map(|p| limit.is_some_and(|(largest, _)| *p <= largest))
        .collect()
}

fn connected(workloads: usize, pairs: &[PairTest]) -> Vec<Vec<usize>> {
    let mut parent: Vec<usize> = (0..workloads).collect();
    let root = |parent: &[usize], mut at: usize| {
        while parent[at] != at {
            at = parent[at];
        }
        at
    };
    for pair in pairs.iter().filter(|p| p.edge) {
        let (a, b) = (root(&parent, pair.a), root(&parent, pair.b));
        // The lower one stays the root, so sets are ordered by their first member.
        parent[a.max(b)] = a.min(b);
    }
    let mut sets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in 0..workloads {
        sets.entry(root(&parent, at)).or_default().push(at);
    }
    sets.into_values().filter(|s| s.len() > 1).collect()
}

#[cfg(test)]
mod tests;
