//! Constant views.

use std::collections::BTreeMap;

use manager::problem::{ProblemKind, ProblemView};
use manager::question::PlaceQuestion;
use manager::store::{FlowSummary, HistoryPoint, VolumeSummary};
use manager::view::*;
use manager::wire::*;
use model::JobStatus;
use model::Mode;
use model::TierState;
use model::{
    CalibrationStep, ClassObjective, ControllerId, Goal, LeaseHolder, LeaseStatus, Objective,
    PriceParts, Reason, ScoreParts, SloStatistic,
};
use units::Nanos;

const GIB: u64 = 1 << 30;
const WINDOWS: usize = 60;
const S: u64 = 1_000_000_000;

/// Names, classes, tiers (0 is the high end), requests per second, and p99 in microseconds.
const VOLUMES: [(&str, &str, usize, f64, f64); 12] = [
    ("db-main", "gold", 0, 8450.0, 412.0),
    ("db-replica", "gold", 1, 3120.0, 1840.0),
    ("mail", "silver", 1, 940.0, 2210.0),
    ("web-1", "silver", 1, 1210.0, 1650.0),
    ("web-2", "silver", 1, 1180.0, 1710.0),
    ("build", "silver", 0, 2260.0, 530.0),
    ("logs", "bronze", 2, 610.0, 9400.0),
    ("archive", "bronze", 2, 12.0, 14100.0),
    ("backup", "bronze", 2, 0.0, 0.0),
    ("home", "silver", 2, 420.0, 8800.0),
    ("vdi <gold>", "gold", 0, 5310.0, 388.0),
    ("test", "bronze", 2, 0.0, 0.0),
];
const TIERS: [&str; 3] = ["fast", "middle", "slow"];
const DEVICES: [&str; 3] = ["nvme0", "sas1", "sata2"];

pub fn status(volumes: u32) -> StatusView {
    StatusView {
        version: "0.1.0".into(),
        at_ns: 3600 * S,
        strategy: "autotiering".into(),
        paused: false,
        modes: BTreeMap::from([
            (Goal::Drain, Mode::Auto),
            (Goal::Rules, Mode::Auto),
            (Goal::Space, Mode::Partial),
            (Goal::Latency, Mode::Recommend),
        ]),
        trust: TrustView {
            trusted: true,
            outcomes: 9,
            error_median: Some(0.11),
            why: None,
        },
        in_hours: true,
        hosts: vec![HostView {
            name: "alpha".into(),
            state: HostState::Live,
            age_ns: Some(2 * S),
            generation: 42,
            next_decision_ns: Some(260 * S),
            problem: None,
            size_bytes: 12_000 * GIB,
            provisioned_bytes: 9_000 * GIB,
            lends: Some(LendsView {
                memory_bytes: 64 * GIB,
                lent_bytes: 3 * GIB,
                flash_bytes: 512 * GIB,
                lent_flash_bytes: 0,
                to: vec![LentView {
                    to: "beta".into(),
                    volume: Some("mail".into()),
                    bytes: 3 * GIB,
                    store: NodeStore::Memory,
                    ready: true,
                }],
            }),
        }],
        volumes,
        slo_violated: 2,
        unknown: 1,
        objectives_violated: 0,
        held: 0,
        proposed: 2,
        jobs: 1,
        store_failure: None,
        problems: vec![],
    }
    .with_problems(problems())
}

fn problems() -> Vec<ProblemView> {
    let problem = |kind, subject: &str, what: &str, undecided: Option<&str>| ProblemView {
        kind,
        host: Some("alpha".into()),
        subject: subject.into(),
        what: what.into(),
        undecided: undecided.map(Into::into),
        since_ns: 3000 * S,
    };
    vec![
        problem(
            ProblemKind::NearlyFull,
            "slow",
            "tier slow is nearly full: 91 % used",
            Some("moves to slow that would exceed its space limit"),
        ),
        problem(
            ProblemKind::ObjectiveViolated,
            "db-replica",
            "db-replica violated its objective in 31 of the last 60 windows",
            None,
        ),
    ]
}

