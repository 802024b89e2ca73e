//! Workloads and resources that come and go while a responder is at work, as on a live host.
//!
//! A workload keeps its number until it leaves; then the next one that comes may have it. Decisions that were made before name workloads by the
//! numbers of then: who keeps them for longer keeps the names.

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
    /// A workload is there of which nothing is known yet; its number.
    ///
    /// # Panics
    /// With more than 65,535 at once.
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

    /// A workload is gone: so is all that is known of it and in force on it, without an order.
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

    /// Whether there is a workload of that number.
    pub fn is_here(&self, workload: WorkloadId) -> bool {
        workload.index() < self.site.workloads.len() && !self.left.contains(&workload.0)
    }

    /// What a workload is promised from now on. Another promise than before is judged by the samples from here on.
    pub fn promise(&mut self, workload: WorkloadId, objective: Promise) {
        let w = workload.index();
        if self.site.workloads[w].objective != objective {
            self.site.workloads[w].objective = objective;
            self.detectors[w] = Detector::new(self.config.detect, objective);
        }
    }

    /// The parts that the backend's memory has from now on.
    ///
    /// # Panics
    /// Without any.
    pub fn memory(&mut self, parts: Vec<Bytes>) {
        for workload in &mut self.site.workloads {
            workload.pool = workload.pool.min(parts.len() - 1);
        }
        self.site.backend.memory = parts;
    }

    /// Which part of the memory a workload's data is kept in, and what of that is its own, whatever is answered.
    ///
    /// # Panics
    /// Where there is no such part.
    pub fn kept_in(&mut self, workload: WorkloadId, pool: usize, given: Option<Bytes>) {
        assert!(pool < self.site.backend.memory.len(), "no part {pool}");
        self.site.workloads[workload.index()].pool = pool;
        match given {
            Some(given) => self.given.insert(workload, given),
            None => self.given.remove(&workload),
        };
    }

    /// Sizes of cache that are looked at from now on, growing, and how long an appliance takes until it serves.
    pub fn cache_sizes(&mut self, sizes: Vec<Bytes>, boot: Nanos) {
        self.config.sizing.sizes = sizes;
        self.config.boot = boot;
    }

    /// The servers that appliances can have from now on, with what they have for them in all. What appliances of this site have of them is taken off.
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

    /// A resource that was not there before; its number. Nothing is known of it yet.
    ///
    /// # Panics
    /// With more than 65,535.
    pub fn add_resource(&mut self, resource: Resource) -> ResourceId {
        let number = u16::try_from(self.site.backend.resources.len()).expect("numbers for all");
        self.site.backend.resources.push(resource);
        for costs in &mut self.costs {
            costs.push(KnownCost::default());
        }
        ResourceId(number)
    }
}
