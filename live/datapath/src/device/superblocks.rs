//! The two superblock places of a device. They are written only while they hold the bytes that this
//! process last read or wrote. Other bytes mean that another program has written to the device;
//! Terrace then stops writing to it.
//!
//! ```text
//!   opening: read        ─▶ expected: the bytes read
//!   stamp: read, compare ─▶ expected: old or new, per sector ─▶ write ─▶ expected: new bytes
//!                  └─ differs ─▶ `StampError::Overwritten`, nothing is written
//! ```

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use array::{DeviceKind, DeviceRecord, SUPERBLOCKS_BYTES, Superblock};
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno;
use thiserror::Error;

use super::owner::End;
use super::space::STAMP_TIME;
use super::{Device, DeviceError, Medium, contents, reopened, system, write_durably};
use crate::client;

/// Contents that the superblock places may have.
pub(super) type Places = Vec<Vec<u8>>;

/// Smallest unit that devices write atomically.
const SECTOR: usize = 512;

/// Reason why a superblock was not written.
#[derive(Debug, Error)]
pub enum StampError {
    /// The device or the way to it failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The superblock differs from the one that this process last read or wrote.
    #[error("another program has overwritten its superblock, which now holds: {now}")]
    Overwritten {
        /// Description of the present data.
        now: String,
    },
}

impl Device {
    /// Reads from the medium. The read of a remote export ends within `time`.
    pub(super) fn read_bytes(&self, at: u64, length: usize, time: Duration) -> io::Result<Vec<u8>> {
        match &self.medium {
            Medium::File(file, _) => {
                let mut bytes = vec![0; length];
                // Another host may have written to a shared device since these pages were cached.
                let pages = std::num::NonZeroU64::new(length as u64);
                let _ = fadvise(file, at, pages, Advice::DontNeed); // only a hint where there is no cache
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            }
            Medium::Nbd(uri) => {
                client::read_within(uri, time, at, length as u32).map_err(io::Error::other)
            }
            Medium::Lost => Err(Errno::IO.into()),
        }
    }

    /// Drops clean pages of the device from the page cache, so reads return the content of the device.
    pub(crate) fn drop_cache(&self) {
        if let Medium::File(file, _) = &self.medium {
            let _ = fadvise(file, 0, None, Advice::DontNeed); // only a hint where there is no cache
        }
    }

    /// Writes bytes durably.
    pub(super) fn write_bytes(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match &self.medium {
            // The kernel reports a failed write once to each opening. A separate opening leaves the report for
            // guests' flushes.
            Medium::File(file, _) => write_durably(&reopened(file, OFlags::empty())?, bytes, at),
            Medium::Nbd(uri) => {
                client::write_durably(uri, &self.lease, at, bytes).map_err(io::Error::other)
            }
            Medium::Lost => Err(Errno::IO.into()),
        }
    }

    pub(super) fn expected(&self) -> MutexGuard<'_, Places> {
        self.superblock_places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the contents of the superblock places when the device is opened. Later calls have no effect.
    pub(super) fn expect(&self, there: Vec<u8>) {
        let mut expected = self.expected();
        if expected.is_empty() {
            expected.push(there);
        }
    }

    /// Returns true if the superblock places hold bytes that this process last read or wrote or is
    /// writing, or if it has not read them yet.
    pub fn is_same(&self, found: &[u8]) -> bool {
        let expected = self.expected();
        expected.is_empty() || explains(&expected, found)
    }

    /// Reads the superblock places and compares them with the expected contents; returns the bytes.
    ///
    /// # Errors
    /// [`StampError::Overwritten`] if they differ.
    pub(crate) fn check_superblock(&self) -> Result<Vec<u8>, StampError> {
        let there = {
            // Read under the lock: a concurrent stamp would look like a foreign change.
            let expected = self.expected();
            let there = self.read_bytes(0, SUPERBLOCKS_BYTES, STAMP_TIME)?;
            if explains(&expected, &there) {
                return Ok(there);
            }
            there
        };
        let now = contents::describe(self, &there);
        Err(StampError::Overwritten { now })
    }

