//! Moves in the simulated array: carries out the executor's actions against volumes, space and devices.
//!
//! The executor knows one copy per move. Here it is done in batches: each waits for the requests issued before it, is
//! copied, switched and released, then the next one begins. While nothing can be copied the executor is told so.

use algo::mix;
use executor::{Action, Input, JobId, JobState};
use model::{ExtentRanges, Op, Plan};
use units::{Bytes, DeviceId, Nanos, VolumeId};
use volume::{BATCH_BYTES, Batch, CopyStep, Earlier, Location, RelocationError, Selection};

use crate::device::Io;
use crate::engine::{Event, Simulation};
use crate::result::{MoveRecord, MoveTotals};

/// How long a copy waits when the piece it wants has guest writes in flight.
const COPY_RETRY_NS: u64 = 200_000;

/// A move as the array carries it out: batch after batch, each with its own copy, switch and release.
pub(crate) struct Moving {
    job: JobId,
    to: DeviceId,
    /// What of the volume moves; `None` is all of it.
    extents: Option<ExtentRanges>,
    /// Where to look for the next batch.
    cursor: usize,
    /// Space on the target for what is not released to it yet.
    reserved: Bytes,
    /// Places that are free once the batch is released: the targets, or what they came to replace after the switch.
    places: Vec<Location>,
    /// Bytes of the batch, by the device that they leave.
    leaving: Vec<(DeviceId, Bytes)>,
    /// The batch is on the target; what was its place waits for the requests that know it.
    switched: bool,
    /// When the requests that the batch waits for before its copy, or after its switch, are complete.
    quiet_ns: u64,
}

impl Moving {
    fn selected(&self) -> Selection<'_> {
        self.extents
            .as_ref()
            .map_or(Selection::Whole, Selection::Extents)
    }

    fn leaves(&mut self, device: DeviceId, bytes: Bytes) {
        match self.leaving.iter_mut().find(|l| l.0 == device) {
            Some(l) => l.1 += bytes,
            None => self.leaving.push((device, bytes)),
        }
    }

    /// Whether the batch waits to be released.
    #[cfg(test)]
    pub(crate) fn switched(&self) -> bool {
        self.switched
    }

    /// Places that the batch holds besides its volume's.
    #[cfg(test)]
    pub(crate) fn places(&self) -> &[Location] {
        &self.places
    }

    /// Adds what the move has reserved by device; what left its place and is not released yet is still used there.
    #[cfg(test)]
    pub(crate) fn count(&self, used: &mut [Bytes], reserved: &mut [Bytes]) {
        reserved[self.to.index()] += self.reserved;
        for (from, bytes) in self.leaving.iter().filter(|_| self.switched) {
            used[from.index()] += *bytes;
            used[self.to.index()] -= *bytes;
        }
    }

    /// Bytes still to copy after the batch that is being copied: what is reserved and not for the batch.
    fn after_batch(&self) -> Bytes {
        self.reserved - self.leaving.iter().map(|l| l.1).sum()
    }
}

