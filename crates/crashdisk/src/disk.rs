//! The disk: a page cache in front of a medium, and the moment at which it stops.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::change::Change;
use crate::loss;

/// How many operations were completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Ranges made zero.
    pub zeroes: u64,
    /// Changes of the length.
    pub lengths: u64,
    /// Syncs.
    pub syncs: u64,
}

impl Operations {
    /// Those that matter to what a crash leaves: all but the reads.
    pub fn changes(&self) -> u64 {
        self.writes + self.zeroes + self.lengths + self.syncs
    }
}

#[derive(Debug, Default)]
struct State {
    /// What reads see.
    cache: Vec<u8>,
    /// What every crash leaves.
    medium: Vec<u8>,
    /// The difference, in order.
    unsynced: Vec<Change>,
    /// The change during which the disk stopped.
    in_flight: Option<Change>,
    /// Changes left before it stops.
    left: Option<u64>,
    /// Changes left before one fails, and whether that one is made all the same.
    once: Option<(u64, bool)>,
    stopped: bool,
    operations: Operations,
}

/// A handle on a simulated disk; clones are handles on the same one.
#[derive(Debug, Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

impl CrashDisk {
    /// A disk of `length` zeroes.
    pub fn new(length: u64) -> Self {
        Self::of(vec![0; length as usize])
    }

    /// A disk with these bytes, all of them synced.
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

    /// Length in bytes. Fails once the disk has stopped.
    pub fn len(&self) -> Result<u64> {
        let state = self.state();
        state.running()?;
        Ok(state.cache.len() as u64)
    }

    /// Whether the length is zero. Fails once the disk has stopped.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads; past the end is an error.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, out.len() as u64)?;
        out.copy_from_slice(&state.cache[at as usize..at as usize + out.len()]);
        state.operations.reads += 1;
        Ok(())
    }

    /// Writes to the page cache; past the end is an error.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, bytes.len() as u64)?;
        let bytes = bytes.to_vec();
        state.change(Change::Write { at, bytes })?;
        state.operations.writes += 1;
        Ok(())
    }

    /// Makes a range read as zeroes, in the page cache like a write; past the end is an error.
    pub fn zero(&self, at: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.inside(at, length)?;
        state.change(Change::Zero { at, length })?;
        state.operations.zeroes += 1;
        Ok(())
    }

    /// Changes the length; what is added reads as zeroes.
    pub fn set_len(&self, length: u64) -> Result<()> {
        let mut state = self.state();
        state.running()?;
        state.change(Change::Length(length))?;
        state.operations.lengths += 1;
        Ok(())
    }

    /// Brings every change before it to the medium.
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

    /// Brings what is in a range to the medium, and nothing else: what a single durable write does.
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

    /// A sync that fails as those of page caches do: of the changes before it an arbitrary subset comes to the medium, and
    /// the others never will, though reads go on to see them. The next sync knows nothing of it.
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

    /// Lets `changes` more writes, zeroes, lengths and syncs succeed; the next one fails, and those after it succeed again. The one
    /// that fails is made all the same, or not: whoever hears of it cannot know.
    pub fn fail_once_after(&self, changes: u64, made: bool) {
        self.state().once = Some((changes, made));
    }

    /// What was to fail does not any more. One that has stopped stays so.
    pub fn fail_no_more(&self) {
        let mut state = self.state();
        state.left = None;
        state.once = None;
    }

    /// Stops now: everything fails from here on.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    /// Whether it has stopped.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// What it has done.
    pub fn operations(&self) -> Operations {
        self.state().operations
    }

    /// Number of changes that no sync has covered.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// The disk as the next process finds it after this one was killed: every completed change is there, though not
    /// synced; of the one in flight the first sectors may be.
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

    /// The disk as it is found when power is back. Different seeds lose different parts of what was not synced.
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

    /// Whether this is the change that fails, and if so whether it is made.
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
