//! What a search has computed already: moves that are made change it only where their devices are involved.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::placement::Placement;
use super::search::Moved;

/// The volumes and devices of one or two moves.
type Key = [Option<(usize, usize)>; 2];
/// The devices that moves touch, and what they are worth.
type Looked<T> = (Vec<usize>, Option<T>);

/// Costs, and what moves are worth, that still hold.
pub(super) struct Seen<T> {
    devices: usize,
    /// What a volume would cost by itself elsewhere, by volume and device; what its device's volumes would cost less without it, by volume. None is
    /// what is not known yet.
    own: Vec<Cell<Option<f64>>>,
    relief: Vec<Cell<Option<f64>>>,
    /// Of moves that were looked at.
    worth: RefCell<BTreeMap<Key, Looked<T>>>,
}

fn once(cell: &Cell<Option<f64>>, compute: impl FnOnce() -> f64) -> f64 {
    cell.get().unwrap_or_else(|| {
        let value = compute();
        cell.set(Some(value));
        value
    })
}

impl<T> Seen<T> {
    /// Nothing yet.
    pub(super) fn new(volumes: usize, devices: usize) -> Self {
        Self {
            devices,
            own: vec![Cell::new(None); volumes * devices],
            relief: vec![Cell::new(None); volumes],
            worth: RefCell::default(),
        }
    }

    /// What a volume would cost by itself on a device.
    pub(super) fn own(&self, v: usize, d: usize, compute: impl FnOnce() -> f64) -> f64 {
        once(&self.own[v * self.devices + d], compute)
    }

    /// What a volume's device would cost less without it.
    pub(super) fn relief(&self, v: usize, compute: impl FnOnce() -> f64) -> f64 {
        once(&self.relief[v], compute)
    }

    /// What moves are worth.
    pub(super) fn worth(
        &self,
        at: &Placement,
        moves: &[Moved],
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

    /// Forgets what these devices have to do with.
    pub(super) fn forget(&mut self, devices: &[usize], at: &Placement) {
        for d in devices {
            for of in self.own.iter_mut().skip(*d).step_by(self.devices) {
                of.set(None);
            }
            for v in &at.on[*d].volumes {
                self.relief[*v].set(None);
            }
        }
        let touched = |of: &[usize]| of.iter().any(|d| devices.contains(d));
        self.worth.get_mut().retain(|_, (of, _)| !touched(of));
    }
}
