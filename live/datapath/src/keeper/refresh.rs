//! New generations while guests write. They expose an older state of a device or of the map that is
//! put back later.
//!
//! ```text
//!   propose a new stamp (map) ─▶ superblocks, in a thread ─▶ all written? confirm (map)
//!                                                         └▶ else: same proposal, a minute later
//! ```
//!
//! A superblock that cannot be written loses no device here: until the confirmation a device may
//! carry the previous stamp.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use array::{ArrayError, Change, Stamp, Superblock};
use units::DeviceId;

use super::Keeper;
use crate::device::{Device, STAMP_TIME, SlotSpace, StampError};
use crate::text::explain;

/// Longest time between two generations while data changes. A state that is put back after a crash
/// may not be recognised if it is younger than this.
pub(super) const REFRESH: Duration = Duration::from_secs(60);

/// Result of the write of each device's superblock.
type WriteResults = Vec<(DeviceId, Result<(), StampError>)>;

/// Number of commits that a generation itself makes: its proposal and its confirmation.
const OWN_COMMITS: u64 = 2;

/// Superblocks that are being written.
pub(super) struct SuperblockWrite {
    stamp: Stamp,
    /// Changes before the proposal.
    changes: Changes,
    devices: Vec<DeviceId>,
    written: Receiver<WriteResults>,
}

impl SuperblockWrite {
    /// Returns results for writes without a reply: each superblock may have been written.
    fn unknown(devices: Vec<DeviceId>) -> WriteResults {
        let late = || StampError::Io(io::ErrorKind::TimedOut.into());
        devices.into_iter().map(|id| (id, Err(late()))).collect()
    }
}

/// Superblocks to write for a new generation.
pub struct Refresh<D> {
    stamp: Stamp,
    pub blocks: Vec<(DeviceId, Arc<D>, Superblock)>,
}

/// Counters of writes to devices and of commits of the map. They differ if data has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Changes {
    writes: u64,
    commits: u64,
}

impl<D: SlotSpace> Keeper<D> {
    /// Proposes a new generation of the present membership; returns `None` if that is impossible
    /// now.
    ///
    /// # Errors
    /// When the map fails.
    pub fn begin_refresh(&mut self) -> Result<Option<Refresh<D>>, ArrayError> {
        let settled = self.held.is_none() && self.map.confirmed() && self.writing.is_none();
        let settled = settled && !self.spoiled && self.distrusted.is_empty();
        if !self.guests || !settled || self.superblocks.is_empty() {
            return Ok(None);
        }
        let members = self.map.members();
        let stamp = self.proposal(members);
        self.propose(stamp, members)?;
        if self.map.members() != members {
            self.renew()?; // a copy was dropped
            return Ok(None);
        }
        let blocks = self.stamped(stamp).into_iter();
        let blocks = blocks.map(|(id, block)| (id, self.devices[&id].clone(), block));
        let blocks = blocks.collect();
        Ok(Some(Refresh { stamp, blocks }))
    }

    /// Confirms a generation whose superblocks are written. It stays a proposal if a device in use
    /// lacks it.
    ///
    /// # Errors
    /// When the map fails.
    pub fn end_refresh(&mut self, stamp: Stamp, written: WriteResults) -> Result<(), ArrayError> {
        let blocks: BTreeMap<DeviceId, Superblock> = self.stamped(stamp);
        for (id, result) in written {
            match (result, blocks.get(&id)) {
                (Ok(()), Some(block)) => self.wrote(id, *block),
                (Err(StampError::Io(_)), Some(_)) => {
                    // A part of the superblock, or all of it, may have been written.
                    self.uncertain.entry(id).or_default().insert(stamp);
                }
                (Err(error @ StampError::Overwritten { .. }), Some(_)) => {
                    self.lose_with(id, "its superblock cannot be written", &error);
                }
                _ => {}
            }
        }
        let everywhere = self.superblocks.values().all(|s| s.stamp == stamp);
        let proposed = self.map.state().pending.map(|p| p.stamp) == Some(stamp);
        let settled = self.held.is_none() && self.map.confirmed() && !self.spoiled;
        if !everywhere || !proposed || !settled {
            return Ok(());
        }
        let devices = self.superblocks.keys().copied().collect();
        self.commit_directly(&[Change::Confirm { devices }])
    }

    /// Starts a new generation and writes its superblocks before it returns.
    ///
    /// # Errors
    /// Those of [`Keeper::begin_refresh`].
    pub fn refresh(&mut self) -> Result<(), ArrayError> {
        match self.begin_refresh()? {
            None => Ok(()),
            Some(Refresh { stamp, blocks }) => {
                let written = D::write_superblocks(blocks);
                self.end_refresh(stamp, written)
            }
        }
    }

    /// Waits for superblocks that are being written. Other superblocks must not be written
    /// meanwhile.
    pub(crate) fn finish_refresh(&mut self) {
        if let Some(writing) = self.writing.take() {
            let written = writing.written.recv_timeout(STAMP_TIME);
            let written = written.unwrap_or_else(|_| SuperblockWrite::unknown(writing.devices));
            self.end_or_note(writing.stamp, written);
        }
    }

    fn end_or_note(&mut self, stamp: Stamp, written: WriteResults) {
        if let Err(error) = self.end_refresh(stamp, written) {
            self.map_failing = Some(explain(&error));
        }
    }
}

impl Keeper {
    /// Starts a new generation once a minute while data changes, and confirms it when it is
    /// written.
    pub(super) fn keep_fresh(&mut self) {
        match self.writing.as_ref().map(|w| w.written.try_recv()) {
            None => {}
            Some(Err(TryRecvError::Empty)) => return,
            Some(written) => {
                let Some(writing) = self.writing.take() else {
                    return;
                };
                let (stamp, changes) = (writing.stamp, writing.changes);
                let written = written.unwrap_or_else(|_| SuperblockWrite::unknown(writing.devices));
                self.end_or_note(stamp, written);
                if self.map.state().confirmed.stamp == stamp {
                    let commits = changes.commits + OWN_COMMITS;
                    self.watch.changes = Changes { commits, ..changes };
                }
            }
        }
        let last = *self.watch.refreshed.get_or_insert_with(Instant::now);
        let changes = self.changes();
        if last.elapsed() < REFRESH || changes == self.watch.changes {
            return;
        }
        self.watch.refreshed = Some(Instant::now());
        match self.begin_refresh() {
            Ok(Some(refresh)) => self.write_in_thread(refresh, changes),
            Ok(None) => {}
            Err(error) => self.map_failing = Some(explain(&error)),
        }
    }

    fn write_in_thread(&mut self, refresh: Refresh<Device>, changes: Changes) {
        let Refresh { stamp, blocks } = refresh;
        let devices = blocks.iter().map(|b| b.0).collect();
        let (sender, written) = channel();
        let write = move || drop(sender.send(Device::write_superblocks(blocks)));
        let spawned = std::thread::Builder::new()
            .name("terrace-stamps".into())
            .spawn(write);
        if spawned.is_ok() {
            self.writing = Some(SuperblockWrite {
                stamp,
                changes,
                devices,
                written,
            });
        }
    }

    fn changes(&self) -> Changes {
        let writes = self.devices.values().map(|d| d.counts().writes).sum();
        let commits = self.map.state().commits;
        Changes { writes, commits }
    }
}
