//! Epochs that are alike, so that what holds for all of them is computed once.

/// What the epochs of a history come down to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Patterns {
    /// The pattern of each epoch, oldest first.
    pub of: Vec<usize>,
    /// Share of the epochs that have it, by pattern.
    pub share: Vec<f64>,
}

/// Epochs whose loads differ by less than this share of both are alike.
const ALIKE: f64 = 0.15;
/// Patterns at most; after that an epoch goes to the nearest.
const PATTERNS_MAX: usize = 8;

impl Patterns {
    /// Of loads by epoch and volume: each epoch goes to the first one that it is like, the newest epoch first.
    pub(super) fn of(loads: &[Vec<f64>]) -> Self {
        let mut leaders: Vec<usize> = vec![];
        let mut of = vec![0; loads.len()];
        for e in (0..loads.len()).rev() {
            let apart = |l: &usize| {
                let (mut differ, mut all) = (0.0, 0.0);
                for (a, b) in loads[e].iter().zip(&loads[*l]) {
                    differ += (a - b).abs();
                    all += a.max(*b);
                }
                differ / f64::max(all, 1e-9)
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
            share[*p] += 1.0 / loads.len() as f64;
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
