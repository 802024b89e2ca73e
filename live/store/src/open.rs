//! Opening and creation of a store.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError, canonicalize};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use manager::store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::failure::Place;
use crate::frames::Frames;
use crate::identity::Files;
use crate::names::Names;
use crate::schema::{APPLICATION, LAYOUT, PAGE_BYTES, TABLES};
use crate::{Retention, SqliteStore};

/// Longest wait for an external reader, such as an operator's `sqlite3`.
const BUSY: Duration = Duration::from_secs(1);

/// Size of the page cache: the inner pages of all tables, and those that each commit changes.
const CACHE_KIB: i64 = 32 * 1024;

/// Largest size of an empty write-ahead log on disk; large commits exceed it for a while.
const LOG_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// Smallest size of a database in bytes: the smallest page of SQLite.
const DATABASE_BYTES_MIN: u64 = 512;

/// Size of the cache of prepared statements: enough for all statements of the store.
const STATEMENTS: usize = 64;

impl SqliteStore {
    /// Opens the store in a file. Creates the file, readable only by its owner, and its directory if they do not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`], without waiting, if this or another process has opened the store; [`StoreError::Layout`] for a
    /// file of another version of terrace; [`StoreError::Read`] for a damaged file; [`StoreError::Write`] if files cannot be
    /// created.
    pub fn open(path: &Path, retention: Retention) -> Result<Self, StoreError> {
        let path = absolute(path)?;
        let lock = lock(&path)?;
        let place = Place(path.clone());
        let file = find_or_make(&path)?;
        if file == PathContent::Short {
            return Err(place.damaged("the file is too short for a database"));
        }
        if file == PathContent::Empty {
            refuse_log_alone(&path)?;
        }
        let mut conn = connect(&path).map_err(|e| place.reading(e.into()))?;
        let identity = identify(&conn).map_err(|e| place.reading(e.into()))?;
        refuse_others(&identity, &place)?;
        // From here on the file is known to be a store and may be changed.
        set_durability(&conn).map_err(|e| place.writing(e.into()))?;
        if identity == EMPTY {
            create(&mut conn).map_err(|e| place.writing(e.into()))?;
        }
        check_values(&conn, &place)?;
        let names = Names::load(&conn).map_err(|f| place.reading(f))?;
        Ok(Self {
            conn,
            names,
            frames: Frames::new().map_err(|f| place.reading(f))?,
            retention,
            place,
            files: Files::of(&path),
            _lock: lock,
        })
    }
}

impl SqliteStore {
    /// Checks if the store in a file could be opened, without any change. A missing file is no error, because it can be
    /// created.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn examine(path: &Path) -> Result<(), StoreError> {
        let place = Place(path.to_path_buf());
        let name = beside(path, ".lock");
        match OpenOptions::new().write(true).open(&name) {
            Ok(lock) => {
                if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
                    return Err(StoreError::InUse {
                        path: path.display().to_string(),
                    });
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Place(name).io("open", &e)),
        }
        let size = match std::fs::metadata(path) {
            Ok(found) => found.len(),
            // A dangling symbolic link is no place for a new file.
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return match path.is_symlink() {
                    true => Err(place.io("open", &e)),
                    false => Ok(()),
                };
            }
            Err(e) => return Err(place.io("look at", &e)),
        };
        match size {
            0 => return refuse_log_alone(path),
            1..DATABASE_BYTES_MIN => {
                return Err(place.damaged("the file is too short for a database"));
            }
            _ => {}
        }
        let opened = File::options().read(true).write(true).open(path);
        opened.map_err(|e| place.io("open", &e))?;
        let conn = connect_to_look(path).map_err(|e| place.reading(e.into()))?;
        let identity = identify(&conn).map_err(|e| place.reading(e.into()))?;
        refuse_others(&identity, &place)?;
        check_values(&conn, &place)
    }
}

/// Rejects an empty file with a log. A store writes to its file before it has a log, so another program has emptied the
/// file.
fn refuse_log_alone(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(beside(path, "-wal")) {
        Ok(log) if log.len() > 0 => {
            Err(Place(path.to_path_buf())
                .damaged("the file is empty, but its write-ahead log is not"))
        }
        _ => Ok(()),
    }
}

