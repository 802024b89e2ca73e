//! `/metrics`: totals and states for Prometheus. Labels are names of volumes, tiers, devices, hosts and classes, so the number
//! of series is bounded by what exists, never by addresses.
//!
//! Counters of a volume carry no tier: a volume that moves would begin a new series with an old count. Which tier it is on is
//! in `terrace_volume_info`, to be joined by host and volume.

use client::body::goal_name;
use manager::question::{Answer, Question};
use manager::view::{
    CountersView, HostState, HostView, LATENCY_BOUNDS_NS, OnTierView, StatusView, TierView,
    VolumeCounters, VolumeView,
};

use crate::call::{Asking, Call, Reply, State, unexpected};
use crate::exposition::{Exposition, Histogram, Kind, seconds};
use crate::gate::RefusedFor;
use crate::problem::Problem;

/// The text format that is written.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

struct Facts {
    status: StatusView,
    tiers: Vec<TierView>,
    volumes: Vec<VolumeView>,
    counters: CountersView,
}

impl Facts {
    fn gather(service: &mut Asking<'_>) -> Result<Self, Problem> {
        let Answer::Status(status) = service.ask(Question::Status)? else {
            return Err(unexpected());
        };
        let Answer::Tiers(tiers) = service.ask(Question::Tiers)? else {
            return Err(unexpected());
        };
        let Answer::Volumes(volumes) = service.ask(Question::Volumes)? else {
            return Err(unexpected());
        };
        let Answer::Counters(counters) = service.ask(Question::Counters)? else {
            return Err(unexpected());
        };
        Ok(Self {
            status: *status,
            tiers,
            volumes,
            counters: *counters,
        })
    }
}

/// Everything, as text.
pub(crate) fn answer(call: &Call) -> Result<Reply, Problem> {
    let facts = call.state.ask_all(&call.actor(), Facts::gather)?;
    let mut out = Exposition::default();
    controller(&mut out, &facts.status, &facts.counters);
    hosts(&mut out, &facts.status.hosts);
    tiers(&mut out, &facts.tiers);
    volumes(&mut out, &facts.volumes);
    on_tiers(&mut out, &facts.volumes);
    counters(&mut out, &facts.counters);
    access(&mut out, &call.state);
    Ok(Reply::text(CONTENT_TYPE, out.text()))
}

/// Refused callers, and memory that bodies of requests take.
fn access(out: &mut Exposition, state: &State) {
    let name = "terrace_refused_total";
    out.metric(
        name,
        Kind::Counter,
        "Connections and requests refused for want of a valid token.",
    );
    for why in RefusedFor::ALL {
        out.whole(name, &[("reason", why.name())], state.gate.refused(why));
    }
    let name = "terrace_bodies_bytes";
    out.metric(
        name,
        Kind::Gauge,
        "Bytes reserved for bodies of requests in flight.",
    );
    out.whole(name, &[], state.bodies.reserved() as u64);
}