pub fn tiers() -> Vec<TierView> {
    let tier = |rank: usize, size: u64, used: u64, busy: Option<f64>| TierView {
        host: "alpha".into(),
        name: TIERS[rank].into(),
        rank: rank as u32,
        state: [TierState::Open, TierState::Open, TierState::Cordoned][rank],
        size_bytes: size * GIB,
        used_bytes: used * GIB,
        provisioned_bytes: 2 * used * GIB,
        described: true,
        volumes: 4,
        utilization: busy,
        read_bytes_per_s: 88.5e6 / (rank + 1) as f64,
        write_bytes_per_s: 31.25e6 / (rank + 1) as f64,
        devices: vec![DeviceView {
            name: DEVICES[rank].into(),
            size_bytes: size * GIB,
            used_bytes: used * GIB,
            utilization: busy,
            connected: true,
        }],
    };
    vec![
        tier(0, 800, 512, Some(0.63)),
        tier(1, 3200, 1900, Some(0.41)),
        tier(2, 8000, 7280, None),
    ]
}

/// Returns the n-th volume: one of a dozen, with a number appended to its name from the second dozen on.
pub fn volume(n: usize) -> VolumeView {
    let (name, class, tier, iops, p99) = VOLUMES[n % VOLUMES.len()];
    let name = match n / VOLUMES.len() {
        0 => name.to_owned(),
        round => format!("{name}-{round}"),
    };
    let target = match class {
        "gold" => Some(1000.0),
        "silver" => Some(5000.0),
        _ => None,
    };
    // Artificial course without random numbers.
    let course = |i: usize| 0.8 + 0.4 * (((i * i * 7 + n * 13) % 29) as f64 / 29.0);
    let load = (name != "test").then(|| LoadView {
        reads_per_s: iops * 0.7,
        writes_per_s: iops * 0.3,
        read_bytes_per_s: iops * 0.7 * 8192.0,
        write_bytes_per_s: iops * 0.3 * 8192.0,
        read_mean_us: (iops > 0.0).then_some(p99 / 3.1),
        write_mean_us: (iops > 0.0).then_some(p99 / 4.2),
        mean_us: (iops > 0.0).then_some(p99 / 3.3),
        p50_us: (iops > 0.0).then_some(p99 / 4.0),
        p99_us: (iops > 0.0).then_some(p99),
        outstanding: iops * p99 / 3.3e6,
        waiting: 0,
        oldest_waiting_us: None,
        errors: u64::from(name == "archive") * 3,
    });
    VolumeView {
        bound: None,
        host: "alpha".into(),
        class: class.into(),
        size_bytes: 256 * GIB,
        allocated_bytes: (40 + 17 * (n as u64 % 12)) * GIB,
        tier: TIERS[tier].into(),
        device: DEVICES[tier].into(),
        pinned: (name == "build").then(|| "fast".into()),
        throttle: (name == "build").then_some(ThrottleView {
            iops: Some(500),
            bandwidth_bytes_per_s: None,
            left_ns: 1_500 * S,
            in_force: true,
            for_volume: None,
        }),
        slo: target.map(|target_us| SloView {
            statistic: SloStatistic::P99,
            target_us,
            measured_us: (iops > 0.0).then_some(p99),
            violated_now: false,
            violated: if p99 > target_us { 31 } else { 0 },
        }),
        p99_us: (0..WINDOWS)
            .map(|i| (iops > 0.0 && i % 17 != 5).then(|| p99 * course(i)))
            .collect(),
        window_ns: 5 * S,
        moving: (name == "home").then(|| MovingView {
            job: Some(117),
            to: "sas1".into(),
            copied_bytes: 90 * GIB,
            left_bytes: 103 * GIB,
            rate_bytes_per_s: 100 << 20,
        }),
        cooldown_left_ns: (name == "web-1").then_some(1500 * S),
        calibrating: name == "mail",
        on_tiers: vec![],
        load,
        name,
    }
}

