//! Read-only view of a map: every page and record is verified, and the file is not changed.
//!
//! ```text
//!   file ◀──reads── overlay ◀── store in recovery mode, which verifies every page
//!                      ▲
//!                      └── writes of the store stay here, in memory
//! ```
//!
//! The store verifies its pages only after a crash, and may then return to the state before the
//! last commit. In this view it always verifies them, and a return to an earlier state is detected.
//! Then every record is read and compared with the sums of the map (`sums`).
//!
//! # Limits
//!
//! `membership` chooses among the copies. This module does not detect that an older file replaced
//! the whole map: no single copy can reveal it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redb::{Database, RepairSession, StorageBackend};
use xxhash_rust::xxh3::xxh3_128;

use crate::create::{builder, database_error, not_empty, open_there};
use crate::panics::contained;
use crate::{Array, ArrayError};

/// Storage that several parts of the program share.
#[derive(Debug, Clone)]
pub(crate) struct SharedStorage(pub(crate) Arc<dyn StorageBackend>);

impl StorageBackend for SharedStorage {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// Properties of a map that is open read-only.
#[derive(Debug)]
pub(crate) struct View {
    place: String,
    /// True if the last commit that was begun is missing.
    pub(crate) rolled_back: bool,
}

/// Length of a part of the overlay.
const PART: u64 = 4096;

/// Storage that keeps all writes in memory.
#[derive(Debug)]
struct Overlay {
    base: SharedStorage,
    base_length: u64,
    changed: Mutex<ChangedParts>,
}

#[derive(Debug)]
struct ChangedParts {
    length: u64,
    /// Written parts, by number.
    parts: BTreeMap<u64, Box<[u8; PART as usize]>>,
}

impl Overlay {
    fn new(base: SharedStorage) -> io::Result<Self> {
        let base_length = base.len()?;
        let changed = Mutex::new(ChangedParts {
            length: base_length,
            parts: BTreeMap::new(),
        });
        Ok(Self {
            base,
            base_length,
            changed,
        })
    }

    fn changed(&self) -> std::sync::MutexGuard<'_, ChangedParts> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the base. Bytes behind its end are zero.
    fn read_base(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = self.base_length.saturating_sub(offset);
        let there = out.len().min(usize::try_from(there).unwrap_or(usize::MAX));
        let (inside, behind) = out.split_at_mut(there);
        behind.fill(0);
        self.base.read(offset, inside)
    }
}

/// Returns the overlap of a byte range and a part, relative to the range and to the part.
fn within(offset: u64, length: usize, part: u64) -> (Range<usize>, Range<usize>) {
    let (begin, end) = (part * PART, (part + 1) * PART);
    let first = offset.max(begin);
    let last = (offset + length as u64).min(end);
    let of = |from: u64| (first - from) as usize..(last - from) as usize;
    (of(offset), of(begin))
}

fn parts_of(offset: u64, length: usize) -> Range<u64> {
    offset / PART..(offset + length as u64).div_ceil(PART)
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = self.changed();
        if offset + out.len() as u64 > changed.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_base(offset, out)?;
        for (part, bytes) in changed.parts.range(parts_of(offset, out.len())) {
            let (to, from) = within(offset, out.len(), *part);
            out[to].copy_from_slice(&bytes[from]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.changed().length = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = self.changed();
        changed.length = changed.length.max(offset + data.len() as u64);
        for part in parts_of(offset, data.len()) {
            let bytes = match changed.parts.entry(part) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let mut bytes = Box::new([0; PART as usize]);
                    self.read_base(part * PART, &mut bytes[..])?;
                    place.insert(bytes)
                }
            };
            let (from, to) = within(offset, data.len(), part);
            bytes[to].copy_from_slice(&data[from]);
        }
        Ok(())
    }
}

/// Start of a store's file. Bytes 0 to 8 hold the magic, byte 9 the flags. Two commit slots follow,
/// each with a checksum at its end.
struct Header([u8; HEADER]);

const HEADER: usize = 320;
const FLAGS_AT: u64 = 9;
/// Flag: the file was not closed in an orderly way.
const UNCLEAN: u8 = 2;
/// Flag: the last commit was flushed before the header named it.
const TWO_PHASES: u8 = 4;
const SLOTS_AT: [usize; 2] = [64, 192];
const SLOT: usize = 128;
/// Offset in a slot of the number of its commit, which precedes the checksum.
const SLOT_COMMIT_AT: usize = 104;
const SLOT_SUM_AT: usize = 112;
/// Flag: the second slot holds the last commit.
const SECOND: u8 = 1;

/// Returns flags that make the store verify every page: unclean, and not flushed in two phases.
fn unclean(flags: u8) -> u8 {
    (flags | UNCLEAN) & !TWO_PHASES
}

impl Header {
    fn read(storage: &SharedStorage) -> io::Result<Self> {
        let mut bytes = [0; HEADER];
        storage.read(0, &mut bytes)?;
        Ok(Self(bytes))
    }

    fn flags(&self) -> u8 {
        self.0[FLAGS_AT as usize]
    }

    /// Returns true if the file was closed in an orderly way.
    fn is_closed(&self) -> bool {
        self.flags() & UNCLEAN == 0
    }

    /// Returns the number of a slot's commit, or `None` if the slot is damaged.
    fn commit(&self, slot: usize) -> Option<u64> {
        let at = SLOTS_AT[slot];
        let (body, sum) = self.0[at..at + SLOT].split_at(SLOT_SUM_AT);
        let commit = body[SLOT_COMMIT_AT..].try_into().expect("eight bytes");
        (xxh3_128(body).to_le_bytes() == *sum).then(|| u64::from_le_bytes(commit))
    }

