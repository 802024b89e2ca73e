//! Moves of some extents leave the others where they are: while the move goes on, and over a crash.

use datapath::engine::{Engine, MoveEnd, MoveOrder, Purpose};
use volume::{Location, VolumeMap};

/// What a move of a volume must leave alone.
#[derive(Debug, Clone)]
pub struct Stays {
    order: MoveOrder,
    /// Where every extent was when it was last seen.
    at: Vec<Option<Location>>,
    /// Those of which others had the slots too: they may go elsewhere.
    shared: Vec<bool>,
}

fn shared(map: &VolumeMap) -> Vec<bool> {
    (0..map.extents()).map(|e| map.is_shared(e)).collect()
}

fn places(map: &VolumeMap) -> Vec<Option<Location>> {
    (0..map.extents()).map(|e| map.location(e)).collect()
}

impl Stays {
    /// A move begins.
    pub fn new(order: &MoveOrder, map: &VolumeMap) -> Self {
        Self {
            order: order.clone(),
            at: places(map),
            shared: shared(map),
        }
    }

    /// Extents that the move does not name are where they were, unless they were trimmed.
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

    /// The move is over: if it says that it is done, everything that it names is on its target, or a hole.
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

/// Extents that no switch can be under way of, with their places: a crash must leave them there.
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

/// What was settled before a crash is there after it.
pub fn found(settled: &[(usize, Location)], map: &VolumeMap) -> Result<(), String> {
    let gone = settled.iter().find(|(e, at)| map.location(*e) != Some(*at));
    gone.map_or(Ok(()), |(extent, at)| {
        Err(format!(
            "extent {extent} was at {at:?} before the crash, and nothing moved or trimmed it; it is at {:?}",
            map.location(*extent)
        ))
    })
}
