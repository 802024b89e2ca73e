//! Made-up answers of a controller: one host, three tiers, four volumes.

use manager::problem::{ProblemKind, ProblemView};
use manager::store::{FlowSummary, HistoryPoint, VolumeSummary};
use manager::view::{
    DeviceView, EventKind, EventView, HeldMove, HostState, HostView, JobView, LoadView, MoveState,
    MovingView, OptionView, OutcomeView, PlaceCostView, PlaceLoadView, PlaceStanding,
    PlaceTierView, PlaceView, PlanState, PlanView, PlannedMove, SloView, StatusView, TierView,
    TrustView, VolumeView, WhyNotView, WhyView,
};
use model::Mode;
use model::TierState;
use model::{
    AgedBy, Aging, Goal, JobStatus, MatchPart, MatchParts, Reason, ScoreParts, SloStatistic,
};
use units::Nanos;

/// A second.
pub const S: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;
const MIB: f64 = (1u64 << 20) as f64;

/// The controller's time: two hours.
pub const NOW: Nanos = Nanos::from_secs(7200);

pub fn status() -> StatusView {
    let host = |name: &str, state, age: Option<u64>| HostView {
        name: name.into(),
        state,
        age_ns: age.map(|a| a * S),
        size_bytes: 0,
        provisioned_bytes: 0,
        lends: None,
        generation: if age.is_some() { 12 } else { 0 },
        next_decision_ns: age.map(|_| 200 * S),
        problem: None,
    };
    StatusView {
        version: "0.0.0-test".into(),
        at_ns: NOW.0,
        strategy: "autotiering".into(),
        paused: true,
        modes: [
            (Goal::Drain, Mode::Auto),
            (Goal::Rules, Mode::Auto),
            (Goal::Space, Mode::Off),
            (Goal::Latency, Mode::Partial),
        ]
        .into(),
        trust: TrustView {
            trusted: true,
            outcomes: 6,
            error_median: Some(0.1234),
            why: None,
        },
        in_hours: false,
        hosts: vec![
            host("alpha", HostState::Live, Some(4)),
            host("beta", HostState::Lost, None),
        ],
        volumes: 24,
        slo_violated: 1,
        unknown: 2,
        objectives_violated: 0,
        held: 0,
        proposed: 3,
        jobs: 1,
        store_failure: None,
        problems: vec![],
    }
    .with_problems(problems())
}

fn problems() -> Vec<ProblemView> {
    let problem =
        |kind, subject: &str, what: &str, undecided: Option<&str>, since_ns| ProblemView {
            kind,
            host: Some("alpha".into()),
            subject: subject.into(),
            what: what.into(),
            undecided: undecided.map(Into::into),
            since_ns,
        };
    vec![
        problem(
            ProblemKind::HostLost,
            "beta",
            "host beta is lost: it does not report; check its agent",
            Some("moves and remedies of beta"),
            NOW.0 - 300 * S,
        ),
        problem(
            ProblemKind::DeviceUnreachable,
            "sata-1",
            "device sata-1 is unreachable: requests wait; check its connection",
            None,
            NOW.0 - 12 * S,
        ),
    ]
}

pub fn tiers() -> Vec<TierView> {
    let tier = |rank: u32, name: &str, state, used_gib: u64| TierView {
        host: "alpha".into(),
        name: name.into(),
        rank,
        state,
        size_bytes: 400 * GIB,
        used_bytes: used_gib * GIB,
        provisioned_bytes: 2 * used_gib * GIB,
        described: true,
        volumes: 2 - rank,
        utilization: (rank < 2).then_some(0.4567),
        read_bytes_per_s: 120.0 * MIB,
        write_bytes_per_s: 30.5 * MIB,
        devices: vec![DeviceView {
            name: format!("{name}-0"),
            size_bytes: 400 * GIB,
            used_bytes: used_gib * GIB,
            utilization: None,
            connected: true,
        }],
    };
    vec![
        tier(0, "fast", TierState::Open, 300),
        tier(1, "middle", TierState::Cordoned, 120),
        tier(2, "slow", TierState::Draining, 0),
    ]
}

