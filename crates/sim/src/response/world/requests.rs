//! One request on its way: through an appliance or not, memory, disk, link, and back.

use algo::mix;

use super::{OWN_DISK_NS, Path, Slot, Stage, World};
use crate::response::backend::{Access, Taken};
use crate::response::load::{LoadOp, RecordedRequest};
use crate::response::model::Uses;
use crate::response::monitor::Completed;
use crate::response::mover::WriteTo;
use crate::response::nodes::Found;

impl World {
    pub(super) fn start(&mut self, client: usize, request: &RecordedRequest) {
        let w = client % self.workloads;
        let slot = self.clients[client]
            .free
            .pop()
            .expect("a free slot was seen") as usize;
        let c = &mut self.clients[client];
        if c.outstanding == 0 {
            c.occupied_since = self.now;
        }
        c.outstanding += 1;
        if c.free.is_empty() {
            c.limited_since = self.now;
        }
        let follows = request.object == c.follows;
        c.follows = request.object + request.objects;
        self.slots[slot] = Slot {
            issued: self.now,
            object: request.object,
            objects: request.objects,
            op: request.op,
            stage: Stage::Done,
            through: None,
            versions: 0,
            inside: None,
        };
        if client >= self.workloads {
            self.warm_read(slot, w);
            return;
        }
        self.requests += 1;
        for i in 0..request.objects {
            self.monitors[w].issued(request.object + i, request.op, follows && i == 0);
        }
        if self.uses[w] == Uses::OwnDisks {
            let takes = OWN_DISK_NS * self.own.factor(mix(self.seed ^ 0x0D, self.requests));
            self.own_free[w] = self.now.max(self.own_free[w]) + takes as u64;
            self.heap.push(self.own_free[w], slot as u32);
            return;
        }
        let (mut at, mut node) = (self.now, None);
        if let Path::Node(n) = self.paths[w] {
            let placed = self.nodes[n].as_mut().expect("seen before it was issued");
            let bytes = u64::from(request.objects) * u64::from(self.bytes[w]);
            let works = match request.op {
                LoadOp::Read => self.appliance.keeps.read_ns(bytes),
                LoadOp::Write => 0,
            };
            placed.free = at.max(placed.free) + self.appliance.per_request.0 + works;
            placed.inside += 1;
            at = placed.free + placed.hops;
            node = Some(n);
            self.slots[slot].inside = node;
        }
        match request.op {
            LoadOp::Write => self.write(slot, w, at),
            LoadOp::Read => self.read(slot, w, at, node),
        }
    }

