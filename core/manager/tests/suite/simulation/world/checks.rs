//! Invariants of a simulated run, during the run and at its end.

use std::collections::BTreeMap;

use config::RemedyMode;
use executor::OF_NO_PLAN;
use manager::question::{Actor, Answer, Question};
use manager::recording::Replay;
use manager::service::Service;
use manager::store::{Change, Store};
use manager::view::{EventKind, JobView};
use manager::wire::Orders;
use model::JobStatus;
use units::Nanos;

use super::super::site::Site;
use super::super::store::PersistentStore;
use super::{Host, LATE_WINDOWS, LEASE_WINDOWS, SECOND, STRATEGIES, WINDOW_NS, World, settings};

impl World {
    /// Checks that decisions use fresh data: the epoch ended with the window of the present report.
    pub(super) fn check_decisions(&mut self) {
        for change in self.store.take_log() {
            match change {
                Change::Decision(decision) => {
                    self.sums.decisions += 1;
                    // Only some decisions, because this takes as long as the rest.
                    if self.sums.decisions.is_multiple_of(8) {
                        decided_again(&decision);
                    }
                    let facts: model::Facts =
                        serde_json::from_value(decision.facts).expect("facts");
                    let plan: model::Plan = serde_json::from_value(decision.plan).expect("a plan");
                    let policy: model::Policy =
                        serde_json::from_value(decision.policy).expect("a policy");
                    assert_eq!(
                        planner::lint(&plan, &facts, &policy),
                        [],
                        "the plan keeps the rules"
                    );
                    let host = self
                        .hosts
                        .iter()
                        .find(|h| h.name == decision.host)
                        .expect("one of ours");
                    check_fresh(host, &facts, self.now_ns);
                    let sent_ns = self
                        .at_hand_ns
                        .expect("decisions are made when a report is taken");
                    let age_ns = self.now_ns - sent_ns;
                    assert!(
                        age_ns <= LATE_WINDOWS * WINDOW_NS,
                        "decided on a report that was {age_ns} ns on its way"
                    );
                }
                Change::Event(event) if event.kind == EventKind::Response => {
                    let says = |what: &str| u64::from(event.text.contains(what));
                    self.sums.recommended += says(". Recommended remedy: ");
                    self.sums.answered += says(". Remedy: ");
                    self.sums.taken_back += says(": throttle removed");
                    let of_machines = |h: &Host| {
                        matches!(h.site, Site::Machines(_)) && Some(&h.name) == event.host.as_ref()
                    };
                    let there = self.hosts.iter().any(of_machines);
                    let by_taking = says(". Remedy: ") * says(", which is saturated");
                    self.sums.answered_there += u64::from(there) * by_taking;
                }
                Change::Job(job) if job.state == JobStatus::Done => {
                    self.sums.moves_done += 1;
                    self.sums.moved += u64::from(job.generation == OF_NO_PLAN);
                    self.sums.extents_done += u64::from(job.extents.is_some());
                }
                Change::Job(job) if job.state == JobStatus::Active => {
                    let host = self.hosts.iter().find(|h| h.name == job.host);
                    let bound = host.expect("one of ours").site.bound_for_good(&job.volume);
                    assert_eq!(bound, None, "{job:?} is of what no agent moves");
                    if job.generation == OF_NO_PLAN {
                        continue; // a remedy
                    }
                    let plan = self.store.decision(&job.host, Some(job.generation));
                    let plan = plan.expect("it can be read").expect("it is there");
                    let age_ns = job.started_ns.expect("it begins") - plan.at_ns;
                    // Two migration epochs, and the report at their end.
                    assert!(
                        age_ns <= 24 * SECOND + WINDOW_NS,
                        "job {} begins by a plan that is {age_ns} ns old",
                        job.job
                    );
                }
                _ => {}
            }
        }
    }

