//! Store at a path. It is opened on first use, and again after it could not be opened or was found damaged.

use std::path::{Path, PathBuf};

use manager::store::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, TidyResult,
};
use manager::view::{EventView, JobView, OutcomeView};

use crate::{Retention, SqliteStore};

/// Store in a file that may temporarily be missing, damaged or on a full disk.
pub struct StoreFile {
    path: PathBuf,
    retention: Retention,
    open: Option<SqliteStore>,
}

impl StoreFile {
    /// Creates the store without any access to the file.
    pub fn new(path: &Path, retention: Retention) -> Self {
        Self {
            path: path.into(),
            retention,
            open: None,
        }
    }

    /// Opens the store if it is not open.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open(&mut self) -> Result<&mut SqliteStore, StoreError> {
        let store = match self.open.take() {
            Some(store) => store,
            None => SqliteStore::open(&self.path, self.retention)?,
        };
        Ok(self.open.insert(store))
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut SqliteStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = question(self.open()?);
        if matches!(answer, Err(StoreError::Read { .. })) {
            // The next call opens the file again, which may be a restored copy.
            self.open = None;
        }
        answer
    }
}

impl Store for StoreFile {
    fn check(&mut self) -> Result<(), StoreError> {
        self.ask(|s| s.check())
    }

    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.ask(|s| {
            s.check()?;
            s.values()
        })
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.ask(|s| s.commit(changes))
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError> {
        self.ask(|s| s.history(query))
    }

    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        self.ask(|s| s.windows(host, from_ns, to_ns))
    }

    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError> {
        self.ask(|s| s.decision(host, generation))
    }

    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError> {
        self.ask(|s| s.events(after, limit))
    }

    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError> {
        self.ask(|s| s.jobs(limit))
    }

    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError> {
        self.ask(|s| s.outcomes(limit))
    }

    fn tidy(&mut self, now_ns: u64) -> Result<TidyResult, StoreError> {
        self.ask(|s| s.tidy(now_ns))
    }
}
