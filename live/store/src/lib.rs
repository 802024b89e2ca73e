//! Store of a controller in one SQLite file: state, history of volumes, decisions, events and jobs.
//!
//! ```text
//!  commit ──▶ one transaction, durable ──▶ raw windows, a week ──▶ windows of 5 minutes, 400 days ──▶ deleted
//!                                      └─▶ decisions with inputs, a week ──▶ without, 90 days ──▶ deleted
//!  tidy ────▶ one transaction with a bounded amount of roll-up and deletion
//! ```
//!
//! A window consists of a head (devices, order of the volumes) and parts with 64 names each, so that the history of one
//! volume can be read without that of all others. Parts are columns of varints, compressed by zstd. `docs/formats/store.md`
//! has the tables and the byte format.
//!
//! # Limits
//!
//! The store has no map of an array: the array knows the places of data (`array`). It has no clock: callers pass the time.
//! Only one process can open a store; another one gets [`StoreError::InUse`].

mod decisions;
mod failure;
mod file;
mod frames;
mod head;
mod identity;
mod names;
mod open;
mod part;
mod past;
mod retention;
mod roll;
mod schema;
mod tidy;
mod values;
mod varint;
mod windows;

#[cfg(test)]
mod full_disk;

use manager::store::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, TidyResult,
};
use manager::view::{EventView, JobView, OutcomeView};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use failure::{Failure, Place};
use frames::Frames;
use identity::Files;
use names::Names;

pub use file::StoreFile;
pub use retention::{ROLLED_WINDOW, Retention};
pub use schema::LAYOUT;

/// Open store in a file.
pub struct SqliteStore {
    conn: Connection,
    names: Names,
    frames: Frames,
    retention: Retention,
    place: Place,
    files: Files,
    /// Lock of the store. It is the last field, so it is released after the database is closed.
    _lock: open::Lock,
}

/// Resources for work in a transaction.
struct Work<'a> {
    txn: &'a Transaction<'a>,
    names: &'a mut Names,
    frames: &'a mut Frames,
}

impl SqliteStore {
    /// Runs `work` in a transaction: it is complete and durable when this returns, or has no effect.
    fn write<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&mut Work, &Retention) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        self.files.check()?;
        let done = Self::in_transaction(
            &mut self.conn,
            behavior,
            &mut self.names,
            &mut self.frames,
            |w| work(w, &self.retention),
        );
        self.files.note_own_writes();
        if done.is_err() {
            // New names of a failed transaction do not exist.
            self.names.forget_new();
        } else {
            self.names.keep_new();
        }
        done.map_err(|f| self.place.writing(f))
    }

    /// Runs a query.
    fn read<T>(
        &mut self,
        question: impl FnOnce(&mut Work) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let deferred = TransactionBehavior::Deferred;
        let (conn, names, frames) = (&mut self.conn, &mut self.names, &mut self.frames);
        Self::in_transaction(conn, deferred, names, frames, question)
            .map_err(|f| self.place.reading(f))
    }

    fn in_transaction<T>(
        conn: &mut Connection,
        behavior: TransactionBehavior,
        names: &mut Names,
        frames: &mut Frames,
        work: impl FnOnce(&mut Work) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let txn = conn.transaction_with_behavior(behavior)?;
        let done = work(&mut Work {
            txn: &txn,
            names,
            frames,
        })?;
        txn.commit()?;
        Ok(done)
    }
}

impl Work<'_> {
    fn make(&mut self, change: &Change) -> Result<(), Failure> {
        match change {
            Change::Put { key, value } => values::put(self.txn, key, value),
            Change::Remove { key } => values::remove(self.txn, key),
            Change::Window(window) => self.put_window(window),
            Change::Decision(decision) => self.put_decision(decision),
            Change::Event(event) => past::put_event(self.txn, event),
            Change::Job(job) => past::put_job(self.txn, job),
            Change::Outcome(outcome) => past::put_outcome(self.txn, outcome),
        }
    }
}

impl Store for SqliteStore {
    fn check(&mut self) -> Result<(), StoreError> {
        self.files.check()
    }

    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|work| values::all(work.txn))
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.write(TransactionBehavior::Immediate, |work, _| {
            changes.iter().try_for_each(|change| work.make(change))
        })?;
        // A transaction in a file that was moved or replaced does not count as committed.
        self.files.check()
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError> {
        self.read(|work| work.history(query))
    }

    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        self.read(|work| work.raw_windows(host, from_ns, to_ns))
    }

    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError> {
        self.read(|work| work.decision(host, generation))
    }

    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError> {
        self.read(|work| past::events(work.txn, after, limit))
    }

    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError> {
        self.read(|work| past::jobs(work.txn, limit))
    }

    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError> {
        self.read(|work| past::outcomes(work.txn, limit))
    }

    fn tidy(&mut self, now_ns: u64) -> Result<TidyResult, StoreError> {
        // Most calls find nothing to do; they write and sync nothing.
        self.write(TransactionBehavior::Deferred, |work, retention| {
            work.tidy(retention, now_ns)
        })
    }
}
