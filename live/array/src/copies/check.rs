//! Verification of the copies' files while the map is in use.
//!
//! ```text
//!   reader of the copy ──▶ its pages are not reused ──▶ slow read of the file (`view`) ──▶ damaged?
//!                                                             the other copy is intact │
//!                                                                                      ▼
//!                                                             the copy is dropped and rebuilt
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use redb::StorageBackend;

use super::{Copies, explain};
use crate::membership::CopyId;
use crate::view::SharedStorage;
use crate::{Array, ArrayError};

/// Bytes read between two pauses of the verification.
const AT_ONCE: u64 = 256 << 10;

/// Length of a pause. It limits the verification to 16 MiB/s of a disk that guests use as well.
const PAUSE: Duration = Duration::from_millis(16);

/// Number of attempts before a file counts as damaged: a header may look torn during a commit.
const LOOKS: usize = 3;

/// Result of the verification of each copy's file.
type Results = Vec<(CopyId, Result<(), ArrayError>)>;

/// A running verification. Dropping it ends the verification early.
#[derive(Debug)]
pub(super) struct Check {
    found: Receiver<Results>,
    wanted: Arc<AtomicBool>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

/// Storage that is read slowly. Reads fail once the verification is cancelled.
#[derive(Debug)]
struct PacedStorage {
    storage: SharedStorage,
    wanted: Arc<AtomicBool>,
    read: AtomicU64,
}

impl StorageBackend for PacedStorage {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the pauses leave the disk to guests"
    )]
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.wanted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = out.len() as u64;
        let before = self.read.fetch_add(length, Ordering::Relaxed);
        if before / AT_ONCE != (before + length) / AT_ONCE {
            std::thread::sleep(PAUSE);
        }
        self.storage.read(offset, out)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

impl Array {
    /// Verifies the file of this copy while the map is in use.
    fn verify_storage(&self, wanted: &Arc<AtomicBool>) -> Result<(), ArrayError> {
        // The reader keeps its pages from being reused by later commits.
        let _reader = self.begin_read()?;
        let mut found = Ok(());
        for _ in 0..LOOKS {
            let storage = SharedStorage(Arc::new(PacedStorage {
                storage: self.storage.clone(),
                wanted: wanted.clone(),
                read: AtomicU64::new(0),
            }));
            found = Array::look_in(storage, "the file").and_then(|array| {
                match array.is_rolled_back() {
                    false => Ok(()),
                    true => Err(ArrayError::Damaged {
                        place: "the file".into(),
                        why: "its last commit cannot be read".into(),
                    }),
                }
            });
            if found.is_ok() || !wanted.load(Ordering::Relaxed) {
                break;
            }
        }
        found
    }
}

impl Copies {
    /// Starts to verify the files of all members in the background.
    ///
    /// Does nothing while a verification runs or a commit is in doubt, or if copies have no
    /// threads.
    pub fn begin_check(&mut self) {
        if !self.runner.has_threads() || self.check.is_some() || self.in_doubt() {
            return;
        }
        let members = CopyId::ALL.into_iter().filter_map(|copy| {
            let slot = self.slots[copy.index()].as_ref().filter(|s| s.member)?;
            Some((copy, slot.array.clone()?))
        });
        let members: Vec<(CopyId, Arc<Array>)> = members.collect();
        let (sender, found) = channel();
        let wanted = Arc::new(AtomicBool::new(true));
        let check = Check {
            found,
            wanted: wanted.clone(),
        };
        let verify = move || {
            let one = |(copy, array): (CopyId, Arc<Array>)| (copy, array.verify_storage(&wanted));
            let _ = sender.send(members.into_iter().map(one).collect());
        };
        let spawned = std::thread::Builder::new()
            .name("terrace-map-check".into())
            .spawn(verify);
        self.check = spawned.is_ok().then_some(check);
    }

    /// Takes the result of a finished verification; returns true if there was one.
    ///
    /// A damaged copy is dropped if the other one is intact, and reported otherwise
    /// ([`super::CopyHealth::Damaged`]).
    pub fn end_check(&mut self) -> bool {
        let found = match self.check.as_ref().map(|check| check.found.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => return false,
            Some(Err(TryRecvError::Disconnected)) => vec![],
            Some(Ok(found)) => found,
        };
        self.check = None;
        let intact = |copy: CopyId| found.iter().any(|f| f.0 == copy && f.1.is_ok());
        for (copy, result) in &found {
            let why = match result {
                Err(error) => Some(explain(error)),
                Ok(()) => None,
            };
            let replaceable = intact(copy.other()) && self.is_member(copy.other());
            if let Some(slot) = self.slots[copy.index()].as_mut().filter(|s| s.member) {
                match why {
                    Some(why) if replaceable => self.drop_copy(*copy, why),
                    why => slot.damaged = why,
                }
            }
        }
        true
    }
}
