//! The live half: guests on a served array; once per epoch its measurements become facts, `decide` makes a plan of them,
//! and the executor has the desk carry it out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use datapath::desk::{Ask, Told};
use datapath::{Direction, LastMove, VolumeStatus};
use executor::{Action, Executor, Input, JobId, JobState};
use model::{
    DeviceFacts, Facts, Flow, LatencySummary, Measured, RunningMove, Topology, VolumeFacts,
};
use planner::{AnyStrategy, decide};
use sim::Model;
use units::{Bytes, DeviceId, Nanos};

use super::guests::{Guests, since, sleep_until};
use super::site::{Site, tier_name};
use super::{Late, Outcome, Seen};

/// How often the moves under way are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Time to start all guests.
const BEGIN: Duration = Duration::from_millis(500);

/// Runs the scenario on an array with the devices of `topology`; decisions know the devices of the model. With it comes how
/// late the host was.
pub fn run(model: &Model, strategy: &dyn AnyStrategy, topology: &Topology) -> (Outcome, Late) {
    let site = Site::new(model, topology);
    let start = Instant::now() + BEGIN;
    let guests = Guests::begin(model, &site, start);
    let mut controller = Controller {
        model,
        site: &site,
        start,
        executor: Executor::new(),
        copying: vec![],
        epoch: 0,
    };
    sleep_until(start, 0);
    controller.measure_anew();
    controller.run(strategy);
    let (seen, late) = guests.end();
    let outcome = controller.outcome(seen);
    site.stop();
    (outcome, Late::of(&late))
}

struct Controller<'a> {
    model: &'a Model,
    site: &'a Site,
    start: Instant,
    executor: Executor,
    /// Jobs whose move the array is at.
    copying: Vec<JobId>,
    epoch: u64,
}

