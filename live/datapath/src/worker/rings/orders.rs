//! Start, change and end of guests and their rings. A call that may end a guest may remove all its rings: after such a
//! call, each ring is looked up again.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use slab::Slab;
use tracing::{info, warn};
use vring::{Memory, Queue};

use super::{Durability, LiveRing, RingGuest, RingGuestSetup, RingOrder, RingSetup};
use crate::engine::{Fault, GuestOp, GuestRequest};
use crate::io::{Op, close_elsewhere};
use crate::worker::guests::{AnswerTo, Guest};
use crate::worker::volumes::LiveVolume;
use crate::worker::{Token, Worker};

impl Worker {
    pub(in crate::worker) fn ring_order(&mut self, order: RingOrder) {
        match order {
            RingOrder::Connect(setup) => self.welcome_ring_guest(setup),
            RingOrder::Start(guest, setup) => self.start_ring(guest, *setup),
            RingOrder::Call(guest, index, call, answer) => {
                if let Some(ring) = self.rings.ring_of(guest, index) {
                    self.rings.rings[ring as usize].setup.call = call;
                    // The guest may not have received an interrupt for earlier answers.
                    self.interrupt(ring);
                }
                let _ = answer.send(()); // the thread may have ended
            }
            RingOrder::Stop(guest, index, answer) => self.stop_ring(guest, index, answer),
            RingOrder::Memory(guest, memory, answer) => {
                self.set_memory(guest, &memory);
                let _ = answer.send(()); // the caller may have ended
            }
            RingOrder::Durability(guest, durability, answer) => {
                self.set_durability(guest, durability, answer);
            }
            RingOrder::Gone(guest) => {
                self.end_ring_guest(guest);
                self.rings.guests[guest as usize].gone = true;
                self.remove_ring_guest_if_over(guest);
            }
        }
    }

    /// Returns the guests with rings that are connected to a volume.
    pub(in crate::worker) fn ring_guests_of(&self, volume: u32) -> Vec<u32> {
        let of = |g: &RingGuest| g.volume == volume && !g.over;
        let all = self.rings.guests.iter().filter(|(_, g)| of(g));
        all.map(|(i, _)| i as u32).collect()
    }

    fn welcome_ring_guest(&mut self, setup: RingGuestSetup) {
        let live = self.volumes.get(setup.volume.index());
        // Guests with rings are writers.
        let admits = |v: &LiveVolume| v.detached.is_none() && !v.held;
        let served = live.is_some_and(|v| v.as_ref().is_some_and(admits));
        let guest = served.then(|| {
            self.rings.guests.insert(RingGuest {
                cached: 0,
                switching: vec![],
                volume: setup.volume.0,
                socket: setup.socket,
                counted: setup.counted,
                rings: vec![],
                memories: vec![],
                inflight: None,
                durability: Durability::ByWrite,
                requests: 0,
                bytes: 0,
                over: false,
                gone: false,
            }) as u32
        });
        if let (Err(_), Some(guest)) = (setup.answer.send(guest), guest) {
            self.ring_order(RingOrder::Gone(guest));
        }
    }

    fn start_ring(&mut self, guest: u32, setup: RingSetup) {
        if self.rings.guests[guest as usize].over {
            return;
        }
        if let Some((_, file)) = &setup.inflight {
            // Only one connection uses an inflight buffer: the connection that had it before has ended, even if its end was
            // not reported yet.
            let had =
                |(i, g): &(usize, &RingGuest)| *i != guest as usize && g.inflight == Some(*file);
            let before: Vec<u32> = self
                .rings
                .guests
                .iter()
                .filter(had)
                .map(|(i, _)| i as u32)
                .collect();
            self.rings.guests[guest as usize].inflight = Some(*file);
            for other in before {
                self.end_ring_guest(other);
            }
        }
        let live = &mut self.rings.guests[guest as usize];
        if live.over {
            close_elsewhere(setup.memory);
            return;
        }
        if !live.memories.iter().any(|m| Arc::ptr_eq(m, &setup.memory)) {
            live.memories.push(setup.memory.clone());
        }
        let ring = self.rings.rings.insert(LiveRing {
            guest,
            setup,
            queue: None,
            pending: Slab::new(),
            held: None,
            blocked: false,
            awake: false,
            watched: false,
            stopping: None,
            over: false,
        }) as u32;
        live.rings.push(ring);
        self.begin_ring(ring);
    }

