//! Volumes on devices: where they are, or where they would be.

use std::collections::BTreeSet;

use super::crowd::{Costs, Crowd};
use super::forecast::Forecast;
use super::search::Moved;

/// The device of every volume, and what that comes to.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// By volume.
    pub of: Vec<usize>,
    /// The volumes of each device: kept as `of` changes.
    pub on: Vec<Crowd>,
    /// Free bytes by device.
    pub free: Vec<i128>,
    /// Volumes that were moved since, rising.
    pub moved: BTreeSet<usize>,
}

impl Placement {
    /// Of volumes on devices with so much space left.
    pub(super) fn new(forecast: &Forecast<'_>, of: Vec<usize>, free: Vec<i128>) -> Self {
        let mut volumes = vec![vec![]; free.len()];
        for (v, d) in of.iter().enumerate() {
            volumes[*d].push(v);
        }
        let crowds = volumes.into_iter().enumerate();
        let on = crowds.map(|(d, v)| Crowd::of(forecast, d, v)).collect();
        Self {
            of,
            on,
            free,
            moved: BTreeSet::new(),
        }
    }

    /// The volumes that leave a device and those that come to it when these moves are made.
    pub(super) fn exchanged(&self, d: usize, moves: &[Moved]) -> [Vec<usize>; 2] {
        let leave = moves.iter().filter(|m| self.of[m.volume] == d);
        let come = moves.iter().filter(|m| m.to.index() == d);
        [
            leave.map(|m| m.volume).collect(),
            come.map(|m| m.volume).collect(),
        ]
    }

    /// What the volumes of a device cost when these moves are made.
    pub(super) fn after(&self, forecast: &Forecast<'_>, d: usize, moves: &[Moved]) -> Costs {
        let [leave, come] = self.exchanged(d, moves);
        self.on[d].changed(forecast, d, &leave, &come, 0.0)
    }

    /// The devices that moves leave and come to.
    pub(super) fn touched(&self, moves: &[Moved]) -> Vec<usize> {
        let both = |m: &Moved| [self.of[m.volume], m.to.index()];
        let mut touched: Vec<usize> = moves.iter().flat_map(both).collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Free bytes of a device when these moves are made.
    pub(super) fn free_after(&self, forecast: &Forecast<'_>, d: usize, moves: &[Moved]) -> i128 {
        let size = |m: &Moved| forecast.size(m.volume);
        let leave = moves.iter().filter(|m| self.of[m.volume] == d).map(size);
        let come = moves.iter().filter(|m| m.to.index() == d).map(size);
        self.free[d] + leave.sum::<i128>() - come.sum::<i128>()
    }

    /// Whether all of them have room when all of them are made.
    pub(super) fn room_for(&self, forecast: &Forecast<'_>, moves: &[Moved]) -> bool {
        let fits = |m: &Moved| self.free_after(forecast, m.to.index(), moves) >= 0;
        moves.iter().all(fits)
    }

    /// Makes these moves; the devices that they touch are told.
    pub(super) fn make(&mut self, forecast: &Forecast<'_>, moves: &[Moved]) -> Vec<usize> {
        let touched = self.touched(moves);
        for d in &touched {
            let [leave, come] = self.exchanged(*d, moves);
            self.on[*d].change(forecast, *d, &leave, &come);
        }
        for m in moves {
            let size = forecast.size(m.volume);
            let (from, to) = (self.of[m.volume], m.to.index());
            self.free[from] += size;
            self.free[to] -= size;
            self.of[m.volume] = to;
            self.moved.insert(m.volume);
        }
        touched
    }
}
