//! Store in memory, for tests and simulations: it keeps everything until the process ends.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, TidyResult,
};
use crate::view::{EventView, JobView, OutcomeView};

/// Injected failure of a [`MemoryStore`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// No failure.
    #[default]
    None,
    /// Commits and tidying fail, as on a full disk.
    Writes,
    /// Reads fail, as on a damaged file.
    Reads,
}

/// Store in memory, without retention. A clone is a copy, as a controller that starts at this
/// moment would find it.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    values: BTreeMap<String, String>,
    windows: BTreeMap<(String, u64), StoredWindow>,
    decisions: BTreeMap<(String, u64), StoredDecision>,
    events: BTreeMap<u64, EventView>,
    jobs: BTreeMap<(String, u32), JobView>,
    outcomes: BTreeMap<(String, u32), OutcomeView>,
    fault: Fault,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the operations that fail from now on.
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault = fault;
    }

    fn writable(&self) -> Result<(), StoreError> {
        match self.fault {
            Fault::Writes => Err(StoreError::Write {
                why: "injected failure".to_string(),
            }),
            Fault::None | Fault::Reads => Ok(()),
        }
    }

    fn readable(&self) -> Result<(), StoreError> {
        match self.fault {
            Fault::Reads => Err(StoreError::Read {
                why: "injected failure".to_string(),
            }),
            Fault::None | Fault::Writes => Ok(()),
        }
    }

    fn make(&mut self, change: Change) {
        match change {
            Change::Put { key, value } => {
                self.values.insert(key, value);
            }
            Change::Remove { key } => {
                self.values.remove(&key);
            }
            Change::Window(w) => {
                self.windows.insert((w.host.clone(), w.at_ns), w);
            }
            Change::Decision(d) => {
                self.decisions.insert((d.host.clone(), d.generation), *d);
            }
            Change::Event(e) => {
                self.events.insert(e.id, e);
            }
            Change::Job(j) => {
                self.jobs.insert((j.host.clone(), j.job), *j);
            }
            Change::Outcome(o) => {
                self.outcomes.insert((o.host.clone(), o.job), o);
            }
        }
    }

    /// Returns windows of a host that end between two times, both inclusive, oldest first.
    fn between(
        &self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = &StoredWindow> + use<'_> {
        // A range whose start exceeds its end would panic.
        let ends =
            (from_ns <= to_ns).then(|| (host.to_string(), from_ns)..=(host.to_string(), to_ns));
        ends.into_iter()
            .flat_map(|ends| self.windows.range(ends))
            .map(|(_, window)| window)
    }
}

impl Store for MemoryStore {
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        self.readable()?;
        Ok(self.values.clone().into_iter().collect())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.writable()?;
        for change in changes {
            self.make(change.clone());
        }
        Ok(())
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError> {
        self.readable()?;
        let points = self
            .between(&query.host, query.from_ns, query.to_ns)
            .flat_map(|window| {
                let of_volume = window.volumes.iter().filter(|v| v.volume == query.volume);
                of_volume.map(|summary| HistoryPoint {
                    at_ns: window.at_ns,
                    window_ns: window.window_ns,
                    summary: summary.clone(),
                })
            });
        Ok(points.collect())
    }

    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        self.readable()?;
        Ok(self.between(host, from_ns, to_ns).cloned().collect())
    }

    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError> {
        self.readable()?;
        let (first, last) = generation.map_or((0, u64::MAX), |g| (g, g));
        let numbers = (host.to_string(), first)..=(host.to_string(), last);
        let newest = self.decisions.range(numbers).next_back();
        Ok(newest.map(|(_, decision)| decision.clone()))
    }

    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError> {
        self.readable()?;
        let events = self.events.values();
        Ok(match after {
            Some(after) => events
                .filter(|e| e.id > after)
                .take(limit)
                .cloned()
                .collect(),
            None => {
                let skipped = events.len().saturating_sub(limit);
                events.skip(skipped).cloned().collect()
            }
        })
    }

    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError> {
        self.readable()?;
        let mut jobs: Vec<&JobView> = self.jobs.values().collect();
        jobs.sort_by_key(|j| Reverse((j.planned_ns, j.job, &j.host)));
        Ok(jobs.into_iter().take(limit).cloned().collect())
    }

    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError> {
        self.readable()?;
        let mut outcomes: Vec<&OutcomeView> = self.outcomes.values().collect();
        outcomes.sort_by_key(|o| Reverse((o.ended_ns, o.job, &o.host)));
        Ok(outcomes.into_iter().take(limit).cloned().collect())
    }

    fn tidy(&mut self, _now_ns: u64) -> Result<TidyResult, StoreError> {
        self.writable()?;
        Ok(TidyResult::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_store_fulfils_the_contract() {
        super::super::contract::check(MemoryStore::new);
    }

    #[test]
    fn injected_fault_stops_only_the_named_operation_without_effect() {
        let put = [Change::Put {
            key: "a".to_string(),
            value: "1".to_string(),
        }];
        let mut store = MemoryStore::new();
        store.set_fault(Fault::Writes);
        assert!(matches!(store.commit(&put), Err(StoreError::Write { .. })));
        assert!(matches!(store.tidy(0), Err(StoreError::Write { .. })));
        assert_eq!(store.values(), Ok(Vec::new()));
        store.set_fault(Fault::Reads);
        store.commit(&put).unwrap();
        assert!(matches!(store.values(), Err(StoreError::Read { .. })));
        store.set_fault(Fault::None);
        assert_eq!(store.values().unwrap().len(), 1);
    }

    #[test]
    fn cloned_store_is_independent() {
        let mut store = MemoryStore::new();
        let before = store.clone();
        store
            .commit(&[Change::Put {
                key: "a".to_string(),
                value: "1".to_string(),
            }])
            .unwrap();
        assert_eq!(before.clone().values(), Ok(Vec::new()));
    }
}
