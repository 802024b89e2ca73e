//! What the search of one plan has computed already: a bundle that is taken changes it only where the bundle's devices are involved.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::crowd::Crowd;
use super::search::{Gate, Moved, Offer, Search};

/// The volumes and devices of one or two moves.
type Key = [Option<(usize, usize)>; 2];
/// The devices that moves touch, and what became of them.
type Looked = (Vec<usize>, Option<Offer>);

/// Costs and offers that still hold.
pub(super) struct Seen {
    devices: usize,
    /// What a volume would cost by itself elsewhere, by volume and device; what its device's volumes would cost less without it, by volume. None is
    /// what is not known yet.
    own: Vec<Cell<Option<f64>>>,
    relief: Vec<Cell<Option<f64>>>,
    /// Of moves that were looked at.
    offers: RefCell<BTreeMap<Key, Looked>>,
}

fn once(cell: &Cell<Option<f64>>, compute: impl FnOnce() -> f64) -> f64 {
    cell.get().unwrap_or_else(|| {
        let value = compute();
        cell.set(Some(value));
        value
    })
}

impl Seen {
    /// Nothing yet.
    pub(super) fn new(volumes: usize, devices: usize) -> Self {
        Self {
            devices,
            own: vec![Cell::new(None); volumes * devices],
            relief: vec![Cell::new(None); volumes],
            offers: RefCell::default(),
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

    /// What these moves are worth; see [`Search::judged`].
    pub(super) fn offer(&self, search: &Search<'_>, moves: Vec<Moved>) -> Option<Offer> {
        let mut key = Key::default();
        for (of, m) in key.iter_mut().zip(&moves) {
            *of = Some((m.volume, m.to.index()));
        }
        if let Some((_, offer)) = self.offers.borrow().get(&key) {
            // What there is for moves in advance only becomes less.
            let affordable = |o: &Offer| !o.ahead || o.price <= search.ahead_left;
            return offer.clone().filter(affordable);
        }
        let devices = search.touched(&moves);
        let offer = search.judged(moves, Gate::Regret);
        let kept = (devices, offer.clone());
        self.offers.borrow_mut().insert(key, kept);
        offer
    }

    /// Forgets what these devices have to do with; `on` says whose they are.
    pub(super) fn forget(&mut self, devices: &[usize], on: &[Crowd]) {
        for d in devices {
            for of in self.own.iter_mut().skip(*d).step_by(self.devices) {
                of.set(None);
            }
            for v in &on[*d].volumes {
                self.relief[*v].set(None);
            }
        }
        let touched = |of: &[usize]| of.iter().any(|d| devices.contains(d));
        self.offers.get_mut().retain(|_, (of, _)| !touched(of));
    }
}
