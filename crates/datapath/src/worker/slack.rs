//! Objectives on their worker: what its volumes use of them is said for others to yield to, and its moves hear what others say.

use units::DeviceId;
use volume::Slack;

use super::Worker;
use crate::objective::Promised;

/// What a worker said of a device is old after this time: some ticks ([`super::TICK`]) in which it did nothing.
pub const SLACK_OLD_NS: u64 = 3_000_000_000;

impl Worker {
    /// Says how the volumes of this worker stand on each device, and tells its moves how those of all workers do.
    pub(super) fn share_slack(&mut self) {
        self.slack.clear();
        self.slack.resize(self.devices.len(), Slack::Unbound);
        for live in self.volumes.iter_mut().flatten() {
            let used = match live.objective.read(self.now_ns) {
                Promised::None => live.engine.slack(None),
                Promised::Is(target) => live.engine.slack(Some(target)),
                Promised::Old => Slack::Unknown,
            };
            for (device, _) in live.engine.map().holders() {
                if let Some(of_device) = self.slack.get_mut(device.index()) {
                    *of_device = of_device.worse(used);
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
        for live in self.volumes.iter_mut().flatten() {
            let Some(to) = live.engine.move_target() else {
                continue;
            };
            let sources = live.engine.map().holders().iter().map(|h| h.0);
            let heard = sources.chain([to]).map(|d| board.hear(self.now_ns, d));
            let others = heard.fold(Slack::Unbound, Slack::worse);
            live.engine.yield_to(others);
        }
    }
}
