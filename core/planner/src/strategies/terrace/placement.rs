//! Assignment of volumes to devices, present or planned.

use std::collections::BTreeSet;

use super::crowd::{Costs, Crowd};
use super::forecast::Forecast;
use super::search::UnitMove;

/// Device of every volume, and the resulting costs.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// Device by volume.
    pub of: Vec<usize>,
    /// Volumes of each device, kept consistent with `of`.
    pub on: Vec<Crowd>,
    /// Free bytes by device.
    pub free: Vec<i128>,
    /// Volumes moved so far, in rising order.
    pub moved: BTreeSet<usize>,
}

impl Placement {
    /// Creates a placement of volumes on devices with this free space.
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

    /// Returns the volumes that leave a device and those that come to it by these moves.
    pub(super) fn exchanged(&self, d: usize, moves: &[UnitMove]) -> [Vec<usize>; 2] {
        let leave = moves.iter().filter(|m| self.of[m.volume] == d);
        let come = moves.iter().filter(|m| m.to.index() == d);
        [
            leave.map(|m| m.volume).collect(),
            come.map(|m| m.volume).collect(),
        ]
    }

    /// Returns the costs of a device's volumes after these moves.
    pub(super) fn after(&self, forecast: &Forecast<'_>, d: usize, moves: &[UnitMove]) -> Costs {
        let [leave, come] = self.exchanged(d, moves);
        self.on[d].changed(forecast, d, &leave, &come, 0.0)
    }

    /// Returns the source and target devices of these moves.
    pub(super) fn touched(&self, moves: &[UnitMove]) -> Vec<usize> {
        let both = |m: &UnitMove| [self.of[m.volume], m.to.index()];
        let mut touched: Vec<usize> = moves.iter().flat_map(both).collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Returns the free bytes of a device after these moves.
    pub(super) fn free_after(&self, forecast: &Forecast<'_>, d: usize, moves: &[UnitMove]) -> i128 {
        let size = |m: &UnitMove| forecast.size(m.volume);
        let leave = moves.iter().filter(|m| self.of[m.volume] == d).map(size);
        let come = moves.iter().filter(|m| m.to.index() == d).map(size);
        self.free[d] + leave.sum::<i128>() - come.sum::<i128>()
    }

    /// Returns true if all moves have room after all of them are made.
    pub(super) fn room_for(&self, forecast: &Forecast<'_>, moves: &[UnitMove]) -> bool {
        let fits = |m: &UnitMove| self.free_after(forecast, m.to.index(), moves) >= 0;
        moves.iter().all(fits)
    }

    /// Makes these moves. Returns the devices that they change.
    pub(super) fn make(&mut self, forecast: &Forecast<'_>, moves: &[UnitMove]) -> Vec<usize> {
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
