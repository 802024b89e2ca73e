//! Verification of the copies' files while the map is in use.
//!
//! ```text
//!   a reader of the copy ──▶ pages of its state are not used again ──▶ the file is looked at (`view`), slowly ──▶ damaged?
//!                                                                                                     │ the other copy is not
//!                                                                                                     ▼
//!                                                                                        the copy is dropped, and made anew
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use redb::StorageBackend;

use super::{Copies, explain};
use crate::membership::CopyId;
use crate::view::Shared;
use crate::{Array, ArrayError};

/// After so many bytes the verification pauses.
const AT_ONCE: u64 = 256 << 10;

/// The pause: reading takes at most 16 MiB/s of a disk that guests may use.
const PAUSE: Duration = Duration::from_millis(16);

/// A header that is read while a commit writes it may look torn: the file is looked at this often before it counts as damaged.
const LOOKS: usize = 3;

/// What was found in the copies' files.
type Found = Vec<(CopyId, Result<(), ArrayError>)>;

/// A verification that is under way. It ends early when this is dropped.
#[derive(Debug)]
pub(super) struct Check {
    found: Receiver<Found>,
    wanted: Arc<AtomicBool>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

/// A storage that is read slowly, and not at all once that is not wanted any more.
#[derive(Debug)]
struct Paced {
    storage: Shared,
    wanted: Arc<AtomicBool>,
    read: AtomicU64,
}

impl StorageBackend for Paced {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "guests use the disk more often than a verification does"
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
    /// Verifies what is in the storage, while the map is in use.
    fn verify_storage(&self, wanted: &Arc<AtomicBool>) -> Result<(), ArrayError> {
        // Pages that this reader may read are not used for later states.
        let _reader = self.begin_read()?;
        let mut found = Ok(());
        for _ in 0..LOOKS {
            let storage = Shared(Arc::new(Paced {
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
    /// Begins to verify the files of all members in the background; nothing, where that is under way, or copies have no threads.
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

    /// Takes the result of a verification, if it is over: a damaged copy is dropped if the other one is intact, and else reported
    /// ([`super::CopyHealth::Damaged`]). Returns whether it is over.
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
                Err(error @ ArrayError::Damaged { .. }) => Some(explain(error)),
                _ => None,
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
