//! Moves of workloads' data to other devices. None is taken back: that would cost the same again.

use units::Nanos;

use crate::ladder::RemedyKind;
use crate::responder::Responder;
use crate::sample::WorkloadId;
use crate::site::MoveEvent;

/// After a move the first samples are of a time in which it was under way.
const SETTLES: Nanos = Nanos::from_secs(120);

impl Responder {
    /// What became of a move. Wherever the data is now, it stays there for a while: one that is sent to and fro helps nobody.
    pub fn moved(&mut self, now: Nanos, workload: WorkloadId, event: &MoveEvent) {
        if !self.moving.remove(&workload) {
            return;
        }
        let until = now + self.config.avoid_host;
        self.rests_until.insert((RemedyKind::Move, workload), until);
        match event {
            MoveEvent::Done => self.quiet_until = now + SETTLES.min(self.config.settle),
            // Another answer may be looked for at once.
            MoveEvent::Failed { .. } => self.quiet_until = now,
        }
        self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
    }

    /// Whether data of a workload is being moved.
    pub(crate) fn copying(&self) -> bool {
        !self.moving.is_empty()
    }
}
