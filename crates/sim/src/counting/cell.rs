//! One policy on one size of fast tier.

use planner::extents::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote, Terms};
use serde::Serialize;
use units::Nanos;

/// What was counted in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IntervalCount {
    /// Requests.
    pub requests: u64,
    /// Those whose extent was on the fast tier.
    pub hits: u64,
    /// Extents copied to the fast tier in this interval: decided when it began.
    pub promoted: u32,
    /// Extents copied from it.
    pub demoted: u32,
}

/// What a cell leaves.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counted {
    /// Interval after interval.
    pub intervals: Vec<IntervalCount>,
    /// Different extents that were moved at least once, in the intervals that count.
    pub distinct_moved: u32,
    /// Mean of the short share that the policy named, in the intervals that count; none where it names none.
    pub share: Option<f64>,
}

/// Size of the array, and when counting begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellSpec {
    /// How many extents there are.
    pub extents: u32,
    /// How many of them the fast tier holds.
    pub capacity: u32,
    /// Intervals before this are not counted: the first placement is nobody's choice.
    pub count_from: Nanos,
    /// What moves cost.
    pub terms: Terms,
}

/// Something that is fed interval after interval.
pub trait Cell: Send {
    /// An interval ended at `at`; `next` is what will be asked for in the one that follows, for methods that are allowed to
    /// know.
    fn interval(&mut self, at: Nanos, heat: &Heat<'_>, next: Option<&Heat<'_>>);

    /// What was counted.
    fn finish(self: Box<Self>) -> Counted;
}

/// A policy as a cell. The fast tier begins with the extents of the lowest numbers.
pub struct PolicyCell<P> {
    policy: P,
    spec: CellSpec,
    fast: FastSet,
    before: FastSet,
    moved: FastSet,
    /// Moves that the next interval is charged with.
    pending: (u32, u32),
    shares: (f64, u32),
    counted: Counted,
}

impl<P: ExtentPolicy> PolicyCell<P> {
    /// A policy that has not seen anything.
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
            counted: Counted::default(),
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
            // Without a branch: whether an extent is there is as good as random.
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

    fn finish(self: Box<Self>) -> Counted {
        Counted {
            distinct_moved: self.moved.count(),
            share: (self.shares.1 > 0).then(|| self.shares.0 / f64::from(self.shares.1)),
            ..self.counted
        }
    }
}
