//! Objectives on their worker: it publishes the use of objectives by its volumes, and passes that of all workers to its
//! moves, which yield to it.

use units::DeviceId;
use volume::{NeighborSlack, Slack};

use super::{LiveVolume, Worker};
use crate::objective::ObjectiveState;

/// Age at which a worker's values of a device count as outdated: some ticks ([`super::TICK`]) without a run of the worker.
pub const SLACK_OLD_NS: u64 = 3_000_000_000;

impl Worker {
    /// Publishes the use of objectives by this worker's volumes on each device, and passes the values of all workers to its
    /// moves.
    pub(super) fn share_slack(&mut self) {
        self.slack.clear();
        self.slack.resize(self.devices.len(), Slack::Unbound);
        for live in self.volumes.iter_mut().flatten() {
            live.slack = match live.objective.read(self.now_ns) {
                ObjectiveState::None => live.engine.slack(None),
                ObjectiveState::Is(target) => live.engine.slack(Some(target)),
                ObjectiveState::Old => Slack::Unknown,
            };
            for (device, _) in live.engine.map().holders() {
                if let Some(of_device) = self.slack.get_mut(device.index()) {
                    *of_device = of_device.worse(live.slack);
                }
            }
        }
        let board = &self.shared.slack;
        for (device, slack) in self.slack.iter().enumerate() {
            board.say(
                self.now_ns,
                self.index,
                DeviceId::from_index(device),
                *slack,
            );
        }
        for v in 0..self.volumes.len() {
            let to = |l: &LiveVolume| l.engine.move_target().or(l.engine.import_target());
            if let Some(to) = self.volumes[v].as_ref().and_then(to) {
                let others = self.others(v, to);
                let live = self.volumes[v].as_mut().expect("it was just looked at");
                live.engine.yield_to(others);
            }
        }
    }

    /// Returns the use of objectives by other volumes on the devices of a volume that moves to `to`.
    pub(super) fn others(&self, v: usize, to: DeviceId) -> NeighborSlack {
        let live = self.volumes.get(v).and_then(Option::as_ref);
        let Some(map) = live.map(|l| l.engine.map()) else {
            return NeighborSlack::UNKNOWN;
        };
        NeighborSlack::around(map, to, |device| {
            let board = &self.shared.slack;
            let heard = board.hear_others(self.now_ns, self.index, device);
            let volumes = self.volumes.iter().enumerate();
            let others = volumes
                .filter(|(i, _)| *i != v)
                .filter_map(|(_, l)| l.as_ref());
            let there = |l: &&LiveVolume| l.engine.map().holders().iter().any(|h| h.0 == device);
            others
                .filter(there)
                .fold(heard, |all, l| all.worse(l.slack))
        })
    }
}
