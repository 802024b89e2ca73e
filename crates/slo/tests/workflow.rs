//! The responder against a scripted array: a database that peaks beside a scan, ten seconds at a time.

use slo::curve::Curve;
use slo::host::Host;
use slo::ladder::{Deed, RungKind};
use slo::load::{Backend, Place, Resource};
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::zones::Zone;
use slo::{
    ApplianceEvent, Busy, HostId, Knowledge, Objective, Order, ResourceId, Responder,
    ResponderConfig, Sample, Site, WarmForecast, Workload, WorkloadId,
};
use units::{Bytes, Nanos};

const DB: WorkloadId = WorkloadId(0);
const SCAN: WorkloadId = WorkloadId(1);

struct Known {
    db: Option<Curve>,
}

impl Knowledge for Known {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        match workload {
            DB => self.db.clone(),
            _ => Some(Curve::new(vec![(Bytes::gib(200), 0.95)])),
        }
    }
    fn zones(&self, _: WorkloadId) -> Vec<Zone> {
        vec![
            Zone {
                number: 3,
                share: 0.2,
            },
            Zone {
                number: 9,
                share: 0.1,
            },
        ]
    }
    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        self.zones(workload)
    }
}

fn known() -> Known {
    Known {
        db: Some(Curve::new(vec![
            (Bytes::gib(2), 0.5),
            (Bytes::gib(4), 0.05),
        ])),
    }
}

fn site() -> Site {
    let workload = |name: &str, promised| Workload {
        name: name.into(),
        objective: Objective {
            rate_min_per_s: promised,
            latency_max: None,
        },
        host: HostId(0),
        attachment: Attachment {
            protocol: Protocol::Nfs3,
            own_addresses: 1,
            hypervisor: Hypervisor::Plain,
            proxy: Proxy::Absent,
        },
        stored: Bytes::gib(100),
        resources: vec![ResourceId(0)],
        pool: 0,
    };
    let host = |id, gib| Host {
        id: HostId(id),
        name: format!("host {id}"),
        rack: 0,
        cpus_free: 8,
        memory_free: Bytes::gib(gib),
    };
    Site {
        workloads: vec![workload("db", Some(1000.0)), workload("scan", Some(500.0))],
        hosts: vec![host(0, 16), host(1, 16)],
        backend: Backend {
            resources: vec![Resource {
                name: "disks".into(),
                place: Place::BehindMemory,
            }],
            memory: vec![Bytes::mib(64)],
            use_max: 0.8,
        },
        ops: None,
        elsewhere: None,
    }
}

/// The array in words: the disks do 1,500 requests per second.
struct Script {
    responder: Responder,
    known: Known,
    step: u64,
    /// Of the database's requests, how many write.
    writes: f64,
    /// Share of the time in which the scan has requests outstanding.
    scan_occupied: f64,
    /// Of the database's reads, how many its appliance answers.
    hits: f64,
    log: Vec<String>,
}

