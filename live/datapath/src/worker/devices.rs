//! Effects of the engine: I/O on devices, answers, requests to the keeper, timers.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use model::{IoFailure, Op as ModelOp};
use rustix::io::Errno;
use tracing::warn;
use units::DeviceId;

use crate::clock;
use crate::device::{Backing, Device, Medium};
use crate::direct::Step;
use crate::engine::{DataRef, DeviceRequest, Effect, Failure, Fault, GuestRequest, IoKind, Zeroes};
use crate::io::{Allocate, Buf, Op, Outcome, Urgency, close_elsewhere};
use crate::keeper::KeeperMessage;

use super::guests::{AnswerTo, Guest, HEAD};
use super::second::NO_VOLUME;
use super::timers::TimerAction;
use super::volumes::{LiveIo, may_retry};
use super::zeroes::ZeroMethod;
use super::{Token, Worker};

/// Longest copy for a guest in one piece. A longer copy is split into slices, and other requests are answered in between.
const SLICE_BYTES: u64 = 128 << 10;

/// Slice of a copy for a move. It is short, because the target memory is often touched for the first time.
const BACKGROUND_SLICE_BYTES: u64 = 8 << 10;

impl Worker {
    /// Admits a request of a guest through the volume's stages, then submits it to the engine.
    pub(super) fn arrive(&mut self, volume: u32, guest: Guest, request: GuestRequest) {
        self.arrived += 1;
        self.readmit_throttled(volume);
        let live = self.volumes[volume as usize]
            .as_mut()
            .expect("it has connections");
        let go_ns = live.stages.arrived(self.now_ns, &request);
        self.submit_at(go_ns, volume, guest, request);
    }

    /// Readmits the held-back requests of a volume, in their order, if its limits have changed.
    #[inline]
    pub(super) fn readmit_throttled(&mut self, volume: u32) {
        let live = self.volumes[volume as usize].as_mut();
        if !live.is_some_and(|live| live.stages.throttle.limits_changed()) {
            return;
        }
        for due in self.timers.take_held_back(Some(volume)) {
            let TimerAction::Submit { guest, request, .. } = due else {
                unreachable!("requests only");
            };
            let live = self.volumes[volume as usize].as_mut();
            let throttle = &mut live.expect("it has requests").stages.throttle;
            let go_ns = throttle.readmitted(self.now_ns, &request);
            self.submit_at(go_ns, volume, guest, request);
        }
    }

    /// Submits a request to the engine at the time that the stages returned, or now if that time has passed.
    fn submit_at(&mut self, go_ns: u64, volume: u32, guest: Guest, request: GuestRequest) {
        if go_ns > self.now_ns {
            let due = TimerAction::Submit {
                volume,
                guest,
                request,
            };
            return self.timers.at(go_ns, due);
        }
        self.submit(volume, guest, request);
    }

    pub(super) fn submit(&mut self, volume: u32, guest: Guest, request: GuestRequest) {
        let Some((guest, request)) = self.through_cache(volume, guest, request) else {
            return;
        };
        let live = self.volumes[volume as usize]
            .as_mut()
            .expect("it has connections");
        live.engine.submit(self.now_ns, guest, request);
        self.carry_out(volume);
    }

    /// Adds a device, or replaces the one with the same number.
    pub(super) fn use_device(&mut self, device: Arc<Device>) {
        let index = device.id.index();
        if self.devices.len() <= index {
            self.devices.resize(index + 1, None);
        }
        let number = device.id.0;
        if let Some(before) = self.devices[index].replace(device) {
            close_elsewhere(before);
        }
        self.renew_turns(number);
    }

