//! I/O of the engines on simulated devices: executed in pieces at any time, and delivered at any later time.

use datapath::direct::{BufferedPart, Changes, Step};
use datapath::engine::{DataRef, DeviceRequest, Failure, Fault, IoKind, Zeroes};
use units::DeviceId;

use std::sync::atomic::Ordering;

use super::life::{ByBuffer, Event, Life, SimIo};
use super::oracle::{SECTOR, fill};
use super::plan::TIMEOUT_NS;

impl Life<'_> {
    /// Reopens a device that is lost or back. I/O that waits for the earlier opening ends.
    pub(super) fn reopen(&mut self, device: usize) {
        self.openings[device] += 1;
        for number in self.order.give_up(device as u16) {
            let io = self.numbers[number as usize].expect("it waits");
            self.begin_step(io); // ends it with an error
        }
        let wanted = self.plan.devices[device].direct;
        // Each opening may use direct I/O or the page cache.
        self.direct[device] = wanted.filter(|_| self.rng.below(3) > 0);
    }

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
            (IoKind::Write { .. }, DataRef::CopyUp(number)) => {
                bytes = self.copies_up[&(volume, number)].clone();
            }
            (IoKind::Write { .. }, _) => bytes = vec![0; length as usize],
            _ => {}
        }
        if let DataRef::Guest { request: id, from } = request.data {
            let Some(op) = self.engines[volume].guest(id).copied() else {
                // The read was replaced by another attempt before it began.
                return self.engines[volume].not_begun(self.now_ns, request.io);
            };
            asked = self.asked.get(&op).map(|a| (op, a.buffer));
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
                done: 0,
                opening: self.openings[request.device.index()],
                by_buffer: None,
                ordered: None,
                result: if harmless { Ok(()) } else { Err(Fault::Io) },
            };
            self.ios.insert(io, live);
            return;
        }
        self.ios.insert(
            io,
            SimIo {
                volume,
                request,
                device,
                asked,
                bytes,
                pieces: vec![],
                done: 0,
                opening: self.openings[request.device.index()],
                by_buffer: None,
                ordered: None,
                result: Ok(()),
            },
        );
        if self.may_begin(io) {
            self.begin_step(io);
        }
    }

    /// Returns true if an I/O may begin. Otherwise it begins when earlier changes have completed.
    fn may_begin(&mut self, io: u32) -> bool {
        let live = self.ios.get_mut(&io).expect("it was started");
        let request = live.request;
        let direct = self.direct[request.device.index()];
        if matches!(request.kind, IoKind::Read | IoKind::Flush) {
            return true;
        }
        let free = self.numbers.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.numbers.push(None);
            self.numbers.len() - 1
        });
        self.numbers[number] = Some(io);
        live.ordered = Some(number as u32);
        let extent = super::plan::EXTENT;
        let slots = request.at / extent..=(request.at + request.length - 1) / extent;
        let changes = match direct {
            Some(direct) => direct.changes(request.at, request.length),
            None => Changes::cached(request.at, request.length),
        };
        let may = self
            .order
            .begin(number as u32, request.device.0, slots, changes);
        self.tally.in_order += u64::from(!may);
        may
    }

    /// Sends the next step of an I/O to its device.
    fn begin_step(&mut self, io: u32) {
        let live = self.ios.get_mut(&io).expect("it was started");
        let request = live.request;
        if live.opening != self.openings[request.device.index()] {
            // Data that was read from an earlier opening is not written to this one.
            live.result = Err(Fault::Io);
            let wait_ns = self.some(1_000);
            return self.after(wait_ns, Event::Deliver(io));
        }
        let direct = self.direct[request.device.index()];
        let moves_data = matches!(request.kind, IoKind::Read | IoKind::Write { .. });
        let left = match request.kind {
            IoKind::Flush => 0,
            _ => request.length - live.done,
        };
        // A guest's data begins one sector into its buffer.
        let memory = live.done as usize
            + match request.data {
                DataRef::Guest { from, .. } => SECTOR + from as usize,
                _ => 0,
            };
        let step = direct.filter(|_| moves_data).map(|d| {
            let writes = request.kind != IoKind::Read;
            d.step(writes, request.at + live.done, left, memory)
        });
        let length = match step {
            Some(Step::Through(step)) => {
                let mut part = ByBuffer {
                    step,
                    bytes: vec![0; step.length as usize],
                    writing: false,
                    to_write: false,
                };
                if request.kind != IoKind::Read && !step.merges() {
                    part.fill(&live.bytes, live.done);
                }
                live.by_buffer = Some(part);
                self.tally.by_buffer += 1;
                step.bytes
            }
            Some(Step::Plain(length)) => length,
            None => left,
        };
        live.pieces = vec![(live.done, length, false)];
        let by_buffer = live.by_buffer.is_some();
        // Pieces of direct I/O consist of whole blocks.
        let unit = direct.map_or(SECTOR as u64, |d| d.block.into());
        let units = length / unit;
        if units > 1 && !by_buffer && self.rng.below(3) == 0 {
            let first = (1 + self.rng.below(units - 1)) * unit;
            let live = self.ios.get_mut(&io).expect("as above");
            live.pieces = vec![
                (live.done, first, false),
                (live.done + first, length - first, false),
            ];
        }
        for piece in 0..self.ios[&io].pieces.len() {
            self.send_piece(io, piece);
        }
    }

    fn send_piece(&mut self, io: u32, piece: usize) {
        // Second copies hang more often, which guests must not notice.
        let SimIo {
            volume, request, ..
        } = &self.ios[&io];
        let mirror = self.engines[*volume].mirror_status();
        let there = mirror.is_some_and(|m| m.share > 0.0 && m.to == request.device);
        let hangs = self.chance(self.faults.hang * if there { 40 } else { 1 });
        let wait_ns = match self.ios[&io].request.kind {
            _ if hangs => TIMEOUT_NS,
            IoKind::Flush => self.plan.flush_ns,
            _ => self.plan.io_ns,
        };
        let wait_ns = self.some(wait_ns);
        self.after(wait_ns, Event::Execute(io, piece));
    }

    /// Executes a piece on its device.
    pub(super) fn execute(&mut self, io: u32, piece: usize) {
        let fails = self.chance(self.faults.io);
        // A part of a failed piece may have been executed.
        let done = !fails || self.rng.below(2) == 0;
        let live = self.ios.get_mut(&io).expect("it was started");
        let device = live.device.clone().expect("it has pieces");
        let is_source = super::sources::is_source(live.request.device);
        if is_source && live.request.kind != IoKind::Read {
            panic!("a source is written to: {:?}", live.request);
        }
        if !is_source && self.faults.write_back > 0 && device.chance(self.faults.write_back) {
            device.lose();
            device.loss_pending.store(true, Ordering::Relaxed);
        }
        let result = if done {
            execute(
                live,
                piece,
                &device,
                self.plan.devices.get(live.request.device.index()),
            )
        } else {
            Ok(())
        };
        let mut lost = result.is_err();
        if fails && live.request.kind == (IoKind::Write { durable: true }) {
            device.lose();
            lost = true;
        }
        if fails || result.is_err() {
            live.result = Err(Fault::Io);
            self.tally.errors += 1;
        }
        let failed = live.result.is_err();
        // The data of a read-modify-write has been read; it is written next.
        let changes = live.by_buffer.as_mut().filter(|_| !failed);
        let changes = changes.is_some_and(|part| std::mem::take(&mut part.to_write));
        live.pieces[piece].2 = !changes;
        let over = live.pieces.iter().all(|p| p.2);
        if over {
            live.done += live.pieces.iter().map(|p| p.1).sum::<u64>();
            live.by_buffer = None;
        }
        let more = over && !failed && live.done < live.request.length;
        let (kind, at, volume) = (live.request.kind, live.request.device, live.volume);
        self.look_at_disks();
        let flushes = matches!(kind, IoKind::Flush | IoKind::Write { durable: true });
        if lost && flushes && !self.crashed {
            self.lost(at, volume);
        }
        let live = &self.ios[&io];
        if changes && live.opening != self.openings[at.index()] {
            self.begin_step(io); // ends it with an error
        } else if changes {
            self.tally.merged += 1;
            self.send_piece(io, piece);
        } else if more && kind != IoKind::Flush {
            self.begin_step(io);
        } else if over {
            let hangs = self.chance(self.faults.hang);
            let wait_ns = if hangs { TIMEOUT_NS } else { self.plan.hear_ns };
            let wait_ns = self.some(wait_ns);
            self.after(wait_ns, Event::Deliver(io));
        }
    }

    /// Reports lost data, which the kernel has reported to one engine, to all other engines.
    fn lost(&mut self, device: DeviceId, but: usize) {
        self.tally.losses += 1;
        for (i, engine) in self.engines.iter_mut().enumerate() {
            if i != but {
                engine.flush_failed_elsewhere(Failure::of_flush(device));
            }
        }
        self.forget_cached();
    }

    pub(super) fn deliver(&mut self, io: u32) -> Result<(), String> {
        let live = self.ios.remove(&io).expect("it was started");
        if let Some(number) = live.ordered {
            self.numbers[number as usize] = None;
            for next in self.order.over(number) {
                let io = self.numbers[next as usize].expect("it waits");
                self.begin_step(io);
            }
        }
        let volume = live.volume;
        let mut zeroes = Zeroes::No;
        if live.request.kind == IoKind::Read && live.result.is_ok() {
            if live.request.data == DataRef::Copy {
                if live.bytes.iter().all(|b| *b == 0) {
                    zeroes = Zeroes::All;
                }
                self.copies[volume] = live.bytes;
            } else if let DataRef::CopyUp(number) = live.request.data {
                if live.bytes.iter().all(|b| *b == 0) {
                    zeroes = Zeroes::All;
                }
                self.copies_up.insert((volume, number), live.bytes);
            } else if let DataRef::Guest { from, .. } = live.request.data
                && let Some((op, buffer)) = live.asked
                && let Some(asked) = self.asked.get_mut(&op)
                && asked.buffer == buffer
            {
                let from = from as usize;
                asked.bytes[from..from + live.bytes.len()].copy_from_slice(&live.bytes);
            }
        }
        self.engines[volume].io_done(self.now_ns, live.request.io, live.result, zeroes);
        self.settle(volume)
    }

    /// Simulates the end of the process: some I/O in flight is executed completely or partly.
    pub(super) fn tear(&mut self) {
        let ios = std::mem::take(&mut self.ios);
        for (_, mut live) in ios {
            for piece in 0..live.pieces.len() {
                if live.pieces[piece].2 || self.rng.below(3) == 0 {
                    continue;
                }
                let length = match &live.by_buffer {
                    Some(part) if !part.writing => continue,
                    Some(part) => part.step.length,
                    None => live.pieces[piece].1,
                };
                let sectors = length / SECTOR as u64;
                let some = self.rng.below(2 * sectors + 2).min(sectors);
                live.pieces[piece].1 = some * SECTOR as u64;
                let i = live.request.device.index();
                let device = live.device.clone().expect("it has pieces");
                if let Some(part) = &live.by_buffer {
                    let begun = &part.bytes[..some as usize * SECTOR];
                    let _ = device.disk.write(part.step.at, begun);
                } else if live.request.kind != IoKind::Flush {
                    let _ = execute(&mut live, piece, &device, self.plan.devices.get(i));
                }
            }
        }
    }
}