impl Controller<'_> {
    fn run(&mut self, strategy: &dyn AnyStrategy) {
        let (model, monitor_ns) = (self.model, self.model.policy.epochs.monitor.0);
        let mut state = strategy.initial_state();
        while since(self.start) < model.duration.0 {
            let next_ns = (self.epoch + 1) * monitor_ns;
            if since(self.start) < next_ns {
                self.look();
                let soon_ns = since(self.start) + LOOK.as_nanos() as u64;
                sleep_until(self.start, soon_ns.min(next_ns));
                continue;
            }
            // As in the simulator: no decision at the very end.
            if next_ns >= model.duration.0 {
                break;
            }
            let facts = self.gather(next_ns);
            let decision = decide(strategy, &facts, &model.policy, &state, model.seed).unwrap();
            state = decision.state;
            assert!(
                decision.plan.calibrations.is_empty(),
                "not carried out here"
            );
            if facts.placement_due {
                self.input(Input::Plan(Box::new(decision.plan)));
            }
        }
    }

    fn measure_anew(&self) {
        for volume in &self.model.volumes {
            self.site.ask(Ask::Measure {
                volume: volume.name.clone(),
                on: true,
            });
        }
    }

    fn status(&self, volume: usize) -> VolumeStatus {
        let info = self.site.show(&self.model.volumes[volume].name);
        info.status.expect("it is served")
    }

    fn gather(&mut self, now_ns: u64) -> Facts {
        let model = self.model;
        let statuses: Vec<VolumeStatus> =
            (0..model.volumes.len()).map(|v| self.status(v)).collect();
        self.measure_anew();
        self.epoch += 1;
        let epochs = &model.policy.epochs;
        let facts_of = |(v, status): (&sim::VolumeModel, &VolumeStatus)| VolumeFacts {
            name: v.name.clone(),
            vm: v.vm,
            class: v.class,
            size: v.size,
            device: holder(status),
            measured: Some(measured(status, epochs.monitor)),
            calibration: vec![],
            calibrating: false,
            last_moved: None,
            extents: None,
        };
        let volumes: Vec<VolumeFacts> = model.volumes.iter().zip(&statuses).map(facts_of).collect();
        let devices = (0..model.topology.devices.len())
            .map(|d| self.device(DeviceId::from_index(d), &volumes, &statuses))
            .collect();
        let jobs = self.executor.jobs().iter().filter(|j| j.state.active());
        Facts {
            at: Nanos(now_ns),
            epoch: self.epoch,
            placement_due: now_ns.is_multiple_of(epochs.migration.0),
            generation: self.executor.generation(),
            topology: model.topology.clone(),
            classes: model.classes.clone(),
            vms: model.vms.clone(),
            devices,
            moves: jobs
                .map(|j| RunningMove {
                    volume: j.order.volume,
                    from: j.order.from,
                    to: j.order.to,
                    extents: None,
                })
                .collect(),
            volumes,
        }
    }

    /// Use of a device: what its volumes' guests asked of it. What moves take is left out, unlike in the simulator: the
    /// scenario's moves are over when data may be moved again.
    fn device(&self, id: DeviceId, volumes: &[VolumeFacts], all: &[VolumeStatus]) -> DeviceFacts {
        let spec = &self.model.topology.device(id).spec;
        let mut facts = DeviceFacts::default();
        for (volume, status) in volumes.iter().zip(all) {
            let placed = status.placed.iter().filter(|p| p.0 == id.0);
            facts.used += placed.map(|p| Bytes(p.1)).sum::<Bytes>();
            if let Some(moving) = status.moving.as_ref().filter(|m| m.to == id.0) {
                facts.reserved += moving.left;
            }
            let measured = volume.measured.as_ref().filter(|_| volume.device == id);
            let Some(m) = measured else { continue };
            let seconds = m.window.as_secs_f64();
            let busy = |flow: &Flow, iops: f64, bandwidth: f64| {
                (flow.ios as f64 / iops).max(flow.bytes as f64 / bandwidth) / seconds
            };
            facts.utilization += busy(&m.reads, spec.read_iops, spec.read_bandwidth.as_f64())
                + busy(&m.writes, spec.write_iops, spec.write_bandwidth.as_f64());
            facts.read_bytes_per_s += m.reads.bytes as f64 / seconds;
            facts.write_bytes_per_s += m.writes.bytes as f64 / seconds;
        }
        facts.utilization = facts.utilization.min(1.0);
        facts
    }

    /// Tells the executor which moves are over.
    fn look(&mut self) {
        for job in std::mem::take(&mut self.copying) {
            let volume = self.executor.job(job).order.volume.index();
            let status = self.status(volume);
            if status.moving.is_some() {
                self.copying.push(job);
                continue;
            }
            match status.last_move {
                Some(LastMove::Done { .. }) => self.input(Input::Copied {
                    job,
                    bytes: Bytes::ZERO,
                    remaining: Bytes::ZERO,
                }),
                other => panic!("a move ended as {other:?}"),
            }
        }
    }

    /// Carries out what the executor wants. A desk's move is all of it: space, copies, switches, release.
    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = Nanos(since(self.start));
            self.executor.handle(now, input).unwrap();
            while let Some(action) = self.executor.poll_action() {
                match action {
                    Action::Reserve { job, .. } => inputs.push_back(self.begin(job)),
                    Action::Copy { job, .. } => self.copying.push(job),
                    Action::Switch { job, .. } => inputs.push_back(Input::Switched(job)),
                    Action::Release { job, .. } => inputs.push_back(Input::Released(job)),
                    Action::Abort { .. } => panic!("nobody cancels"),
                }
            }
        }
    }

    fn begin(&self, job: JobId) -> Input {
        let order = &self.executor.job(job).order;
        let begun = self.site.serving.desk().ask(Ask::Move {
            volume: self.model.volumes[order.volume.index()].name.clone(),
            to: tier_name(&self.model.topology, order.to),
            device: None,
            bandwidth: order.bandwidth,
            extents: order.extents.clone(),
        });
        match begun {
            Ok(Told::Done { .. }) => Input::Reserved(job),
            other => {
                println!("refused: {other:?}");
                Input::Refused(job)
            }
        }
    }

    fn outcome(&self, seen: Vec<Seen>) -> Outcome {
        // One that a newer plan dropped before it began has moved nothing.
        let made = |j: &&executor::Job| !j.state.superseded();
        let mut jobs: Vec<_> = self.executor.jobs().iter().filter(made).collect();
        jobs.sort_by_key(|j| j.started);
        let ended = |j: &&executor::Job| match j.state {
            JobState::Done { at } => (j.started.unwrap().as_secs_f64(), at.as_secs_f64()),
            ref other => panic!("a move is {other:?}"),
        };
        let topology = &self.model.topology;
        let made = |j: &&executor::Job| {
            let volume = self.model.volumes[j.order.volume.index()].name.clone();
            let [from, to] = [j.order.from, j.order.to].map(|d| tier_name(topology, d));
            (volume, from, to)
        };
        let p99 = |s: &Seen| s.whole.quantile_ns(0.99) as f64 / 1e3;
        Outcome {
            whole: seen
                .iter()
                .map(|s| (s.whole.mean_us(), p99(s), s.whole.count()))
                .collect(),
            parts: (0..super::PARTS.len())
                .map(|p| seen.iter().map(|s| s.parts[p].mean_us()).collect())
                .collect(),
            moves: jobs.iter().map(made).collect(),
            times: jobs.iter().map(ended).collect(),
        }
    }
}

/// The device with most of a volume.
fn holder(status: &VolumeStatus) -> DeviceId {
    let most = status.placed.iter().max_by_key(|p| (p.1, u16::MAX - p.0));
    DeviceId(most.expect("volumes are full").0)
}

fn measured(status: &VolumeStatus, window: Nanos) -> Measured {
    let measured = status.measured.as_ref().expect("all are measured");
    let flow = |d: &Direction| Flow {
        ios: d.requests,
        bytes: d.bytes,
        latency: LatencySummary {
            mean_us: d.latency.mean_us,
            p50_us: d.latency.p50_us,
            p95_us: d.latency.p95_us,
            p99_us: d.latency.p99_us,
            p999_us: d.latency.p999_us,
        },
    };
    Measured {
        window,
        reads: flow(&measured.directions[0]),
        writes: flow(&measured.directions[1]),
        outstanding: measured.queue_depth_mean,
    }
}
