//! A device behind the cache: first come, first served, and copies in the gaps.
//!
//! ```text
//!   requests ──▶ units (each: busy until …) ──▶ done
//!   copies   ──▶ only after the device was idle for a while, a piece at a time; a request may come during a piece and waits for it
//! ```
//!
//! Copies wait for a gap of about one service time before they begin (in the spirit of low-priority tasks with an idle wait), so
//! they delay requests by part of a piece at most.

use std::collections::VecDeque;

use algo::ServiceTime;
use model::Op;

/// Bytes of one piece of a copy.
const PIECE_BYTES: f64 = 262_144.0;

/// Work of one exchange on one device.
#[derive(Debug, Clone, Copy)]
struct Copy {
    exchange: u32,
    pieces: u32,
    /// When it was asked for.
    not_before_ns: f64,
}

/// A device with its queue.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    service: ServiceTime,
    free_at_ns: Vec<f64>,
    /// Where the last request ended: one that begins there needs no positioning.
    ended_at: u64,
    copies: VecDeque<Copy>,
    piece_ns: f64,
    idle_wait_ns: f64,
    /// When the last piece of a copy ended: what follows at once needs no wait.
    copied_until_ns: f64,
    /// Time in use by requests.
    pub(super) busy_ns: f64,
    /// Time in use by copies.
    pub(super) copy_ns: f64,
}

impl Disk {
    pub(super) fn new(service: ServiceTime) -> Self {
        let piece = |op| service.mean_ns(op, PIECE_BYTES);
        Self {
            service,
            free_at_ns: vec![0.0; service.units as usize],
            ended_at: u64::MAX,
            copies: VecDeque::new(),
            piece_ns: 0.5 * (piece(Op::Read) + piece(Op::Write)),
            idle_wait_ns: service.mean_ns(Op::Read, 0.0),
            copied_until_ns: -1.0,
            busy_ns: 0.0,
            copy_ns: 0.0,
        }
    }

    /// One request of `bytes` at `address` (of any unit that is the same for neighbours) up to `end`; `times` writes in place of one
    /// where redundancy makes it cost more. When it completes. What was copied before it is for [`Self::copy_until`] to say, first.
    #[inline]
    pub(super) fn submit(
        &mut self,
        now_ns: u64,
        op: Op,
        (address, end): (u64, u64),
        bytes: f64,
        times: f64,
        unit: f64,
    ) -> f64 {
        let now = now_ns as f64;
        let service = if address == self.ended_at {
            self.service.sequential_ns + bytes * self.service.byte_ns
        } else {
            self.service.draw_ns(op, bytes, unit)
        } * times;
        self.ended_at = end;
        let slot = self.first_free();
        let start = self.free_at_ns[slot].max(now);
        self.free_at_ns[slot] = start + service;
        self.busy_ns += service;
        start + service
    }

    fn first_free(&self) -> usize {
        let mut first = 0;
        for (i, free) in self.free_at_ns.iter().enumerate().skip(1) {
            if *free < self.free_at_ns[first] {
                first = i;
            }
        }
        first
    }

    /// Adds the read and the write of one extent of `bytes`.
    pub(super) fn add_copy(&mut self, now_ns: f64, exchange: u32, bytes: f64) {
        let pieces = 2 * (bytes / PIECE_BYTES).ceil() as u32;
        self.copies.push_back(Copy {
            exchange,
            pieces,
            not_before_ns: now_ns,
        });
    }

    /// Copies in the gap up to `now`; exchanges whose part here ends are added to `done`.
    #[inline]
    pub(super) fn copy_until(&mut self, now: f64, done: &mut Vec<u32>) {
        if !self.copies.is_empty() {
            self.copy_some(now, done);
        }
    }

