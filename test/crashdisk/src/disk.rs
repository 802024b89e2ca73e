//! Simulated disk: a page cache in front of a medium, and the moment at which it stops.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::change::Change;
use crate::loss;

/// Numbers of completed operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Writes of zeroes to a range.
    pub zeroes: u64,
    /// Changes of the length.
    pub lengths: u64,
    /// Syncs.
    pub syncs: u64,
}

impl Operations {
    /// Returns the number of operations that influence the state after a crash: all except reads.
    pub fn changes(&self) -> u64 {
        self.writes + self.zeroes + self.lengths + self.syncs
    }
}

#[derive(Debug, Default)]
struct State {
    /// Content that reads return.
    cache: Vec<u8>,
    /// Content that survives each crash.
    medium: Vec<u8>,
    /// Changes of the cache that are not on the medium, in order.
    unsynced: Vec<Change>,
    /// Change during which the disk stopped.
    in_flight: Option<Change>,
    /// Number of changes until the disk stops.
    left: Option<u64>,
    /// Number of changes until one fails; the flag is true if the failed one takes effect.
    once: Option<(u64, bool)>,
    stopped: bool,
    operations: Operations,
}

/// Handle of a simulated disk; clones refer to the same disk.
#[derive(Debug, Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

impl CrashDisk {
    /// Creates a disk of `length` zeroes.
    pub fn new(length: u64) -> Self {
        Self::of(vec![0; length as usize])
    }

    /// Creates a disk with this content, completely synced.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self::with(State {
            cache: bytes.clone(),
            medium: bytes,
            ..State::default()
        })
    }

    fn with(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .expect("no operation of a crash disk panics while it holds the lock")
    }

    /// Returns the length in bytes. Fails once the disk has stopped.
    pub fn len(&self) -> Result<u64> {
        let state = self.state();
        state.running()?;
        Ok(state.cache.len() as u64)
    }

    /// Returns true if the length is zero. Fails once the disk has stopped.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads from the cache. Fails beyond the end.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, out.len() as u64)?;
        out.copy_from_slice(&state.cache[at as usize..at as usize + out.len()]);
        state.operations.reads += 1;
        Ok(())
    }

    /// Writes to the page cache. Fails beyond the end.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, bytes.len() as u64)?;
        let bytes = bytes.to_vec();
        state.change(Change::Write { at, bytes })?;
        state.operations.writes += 1;
        Ok(())
    }

    /// Writes zeroes to a range of the page cache. Fails beyond the end.
    pub fn zero(&self, at: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, length)?;
        state.change(Change::Zero { at, length })?;
        state.operations.zeroes += 1;
        Ok(())
    }

    /// Changes the length; added bytes read as zeroes.
    pub fn set_len(&self, length: u64) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.change(Change::Length(length))?;
        state.operations.lengths += 1;
        Ok(())
    }

    /// Writes all earlier changes to the medium.
    pub fn sync(&self) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.count_down()?;
        let fails = state.fails_now();
        if fails == Some(false) {
            return Err(failed_once());
        }
        let State {
            medium, unsynced, ..
        } = &mut *state;
        for change in unsynced.drain(..) {
            change.apply(medium);
        }
        state.operations.syncs += 1;
        fails.map_or(Ok(()), |_| Err(failed_once()))
    }

    /// Writes only the changes in a range to the medium, as a single durable write does.
    pub fn sync_range(&self, at: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, length)?;
        state.count_down()?;
        let State {
            medium, unsynced, ..
        } = &mut *state;
        if unsynced.iter().any(|c| c.range().is_none()) {
            return Err(Error::other("the length is not synced: sync all of it"));
        }
        let mut rest = Vec::with_capacity(unsynced.len());
        for change in unsynced.drain(..) {
            if let Some(inside) = change.cut(at, at + length) {
                inside.apply(medium);
            }
            rest.extend(change.cut(0, at));
            rest.extend(change.cut(at + length, u64::MAX));
        }
        *unsynced = rest;
        state.operations.syncs += 1;
        Ok(())
    }

    /// Simulates a failed sync of a page cache: an arbitrary subset of the earlier changes reaches the medium. The others
    /// never do, although reads still return them. The next sync reports nothing of it.
    pub fn fail_sync(&self, seed: u64) {
        let mut state = self.state();
        let changes = std::mem::take(&mut state.unsynced);
        let changes: Vec<&Change> = changes.iter().collect();
        let medium = std::mem::take(&mut state.medium);
        state.medium = loss::survives(medium, &changes, seed);
    }

    /// Lets `changes` more writes, zeroes, lengths and syncs succeed; the next one, and everything after it, fails.
    pub fn fail_after(&self, changes: u64) {
        self.state().left = Some(changes);
    }

    /// Lets `changes` more writes, zeroes, lengths and syncs succeed; the next one fails, and later ones succeed again. With
    /// `made` the failed one takes effect; the caller cannot see it from the error.
    pub fn fail_once_after(&self, changes: u64, made: bool) {
        self.state().once = Some((changes, made));
    }

    /// Cancels planned failures. A disk that has stopped remains stopped.
    pub fn fail_no_more(&self) {
        let mut state = self.state();
        state.left = None;
        state.once = None;
    }

    /// Stops the disk: all later operations fail.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    /// Returns true if the disk has stopped.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// Returns the numbers of completed operations.
    pub fn operations(&self) -> Operations {
        self.state().operations
    }

    /// Returns the number of changes that no sync has covered.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// Returns the disk as the next process finds it after this one was killed. It has all completed changes, though not
    /// synced, and possibly the first sectors of the change in flight.
    #[must_use]
    pub fn killed(&self) -> CrashDisk {
        let state = self.state();
        let mut cache = state.cache.clone();
        let mut unsynced = state.unsynced.clone();
        if let Some(change) = &state.in_flight {
            let done = loss::begun(change, state.operations.changes());
            unsynced.extend(done.inspect(|c| c.apply(&mut cache)));
        }
        Self::with(State {
            cache,
            medium: state.medium.clone(),
            unsynced,
            ..State::default()
        })
    }

    /// Returns the disk after a power loss. Different seeds lose different parts of the unsynced changes.
    #[must_use]
    pub fn power_loss(&self, seed: u64) -> CrashDisk {
        let state = self.state();
        let changes = state.unsynced.iter().chain(&state.in_flight);
        Self::of(loss::survives(
            state.medium.clone(),
            &changes.collect::<Vec<_>>(),
            seed,
        ))
    }
}

