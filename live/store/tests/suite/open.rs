//! Opening of a store: files of other programs, locks, and damage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use manager::store::contract::window;
use manager::store::{Change, HistoryQuery, Store, StoreError};
use rusqlite::Connection;
use store::{LAYOUT, Retention, SqliteStore};

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, Retention::default())
}

fn refused(path: &Path) -> StoreError {
    open(path)
        .err()
        .unwrap_or_else(|| panic!("{} was opened", path.display()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn store_files_are_private_to_their_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/store.db");
    let mut store = open(&path).unwrap();
    let change = Change::Window(window("alpha", 10, &["a"]));
    store.commit(&[change]).unwrap();
    let names = ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"];
    for name in names {
        assert_eq!(mode(&dir.path().join("a/b").join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&dir.path().join("a/b")), 0o700);
}

#[test]
fn store_is_locked_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let mut store = open(&path).unwrap();
    for _ in 0..2 {
        let error = refused(&path);
        assert!(matches!(&error, StoreError::InUse { path } if path.ends_with("store.db")));
    }
    // The failed attempt has not released the lock.
    let put = Change::Put {
        key: "a".to_string(),
        value: "1".to_string(),
    };
    store.commit(&[put]).unwrap();
    drop(store);
    assert_eq!(open(&path).unwrap().values().unwrap().len(), 1);
}

#[test]
fn newer_layout_is_refused_and_not_modified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    drop(open(&path).unwrap());
    let newer = Connection::open(&path).unwrap();
    newer
        .pragma_update(None, "user_version", LAYOUT + 1)
        .unwrap();
    drop(newer);
    let before = fs::read(&path).unwrap();
    let error = refused(&path);
    let wanted = StoreError::Layout {
        found: LAYOUT + 1,
        known: LAYOUT,
    };
    assert_eq!(error, wanted);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn older_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = filled(dir.path());
    for older in 0..LAYOUT {
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", older).unwrap();
        drop(conn);
        let error = refused(&path);
        assert!(matches!(error, StoreError::Layout { found, .. } if found == older));
    }
}

#[test]
fn database_of_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (n)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    let error = refused(&path).to_string();
    assert!(error.contains("another program"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn empty_file_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    fs::write(&path, b"").unwrap();
    assert_eq!(open(&path).unwrap().values().unwrap(), []);
}

/// Returns the path of a closed store with 200 windows of 100 volumes.
fn filled(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("store.db");
    let mut store = open(&path).unwrap();
    let volumes: Vec<String> = (0..100).map(|n| format!("v{n}")).collect();
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let windows = (1..=200).map(|at_ns| Change::Window(window("alpha", at_ns, &volumes)));
    store.commit(&windows.collect::<Vec<_>>()).unwrap();
    path
}

fn says_what_to_do(error: &StoreError) {
    let text = error.to_string();
    assert!(matches!(error, StoreError::Read { .. }), "{text}");
    for part in [
        "is damaged",
        "move it away",
        "lacks the history",
        "store.db",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn non_database_file_is_reported_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    for bytes in [
        b"x".to_vec(),
        b"not a database".to_vec(),
        vec![0xa5; 100_000],
    ] {
        fs::write(&path, &bytes).unwrap();
        says_what_to_do(&refused(&path));
    }
    // The file is not changed.
    assert_eq!(fs::read(&path).unwrap(), vec![0xa5; 100_000]);
}

#[test]
fn truncated_file_is_reported_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = filled(dir.path());
    let bytes = fs::read(&path).unwrap();
    for length in [bytes.len() / 2, 16384, 1000] {
        fs::write(&path, &bytes[..length]).unwrap();
        says_what_to_do(&refused(&path));
    }
}

#[test]
fn damaged_window_is_detected_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = filled(dir.path());
    let conn = Connection::open(&path).unwrap();
    // One bit in the middle of a part.
    let id: i64 = conn
        .query_row("SELECT max(id) FROM raw_parts", [], |row| row.get(0))
        .unwrap();
    let part: Vec<u8> = conn
        .query_row("SELECT volumes FROM raw_parts WHERE id = ?1", [id], |row| {
            row.get(0)
        })
        .unwrap();
    drop(conn);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(part.len()).position(|w| w == part).unwrap();
    bytes[at + part.len() / 2] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let mut store = open(&path).unwrap();
    says_what_to_do(&store.windows("alpha", 200, 200).unwrap_err());
    assert_eq!(store.windows("alpha", 1, 199).unwrap().len(), 199);
    let mut history = |volume: &str| {
        store.history(&HistoryQuery {
            host: "alpha".to_string(),
            volume: volume.to_string(),
            from_ns: 0,
            to_ns: 1000,
        })
    };
    says_what_to_do(&history("v99").unwrap_err());
    // Another part of the same window.
    assert_eq!(history("v0").unwrap().len(), 200);
}

#[test]
fn zeroed_page_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = filled(dir.path());
    let conn = Connection::open(&path).unwrap();
    let page: usize = conn
        .query_row(
            "SELECT max(pageno) FROM dbstat WHERE name = 'raw_parts' AND pagetype = 'leaf'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(conn);
    let mut bytes = fs::read(&path).unwrap();
    bytes[(page - 1) * 16384..page * 16384].fill(0);
    fs::write(&path, &bytes).unwrap();
    let mut store = open(&path).unwrap();
    says_what_to_do(&store.windows("alpha", 0, 1000).unwrap_err());
}

#[test]
fn directory_that_cannot_be_created_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = refused(&file.join("store.db")).to_string();
    assert!(error.contains("cannot create the directory of"), "{error}");
    assert!(error.contains("file/store.db"), "{error}");
}