fn controller(out: &mut Exposition, status: &StatusView, counters: &CountersView) {
    use Kind::{Counter, Gauge};
    let mut one = |name: &str, kind, help: &str, value: u64| {
        out.metric(name, kind, help);
        out.whole(name, &[], value);
    };
    let trusted = status.trust.trusted.into();
    one(
        "terrace_trusted",
        Gauge,
        "1 while the strategy's predictions hold.",
        trusted,
    );
    one(
        "terrace_store_up",
        Gauge,
        "0 while the store cannot be read or written: nothing is decided or ordered.",
        status.store_failure.is_none().into(),
    );
    one(
        "terrace_problems",
        Gauge,
        "What needs attention: as many as the status names.",
        status.problems.len() as u64,
    );
    one(
        "terrace_paused",
        Gauge,
        "1 while nothing new is begun.",
        status.paused.into(),
    );
    let jobs = status.jobs.into();
    one("terrace_jobs", Gauge, "Jobs that have not ended.", jobs);
    let proposed = status.proposed.into();
    one(
        "terrace_moves_proposed",
        Gauge,
        "Moves that wait for approval.",
        proposed,
    );
    let unknown = status.unknown.into();
    one(
        "terrace_volumes_unknown",
        Gauge,
        "Volumes whose load is not known.",
        unknown,
    );
    let broken = status.objectives_violated.into();
    one(
        "terrace_objectives_violated",
        Gauge,
        "Objectives that are missed for long enough to be answered.",
        broken,
    );
    let held = status.held.into();
    one(
        "terrace_volumes_held",
        Gauge,
        "Volumes that are throttled for others' objectives: held to less than they ask for.",
        held,
    );
    let violated = status.slo_violated.into();
    one(
        "terrace_volumes_slo_violated",
        Gauge,
        "Volumes that missed their objective in the last window.",
        violated,
    );
    one(
        "terrace_plans_total",
        Counter,
        "Plans that were made.",
        counters.plans,
    );
    one(
        "terrace_moved_bytes_total",
        Counter,
        "Bytes copied by moves that ended.",
        counters.moved_bytes,
    );
    one(
        "terrace_reports_total",
        Counter,
        "Reports of agents that were taken.",
        counters.reports,
    );
    let refused = counters.reports_refused;
    one(
        "terrace_reports_refused_total",
        Counter,
        "Reports of agents that were refused.",
        refused,
    );
    let calibrations = counters.calibrations;
    one(
        "terrace_calibrations_total",
        Counter,
        "Calibration sessions that were taken in.",
        calibrations,
    );
    let name = "terrace_move_prediction_error_ratio";
    out.metric(
        name,
        Gauge,
        "Median of |observed - predicted| / observed latency of the last moves with an outcome.",
    );
    if let Some(error) = status.trust.error_median {
        out.real(name, &[], error);
    }
    let name = "terrace_build_info";
    out.metric(name, Gauge, "Version and strategy, always 1.");
    let labels = [
        ("version", &*status.version),
        ("strategy", &*status.strategy),
    ];
    out.whole(name, &labels, 1);
    let name = "terrace_problem";
    out.metric(
        name,
        Gauge,
        "1 for each thing that needs attention, by kind, host and what it is about.",
    );
    for problem in &status.problems {
        let labels = [
            ("kind", problem.kind.name()),
            ("host", problem.host.as_deref().unwrap_or_default()),
            ("subject", &*problem.subject),
        ];
        out.whole(name, &labels, 1);
    }
    let name = "terrace_moves_total";
    out.metric(
        name,
        Counter,
        "Moves that ended, by what they were for and how.",
    );
    for moves in &counters.moves {
        let goal = goal_name(moves.goal);
        out.whole(name, &[("goal", goal), ("end", &moves.end)], moves.count);
    }
}

fn hosts(out: &mut Exposition, hosts: &[HostView]) {
    let name = "terrace_host_up";
    out.metric(
        name,
        Kind::Gauge,
        "1 while the host's agent reports in time.",
    );
    for host in hosts {
        let up = host.state == HostState::Live;
        out.whole(name, &[("host", &host.name)], up.into());
    }
    let name = "terrace_host_report_age_seconds";
    out.metric(name, Kind::Gauge, "Age of the host's last window.");
    for host in hosts {
        if let Some(age_ns) = host.age_ns {
            out.real(name, &[("host", &host.name)], age_ns as f64 / 1e9);
        }
    }
    let lending = hosts.iter().filter_map(|h| Some((h, h.lends.as_ref()?)));
    let name = "terrace_host_lends_bytes";
    out.metric(
        name,
        Kind::Gauge,
        "What the host lends to the arrays of others, in all.",
    );
    for (host, lends) in lending.clone() {
        for (store, all, _) in lends.stores() {
            let labels = [("host", &*host.name), ("store", store.word())];
            out.whole(name, &labels, all);
        }
    }
    let name = "terrace_host_lent_bytes";
    out.metric(name, Kind::Gauge, "What of that others have.");
    for (host, lends) in lending {
        for (store, _, lent) in lends.stores() {
            let labels = [("host", &*host.name), ("store", store.word())];
            out.whole(name, &labels, lent);
        }
    }
}

fn tiers(out: &mut Exposition, tiers: &[TierView]) {
    let mut size = |name: &str, help: &str, of: fn(&TierView) -> u64| {
        out.metric(name, Kind::Gauge, help);
        for tier in tiers {
            let labels = [("host", &*tier.host), ("tier", &tier.name)];
            out.whole(name, &labels, of(tier));
        }
    };
    size("terrace_tier_size_bytes", "All bytes of a tier.", |t| {
        t.size_bytes
    });
    size(
        "terrace_tier_used_bytes",
        "Bytes of a tier that are taken.",
        |t| t.used_bytes,
    );
    let name = "terrace_device_utilization_ratio";
    out.metric(
        name,
        Kind::Gauge,
        "Share of the last window in which a device was in use.",
    );
    for tier in tiers {
        for device in &tier.devices {
            let labels = [
                ("host", &*tier.host),
                ("tier", &tier.name),
                ("device", &device.name),
            ];
            if let Some(utilization) = device.utilization {
                out.real(name, &labels, utilization);
            }
        }
    }
    let name = "terrace_device_up";
    out.metric(name, Kind::Gauge, "1 while a device can be reached.");
    for tier in tiers {
        for device in &tier.devices {
            let labels = [
                ("host", &*tier.host),
                ("tier", &tier.name),
                ("device", &device.name),
            ];
            out.whole(name, &labels, device.connected.into());
        }
    }
}