/// Returns the path of a file that belongs to a store.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens a database read-only. Without a log it is opened as immutable, so that SQLite creates no log.
fn connect_to_look(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if beside(path, "-wal").exists() {
        return Connection::open_with_flags(path, flags);
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let escaped = path.display().to_string();
    let escaped = escaped
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let uri = format!("file:{escaped}?immutable=1");
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
}

/// Returns the absolute path of the file and creates its directory. SQLite would treat a relative path with `file:` as a
/// URI.
fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    let place = Place(path.to_path_buf());
    let name = path.file_name().ok_or_else(|| StoreError::Write {
        why: format!("{} is not the name of a file", path.display()),
    })?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(|e| place.io("create the directory of", &e))?;
    let directory = canonicalize(directory).map_err(|e| place.io("find the directory of", &e))?;
    Ok(directory.join(name))
}

/// Locked file. The kernel releases the lock when this process ends in any way. Before that, it is released explicitly,
/// because a child process that is being started would keep it slightly longer.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Locks the store.
fn lock(path: &Path) -> Result<Lock, StoreError> {
    let name = beside(path, ".lock");
    let place = Place(name.clone());
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&name)
        .map_err(|e| place.io("open", &e))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(e)) => Err(place.io("lock", &e)),
    }
}

/// Content at the path.
#[derive(PartialEq, Eq)]
enum PathContent {
    /// No file, or an empty file.
    Empty,
    /// A few bytes. SQLite would treat them as an empty file.
    Short,
    /// A possible database.
    Something,
}

/// Creates an empty file if there is none: SQLite would create it with default permissions.
fn find_or_make(path: &Path) -> Result<PathContent, StoreError> {
    let place = Place(path.to_path_buf());
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            let synced = File::open(directory).and_then(|d| d.sync_all());
            synced.map_err(|e| place.io("make", &e))?;
            Ok(PathContent::Empty)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let metadata = std::fs::metadata(path).map_err(|e| place.io("look at", &e))?;
            Ok(match metadata.len() {
                0 => PathContent::Empty,
                1..DATABASE_BYTES_MIN => PathContent::Short,
                _ => PathContent::Something,
            })
        }
        Err(e) => Err(place.io("make", &e)),
    }
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // This setting takes effect only while the file is empty.
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(conn)
}

/// Enables a sync for each commit before it returns.
fn set_durability(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_MAX, |_| Ok(()))
}

/// Identity that a file states.
#[derive(PartialEq, Eq)]
struct Identity {
    application: i64,
    layout: i64,
    tables: i64,
}

const EMPTY: Identity = Identity {
    application: 0,
    layout: 0,
    tables: 0,
};

fn identify(conn: &Connection) -> Result<Identity, rusqlite::Error> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(Identity {
        application: number("PRAGMA application_id")?,
        layout: number("PRAGMA user_version")?,
        tables: number("SELECT count(*) FROM sqlite_schema")?,
    })
}

fn refuse_others(identity: &Identity, place: &Place) -> Result<(), StoreError> {
    if *identity == EMPTY {
        return Ok(());
    }
    if identity.application != APPLICATION {
        return Err(StoreError::Read {
            why: format!("{} is a database of another program", place.0.display()),
        });
    }
    if identity.layout != LAYOUT {
        return Err(StoreError::Layout {
            found: identity.layout,
            known: LAYOUT,
        });
    }
    Ok(())
}

/// Checks the named values, which a controller needs at its start. All other data is large and is checked when it is read.
fn check_values(conn: &Connection, place: &Place) -> Result<(), StoreError> {
    let checked: Result<String, _> =
        conn.query_row("PRAGMA quick_check('named')", [], |row| row.get(0));
    match checked.map_err(|e| place.reading(e.into()))?.as_str() {
        "ok" => Ok(()),
        problem => Err(place.damaged(problem)),
    }
}

fn create(conn: &mut Connection) -> Result<(), rusqlite::Error> {
    let txn = conn.transaction()?;
    txn.execute_batch(TABLES)?;
    txn.pragma_update(None, "application_id", APPLICATION)?;
    txn.pragma_update(None, "user_version", LAYOUT)?;
    txn.commit()
}
