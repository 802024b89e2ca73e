//! Full disk as seen by the database: it gets no more pages.

use manager::store::contract::{decision, window};
use manager::store::{Change, HistoryQuery, Store, StoreError};

use crate::{Retention, SqliteStore};

fn set_pages_max(store: &SqliteStore, pages: i64) {
    store
        .conn
        .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
        .unwrap();
}

/// Commit whose first changes fit and whose last one does not.
fn too_large() -> Vec<Change> {
    let mut large = decision("alpha", 1, 20);
    let noise = (0..200_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    large.facts = noise.collect();
    vec![
        Change::Put {
            key: "a".to_string(),
            value: "2".to_string(),
        },
        Change::Window(window("beta", 20, &["new", "newer"])),
        Change::Window(window("alpha", 20, &["new", "old"])),
        Change::Decision(Box::new(large)),
    ]
}

#[test]
fn commit_without_space_is_rolled_back_and_the_next_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let mut store = SqliteStore::open(&path, Retention::default()).unwrap();
    let first = [
        Change::Put {
            key: "a".to_string(),
            value: "1".to_string(),
        },
        Change::Window(window("alpha", 10, &["old"])),
    ];
    store.commit(&first).unwrap();
    let pages: i64 = store
        .conn
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    set_pages_max(&store, pages + 10);
    for _ in 0..2 {
        let refused = store.commit(&too_large()).unwrap_err();
        assert!(
            matches!(&refused, StoreError::Write { why } if why.contains("full")),
            "{refused}"
        );
        assert_eq!(
            store.values().unwrap(),
            [("a".to_string(), "1".to_string())]
        );
        assert_eq!(store.windows("alpha", 0, 100).unwrap().len(), 1);
        assert_eq!(store.windows("beta", 0, 100).unwrap(), []);
        assert_eq!(store.decision("alpha", None).unwrap(), None);
    }
    // Changes that fit are still accepted, including names of the failed commit.
    let small = window("alpha", 30, &["newer", "new"]);
    store.commit(&[Change::Window(small.clone())]).unwrap();
    set_pages_max(&store, i64::from(u32::MAX) - 1);
    store.commit(&too_large()).unwrap();
    drop(store);

    let mut store = SqliteStore::open(&path, Retention::default()).unwrap();
    assert_eq!(store.windows("alpha", 30, 30).unwrap(), [small]);
    assert_eq!(store.windows("beta", 0, 100).unwrap().len(), 1);
    let query = HistoryQuery {
        host: "alpha".to_string(),
        volume: "new".to_string(),
        from_ns: 0,
        to_ns: 100,
    };
    let points = store.history(&query).unwrap();
    let ends: Vec<u64> = points.iter().map(|p| p.at_ns).collect();
    assert_eq!(ends, [20, 30]);
    assert!(store.decision("alpha", None).unwrap().is_some());
}

#[test]
fn commits_are_synced() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("s"), Retention::default()).unwrap();
    let pragma = |name: &str| -> String {
        let sql = format!("SELECT {name} FROM pragma_{name}");
        let value: rusqlite::types::Value = store.conn.query_row(&sql, [], |r| r.get(0)).unwrap();
        match value {
            rusqlite::types::Value::Integer(n) => n.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(pragma("journal_mode"), "wal");
    assert_eq!(pragma("synchronous"), "2", "FULL");
    assert_eq!(pragma("page_size"), "16384");
}
