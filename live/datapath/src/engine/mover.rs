//! Execution of a move, or of the copy of a mirror: requests to the keeper for slots and switches, chunks and flushes on
//! devices, grace periods for earlier requests. [`volume::Mover`] decides the steps.

use model::{ExtentRanges, Objective, Op};
use units::{Bytes, BytesPerSec, DeviceId};
use volume::{
    Chunk, DeviceIo, FlushResult, Guests, Location, MoveLimits, MoveOrder, MoveStep, Mover,
    NeighborSlack, Purpose, Slack,
};

use super::retry::Retry;
use super::{
    DataRef, Effect, Engine, EngineLimits, Fault, IoKind, MirrorEnd, Owner, StopReason,
    StoreRequest, Zeroes,
};

/// End of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveEnd {
    /// All data is on the target.
    Done {
        /// Number of copied bytes, including repeated copies.
        copied: Bytes,
    },
    /// Cancelled or failed; batches that were switched stay on the target.
    Stopped { why: StopReason, copied: Bytes },
}

/// Progress of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveStatus {
    /// Target device.
    pub to: DeviceId,
    /// Number of copied bytes, including repeated copies.
    pub copied: Bytes,
    /// Extents that move; none for all.
    pub extents: Option<ExtentRanges>,
    /// Number of bytes that are not on the target yet. For a part of the extents it is an upper bound, which includes
    /// extents that are trimmed meanwhile.
    pub left: Bytes,
    /// Present limit of its bandwidth.
    pub rate: BytesPerSec,
    pub phase: &'static str,
}

impl<G> Engine<G> {
    /// Starts a move. It yields to guests of other volumes according to `others`.
    ///
    /// # Errors
    /// The progress of the move that is already running.
    pub fn start_move(
        &mut self,
        now_ns: u64,
        order: MoveOrder,
        others: NeighborSlack,
    ) -> Result<(), MoveStatus> {
        assert_eq!(order.purpose, Purpose::Move, "a mirror is another order");
        if let Some(status) = self.move_status() {
            return Err(status);
        }
        self.now_ns = now_ns;
        self.others = others;
        if self.mirror.is_some() {
            self.next_move = Some(order);
            self.mirror_makes_way(StopReason::MadeWay("a move"));
        } else {
            self.mover = Some(self.new_mover(order));
        }
        self.settle();
        Ok(())
    }

    pub(super) fn new_mover(&self, order: MoveOrder) -> Mover<StopReason> {
        let EngineLimits {
            copy_chunk: least,
            copy_chunk_max: most,
            ..
        } = self.limits;
        let limits = MoveLimits {
            batch: self.limits.batch,
            chunk: volume::copy_chunk(least, most, order.bandwidth, &self.latency),
        };
        Mover::new(self.now_ns, order, limits, &self.map)
    }

    /// Returns the order of the running move; none for a mirror.
    pub(super) fn moves_by(&self) -> Option<&MoveOrder> {
        let order = self.mover.as_ref().map(Mover::order);
        order.filter(|o| o.purpose == Purpose::Move)
    }

    /// Cancels the move as soon as that is safe. Its end follows as [`Effect::MoveEnded`]. Returns true if a move exists.
    pub fn cancel_move(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        if self.next_move.take().is_some() {
            self.effects.push(Effect::Store(StoreRequest::MoveOver));
            let (why, copied) = (StopReason::Cancelled, Bytes::ZERO);
            let end = MoveEnd::Stopped { why, copied };
            self.effects.push(Effect::MoveEnded(end));
            return true;
        }
        let running = self.mover.is_some() && self.mirror.is_none();
        if running {
            self.give_up(StopReason::Cancelled);
        }
        self.settle();
        running
    }

    /// Returns the progress of the move, if one exists.
    pub fn move_status(&self) -> Option<MoveStatus> {
        if let Some(next) = &self.next_move {
            return Some(MoveStatus {
                to: next.to,
                extents: next.extents.clone(),
                copied: Bytes::ZERO,
                left: self.map.bytes_not_on(next.selection(), next.to),
                rate: next.bandwidth,
                phase: "preparing",
            });
        }
        let mover = self.mover.as_ref().filter(|_| self.mirror.is_none())?;
        Some(MoveStatus {
            to: mover.order().to,
            extents: mover.order().extents.clone(),
            copied: mover.copied(),
            left: mover.left(&self.map),
            rate: mover.rate(),
            phase: mover.phase(),
        })
    }

    /// Returns the target of the running move, or the device of the second copies.
    pub fn move_target(&self) -> Option<DeviceId> {
        self.mover.as_ref().map(|m| m.order().to)
    }