/// Returns a tier whose score is its predicted cost.
fn scored() -> OptionView {
    let parts = ScoreParts::Price(PriceParts {
        tier_usd: 1000.0,
        space: 0.125,
        iops: 0.25,
        bandwidth: 0.0625,
    });
    OptionView {
        tier: TIERS[0].into(),
        score: Some(parts.score()),
        parts: Some(parts),
        latency_us: None,
        iops: None,
        verdict: "chosen".into(),
    }
}

pub fn plan() -> PlanView {
    let planned =
        |position: u32, volume: &str, from: usize, to: usize, us: (f64, f64)| PlannedMove {
            by_hand: None,
            command: None,
            no_command: None,
            doubt: None,
            position,
            job: Some(118 + position),
            volume: volume.into(),
            from_tier: TIERS[from].into(),
            to_tier: TIERS[to].into(),
            from: DEVICES[from].into(),
            to: DEVICES[to].into(),
            extents: None,
            goal: if position == 2 {
                Goal::Space
            } else {
                Goal::Latency
            },
            reason: format!(
                "reason {position}: gains {:.0} µs at {} requests/s",
                us.0 - us.1,
                3120
            ),
            bytes: 57 * GIB,
            duration_ns: 584 * S,
            before_us: Some(us.0),
            after_us: Some(us.1),
            after_range_us: Some((us.1 / 2.5, us.1 * 2.5)),
            after_moves: if position == 0 { vec![1] } else { vec![] },
            scored: (position == 0).then(scored).into_iter().collect(),
            state: match position {
                0 | 1 => MoveState::Proposed {
                    why: "the mode for latency is recommend".into(),
                },
                _ => MoveState::Running,
            },
        };
    PlanView {
        host: "alpha".into(),
        generation: 42,
        parent: 41,
        at_ns: 3400 * S,
        strategy: "autotiering".into(),
        state: PlanState::Current,
        moves: vec![
            planned(0, "db-replica", 1, 0, (557.0, 148.0)),
            planned(1, "build", 0, 1, (160.0, 420.0)),
            planned(2, "home", 2, 1, (2660.0, 610.0)),
        ],
        held: vec![HeldMove {
            volume: "web-1".into(),
            tier: "middle".into(),
            wanted: "fast".into(),
            why: "cooldown: moved 5 min ago, may move again after 30 min".into(),
        }],
        staying: 8,
        notes: vec!["ρ of tier fast is 0.12".into()],
    }
}

pub fn jobs() -> Vec<JobView> {
    let job = |job: u32, volume: &str, state: JobStatus| JobView {
        host: "alpha".into(),
        job,
        generation: 42,
        volume: volume.into(),
        from_tier: "slow".into(),
        to_tier: "middle".into(),
        from: "sata2".into(),
        to: "sas1".into(),
        extents: None,
        goal: Goal::Space,
        reason: "device sata2 is 91 % full".into(),
        state,
        why: (state == JobStatus::Failed).then(|| "the target refused: no space left".into()),
        cause: (state == JobStatus::Failed).then(|| "host-gave-up".into()),
        failed_io: None,
        copied_bytes: 90 * GIB,
        bytes: 193 * GIB,
        left_bytes: if state == JobStatus::Done {
            0
        } else {
            103 * GIB
        },
        rate_bytes_per_s: 100 << 20,
        before_us: None,
        after_us: None,
        planned_ns: 3400 * S,
        started_ns: Some(3410 * S),
        ended_ns: (state != JobStatus::Active).then_some(3500 * S),
        eta_ns: (state == JobStatus::Active).then_some(1055 * S),
        stuck_ns: (state == JobStatus::Active).then_some(45 * S),
    };
    vec![
        job(117, "home", JobStatus::Active),
        job(116, "logs", JobStatus::Done),
        job(115, "mail", JobStatus::Failed),
    ]
}

