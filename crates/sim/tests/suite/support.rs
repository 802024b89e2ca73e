//! Runs of scenarios that are texts, and scenarios of broken objectives.

use sim::response::{
    ApplianceModel, ArrayModel, Arriving, Generated, Load, LoadPhase, MemoryBefore, Region,
    ResponseModel, ResponseWorkload, Uses, ZonesKnown, respond,
};
use sim::{GroupKind, GroupSummary, Manifest, RunOptions, RunResult, ScenarioFile};
use slo::detect::DetectConfig;
use slo::host::Host;
use slo::interference::InterferenceConfig;
use slo::ladder::RungKind;
use slo::removal::RemovalConfig;
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::{HostId, Promise, ResponderConfig};
use units::{Bytes, Nanos};

/// A run of a scenario without traces, with results over time.
pub fn run_text(text: &str, strategy: &str) -> RunResult {
    let file = ScenarioFile::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}"));
    run_file(&file, strategy)
}

/// The same of one that is read already.
pub fn run_file(file: &ScenarioFile, strategy: &str) -> RunResult {
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build(strategy, Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

/// Why a scenario of a file of that name is refused.
pub fn refusal(file: &str, text: &str) -> String {
    let built = ScenarioFile::parse(file, text).and_then(|f| f.build(vec![]));
    let refusal = built.err();
    refusal.expect("the scenario is refused").to_string()
}

/// The results of a group.
pub fn group<'a>(result: &'a RunResult, kind: GroupKind, name: &str) -> &'a GroupSummary {
    let mut groups = result.groups.iter();
    let of = groups.find(|g| g.kind == kind && g.name == name);
    of.unwrap_or_else(|| panic!("no group {name}"))
}

pub fn s(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

/// A database with a peak from second 400 to `peak_ends`.
pub fn database(peak_ends: u64, write_share: f64) -> ResponseWorkload {
    let mut db = peaking(850.0, (400, peak_ends), write_share);
    db.objective.rate_min_per_s = Some(800.0);
    db
}

/// One that asks for `peak_per_s` from one second to another, as it was promised.
pub fn peaking(peak_per_s: f64, peak: (u64, u64), write_share: f64) -> ResponseWorkload {
    let phase = |until, rate_per_s| LoadPhase {
        until: s(until),
        rate_per_s,
        hot: 0,
        cold_share: 0.02,
        write_share,
    };
    let load = Generated {
        phases: vec![
            phase(peak.0, 120.0),
            phase(peak.1, peak_per_s),
            phase(6000, 120.0),
        ],
        regions: vec![Region {
            first: 0,
            objects: 60_000,
            theta: 0.6,
        }],
        arriving: Arriving::AtRandom,
        seed: 5,
    };
    workload("db", Load::Generated(load), peak_per_s)
}

/// A neighbour that reads all over its data.
pub fn neighbour() -> ResponseWorkload {
    let mut search = reading_all_over(500.0);
    search.objective.rate_min_per_s = Some(450.0);
    search
}

/// One at another rate, as it was promised.
pub fn reading_all_over(rate_per_s: f64) -> ResponseWorkload {
    let load = Generated {
        phases: vec![LoadPhase {
            until: s(6000),
            rate_per_s,
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
    workload("search", Load::Generated(load), rate_per_s)
}

pub fn workload(name: &str, load: Load, promised: f64) -> ResponseWorkload {
    ResponseWorkload {
        name: name.into(),
        load,
        objects: 900_000,
        object_bytes: 16 << 10,
        outstanding_max: 16,
        objective: Promise {
            rate_min_per_s: Some(promised),
            latency_max: None,
            ..Promise::default()
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

pub fn host(id: u16, gib: u64) -> Host {
    Host {
        id: HostId(id),
        name: format!("host {id}"),
        rack: 0,
        cpus_free: 4,
        memory_free: Bytes::gib(gib),
    }
}

pub fn scenario() -> ResponseModel {
    let responder = ResponderConfig {
        detect: DetectConfig {
            samples: 12,
            violating_min: 12,
            clear_below: 0.2,
        },
        interference: InterferenceConfig {
            samples_min: 40,
            taken_min: None,
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
        ops: None,
        elsewhere: None,
        responder: Some(responder),
        zones_known: ZonesKnown::Latest,
        forecasts: vec![],
        faults: vec![],
        duration: s(1500),
        curves_at: vec![],
        marks: vec![],
        spans: vec![],
        seed: 1,
    }
}

/// Runs it, checks that it ended safely, and returns what happened and the minutes in violation.
pub fn told(model: &ResponseModel) -> (Vec<String>, Vec<f64>) {
    let result = respond(model);
    assert!(result.routed_away.is_empty(), "{:?}", result.events);
    assert_eq!(result.stale, 0, "all data is consistent");
    let line = |e: &sim::response::ResponseEvent| format!("{:.0} {}", e.at_s, e.what);
    let minutes = result.series.iter().map(|s| s.violation_minutes());
    (result.events.iter().map(line).collect(), minutes.collect())
}
