//! Direct I/O on files and block devices: I/Os without a buffer, parts that go through an aligned buffer, and the order of
//! changes ([`crate::direct`] has the rules).

use std::sync::Arc;

use rustix::io::Errno;

use crate::device::{Backing, Medium};
use crate::direct::{BufferedPart, Changes};
use crate::engine::IoKind;
use crate::io::{Buf, Op, Outcome};

use super::turns::Turn;
use super::volumes::may_retry;
use super::zeroes::takes_turns;
use super::{Token, Worker};

/// Part of an I/O that goes through a buffer.
#[derive(Debug)]
pub(super) struct ByBuffer {
    step: BufferedPart,
    buf: Arc<Buf>,
    /// True while the buffer is written to the device, false while it is read from it.
    writing: bool,
    /// Number of bytes of the buffer that are read or written.
    moved: u64,
}

impl Worker {
    /// Starts an I/O on a file when all earlier changes that it could undo have ended. Changes through the page cache are
    /// registered too: after its next opening the device may be used by direct I/O while such a change is still in flight.
    pub(super) fn start_in_order(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        let device = self.devices[usize::from(live.device)].as_ref();
        let device = device.expect("in use");
        let changes = !matches!(live.kind, IoKind::Read | IoKind::Flush);
        let stored = matches!(device.medium, Medium::File(_, Backing::Storage));
        if changes && stored {
            let map = self.volumes[live.volume as usize].as_ref();
            let extent = map.expect("it has an engine").engine.map().extent_bytes();
            let slots = live.at / extent.0..=(live.at + live.length - 1) / extent.0;
            let (at, length) = (live.place(), live.length);
            let changes = match device.direct() {
                Some(direct) => direct.alignment.changes(at, length),
                None => Changes::cached(at, length),
            };
            if !self.order.begin(id, live.device, slots, changes) {
                return;
            }
        }
        self.start_when_ordered(id);
    }

    /// Starts an I/O on a file when it has its turn, if it needs one.
    pub(super) fn start_when_ordered(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        if self.is_past(live) {
            return self.start_lost(id);
        }
        if takes_turns(live.kind) {
            return self.start_in_turn(id, Turn::Zeroes);
        }
        let device = self.devices[usize::from(live.device)].as_ref();
        let direct = device.and_then(|d| d.direct());
        let fits = direct.is_none_or(|d| {
            let memory = (live.from as u64).is_multiple_of(d.alignment.memory.into());
            memory && d.alignment.is_whole(live.place(), live.length)
        });
        match fits || live.kind == IoKind::Flush {
            true => self.start_file(id),
            false => self.start_in_turn(id, Turn::Buffers),
        }
    }

    /// Starts a part that goes through a buffer.
    pub(super) fn begin_by_buffer(&mut self, id: u32, step: BufferedPart) {
        let buf = self.pool.take(step.length as usize);
        let live = &mut self.ios[id as usize];
        let reads = live.kind == IoKind::Read || step.merges();
        let mut part = ByBuffer {
            step,
            buf,
            writing: false,
            moved: 0,
        };
        if !reads {
            part.fill(live);
        }
        live.by_buffer = Some(Box::new(part));
        self.go_by_buffer(id);
    }

    /// Reads or writes the rest of a buffer.
    fn go_by_buffer(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        let part = live.by_buffer.as_ref().expect("it has a buffer");
        let device = self.devices[usize::from(live.device)].as_ref();
        let device = device.expect("in use");
        // The data that an earlier opening returned may be outdated: it is not written to this opening.
        let file = match device.direct() {
            Some(direct) if !self.is_past(live) => direct.file.clone(),
            _ => return self.start_lost(id),
        };
        let at = part.step.at + part.moved;
        let range = part.moved as usize..part.step.length as usize;
        let urgency = live.urgency();
        let op = match part.writing {
            false => Op::Read {
                file,
                at,
                to: part.buf.target(range),
                urgency,
            },
            true => Op::Write {
                file,
                at,
                from: part.buf.source(range),
                durable: live.is_durable(),
                urgency,
            },
        };
        self.io.start(Token::Device(id).pack(), op);
    }

    /// Handles the result of a read or write of a buffer, which may be complete or partial.
    pub(super) fn by_buffer_done(&mut self, id: u32, outcome: Outcome) {
        let live = &mut self.ios[id as usize];
        let part = live.by_buffer.as_mut().expect("it has a buffer");
        let failed = match outcome {
            // The file ends before its slots do.
            Ok(0) => Some(Errno::IO),
            Ok(n) => {
                part.moved += u64::from(n);
                None
            }
            Err(Errno::INTR | Errno::AGAIN) if may_retry(&mut live.retries) => None,
            Err(errno) => Some(errno),
        };
        let all = part.moved >= part.step.length;
        if failed.is_none() && !all {
            return self.go_by_buffer(id);
        }
        let mut part = live.by_buffer.take().expect("as above");
        if let Some(errno) = failed {
            self.pool.give(part.buf);
            let result = Err(self.failed(id, errno));
            self.ios[id as usize].result = result;
            return self.device_settled(id);
        }
        if !part.writing && live.kind != IoKind::Read {
            part.fill(live);
            live.by_buffer = Some(part);
            return self.go_by_buffer(id);
        }
        if live.kind == IoKind::Read {
            let to = live.in_memory()..live.in_memory() + part.step.bytes as usize;
            let into = live.buf.as_ref().expect("a read has a buffer");
            part.buf.with(part.step.own(), |from| {
                into.fill(to, |to| to.copy_from_slice(from));
            });
        }
        live.done += part.step.bytes;
        let over = live.done >= live.length;
        self.pool.give(part.buf);
        match over {
            true => self.device_settled(id),
            false => self.start_file(id),
        }
    }
}

impl ByBuffer {
    /// Copies the data of a write into the buffer, and starts the state in which the buffer is written.
    fn fill(&mut self, live: &super::volumes::LiveIo) {
        let own = live.in_memory()..live.in_memory() + self.step.bytes as usize;
        let from = live.buf.as_ref().expect("a write has a buffer");
        from.with(own, |from| {
            self.buf
                .fill(self.step.own(), |to| to.copy_from_slice(from));
        });
        (self.writing, self.moved) = (true, 0);
    }
}