    fn read(&mut self, slot: usize, w: usize, at: u64, node: Option<usize>) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        if let Some(n) = node {
            let placed = self.nodes[n].as_mut().expect("it was just passed");
            let mut worst = Found::Memory;
            for o in object..object + objects {
                let found = placed.node.read(o);
                let last = self.versions[w][o as usize];
                self.stale += u64::from(found != Found::Nowhere && placed.held[o as usize] != last);
                match found {
                    Found::Memory => {}
                    Found::Ssd if worst == Found::Memory => worst = Found::Ssd,
                    Found::Ssd => {}
                    Found::Nowhere => worst = Found::Nowhere,
                }
            }
            let takes = match worst {
                Found::Memory => Some(self.appliance.memory_hit.0),
                Found::Ssd => Some(self.appliance.ssd_hit.0),
                Found::Nowhere => None,
            };
            if let Some(takes) = takes {
                self.heap.push(at + takes, slot as u32);
                return;
            }
            self.slots[slot].through = Some((n, placed.node.begin_fill(object, objects)));
            self.slots[slot].versions = self.versions_of(w, object, objects);
        }
        if at > self.now {
            self.slots[slot].stage = Stage::Arriving;
            self.heap.push(at, slot as u32);
        } else {
            self.backend_read(slot, Access::Random);
        }
    }

    fn versions_of(&self, w: usize, first: u32, objects: u32) -> u64 {
        let all = &self.versions[w][first as usize..(first + objects) as usize];
        all.iter().map(|v| u64::from(*v)).sum()
    }

    /// Sends an answer to its host.
    fn send(&mut self, slot: usize, bytes: u64) -> u64 {
        self.slots[slot].stage = Stage::Done;
        let flow = slot / self.slots_each;
        if let Some(bytes) = self.link.push(flow, slot as u32, bytes as u32) {
            self.transmit(bytes);
        }
        self.backend.link_time(bytes)
    }

    pub(super) fn transmit(&mut self, bytes: u32) {
        let at = self.now + self.backend.link_time(u64::from(bytes));
        let id = self.link_id();
        self.heap.push(at, id);
    }

    fn warm_read(&mut self, slot: usize, w: usize) {
        let object = self.slots[slot].object;
        let node = self.nodes_of[w].last().copied();
        let Some(n) = node.filter(|n| self.nodes[*n].is_some()) else {
            self.heap.push(self.now, slot as u32);
            return;
        };
        let placed = self.nodes[n].as_mut().expect("looked at above");
        if placed.node.read(object) != Found::Nowhere {
            self.heap.push(self.now, slot as u32);
            return;
        }
        placed.budget.charge(self.now, u64::from(self.bytes[w]));
        self.slots[slot].through = Some((n, placed.node.begin_fill(object, 1)));
        self.slots[slot].versions = self.versions_of(w, object, 1);
        self.backend_read(slot, Access::Sequential);
    }

    pub(super) fn backend_read(&mut self, slot: usize, how: Access) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        let w = slot / self.slots_each % self.workloads;
        if self.away[w].is_some() {
            self.read_elsewhere(slot, w);
            return;
        }
        let first = self.first[w] + object;
        let mut hit = true;
        for o in object..object + objects {
            hit &= self.backend.memory.hit(w, o);
        }
        let warm = self.is_warm(slot);
        if !warm {
            self.monitors[w].backend_read(hit);
        }
        let bytes = u64::from(objects) * u64::from(self.bytes[w]);
        let mut taken = Taken::default();
        if hit {
            taken.link_ns = self.send(slot, bytes);
        } else {
            let (done, disk_ns) = self.backend.disk_read(self.now, first, bytes, how);
            taken.disk_ns = disk_ns;
            self.slots[slot].stage = Stage::Disk;
            self.heap.push(done, slot as u32);
        }
        if !warm {
            self.monitors[w].took(LoadOp::Read, taken);
        }
    }

    /// The other backend has a link of its own.
    fn read_elsewhere(&mut self, slot: usize, w: usize) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        let range = object as usize..(object + objects) as usize;
        let there = self.away[w].iter().flat_map(|v| &v[range.clone()]);
        let stale = there
            .zip(&self.versions[w][range.clone()])
            .filter(|(t, v)| t != v);
        self.stale += stale.count() as u64;
        self.slots[slot].stage = Stage::Done;
        let done = self.group.as_mut().map(|g| g.serve(self.now, object));
        self.heap.push(done.unwrap_or(self.now), slot as u32);
    }

    fn is_warm(&self, slot: usize) -> bool {
        slot / self.slots_each >= self.workloads
    }

    pub(super) fn off_disk(&mut self, slot: usize) {
        let client = slot / self.slots_each;
        let w = client % self.workloads;
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        (object..object + objects).for_each(|o| self.backend.memory.keep(w, o));
        let bytes = u64::from(objects) * u64::from(self.bytes[w]);
        let link_ns = self.send(slot, bytes);
        if client < self.workloads {
            let taken = Taken {
                disk_ns: 0,
                link_ns,
            };
            self.monitors[w].took(LoadOp::Read, taken);
        }
    }

    fn write(&mut self, slot: usize, w: usize, at: u64) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        let mut both = false;
        for o in object..object + objects {
            let version = &mut self.versions[w][o as usize];
            *version += 1;
            for n in &self.nodes_of[w] {
                if let Some(placed) = &mut self.nodes[*n]
                    && placed.node.written(o)
                {
                    placed.held[o as usize] = *version;
                }
            }
            if let Some(mover) = &mut self.movers[w] {
                both |= mover.written(o, *version) == WriteTo::Both;
            }
            if let Some(there) = &mut self.away[w] {
                there[o as usize] = *version;
            }
        }
        let mut done = at;
        if both || self.away[w].is_some() {
            let there = self.group.as_mut().map(|g| g.serve(at, object));
            done = there.unwrap_or(at);
        }
        if self.away[w].is_none() {
            // What is in memory is kept up to date; what is not is written back and forgotten.
            (object..object + objects).for_each(|o| {
                self.backend.memory.hit(w, o);
            });
            let number = self.first[w] + object;
            let bytes = u64::from(objects) * u64::from(self.bytes[w]);
            let (here, taken) = self.backend.write(at, number, bytes, self.waf[w]);
            self.monitors[w].took(LoadOp::Write, taken);
            done = done.max(here);
        }
        self.heap.push(done, slot as u32);
    }

    pub(super) fn complete(&mut self, slot: usize, client: usize) {
        let s = self.slots[slot];
        let w = client % self.workloads;
        let bytes = u64::from(s.objects) * u64::from(self.bytes[w]);
        // What a warm-up reads was charged when it was sent for.
        let warm = client >= self.workloads;
        if let Some((n, fill)) = s.through
            && let Some(placed) = &mut self.nodes[n]
            && placed.node.is_valid(s.object, s.objects, fill)
            && (warm || placed.budget.takes(self.now, bytes))
            && placed.node.end_fill(s.object, s.objects, fill)
        {
            let range = s.object as usize..(s.object + s.objects) as usize;
            placed.held[range.clone()].copy_from_slice(&self.versions[w][range]);
            let now = self.versions_of(w, s.object, s.objects);
            self.stale += u64::from(now != s.versions);
        }
        if let Some(n) = s.inside
            && let Some(placed) = &mut self.nodes[n]
        {
            placed.inside -= 1;
        }
        let c = &mut self.clients[client];
        if c.free.is_empty() {
            c.limited_ns += self.now - c.limited_since;
        }
        c.free.push(slot as u32);
        c.outstanding -= 1;
        if c.outstanding == 0 {
            c.occupied_ns += self.now - c.occupied_since;
        }
        if client < self.workloads {
            let latency_ns = self.now - s.issued;
            for (i, (from, to)) in self.spans.iter().enumerate() {
                if (from.0..to.0).contains(&self.now) {
                    self.latencies[w * self.spans.len() + i].record(latency_ns);
                }
            }
            self.monitors[w].completed(&Completed {
                op: s.op,
                latency_ns,
                bytes,
            });
        }
    }
}