    /// Carries out the effects of a volume's engine.
    pub(super) fn carry_out(&mut self, volume: u32) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut at_rest = None;
        loop {
            let live = self.volumes[volume as usize]
                .as_mut()
                .expect("it has an engine");
            live.engine.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Io(request) => self.start_device(volume, request),
                    Effect::Reply {
                        guest,
                        request,
                        result,
                        gaps,
                    } => {
                        if let Some(buf) = guest.buf.as_ref().filter(|_| result.is_ok()) {
                            for (from, bytes) in gaps {
                                let from = HEAD + from as usize;
                                buf.fill(from..from + bytes as usize, |b| b.fill(0));
                            }
                        }
                        if matches!(guest.to, AnswerTo::SecondLevel { .. }) {
                            self.warm_over(volume, guest, &request, result);
                            continue;
                        }
                        if let Err(Fault::Device(failure)) = result
                            && failure.is_late()
                        {
                            self.count_failure(volume, failure);
                        }
                        if let Some((guest, request)) =
                            self.cached_over(volume, guest, request, result)
                        {
                            self.ready(volume, guest, request, result);
                        }
                    }
                    Effect::Store(request) => {
                        let id = self.volumes[volume as usize].as_ref().expect("as above").id;
                        let keeper = self.shared.keeper.as_ref();
                        let keeper = keeper.expect("only volumes of an array have a store");
                        let asked = KeeperMessage::Store {
                            worker: self.index,
                            volume: id,
                            request,
                        };
                        if keeper.send(asked).is_err() {
                            self.stopping = true; // the keeper ends only with the server
                        }
                    }
                    Effect::Wake(at_ns) => self.timers.at(at_ns, TimerAction::Wake(volume)),
                    Effect::MoveEnded(end) => self.move_ended(volume, end),
                    Effect::MirrorEnded(end) => self.mirror_ended(volume, end),
                    Effect::Again { guest, request } => self.again(volume, guest, request),
                    Effect::AtRest(result) => at_rest = Some(result),
                }
            }
        }
        self.effects = effects;
        if let Some(result) = at_rest {
            self.at_rest(volume, result);
        }
    }

    /// Repeats a read into a new buffer, because an earlier attempt may still write to the old one.
    fn again(&mut self, volume: u32, mut guest: Guest, request: GuestRequest) {
        let before = guest.buf.take().expect("a read has a buffer");
        guest.buf = Some(self.pool.take(before.len()));
        self.pool.give(before);
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has an engine");
        match guest.to {
            AnswerTo::SecondLevel { .. } => live.engine.submit_aside(self.now_ns, guest, request),
            _ => live.engine.submit(self.now_ns, guest, request),
        }
    }

    fn start_device(&mut self, volume: u32, request: DeviceRequest) {
        let DeviceRequest {
            io,
            device,
            kind,
            at,
            length,
            data,
        } = request;
        let live = self.volumes[volume as usize]
            .as_mut()
            .expect("it has an engine");
        let mut aside = false;
        let (buf, from) = match data {
            DataRef::Guest { request, from } => {
                let Some(guest) = live.engine.guest(request) else {
                    // The engine has ordered the read again before this I/O was started.
                    return live.engine.not_begun(self.now_ns, io);
                };
                aside = matches!(guest.to, AnswerTo::SecondLevel { .. });
                let buf = guest.buf.clone().expect("reads and writes have a buffer");
                (Some(buf), HEAD + from as usize)
            }
            DataRef::Copy => {
                let buf = live.copy.get_or_insert_with(|| Buf::new(length as usize));
                if (buf.len() as u64) < length {
                    *buf = Buf::new(length as usize);
                }
                (Some(buf.clone()), 0)
            }
            DataRef::CopyUp(number) => {
                let buf = live.copies_up.entry(number);
                let buf = buf.or_insert_with(|| Buf::new(length as usize));
                if (buf.len() as u64) < length {
                    *buf = Buf::new(length as usize);
                }
                (Some(buf.clone()), 0)
            }
            DataRef::None => (None, 0),
        };
        let background = aside || data == DataRef::Copy || live.engine.is_behind(data);
        let copies = matches!(data, DataRef::Copy | DataRef::CopyUp(_));
        let opening = self.opening_of(device.0);
        let handle = self.devices[device.index()]
            .clone()
            .expect("places are on known devices");
        let op = counted_as(kind);
        if !background
            && !copies
            && let Some(ns) = handle.stages.emulate.occupancy_ns(op, length)
        {
            let live = self.volumes[volume as usize].as_mut();
            live.expect("it has an engine").took.add(device, op, ns);
        }
        let id = self.ios.insert(LiveIo {
            volume,
            io,
            kind,
            device: device.0,
            start: handle.start,
            at,
            length,
            buf,
            from,
            done: 0,
            retries: 0,
            background,
            copies,
            not_before_ns: handle.stages.over_at(self.now_ns, op, length),
            zeroing: ZeroMethod::Asked,
            opening,
            turn: None,
            by_buffer: None,
            result: Ok(()),
        }) as u32;
        match &handle.medium {
            Medium::File(..) => self.start_in_order(id),
            Medium::Nbd(..) => self.start_remote(id),
            Medium::Lost => self.start_lost(id),
        }
    }

    /// Completes an I/O on a lost device. Flushes and discards succeed: nothing acknowledged is left to flush, and the
    /// engine reports the losses. All other kinds fail.
    pub(super) fn start_lost(&mut self, id: u32) {
        let live = &mut self.ios[id as usize];
        if !matches!(live.kind, IoKind::Flush | IoKind::Discard) {
            live.result = Err(Fault::of(DeviceId(live.device), live.kind, Errno::NODEV));
        }
        // The engine is busy with its effects: the completion follows in the next turn.
        self.lost.push(id);
    }

    /// Starts or continues an I/O on a file.
    pub(super) fn start_file(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        let device = self.devices[usize::from(live.device)]
            .as_ref()
            .expect("in use");
        let Medium::File(file, backing) = &device.medium else {
            // The device was lost between two pieces of this I/O.
            return self.start_lost(id);
        };
        if self.is_past(live) {
            return self.start_lost(id);
        }
        if *backing == Backing::Memory && copies_memory(live) {
            if live.background || live.length > SLICE_BYTES {
                return self.large.push_back(id);
            }
            let outcome = copy_memory(file, live, SLICE_BYTES);
            return self.at_once.push((id, outcome));
        }
        let moves_data = moves_data(live);
        let (file, length) = match device.direct().filter(|_| moves_data) {
            None => (file.clone(), live.left()),
            Some(direct) => match direct.alignment.step(
                live.kind != IoKind::Read,
                live.place(),
                live.left(),
                live.in_memory(),
            ) {
                Step::Plain(length) => (direct.file.clone(), length),
                Step::Through(step) => return self.begin_by_buffer(id, step),
            },
        };
        let (at, length) = (live.place(), length as usize);
        let urgency = live.urgency();
        let range = live.in_memory()..live.in_memory() + length;
        let buf = || live.buf.as_ref().expect("reads and writes have a buffer");
        let op = match live.kind {
            IoKind::Read => Op::Read {
                file,
                at,
                to: buf().target(range),
                urgency,
            },
            IoKind::Write { .. } => Op::Write {
                file,
                at,
                from: buf().source(range),
                durable: live.is_durable(),
                urgency,
            },
            _ if moves_data => Op::Write {
                file,
                at,
                from: buf().source(range),
                durable: false,
                urgency: Urgency::Background,
            },
            IoKind::Flush => Op::Sync { file },
            IoKind::Zero | IoKind::Discard => Op::Allocate {
                file,
                how: Allocate::Punch,
                at,
                len: live.length,
            },
            IoKind::ZeroAllocated => Op::Allocate {
                file,
                how: Allocate::Zero,
                at,
                len: live.length,
            },
        };
        self.io.start(Token::Device(id).pack(), op);
    }

    /// Handles the results of I/Os that completed synchronously. The I/Os that follow from them run in the next turn, so
    /// sockets are served between two slices of a copy.
    pub(super) fn finish_at_once(&mut self) {
        for id in std::mem::take(&mut self.lost) {
            self.now_ns = clock::now_ns();
            self.device_over(id);
        }
        let mut done = std::mem::take(&mut self.at_once);
        for (id, outcome) in done.drain(..) {
            self.now_ns = clock::now_ns();
            self.device_done(id, outcome);
        }
        if self.at_once.is_empty() {
            self.at_once = done; // reuses the allocation
        }
    }

    /// Copies one slice of a long copy. Answers are sent and sockets are read between two slices.
    pub(super) fn copy_a_slice(&mut self) {
        let Some(id) = self.large.pop_front() else {
            return;
        };
        let live = &self.ios[id as usize];
        let device = self.devices[usize::from(live.device)]
            .as_ref()
            .expect("in use");
        let Medium::File(file, _) = &device.medium else {
            return self.start_lost(id);
        };
        let most = if live.background {
            BACKGROUND_SLICE_BYTES
        } else {
            SLICE_BYTES
        };
        let outcome = copy_memory(file, live, most);
        self.now_ns = clock::now_ns();
        self.device_done(id, outcome);
    }

    pub(super) fn device_done(&mut self, id: u32, outcome: Outcome) {
        let live = &mut self.ios[id as usize];
        if live.volume == NO_VOLUME {
            return self.second_file_done(id, outcome);
        }
        if live.by_buffer.is_some() {
            return self.by_buffer_done(id, outcome);
        }
        let written = live.zeroing == ZeroMethod::Written;
        let moves_data = moves_data(live);
        let result = match (outcome, live.kind) {
            // The file ends before its slots do.
            (Ok(0), _) if moves_data && live.length > 0 => Err(self.failed(id, Errno::IO)),
            (Ok(n), _) if moves_data => {
                live.done += u64::from(n);
                if live.done < live.length {
                    return self.start_file(id);
                }
                Ok(())
            }
            (Ok(_), _) => Ok(()),
            (Err(Errno::INTR | Errno::AGAIN), _) if may_retry(&mut live.retries) => {
                return self.start_file(id);
            }
            (Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL), IoKind::Discard) => Ok(()),
            (Err(Errno::OPNOTSUPP | Errno::INVAL), IoKind::Zero | IoKind::ZeroAllocated)
                if !written =>
            {
                return self.write_zeroes(id);
            }
            (Err(errno), _) => Err(self.failed(id, errno)),
        };
        self.ios[id as usize].result = result;
        self.device_settled(id);
    }

    /// Counts a failed I/O, and returns the fault for the answer.
    #[cold]
    pub(super) fn failed(&self, id: u32, errno: Errno) -> Fault {
        let live = &self.ios[id as usize];
        let failure = Failure::new(DeviceId(live.device), live.kind, errno);
        self.count_failure(live.volume, failure);
        Fault::Device(failure)
    }

    /// Counts and logs a failure for the operator, who needs more details than the guest's error has.
    #[cold]
    pub(super) fn count_failure(&self, volume: u32, failure: Failure) {
        let device = self.devices.get(failure.device.index());
        let Some(device) = device.and_then(Option::as_ref) else {
            return; // the device of an L2 cache is not part of the array
        };
        let Some(times) = device.failed(failure.kind.name(), failure.errno) else {
            return;
        };
        let volume = self.volumes[volume as usize].as_ref();
        let volume = volume.map(|v| v.name.as_str());
        let IoFailure { device, op, errno } = self.failed_io(failure);
        warn!(device, op, errno, volume, times, "device I/O error");
    }

    /// Completes an I/O, after the delay imposed by the device's stages.
    pub(super) fn device_settled(&mut self, id: u32) {
        let not_before_ns = self.ios[id as usize].not_before_ns;
        if not_before_ns > 0 && not_before_ns > clock::now_ns() {
            return self.timers.at(not_before_ns, TimerAction::Device(id));
        }
        self.device_over(id);
    }

    /// Passes the result of an I/O to the engine.
    pub(super) fn device_over(&mut self, id: u32) {
        let of = &self.ios[id as usize];
        if of.volume == NO_VOLUME {
            return self.second_over(id, of.result.is_ok());
        }
        let live = self.ios.remove(id as usize);
        if let Some(turn) = live.turn {
            self.end_turn(live.device, turn, live.opening);
        }
        for next in self.order.over(id) {
            self.start_when_ordered(next);
        }
        if live.result.is_ok() {
            let device = self.devices[usize::from(live.device)].as_ref();
            let device = device.expect("it was in use");
            device.completed(counted_as(live.kind), live.length);
        }
        let copies = live.copies && live.kind == IoKind::Read && live.result.is_ok();
        let zeroes = match &live.buf {
            Some(buf) if copies => buf.with(0..live.length as usize, all_zeroes),
            _ => Zeroes::No,
        };
        // The kernel reports losses of earlier writes at a durable write, as at a flush.
        let flushes = matches!(live.kind, IoKind::Flush | IoKind::Write { durable: true });
        if flushes && let Err(fault) = live.result {
            let device = DeviceId(live.device);
            let unknown = || Failure::of_flush(device);
            let failure = fault.failure().unwrap_or_else(unknown);
            self.flush_failed(live.volume, failure);
        }
        let volume = live.volume;
        drop(live.buf);
        let Some(of) = self.volumes[volume as usize].as_mut() else {
            return;
        };
        of.engine.io_done(self.now_ns, live.io, live.result, zeroes);
        self.carry_out(volume);
    }
}