impl Script {
    fn new(config: ResponderConfig, site: Site) -> Self {
        Self {
            responder: Responder::new(config, site),
            known: known(),
            step: 0,
            writes: 0.1,
            scan_occupied: 0.9,
            hits: 0.0,
            log: Vec::new(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from_secs(10 * self.step)
    }

    /// `n` samples in which the database gets `rate`, with or without a backlog.
    fn run(&mut self, n: u64, rate: f64, occupied: f64) {
        for _ in 0..n {
            self.step += 1;
            // The same disturbance in both, as of a common queue.
            let wave = if self.step.is_multiple_of(3) {
                30.0
            } else {
                -12.0
            };
            let sample = |rate: f64, occupied: f64, writes: f64, hits: f64, us: f64| Sample {
                reads_per_s: rate * (1.0 - writes),
                writes_per_s: rate * writes,
                latency_us: Some(us),
                bytes_per_s: rate * 8192.0,
                bytes_read_per_s: rate * (1.0 - writes) * 8192.0,
                occupied,
                waiting: u64::from(occupied >= 1.0),
                working_set: Bytes::gib(2),
                backend_reads_per_s: rate * (1.0 - writes) * (1.0 - hits),
                memory_hits: (hits < 1.0).then_some(0.0),
                busy: vec![Busy {
                    reads: rate * (1.0 - writes) * (1.0 - hits) / 1500.0,
                    writes: rate * writes / 1500.0,
                }],
                ..Sample::default()
            };
            let us = 9000.0 + 20.0 * wave;
            let db = sample(rate + wave, occupied, self.writes, self.hits, us);
            let scan = sample(
                600.0 - wave,
                self.scan_occupied,
                0.0,
                0.0,
                5000.0 + 15.0 * wave,
            );
            let orders = self.responder.tell(self.now(), &[db, scan], &self.known);
            for order in orders {
                self.note(&order);
            }
        }
    }

    fn note(&mut self, order: &Order) {
        let at = self.step;
        self.log.push(match order {
            Order::CreateAppliance {
                workload,
                host,
                cache,
                way,
                warm,
                ..
            } => {
                let warm = serde_json::to_value(warm).unwrap()["warm"].to_string();
                format!(
                    "{at}: create for {} on {}: {cache}, {way}, {warm}",
                    workload.0, host.0
                )
            }
            Order::RemoveAppliance { workload, why } => {
                format!("{at}: remove {}: {why}", workload.0)
            }
            Order::Carry {
                deed:
                    Deed::Throttle {
                        workload,
                        rate_per_s,
                    },
            } => {
                format!("{at}: throttle {} to {rate_per_s:.0}", workload.0)
            }
            Order::Carry { deed } => format!("{at}: {deed:?}"),
            Order::Unthrottle { workload } => format!("{at}: unthrottle {}", workload.0),
        });
    }

    fn event(&mut self, event: ApplianceEvent) {
        let now = self.now();
        self.responder.appliance(now, DB, &event);
    }

    fn refusal(&self, kind: RungKind) -> String {
        let decision = self.responder.decisions().last().expect("a decision");
        let rung = decision.rungs.iter().find(|r| r.kind == kind).unwrap();
        rung.refused.clone().unwrap_or_default()
    }
}

fn appliance_only() -> ResponderConfig {
    ResponderConfig {
        allowed: vec![RungKind::Appliance],
        ..ResponderConfig::default()
    }
}

#[test]
fn seen_sized_placed_and_removed_when_quiet() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    let decision = &script.responder.decisions()[0];
    assert_eq!(decision.set, [DB, SCAN]);
    assert!(decision.interference.as_ref().unwrap().joined(0, 1));
    script.event(ApplianceEvent::Serving);
    script.run(60, 1200.0, 0.9);
    script.run(200, 100.0, 0.1);
    script.event(ApplianceEvent::Removed);
    script.run(100, 100.0, 0.1);
    assert_eq!(
        script.log,
        [
            "143: create for 0 on 0: 2 GiB, address-migration, \"zones\"",
            "204: remove 0: it hits too seldom",
        ],
        "all its reads still reach the backend here: of no use"
    );
}

#[test]
fn one_that_hits_always_is_not_taken_for_one_that_is_not_needed() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    script.event(ApplianceEvent::Serving);
    // For two hours not one read gets to the disks, which could not serve them beside the scan.
    script.hits = 1.0;
    script.run(720, 1000.0, 0.9);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    // Reads as few as the disks have time for, but above a quarter of the promise.
    script.run(180, 300.0, 0.5);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    script.run(20, 300.0, 0.5);
    assert_eq!(
        script.log[1..],
        ["1054: remove 0: the backend can do without it"]
    );
}

#[test]
fn what_writes_is_not_cached_and_nothing_is_done() {
    let mut script = Script::new(appliance_only(), site());
    script.writes = 0.6;
    script.run(100, 300.0, 0.5);
    script.run(60, 800.0, 1.0);
    assert!(script.log.is_empty(), "{:?}", script.log);
    let decision = script.responder.decisions().last().unwrap();
    let why = slo::cacheable::why_not(&decision.cacheable[0].findings);
    assert_eq!(why.as_deref(), Some("share of writes 0.60 is above 0.40"));
    assert_eq!(
        script.refusal(RungKind::Appliance),
        "no workload of the set can be cached"
    );
}

#[test]
fn full_hosts_are_said_and_asked_again_later() {
    let mut full = site();
    full.hosts.iter_mut().for_each(|h| h.cpus_free = 2);
    let mut script = Script::new(appliance_only(), full);
    script.run(100, 300.0, 0.5);
    script.run(80, 800.0, 1.0);
    assert!(script.log.is_empty());
    assert_eq!(
        script.refusal(RungKind::Appliance),
        "no host has room for it"
    );
    assert_eq!(script.responder.decisions().len(), 2, "every five minutes");
    assert_eq!(script.responder.decisions()[0].hosts.len(), 2);
}

