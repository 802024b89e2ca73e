//! Contract of all stores, checked with the file; also with a store that is closed in between.

use manager::store::contract::{check, window};
use manager::store::{
    Change, DeviceSummary, FlowSummary, HistoryPoint, HistoryQuery, Store, StoreError,
    StoredDecision, StoredWindow, TidyResult, VolumeSummary,
};
use manager::view::{EventView, JobView, OutcomeView};
use proptest::prelude::*;
use store::{Retention, SqliteStore};
use tempfile::TempDir;

/// Store and the directory that contains it.
struct InDirectory {
    store: Option<SqliteStore>,
    dir: TempDir,
}

impl InDirectory {
    fn new() -> Self {
        let mut new = Self {
            store: None,
            dir: tempfile::tempdir().unwrap(),
        };
        new.reopen();
        new
    }

    fn reopen(&mut self) -> &mut SqliteStore {
        self.store = None;
        let path = self.dir.path().join("new/directory/store.db");
        let opened = SqliteStore::open(&path, Retention::default()).unwrap();
        self.store.insert(opened)
    }

    fn open(&mut self) -> &mut SqliteStore {
        self.store.as_mut().unwrap()
    }
}

/// Store that opens its file before each call, so all data must be in the file.
struct ReopeningStore(InDirectory);

impl Store for ReopeningStore {
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.0.reopen().values()
    }
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.0.open().commit(changes)
    }
    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError> {
        self.0.reopen().history(query)
    }
    fn windows(&mut self, h: &str, from: u64, to: u64) -> Result<Vec<StoredWindow>, StoreError> {
        self.0.reopen().windows(h, from, to)
    }
    fn decision(&mut self, h: &str, g: Option<u64>) -> Result<Option<StoredDecision>, StoreError> {
        self.0.reopen().decision(h, g)
    }
    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError> {
        self.0.reopen().events(after, limit)
    }
    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError> {
        self.0.reopen().jobs(limit)
    }
    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError> {
        self.0.reopen().outcomes(limit)
    }
    fn tidy(&mut self, now_ns: u64) -> Result<TidyResult, StoreError> {
        self.0.reopen().tidy(now_ns)
    }
}

#[test]
fn sqlite_store_fulfils_the_contract() {
    check(|| ReopeningStore(InDirectory::new()));
}

#[test]
fn times_out_of_range_are_refused_completely() {
    let mut place = InDirectory::new();
    let store = place.open();
    let fits = window("alpha", 10, &["a"]);
    let late = window("alpha", 1 << 63, &["b"]);
    let changes = [Change::Window(fits), Change::Window(late)];
    let refused = store.commit(&changes).unwrap_err();
    assert!(matches!(refused, StoreError::Write { .. }), "{refused}");
    assert_eq!(store.windows("alpha", 0, u64::MAX).unwrap(), []);
}

fn flow() -> impl Strategy<Value = FlowSummary> {
    any::<[u64; 7]>().prop_map(|n| FlowSummary {
        ios: n[0],
        bytes: n[1],
        mean_ns: n[2],
        p50_ns: n[3],
        p95_ns: n[4],
        p99_ns: n[5],
        p999_ns: n[6],
    })
}

/// Volumes with few different names, so that windows share names, and a volume may occur twice.
fn volume() -> impl Strategy<Value = VolumeSummary> {
    let names = (0..200u32, 0..5u32);
    (names, flow(), flow(), any::<[u64; 3]>()).prop_map(|(names, reads, writes, n)| VolumeSummary {
        volume: format!("v{}", names.0),
        device: format!("d{}", names.1),
        reads,
        writes,
        p99_ns: n[0],
        slo_ns: n[1],
        outstanding_milli: n[2],
    })
}

fn device() -> impl Strategy<Value = DeviceSummary> {
    ("[a-zé]{0,3}", any::<[u64; 6]>()).prop_map(|(device, n)| DeviceSummary {
        device,
        used_bytes: n[0],
        reads: n[1],
        writes: n[2],
        read_bytes: n[3],
        write_bytes: n[4],
        utilization_milli: n[5],
    })
}

prop_compose! {
    fn any_window()(
        host in "[ab]",
        at_ns in 0..1u64 << 63,
        window_ns: u64,
        volumes in proptest::collection::vec(volume(), 0..40),
        devices in proptest::collection::vec(device(), 0..4),
    ) -> StoredWindow {
        StoredWindow { host, at_ns, window_ns, volumes, devices }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn windows_round_trip(windows in proptest::collection::vec(any_window(), 1..6)) {
        let mut place = InDirectory::new();
        for window in &windows {
            place.open().commit(&[Change::Window(window.clone())]).unwrap();
        }
        let store = place.reopen();
        for window in &windows {
            let found = store.windows(&window.host, window.at_ns, window.at_ns).unwrap();
            prop_assert_eq!(found, std::slice::from_ref(window));
        }
        let window = &windows[0];
        for volume in &window.volumes {
            let query = HistoryQuery {
                host: window.host.clone(),
                volume: volume.volume.clone(),
                from_ns: window.at_ns,
                to_ns: window.at_ns,
            };
            let found = store.history(&query).unwrap();
            prop_assert!(found.iter().any(|p| p.summary == *volume && p.window_ns == window.window_ns));
        }
    }
}
