//! Store of a simulated controller. It survives the controller, and logs commits.

use std::cell::RefCell;
use std::rc::Rc;

use manager::store::memory::{Fault, MemoryStore};
use manager::store::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, TidyResult,
};
use manager::view::{EventView, JobView, OutcomeView};

/// Store with shared content: clones are handles of one store. A killed controller leaves it in the last committed
/// state.
#[derive(Clone, Default)]
pub struct PersistentStore(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    store: MemoryStore,
    log: Vec<Change>,
}

impl PersistentStore {
    pub fn set_fault(&self, fault: Fault) {
        self.0.borrow_mut().store.set_fault(fault);
    }

    /// Returns the changes committed since the last call.
    pub fn take_log(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }
}

impl Store for PersistentStore {
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.0.borrow_mut().store.values()
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut inner = self.0.borrow_mut();
        // There are many windows, and the checks do not use them.
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

    fn tidy(&mut self, now_ns: u64) -> Result<TidyResult, StoreError> {
        self.0.borrow_mut().store.tidy(now_ns)
    }
}
