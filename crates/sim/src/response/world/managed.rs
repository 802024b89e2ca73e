//! What the management side asks of the request path, and does to it.

use algo::objective::Overdue;
use model::Objective;
use units::Bytes;

use super::{Path, Source, WarmRun, World};
use crate::response::backend::Access;
use crate::response::monitor::Queue;
use crate::response::mover::Mover;

impl World {
    /// What stood before the storage of a workload since it was asked last, and what waits for longer than its objective.
    pub(in crate::response) fn queue(
        &mut self,
        w: usize,
        since: u64,
        objective: Option<Objective>,
    ) -> Queue {
        let waiting = self.waiting(w);
        let overdue = objective.map(|o| self.overdue(w, o)).unwrap_or_default();
        let (now, c) = (self.now, &mut self.clients[w]);
        if c.outstanding > 0 {
            c.occupied_ns += now - c.occupied_since;
            c.occupied_since = now;
        }
        if c.free.is_empty() {
            c.limited_ns += now - c.limited_since;
            c.limited_since = now;
        }
        let share = |ns: &mut u64| std::mem::take(ns) as f64 / (now - since).max(1) as f64;
        Queue {
            occupied: share(&mut c.occupied_ns),
            limited: share(&mut c.limited_ns),
            waiting,
            overdue,
        }
    }

    /// Requests of a workload that were issued and have waited for longer than their objective, as latencies are from issue on. While its path
    /// stands still, the next one is one that its guest has sent.
    fn overdue(&self, w: usize, objective: Objective) -> Overdue {
        let mut overdue = Overdue::default();
        let c = &self.clients[w];
        let first = w * self.slots_each;
        let all = first..first + c.free.len() + c.outstanding as usize;
        for slot in all.filter(|s| !c.free.contains(&(*s as u32))) {
            overdue.add(objective, self.now - self.slots[slot].issued);
        }
        if self.stands_still(w)
            && let Some(arrived) = self.next_arrival(w)
        {
            let sent = arrived.max(self.lost_at);
            overdue.add(objective, self.now.saturating_sub(sent));
        }
        overdue
    }

    /// Whether its appliance is lost: requests wait until they are sent elsewhere.
    pub(super) fn stands_still(&self, w: usize) -> bool {
        matches!(self.paths[w], Path::Node(n) if self.nodes[n].is_none())
    }

    /// Requests of a workload that have arrived and were not issued.
    pub(in crate::response) fn waiting(&self, w: usize) -> u64 {
        match &self.clients[w].source {
            Source::Load(arrivals) => arrivals.waiting(self.now),
            Source::Warm(_) => 0,
        }
    }

    /// When its next request arrives or arrived.
    pub(in crate::response) fn next_arrival(&self, w: usize) -> Option<u64> {
        match &self.clients[w].source {
            Source::Load(arrivals) => arrivals.peek().map(|r| r.at.0),
            Source::Warm(_) => None,
        }
    }

    /// Requests that a rate-limited generator left out.
    pub(in crate::response) fn left_out(&self, w: usize) -> u64 {
        match &self.clients[w].source {
            Source::Load(arrivals) => arrivals.left_out as u64,
            Source::Warm(_) => 0,
        }
    }

    /// Holds a workload to a rate; `None` lets it go.
    pub(in crate::response) fn throttle(&mut self, w: usize, rate_per_s: Option<f64>) {
        let gap = rate_per_s.map_or(0, |r| (1e9 / r.max(0.001)) as u64);
        self.clients[w].gap_ns = gap;
        if gap == 0 {
            self.clients[w].allowed = self.now;
        }
        self.issue(w);
    }

    /// Begins a warm-up, or ends one.
    pub(in crate::response) fn warm(&mut self, w: usize, run: Option<WarmRun>) {
        let client = self.workloads + w;
        self.clients[client].source = Source::Warm(run);
        self.clients[client].allowed = self.now;
        self.issue(client);
    }

    /// Gives a workload a part of the array's memory.
    pub(in crate::response) fn give_memory(&mut self, w: usize, size: Bytes) {
        self.backend.memory.give(w, size);
    }

    /// Takes it back.
    pub(in crate::response) fn take_memory_back(&mut self, w: usize) {
        self.backend.memory.take_back(w);
    }

    /// From now on each byte that it writes is `waf` on flash.
    pub(in crate::response) fn set_waf(&mut self, w: usize, waf: f64) {
        self.waf[w] = waf;
    }

    /// Begins to copy a workload's data to the other backend; [`World::copy_piece`] does it.
    pub(in crate::response) fn begin_copy(&mut self, w: usize) {
        self.movers[w] = Some(Mover::new(self.versions[w].len() as u32));
    }

    /// Whether its data is being copied.
    pub(in crate::response) fn is_copying(&self, w: usize) -> bool {
        self.movers[w].is_some()
    }

    /// Ends the piece of a copy that is under way and begins the next: when that is on the other side. `None` once all is
    /// copied; the other backend serves the workload then.
    pub(in crate::response) fn copy_piece(&mut self, w: usize) -> Option<u64> {
        let mover = self.movers[w].as_mut()?;
        mover.end();
        let objects = mover.begin(&self.versions[w]);
        if objects.is_empty() {
            let mover = self.movers[w].take()?;
            let pairs = mover.target.iter().zip(&self.versions[w]);
            self.stale += pairs.filter(|(there, here)| there != here).count() as u64;
            self.copies.push((w, mover.counts));
            self.away[w] = Some(mover.target);
            return None;
        }
        let (mut read, bytes) = (self.now, u64::from(self.bytes[w]));
        for object in objects {
            let number = self.first[w] + object;
            let how = Access::Sequential;
            let (done, _) = self.backend.disk_read(self.now, number, bytes, how);
            read = read.max(done);
        }
        let writes = self.group.as_ref().map_or(0, |g| g.one());
        Some(read + writes)
    }

    /// Forgets a copy that is not complete.
    pub(in crate::response) fn give_up_copy(&mut self, w: usize) {
        self.movers[w] = None;
    }
}
