//! Workloads and resources that are added and removed at run time, as on a live host.
//!
//! A workload keeps its number until it leaves. Then the next new workload may get the number. Stored decisions have the
//! numbers that were valid at their time, so a caller that keeps them longer must keep the names too.

use std::collections::VecDeque;

use units::{Bytes, Nanos};

use crate::detect::Detector;
use crate::host::{APPLIANCE_CPUS, Host};
use crate::load::Resource;
use crate::measured::KnownCost;
use crate::placed::Rest;
use crate::responder::{HISTORY, Responder, Turn};
use crate::sample::{Promise, ResourceId, WorkloadId};
use crate::site::Workload;

impl Responder {
    /// Adds a workload without any history and returns its number.
    ///
    /// # Panics
    /// With more than 65,535 workloads at once.
    pub fn join(&mut self, workload: Workload) -> WorkloadId {
        let detector = Detector::new(self.config.detect, workload.objective);
        let Some(number) = self.left.pop_first() else {
            let number = u16::try_from(self.site.workloads.len()).expect("numbers for all");
            self.site.workloads.push(workload);
            self.detectors.push(detector);
            self.history.push(VecDeque::with_capacity(HISTORY));
            let resources = self.site.backend.resources.len();
            self.costs.push(vec![KnownCost::default(); resources]);
            self.appliances.push(None);
            self.rests.push(Rest::default());
            self.turns.push(Turn::default());
            return WorkloadId(number);
        };
        let w = usize::from(number);
        self.site.workloads[w] = workload;
        self.detectors[w] = detector;
        WorkloadId(number)
    }

    /// Removes a workload with its history and the remedies in force on it, without orders.
    pub fn forget(&mut self, workload: WorkloadId) {
        let w = workload.index();
        if !self.left.insert(workload.0) {
            return;
        }
        let gone = &mut self.site.workloads[w];
        gone.objective = Promise::default();
        gone.resources.clear();
        gone.pool = 0;
        self.detectors[w] = Detector::new(self.config.detect, Promise::default());
        self.history[w].clear();
        self.costs[w].fill(KnownCost::default());
        self.appliances[w] = None;
        self.rests[w] = Rest::default();
        self.moving.remove(&workload);
        self.turns[w] = Turn::default();
        if let Some(ahead) = &mut self.ahead {
            ahead.forget(w);
        }
        self.in_force.retain(|a| !a.is_on(workload));
        self.cooldowns.retain(|(_, of), _| *of != workload);
        self.foreseen.retain(|f| f.workload != workload);
        self.given.remove(&workload);
        self.rests_until.retain(|(_, of), _| *of != workload);
    }

    /// Returns true if a workload has this number.
    pub fn is_here(&self, workload: WorkloadId) -> bool {
        workload.index() < self.site.workloads.len() && !self.left.contains(&workload.0)
    }

    /// Sets the objective of a workload. A changed objective restarts detection with the next sample.
    pub fn promise(&mut self, workload: WorkloadId, objective: Promise) {
        let w = workload.index();
        if self.site.workloads[w].objective != objective {
            self.site.workloads[w].objective = objective;
            self.detectors[w] = Detector::new(self.config.detect, objective);
        }
    }

    /// Sets the sizes of the backend's memory pools.
    ///
    /// # Panics
    /// Without any pool.
    pub fn memory(&mut self, parts: Vec<Bytes>) {
        for workload in &mut self.site.workloads {
            workload.pool = workload.pool.min(parts.len() - 1);
        }
        self.site.backend.memory = parts;
    }

    /// Sets the memory pool of a workload and the share of it that the workload has without a remedy.
    ///
    /// # Panics
    /// If there is no such pool.
    pub fn kept_in(&mut self, workload: WorkloadId, pool: usize, given: Option<Bytes>) {
        assert!(pool < self.site.backend.memory.len(), "no part {pool}");
        self.site.workloads[workload.index()].pool = pool;
        match given {
            Some(given) => self.given.insert(workload, given),
            None => self.given.remove(&workload),
        };
    }

    /// Sets the cache sizes to evaluate, in ascending order, and the time from an appliance's order until it serves.
    pub fn cache_sizes(&mut self, sizes: Vec<Bytes>, boot: Nanos) {
        self.config.sizing.sizes = sizes;
        self.config.boot = boot;
    }

    /// Sets the servers for appliances, with their total capacity. The use of this site's appliances is subtracted.
    pub fn servers(&mut self, servers: Vec<Host>) {
        self.site.hosts = servers;
        for appliance in self.appliances.iter().flatten() {
            let mut hosts = self.site.hosts.iter_mut();
            if let Some(host) = hosts.find(|h| h.id == appliance.host) {
                host.cpus_free = host.cpus_free.saturating_sub(APPLIANCE_CPUS);
                host.memory_free = host.memory_free.saturating_sub(appliance.memory);
            }
        }
    }

    /// Adds a resource without any measurements and returns its number.
    ///
    /// # Panics
    /// With more than 65,535 resources.
    pub fn add_resource(&mut self, resource: Resource) -> ResourceId {
        let number = u16::try_from(self.site.backend.resources.len()).expect("numbers for all");
        self.site.backend.resources.push(resource);
        for costs in &mut self.costs {
            costs.push(KnownCost::default());
        }
        ResourceId(number)
    }
}
