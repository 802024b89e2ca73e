//! Moves of workloads' data to other devices. No move is reverted, because that would cost the same again.

use units::Nanos;

use crate::ladder::RemedyKind;
use crate::responder::Responder;
use crate::sample::WorkloadId;
use crate::site::MoveEvent;

/// Time after a move whose samples still include the move.
const SETTLES: Nanos = Nanos::from_secs(120);

impl Responder {
    /// Processes the end of a move. The data then stays on its device for a while, which prevents moves to and fro.
    pub fn moved(&mut self, now: Nanos, workload: WorkloadId, event: &MoveEvent) {
        if !self.moving.remove(&workload) {
            return;
        }
        let until = now + self.config.avoid_host;
        self.rests_until.insert((RemedyKind::Move, workload), until);
        match event {
            MoveEvent::Done => self.quiet_until = now + SETTLES.min(self.config.settle),
            // The next remedy may be chosen at once.
            MoveEvent::Failed { .. } => self.quiet_until = now,
        }
        self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
    }

    /// Returns true while any workload's data is being moved.
    pub(crate) fn copying(&self) -> bool {
        !self.moving.is_empty()
    }
}
