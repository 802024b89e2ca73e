//! Epochs that are alike, so that what holds for all of them is computed once.

/// What the epochs of a history come down to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Patterns {
    /// The pattern of each epoch, oldest first.
    pub of: Vec<usize>,
    /// Share of the epochs that have it, by pattern.
    pub share: Vec<f64>,
}

/// Epochs are alike in which the uses of no device by its volumes differ, added up, by more than this share of its time.
const ALIKE: f64 = 0.08;
/// Patterns at most; after that an epoch goes to the nearest.
const PATTERNS_MAX: usize = 8;

impl Patterns {
    /// Of uses of their devices by epoch and volume, and the device of each volume: each epoch goes to the one that it is most like, the newest
    /// epoch first.
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

    /// Of so many epochs: all of them are alike.
    pub(super) fn one(epochs: usize) -> Self {
        Self {
            of: vec![0; epochs],
            share: vec![1.0],
        }
    }

    /// Patterns.
    pub(super) fn len(&self) -> usize {
        self.share.len()
    }

    /// Mean over the epochs of what each pattern has.
    pub(super) fn mean(&self, values: &[f64]) -> f64 {
        self.share.iter().zip(values).map(|(s, v)| s * v).sum()
    }
}