    /// Returns the present bandwidth of the running move.
    pub fn move_rate(&self) -> Option<BytesPerSec> {
        self.mover.as_ref().map(Mover::rate)
    }

    /// Sets the latency objective, and returns the guest's use of it.
    pub fn slack(&mut self, target: Option<Objective>) -> Slack {
        self.judged.hold_to(self.now_ns, target);
        let asked = self.requests.iter().map(|(_, s)| s);
        let unanswered = asked.filter(|s| s.guest.is_some() && !s.aside);
        let ages_ns = unanswered.map(|s| self.now_ns.saturating_sub(s.since_ns));
        self.slack = self.judged.look(self.now_ns, ages_ns);
        self.slack
    }

    /// Sets the use of objectives by guests of other volumes on the devices of the move, which yields to them.
    pub fn yield_to(&mut self, others: NeighborSlack) {
        self.others = others;
    }

    pub(super) fn give_up(&mut self, why: StopReason) {
        if let Some(mover) = &mut self.mover
            && mover.give_up(&mut self.map, why)
        {
            self.retry = Retry::All;
            self.shed_if_mirror();
        }
    }

    fn shed_if_mirror(&mut self) {
        if self.mirror.is_some() {
            self.shed();
        }
    }

    /// Handles a failed write or flush of the second copy or the target. Returns true if the failure affects only the move
    /// or mirror.
    pub(super) fn mirror_failed(&mut self, fault: Fault) -> bool {
        self.give_up(match fault.failure() {
            Some(failure) if failure.kind == IoKind::Flush => {
                StopReason::TargetFlush(Some(failure))
            }
            _ => StopReason::TargetWrite(fault),
        });
        // After the request for the switch, the target may have the authoritative data.
        self.mover.as_ref().is_some_and(Mover::is_given_up)
    }

    pub(super) fn step_move(&mut self) {
        if self.moves_wait() && self.mover.as_ref().is_some_and(|m| m.is_between()) {
            return;
        }
        let Some(mover) = &mut self.mover else { return };
        if self.earlier.take_if(|e| self.grace.passed(*e)).is_some() {
            mover.earlier_complete(&mut self.map);
        }
        self.take_steps();
        self.watch_progress();
    }

    /// Runs the steps of the move until it has to wait.
    fn take_steps(&mut self) {
        while let Some(mover) = &mut self.mover {
            let guests = Guests {
                own: &self.latency,
                others: self.others,
            };
            let Some(step) = mover.step(self.now_ns, &mut self.map, guests) else {
                return;
            };
            match step {
                MoveStep::Reserve { device, count } => {
                    let reserve = StoreRequest::Reserve { device, count };
                    self.effects.push(Effect::Store(reserve));
                }
                MoveStep::Wake(at_ns) => self.effects.push(Effect::Wake(at_ns)),
                MoveStep::Read { chunk, from } => {
                    self.copy_io(Owner::CopyRead, chunk, from, IoKind::Read);
                }
                MoveStep::Flush { device } => {
                    let batch = self.batches;
                    self.start_flush(Owner::MoveFlush { batch }, device);
                }
                MoveStep::Switch => self.ask_for_switch(),
                MoveStep::Free { slots } => {
                    let free = StoreRequest::Free { slots };
                    self.effects.push(Effect::Store(free));
                    self.retry = Retry::All;
                    return;
                }
                MoveStep::Over => return self.end_move(),
            }
        }
    }

    fn watch_progress(&mut self) {
        let stuck = self.mover.as_ref().filter(|m| m.is_stuck(self.now_ns));
        if let Some(to) = stuck.map(|m| m.order().to) {
            let late = self.late_io(|io| match io.owner {
                Owner::CopyRead | Owner::CopyWrite => true,
                Owner::Flush => io.device == to,
                _ => false,
            });
            self.give_up(StopReason::NoProgress(late));
        }
    }

    pub(super) fn reserved(&mut self, slots: Result<Vec<Location>, Fault>) {
        let to = self
            .mover
            .as_ref()
            .expect("slots are for a move")
            .order()
            .to;
        let losses = self.losses(to);
        let slots = slots.map_err(|fault| match fault {
            Fault::NoSpace => StopReason::NoSpace,
            Fault::Lost => StopReason::TargetLost,
            _ => StopReason::Store,
        });
        let mover = self.mover.as_mut().expect("slots are for a move");
        let reserved = mover.reserved(self.now_ns, &mut self.map, slots, losses);
        if !reserved.unused.is_empty() {
            let slots = reserved.unused;
            self.effects
                .push(Effect::Store(StoreRequest::Free { slots }));
        }
        if reserved.begun {
            self.earlier = Some(self.grace.end_epoch());
            self.begins_on(to);
            self.batches += 1;
            if let Some(mirror) = &mut self.mirror {
                let targets = self.map.batch_targets();
                mirror.bytes = targets.iter().map(|t| self.map.bytes_of(t.0)).sum();
            }
        }
    }

