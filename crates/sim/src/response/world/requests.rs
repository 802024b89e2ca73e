//! One request on its way: through an appliance or not, memory, disk, link, and back.

use algo::mix;

use super::{OWN_DISK_NS, Path, Slot, Stage, World};
use crate::response::backend::{Access, Taken};
use crate::response::load::{LoadOp, RecordedRequest};
use crate::response::model::Uses;
use crate::response::monitor::Completed;
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
        let follows = request.object == c.follows;
        c.follows = request.object + request.objects;
        self.slots[slot] = Slot {
            issued: self.now,
            object: request.object,
            objects: request.objects,
            op: request.op,
            stage: Stage::Done,
            through: None,
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
            placed.free = at.max(placed.free) + self.appliance.per_request.0;
            placed.inside += 1;
            at = placed.free + placed.hops;
            node = Some(n);
            self.slots[slot].inside = node;
        }
        match request.op {
            LoadOp::Write => self.write(slot, w, at),
            LoadOp::Read => self.read(slot, at, node),
        }
    }

    fn read(&mut self, slot: usize, at: u64, node: Option<usize>) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        if let Some(n) = node {
            let placed = self.nodes[n].as_mut().expect("it was just passed");
            let mut worst = Found::Memory;
            for o in object..object + objects {
                match placed.node.read(o) {
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
        }
        if at > self.now {
            self.slots[slot].stage = Stage::Arriving;
            self.heap.push(at, slot as u32);
        } else {
            self.backend_read(slot, Access::Random);
        }
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
        self.slots[slot].through = Some((n, placed.node.begin_fill(object, 1)));
        self.backend_read(slot, Access::Sequential);
    }

    pub(super) fn backend_read(&mut self, slot: usize, how: Access) {
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        let w = slot / self.slots_each % self.workloads;
        let first = self.first[w] + object;
        let mut hit = true;
        for o in first..first + objects {
            hit &= self.backend.in_memory(o, self.bytes[w]);
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

    fn is_warm(&self, slot: usize) -> bool {
        slot / self.slots_each >= self.workloads
    }

    pub(super) fn off_disk(&mut self, slot: usize) {
        let client = slot / self.slots_each;
        let w = client % self.workloads;
        let Slot {
            object, objects, ..
        } = self.slots[slot];
        let first = self.first[w] + object;
        let each = self.bytes[w];
        (first..first + objects).for_each(|o| self.backend.keep(o, each));
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
        let first = self.first[w] + object;
        let bytes = u64::from(objects) * u64::from(self.bytes[w]);
        for o in object..object + objects {
            // What is in memory is kept up to date; what is not is written back and forgotten.
            self.backend.in_memory(self.first[w] + o, self.bytes[w]);
            for n in &self.nodes_of[w] {
                if let Some(placed) = &mut self.nodes[*n] {
                    placed.node.written(o);
                }
            }
        }
        let (done, taken) = self.backend.write(at, first, bytes);
        self.monitors[w].took(LoadOp::Write, taken);
        self.heap.push(done, slot as u32);
    }

    pub(super) fn complete(&mut self, slot: usize, client: usize) {
        let s = self.slots[slot];
        let w = client % self.workloads;
        if let Some((n, fill)) = s.through
            && let Some(placed) = &mut self.nodes[n]
        {
            placed.node.end_fill(s.object, s.objects, fill);
        }
        if let Some(n) = s.inside
            && let Some(placed) = &mut self.nodes[n]
        {
            placed.inside -= 1;
        }
        let c = &mut self.clients[client];
        c.free.push(slot as u32);
        c.outstanding -= 1;
        if c.outstanding == 0 {
            c.occupied_ns += self.now - c.occupied_since;
        }
        if client < self.workloads {
            self.monitors[w].completed(&Completed {
                op: s.op,
                latency_ns: self.now - s.issued,
                bytes: u64::from(s.objects) * u64::from(self.bytes[w]),
            });
        }
    }
}