/// Of every volume and tier that has something of it.
fn on_tiers(out: &mut Exposition, volumes: &[VolumeView]) {
    let labels = |v: &VolumeView, t: &OnTierView| {
        [
            ("host", v.host.clone()),
            ("volume", v.name.clone()),
            ("tier", t.tier.clone()),
        ]
    };
    let mut one = |name: &str, help: &str, value: fn(&OnTierView) -> Option<u64>| {
        out.metric(name, Kind::Gauge, help);
        for v in volumes {
            for t in &v.on_tiers {
                let labels = labels(v, t);
                let labels: Vec<(&str, &str)> = labels.iter().map(|l| (l.0, &*l.1)).collect();
                if let Some(value) = value(t) {
                    out.whole(name, &labels, value);
                }
            }
        }
    };
    one(
        "terrace_volume_tier_bytes",
        "Bytes of a volume on a tier.",
        |t| Some(t.bytes),
    );
    one(
        "terrace_volume_tier_window_requests",
        "Requests of the last window that touched extents on a tier, where extents are placed one by one.",
        |t| t.requests,
    );
}

fn volumes(out: &mut Exposition, volumes: &[VolumeView]) {
    let name = "terrace_volume_info";
    out.metric(
        name,
        Kind::Gauge,
        "Where most of a volume is now, always 1.",
    );
    for v in volumes {
        let labels = [
            ("host", &*v.host),
            ("volume", &v.name),
            ("class", &v.class),
            ("tier", &v.tier),
            ("device", &v.device),
        ];
        out.whole(name, &labels, 1);
    }
    let name = "terrace_volume_slo_target_seconds";
    out.metric(
        name,
        Kind::Gauge,
        "Latency that a volume's objective allows.",
    );
    for v in volumes {
        if let Some(slo) = &v.slo {
            let labels = [("host", &*v.host), ("volume", &v.name), ("class", &v.class)];
            out.real(name, &labels, slo.target_us / 1e6);
        }
    }
}

fn counters(out: &mut Exposition, counters: &CountersView) {
    let name = "terrace_device_errors_total";
    out.metric(name, Kind::Counter, "I/Os that a device failed.");
    for f in &counters.failed {
        let labels = [
            ("host", &*f.host),
            ("device", &f.device),
            ("op", &f.op),
            ("errno", &f.errno),
        ];
        out.whole(name, &labels, f.count);
    }
    let name = "terrace_remedies_total";
    out.metric(name, Kind::Counter, "Answers to broken objectives.");
    for r in &counters.responses {
        out.whole(name, &[("remedy", &*r.remedy), ("what", &r.what)], r.count);
    }
    let volumes = &counters.volumes;
    for (direction, of) in [
        ("read", (|v| &v.reads) as fn(&VolumeCounters) -> &_),
        ("write", |v| &v.writes),
    ] {
        let name = format!("terrace_volume_{direction}_latency_seconds");
        let help = format!("Latency of {direction}s as the guest sees it.");
        out.metric(&name, Kind::Histogram, &help);
        for v in volumes {
            let flow = of(v);
            let of = Histogram {
                bounds_ns: &LATENCY_BOUNDS_NS,
                up_to: &flow.up_to,
                count: flow.ios,
                sum_ns: flow.sum_ns,
            };
            out.histogram(&name, &labels(v), &of);
        }
        let name = format!("terrace_volume_{direction}s_total");
        out.metric(&name, Kind::Counter, &format!("Requests: {direction}s."));
        for v in volumes {
            out.whole(&name, &labels(v), of(v).ios);
        }
        let name = format!("terrace_volume_{direction}_bytes_total");
        out.metric(&name, Kind::Counter, &format!("Bytes of {direction}s."));
        for v in volumes {
            out.whole(&name, &labels(v), of(v).bytes);
        }
    }
    let name = "terrace_volume_errors_total";
    out.metric(
        name,
        Kind::Counter,
        "Requests that were answered with an error.",
    );
    for v in volumes {
        out.whole(name, &labels(v), v.errors);
    }
    let name = "terrace_volume_from_cache_total";
    let help = "Requests that a cache answered, which reached no device.";
    out.metric(name, Kind::Counter, help);
    for v in volumes {
        if let Some(from_cache) = v.from_cache {
            out.whole(name, &labels(v), from_cache);
        }
    }
    let name = "terrace_volume_slo_violation_seconds_total";
    out.metric(
        name,
        Kind::Counter,
        "Time in windows that missed the objective.",
    );
    for v in volumes {
        out.number(name, &labels(v), &seconds(v.slo_violated_ns));
    }
}

fn labels(v: &VolumeCounters) -> [(&str, &str); 3] {
    [
        ("host", &v.host),
        ("volume", &v.volume),
        ("class", &v.class),
    ]
}