pub fn outcomes() -> Vec<OutcomeView> {
    let outcome = |job: u32, volume: &str, observed: Option<f64>| OutcomeView {
        host: "alpha".into(),
        job,
        volume: volume.into(),
        from_tier: "middle".into(),
        to_tier: "fast".into(),
        ended_ns: 3000 * S,
        before_us: Some(540.0),
        predicted_us: Some(150.0),
        predicted_range_us: None,
        observed_us: observed,
        before_iops: Some(2100.0),
        predicted_iops: Some(7600.0),
        observed_iops: observed.map(|_| 7210.0),
        error: observed.map(|o| (o - 150.0) / o),
    };
    vec![
        outcome(114, "db-main", Some(166.0)),
        outcome(113, "vdi <gold>", None),
    ]
}

pub fn events() -> Vec<EventView> {
    let event = |id: u64, kind, actor: &str, volume: Option<&str>, text: &str| EventView {
        id,
        at_ns: 3000 * S + id * S,
        unix_ms: 1_769_990_000_000 + id * 1000,
        kind,
        actor: actor.into(),
        host: Some("alpha".into()),
        volume: volume.map(Into::into),
        text: text.into(),
        failed_io: None,
    };
    vec![
        event(
            1,
            EventKind::Host,
            "controller",
            None,
            "the agent registered, version 0.1.0",
        ),
        event(
            2,
            EventKind::Plan,
            "controller",
            None,
            "plan 42 moves 3 volumes",
        ),
        event(
            3,
            EventKind::Approval,
            "alice",
            Some("home"),
            "move 2 of plan 42 was approved",
        ),
        event(
            4,
            EventKind::Job,
            "controller",
            Some("home"),
            "job 117 began",
        ),
    ]
}

pub fn counters(volumes: usize) -> CountersView {
    let flow = |n: u64| DirectionCounters {
        ios: 130 + n,
        bytes: (130 + n) * 8192,
        sum_ns: 91_000_001 + n,
        up_to: (0..LATENCY_BOUNDS_NS.len() as u64)
            .map(|i| i * 10)
            .collect(),
    };
    CountersView {
        volumes: (0..volumes)
            .map(|n| {
                let v = volume(n);
                VolumeCounters {
                    host: v.host,
                    volume: v.name,
                    tier: v.tier,
                    class: v.class,
                    reads: flow(n as u64),
                    writes: flow(2 * n as u64),
                    errors: 3,
                    slo_violated_ns: 155_500_000_000,
                    from_cache: (n == 1).then_some(7),
                }
            })
            .collect(),
        moves: vec![MoveCounter {
            goal: Goal::Latency,
            end: "done".into(),
            count: 14,
        }],
        moved_bytes: 910 * GIB,
        plans: 42,
        reports: 720,
        reports_refused: 1,
        calibrations: 33,
        responses: vec![ResponseCounter {
            remedy: "throttle".into(),
            what: "ordered".into(),
            count: 2,
        }],
        failed: vec![FailedCounter {
            host: "alpha".into(),
            device: "nvme0".into(),
            op: "write".into(),
            errno: "EIO".into(),
            count: 7,
        }],
    }
}

pub fn history(volume: &str, last_ns: u64) -> Vec<HistoryPoint> {
    let flow = FlowSummary {
        ios: 500,
        bytes: 500 * 4096,
        mean_ns: 210_000,
        p50_ns: 180_000,
        p95_ns: 400_000,
        p99_ns: 700_000,
        p999_ns: 900_000,
    };
    let point = |at_ns| HistoryPoint {
        at_ns,
        window_ns: 5 * S,
        summary: VolumeSummary {
            volume: volume.into(),
            device: "sas1".into(),
            reads: flow,
            writes: flow,
            p99_ns: 700_000,
            slo_ns: 700_000,
            outstanding_milli: 1300,
        },
    };
    // Returns as many rows as requested, so tests see the limit that arrived.
    (0..last_ns / (600 * S))
        .map(|i| point(i * 600 * S))
        .collect()
}

