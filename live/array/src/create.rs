//! Creation and opening of an array.
//!
//! ```text
//!   create: map-ID.new ──written, synced──▶ linked as map.redb ──▶ map-ID.new removed ──▶ directory synced
//! ```
//!
//! These steps ensure that `map.redb` exists only with its complete content, and that concurrent creations do not collide.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, StorageBackend, TableError};
use units::Bytes;

use crate::codec::Meta;
use crate::file::{HeaderLast, MapFile, open_locked};
use crate::membership::MapState;
use crate::panics::{Store, contained};
use crate::sums::{first_sum, write_state};
use crate::tables::{
    CHANGED, DEVICES, EXTENTS, META, META_KEY, MOVES, STAMPS, STATE, SUMS, TIERS, VOLUMES,
};
use crate::view::SharedStorage;
use crate::{Array, ArrayError, ArrayId, FORMAT_VERSION};

/// Name of the map in an array's directory.
pub const MAP_FILE: &str = "map.redb";

/// Smallest extent. Below it the map would be too large for the benefit of fast tiers.
pub const EXTENT_MIN: Bytes = Bytes(64 << 10);

/// Largest extent. An extent is the unit of copies and of space, even for a volume with one byte.
pub const EXTENT_MAX: Bytes = Bytes(1 << 30);

/// Memory for pages of the map. Protects the process from the store's default of 1 GiB.
const CACHE_BYTES: usize = 64 << 20;

impl Array {
    /// Creates an empty array. The directory is created if it does not exist; its parent directory must exist.
    pub fn create(dir: &Path, id: ArrayId, extent: Bytes) -> Result<Self, ArrayError> {
        let path = dir.join(MAP_FILE);
        let exists = || ArrayError::Exists { path: path.clone() };
        check_extent(extent)?;
        match fs::create_dir(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(ArrayError::io("create", dir)(e));
            }
            _ => {}
        }
        if fs::exists(&path).map_err(ArrayError::io("find", &path))? {
            return Err(exists());
        }
        let fresh = dir.join(format!("map-{id}.new"));
        let array = Self::create_file(&fresh, id, extent)?;
        fs::hard_link(&fresh, &path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => exists(),
            _ => ArrayError::io("create", &path)(e),
        })?;
        fs::remove_file(&fresh).map_err(ArrayError::io("remove", &fresh))?;
        sync_dir(dir)?;
        if let Some(parent) = dir.canonicalize().ok().as_deref().and_then(Path::parent) {
            sync_dir(parent)?;
        }
        Ok(array)
    }

    /// Opens the array in a directory. After a crash the store first verifies the whole map.
    pub fn open(dir: &Path) -> Result<Self, ArrayError> {
        Self::open_file(&dir.join(MAP_FILE))
    }

    /// Opens a copy of the map in a file of any name, without verifying it ([`Array::look_at`]
    /// does).
    pub fn open_file(path: &Path) -> Result<Self, ArrayError> {
        Self::open_locked_file(open_there(path)?, &path.display().to_string())
    }

    /// Opens the map in a file that is already open and locked, after a handover.
    pub fn open_locked_file(file: Arc<File>, place: &str) -> Result<Self, ArrayError> {
        Self::in_file(file, place, Self::open_storage)
    }

    /// Opens the map in an open file in the given way.
    pub(crate) fn in_file(
        file: Arc<File>,
        place: &str,
        open: impl FnOnce(SharedStorage, &str) -> Result<Self, ArrayError>,
    ) -> Result<Self, ArrayError> {
        let file = Arc::new(MapFile::new(file));
        let mut array = open(SharedStorage(file.clone()), place)?;
        array.keep_file(file);
        Ok(array)
    }

    /// Keeps the file of this map. A map that is open for changes allocates its reserve.
    pub(crate) fn keep_file(&mut self, file: Arc<MapFile>) {
        if self.view.is_none() {
            // The first commit that adds records reports a failure.
            let _ = file.take_reserve();
        }
        self.file = Some(file);
    }

    pub(crate) fn open_storage(storage: SharedStorage, place: &str) -> Result<Self, ArrayError> {
        contained(place, || {
            let db = builder().create_with_backend(HeaderLast::new(storage.clone()));
            let db = db.map_err(|e| database_error(place, "open", e))?;
            Self::read_meta(db, storage, place)
        })
    }

    /// Creates an empty map in a file and replaces the file that exists there.
    pub(crate) fn create_file(
        fresh: &Path,
        id: ArrayId,
        extent: Bytes,
    ) -> Result<Self, ArrayError> {
        // Remove the remains of an unfinished creation.
        if fs::exists(fresh).map_err(ArrayError::io("find", fresh))? {
            fs::remove_file(fresh).map_err(ArrayError::io("remove", fresh))?;
        }
        let file = open_locked(fresh, true)?;
        let create = |storage, place: &str| Self::create_in(storage, place, id, extent);
        let array = Self::in_file(file, &fresh.display().to_string(), create)?;
        // The map has the places of guest data, so only its owner may read it.
        fs::set_permissions(fresh, PermissionsExt::from_mode(0o600))
            .map_err(ArrayError::io("protect", fresh))?;
        Ok(array)
    }

    /// Like [`Array::create`], on any storage, which must be empty.
    pub fn create_on(
        backend: impl StorageBackend,
        id: ArrayId,
        extent: Bytes,
    ) -> Result<Self, ArrayError> {
        check_extent(extent)?;
        let place = std::any::type_name_of_val(&backend).to_string();
        let length = backend.len().map_err(store_io("inspect the storage"))?;
        if length > 0 {
            return Err(ArrayError::Exists { path: place.into() });
        }
        Self::create_in(SharedStorage(Arc::new(backend)), &place, id, extent)
    }

    /// Like [`Array::open`], on any storage.
    pub fn open_on(backend: impl StorageBackend) -> Result<Self, ArrayError> {
        let place = std::any::type_name_of_val(&backend).to_string();
        let length = backend.len().map_err(store_io("inspect the storage"))?;
        not_empty(&place, length)?;
        Self::open_storage(SharedStorage(Arc::new(backend)), &place)
    }

    fn create_in(
        storage: SharedStorage,
        place: &str,
        id: ArrayId,
        extent: Bytes,
    ) -> Result<Self, ArrayError> {
        let db = builder().create_with_backend(HeaderLast::new(storage.clone()));
        let db = db.map_err(|e| database_error(place, "create", e))?;
        let array = Self {
            db: Store::new(db),
            id,
            extent,
            families: Mutex::new(None),
            view: None,
            storage,
            file: None,
        };
        let write = || -> Result<(), redb::Error> {
            let txn = array.db.begin_write()?;
            let meta = Meta {
                version: FORMAT_VERSION,
                id,
                extent,
            };
            let meta = meta.encode();
            txn.open_table(META)?.insert(META_KEY, &*meta)?;
            txn.open_table(TIERS)?;
            txn.open_table(DEVICES)?;
            txn.open_table(VOLUMES)?;
            txn.open_table(EXTENTS)?;
            txn.open_table(MOVES)?;
            txn.open_table(STAMPS)?;
            txn.open_table(CHANGED)?;
            txn.open_table(SUMS)?;
            let state = MapState::default().encode();
            write_state(&mut txn.open_table(STATE)?, &state, first_sum(&meta))?;
            txn.commit()?;
            Ok(())
        };
        write().map_err(ArrayError::store("write the first tables"))?;
        Ok(array)
    }

    pub(crate) fn read_meta(
        db: Database,
        storage: SharedStorage,
        place: &str,
    ) -> Result<Self, ArrayError> {
        let not = |why: String| ArrayError::NotAnArray {
            place: place.into(),
            why,
        };
        let txn = db
            .begin_read()
            .map_err(ArrayError::store("read table meta"))?;
        let table = txn.open_table(META).map_err(|e| match e {
            TableError::Storage(e) => ArrayError::store("read table meta")(e),
            other => not(other.to_string()),
        })?;
        let value = table
            .get(META_KEY)
            .map_err(ArrayError::store("read table meta"))?
            .ok_or_else(|| not(format!("table meta has no key {META_KEY}")))?;
        let (found, meta) = Meta::decode(value.value())?;
        let Some(Meta { id, extent, .. }) = meta else {
            return Err(ArrayError::Version {
                place: place.into(),
                found,
            });
        };
        check_extent(extent)?;
        drop((value, table, txn));
        Ok(Self {
            db: Store::new(db),
            id,
            extent,
            families: Mutex::new(None),
            view: None,
            storage,
            file: None,
        })
    }
}