#[test]
fn file_deleted_or_replaced_while_open_refuses_commits() {
    for (name, how) in [
        ("store.db", "deleted or moved"),
        ("store.db-wal", "deleted or moved"),
        ("store.db.lock", "replaced"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(&dir.path().join("store.db")).unwrap();
        let put = |value: &str| Change::Put {
            key: "a".into(),
            value: value.into(),
        };
        store.commit(&[put("1")]).unwrap();
        store.check().unwrap();
        fs::rename(dir.path().join(name), dir.path().join("away")).unwrap();
        if how == "replaced" {
            fs::write(dir.path().join(name), "").unwrap();
        }
        for seen in [store.check(), store.commit(&[put("2")])] {
            let as_expected =
                matches!(&seen, Err(StoreError::Replaced { how: h, .. }) if *h == how);
            assert!(as_expected, "{name}: {seen:?}");
        }
        fs::rename(dir.path().join("away"), dir.path().join(name)).unwrap();
        store.check().unwrap();
    }
}

#[test]
fn file_overwritten_while_open_refuses_commits_and_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let put = |value: &str| Change::Put {
        key: "a".into(),
        value: value.into(),
    };
    let mut store = open(&path).unwrap();
    store.commit(&[put("1")]).unwrap();
    let old = fs::read(&path).unwrap();
    // Its own writes, a reader and an idle period do not count as changes by another program.
    for value in ["2", "3"] {
        store.commit(&[put(value)]).unwrap();
        store.check().unwrap();
        assert!(!fs::read(&path).unwrap().is_empty());
    }
    for bytes in [&old[..], b""] {
        fs::write(&path, bytes).unwrap();
        for seen in [store.check(), store.commit(&[put("4")])] {
            let why = seen.unwrap_err().to_string();
            assert!(why.contains("overwritten by another program"), "{why}");
        }
    }
    // The state after a kill: the log has the commits, and no new database may be created.
    let log = dir.path().join("store.db-wal");
    let kept = fs::read(&log).unwrap();
    drop(store);
    fs::write(&path, b"").unwrap();
    fs::write(&log, kept).unwrap();
    for why in [
        SqliteStore::examine(&path).unwrap_err().to_string(),
        refused(&path).to_string(),
    ] {
        assert!(
            why.contains("the file is empty, but its write-ahead log"),
            "{why}"
        );
    }
}

#[test]
fn dangling_link_and_directory_as_lock_are_faults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    std::os::unix::fs::symlink(dir.path().join("nothing"), &path).unwrap();
    assert!(SqliteStore::examine(&path).is_err());
    fs::remove_file(&path).unwrap();
    SqliteStore::examine(&path).unwrap();
    fs::create_dir(dir.path().join("store.db.lock")).unwrap();
    let why = SqliteStore::examine(&path).unwrap_err().to_string();
    assert!(why.contains("store.db.lock"), "{why}");
}

#[test]
fn examination_refuses_the_same_files_as_open_without_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    SqliteStore::examine(&path).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let store = open(&path).unwrap();
    let in_use = SqliteStore::examine(&path);
    assert!(
        matches!(in_use, Err(StoreError::InUse { .. })),
        "{in_use:?}"
    );
    drop(store);
    SqliteStore::examine(&path).unwrap();
    let good = fs::read(&path).unwrap();
    let other_layout = |bytes: &mut Vec<u8>| bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    let damage: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes.truncate(100),
        |bytes| bytes[..16].fill(0x55),
        other_layout,
    ];
    for change in damage {
        let mut bytes = good.clone();
        change(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        let examined = SqliteStore::examine(&path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was changed");
        assert_eq!(examined, refused(&path));
    }
}
