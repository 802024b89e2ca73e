//! Moves in the simulated array: carries out the executor's actions against volumes, space and devices.

use algo::mix;
use executor::{Action, Input, JobId, JobState};
use model::{Op, Plan};
use units::{Bytes, Nanos};
use volume::{CopyStep, Earlier};

use crate::engine::{Event, Simulation};
use crate::result::{MoveRecord, MoveTotals};

/// How long a copy waits when the piece it wants has guest writes in flight.
const COPY_RETRY_NS: u64 = 200_000;

impl Simulation<'_> {
    /// Hands a plan to the executor.
    pub(crate) fn carry_out(&mut self, now_ns: u64, plan: Plan) {
        let at = plan.at;
        self.input(now_ns, Input::Plan(Box::new(plan)));
        self.planned_at.resize(self.executor.jobs().len(), at);
    }

    fn input(&mut self, now_ns: u64, input: Input) {
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
                job,
                volume,
                to,
                size,
            } => {
                let capacity = self.model.topology.device(to).spec.capacity;
                let d = to.index();
                let fits = self.used[d] + self.reserved[d] + size <= capacity;
                let v = volume.index();
                let in_flight = self.world.last_done_ns[v] > now_ns;
                let earlier = if in_flight {
                    Earlier::InFlight
                } else {
                    Earlier::None
                };
                let map = &mut self.world.maps[v];
                let started = fits
                    && map
                        .begin_relocation(to, self.model.copy_chunk, earlier)
                        .is_ok();
                if started && in_flight {
                    self.earlier_until_ns[v] = self.world.last_done_ns[v];
                    let event = Event::Earlier { volume: volume.0 };
                    self.agenda.at(self.world.last_done_ns[v], event);
                }
                if started {
                    self.reserved[d] += size;
                    self.world.refresh_route(volume.index());
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
            Action::Abort {
                volume, to, size, ..
            } => {
                let v = volume.index();
                self.world.maps[v]
                    .cancel_relocation()
                    .expect("aborted before the switch");
                self.given_up[v] = Some((to, size));
                self.retry_held(now_ns, v);
                self.release_if_drained(now_ns, v);
            }
        }
    }

    /// Requests that were issued before a relocation began are complete, unless a later relocation waits for more.
    pub(crate) fn earlier_complete(&mut self, now_ns: u64, volume: usize) {
        if now_ns >= self.earlier_until_ns[volume] {
            self.world.maps[volume].earlier_complete();
            self.after_completion(now_ns, volume);
        }
    }

    /// A request on a volume that is being moved is complete: what waited for it may go on.
    pub(crate) fn after_completion(&mut self, now_ns: u64, volume: usize) {
        self.retry_held(now_ns, volume);
        self.release_if_drained(now_ns, volume);
    }

    /// Makes the target the truth. In the simulation a switch is durable at once.
    pub(crate) fn switch(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Switching {
            return; // failed meanwhile
        }
        let v = self.executor.job(job).order.volume.index();
        self.world.maps[v]
            .switch()
            .expect("the executor switches when all is copied");
        self.world.refresh_route(v);
        self.input(now_ns, Input::Switched(job));
        self.retry_held(now_ns, v);
    }

    /// Frees the source of a move that was switched, or the target of one that was given up, once no request knows it.
    fn release_if_drained(&mut self, now_ns: u64, volume: usize) {
        if !self.world.maps[volume].released() {
            return;
        }
        self.world.refresh_route(volume);
        if let Some((to, size)) = self.given_up[volume].take() {
            self.reserved[to.index()] -= size;
            return;
        }
        let jobs = self.executor.jobs().iter().rev();
        let job = jobs
            .filter(|j| j.order.volume.index() == volume)
            .find(|j| j.state == JobState::Releasing)
            .expect("a switched relocation has its job");
        let (id, from, to, size) = (job.id, job.order.from, job.order.to, job.order.size);
        self.used[from.index()] -= size;
        self.reserved[to.index()] -= size;
        self.used[to.index()] += size;
        self.input(now_ns, Input::Released(id));
    }

    fn bits(&mut self) -> u64 {
        self.copies += 1;
        mix(mix(self.model.seed, 0xC0B1), self.copies)
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
                let source = self.world.maps[v].copy_source(chunk).index();
                let bits = self.bits();
                let done = self.world.devices[source].submit(now_ns, Op::Read, chunk.length, bits);
                let slot = job.0 as usize;
                if self.copying.len() <= slot {
                    self.copying.resize(slot + 1, None);
                }
                self.copying[slot] = Some(chunk);
                self.agenda.at(done, Event::CopyRead(job));
            }
            CopyStep::Wait => {
                let retry = Nanos(now_ns + COPY_RETRY_NS);
                self.input(now_ns, Input::CopyBlocked { job, retry });
            }
            CopyStep::Done => unreachable!("the last piece ends the copy"),
        }
    }

    pub(crate) fn copy_read(&mut self, now_ns: u64, job: JobId) {
        if self.executor.job(job).state != JobState::Copying {
            return self.abandon_copy(now_ns, job);
        }
        let chunk = self.copying[job.0 as usize].expect("a piece was read");
        let bits = self.bits();
        let to = self.executor.job(job).order.to.index();
        let done = self.world.devices[to].submit(now_ns, Op::Write, chunk.length, bits);
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
        let remaining = self.world.maps[v]
            .copied(chunk)
            .expect("a copying job has a relocation");
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
                JobState::Cancelled { at, why } => ("cancelled", Some(*at), Some(why.clone())),
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
