//! Costs and gains that a search has computed. A move invalidates only those of its devices.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::placement::Placement;
use super::search::UnitMove;

/// Volumes and devices of one or two moves.
type Key = [Option<(usize, usize)>; 2];
/// Devices that moves change, and the value of the moves.
type CachedGain<T> = (Vec<usize>, Option<T>);

/// Volume of a device that may move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mover {
    /// Upper bound of the gain of its moves.
    pub most: f64,
    /// Reduction of the costs of its device's volumes without it.
    pub relief: f64,
    pub volume: usize,
}

impl Mover {
    /// Orders movers by their largest possible gain, then by volume.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let by_most = other.most.total_cmp(&self.most);
        by_most.then(self.volume.cmp(&other.volume))
    }
}

/// Costs and gains of moves that are still valid.
pub(super) struct MoveCache<T> {
    /// Cost of a volume alone on another device, by device and volume; only computed values.
    own: Vec<RefCell<BTreeMap<usize, f64>>>,
    /// Reduction of the costs of its device's volumes without a volume, by volume; NaN if it is not computed.
    relief: Vec<Cell<f64>>,
    /// Volumes of each device that may be worth a move, in order.
    movers: Vec<OnceCell<Vec<Mover>>>,
    /// Gains of moves that were evaluated.
    worth: RefCell<BTreeMap<Key, CachedGain<T>>>,
}

impl<T> MoveCache<T> {
    /// Creates an empty collection.
    pub(super) fn new(volumes: usize, devices: usize) -> Self {
        Self {
            own: vec![RefCell::default(); devices],
            relief: vec![Cell::new(f64::NAN); volumes],
            movers: vec![OnceCell::new(); devices],
            worth: RefCell::default(),
        }
    }

    /// Returns the cost of a volume alone on a device.
    pub(super) fn own(&self, v: usize, d: usize, compute: impl FnOnce() -> f64) -> f64 {
        *self.own[d].borrow_mut().entry(v).or_insert_with(compute)
    }

    /// Returns the reduction of the costs of a volume's device without it.
    pub(super) fn relief(&self, v: usize, compute: impl FnOnce() -> f64) -> f64 {
        let known = &self.relief[v];
        if known.get().is_nan() {
            known.set(compute());
        }
        known.get()
    }

    /// Returns the volumes of a device that may be worth a move, in order.
    pub(super) fn movers(&self, d: usize, find: impl FnOnce() -> Vec<Mover>) -> &[Mover] {
        self.movers[d].get_or_init(|| {
            let mut movers = find();
            movers.sort_unstable_by(Mover::order);
            movers
        })
    }

    /// Returns the gain of moves.
    pub(super) fn worth(
        &self,
        at: &Placement,
        moves: &[UnitMove],
        compute: impl FnOnce() -> Option<T>,
    ) -> Option<T>
    where
        T: Clone,
    {
        let mut key = Key::default();
        for (of, m) in key.iter_mut().zip(moves) {
            *of = Some((m.volume, m.to.index()));
        }
        if let Some((_, worth)) = self.worth.borrow().get(&key) {
            return worth.clone();
        }
        let worth = compute();
        let looked = (at.touched(moves), worth.clone());
        self.worth.borrow_mut().insert(key, looked);
        worth
    }

    /// Removes all values that depend on these devices.
    pub(super) fn forget(&mut self, devices: &[usize], at: &Placement) {
        for d in devices {
            self.own[*d].get_mut().clear();
            self.movers[*d].take();
            for v in &at.on[*d].volumes {
                self.relief[*v].set(f64::NAN);
            }
        }
        let touched = |of: &[usize]| of.iter().any(|d| devices.contains(d));
        self.worth.get_mut().retain(|_, (of, _)| !touched(of));
    }
}