pub fn why(volume: &VolumeView) -> WhyView {
    let option = |tier: &str, score: f64, verdict: &str| OptionView {
        tier: tier.into(),
        score: Some(score),
        parts: None,
        latency_us: Some(210.0),
        iops: Some(4100.0),
        verdict: verdict.into(),
    };
    WhyView {
        volume: volume.clone(),
        generation: Some(42),
        at_ns: Some(3400 * S),
        outcome: "stays: the best tier is the one that it is on".into(),
        reason: None,
        options: vec![
            option("fast", 0.9, "chosen"),
            option("slow", 0.1, "worse by 0.8"),
        ],
        extents: vec![],
        evidence: BTreeMap::from([("latency_mean_us".into(), 210.5)]),
        notes: vec![],
        outcomes: outcomes(),
        responses: vec![],
    }
}

pub fn why_not(volume: &VolumeView, tier: &str) -> WhyNotView {
    WhyNotView {
        volume: volume.name.clone(),
        tier: tier.into(),
        here: volume.tier.clone(),
        generation: Some(42),
        why: "gate margin: gains 3 %, 5 % are asked for".into(),
    }
}

/// Returns the parameters of the query, and two tiers.
pub fn place(asked: &PlaceQuestion) -> PlaceView {
    let tier = |tier: &str, standing: PlaceStanding, verdict: &str| PlaceTierView {
        tier: tier.into(),
        standing,
        verdict: verdict.into(),
        device: Some(format!("{tier}-0")),
        latency_us: Some(103.5),
        latency_range_us: Some((63.2, 169.6)),
        cost: Some(PlaceCostView {
            total_per_s: 0.25,
            own_per_s: 0.2,
            others_per_s: Some(0.05),
        }),
        device_use: Some(0.31),
        free_after_bytes: (standing == PlaceStanding::Best).then_some(7 << 30),
    };
    PlaceView {
        host: asked.host.clone().unwrap_or_else(|| "alpha".into()),
        strategy: "terrace".into(),
        at_ns: 3400 * S,
        size_bytes: asked.size.0,
        class: asked.class.clone().unwrap_or_else(|| "default".into()),
        like: asked.like.clone(),
        load: PlaceLoadView {
            reads_per_s: 800.0,
            writes_per_s: 90.0,
            read_bytes_per_s: 4e6,
            write_bytes_per_s: 5e5,
        },
        tier: Some("fast".into()),
        reason: Some(Reason::new("misses-less", "less than on slow").with("less_per_s", 0.5)),
        why_not: None,
        tiers: vec![
            tier("fast", PlaceStanding::Best, "less than on slow"),
            tier("slow", PlaceStanding::Refused, "the tier is cordoned"),
        ],
        notes: vec!["load assumed: that of mail".into()],
    }
}

pub fn objective() -> ClassObjective {
    ClassObjective {
        class: "gold".into(),
        objective: Objective {
            statistic: SloStatistic::P99,
            latency: Nanos(1_000_000),
        },
    }
}

pub fn orders(session: u64, seq: u64, at_ns: u64) -> Orders {
    let order = MoveOrder {
        job: 117,
        volume: "home".into(),
        device: "sas1".into(),
        tier: "middle".into(),
        extents: None,
        rate_bytes_per_s: 100 << 20,
    };
    Orders {
        session,
        seq,
        controller: ControllerId::default(),
        at_ns,
        lease_ns: 30 * S,
        moves: vec![order.clone()],
        cancels: vec![order],
        calibrations: vec![CalibrationOrder {
            id: 7,
            volume: "mail".into(),
            steps: vec![step()],
        }],
        calibrations_taken: vec![6],
        remedies: Remedies {
            nodes: vec![NodeOrder {
                id: 9,
                bytes: GIB,
                store: NodeStore::Memory,
            }],
            ..Remedies::default()
        },
        throttles: vec![ThrottleOrder {
            volume: "web-2".into(),
            throttle: Throttle {
                iops: Some(500),
                bandwidth_bytes_per_s: Some(50 << 20),
                lasting_ns: 600 * S,
            },
        }],
        objectives: vec![objective()],
        policy: None,
        detail: Detail::Volumes,
    }
}

fn step() -> CalibrationStep {
    CalibrationStep {
        inject: Nanos(50_000),
        duration: Nanos(S),
    }
}