/// Returns true if bytes are transferred between the buffer and the file.
fn moves_data(live: &LiveIo) -> bool {
    let written = live.zeroing == ZeroMethod::Written;
    matches!(live.kind, IoKind::Read | IoKind::Write { .. }) || written
}

/// Returns the kind under which a device's stages and counters count an I/O.
fn counted_as(kind: IoKind) -> ModelOp {
    match kind {
        IoKind::Read => ModelOp::Read,
        IoKind::Write { .. } => ModelOp::Write,
        IoKind::Flush => ModelOp::Flush,
        IoKind::Zero | IoKind::ZeroAllocated | IoKind::Discard => ModelOp::Trim,
    }
}

fn copies_memory(live: &LiveIo) -> bool {
    matches!(live.kind, IoKind::Read | IoKind::Write { durable: false })
}

/// Copies a piece of a file in memory. Asynchronous I/O would cost more than the copy itself.
fn copy_memory(file: &std::fs::File, live: &LiveIo, most: u64) -> Outcome {
    let at = live.place();
    let from = live.from + live.done as usize;
    let range = from..from + most.min(live.length - live.done) as usize;
    let buf = live.buf.as_ref().expect("reads and writes have a buffer");
    let done = match live.kind {
        IoKind::Read => buf.fill(range, |bytes| file.read_at(bytes, at)),
        _ => buf.with(range, |bytes| file.write_at(bytes, at)),
    };
    done.map(|n| n as u32)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

fn all_zeroes(bytes: &[u8]) -> Zeroes {
    let (words, rest) = bytes.as_chunks::<64>();
    let zero = words.iter().all(|w| *w == [0; 64]) && rest.iter().all(|b| *b == 0);
    if zero { Zeroes::All } else { Zeroes::No }
}