fn volume(name: &str, tier: &str, load: Option<LoadView>) -> VolumeView {
    VolumeView {
        bound: None,
        throttle: None,
        host: "alpha".into(),
        name: name.into(),
        class: "gold".into(),
        size_bytes: 100 * GIB,
        allocated_bytes: 40 * GIB,
        tier: tier.into(),
        device: format!("{tier}-0"),
        pinned: None,
        load,
        slo: None,
        p99_us: vec![Some(800.0), None, Some(900.0)],
        window_ns: 10 * S,
        moving: None,
        cooldown_left_ns: None,
        calibrating: false,
        on_tiers: vec![],
    }
}

fn load(reads_per_s: f64, bytes_per_s: f64, p99_us: Option<f64>) -> LoadView {
    LoadView {
        reads_per_s,
        writes_per_s: reads_per_s / 4.0,
        read_bytes_per_s: bytes_per_s,
        write_bytes_per_s: bytes_per_s / 4.0,
        read_mean_us: p99_us.map(|p| p / 5.0),
        write_mean_us: p99_us.map(|p| p / 8.0),
        mean_us: p99_us.map(|p| p / 6.0),
        p50_us: p99_us.map(|p| p / 7.0),
        p99_us,
        outstanding: reads_per_s / 1000.0,
        waiting: 0,
        oldest_waiting_us: None,
        errors: 0,
    }
}

/// `new` is unknown, `archive` is idle, `db` misses its objective and moves.
pub fn volumes() -> Vec<VolumeView> {
    let slo = |measured_us| SloView {
        statistic: SloStatistic::P99,
        target_us: 1000.0,
        measured_us,
        violated_now: false,
        violated: 1,
    };
    let mut db = volume("db", "slow", Some(load(2000.0, 90.0 * MIB, Some(4321.0))));
    db.slo = Some(slo(Some(4321.0)));
    db.moving = Some(MovingView {
        job: Some(3),
        to: "fast-0".into(),
        copied_bytes: 10 * GIB,
        left_bytes: 30 * GIB,
        rate_bytes_per_s: 100 << 20,
    });
    let mut mail = volume(
        "mail",
        "middle",
        Some(load(3000.0, 20.0 * MIB, Some(800.0))),
    );
    mail.slo = Some(slo(Some(800.0)));
    let mut archive = volume("archive", "slow", Some(load(0.0, 0.0, None)));
    archive.slo = Some(slo(None));
    vec![volume("new", "fast", None), archive, db, mail]
}

pub fn plan(generation: u64) -> PlanView {
    let moved = |position: u32, volume: &str, goal, state| PlannedMove {
        by_hand: None,
        command: None,
        no_command: None,
        doubt: None,
        position,
        job: Some(position + 3),
        volume: volume.into(),
        from_tier: "slow".into(),
        to_tier: "fast".into(),
        from: "slow".into(),
        to: "fast-1".into(),
        extents: None,
        goal,
        reason: "rank 1 by score on the target (score 0.5000, here 0.1000)".into(),
        bytes: 40 * GIB,
        duration_ns: 205 * S,
        before_us: (goal == Goal::Latency).then_some(720.25),
        after_us: (goal == Goal::Latency).then_some(95.5),
        after_range_us: (goal == Goal::Latency).then_some((38.2, 238.75)),
        after_moves: vec![],
        scored: vec![],
        state,
    };
    let waits = || MoveState::Proposed {
        why: "the mode of latency is recommend".into(),
    };
    let ended = MoveState::Ended {
        why: "rejected by ann".into(),
    };
    let mut out = moved(2, "archive", Goal::Space, MoveState::Running);
    (out.from_tier, out.from) = ("fast".into(), "fast-1".into());
    (out.to_tier, out.to) = ("slow".into(), "slow".into());
    out.bytes = 100 * GIB;
    let mut mail = moved(1, "mail", Goal::Latency, waits());
    mail.after_moves = vec![2];
    PlanView {
        host: "alpha".into(),
        generation,
        parent: generation - 1,
        at_ns: NOW.0 - 180 * S,
        strategy: "autotiering".into(),
        state: PlanState::Current,
        moves: vec![
            moved(0, "db", Goal::Latency, waits()),
            mail,
            out,
            moved(3, "web", Goal::Rules, ended),
        ],
        held: vec![HeldMove {
            volume: "logs".into(),
            tier: "slow".into(),
            wanted: "middle".into(),
            why: "hold: 2 consecutive decisions must agree; 1 so far".into(),
        }],
        staying: 19,
        notes: vec!["2 volumes are not measured".into()],
    }
}