/// Returns a report with this number of volumes, each with a load of many buckets.
pub fn report(session: u64, seq: u64, volumes: usize) -> WindowReport {
    let load = |n: usize| LoadOf {
        ios: 123_456,
        bytes: 123_456 * 4096,
        sum_ns: 98_765_432_123,
        held_ns: 0,
        buckets: (0..120)
            .map(|b| (200 + b, 1000 + (n as u64 + u64::from(b)) % 900))
            .collect(),
    };
    let volume = |n: usize| VolumeWindow {
        bound: None,
        by_hand: None,
        name: format!("volume-{n:05}"),
        vm: None,
        class: "silver".into(),
        size_bytes: 256 * GIB,
        home: "middle".into(),
        placed: vec![Placed {
            device: "sas1".into(),
            bytes: 100 * GIB,
        }],
        movable: true,
        moving: None,
        throttle: None,
        calibrating: false,
        sample: None,
        cache: None,
        mirror: None,
        extents: None,
        load: Some(Load {
            reads: load(n),
            writes: load(n + 1),
            errors: 0,
            depth_ns: 5_123_456_789,
            waiting: vec![(900, 2)],
            devices: None,
        }),
        node: None,
    };
    WindowReport {
        session,
        seq,
        as_of_ns: 3_595 * S,
        window_ns: 5 * S,
        tiers: TIERS.map(String::from).into(),
        devices: vec![DeviceWindow {
            place: None,
            name: "sas1".into(),
            tier: "middle".into(),
            size_bytes: 3200 * GIB,
            used_bytes: 1900 * GIB,
            emulate: None,
            connected: true,
            io: Some(DeviceIoCounts::default()),
            waf: None,
            errors: vec![],
            node: None,
        }],
        volumes: (0..volumes).map(volume).collect(),
        jobs: vec![JobWindow {
            job: 117,
            state: JobProgress::Copying {
                copied_bytes: 1,
                left_bytes: 2,
                rate_bytes_per_s: 3,
            },
            failed_io: None,
            permanent: false,
        }],
        calibrations: vec![],
        problem: vec![],
        second_by_hand: false,
        appliances: vec![],
        lends: Some(LendWindow {
            memory_bytes: 8 * GIB,
            flash_bytes: 64 * GIB,
            nodes: vec![NodeWindow {
                id: 9,
                bytes: GIB,
                store: NodeStore::Memory,
                state: NodeState::Ready {
                    at: "nbds://192.0.2.7:10810/".into(),
                },
            }],
        }),
        lease: Some(LeaseStatus {
            holder: LeaseHolder {
                id: ControllerId {
                    store: 0x1d2c_3b4a,
                    epoch: 12,
                    start: 7,
                },
                name: "/run/terrace/controller.sock".into(),
            },
            left_ns: 15 * S,
            refused: None,
        }),
        problems: vec![],
    }
}

pub fn responses() -> Vec<ResponseView> {
    let response = |id, state, recovered: Option<u64>| ResponseView {
        id,
        host: "alpha".into(),
        volume: "orders".into(),
        found_ns: 3000 * S,
        peak: None,
        at_ns: 3000 * S,
        evidence: vec![
            "missed in 5 of the last 6 windows".into(),
            "build uses 64 % of slow-0, which is saturated".into(),
        ],
        remedy: serde_json::from_value("throttle".into()).unwrap(),
        to: Some("build".into()),
        rate_per_s: Some(500.0),
        cache_bytes: None,
        copies: None,
        lost_per_s: Some(1500.0),
        action: "throttle build to 500 requests/s (1500 requests/s less)".into(),
        price_s: Some(347.5),
        price: Some("348 s (10 s until it helps, 338 s for losses of others)".into()),
        others: vec![],
        prediction: Some("utilization of slow-0 78 % instead of 99 %".into()),
        refused: vec![],
        state,
        violated_last_ns: recovered.map(|_| 3010 * S),
        recovered_ns: recovered,
        ended_ns: None,
    };
    vec![
        response(2, ResponseState::InForce, Some(3100 * S)),
        response(1, ResponseState::Recommended, None),
    ]
}