    /// Starts to serve a ring, unless a request of an ended connection is in flight.
    fn begin_ring(&mut self, ring: u32) {
        // The guest may have been refused meanwhile because of another ring.
        let Some(live) = self.rings.rings.get(ring as usize).filter(|r| !r.over) else {
            return;
        };
        let guest = live.guest;
        let volume = self.rings.guests[guest as usize].volume;
        let before = |g: &RingGuest| g.volume == volume && g.over && g.requests > 0;
        if live.queue.is_some() || self.rings.guests.iter().any(|(_, g)| before(g)) {
            return;
        }
        let RingSetup {
            index,
            memory,
            queue,
            inflight,
            kick,
            ..
        } = &live.setup;
        let account = inflight
            .as_ref()
            .map(|(l, _)| l.account(*index, queue.size));
        let made = account
            .transpose()
            .and_then(|account| Queue::new(memory.clone(), *queue, account));
        match made {
            Err(why) => self.refuse_ring_guest(guest, &why),
            Ok(made) => {
                let event = kick.clone();
                if made.resubmitted() > 0 {
                    let name = self.name_of(volume);
                    let requests = made.resubmitted();
                    info!(
                        volume = name,
                        ring = index,
                        requests,
                        "resubmitted requests that were in flight"
                    );
                }
                let live = &mut self.rings.rings[ring as usize];
                live.queue = Some(made);
                live.watched = true;
                if live.stopping.is_some() {
                    live.queue.as_mut().expect("just made").end();
                }
                let token = Token::Kick(ring).pack();
                self.io.start(token, Op::Kicks { event });
                // Existing requests cause no kick, and the guest may not know of the last answers of the previous server.
                self.rings.wake(ring);
                self.interrupt(ring);
            }
        }
    }

    fn stop_ring(&mut self, guest: u32, index: u16, answer: Sender<Option<u16>>) {
        let Some(ring) = self.rings.ring_of(guest, index) else {
            let _ = answer.send(None); // the caller may have ended
            return;
        };
        let live = &mut self.rings.rings[ring as usize];
        live.stopping = Some(answer);
        if let Some(queue) = &mut live.queue {
            queue.end();
            self.rings.wake(ring);
        }
    }

    fn set_durability(
        &mut self,
        guest: u32,
        durability: Durability,
        answer: Sender<Result<(), Fault>>,
    ) {
        let live = &mut self.rings.guests[guest as usize];
        let before = std::mem::replace(&mut live.durability, durability);
        if before == durability || durability == Durability::ByFlush || live.over {
            let _ = answer.send(Ok(())); // the caller may have ended
            return;
        }
        live.switching.push(answer);
        self.flush_for_switch(guest);
    }

    /// Flushes for a guest that has disabled its write cache and will never flush again. Runs once all its earlier writes
    /// are answered.
    pub(super) fn flush_for_switch(&mut self, guest: u32) {
        let live = &mut self.rings.guests[guest as usize];
        if live.cached > 0 {
            return;
        }
        let volume = live.volume;
        for answer in std::mem::take(&mut live.switching) {
            self.flush_for(volume, answer);
        }
    }