pub fn jobs() -> Vec<JobView> {
    let job = |job: u32, state: JobStatus| JobView {
        host: "alpha".into(),
        job,
        generation: 12,
        volume: "db".into(),
        from_tier: "slow".into(),
        to_tier: "fast".into(),
        from: "slow-0".into(),
        to: "fast-0".into(),
        extents: None,
        goal: Goal::Latency,
        reason: "rank 1".into(),
        state,
        why: None,
        cause: None,
        failed_io: None,
        copied_bytes: 0,
        bytes: 40 * GIB,
        left_bytes: 40 * GIB,
        rate_bytes_per_s: 0,
        before_us: None,
        after_us: None,
        planned_ns: NOW.0 - 300 * S,
        started_ns: None,
        ended_ns: None,
        eta_ns: None,
        stuck_ns: None,
    };
    let copying = JobView {
        copied_bytes: 10 * GIB,
        left_bytes: 30 * GIB,
        rate_bytes_per_s: 100 << 20,
        started_ns: Some(NOW.0 - 100 * S),
        eta_ns: Some(307 * S),
        ..job(5, JobStatus::Active)
    };
    let stuck = JobView {
        rate_bytes_per_s: 0,
        eta_ns: None,
        stuck_ns: Some(600 * S),
        ..JobView {
            job: 4,
            ..copying.clone()
        }
    };
    let failed = JobView {
        why: Some("the target device is full".into()),
        ended_ns: Some(NOW.0 - 10 * S),
        eta_ns: None,
        copied_bytes: 5 * GIB,
        ..JobView {
            state: JobStatus::Failed,
            job: 3,
            ..copying.clone()
        }
    };
    let done = JobView {
        why: None,
        copied_bytes: 40 * GIB,
        ..JobView {
            state: JobStatus::Done,
            job: 2,
            ..failed.clone()
        }
    };
    vec![job(6, JobStatus::Proposed), copying, stuck, failed, done]
}

pub fn outcomes() -> Vec<OutcomeView> {
    let outcome = |job, observed_us: Option<f64>| OutcomeView {
        host: "alpha".into(),
        job,
        volume: "db".into(),
        from_tier: "slow".into(),
        to_tier: "fast".into(),
        ended_ns: NOW.0 - 600 * S,
        before_us: Some(720.0),
        predicted_us: Some(90.0),
        predicted_range_us: None,
        observed_us,
        before_iops: Some(2000.0),
        predicted_iops: Some(2400.0),
        observed_iops: Some(2300.0),
        error: observed_us.map(|o| (o - 90.0) / o),
    };
    vec![outcome(2, Some(100.0)), outcome(1, None)]
}

pub fn history() -> Vec<HistoryPoint> {
    let flow = |ios, mean_ns| FlowSummary {
        ios,
        bytes: ios * 4096,
        mean_ns,
        ..FlowSummary::default()
    };
    let point = |ago_s: u64, window_s: u64, reads, writes, p99_ns| HistoryPoint {
        at_ns: NOW.0 - ago_s * S,
        window_ns: window_s * S,
        summary: VolumeSummary {
            volume: "db".into(),
            device: "slow-0".into(),
            reads,
            writes,
            p99_ns,
            slo_ns: 0,
            outstanding_milli: 1500,
        },
    };
    let nothing = FlowSummary::default();
    vec![
        point(
            3600,
            300,
            flow(300_000, 250_000),
            flow(3000, 90_000),
            900_000,
        ),
        point(20, 10, flow(10_000, 200_000), nothing, 800_000),
        point(10, 10, nothing, nothing, 0),
    ]
}

pub fn events() -> Vec<EventView> {
    let event = |id, kind, actor: &str, host: Option<&str>, text: &str| EventView {
        id,
        at_ns: NOW.0,
        unix_ms: 1_172_167_431_000,
        kind,
        actor: actor.into(),
        host: host.map(Into::into),
        volume: None,
        text: text.into(),
        failed_io: None,
    };
    vec![
        event(
            1,
            EventKind::Controller,
            "controller",
            None,
            "started: strategy idt, 1 known host",
        ),
        event(
            2,
            EventKind::Approval,
            "ann",
            Some("alpha"),
            "job 3 of db is approved",
        ),
        event(
            3,
            EventKind::Calibration,
            "controller",
            Some("alpha"),
            "db: session began",
        ),
    ]
}

