//! Requests out of rings, answers into them, and who is told when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags};
use vring::blk::{self, Operation, Status};
use vring::{Chain, Interrupt, Queue, RingError};

use super::{Durability, RingGuest};
use crate::engine::{Fault, GuestOp, GuestRequest};
use crate::io::{Buf, Outcome};
use crate::registry::REQUEST_BYTES_MAX;
use crate::worker::Worker;
use crate::worker::budget::Paused;
use crate::worker::guests::{AnswerTo, BYTES_MAX, Guest, HEAD, REQUESTS_MAX};

/// Requests that ask for nothing, and are answered in one look.
const NOTHING_MAX: u32 = 16;

/// Bytes that are copied out of one ring's requests in one turn, but for one request. Others wait behind it.
const TURN_BYTES: u64 = 1 << 20;

/// Requests that are taken from one ring in one turn: a guest that is told of some looks at them while the next are done.
const TURN_REQUESTS: u32 = 16;

impl Worker {
    /// A ring's guest has written to its event counter, or nobody is told of that any more.
    pub(in crate::worker) fn kicked(&mut self, ring: u32, outcome: Outcome) {
        let live = &mut self.rings.rings[ring as usize];
        match outcome {
            Ok(_) if live.over => {}
            Ok(_) => {
                if let Some(queue) = &mut live.queue {
                    queue.disarm();
                }
                self.rings.wake(ring);
            }
            Err(why) => {
                live.watched = false;
                let guest = live.guest;
                match live.over {
                    true => self.remove_ring_if_over(ring),
                    // All of its rings end with it, this one too.
                    false => self.refuse_ring_guest(guest, &why),
                }
            }
        }
    }

    /// Publishes what was answered, and takes what has come.
    pub(in crate::worker) fn serve_rings(&mut self) {
        if self.rings.awake.is_empty() {
            return;
        }
        let mut awake = std::mem::take(&mut self.rings.awake);
        for ring in &awake {
            self.publish(*ring);
            if !self.still {
                self.take_requests(*ring);
            }
            // What needed no I/O.
            self.publish(*ring);
        }
        awake.append(&mut self.rings.awake);
        self.rings.awake = awake;
    }

    /// Asks for kicks, as the worker is about to sleep; whether something has come for which there are none.
    pub(in crate::worker) fn arm_rings(&mut self) -> bool {
        let mut awake = std::mem::take(&mut self.rings.awake);
        awake.retain(|ring| self.stays_awake(*ring));
        // One that began just now was neither looked at nor armed.
        let begun = !self.rings.awake.is_empty();
        awake.append(&mut self.rings.awake);
        self.rings.awake = awake;
        begun || self.rings.any_waiting()
    }

    fn publish(&mut self, ring: u32) {
        let Some(live) = self.rings.rings.get_mut(ring as usize) else {
            return;
        };
        let Some(queue) = live.queue.as_mut().filter(|_| !live.over) else {
            return;
        };
        let wanted = queue.publish() == Interrupt::Wanted;
        let ends = (queue.in_flight() == 0).then(|| queue.next_available());
        let ends = ends.and_then(|next| Some((next, live.stopping.take()?)));
        if wanted {
            self.interrupt(ring);
        }
        if let Some((next, answer)) = ends {
            let _ = answer.send(Some(next)); // whoever waits may have gone
            self.end_ring(ring);
        }
    }

    /// Has a guest look at its answers.
    pub(super) fn interrupt(&self, ring: u32) {
        let live = self.rings.rings.get(ring as usize);
        let Some(call) = live.and_then(|r| r.setup.call.as_ref()) else {
            return;
        };
        // A counter that is full, which nobody has looked at, or that was made one that blocks, must not keep the worker.
        let mut ready = [PollFd::new(&**call, PollFlags::OUT)];
        let now = rustix::event::Timespec::default();
        if rustix::event::poll(&mut ready, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(&**call, &1u64.to_ne_bytes());
        }
    }