    /// Writes both superblocks. Refuses if another program has changed them or if they carry a
    /// later generation: a delayed write must not replace a later one.
    pub(super) fn stamp(&self, superblock: &Superblock) -> Result<(), StampError> {
        let turn = self.stamping.try_lock();
        let _turn = match turn {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let why = "an earlier write of the superblock has not finished";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why).into());
            }
        };
        if let Medium::Nbd(..) = self.medium {
            // The device is not lost because the remote server is slow for a moment.
            self.lease.wait(STAMP_TIME / 2)?;
        }
        let there = self.check_superblock()?;
        let later = |found: Superblock| found.stamp.generation > superblock.stamp.generation;
        if Superblock::decode_both(&there).is_ok_and(later) {
            return Err(
                io::Error::other("the superblock on the device has a later generation").into(),
            );
        }
        let writes = superblock.writes(&there);
        let mut states = vec![there];
        for (at, block) in &writes {
            let mut next = states[states.len() - 1].clone();
            next[*at as usize..][..block.len()].copy_from_slice(block);
            states.push(next);
        }
        let last = states[states.len() - 1].clone();
        *self.expected() = states;
        for (at, block) in &writes {
            self.write_bytes(*at, block)?;
        }
        *self.expected() = vec![last];
        Ok(())
    }

    /// Clears a device that left the array: removes its file, or zeroes the superblocks of a block
    /// device or an export.
    ///
    /// # Errors
    /// [`DeviceError`]. A device that another program has written to stays unchanged.
    pub fn disown(&self, record: &DeviceRecord) -> Result<(), DeviceError> {
        let clear = || {
            self.check_superblock()?;
            self.write_bytes(0, &[0; SUPERBLOCKS_BYTES])?;
            Ok(())
        };
        let clear =
            || clear().map_err(|e: StampError| system(record, "clear the superblock of")(io(e)));
        match (&self.medium, record.kind) {
            (Medium::File(..), DeviceKind::File) => {
                std::fs::remove_file(&record.path).map_err(system(record, "remove"))
            }
            (Medium::File(..), _) => clear(),
            (Medium::Nbd(_), _) => {
                clear()?;
                self.end_ownership(End::Clear);
                Ok(())
            }
            (Medium::Lost, _) => Ok(()),
        }
    }
}

/// Converts the error into an error of the system.
pub(super) fn io(error: StampError) -> io::Error {
    match error {
        StampError::Io(error) => error,
        overwritten @ StampError::Overwritten { .. } => io::Error::other(overwritten),
    }
}

/// Returns true if each sector matches one of the expected states: a failed write may leave a mix.
pub(super) fn explains(expected: &[Vec<u8>], found: &[u8]) -> bool {
    let sectors = found.chunks(SECTOR).enumerate();
    let mut known = sectors.map(|(number, sector)| {
        let at = number * SECTOR;
        expected
            .iter()
            .any(|state| state.get(at..at + sector.len()) == Some(sector))
    });
    found.len() == SUPERBLOCKS_BYTES && known.all(|known| known)
}

#[cfg(test)]
mod tests {
    use array::{ArrayId, SUPERBLOCK_BYTES, Stamp};
    use model::DirectIo;
    use tempfile::TempDir;
    use units::{Bytes, DeviceId, TierId};

    use super::*;
    use crate::device::Claimant;
    use crate::device::SlotSpace;

    const EXTENT: Bytes = Bytes(1 << 20);

    fn record(dir: &TempDir) -> DeviceRecord {
        DeviceRecord {
            id: DeviceId(0),
            tier: TierId(0),
            name: "slow-0".into(),
            kind: DeviceKind::File,
            path: dir.path().join("slow-0.extents").to_str().unwrap().into(),
            slots: 1,
            high_water: 0,
            emulate: None,
            direct: DirectIo::Off,
        }
    }

