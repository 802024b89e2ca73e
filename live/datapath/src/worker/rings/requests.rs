//! Requests from rings, answers into them, and interrupts.

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
use crate::worker::budget::PausedGuest;
use crate::worker::guests::{AnswerTo, BYTES_MAX, Guest, HEAD, REQUESTS_MAX};

/// Largest number of requests without work that one poll of a ring answers. Protects the turns of other guests.
const NOTHING_MAX: u32 = 16;

/// Bytes that are copied out of one ring's requests in one turn; one request may exceed it. Other guests wait meanwhile.
const TURN_BYTES: u64 = 1 << 20;

/// Number of requests that are taken from one ring in one turn. The guest can process its first answers while the worker
/// handles further requests.
const TURN_REQUESTS: u32 = 16;

impl Worker {
    /// Handles a kick of a guest, or the end of the wait for kicks.
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
                    // All rings of the guest end, including this one.
                    false => self.refuse_ring_guest(guest, &why),
                }
            }
        }
    }

    /// Publishes answers and takes new requests of all awake rings.
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
            // Answers that needed no I/O.
            self.publish(*ring);
        }
        awake.append(&mut self.rings.awake);
        self.rings.awake = awake;
    }

    /// Arms the rings for kicks before the worker sleeps. Returns true if requests have arrived that cause no kick.
    pub(in crate::worker) fn arm_rings(&mut self) -> bool {
        let mut awake = std::mem::take(&mut self.rings.awake);
        awake.retain(|ring| self.stays_awake(*ring));
        // A ring that has just started is neither polled nor armed yet.
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
            let _ = answer.send(Some(next)); // the caller may have ended
            self.end_ring(ring);
        }
    }

    /// Sends an interrupt to a guest.
    pub(super) fn interrupt(&self, ring: u32) {
        let live = self.rings.rings.get(ring as usize);
        let Some(call) = live.and_then(|r| r.setup.call.as_ref()) else {
            return;
        };
        // The guest may let the counter overflow, or make it blocking: neither must block the worker.
        let mut ready = [PollFd::new(&**call, PollFlags::OUT)];
        let now = rustix::event::Timespec::default();
        if rustix::event::poll(&mut ready, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(&**call, &1u64.to_ne_bytes());
        }
    }

    /// Takes requests from a ring, within the limits of its guest.
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
                return; // the rest follows in the next turn; a held request was the first of this turn
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
            if self.waits_for_budget(PausedGuest::Ring(ring), bytes, moved) {
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

    /// Returns true if a ring is polled in the next turn, too. If not, it is armed for kicks.
    fn stays_awake(&mut self, ring: u32) -> bool {
        // Work for another ring or a socket may have answered its requests meanwhile.
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

/// Returns the next request with work. Answers those without work.
fn next_request(queue: &mut Queue) -> Result<Option<(Chain, blk::Request)>, RingError> {
    // The limit protects other guests: the rest follows at the next poll.
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

/// Returns the bytes of memory that a request takes until it is answered.
fn moved_bytes(request: &blk::Request) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write => request.length,
        _ => 0,
    }
}
