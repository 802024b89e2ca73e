//! Golden scenarios: what is done about a broken objective, step by step, and that all ends in a safe state.

use algo::Rng;
use sim::response::{
    ApplianceModel, ArrayModel, Arriving, Generated, Load, LoadOp, LoadPhase, MemoryBefore,
    RecordedRequest, Region, ResponseFault, ResponseModel, ResponseWorkload, Uses, Writes,
    ZonesTold, respond,
};
use slo::detect::DetectConfig;
use slo::host::Host;
use slo::interference::InterferenceConfig;
use slo::ladder::RungKind;
use slo::removal::RemovalConfig;
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::{HostId, Objective, ResponderConfig};
use units::{Bytes, Nanos};

fn s(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

/// A database with a peak from second 400 to `peak_ends`.
fn database(peak_ends: u64, write_share: f64) -> ResponseWorkload {
    let phase = |until, rate_per_s| LoadPhase {
        until: s(until),
        rate_per_s,
        hot: 0,
        cold_share: 0.02,
        write_share,
    };
    let load = Generated {
        phases: vec![
            phase(400, 120.0),
            phase(peak_ends, 850.0),
            phase(1500, 120.0),
        ],
        regions: vec![Region {
            first: 0,
            objects: 60_000,
            theta: 0.6,
        }],
        arriving: Arriving::AtRandom,
        seed: 5,
    };
    workload("db", Load::Generated(load), 800.0)
}

/// A neighbour that reads all over its data.
fn neighbour() -> ResponseWorkload {
    let load = Generated {
        phases: vec![LoadPhase {
            until: s(1500),
            rate_per_s: 500.0,
            hot: 0,
            cold_share: 1.0,
            write_share: 0.0,
        }],
        regions: vec![Region {
            first: 0,
            objects: 1,
            theta: 0.0,
        }],
        arriving: Arriving::AtRandom,
        seed: 6,
    };
    workload("search", Load::Generated(load), 450.0)
}

fn workload(name: &str, load: Load, promised: f64) -> ResponseWorkload {
    ResponseWorkload {
        name: name.into(),
        load,
        objects: 900_000,
        object_bytes: 16 << 10,
        outstanding_max: 16,
        objective: Objective {
            rate_min_per_s: Some(promised),
            latency_max: None,
        },
        host: HostId(0),
        attachment: Attachment {
            protocol: Protocol::Nfs3,
            own_addresses: 1,
            hypervisor: Hypervisor::Plain,
            proxy: Proxy::Absent,
        },
        memory_before: MemoryBefore::Empty,
        uses: Uses::TheGroup,
    }
}

fn host(id: u16, gib: u64) -> Host {
    Host {
        id: HostId(id),
        name: format!("host {id}"),
        rack: 0,
        cpus_free: 4,
        memory_free: Bytes::gib(gib),
    }
}

fn scenario() -> ResponseModel {
    let responder = ResponderConfig {
        detect: DetectConfig {
            samples: 12,
            violating_min: 12,
            clear_below: 0.2,
        },
        interference: InterferenceConfig {
            samples_min: 40,
            ..InterferenceConfig::default()
        },
        allowed: vec![RungKind::Appliance],
        removal: RemovalConfig {
            spare_samples: 18,
            low_samples: 18,
            ..RemovalConfig::default()
        },
        ..ResponderConfig::default()
    };
    ResponseModel {
        workloads: vec![database(1200, 0.05), neighbour()],
        hosts: vec![host(0, 8), host(1, 8)],
        array: ArrayModel {
            data_disks: 4,
            memory: [Bytes::mib(64); 2],
            ..ArrayModel::default()
        },
        appliance: ApplianceModel::default(),
        responder: Some(responder),
        zones_told: ZonesTold::Latest,
        forecasts: vec![],
        faults: vec![],
        duration: s(1500),
        curves_at: vec![],
        marks: vec![],
        seed: 1,
    }
}

/// Runs it, checks that it ended safely, and returns what happened and the minutes in violation.
fn told(model: &ResponseModel) -> (Vec<String>, Vec<f64>) {
    let result = respond(model);
    assert!(result.routed_away.is_empty(), "{:?}", result.events);
    let line = |e: &sim::response::ResponseEvent| format!("{:.0} {}", e.at_s, e.what);
    let minutes = result.series.iter().map(|s| s.violation_minutes());
    (result.events.iter().map(line).collect(), minutes.collect())
}

#[test]
fn an_appliance_comes_helps_and_goes() {
    let (events, helped) = told(&scenario());
    assert_eq!(
        events,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "580 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
    let mut watched = scenario();
    watched.responder = None;
    let (nothing, unhelped) = told(&watched);
    assert!(nothing.is_empty());
    assert!(helped[0] < 0.3 * unhelped[0], "{helped:?} {unhelped:?}");
}

#[test]
fn one_that_is_not_cacheable_is_left_alone() {
    let mut model = scenario();
    model.workloads[0] = database(1200, 0.6);
    model.array.write_back = Nanos::from_micros(3400);
    let (events, _) = told(&model);
    assert!(events.is_empty(), "{events:?}");
    let result = respond(&model);
    let decision = &result.decisions[0];
    let why: Vec<_> = decision
        .cacheable
        .iter()
        .map(|c| slo::cacheable::why_not(&c.findings))
        .collect();
    let why_not: [Option<String>; 2] = [
        Some("share of writes 0.60 is above 0.40".into()),
        Some("miss ratio with the largest cache 0.88 is above 0.60".into()),
    ];
    assert_eq!(why, why_not);
}

#[test]
fn full_hosts_are_said() {
    let mut model = scenario();
    model.hosts = vec![host(0, 1), host(1, 1)];
    let (events, _) = told(&model);
    assert!(events.is_empty(), "{events:?}");
    let result = respond(&model);
    let refused: Vec<_> = result.decisions[0]
        .hosts
        .iter()
        .map(|h| h.refused.clone().unwrap())
        .collect();
    assert_eq!(refused, ["1 GiB of memory free, needs 2 GiB"; 2]);
}

#[test]
fn a_failed_creation_is_tried_on_another_host() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::CreationFails(0)];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "589 appliance of db failed: it could not be created: the hypervisor refused",
            "590 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "650 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn a_failed_rerouting_that_took_place_is_set_back_first() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::ReroutingFails(0)];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "591 appliance of db failed: requests could not be re-routed: no answer",
            "600 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "660 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn a_violation_that_vanishes_while_the_appliance_boots() {
    let mut model = scenario();
    model.workloads[0] = database(515, 0.05);
    model.appliance.create = s(240);
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "610 appliance of db to go: the violation vanished while it was being created",
            "620 appliance of db is gone"
        ]
    );
}