    /// Takes requests from a ring, within what its guest may have in flight.
    fn take_requests(&mut self, ring: u32) {
        let (mut copied, mut taken) = (0, 0);
        loop {
            let Some(live) = self.rings.rings.get_mut(ring as usize) else {
                return;
            };
            let Some(queue) = live.queue.as_mut().filter(|_| !live.over) else {
                return;
            };
            let (guest, held) = (live.guest, live.held.take());
            let RingGuest {
                requests, bytes, ..
            } = self.rings.guests[guest as usize];
            live.blocked = false;
            if copied >= TURN_BYTES || taken >= TURN_REQUESTS {
                return; // the rest in the next turn: what was held was the first of this one
            }
            if requests >= REQUESTS_MAX || bytes >= BYTES_MAX {
                live.held = held;
                live.blocked = true;
                return;
            }
            taken += 1;
            let next = match held {
                Some(held) => Ok(Some(held)),
                None => next_request(queue),
            };
            let (chain, request) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(why) => return self.refuse_ring_guest(guest, &why),
            };
            let moved = moved_bytes(&request);
            if self.waits_for_budget(Paused::Ring(ring), bytes, moved) {
                let live = &mut self.rings.rings[ring as usize];
                live.held = Some((chain, request));
                live.blocked = true;
                return;
            }
            copied += moved;
            self.carry_out_chain(ring, chain, request);
        }
    }

    fn carry_out_chain(&mut self, ring: u32, chain: Chain, request: blk::Request) {
        let op = match request.operation {
            Operation::Read => GuestOp::Read,
            Operation::Write => GuestOp::Write,
            Operation::Flush => GuestOp::Flush,
            Operation::Discard => GuestOp::Trim,
            Operation::Zero => GuestOp::Zero,
            Operation::ZeroAllocated => GuestOp::ZeroAllocated,
            Operation::Name => return self.tell_name(ring, chain, request.length),
        };
        let moved = moved_bytes(&request);
        let end = HEAD + moved as usize;
        let buf = (moved > 0).then(|| self.pool.take(end));
        if let (GuestOp::Write, Some(buf)) = (op, &buf) {
            buf.fill(HEAD..end, |to| chain.read(blk::DATA_AT, to));
        }
        let live = &mut self.rings.rings[ring as usize];
        let chain = live.pending.insert(chain) as u32;
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.requests += 1;
        guest.bytes += moved;
        self.shared.bytes.fetch_add(moved, Ordering::Relaxed);
        let changes = !matches!(op, GuestOp::Read | GuestOp::Flush);
        let request = GuestRequest {
            op,
            offset: request.offset,
            length: request.length,
            fua: changes && guest.durability == Durability::ByWrite,
        };
        guest.cached += u32::from(changes && !request.fua);
        let volume = guest.volume;
        let to = AnswerTo::Ring { ring, chain };
        let guest = Guest::new(to, buf, self.now_ns);
        self.arrive(volume, guest, request);
    }

    fn tell_name(&mut self, ring: u32, chain: Chain, length: u64) {
        let live = &mut self.rings.rings[ring as usize];
        let volume = self.rings.guests[live.guest as usize].volume;
        let volume = self.volumes[volume as usize].as_ref();
        let name = blk::name_field(&volume.expect("it has guests").name);
        chain.write(0, &name[..length as usize]);
        let written = blk::finish(&chain, Status::Done, length);
        let queue = live.queue.as_mut().expect("it was just taken from it");
        queue.push(chain, written);
    }

    /// Answers a request.
    pub(in crate::worker) fn answer_ring(
        &mut self,
        ring: u32,
        chain: u32,
        buf: Option<Arc<Buf>>,
        request: GuestRequest,
        result: Result<(), Fault>,
    ) {
        let live = &mut self.rings.rings[ring as usize];
        let chain = live.pending.remove(chain as usize);
        let moved = match request.op {
            GuestOp::Read | GuestOp::Write => request.length,
            _ => 0,
        };
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.requests -= 1;
        guest.bytes -= moved;
        self.shared.bytes.fetch_sub(moved, Ordering::Relaxed);
        let changes = !matches!(request.op, GuestOp::Read | GuestOp::Flush);
        guest.cached -= u32::from(changes && !request.fua);
        let switches = guest.cached == 0 && !guest.switching.is_empty();
        let owner = live.guest;
        if live.over {
            let guest = live.guest;
            buf.into_iter().for_each(|buf| self.pool.give(buf));
            self.begin_rings_after(guest);
            return self.remove_ring_if_over(ring);
        }
        let data = match (request.op, &buf, result) {
            (GuestOp::Read, Some(buf), Ok(())) => {
                let range = HEAD..HEAD + request.length as usize;
                buf.with(range, |bytes| chain.write(0, bytes));
                request.length
            }
            _ => 0,
        };
        let status = match result {
            Ok(()) => Status::Done,
            Err(_) => Status::Failed,
        };
        let written = blk::finish(&chain, status, data);
        let queue = live.queue.as_mut().expect("it was taken from it");
        queue.push(chain, written);
        buf.into_iter().for_each(|buf| self.pool.give(buf));
        self.rings.wake(ring);
        if switches {
            self.flush_for_switch(owner);
        }
    }

    /// Whether a ring is to be looked at in the next turn too. If not, its kicks are asked for.
    fn stays_awake(&mut self, ring: u32) -> bool {
        // Something of another ring, or of a socket, may have had it answered since.
        self.publish(ring);
        let Some(live) = self.rings.rings.get_mut(ring as usize) else {
            return false;
        };
        let stays = match live.queue.as_mut().filter(|_| !live.over) {
            None => Ok(false),
            Some(_) if live.blocked => Ok(true),
            Some(queue) => queue.arm(),
        };
        live.awake = *stays.as_ref().unwrap_or(&false);
        let (awake, guest) = (live.awake, live.guest);
        if let Err(why) = stays {
            self.refuse_ring_guest(guest, &why);
        }
        awake
    }
}

/// The next request that has something to do; those that do not are answered.
fn next_request(queue: &mut Queue) -> Result<Option<(Chain, blk::Request)>, RingError> {
    // Others have their turn, too: what is left is there at the next look.
    for _ in 0..NOTHING_MAX {
        let Some(chain) = queue.pop()? else {
            return Ok(None);
        };
        match blk::parse(&chain, REQUEST_BYTES_MAX.into())? {
            Ok(request) => return Ok(Some((chain, request))),
            Err(status) => {
                let written = blk::finish(&chain, status, 0);
                queue.push(chain, written);
            }
        }
    }
    Ok(None)
}

/// Bytes that a request takes in memory until it is answered.
fn moved_bytes(request: &blk::Request) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write => request.length,
        _ => 0,
    }
}