    fn flush_for(&mut self, volume: u32, answer: Sender<Result<(), Fault>>) {
        let flush = GuestRequest {
            op: GuestOp::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        self.ask_for(volume, flush, answer);
    }

    /// Zeroes a range of a volume durably, for a thread that waits for it.
    pub(in crate::worker) fn zero_for(
        &mut self,
        volume: u32,
        offset: u64,
        length: u64,
        answer: Sender<Result<(), Fault>>,
    ) {
        let zero = GuestRequest {
            op: GuestOp::Zero,
            offset,
            length,
            fua: true,
        };
        self.ask_for(volume, zero, answer);
    }

    fn ask_for(&mut self, volume: u32, request: GuestRequest, answer: Sender<Result<(), Fault>>) {
        let waiter = self.rings.waiters.insert(answer) as u32;
        let guest = Guest::new(AnswerTo::Waiter(waiter), None, self.now_ns);
        self.arrive(volume, guest, request);
    }

    /// Passes a result to the waiting thread.
    pub(in crate::worker) fn answer_waiter(&mut self, waiter: u32, result: Result<(), Fault>) {
        let answer = self.rings.waiters.remove(waiter as usize);
        let _ = answer.send(result); // the caller may have ended
    }

    fn set_memory(&mut self, guest: u32, memory: &Arc<Memory>) {
        let rings = self.rings.guests[guest as usize].rings.clone();
        for ring in rings {
            let Some(live) = self.rings.rings.get_mut(ring as usize) else {
                continue;
            };
            live.setup.memory = memory.clone();
            let changed = live.queue.as_mut().filter(|_| !live.over);
            if let Some(Err(why)) = changed.map(|q| q.set_memory(memory.clone())) {
                self.refuse_ring_guest(guest, &why);
                break; // its rings may have been removed
            }
        }
        let live = &mut self.rings.guests[guest as usize];
        live.memories.push(memory.clone());
        // Unmapping large memory takes long.
        let unused = live.memories.extract_if(.., |m| Arc::strong_count(m) == 1);
        let unused: Vec<_> = unused.collect();
        if !unused.is_empty() {
            close_elsewhere(unused);
        }
    }

    /// Ends the connection of a guest that violates the protocol, or whose rings cannot be served.
    pub(super) fn refuse_ring_guest(&mut self, guest: u32, why: &dyn std::fmt::Display) {
        let live = &self.rings.guests[guest as usize];
        if !live.over {
            let volume = self.name_of(live.volume);
            warn!(volume, %why, "closed the vhost-user connection of a guest");
        }
        self.end_ring_guest(guest);
    }

    /// Stops reading and writing the memory of a guest.
    pub(in crate::worker) fn end_ring_guest(&mut self, guest: u32) {
        let live = &mut self.rings.guests[guest as usize];
        if std::mem::replace(&mut live.over, true) {
            return;
        }
        let _ = live.socket.shutdown(Shutdown::Both);
        for answer in live.switching.drain(..) {
            let _ = answer.send(Err(Fault::Shutdown)); // the caller may have ended
        }
        for ring in live.rings.clone() {
            self.end_ring(ring);
        }
        self.begin_rings_after(guest);
    }

    pub(super) fn end_ring(&mut self, ring: u32) {
        let live = &mut self.rings.rings[ring as usize];
        live.over = true;
        live.held = None;
        live.queue = None;
        if let Some(answer) = live.stopping.take() {
            let _ = answer.send(None); // the caller may have ended
        }
        if live.watched {
            self.io.cancel(Token::Kick(ring).pack());
        }
        self.remove_ring_if_over(ring);
    }

    pub(super) fn remove_ring_if_over(&mut self, ring: u32) {
        let live = &self.rings.rings[ring as usize];
        if !live.over || live.watched || !live.pending.is_empty() {
            return;
        }
        let live = self.rings.rings.remove(ring as usize);
        self.rings.awake.retain(|awake| *awake != ring);
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.rings.retain(|other| *other != ring);
        self.remove_ring_guest_if_over(live.guest);
    }

    /// Starts the rings of the same volume that have waited for the requests of an ended connection.
    pub(super) fn begin_rings_after(&mut self, guest: u32) {
        let live = &self.rings.guests[guest as usize];
        if !live.over || live.requests > 0 {
            return;
        }
        let guests = &self.rings.guests;
        let waits = |r: &LiveRing| {
            r.queue.is_none() && !r.over && guests[r.guest as usize].volume == live.volume
        };
        let waiting = self.rings.rings.iter().filter(|(_, r)| waits(r));
        let waiting: Vec<u32> = waiting.map(|(i, _)| i as u32).collect();
        for ring in waiting {
            self.begin_ring(ring);
        }
        self.remove_ring_guest_if_over(guest);
    }

    fn remove_ring_guest_if_over(&mut self, guest: u32) {
        let Some(live) = self.rings.guests.get(guest as usize) else {
            return;
        };
        if live.over && live.gone && live.requests == 0 && live.rings.is_empty() {
            let live = self.rings.guests.remove(guest as usize);
            close_elsewhere((live.memories, live.counted));
        }
    }

    pub(in crate::worker) fn name_of(&self, volume: u32) -> Option<&str> {
        let live = self.volumes.get(volume as usize)?.as_ref();
        live.map(|v| v.name.as_str())
    }
}