/// Executes a piece of an I/O on its disk.
fn execute(
    live: &mut SimIo,
    piece: usize,
    device: &super::device::SimDevice,
    plan: Option<&super::plan::DevicePlan>,
) -> Result<(), String> {
    if live.by_buffer.is_some() {
        return execute_by_buffer(live, device);
    }
    let (from, length, _) = live.pieces[piece];
    let at = live.request.at + from;
    let range = from as usize..(from + length) as usize;
    let disk = &device.disk;
    let text = |e: std::io::Error| e.to_string();
    match live.request.kind {
        IoKind::Read => disk.read(at, &mut live.bytes[range]).map_err(text),
        IoKind::Write { durable } => {
            disk.write(at, &live.bytes[range]).map_err(text)?;
            match durable {
                true => sync(device, at, length),
                false => Ok(()),
            }
        }
        IoKind::Discard if plan.is_some_and(|p| p.ignores_discards) => Ok(()),
        IoKind::Zero | IoKind::ZeroAllocated | IoKind::Discard => {
            disk.zero(at, length).map_err(text)
        }
        IoKind::Flush => device.flush(),
    }
}

/// Reads or writes the buffer of a step.
fn execute_by_buffer(live: &mut SimIo, device: &super::device::SimDevice) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let part = live.by_buffer.as_mut().expect("it has one");
    let BufferedPart { at, length, .. } = part.step;
    if part.writing {
        device.disk.write(at, &part.bytes).map_err(text)?;
        return match live.request.kind {
            IoKind::Write { durable: true } => sync(device, at, length),
            _ => Ok(()),
        };
    }
    device.disk.read(at, &mut part.bytes).map_err(text)?;
    if live.request.kind == IoKind::Read {
        let done = live.done as usize;
        let own = &part.bytes[part.step.own()];
        live.bytes[done..done + own.len()].copy_from_slice(own);
        return Ok(());
    }
    part.fill(&live.bytes, live.done);
    part.to_write = true;
    Ok(())
}

fn sync(device: &super::device::SimDevice, at: u64, length: u64) -> Result<(), String> {
    if device.loss_pending.swap(false, Ordering::Relaxed) {
        return Err("simulated: data was lost".into());
    }
    let synced = device.disk.sync_range(at, length);
    synced.map_err(|e| e.to_string())
}

impl ByBuffer {
    /// Copies the data to write into the buffer.
    fn fill(&mut self, bytes: &[u8], done: u64) {
        let (done, own) = (done as usize, self.step.own());
        self.bytes[own.clone()].copy_from_slice(&bytes[done..done + own.len()]);
        self.writing = true;
    }
}
