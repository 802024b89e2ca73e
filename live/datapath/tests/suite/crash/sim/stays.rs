//! Check that moves of some extents leave the other extents in place, during the move and over a crash.

use datapath::engine::{Engine, MoveEnd, MoveOrder, Purpose};
use volume::{Location, VolumeMap};

/// Extents that a move of a volume must not touch.
#[derive(Debug, Clone)]
pub struct Stays {
    order: MoveOrder,
    /// Last known place of every extent.
    at: Vec<Option<Location>>,
    /// Extents that shared their slots: these may get another place.
    shared: Vec<bool>,
}

fn shared(map: &VolumeMap) -> Vec<bool> {
    (0..map.extents()).map(|e| map.is_shared(e)).collect()
}

fn places(map: &VolumeMap) -> Vec<Option<Location>> {
    (0..map.extents()).map(|e| map.location(e)).collect()
}

impl Stays {
    /// Records the places at the start of a move.
    pub fn new(order: &MoveOrder, map: &VolumeMap) -> Self {
        Self {
            order: order.clone(),
            at: places(map),
            shared: shared(map),
        }
    }

    /// Checks that extents outside of the move are at their places, unless they were trimmed.
    pub fn look(&mut self, map: &VolumeMap) -> Result<(), String> {
        let now = places(map);
        for (extent, (was, is)) in self.at.iter().zip(&now).enumerate() {
            let named = self.order.selection().contains(extent);
            let alone = !self.shared[extent];
            if !named && was.is_some() && is.is_some() && was != is && alone {
                return Err(format!(
                    "extent {extent} went from {was:?} to {is:?}, and the move names only {:?}",
                    self.order.extents
                ));
            }
        }
        self.at = now;
        self.shared = shared(map);
        Ok(())
    }

    /// Checks the end of a move: after success, all its extents are on the target or are holes.
    pub fn ended(&self, end: &MoveEnd, map: &VolumeMap) -> Result<(), String> {
        let left = map.bytes_not_on(self.order.selection(), self.order.to);
        match end {
            MoveEnd::Done { .. } if left.0 > 0 => {
                Err(format!("a move is done, and {left} are not on its target"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the extents without a possible switch in progress, with their places: a crash must not change these.
pub fn settled(engine: &Engine<u64>) -> Vec<(usize, Location)> {
    let map = engine.map();
    let moving = engine.move_status().map(|status| MoveOrder {
        to: status.to,
        bandwidth: status.rate,
        extents: status.extents,
        purpose: Purpose::Move,
    });
    let moves = |e: usize| moving.as_ref().is_some_and(|o| o.selection().contains(e));
    let placed = (0..map.extents()).filter_map(|e| Some((e, map.location(e)?)));
    placed
        .filter(|(e, _)| !moves(*e) && !map.is_shared(*e))
        .collect()
}

/// Checks that settled extents are at their places after a crash.
pub fn found(settled: &[(usize, Location)], map: &VolumeMap) -> Result<(), String> {
    let gone = settled.iter().find(|(e, at)| map.location(*e) != Some(*at));
    gone.map_or(Ok(()), |(extent, at)| {
        Err(format!(
            "extent {extent} was at {at:?} before the crash, and nothing moved or trimmed it; it is at {:?}",
            map.location(*extent)
        ))
    })
}