    fn copy_io(&mut self, owner: Owner, chunk: Chunk, end: (DeviceId, u64), kind: IoKind) {
        if let Some(mirror) = &mut self.mirror {
            mirror.chunk_since_ns = Some(self.now_ns);
        }
        let part = DeviceIo {
            device: end.0,
            op: Op::Read,
            offset: chunk.offset,
            length: chunk.length,
            at: end.1,
            mirror: false,
        };
        let data = match kind {
            IoKind::Read | IoKind::Write { .. } => DataRef::Copy,
            _ => DataRef::None,
        };
        self.start_io(owner, part, kind, data);
    }

    fn copy_io_done(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.chunk_since_ns = None;
        }
    }

    pub(super) fn copy_read_done(&mut self, result: Result<(), Fault>, zeroes: Zeroes) {
        self.copy_io_done();
        if let Err(fault) = result {
            return self.copy_failed(StopReason::Source(fault));
        }
        let mover = self.mover.as_mut().expect("a move ends after its chunks");
        let Some((chunk, target)) = mover.chunk_read(self.now_ns, &mut self.map) else {
            return;
        };
        let kind = match zeroes {
            Zeroes::No => IoKind::Write { durable: false },
            Zeroes::All => IoKind::Zero,
        };
        self.copy_io(Owner::CopyWrite, chunk, target, kind);
    }

    pub(super) fn copy_write_done(&mut self, result: Result<(), Fault>) {
        self.copy_io_done();
        if let Err(fault) = result {
            return self.copy_failed(StopReason::TargetWrite(fault));
        }
        let mover = self.mover.as_mut().expect("a move ends after its chunks");
        if let Some(chunk) = mover.chunk_written(self.now_ns, &mut self.map) {
            let bytes = chunk.offset..chunk.offset + chunk.length;
            self.retry.touching(bytes);
        }
    }

    fn copy_failed(&mut self, why: StopReason) {
        let mover = self.mover.as_mut().expect("a move ends after its chunks");
        if mover.chunk_failed(&mut self.map, why) {
            self.retry = Retry::All;
            self.shed_if_mirror();
        }
    }

    pub(super) fn move_flush_done(&mut self, batch: u64) {
        let Some(to) = self.mover.as_ref().map(|m| m.order().to) else {
            return; // stopped meanwhile
        };
        if batch != self.batches {
            return; // likewise, and another one is running
        }
        let losses = self.losses(to);
        let mover = self.mover.as_mut().expect("it was just looked at");
        match mover.flushed(self.now_ns, losses) {
            FlushResult::Durable => self.ask_for_switch(),
            FlushResult::Lost => {
                let loss = self.loss(to).failure();
                self.give_up(StopReason::TargetFlush(loss));
            }
            FlushResult::GivenUp => {}
        }
    }

    fn ask_for_switch(&mut self) {
        let targets = self.map.batch_targets();
        let places = targets.into_iter().map(|(e, l)| (e as u32, l)).collect();
        let switch = StoreRequest::Switch { places };
        self.effects.push(Effect::Store(switch));
    }

    pub(super) fn switched(&mut self, done: Result<(), Fault>) {
        let mover = self.mover.as_mut().expect("a switch has its move");
        if done.is_err() {
            let again_ns = mover.switch_unknown(self.now_ns);
            self.effects.push(Effect::Wake(again_ns));
            return;
        }
        mover.switched(self.now_ns, &mut self.map);
        self.retry = Retry::All;
    }

    fn end_move(&mut self) {
        let mover = self.mover.take().expect("a move ends once");
        let (why, copied) = mover.into_end();
        if let Some(mirror) = self.mirror.take() {
            let reads = mirror.reads;
            let end = MirrorEnd { why, copied, reads };
            self.effects.push(Effect::MirrorEnded(end));
            if let Some(next) = self.next_move.take() {
                self.mover = Some(self.new_mover(next));
            }
            self.retry = Retry::All; // requests that waited for it continue
            return;
        }
        self.effects.push(Effect::Store(StoreRequest::MoveOver));
        self.effects.push(Effect::MoveEnded(match why {
            None => MoveEnd::Done { copied },
            Some(why) => MoveEnd::Stopped { why, copied },
        }));
    }
}