/// Of a score: all of it is performance, less what the move costs.
fn parts(score: f64) -> ScoreParts {
    ScoreParts::Match(MatchParts {
        class_weight: 2.0,
        confidence: 0.75,
        performance: Some(MatchPart {
            share: 0.25,
            specialty: 1.0,
            weight: 0.4,
            adds: score + 0.0625,
        }),
        bandwidth: None,
        space: None,
        aging: Aging {
            by: AgedBy::Mean,
            keeps: 0.3,
            before: None,
        },
        move_cost: 0.0625,
    })
}

pub fn why() -> WhyView {
    let option = |tier: &str, score: Option<f64>, verdict: &str| OptionView {
        tier: tier.into(),
        score,
        parts: score.map(parts),
        latency_us: score.map(|s| 100.0 / s),
        iops: score.map(|_| 2000.0),
        verdict: verdict.into(),
    };
    let mut volume = volumes().remove(2);
    volume.pinned = Some("fast".into());
    volume.cooldown_left_ns = Some(1200 * S);
    WhyView {
        volume,
        generation: Some(12),
        at_ns: Some(NOW.0 - 180 * S),
        outcome: "it is to move to fast: rank 1 by score".into(),
        reason: Some(Reason::new("ranked-by-score", "rank 1 by score").with("rank", 1u32)),
        options: vec![
            option("fast", Some(0.5), "chosen"),
            option(
                "middle",
                None,
                "headroom: needs 2000 IOPS, 500 IOPS are left",
            ),
            option("slow", Some(0.1), "possible, another one was better"),
        ],
        extents: vec![],
        notes: vec![],
        evidence: [("iops".into(), 2500.0), ("latency_mean_us".into(), 720.2)].into(),
        outcomes: outcomes(),
        responses: vec![],
    }
}

pub fn why_not() -> WhyNotView {
    WhyNotView {
        volume: "db".into(),
        tier: "fast".into(),
        here: "slow".into(),
        generation: Some(12),
        why: "hold: 2 consecutive decisions must agree; 1 so far (score 0.5000)".into(),
    }
}

pub fn place() -> PlaceView {
    let tier = |tier: &str, us: f64, own: f64| PlaceTierView {
        tier: tier.into(),
        standing: PlaceStanding::Possible,
        verdict: "possible".into(),
        device: Some(format!("{tier}-0")),
        latency_us: Some(us),
        latency_range_us: Some((us * 0.6, us / 0.6)),
        cost: Some(PlaceCostView {
            total_per_s: own + 0.004,
            own_per_s: own,
            others_per_s: Some(0.004),
        }),
        device_use: Some(0.21),
        free_after_bytes: Some(170 * GIB),
    };
    let less = "0.702 class-weighted seconds of violation less per second than on slow";
    PlaceView {
        host: "alpha".into(),
        strategy: "terrace".into(),
        at_ns: NOW.0 - 12 * S,
        size_bytes: 20 * GIB,
        class: "gold".into(),
        like: None,
        load: PlaceLoadView {
            reads_per_s: 500.0,
            writes_per_s: 120.0,
            read_bytes_per_s: 4.0 * MIB,
            write_bytes_per_s: MIB,
        },
        tier: Some("middle".into()),
        reason: Some(Reason::new("misses-less", less).with("less_per_s", 0.702)),
        why_not: None,
        tiers: vec![
            PlaceTierView {
                standing: PlaceStanding::Best,
                verdict: less.into(),
                ..tier("middle", 153.0, 0.021)
            },
            tier("slow", 2412.0, 0.723),
            PlaceTierView {
                standing: PlaceStanding::Refused,
                verdict: "no device: needs 20.00 GiB in one piece, the emptiest device has 3.00 GiB free"
                    .into(),
                free_after_bytes: None,
                ..tier("fast", 97.0, 0.001)
            },
        ],
        notes: vec!["load assumed: that of db, scaled by size (the only measured volume of class gold), 500 r/s and 120 w/s, 5.0 MiB/s; --like VOLUME selects another volume".into()],
    }
}