    fn formatted(dir: &TempDir) -> (Device, Superblock) {
        let id = ArrayId([7; 16]);
        let record = record(dir);
        let (device, destroyed) =
            Device::format(id, EXTENT, &record, false, &Claimant::default()).unwrap();
        assert!(destroyed.is_empty());
        (device, crate::device::superblock_of(id, EXTENT, &record))
    }

    fn numbered(superblock: Superblock, generation: u64) -> Superblock {
        let stamp = Stamp {
            generation,
            nonce: 1,
        };
        Superblock {
            stamp,
            ..superblock
        }
    }

    fn overwrite(dir: &TempDir, at: u64, bytes: &[u8]) -> Vec<u8> {
        let path = record(dir).path;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(bytes, at).unwrap();
        std::fs::read(path).unwrap()
    }

    fn is_overwritten(result: Result<(), StampError>) -> String {
        match result {
            Err(StampError::Overwritten { now }) => now,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stamp_over_foreign_data_is_refused_without_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let (device, superblock) = formatted(&dir);
        device.stamp(&numbered(superblock, 1)).unwrap();
        device.stamp(&numbered(superblock, 2)).unwrap();
        // A single sector of the second place, as a partition table has it.
        let damaged = overwrite(&dir, SUPERBLOCK_BYTES as u64 + 512, &[9; 512]);
        is_overwritten(device.stamp(&numbered(superblock, 3)));
        assert!(std::fs::read(record(&dir).path).unwrap() == damaged);
        assert!(!device.is_same(&damaged[..SUPERBLOCKS_BYTES]));
        // The same check precedes the clearing of superblocks.
        let block = DeviceRecord {
            kind: DeviceKind::Block,
            ..record(&dir)
        };
        let error = crate::text::explain(&device.disown(&block).unwrap_err());
        assert!(error.contains("another program"), "{error}");
        assert!(std::fs::read(record(&dir).path).unwrap() == damaged);
    }

    #[test]
    fn stamp_over_the_stamp_of_another_process_is_refused_and_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let (device, superblock) = formatted(&dir);
        let other = numbered(superblock, 41).encode();
        overwrite(&dir, 0, &[other, other].concat());
        let now = is_overwritten(device.stamp(&numbered(superblock, 1)));
        let array = "07070707";
        assert!(now.contains("device 0 of Terrace array"), "{now}");
        assert!(
            now.contains(array) && now.contains("generation 41"),
            "{now}"
        );
        // A second read in this process does not change the expected contents.
        device.read_superblock().unwrap();
        is_overwritten(device.stamp(&numbered(superblock, 1)));
    }

    #[test]
    fn stamp_of_a_device_with_a_torn_pair_is_written() {
        for torn_at in [0, SUPERBLOCK_BYTES as u64] {
            let dir = tempfile::tempdir().unwrap();
            let (device, superblock) = formatted(&dir);
            device.stamp(&numbered(superblock, 1)).unwrap();
            drop(device);
            let new = numbered(superblock, 2).encode();
            overwrite(&dir, torn_at, &new[..512]);
            let device = Device::open(EXTENT, &record(&dir)).unwrap();
            assert_eq!(device.read_superblock().unwrap().stamp.generation, 1);
            device.stamp(&numbered(superblock, 3)).unwrap();
            assert_eq!(device.read_superblock().unwrap().stamp.generation, 3);
        }
    }

    #[test]
    fn mix_of_sectors_after_a_failed_stamp_is_expected() {
        let [before, second, both] = [[1, 1], [1, 2], [2, 2]].map(|places: [u8; 2]| {
            let place = |n: u8| vec![n; SUPERBLOCK_BYTES];
            [place(places[0]), place(places[1])].concat()
        });
        let states = [before.clone(), second, both];
        let mut torn = before;
        torn[512..1024].fill(2);
        torn[SUPERBLOCK_BYTES..][..512].fill(2);
        assert!(explains(&states, &torn));
        torn[512] = 3;
        assert!(!explains(&states, &torn));
        assert!(!explains(&states, &torn[..SUPERBLOCK_BYTES]), "too short");
        assert!(!explains(&[], &torn), "nothing was read yet");
    }
}