/// Opens and locks the file of a map, which must exist.
pub(crate) fn open_there(path: &Path) -> Result<Arc<File>, ArrayError> {
    let length = match fs::metadata(path) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let path = path.to_path_buf();
            return Err(ArrayError::Missing { path });
        }
        Err(e) => return Err(ArrayError::io("inspect", path)(e)),
    };
    not_empty(&path.display().to_string(), length)?;
    open_locked(path, false)
}

pub(crate) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn check_extent(extent: Bytes) -> Result<(), ArrayError> {
    match extent.0.is_power_of_two() && extent >= EXTENT_MIN && extent <= EXTENT_MAX {
        true => Ok(()),
        false => Err(ArrayError::ExtentSize { extent }),
    }
}

pub(crate) fn not_empty(place: &str, length: u64) -> Result<(), ArrayError> {
    match length {
        0 => Err(ArrayError::NotAnArray {
            place: place.into(),
            why: "the file is empty".into(),
        }),
        _ => Ok(()),
    }
}

pub(crate) fn database_error(place: &str, action: &str, error: DatabaseError) -> ArrayError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => ArrayError::InUse {
            place: place.into(),
        },
        DatabaseError::Storage(redb::StorageError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
            ArrayError::NotAnArray {
                place: place.into(),
                why: e.to_string(),
            }
        }
        other => ArrayError::store(format!("{action} {place}"))(other),
    }
}

fn store_io(action: &'static str) -> impl FnOnce(std::io::Error) -> ArrayError {
    move |e| ArrayError::store(action)(redb::Error::Io(e))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), ArrayError> {
    let synced = File::open(dir).and_then(|d| d.sync_all());
    synced.map_err(ArrayError::io("sync", dir))
}