    /// Checks after a long time without faults that nothing is stuck, injected or half done.
    pub(super) fn all_is_well(&mut self) {
        let now = self.now();
        let controller = self.controller.as_mut().expect("nobody kills it any more");
        let counted = controller.ask(now, &Actor("test".into()), Question::Counters);
        if let Ok(Answer::Counters(counters)) = counted {
            self.sums.calibrations += counters.calibrations;
        }
        let Ok(Answer::Jobs(jobs)) =
            controller.ask(now, &Actor("test".into()), Question::Jobs { limit: 10_000 })
        else {
            panic!("it answers")
        };
        for host in &self.hosts {
            host.site.check();
            for moving in host.site.under_way() {
                // The controller knows all moves in progress.
                let (v, to) = (&moving.volume, &moving.device);
                let own = || {
                    jobs.iter()
                        .filter(|j| j.host == host.name && j.volume == *v)
                };
                let known = own().any(|j| j.to == *to)
                    && (moving.extents.is_none() || own().any(|j| j.extents == moving.extents));
                assert!(known, "{v} moves to {to}, and nobody knows why");
            }
        }
        self.machines_are_known(&jobs);
        for job in jobs.iter().filter(|j| j.state == JobStatus::Failed) {
            let why = job.why.clone().unwrap_or_default();
            let own = format!("being moved to {} already", job.to);
            assert!(
                !why.contains(&own),
                "{job:?}: its own move was taken for another's"
            );
        }
        let old = now.at.0.saturating_sub(60 * SECOND);
        for job in &jobs {
            let ended = job.state.ended();
            if job.started_ns.is_some_and(|s| s < old) {
                assert!(ended, "{job:?} never ended");
            }
        }
        // A volume is where its last finished job has moved it.
        let mut last: BTreeMap<(String, String), &JobView> = BTreeMap::new();
        for job in jobs.iter().filter(|j| j.started_ns.is_some()) {
            let key = (job.host.clone(), job.volume.clone());
            let newer = last.get(&key).is_none_or(|l| l.ended_ns < job.ended_ns);
            if newer {
                last.insert(key, job);
            }
        }
        for ((host, volume), job) in last {
            if job.state != JobStatus::Done {
                continue;
            }
            let host = self
                .hosts
                .iter()
                .find(|h| h.name == host)
                .expect("one of ours");
            let Site::Array(array) = &host.site else {
                continue; // its machines were checked above
            };
            let v = array.volumes.iter().find(|v| v.name == volume);
            let v = v.expect("one of its own");
            // Data that the guest wrote since then may be on another device of the tier.
            let on = |d: usize| array.devices[d].tier == job.to_tier;
            let named = |e: usize| {
                let extents = job.extents.as_ref();
                extents.is_none_or(|all| all.contains(e as u32))
            };
            if v.moving.is_none() {
                let mut places = v.extents.iter().enumerate();
                assert!(
                    places.all(|(e, place)| !named(e) || on(place.0)),
                    "job {} is done, {volume} is not on {}",
                    job.job,
                    job.to_tier
                );
            }
        }
        let injecting = self
            .hosts
            .iter()
            .any(|h| h.agent.is_none() && matches!(&h.site, Site::Array(a) if a.injecting()));
        assert!(!injecting, "nobody looks after injected latency");
        self.limits_are_as_ordered();
    }

    /// Checks that exactly the throttles of operators are in force. Throttles as remedies end after a long time without
    /// violations.
    fn limits_are_as_ordered(&mut self) {
        let now = self.now();
        let controller = self.controller.as_mut().expect("nobody kills it any more");
        let asked = controller.ask(now, &Actor("test".into()), Question::Volumes);
        let Ok(Answer::Volumes(volumes)) = asked else {
            panic!("it answers what it was asked")
        };
        for v in volumes {
            let of = v.throttle.as_ref().and_then(|t| t.for_volume.as_ref());
            assert_eq!(of, None, "{} is held, and nothing is broken", v.name);
            if let Some(throttle) = &v.throttle {
                let as_ordered = throttle.in_force && throttle.left_ns > 0;
                // The newest orders and reports are in transit.
                let fresh = throttle.left_ns < 3 * SECOND;
                assert!(as_ordered || fresh, "{}: {throttle:?}", v.name);
            }
        }
    }

    /// Checks that the controller knows the place of each disk and the leftovers of moves, and that volumes which no
    /// agent may move did not move.
    fn machines_are_known(&mut self, jobs: &[JobView]) {
        let now = self.now();
        let controller = self.controller.as_mut().expect("nobody kills it any more");
        let mut ask = |question| {
            let answer = controller.ask(now, &Actor("test".into()), question);
            answer.expect("it answers")
        };
        let (Answer::Volumes(volumes), Answer::Status(status)) =
            (ask(Question::Volumes), ask(Question::Status))
        else {
            panic!("it answers what it was asked")
        };
        for host in &self.hosts {
            let Site::Machines(machines) = &host.site else {
                continue;
            };
            for (name, device) in machines.settled() {
                let known = volumes
                    .iter()
                    .find(|v| v.host == host.name && v.name == name);
                let known = known.unwrap_or_else(|| panic!("{name} runs and is not known"));
                assert_eq!(known.device, device, "{name} is somewhere else");
            }
            for (volume, path) in machines.left_behind() {
                let listed = status.problems.iter().any(|t| {
                    t.host.as_ref() == Some(&host.name)
                        && t.subject == volume
                        && t.what.contains(&path)
                });
                assert!(listed, "nobody is told of {path}: {:?}", status.problems);
            }
        }
        for job in jobs.iter().filter(|j| j.started_ns.is_some()) {
            let host = self.hosts.iter().find(|h| h.name == job.host);
            let bound = host.expect("one of ours").site.bound_for_good(&job.volume);
            assert_eq!(bound, None, "{job:?} is of what no agent moves");
        }
    }