    /// Returns true if both slots are intact.
    fn has_both_slots(&self) -> bool {
        self.commit(0).is_some() && self.commit(1).is_some()
    }

    /// Returns true if the flags name the slot of the last commit, as in a closed file.
    fn names_last_commit(&self) -> bool {
        let named = usize::from(self.flags() & SECOND);
        self.has_both_slots() && self.commit(named) > self.commit(1 - named)
    }
}

/// Progress that the store reports when the last commit fails verification, before it returns to
/// the previous one.
const RETURNS: Range<f64> = 0.25..0.5;

impl Array {
    /// Opens a map read-only and verifies all pages and records. Nothing is written to the storage.
    ///
    /// # Errors
    /// [`ArrayError::Damaged`] if a page or a record is damaged, and other errors of reading.
    pub fn look_on(storage: impl StorageBackend) -> Result<Self, ArrayError> {
        let place = std::any::type_name_of_val(&storage).to_string();
        Self::look_in(SharedStorage(Arc::new(storage)), &place)
    }

    /// Opens the map in a file read-only and verifies it, like [`Array::look_on`].
    ///
    /// # Errors
    /// Those of [`Array::look_on`]; [`ArrayError::Missing`] if the file does not exist, and
    /// [`ArrayError::InUse`] if another process has it open.
    pub fn look_at(path: &Path) -> Result<Self, ArrayError> {
        let place = path.display().to_string();
        Self::in_file(open_there(path)?, &place, Self::look_in)
    }

    pub(crate) fn look_in(storage: SharedStorage, place: &str) -> Result<Self, ArrayError> {
        let array = Self::view(storage, place, Trust::Nothing)?;
        array.check_sums(place)?;
        Ok(array)
    }

    /// Opens a map read-only. A file that was closed in an orderly way must have its last commit.
    /// If pages are not verified, every file must have it.
    fn view(storage: SharedStorage, place: &str, trust: Trust) -> Result<Self, ArrayError> {
        let failed = |e: io::Error| ArrayError::store(format!("read {place}"))(redb::Error::Io(e));
        not_empty(place, storage.len().map_err(failed)?)?;
        let damaged = |why: String| ArrayError::Damaged {
            place: place.into(),
            why,
        };
        if storage.len().map_err(failed)? < HEADER as u64 {
            return Err(damaged("the file is truncated".into()));
        }
        let header = Header::read(&storage).map_err(failed)?;
        let overlay = Overlay::new(storage.clone()).map_err(failed)?;
        if trust == Trust::Nothing {
            let flags = [unclean(header.flags())];
            overlay.write(FLAGS_AT, &flags).map_err(failed)?;
        }
        let returned = Arc::new(AtomicBool::new(false));
        let noted = returned.clone();
        let mut builder = builder();
        builder.set_repair_callback(move |session: &mut RepairSession| {
            if RETURNS.contains(&session.progress()) {
                noted.store(true, Ordering::Relaxed);
            }
        });
        let db: Database = contained(place, || {
            let opened = builder.create_with_backend(overlay);
            opened.map_err(|e| database_error(place, "inspect", e))
        })?;
        let mut array = contained(place, || Self::read_meta(db, storage, place))?;
        let rolled_back = returned.load(Ordering::Relaxed) || !header.has_both_slots();
        let certain = match trust {
            Trust::Nothing => !rolled_back || !header.is_closed(),
            Trust::Pages => !rolled_back && header.names_last_commit(),
        };
        if !certain {
            return Err(damaged("its last commit cannot be read".into()));
        }
        array.view = Some(View {
            place: place.into(),
            rolled_back,
        });
        Ok(array)
    }

    /// Opens a map read-only without verification, to find intact records in a damaged map
    /// ([`crate::Salvage`]).
    pub(crate) fn look_unverified(storage: SharedStorage, place: &str) -> Result<Self, ArrayError> {
        Self::view(storage, place, Trust::Pages)
    }

    /// Returns true if the last commit that was begun is missing: the host lost power during that
    /// commit, or one of its pages is damaged.
    pub fn is_rolled_back(&self) -> bool {
        self.view.as_ref().is_some_and(|v| v.rolled_back)
    }

    /// Opens a verified map for changes. A map that is already open for changes stays open.
    ///
    /// # Errors
    /// When the store cannot open the map, or shows another state than the verified one.
    pub fn open_for_changes(self) -> Result<Self, ArrayError> {
        if self.view.is_none() {
            return Ok(self);
        }
        let verified = self.state()?;
        let Self {
            db,
            view,
            storage,
            file,
            ..
        } = self;
        drop(db);
        let View { place, .. } = view.expect("the map is a view");
        let open = || -> Result<Option<Self>, ArrayError> {
            let array = Self::open_storage(storage.clone(), &place)?;
            Ok((array.state()? == verified).then_some(array))
        };
        let mut opened = open();
        if !matches!(opened, Ok(Some(_))) {
            // If the header is damaged, a recovery as after a crash finds the verified state again.
            let failed = |e| ArrayError::store(format!("open {place}"))(redb::Error::Io(e));
            let flags = Header::read(&storage).map_err(failed)?.flags();
            storage.write(FLAGS_AT, &[unclean(flags)]).map_err(failed)?;
            opened = open();
        }
        let mut array = opened?.ok_or_else(|| ArrayError::Damaged {
            place: place.clone(),
            why: "its header does not name the last commit".into(),
        })?;
        if let Some(file) = file {
            array.keep_file(file);
        }
        Ok(array)
    }
}

/// Degree of trust in the file of a read-only map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Every page is verified.
    Nothing,
    /// Pages are read without verification, to find intact records among damaged ones.
    Pages,
}