#[test]
fn one_without_an_answer_keeps_nobody_else_waiting() {
    let mut two = site();
    // The scan is broken too, and nothing else: it waits behind the database, which writes too much to be cached.
    two.workloads[1].objective.rate_min_per_s = Some(900.0);
    let mut script = Script::new(appliance_only(), two);
    script.writes = 0.6;
    script.scan_occupied = 1.0;
    script.run(44, 800.0, 1.0);
    script.run(20, 800.0, 1.0);
    let decisions = script.responder.decisions().iter();
    let looked_at: Vec<_> = decisions
        .map(|d| match d.cause {
            slo::Cause::Violation { affected, .. } => (affected, d.at.0 / 10_000_000_000),
            slo::Cause::Forecast { .. } => panic!("none was made"),
        })
        .collect();
    assert_eq!(
        looked_at,
        [(DB, 44), (SCAN, 45)],
        "ten seconds later, not five minutes"
    );
}

#[test]
fn a_failed_creation_is_tried_elsewhere_once_per_host() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    for _ in 0..2 {
        script.event(ApplianceEvent::Failed {
            why: "no image".into(),
        });
        script.run(3, 800.0, 1.0);
    }
    assert_eq!(
        script.log,
        [
            "143: create for 0 on 0: 2 GiB, address-migration, \"zones\"",
            "145: create for 0 on 1: 2 GiB, address-migration, \"zones\"",
        ]
    );
    let decision = script.responder.decisions().last().unwrap();
    assert!(decision.hosts.iter().all(|h| h.refused.is_some()));
}

#[test]
fn a_route_that_cannot_be_given_back_does_not_keep_others_from_being_answered() {
    for event in [ApplianceEvent::Returning, ApplianceEvent::Stranded] {
        let mut two = site();
        two.workloads[1].objective.rate_min_per_s = Some(900.0);
        let mut script = Script::new(appliance_only(), two);
        script.scan_occupied = 1.0;
        script.run(44, 800.0, 1.0);
        assert_eq!(script.log.len(), 1, "{:?}", script.log);
        script.run(60, 800.0, 1.0);
        assert_eq!(
            script.responder.decisions().len(),
            1,
            "it is still being created"
        );
        script.event(event);
        script.run(12, 800.0, 1.0);
        assert!(script.responder.decisions().len() >= 2);
        // A second appliance for the same workload is not ordered, nor the same one removed, and at its end it is gone.
        script.event(ApplianceEvent::Returning);
        script.run(30, 800.0, 1.0);
        assert_eq!(script.log.len(), 1, "{:?}", script.log);
        script.event(ApplianceEvent::Removed);
        script.run(60, 800.0, 1.0);
        assert!(script.log[1].contains("create for 0"), "{:?}", script.log);
    }
}

#[test]
fn one_that_vanishes_while_the_appliance_boots_is_taken_back() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(43, 800.0, 1.0);
    script.run(10, 300.0, 0.5);
    script.event(ApplianceEvent::Removed);
    script.run(100, 300.0, 0.5);
    assert_eq!(
        script.log[1..],
        ["149: remove 0: the violation vanished while it was being created"]
    );
}

#[test]
fn a_neighbour_is_throttled_first_and_let_go_afterwards() {
    let mut generous = site();
    generous.workloads[1].objective = Objective::default();
    let mut script = Script::new(ResponderConfig::default(), generous);
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    script.run(60, 1000.0, 0.9);
    assert_eq!(script.log, ["143: throttle 1 to 120", "180: unthrottle 1"]);
}

#[test]
fn a_forecast_creates_before_anything_is_broken_and_waits_for_its_peak() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    let forecast = slo::Forecast {
        workload: DB,
        at: Nanos::from_secs(10 * 500),
        rate_per_s: 1100.0,
        curve: known().db.unwrap(),
        zones: script.known.zones(DB),
        warm: WarmForecast::Read,
    };
    let now = script.now();
    for order in script.responder.foresee(now, &forecast) {
        script.note(&order);
    }
    script.event(ApplianceEvent::Serving);
    script.run(399, 300.0, 0.5);
    assert_eq!(
        script.log,
        ["100: create for 0 on 0: 3 GiB, address-migration, \"zones\""]
    );
    assert!(script.responder.decisions()[0].interference.is_none());
    assert!(!script.responder.is_broken(SCAN));
}

#[test]
fn the_same_samples_give_the_same_decisions() {
    let run = || {
        let mut script = Script::new(appliance_only(), site());
        script.run(100, 300.0, 0.5);
        script.run(60, 800.0, 1.0);
        serde_json::to_string(script.responder.decisions()).unwrap()
    };
    assert_eq!(run(), run());
}