impl Simulation<'_> {
    /// Hands a plan to the executor.
    pub(crate) fn carry_out(&mut self, now_ns: u64, plan: Plan) {
        let at = plan.at;
        self.input(now_ns, Input::Plan(Box::new(plan)));
        self.planned_at.resize(self.executor.jobs().len(), at);
    }

    pub(crate) fn input(&mut self, now_ns: u64, input: Input) {
        self.executor
            .handle(Nanos(now_ns), input)
            .expect("plans come in order of generation");
        while let Some(action) = self.executor.poll_action() {
            self.perform_action(now_ns, action);
        }
    }

    fn perform_action(&mut self, now_ns: u64, action: Action) {
        match action {
            Action::Reserve {
                job, volume, to, ..
            } => {
                if self.begin_move(now_ns, job, volume.index(), to) {
                    self.input(now_ns, Input::Reserved(job));
                } else {
                    self.input(now_ns, Input::Refused(job));
                }
            }
            Action::Copy { job, at, .. } => self.agenda.at(at.0.max(now_ns), Event::CopyStart(job)),
            Action::Switch { job, at, .. } => {
                self.agenda.at(at.0.max(now_ns), Event::Switch(job));
            }
            Action::Release { volume, .. } => self.release_if_drained(now_ns, volume.index()),
            Action::Abort { volume, .. } => {
                let v = volume.index();
                match self.world.maps[v].cancel_relocation() {
                    Ok(()) => self.retry_held(now_ns, v),
                    // The last batch that was copied is the target's; what follows stays where it is.
                    Err(RelocationError::TooLate) => {}
                    Err(e) => unreachable!("a job that is aborted has a relocation: {e}"),
                }
                self.release_if_drained(now_ns, v);
            }
        }
    }

    /// Reserves space for what is not on the target yet and begins with the first batch; whether there was room.
    fn begin_move(&mut self, now_ns: u64, job: JobId, volume: usize, to: DeviceId) -> bool {
        let extents = self.executor.job(job).order.extents.clone();
        let mut moving = Moving {
            job,
            to,
            extents,
            cursor: 0,
            reserved: Bytes::ZERO,
            places: vec![],
            leaving: vec![],
            switched: false,
            quiet_ns: now_ns,
        };
        let size = self.world.maps[volume].bytes_not_on(moving.selected(), to);
        let d = to.index();
        let capacity = self.model.topology.device(to).spec.capacity;
        if self.used[d] + self.reserved[d] + size > capacity || self.moving[volume].is_some() {
            return false;
        }
        self.reserved[d] += size;
        moving.reserved = size;
        self.begin_batch(now_ns, volume, moving);
        true
    }

    /// Begins with the next batch of a move; there is one.
    fn begin_batch(&mut self, now_ns: u64, volume: usize, mut moving: Moving) {
        let map = &mut self.world.maps[volume];
        let to = moving.to;
        let extents = map
            .next_batch(moving.selected(), moving.cursor, to, BATCH_BYTES)
            .expect("the last batch ends the copy");
        moving.cursor = extents.end;
        moving.leaving.clear();
        moving.switched = false;
        moving.quiet_ns = self.world.last_done_ns[volume];
        let first = extents.start;
        let mut targets = Vec::with_capacity(extents.len());
        for extent in extents {
            let meant = moving.selected().contains(extent);
            let source = map.location(extent);
            let source = source.filter(|l| l.device != to && meant);
            if let Some(source) = source {
                moving.leaves(source.device, map.bytes_of(extent));
            }
            let slots = &mut self.world.slots[to.index()];
            let target = source.map(|_| Location {
                device: to,
                slot: slots.take(),
            });
            targets.push(target);
        }
        moving.places = targets.iter().flatten().copied().collect();
        let earlier = if moving.quiet_ns > now_ns {
            let volume = volume as u32;
            self.agenda.at(moving.quiet_ns, Event::Earlier { volume });
            Earlier::InFlight
        } else {
            Earlier::None
        };
        map.begin_relocation(Batch { first, targets }, self.model.copy_chunk, earlier)
            .expect("the volume is at rest, and the batch is elsewhere");
        self.moving[volume] = Some(moving);
        self.world.refresh_route(volume);
    }

    /// A request on a volume that is being moved is complete: what waited for it may go on.
    pub(crate) fn after_completion(&mut self, now_ns: u64, volume: usize) {
        self.retry_held(now_ns, volume);
        self.release_if_drained(now_ns, volume);
    }

    /// The last batch's switch.
    pub(crate) fn switch(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Switching {
            return; // failed meanwhile
        }
        let v = self.executor.job(job).order.volume.index();
        self.switch_batch(v);
        self.input(now_ns, Input::Switched(job));
        self.retry_held(now_ns, v);
    }

    /// Makes the target the truth for one batch. In the simulation a switch is durable at once.
    fn switch_batch(&mut self, volume: usize) {
        let left = self.world.maps[volume]
            .switch()
            .expect("switched when all of the batch is copied");
        self.world.refresh_route(volume);
        let moving = self.moving[volume].as_mut().expect("a batch has its move");
        moving.switched = true;
        moving.places = left;
        moving.quiet_ns = self.world.last_done_ns[volume];
    }

    /// Once no request knows what a batch gave up: frees the source of one that was switched, and goes on to the next batch
    /// or to the end. Of a move that was given up the space that it did not come to use is free.
    fn release_if_drained(&mut self, now_ns: u64, volume: usize) {
        if !self.world.maps[volume].released() {
            return;
        }
        self.world.refresh_route(volume);
        let mut moving = self.moving[volume].take().expect("a batch has its move");
        let to = moving.to.index();
        self.world.give_back(&mut moving.places);
        if moving.switched {
            for (from, bytes) in &moving.leaving {
                self.used[from.index()] -= *bytes;
                self.used[to] += *bytes;
                self.reserved[to] -= *bytes;
                moving.reserved -= *bytes;
            }
        }
        match self.executor.job(moving.job).state {
            JobState::Copying => self.begin_batch(now_ns, volume, moving),
            JobState::Releasing => self.input(now_ns, Input::Released(moving.job)),
            _ => self.reserved[to] -= moving.reserved,
        }
    }

    /// Half of the copy of a piece; when it is done.
    fn copy_io(
        &mut self,
        now_ns: u64,
        volume: usize,
        op: Op,
        (device, at): (DeviceId, u64),
        length: u64,
    ) -> u64 {
        self.copies += 1;
        let io = Io {
            op,
            at,
            length,
            volume: VolumeId::from_index(volume),
            copy: true,
            bits: mix(mix(self.model.seed, 0xC0B1), self.copies),
        };
        self.world.devices[device.index()].submit(now_ns, &io)
    }

    pub(crate) fn copy_start(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Copying {
            return; // cancelled meanwhile
        }
        let v = self.executor.job(job).order.volume.index();
        match self.world.maps[v]
            .next_copy()
            .expect("a copying job has a relocation")
        {
            CopyStep::Copy(chunk) => {
                let (source, _) = self.world.maps[v].copy_ends(chunk);
                let done = self.copy_io(now_ns, v, Op::Read, source, chunk.length);
                let slot = job.0 as usize;
                if self.copying.len() <= slot {
                    self.copying.resize(slot + 1, None);
                }
                self.copying[slot] = Some(chunk);
                self.agenda.at(done, Event::CopyRead(job));
            }
            // Done: the batch was switched, and the next one begins when its source is released.
            CopyStep::Wait | CopyStep::Done => {
                let moving = self.moving[v].as_ref().expect("a copying job has its move");
                let retry = Nanos(moving.quiet_ns.max(now_ns + COPY_RETRY_NS));
                self.input(now_ns, Input::CopyBlocked { job, retry });
            }
        }
    }

    pub(crate) fn copy_read(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Copying {
            return self.abandon_copy(now_ns, job);
        }
        let chunk = self.copying[job.0 as usize].expect("a piece was read");
        let v = self.executor.job(job).order.volume.index();
        let (_, target) = self.world.maps[v].copy_ends(chunk);
        let done = self.copy_io(now_ns, v, Op::Write, target, chunk.length);
        self.agenda.at(done, Event::CopyWritten(job));
    }

    pub(crate) fn copy_written(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Copying {
            return self.abandon_copy(now_ns, job);
        }
        let chunk = self.copying[job.0 as usize]
            .take()
            .expect("a piece was written");
        let v = self.executor.job(job).order.volume.index();
        let moving = self.moving[v].as_ref().expect("a copying job has its move");
        let after_batch = moving.after_batch();
        let map = &mut self.world.maps[v];
        let of_batch = map.copied(chunk).expect("a copying job has a relocation");
        // The executor asks for the last switch; those before it are between the array and its volume.
        if map.ready_to_switch() && after_batch > Bytes::ZERO {
            self.switch_batch(v);
            self.release_if_drained(now_ns, v);
        }
        let remaining = of_batch + after_batch;
        self.retry_held(now_ns, v);
        let bytes = Bytes(chunk.length);
        self.input(
            now_ns,
            Input::Copied {
                job,
                bytes,
                remaining,
            },
        );
    }

    /// A piece of a move that was given up meanwhile.
    fn abandon_copy(&mut self, now_ns: u64, job: JobId) {
        if let Some(chunk) = self.copying[job.0 as usize].take() {
            let v = self.executor.job(job).order.volume.index();
            self.world.maps[v]
                .copy_abandoned(chunk)
                .expect("its relocation waits for it");
            self.release_if_drained(now_ns, v);
        }
    }

    /// When the last move of each volume ended, also one that was given up on the way.
    pub(crate) fn last_moved(&self) -> Vec<Option<Nanos>> {
        let mut out = vec![None; self.model.volumes.len()];
        for job in self.executor.jobs() {
            let ended = match job.state {
                JobState::Done { at } => at,
                JobState::Cancelled { at, .. } | JobState::Failed { at, .. }
                    if job.copied > Bytes::ZERO =>
                {
                    at
                }
                _ => continue,
            };
            let last = &mut out[job.order.volume.index()];
            *last = Some(last.map_or(ended, |l: Nanos| l.max(ended)));
        }
        out
    }

    pub(crate) fn move_results(&self) -> (MoveTotals, Vec<MoveRecord>) {
        let model = self.model;
        let tier = |d: units::DeviceId| model.topology.tier(model.topology.tier_of(d)).name.clone();
        let mut totals = MoveTotals::default();
        let (mut volumes, mut vms) = (vec![], vec![]);
        let mut log = Vec::new();
        for (i, job) in self.executor.jobs().iter().enumerate() {
            let v = &model.volumes[job.order.volume.index()];
            let (state, ended, why_not) = match &job.state {
                JobState::Done { at } => ("done", Some(*at), None),
                JobState::Failed { at, why } => ("failed", Some(*at), Some(why.clone())),
                JobState::Cancelled { at, why, .. } => ("cancelled", Some(*at), Some(why.clone())),
                JobState::Proposed => ("proposed", None, None),
                JobState::Waiting => ("waiting", None, None),
                JobState::Reserving => ("reserving", None, None),
                JobState::Copying => ("copying", None, None),
                JobState::Switching => ("switching", None, None),
                JobState::Releasing => ("releasing", None, None),
            };
            match state {
                "done" => totals.done += 1,
                "failed" | "cancelled" if job.started.is_none() => totals.dropped += 1,
                "failed" | "cancelled" => totals.not_done += 1,
                _ => totals.under_way += 1,
            }
            totals.bytes += job.copied.0;
            if job.copied > Bytes::ZERO {
                volumes.push(job.order.volume);
                vms.push(v.vm);
            }
            log.push(MoveRecord {
                volume: v.name.clone(),
                vm: model.vms[v.vm.index()].clone(),
                from: tier(job.order.from),
                to: tier(job.order.to),
                planned_s: self.planned_at[i].as_secs_f64(),
                started_s: job.started.map(Nanos::as_secs_f64),
                ended_s: ended.map(Nanos::as_secs_f64),
                state: state.into(),
                why_not,
                reason: job.order.reason.to_string(),
                extents: job.order.extents.as_ref().map(ExtentRanges::count),
                bytes: job.copied.0,
                predicted_us: job.order.effect.latency_after_us,
                before_us: job.order.effect.latency_before_us,
            });
        }
        let distinct = |n: usize| n as u64;
        volumes.sort();
        volumes.dedup();
        vms.sort();
        vms.dedup();
        totals.volumes = distinct(volumes.len());
        totals.vms = distinct(vms.len());
        (totals, log)
    }
}
