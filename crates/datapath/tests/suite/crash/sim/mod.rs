//! A world with one seed: guests, moves, faults, and crashes at any moment, over the real engine, keeper, slots and map.
//!
//! ```text
//!   seed ─▶ plan ─▶ life ── crash ─▶ life ── crash ─▶ … ── crash ─▶ a last life without faults, which comes to rest
//!                    │        │ every disk: killed, or out of power
//!                    ▼        ▼
//!                  reads    what is found:  both must be among what the oracle says is possible
//! ```
//!
//! Nothing but the seed decides what happens: a seed that fails does so again.

mod cached;
pub mod copies;
pub mod device;
mod guest;
mod io;
mod life;
mod oracle;
mod orders;
pub mod plan;
mod rings;
mod snapshots;
mod sources;
mod stays;
mod world;

use datapath::engine::{Fault, MirrorEnd, MoveEnd, StopReason};

pub use world::run;

/// What has happened, to be sure that it does happen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Print every event.
    pub trace: bool,
    pub events: u64,
    /// Guest requests.
    pub requests: u64,
    pub failed: u64,
    /// Of these, for want of space.
    pub no_space: u64,
    /// Processes that were killed.
    pub kills: u64,
    pub power_losses: u64,
    /// Crashes inside of a commit, or of zeroing slots.
    pub in_disk: u64,
    /// Moves that began.
    pub moves: u64,
    pub moves_of_extents: u64,
    /// Moves that went on after a crash.
    pub resumed: u64,
    pub resumed_of_extents: u64,
    /// Moves that ended with everything on the target.
    pub done: u64,
    /// Moves that stopped early.
    pub stopped: u64,
    /// Mirrors that began.
    pub mirrors: u64,
    /// Reads that second copies have answered, of mirrors that ended before their process did.
    pub mirror_reads: u64,
    /// Reads that were done again at the first copy.
    pub mirror_again: u64,
    /// Mirrors that were given up since the second copy failed, since it was late, since the first one failed, and since they made way.
    pub mirrors_failed: u64,
    pub mirrors_late: u64,
    pub mirrors_first: u64,
    pub mirrors_made_way: u64,
    /// Volumes that were made larger.
    pub grown: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    pub snapshots_deleted: u64,
    /// Volumes that were made what a snapshot of them was.
    pub restored: u64,
    /// Extents that were imported, behind guests.
    pub arrived: u64,
    /// Volumes of which all was imported.
    pub imported: u64,
    /// Starts without the source of an import.
    pub source_away: u64,
    /// Volumes that could not be brought to rest in time.
    pub restless: u64,
    /// Extents that were given slots of their own.
    pub copied_up: u64,
    /// I/O errors.
    pub errors: u64,
    /// Steps of direct I/O that went through a buffer.
    pub by_buffer: u64,
    /// Of these, writes that read first.
    pub merged: u64,
    /// Changes that waited for others.
    pub in_order: u64,
    /// Failed flushes.
    pub losses: u64,
    /// Disks of the map that failed once.
    pub commits_failed: u64,
    /// Crashes before guests were let in.
    pub in_start: u64,
    /// Processes that ended in good order.
    pub closed: u64,
    /// Starts that were refused.
    pub refused: u64,
    /// Starts with too few devices for a copy of the map that would be alone.
    pub too_few: u64,
    /// Starts that find both copies with a proposal of their own to go on alone.
    pub proposals_by_both: u64,
    /// Of these, those that take an operator's word, since both copies have proposed to go on alone, and neither did.
    pub both_proposed: u64,
    /// Copies of the map in an old state that were offered to a start: the first one, the second one.
    pub copies_old: [u64; 2],
    /// Copies of the map that were torn when a process started.
    pub copies_torn: u64,
    /// Copies of the map that were missing when a process started.
    pub copies_missing: u64,
    /// Copies of the map that were made anew beside the other one, and took their place.
    pub copies_anew: u64,
    /// Devices that were lost when a process started.
    pub lost_at_start: u64,
    /// Of these, which were there and may not have been flushed.
    pub unflushed: u64,
    /// Of these, which were there in an old state.
    pub old_devices: u64,
    /// Devices that were lost while a process ran.
    pub lost: u64,
    /// Devices that came back.
    pub back: u64,
    /// Starts with the first copy of the map alone, though there are two.
    pub first_alone: u64,
    /// Starts with the second copy alone.
    pub second_alone: u64,
    /// Requests in rings that were in flight when a process was killed, and are done again.
    pub again: u64,
    /// Reads that the cache answered.
    pub from_memory: u64,
    /// Reads of whole pages that failed, and were done again without the rest.
    pub read_again: u64,
    /// Answers that waited for a commit in doubt.
    pub settled: u64,
}

impl Tally {
    fn answered(&mut self, result: Result<(), Fault>) {
        self.failed += u64::from(result.is_err());
        self.no_space += u64::from(result == Err(Fault::NoSpace));
    }

    fn mirror_ended(&mut self, end: &MirrorEnd) {
        self.mirror_reads += end.reads[1];
        let count = match end.why {
            Some(StopReason::TargetWrite(_) | StopReason::TargetFlush(_)) => {
                &mut self.mirrors_failed
            }
            Some(StopReason::TargetLate(_)) => &mut self.mirrors_late,
            Some(StopReason::FirstCopy(_)) => &mut self.mirrors_first,
            Some(StopReason::MadeWay(_)) => &mut self.mirrors_made_way,
            _ => return,
        };
        *count += 1;
    }

    fn ended(&mut self, end: &MoveEnd) {
        match end {
            MoveEnd::Done { .. } => self.done += 1,
            MoveEnd::Stopped { .. } => self.stopped += 1,
        }
    }
}
