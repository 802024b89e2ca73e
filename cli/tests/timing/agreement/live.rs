//! Live run: guests on a served array, whose agent reports to a controller in the same process. Both are the product's own
//! code: the agent's core with its view of an array, and the controller's core with the settings of a simulated host.

use std::time::{Duration, Instant};

use agent::{Host, ServedArray};
use manager::agent::{Agent, Message, Snapshot};
use manager::controller::Controller;
use manager::service::Now;
use manager::store::Change;
use manager::view::JobView;
use model::LeaseHolder;
use planner::AnyStrategy;
use sim::Model;
use units::Nanos;

use super::guests::{Guests, since, sleep_until};
use super::site::{CONTROL, Site};
use super::{HostNoise, Outcome, VolumeLatencies};

const HOST: &str = "here";

/// Interval between two snapshots of the array.
const LOOK: Duration = Duration::from_millis(20);

/// Time to start all guests.
const BEGIN: Duration = Duration::from_millis(500);

/// Runs the scenario on an array with the devices of the model. Returns the outcome and the noise of the host.
pub fn run(model: &Model, strategy: Box<dyn AnyStrategy>) -> (Outcome, HostNoise) {
    let site = Site::new(model, &model.topology);
    let start = Instant::now() + BEGIN;
    let guests = Guests::begin(model, &site, start);
    let mut manager = Manager {
        array: ServedArray::new(site.control()),
        agent: Agent::new(1, "test"),
        controller: Controller::in_process(sim::host_settings(model), strategy),
        start,
        jobs: vec![],
    };
    sleep_until(start, 0);
    // As in the simulator, no decision is made at the very end.
    let end_ns = model.duration.0 - model.window.0 / 2;
    while since(start) < end_ns {
        manager.look();
        sleep_until(start, since(start) + LOOK.as_nanos() as u64);
    }
    sleep_until(start, model.duration.0);
    let (seen, late) = guests.end();
    let outcome = manager.outcome(seen);
    site.stop();
    (outcome, HostNoise::of(&late))
}

struct Manager {
    array: ServedArray,
    agent: Agent,
    controller: Controller,
    start: Instant,
    /// Last known state of each job.
    jobs: Vec<JobView>,
}

impl Manager {
    /// Takes a snapshot of the array and processes the resulting actions and messages.
    fn look(&mut self) {
        let at_ns = since(self.start);
        let mut snapshot = self.array.snapshot().unwrap();
        without_control(&mut snapshot);
        if let Some((id, lasting)) = self.agent.claim(at_ns) {
            let name = HOST.into();
            let claimed = self.array.claim(&LeaseHolder { id, name }, lasting);
            self.agent.claimed(claimed.map_err(|e| e.to_string()));
        }
        self.agent.beat(at_ns, snapshot);
        while let Some(action) = self.agent.poll_action() {
            let done = self.array.carry_out(&action);
            self.agent.done(&action, done);
        }
        while let Some(message) = self.agent.poll_message() {
            self.deliver(&message);
        }
        for change in self.controller.take_seen() {
            if let Change::Job(view) = change {
                self.jobs.retain(|j| j.job != view.job);
                self.jobs.push(*view);
            }
        }
    }

    fn deliver(&mut self, message: &Message) {
        let at_ns = since(self.start);
        let now = Now {
            at: Nanos(at_ns),
            unix_ms: 0,
        };
        let orders = match message {
            Message::Register(register) => {
                let welcome = self.controller.register(now, HOST, register).unwrap();
                return self.agent.welcomed(at_ns, welcome);
            }
            Message::Report(report) => self.controller.report(now, HOST, (**report).clone()),
            Message::JobsEnded(jobs) => self.controller.jobs_ended(now, HOST, jobs),
        };
        assert_eq!(self.controller.problem(HOST), None);
        self.agent.ordered(at_ns, at_ns, orders.unwrap());
    }

    fn outcome(mut self, seen: Vec<VolumeLatencies>) -> Outcome {
        // A job that a newer plan dropped before its start has moved nothing.
        self.jobs.retain(|j| j.started_ns.is_some());
        self.jobs.sort_by_key(|j| j.started_ns);
        let seconds = |ns: Option<u64>| Nanos(ns.unwrap()).as_secs_f64();
        let p99 = |s: &VolumeLatencies| s.whole.quantile_ns(0.99) as f64 / 1e3;
        for job in &self.jobs {
            assert_eq!(job.state, model::JobStatus::Done, "{job:?}");
        }
        let jobs = self.jobs.iter();
        Outcome {
            whole: seen
                .iter()
                .map(|s| (s.whole.mean_us(), p99(s), s.whole.count()))
                .collect(),
            parts: (0..super::PARTS.len())
                .map(|p| seen.iter().map(|s| s.parts[p].mean_us()).collect())
                .collect(),
            moves: jobs
                .clone()
                .map(|j| (j.volume.clone(), j.from_tier.clone(), j.to_tier.clone()))
                .collect(),
            times: jobs
                .map(|j| (seconds(j.started_ns), seconds(j.ended_ns)))
                .collect(),
        }
    }
}

/// Removes the control volume and its device, which decisions must not include.
fn without_control(snapshot: &mut Snapshot) {
    snapshot.tiers.retain(|t| t != CONTROL);
    snapshot.devices.retain(|d| d.tier != CONTROL);
    snapshot.volumes.retain(|v| v.name != CONTROL);
}
