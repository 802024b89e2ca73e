//! `/metrics`: totals and states for Prometheus. Labels are names of volumes, tiers, devices, hosts and classes. The number of
//! series therefore depends on the number of these objects, never on addresses.
//!
//! Counters of a volume have no label for the tier: a volume that moves would start a new series with an old count.
//! `terrace_volume_info` gives the tier; join it by host and volume.

use client::body::goal_name;
use manager::question::{Answer, Question};
use manager::view::{
    CountersView, HostState, HostView, LATENCY_BOUNDS_NS, OnTierView, StatusView, TierView,
    VolumeCounters, VolumeView,
};

use crate::call::{Call, Reply, ServiceCall, State, unexpected};
use crate::exposition::{Exposition, Histogram, Kind, seconds};
use crate::gate::RejectReason;
use crate::problem::Problem;

/// Content type of the Prometheus text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

struct Facts {
    status: StatusView,
    tiers: Vec<TierView>,
    volumes: Vec<VolumeView>,
    counters: CountersView,
}

impl Facts {
    fn gather(service: &mut ServiceCall<'_>) -> Result<Self, Problem> {
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

/// Returns all metrics as text.
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

/// Adds the rejected callers and the memory of request bodies.
fn access(out: &mut Exposition, state: &State) {
    let name = "terrace_refused_total";
    out.metric(
        name,
        Kind::Counter,
        "Connections and requests rejected because they had no valid token, by reason.",
    );
    for why in RejectReason::ALL {
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
        "1 if predictions of the strategy are accurate enough for automatic moves, else 0.",
        trusted,
    );
    one(
        "terrace_store_up",
        Gauge,
        "State of the store: 1 if it can be read and written, else 0. At 0 the controller makes no decisions and gives no orders.",
        status.store_failure.is_none().into(),
    );
    one(
        "terrace_problems",
        Gauge,
        "Number of current problems, as in the status.",
        status.problems.len() as u64,
    );
    one(
        "terrace_paused",
        Gauge,
        "1 while the controller is paused and starts no new moves, else 0.",
        status.paused.into(),
    );
    let jobs = status.jobs.into();
    one("terrace_jobs", Gauge, "Approved or running jobs.", jobs);
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
        "Volumes with unknown load.",
        unknown,
    );
    let broken = status.objectives_violated.into();
    one(
        "terrace_objectives_violated",
        Gauge,
        "Violations that have lasted long enough for a remedy.",
        broken,
    );
    let held = status.held.into();
    one(
        "terrace_volumes_held",
        Gauge,
        "Volumes that are throttled below their demand for the objective of another volume.",
        held,
    );
    let violated = status.slo_violated.into();
    one(
        "terrace_volumes_slo_violated",
        Gauge,
        "Volumes that violated their objective in the last window.",
        violated,
    );
    one(
        "terrace_plans_total",
        Counter,
        "Plans made since the controller started.",
        counters.plans,
    );
    one(
        "terrace_moved_bytes_total",
        Counter,
        "Bytes copied by ended moves, added when a move ends.",
        counters.moved_bytes,
    );
    one(
        "terrace_reports_total",
        Counter,
        "Accepted reports of agents.",
        counters.reports,
    );
    let refused = counters.reports_refused;
    one(
        "terrace_reports_refused_total",
        Counter,
        "Rejected reports of agents.",
        refused,
    );
    let calibrations = counters.calibrations;
    one(
        "terrace_calibrations_total",
        Counter,
        "Calibration sessions whose results were used.",
        calibrations,
    );
    let name = "terrace_move_prediction_error_ratio";
    out.metric(
        name,
        Gauge,
        "Median of |observed - predicted| / observed latency over the last moves with an outcome.",
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
        "1 for each current problem, by kind, host and subject (volume, tier or device).",
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
        "Ended moves, by goal and end (done, failed, cancelled).",
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
        "1 if the agent of the host reports in time, else 0.",
    );
    for host in hosts {
        let up = host.state == HostState::Live;
        out.whole(name, &[("host", &host.name)], up.into());
    }
    let name = "terrace_host_report_age_seconds";
    out.metric(
        name,
        Kind::Gauge,
        "Age of the last reported window of the host.",
    );
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
        "Memory or flash that the host offers to other hosts.",
    );
    for (host, lends) in lending.clone() {
        for (store, all, _) in lends.stores() {
            let labels = [("host", &*host.name), ("store", store.word())];
            out.whole(name, &labels, all);
        }
    }
    let name = "terrace_host_lent_bytes";
    out.metric(
        name,
        Kind::Gauge,
        "Memory or flash of the host that other hosts use.",
    );
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
    size("terrace_tier_size_bytes", "Capacity of a tier.", |t| {
        t.size_bytes
    });
    size("terrace_tier_used_bytes", "Used space of a tier.", |t| {
        t.used_bytes
    });
    let name = "terrace_device_utilization_ratio";
    out.metric(
        name,
        Kind::Gauge,
        "Share of the last window in which the device was busy, 0 to 1.",
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
    out.metric(name, Kind::Gauge, "1 if the device is reachable, else 0.");
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

/// Adds the space and load of every volume on each of its tiers.
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
        "Requests of the last window to extents on a tier. Only for volumes whose extents are placed separately.",
        |t| t.requests,
    );
}

fn volumes(out: &mut Exposition, volumes: &[VolumeView]) {
    let name = "terrace_volume_info";
    out.metric(
        name,
        Kind::Gauge,
        "Class of a volume, and the tier and device with most of its data; always 1.",
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
    out.metric(name, Kind::Gauge, "Latency objective of a volume.");
    for v in volumes {
        if let Some(slo) = &v.slo {
            let labels = [("host", &*v.host), ("volume", &v.name), ("class", &v.class)];
            out.real(name, &labels, slo.target_us / 1e6);
        }
    }
}

fn counters(out: &mut Exposition, counters: &CountersView) {
    let name = "terrace_device_errors_total";
    out.metric(
        name,
        Kind::Counter,
        "Failed I/Os of a device, by operation and errno.",
    );
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
    out.metric(
        name,
        Kind::Counter,
        "Remedies for SLO violations, by kind and result.",
    );
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
        out.metric(&name, Kind::Counter, &format!("Number of {direction}s."));
        for v in volumes {
            out.whole(&name, &labels(v), of(v).ios);
        }
        let name = format!("terrace_volume_{direction}_bytes_total");
        out.metric(
            &name,
            Kind::Counter,
            &format!("Bytes transferred by {direction}s."),
        );
        for v in volumes {
            out.whole(&name, &labels(v), of(v).bytes);
        }
    }
    let name = "terrace_volume_errors_total";
    out.metric(name, Kind::Counter, "Failed requests.");
    for v in volumes {
        out.whole(name, &labels(v), v.errors);
    }
    let name = "terrace_volume_from_cache_total";
    let help = "Requests that a cache served without an access to a device.";
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
        "Total length of the windows that violated the objective.",
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