    fn copy_some(&mut self, now: f64, done: &mut Vec<u32>) {
        let slot = self.first_free();
        while let Some(copy) = self.copies.front_mut() {
            let free = self.free_at_ns[slot];
            let wait = if free > self.copied_until_ns {
                self.idle_wait_ns
            } else {
                0.0
            };
            let at = (free + wait).max(copy.not_before_ns);
            if at >= now {
                return;
            }
            // As many pieces as begin before the request comes.
            let room = ((now - at) / self.piece_ns) as u32 + 1;
            let pieces = copy.pieces.min(room);
            copy.pieces -= pieces;
            let worked = f64::from(pieces) * self.piece_ns;
            self.copy_ns += worked;
            self.free_at_ns[slot] = at + worked;
            self.copied_until_ns = at + worked;
            self.ended_at = u64::MAX;
            if copy.pieces == 0 {
                done.push(copy.exchange);
                self.copies.pop_front();
            }
        }
    }

    /// Requests that are served at once.
    pub(super) fn units(&self) -> u32 {
        self.service.units
    }

    /// Gives up copies that are not complete.
    pub(super) fn give_up(&mut self) {
        self.copies.clear();
    }

    /// Requests that wait would wait so long.
    #[cfg(test)]
    fn backlog_ns(&self, now: f64) -> f64 {
        (self.free_at_ns[self.first_free()] - now).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &mut Disk, now: u64, address: u64) -> f64 {
        disk.submit(now, Op::Read, (address, address + 1), 65536.0, 1.0, 0.5)
    }

    #[test]
    fn requests_wait_for_each_other_and_neighbours_need_no_positioning() {
        let mut disk = Disk::new(ServiceTime::fc_15k());
        let first = read(&mut disk, 0, 10);
        let second = read(&mut disk, 0, 99);
        assert!((second - 2.0 * first).abs() < 1.0);
        let third = read(&mut disk, 0, 100) - second;
        assert!(third < 0.2 * first, "{third}");
        let mut nvme = Disk::new(ServiceTime::nvme_tlc());
        let alone = read(&mut nvme, 0, 10);
        assert!((read(&mut nvme, 0, 99) - alone).abs() < 1.0);
    }

    #[test]
    fn copies_take_gaps_only_and_end() {
        let mut disk = Disk::new(ServiceTime::sata_7k2());
        let mut done = vec![];
        disk.add_copy(0.0, 7, 65536.0 * 60.0);
        // Back to back: no gap, no copy.
        let mut now = 0;
        for i in 0..100 {
            disk.copy_until(now as f64, &mut done);
            now = disk.submit(now, Op::Read, (2 * i, 2 * i + 1), 65536.0, 1.0, 0.5) as u64;
        }
        assert!(disk.copy_ns == 0.0 && done.is_empty());
        // A pause of a minute is enough for 30 pieces of about 16 ms.
        disk.copy_until(now as f64 + 60e9, &mut done);
        assert_eq!(done, [7]);
        let each = disk.copy_ns / 30.0;
        assert!((15e6..18e6).contains(&each), "{each}");
    }

    #[test]
    fn a_request_waits_for_one_piece_at_most() {
        let mut disk = Disk::new(ServiceTime::sata_7k2());
        let mut done = vec![];
        (0..1000).for_each(|i| disk.add_copy(0.0, i, 65536.0 * 60.0));
        for now in [1e9, 2e9, 5e9] {
            disk.copy_until(now, &mut done);
            assert!(disk.backlog_ns(now) < 17e6, "{}", disk.backlog_ns(now));
        }
        let left = disk.copies.len();
        assert_eq!(left + done.len(), 1000);
    }

    /// Time in which nobody had asked for a copy is gone.
    #[test]
    fn nothing_is_copied_before_it_is_asked_for() {
        let mut disk = Disk::new(ServiceTime::sata_7k2());
        let mut done = vec![];
        disk.copy_until(10e9, &mut done);
        disk.add_copy(10e9, 1, 65536.0 * 60.0);
        disk.copy_until(10.001e9, &mut done);
        assert!(disk.copy_ns < 20e6, "one piece has begun: {}", disk.copy_ns);
        assert!(done.is_empty());
        disk.copy_until(10.6e9, &mut done);
        assert_eq!(done, [1]);
    }
}
