//! The store of a simulated controller: it outlives it, and tells what was committed.

use std::cell::RefCell;
use std::rc::Rc;

use manager::store::memory::{Fault, MemoryStore};
use manager::store::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, Tidied,
};
use manager::view::{EventView, JobView, OutcomeView};

/// Clones are handles of one store: a controller that is killed leaves it as it was last committed.
#[derive(Clone, Default)]
pub struct Outliving(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    store: MemoryStore,
    log: Vec<Change>,
}

impl Outliving {
    pub fn set_fault(&self, fault: Fault) {
        self.0.borrow_mut().store.set_fault(fault);
    }

    /// What was committed since this was last asked.
    pub fn take_log(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }
}

impl Store for Outliving {
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.0.borrow_mut().store.values()
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut inner = self.0.borrow_mut();
        // Windows are many, and nobody looks at them here.
        let kept: Vec<Change> = changes
            .iter()
            .filter(|c| !matches!(c, Change::Window(_)))
            .cloned()
            .collect();
        inner.store.commit(&kept)?;
        inner.log.extend(kept);
        Ok(())
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError> {
        self.0.borrow_mut().store.history(query)
    }

    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        self.0.borrow_mut().store.windows(host, from_ns, to_ns)
    }

    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError> {
        self.0.borrow_mut().store.decision(host, generation)
    }

    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError> {
        self.0.borrow_mut().store.events(after, limit)
    }

    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError> {
        self.0.borrow_mut().store.jobs(limit)
    }

    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError> {
        self.0.borrow_mut().store.outcomes(limit)
    }

    fn tidy(&mut self, now_ns: u64) -> Result<Tidied, StoreError> {
        self.0.borrow_mut().store.tidy(now_ns)
    }
}