#[test]
fn a_host_that_is_lost_takes_no_request_along() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::HostLost(s(900))];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "580 db goes through its appliance",
            "900 the hosts of all appliances are lost",
            "911 appliance of db failed: its host was lost: no power",
            "1030 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "1090 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_does_not() {
    let short = |seed| {
        let mut model = scenario();
        model.duration = s(300);
        model.seed = seed;
        respond(&model)
    };
    assert_eq!(short(1), short(1));
    assert_ne!(short(1).series[0].samples, short(2).series[0].samples);
}

#[test]
fn what_is_recorded_is_served_once_and_late_if_the_storage_is_slow() {
    let mut rng = Rng::new(3, 3);
    let requests: Vec<RecordedRequest> = (0..60_000u64)
        .map(|i| RecordedRequest {
            // Two seconds of 15,000 requests, then silence, then the same again.
            at: Nanos(i * 66_000 + if i < 30_000 { 0 } else { 40_000_000_000 }),
            object: rng.below(800_000) as u32,
            objects: 1 + rng.below(4) as u32,
            op: if i % 3 == 0 {
                LoadOp::Write
            } else {
                LoadOp::Read
            },
        })
        .collect();
    let mut model = scenario();
    model.workloads = vec![workload("trace", Load::Recorded(requests.into()), 1.0)];
    model.duration = s(90);
    model.marks = vec![s(2), s(50)];
    model.appliance.writes = Writes::Through;
    let result = respond(&model);
    let series = &result.series[0];
    assert_eq!(series.served + series.unserved + 16, 60_000 + 16);
    let caught = series.caught_up[0].expect("it catches up in the silence");
    assert!(caught > s(10), "{caught}");
    assert!(series.samples[0].waiting > 10_000);
}
