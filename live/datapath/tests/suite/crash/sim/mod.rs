//! World of one seed: guests, moves, faults, and crashes at any moment, with the real engine, keeper, slots and map.
//!
//! ```text
//!   seed ─▶ plan ─▶ life ── crash ─▶ life ── crash ─▶ … ── crash ─▶ a last life without faults, which completes all work
//!                    │        │ every disk: killed, or out of power
//!                    ▼        ▼
//!                  reads    found content:  the oracle must allow both
//! ```
//!
//! Only the seed determines the events, so a failing seed fails again.

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

/// Counts of events, which show that each kind occurs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// True to print every event.
    pub trace: bool,
    pub events: u64,
    /// Number of guest requests.
    pub requests: u64,
    pub failed: u64,
    /// Failed requests for lack of space.
    pub no_space: u64,
    /// Number of killed processes.
    pub kills: u64,
    pub power_losses: u64,
    /// Crashes during a commit or during the zeroing of slots.
    pub in_disk: u64,
    /// Moves that began.
    pub moves: u64,
    pub moves_of_extents: u64,
    /// Moves that continued after a crash.
    pub resumed: u64,
    pub resumed_of_extents: u64,
    /// Moves that ended with all data on the target.
    pub done: u64,
    /// Moves that ended early.
    pub stopped: u64,
    /// Mirrors that began.
    pub mirrors: u64,
    /// Reads from second copies, by mirrors that ended before their process did.
    pub mirror_reads: u64,
    /// Reads that were repeated from the first copy.
    pub mirror_again: u64,
    /// Mirrors that ended because the second copy failed, because it was late, because the first copy failed, and
    /// because they made way for other work.
    pub mirrors_failed: u64,
    pub mirrors_late: u64,
    pub mirrors_first: u64,
    pub mirrors_made_way: u64,
    /// Volumes that grew.
    pub grown: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    pub snapshots_deleted: u64,
    /// Volumes that were restored from a snapshot.
    pub restored: u64,
    /// Imported extents.
    pub arrived: u64,
    /// Completely imported volumes.
    pub imported: u64,
    /// Starts without the source of an import.
    pub source_away: u64,
    /// Volumes whose requests in flight did not end in time for a snapshot.
    pub restless: u64,
    /// Shared extents that got private slots.
    pub copied_up: u64,
    /// I/O errors.
    pub errors: u64,
    /// Steps of direct I/O through a buffer.
    pub by_buffer: u64,
    /// Writes among them that read first.
    pub merged: u64,
    /// Changes that waited for earlier ones.
    pub in_order: u64,
    /// Failed flushes.
    pub losses: u64,
    /// Disks of the map that failed once.
    pub commits_failed: u64,
    /// Crashes before guests were admitted.
    pub in_start: u64,
    /// Processes that stopped in order.
    pub closed: u64,
    /// Starts that were refused.
    pub refused: u64,
    /// Starts with too few devices for a copy of the map that would continue alone.
    pub too_few: u64,
    /// Starts in which both copies have their own proposal to continue alone.
    pub proposals_by_both: u64,
    /// Starts among them that needed an operator's consent, because both copies had proposed to continue alone and
    /// neither did.
    pub both_proposed: u64,
    /// Old states of map copies that were offered to a start: first copy, second copy.
    pub copies_old: [u64; 2],
    /// Map copies that were damaged at a start.
    pub copies_torn: u64,
    /// Map copies that were missing at a start.
    pub copies_missing: u64,
    /// Map copies that were rebuilt from the other one.
    pub copies_anew: u64,
    /// Devices that were lost at a start.
    pub lost_at_start: u64,
    /// Present devices among them that may have unflushed data.
    pub unflushed: u64,
    /// Devices among them in an old state.
    pub old_devices: u64,
    /// Devices that were lost while a process ran.
    pub lost: u64,
    /// Devices that came back.
    pub back: u64,
    /// Starts with only the first of two copies of the map.
    pub first_alone: u64,
    /// Starts with only the second copy.
    pub second_alone: u64,
    /// Requests in rings that were in flight at a kill and were repeated.
    pub again: u64,
    /// Reads that the cache served.
    pub from_memory: u64,
    /// Reads of whole pages that failed and were repeated without the rest.
    pub read_again: u64,
    /// Replies that waited for a commit in doubt.
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
