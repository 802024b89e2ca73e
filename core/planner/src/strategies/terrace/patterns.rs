//! Groups of similar epochs, so values are computed once per group.

/// Patterns of the epochs of a history.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Patterns {
    /// Pattern of each epoch, oldest first.
    pub of: Vec<usize>,
    /// Share of the epochs in each pattern.
    pub share: Vec<f64>,
}

/// Largest difference of two epochs of one pattern: on no device does the sum of the differences of its volumes' uses exceed
/// this share.
const ALIKE: f64 = 0.08;
/// Largest number of patterns; further epochs join the nearest pattern.
const PATTERNS_MAX: usize = 8;

impl Patterns {
    /// Groups epochs, from the uses of devices by epoch and volume, and the device of each volume. Each epoch joins the most
    /// similar pattern, the newest epoch first.
    pub(super) fn of(uses: &[Vec<f64>], devices: &[usize]) -> Self {
        let count = devices.iter().max().map_or(0, |d| d + 1);
        let mut leaders: Vec<usize> = vec![];
        let mut of = vec![0; uses.len()];
        for e in (0..uses.len()).rev() {
            let apart = |l: &usize| {
                let mut differ = vec![0.0; count];
                for ((a, b), d) in uses[e].iter().zip(&uses[*l]).zip(devices) {
                    differ[*d] += (a - b).abs();
                }
                differ.into_iter().fold(0.0, f64::max)
            };
            let nearest = leaders
                .iter()
                .map(apart)
                .enumerate()
                .min_by(|a, b| a.1.total_cmp(&b.1));
            of[e] = match nearest {
                Some((p, by)) if by < ALIKE || leaders.len() == PATTERNS_MAX => p,
                _ => {
                    leaders.push(e);
                    leaders.len() - 1
                }
            };
        }
        let mut share = vec![0.0; leaders.len()];
        for p in &of {
            share[*p] += 1.0 / uses.len() as f64;
        }
        Self { of, share }
    }

    /// Returns one pattern for all epochs.
    pub(super) fn one(epochs: usize) -> Self {
        Self {
            of: vec![0; epochs],
            share: vec![1.0],
        }
    }

    /// Returns the number of patterns.
    pub(super) fn len(&self) -> usize {
        self.share.len()
    }

    /// Returns the mean over the epochs of values by pattern.
    pub(super) fn mean(&self, values: &[f64]) -> f64 {
        self.share.iter().zip(values).map(|(s, v)| s * v).sum()
    }
}
