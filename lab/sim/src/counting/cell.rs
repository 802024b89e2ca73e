//! Cell of an evaluation: one policy with one size of the fast tier.

use planner::extents::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote, Terms};
use serde::Serialize;
use units::Nanos;

/// Counts of one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IntervalCount {
    /// Requests.
    pub requests: u64,
    /// Requests whose extent was on the fast tier.
    pub hits: u64,
    /// Extents copied to the fast tier in this interval. The decision was made at its start.
    pub promoted: u32,
    /// Extents copied from the fast tier.
    pub demoted: u32,
}

/// Result of a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CellCounts {
    /// Counts by interval.
    pub intervals: Vec<IntervalCount>,
    /// Distinct extents that moved at least once in the measured intervals.
    pub distinct_moved: u32,
    /// Mean short share reported by the policy in the measured intervals; `None` if it reports none.
    pub share: Option<f64>,
}

/// Size of the array, and start of the measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellSpec {
    /// Number of extents.
    pub extents: u32,
    /// Number of extents that fit on the fast tier.
    pub capacity: u32,
    /// End of the unmeasured intervals. The policy did not choose the first placement.
    pub count_from: Nanos,
    /// Cost of moves.
    pub terms: Terms,
}

/// Consumer of intervals.
pub trait Cell: Send {
    /// Processes the end of an interval at `at`. `next` has the requests of the following interval, for methods that
    /// may know the future.
    fn interval(&mut self, at: Nanos, heat: &Heat<'_>, next: Option<&Heat<'_>>);

    /// Returns the counts.
    fn finish(self: Box<Self>) -> CellCounts;
}

/// Policy as a cell. The fast tier initially has the extents with the lowest numbers.
pub struct PolicyCell<P> {
    policy: P,
    spec: CellSpec,
    fast: FastSet,
    before: FastSet,
    moved: FastSet,
    /// Moves that are charged to the next interval: promoted, demoted.
    pending: (u32, u32),
    shares: (f64, u32),
    counted: CellCounts,
}

impl<P: ExtentPolicy> PolicyCell<P> {
    /// Creates a cell with a policy that has no history.
    pub fn new(mut policy: P, spec: CellSpec) -> Self {
        policy.agree(&spec.terms);
        policy.renumber(&vec![None::<ExtentNo>; spec.extents as usize]);
        let fast = FastSet::first(spec.extents, spec.capacity);
        Self {
            policy,
            spec,
            before: fast.clone(),
            fast,
            moved: FastSet::new(spec.extents),
            pending: (0, 0),
            shares: (0.0, 0),
            counted: CellCounts::default(),
        }
    }

    fn note(&mut self, at: Nanos, decided: &PolicyNote) {
        let up = self.fast.difference_count(&self.before);
        let down = self.before.difference_count(&self.fast);
        assert!(
            self.fast.count() <= self.spec.capacity,
            "{} holds too much",
            P::NAME
        );
        self.pending = (up, down);
        if at < self.spec.count_from {
            return;
        }
        if let Some(share) = decided.share {
            self.shares = (self.shares.0 + share, self.shares.1 + 1);
        }
        for no in self.fast.difference(&self.before) {
            self.moved.insert(no);
        }
        for no in self.before.difference(&self.fast) {
            self.moved.insert(no);
        }
    }
}

impl<P: ExtentPolicy> Cell for PolicyCell<P> {
    fn interval(&mut self, at: Nanos, heat: &Heat<'_>, next: Option<&Heat<'_>>) {
        let mut count = IntervalCount {
            promoted: self.pending.0,
            demoted: self.pending.1,
            ..IntervalCount::default()
        };
        for (no, n) in heat.touched {
            count.requests += u64::from(*n);
            // Branch-free, because the branch would be unpredictable.
            count.hits += u64::from(*n) * u64::from(self.fast.contains(*no));
        }
        self.counted.intervals.push(count);
        self.policy.observe(at, heat);
        let Some(next) = next else {
            return;
        };
        self.policy.foresee(next);
        self.before.clone_from(&self.fast);
        let decided = self.policy.decide(at, self.spec.capacity, &mut self.fast);
        self.note(at, &decided);
    }

    fn finish(self: Box<Self>) -> CellCounts {
        CellCounts {
            distinct_moved: self.moved.count(),
            share: (self.shares.1 > 0).then(|| self.shares.0 / f64::from(self.shares.1)),
            ..self.counted
        }
    }
}
