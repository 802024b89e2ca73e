//! Which workloads disturb each other, by how their measurements change together.
//!
//! ```text
//!  series ─▶ first differences ─▶ correlations at every circular shift ─▶ largest near shift 0, against all other shifts
//!         ─▶ p per pair ─▶ Benjamini–Hochberg over all pairs ─▶ edges ─▶ sets: what is connected
//! ```
//!
//! Levels correlate through the time of day alone, so only changes are compared. Of a pair (a, b) the statistic is the largest of
//! |corr(ΔIOPS of a, Δlatency of b)|, the same with a and b exchanged, and |corr(Δlatency, Δlatency)|, over lags of some samples in
//! either direction. With the largest of so many a fixed threshold finds dependence in noise (|r| ≥ 0.5 over 30 samples: in 15 to
//! 18 % of the pairs), so its significance comes from the same two series shifted against each other around a circle. That keeps
//! their autocorrelation and takes the choice of the largest into account.
//!
//! One pair has few shifts, too few for the small probabilities that many pairs ask for. Each pair's values are therefore brought to
//! the mean and deviation of its own shifts, and are then compared with the shifts of all pairs. All shifts are used: nothing is
//! drawn at random.
//!
//! Not known from this: which of the two is the cause, or whether a third is. A disturbance that never changes is not seen.

use std::collections::BTreeMap;

/// What was measured of a workload, sample by sample.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredSeries<'a> {
    /// Requests per second.
    pub iops: &'a [f64],
    /// Mean latency, in any unit; a sample in which nothing was asked for repeats the one before it.
    pub latency: &'a [f64],
}

/// How two series of differences are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Correlation {
    /// By values.
    Pearson,
    /// By ranks: latencies have heavy tails, and a few spikes would decide everything.
    #[default]
    Spearman,
}

/// Parameters, with defaults for samples of 10 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterferenceRule {
    /// How two series are compared.
    pub correlation: Correlation,
    /// Largest lag in samples.
    pub lag_max: usize,
    /// Fewer samples than this say nothing.
    pub samples_min: usize,
    /// Share of false edges among all edges that is accepted.
    pub false_discovery: f64,
    /// A correlation smaller than this, 0..=1, is no edge however significant: nothing worth acting on.
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

/// What was found about a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairTest {
    /// The first workload, by its place.
    pub a: usize,
    /// The second one, behind it.
    pub b: usize,
    /// The correlation that is largest in size, with its sign.
    pub correlation: f64,
    /// By how many samples b follows a there; negative if a follows b.
    pub lag: i32,
    /// Probability of as large a one without dependence.
    pub p: f64,
    /// Whether it is an edge.
    pub edge: bool,
}

/// What was found about all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interference {
    /// All pairs that could be tested, in order.
    pub pairs: Vec<PairTest>,
    /// Pairs that were candidates, but too short, of different lengths, constant, or with values that are no numbers.
    pub untested: Vec<(usize, usize)>,
    /// Connected workloads, two or more, each in order.
    pub sets: Vec<Vec<usize>>,
}

/// Differences of one workload, as unit vectors around their mean; `None` for what does not vary.
struct Changes {
    samples: usize,
    iops: Option<Vec<f64>>,
    latency: Option<Vec<f64>>,
}

/// Tests all pairs that `candidate` admits: those that share a device, a link or a controller where that is known.
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

/// The largest correlation of one pair in size, 0..=1, without a test: how it develops over time. `None` for what could not be
/// tested either.
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
    // Each shift is held against those that share no lag with it: some of them must be left of all.
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

/// First differences, or their ranks, less their mean and of length one.
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

/// Ranks; equal values have the mean of theirs.
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

struct Compared {
    correlation: f64,
    lag: i32,
    /// The statistic in deviations from the mean of its shifts.
    score: f64,
}

/// Compares a pair, and adds the scores of its shifts to `null`.
fn compare(
    a: &Changes,
    b: &Changes,
    rule: &InterferenceRule,
    null: &mut Vec<f64>,
) -> Option<Compared> {
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
    // The largest of all kinds at each shift, then over the lags around it.
    let at_shift: Vec<f64> = (0..n)
        .map(|s| kinds.iter().map(|k| k[s].abs()).fold(0.0, f64::max))
        .collect();
    let lags = rule.lag_max as i32;
    let around = |shift: usize| {
        let near = (-lags..=lags).map(|lag| at_shift[wrapped(shift, lag, n)]);
        near.fold(0.0, f64::max)
    };
    // Fisher's transformation, so that deviations near one are not squeezed.
    let score = |r: f64| libm::atanh(r.min(1.0 - 1e-12));
    let scores: Vec<f64> = (0..n).map(|shift| score(around(shift))).collect();
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    // Shifts whose lags could still meet the true ones are not part of the comparison.
    let clear = 2 * rule.lag_max + 1;
    for v in &scores[clear..=n - clear] {
        (sum, squares, count) = (sum + v, squares + v * v, count + 1.0);
    }
    let standardized = |value: f64, sum: f64, squares: f64, count: f64| {
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(1e-18);
        (value - mean) / variance.sqrt()
    };
    // A shift is held against those that share no lag with it, as the pair itself is: a large value makes its neighbours large too,
    // and would look smaller among them than it is.
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
    Some(Compared {
        correlation,
        lag,
        score: standardized(scores[0], sum, squares, count),
    })
}

fn wrapped(shift: usize, lag: i32, n: usize) -> usize {
    (shift as i64 + i64::from(lag)).rem_euclid(n as i64) as usize
}

/// Correlation of x with y moved back by every shift around the circle.
fn circular(x: &[f64], y: &[f64]) -> Vec<f64> {
    let n = x.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    (0..n)
        .map(|s| dot(&x[..n - s], &y[s..]) + dot(&x[n - s..], &y[..s]))
        .collect()
}

/// Which of these probabilities are discoveries, with this share of false ones among them in the mean (Benjamini and Hochberg,
/// JRSS B 1995).
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
        // The lower one stays, so that sets are in order of their first.
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