    /// Replays the recorded inputs: equal inputs give equal decisions.
    pub(super) fn made_again(&mut self) {
        let Some(recording) = self.recording.take() else {
            return;
        };
        let mut replay = Replay::default();
        for (i, line) in recording.lock().unwrap().iter().enumerate() {
            let made = replay
                .line(line)
                .unwrap_or_else(|why| panic!("line {}: {why}", i + 1));
            if let Some(made) = made {
                assert!(made.same, "line {}: {made:?}", i + 1);
                self.sums.made_again += 1;
            }
        }
        assert_eq!(replay.surplus(), 0);
    }
}

/// Checks that every order belongs to a started job in the committed store, with a plan in the store.
pub(super) fn check_orders(store: &mut PersistentStore, host: &str, orders: &Orders) {
    for order in &orders.moves {
        let jobs = store.jobs(10_000).expect("it can be read");
        let job = jobs.iter().find(|j| j.host == host && j.job == order.job);
        let job =
            job.unwrap_or_else(|| panic!("job {} was ordered and never committed", order.job));
        assert!(
            job.state == JobStatus::Active,
            "job {} is ordered and {}",
            order.job,
            job.state
        );
        let plan = store
            .decision(host, Some(job.generation))
            .expect("it can be read");
        assert!(
            plan.is_some() || job.generation == OF_NO_PLAN,
            "job {} is of plan {}, which is not there",
            order.job,
            job.generation
        );
    }
}

/// Checks that limits are those of operators, or stricter. Other volumes have no limits, except remedies within their
/// lease in a mode that allows them.
pub(super) fn check_limits(
    mode: RemedyMode,
    now: Nanos,
    limited: &BTreeMap<String, (u64, Nanos)>,
    (host, orders): (&str, &Orders),
) {
    for order in &orders.throttles {
        let iops = order.throttle.iops.expect("only rates are limited");
        let own = limited.get(&format!("{host}/{}", order.volume));
        let own = own.filter(|(_, until)| now < *until).map(|own| own.0);
        match own {
            Some(own) if mode != RemedyMode::Auto => assert_eq!(iops, own, "{order:?}"),
            Some(own) => assert!(iops <= own, "{order:?} is above the operator's {own}"),
            None => {
                assert_eq!(mode, RemedyMode::Auto, "{order:?} is of nobody");
                assert!(
                    order.throttle.lasting_ns <= LEASE_WINDOWS * WINDOW_NS,
                    "{order:?}"
                );
            }
        }
    }
}

/// Checks that the places in the facts were correct a short time before.
fn check_fresh(host: &Host, facts: &model::Facts, now_ns: u64) {
    let oldest = (LATE_WINDOWS + 2) * WINDOW_NS;
    for v in &facts.volumes {
        let device = facts.topology.device(v.device).name.clone();
        let seen = host.seen.get(&(v.name.clone(), device.clone()));
        let fresh = seen.is_some_and(|s| s + oldest >= now_ns);
        assert!(
            fresh,
            "{} was said to be on {device}, and has not been there lately",
            v.name
        );
    }
}

/// Checks that the exported scenario gives the same plan.
fn decided_again(decision: &manager::store::StoredDecision) {
    // Decisions with disabled goals of the strategy come from another strategy.
    let strategy = match decision.strategy.as_str() {
        "noop" => STRATEGIES[0],
        other => other,
    };
    let text = manager::export::scenario(decision, &settings(strategy, RemedyMode::Off));
    let text = text.expect("its inputs are kept");
    let file = sim::ScenarioFile::parse("exported.toml", &text).expect("an export is a scenario");
    let (facts, again) = file.decide_again().expect("it was recorded");
    let facts = serde_json::to_value(facts).expect("plain data");
    assert_eq!(facts, decision.facts, "the facts are the same");
    let plan = serde_json::to_string(&again.plan).expect("plain data");
    let before: model::Plan = serde_json::from_value(decision.plan.clone()).expect("a plan");
    let before = serde_json::to_string(&before).expect("plain data");
    assert_eq!(plan, before, "the plan is the same, byte for byte");
}
