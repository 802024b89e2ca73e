//! I/O of the engines on simulated devices: executed in pieces, at any time; delivered at any later time.

use datapath::engine::{DataRef, DeviceRequest, Failure, Fault, IoKind, Zeroes};
use units::DeviceId;

use std::sync::atomic::Ordering;

use super::life::{Event, Life, SimIo};
use super::oracle::{SECTOR, fill};
use super::plan::TIMEOUT_NS;

impl Life<'_> {
    pub(super) fn start_io(&mut self, volume: usize, request: DeviceRequest) {
        let io = self.next_io;
        self.next_io += 1;
        let length = match request.kind {
            IoKind::Flush => 0,
            _ => request.length,
        };
        let mut bytes = vec![];
        let mut asked = None;
        match (request.kind, request.data) {
            (IoKind::Read, _) => bytes = vec![0; length as usize],
            (IoKind::Write { .. }, DataRef::Copy) => bytes = self.copies[volume].clone(),
            (IoKind::Write { .. }, _) => bytes = vec![0; length as usize],
            _ => {}
        }
        if let DataRef::Guest { request: id, from } = request.data {
            let op = *self.engines[volume].guest(id).expect("it was just issued");
            asked = Some(op);
            if request.kind != IoKind::Read {
                let offset = self.asked[&op].request.offset + from;
                fill(volume as u32, offset, op, &mut bytes);
            }
        }
        let device = self.devices[request.device.index()].clone();
        if device.is_none() {
            let harmless = matches!(request.kind, IoKind::Flush | IoKind::Discard);
            let wait_ns = self.some(1_000);
            self.after(wait_ns, Event::Deliver(io));
            let live = SimIo {
                volume,
                request,
                device,
                asked,
                bytes,
                pieces: vec![],
                result: if harmless { Ok(()) } else { Err(Fault::Io) },
            };
            self.ios.insert(io, live);
            return;
        }
        let mut pieces = vec![(0, length, false)];
        let sectors = length / SECTOR as u64;
        if sectors > 1 && self.rng.below(3) == 0 {
            let first = (1 + self.rng.below(sectors - 1)) * SECTOR as u64;
            pieces = vec![(0, first, false), (first, length - first, false)];
        }
        for piece in 0..pieces.len() {
            let hangs = self.chance(self.faults.hang);
            let wait_ns = match request.kind {
                _ if hangs => TIMEOUT_NS,
                IoKind::Flush => self.plan.flush_ns,
                _ => self.plan.io_ns,
            };
            let wait_ns = self.some(wait_ns);
            self.after(wait_ns, Event::Execute(io, piece));
        }
        self.ios.insert(
            io,
            SimIo {
                volume,
                request,
                device,
                asked,
                bytes,
                pieces,
                result: Ok(()),
            },
        );
    }

    /// A piece reaches its device.
    pub(super) fn execute(&mut self, io: u32, piece: usize) {
        let fails = self.chance(self.faults.io);
        // Of what fails, a part may have been done.
        let done = !fails || self.rng.below(2) == 0;
        let live = self.ios.get_mut(&io).expect("it was started");
        let device = live.device.clone().expect("it has pieces");
        if self.faults.write_back > 0 && device.chance(self.faults.write_back) {
            device.lose();
            device.loss_pending.store(true, Ordering::Relaxed);
        }
        let result = if done {
            execute(
                live,
                piece,
                &device,
                &self.plan.devices[live.request.device.index()],
            )
        } else {
            Ok(())
        };
        live.pieces[piece].2 = true;
        let mut lost = result.is_err();
        if fails && live.request.kind == (IoKind::Write { durable: true }) {
            device.lose();
            lost = true;
        }
        if fails || result.is_err() {
            live.result = Err(Fault::Io);
            self.tally.errors += 1;
        }
        let over = live.pieces.iter().all(|p| p.2);
        let (kind, at, volume) = (live.request.kind, live.request.device, live.volume);
        self.look_at_disks();
        let flushes = matches!(kind, IoKind::Flush | IoKind::Write { durable: true });
        if lost && flushes && !self.crashed {
            self.lost(at, volume);
        }
        if over {
            let hangs = self.chance(self.faults.hang);
            let wait_ns = if hangs { TIMEOUT_NS } else { self.plan.hear_ns };
            let wait_ns = self.some(wait_ns);
            self.after(wait_ns, Event::Deliver(io));
        }
    }

    /// The kernel has told somebody that data is lost: the others hear of it from the one that it told.
    fn lost(&mut self, device: DeviceId, but: usize) {
        self.tally.losses += 1;
        for (i, engine) in self.engines.iter_mut().enumerate() {
            if i != but {
                engine.flush_failed_elsewhere(Failure::of_flush(device));
            }
        }
    }

    pub(super) fn deliver(&mut self, io: u32) -> Result<(), String> {
        let live = self.ios.remove(&io).expect("it was started");
        let volume = live.volume;
        let mut zeroes = Zeroes::No;
        if live.request.kind == IoKind::Read && live.result.is_ok() {
            if live.request.data == DataRef::Copy {
                if live.bytes.iter().all(|b| *b == 0) {
                    zeroes = Zeroes::All;
                }
                self.copies[volume] = live.bytes;
            } else if let DataRef::Guest { from, .. } = live.request.data
                && let Some(asked) = live.asked.and_then(|op| self.asked.get_mut(&op))
            {
                let from = from as usize;
                asked.bytes[from..from + live.bytes.len()].copy_from_slice(&live.bytes);
            }
        }
        self.engines[volume].io_done(self.now_ns, live.request.io, live.result, zeroes);
        self.settle(volume)
    }

    /// The process dies: of what is in flight, some is done, or a part of it.
    pub(super) fn tear(&mut self) {
        let ios = std::mem::take(&mut self.ios);
        for (_, mut live) in ios {
            for piece in 0..live.pieces.len() {
                if live.pieces[piece].2 || self.rng.below(3) == 0 {
                    continue;
                }
                let sectors = live.pieces[piece].1 / SECTOR as u64;
                let some = self.rng.below(2 * sectors + 2).min(sectors);
                live.pieces[piece].1 = some * SECTOR as u64;
                let i = live.request.device.index();
                let device = live.device.clone().expect("it has pieces");
                if live.request.kind != IoKind::Flush {
                    let _ = execute(&mut live, piece, &device, &self.plan.devices[i]);
                }
            }
        }
    }
}

/// Does a piece of an I/O on its disk.
fn execute(
    live: &mut SimIo,
    piece: usize,
    device: &super::device::SimDevice,
    plan: &super::plan::DevicePlan,
) -> Result<(), String> {
    let (from, length, _) = live.pieces[piece];
    let at = live.request.at + from;
    let range = from as usize..(from + length) as usize;
    let disk = &device.disk;
    let text = |e: std::io::Error| e.to_string();
    match live.request.kind {
        IoKind::Read => disk.read(at, &mut live.bytes[range]).map_err(text),
        IoKind::Write { durable } => {
            disk.write(at, &live.bytes[range]).map_err(text)?;
            if !durable {
                return Ok(());
            }
            if device.loss_pending.swap(false, Ordering::Relaxed) {
                return Err("simulated: data was lost".into());
            }
            disk.sync_range(at, length).map_err(text)
        }
        IoKind::Discard if plan.ignores_discards => Ok(()),
        IoKind::Zero | IoKind::ZeroAllocated | IoKind::Discard => {
            disk.zero(at, length).map_err(text)
        }
        IoKind::Flush => device.flush(),
    }
}
