//! Workloads that were sent to another backend, or are on their way. A move is not taken back: it would cost the same again.
//!
//! Who has left is not answered about here any more: what it asks for it asks of somebody else.

use units::{Bytes, Nanos};

use crate::ladder::{Elsewhere, RungKind};
use crate::responder::Responder;
use crate::sample::WorkloadId;
use crate::site::{MoveEvent, ResponseOrder};

/// Where a workload that was to leave stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moved {
    /// Its data is being copied; it is served here.
    Copying {
        /// What was set aside for it there, requests per second.
        rate_per_s: f64,
    },
    /// It is served there.
    Away,
    /// Its data is being copied to another device of the same array.
    ToDevice,
}

/// After a move the first samples are of a time in which it was still here.
const SETTLES: Nanos = Nanos::from_secs(120);

impl Responder {
    /// Sets aside what a workload takes elsewhere.
    pub(crate) fn begin_move(&mut self, workload: WorkloadId, rate_per_s: f64) {
        let stored = self.stored(workload);
        if let Some(elsewhere) = &mut self.site.elsewhere {
            elsewhere.spare_per_s -= rate_per_s;
            elsewhere.free = elsewhere.free.saturating_sub(stored);
        }
        self.moves[workload.index()] = Some(Moved::Copying { rate_per_s });
    }

    /// What became of a move.
    pub fn moved(
        &mut self,
        now: Nanos,
        workload: WorkloadId,
        event: &MoveEvent,
    ) -> Vec<ResponseOrder> {
        let mut orders = Vec::new();
        let w = workload.index();
        if self.moves[w] == Some(Moved::ToDevice) {
            self.moved_to_device(now, workload, event);
            return orders;
        }
        let Some(Moved::Copying { rate_per_s }) = self.moves[w] else {
            return orders;
        };
        match event {
            MoveEvent::Done => {
                self.moves[w] = Some(Moved::Away);
                self.quiet_until = now + SETTLES;
                self.end_all_of(now, workload, &mut orders);
            }
            MoveEvent::Failed { .. } => {
                self.moves[w] = None;
                let stored = self.stored(workload);
                if let Some(elsewhere) = &mut self.site.elsewhere {
                    elsewhere.spare_per_s += rate_per_s;
                    elsewhere.free += stored;
                }
                // Another answer may be looked for at once, but not the same.
                self.elsewhere_from = now + self.config.avoid_host;
                self.quiet_until = now;
                self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
            }
        }
        orders
    }

    /// Wherever it is now, it stays there for a while: the strategy has the word, and one that is sent to and fro helps nobody.
    fn moved_to_device(&mut self, now: Nanos, workload: WorkloadId, event: &MoveEvent) {
        self.moves[workload.index()] = None;
        let until = now + self.config.avoid_host;
        self.rests_until.insert((RungKind::Move, workload), until);
        match event {
            MoveEvent::Done => self.quiet_until = now + SETTLES,
            MoveEvent::Failed { .. } => {
                self.quiet_until = now;
                self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
            }
        }
    }

    fn stored(&self, workload: WorkloadId) -> Bytes {
        self.site.workloads[workload.index()].stored
    }

    /// The other backend, if something may be moved there now.
    pub(crate) fn elsewhere(&self, now: Nanos) -> Option<&Elsewhere> {
        let may = now >= self.elsewhere_from && !self.copying();
        self.site.elsewhere.as_ref().filter(|_| may)
    }

    /// Whether data of a workload is being copied.
    pub(crate) fn copying(&self) -> bool {
        let mut all = self.moves.iter().flatten();
        all.any(|m| matches!(m, Moved::Copying { .. } | Moved::ToDevice))
    }

    /// Whether a workload is served by another backend.
    pub(crate) fn is_away(&self, w: usize) -> bool {
        self.moves[w] == Some(Moved::Away)
    }
}
