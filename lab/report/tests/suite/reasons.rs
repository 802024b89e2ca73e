//! Every reason for which a move is not made, in its words.

use model::Rejection;
use units::{Bytes, Nanos};

/// Fails to compile when a variant is added: add a sample of it to [`samples`], too.
fn is_sampled(rejection: &Rejection) {
    match rejection {
        Rejection::Headroom { .. }
        | Rejection::ExceedsTier { .. }
        | Rejection::TooBig { .. }
        | Rejection::NoDevice { .. }
        | Rejection::TransientSpace { .. }
        | Rejection::Pinned { .. }
        | Rejection::Cordoned
        | Rejection::Unreachable { .. }
        | Rejection::MoveFailed { .. }
        | Rejection::Affinity { .. }
        | Rejection::Budget { .. }
        | Rejection::MoveUnderWay
        | Rejection::NoMeasurement
        | Rejection::NotConsidered
        | Rejection::Cooldown { .. }
        | Rejection::Hold { .. }
        | Rejection::Margin { .. }
        | Rejection::Threshold { .. }
        | Rejection::NoBeneficiary
        | Rejection::Price { .. }
        | Rejection::Regret { .. }
        | Rejection::SlowsOther { .. }
        | Rejection::ViolatesOther { .. }
        | Rejection::Neighbours { .. }
        | Rejection::NoGain { .. }
        | Rejection::Burst { .. }
        | Rejection::TooLate { .. }
        | Rejection::CopiesFirst { .. }
        | Rejection::Outranked { .. }
        | Rejection::StaysWhole { .. }
        | Rejection::OtherMove => {}
    }
}

fn samples() -> Vec<Rejection> {
    let seconds = Nanos::from_secs;
    vec![
        Rejection::Headroom {
            resource: "iops".into(),
            need: 12_000.0,
            left: 4_000.0,
        },
        Rejection::Headroom {
            resource: "space".into(),
            need: (64_u64 << 30) as f64,
            left: (10_u64 << 30) as f64,
        },
        Rejection::ExceedsTier {
            resource: "bandwidth".into(),
            need: (600_u64 << 20) as f64,
            max: (540_u64 << 20) as f64,
        },
        Rejection::TooBig {
            need: Bytes::gib(900),
            largest: Bytes::gib(800),
        },
        Rejection::NoDevice {
            need: Bytes::gib(100),
            most_free: Bytes::gib(40),
        },
        Rejection::TransientSpace {
            need: Bytes::gib(100),
            most_free: Bytes::gib(40),
        },
        Rejection::Pinned {
            tier: "fast".into(),
        },
        Rejection::Cordoned,
        Rejection::Unreachable {
            tier: "fast".into(),
        },
        Rejection::MoveFailed {
            device: "fast-0".into(),
            attempts: 3,
            left: Some(seconds(90)),
            why: "no space is left on the device".into(),
        },
        Rejection::MoveFailed {
            device: "fast-0".into(),
            attempts: 1,
            left: None,
            why: "it has internal snapshots".into(),
        },
        Rejection::Affinity {
            with: "db-log".into(),
            rule: "different-devices".into(),
        },
        Rejection::Budget {
            limit: "30 GiB to move".into(),
        },
        Rejection::MoveUnderWay,
        Rejection::NoMeasurement,
        Rejection::NotConsidered,
        Rejection::Cooldown { left: seconds(400) },
        Rejection::Hold { seen: 1, needed: 3 },
        Rejection::Margin {
            gain: 0.0499,
            needed: 0.05,
        },
        Rejection::Threshold {
            latency_us: 180.0,
            threshold_us: 250.0,
        },
        Rejection::NoBeneficiary,
        Rejection::Price {
            gain_s: 5.41,
            price_s: 5.43,
        },
        Rejection::Regret {
            regret_s: 2.0,
            price_s: 5.4,
        },
        Rejection::SlowsOther {
            volume: "archive".into(),
            factor: 2.413,
            most: 1.6,
        },
        Rejection::ViolatesOther {
            volume: "mail".into(),
            chance: 0.452,
        },
        Rejection::Neighbours {
            volume: "mail".into(),
            most: 0.31,
            others: 0.4,
            gain: 0.2,
        },
        Rejection::NoGain {
            here: 0.1,
            there: 0.25,
        },
        Rejection::Burst {
            epochs: 1,
            needed: 3,
        },
        Rejection::TooLate {
            done: seconds(7200),
            horizon: seconds(3600),
        },
        Rejection::CopiesFirst { left: seconds(600) },
        Rejection::Outranked {
            gain_s: 12.0,
            price_s: 4.0,
        },
        Rejection::StaysWhole {
            why: "pinned".into(),
        },
        Rejection::OtherMove,
    ]
}

#[test]
fn rejections_are_worded_as_reviewed() {
    let samples = samples();
    samples.iter().for_each(is_sampled);
    let lines: Vec<String> = samples.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