fn failed_once() -> Error {
    Error::other("simulated: the disk failed once")
}

impl State {
    fn running(&self) -> Result<()> {
        match self.stopped {
            true => Err(Error::other("simulated crash: the disk has stopped")),
            false => Ok(()),
        }
    }

    fn inside(&self, at: u64, length: u64) -> Result<()> {
        let end = at.checked_add(length);
        if end.is_some_and(|end| end <= self.cache.len() as u64) {
            return Ok(());
        }
        let text = format!(
            "{length} bytes at {at} are not inside of the disk's {} bytes",
            self.cache.len()
        );
        Err(Error::new(ErrorKind::UnexpectedEof, text))
    }

    fn count_down(&mut self) -> Result<()> {
        match &mut self.left {
            Some(0) => {
                self.stopped = true;
                self.running()
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns `None` if the present change succeeds; otherwise true if the failed change takes effect.
    fn fails_now(&mut self) -> Option<bool> {
        match &mut self.once {
            Some((0, made)) => {
                let made = *made;
                self.once = None;
                Some(made)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }

    fn change(&mut self, change: Change) -> Result<()> {
        if let Err(stopped) = self.count_down() {
            self.in_flight = Some(change);
            return Err(stopped);
        }
        let fails = self.fails_now();
        if fails != Some(false) {
            change.apply(&mut self.cache);
            self.unsynced.push(change);
        }
        fails.map_or(Ok(()), |_| Err(failed_once()))
    }
}
