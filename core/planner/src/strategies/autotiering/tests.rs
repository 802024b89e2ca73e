//! Tests of the parts against worked examples, and of each place where a naive reading of the paper is wrong.

mod sessions;
mod staying;

use algo::fit_line;
use model::*;
use serde_json::json;
use units::*;

use super::calibrate::{Origin, Sensitivity};
use super::config::{AutoTieringConfig, Switches};
use super::{AutoTiering, VolumeState, calibrate, predict, score};
use crate::{Context, Strategy};

/// Returns two tiers with these devices: (read latency us, read IOPS, capacity GiB).
fn topology(tiers: [(u64, f64, u64); 2]) -> Topology {
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    for (i, (latency_us, iops, gib)) in tiers.into_iter().enumerate() {
        topology.devices.push(Device {
            name: format!("d{i}"),
            tier: TierId::from_index(i),
            spec: DeviceSpec {
                model: "test".into(),
                capacity: Bytes::gib(gib),
                read_iops: iops,
                write_iops: iops,
                // High bandwidths, at which transfers add no latency.
                read_bandwidth: BytesPerSec(1 << 50),
                write_bandwidth: BytesPerSec(1 << 50),
                read_latency: Nanos::from_micros(latency_us),
                write_latency: Nanos::from_micros(latency_us),
                curve: LoadCurve::flat(),
                jitter_sigma: 0.0,
                usd_per_gb: 1.0,
            },
        });
        topology.tiers.push(Tier {
            name: format!("t{i}"),
            specialty: Specialty::for_tier(i, 2),
            devices: vec![DeviceId::from_index(i)],
        });
    }
    topology
}

/// Returns one volume on the second tier with this many reads per second at this latency.
fn facts(topology: Topology, gib: u64, iops: f64, latency_us: f64) -> Facts {
    let window = Nanos::from_secs(60);
    let ios = (iops * 60.0) as u64;
    let latency = LatencySummary {
        mean_us: latency_us,
        ..LatencySummary::default()
    };
    let reads = Flow {
        ios,
        bytes: ios * 4096,
        latency,
    };
    let measured = MeasuredLoad {
        window,
        reads,
        writes: Flow::default(),
        outstanding: iops * latency_us / 1e6,
    };
    let mut devices = vec![DeviceFacts::default(); 2];
    devices[1].used = Bytes::gib(gib);
    Facts {
        at: Nanos::from_secs(900),
        epoch: 15,
        placement_due: true,
        generation: 0,
        classes: vec![SloClass {
            name: "c".into(),
            weight: 2.0,
            target: None,
            max_slowdown: None,
        }],
        vms: vec!["vm".into()],
        volumes: vec![VolumeFacts {
            name: "v".into(),
            vm: VmId(0),
            class: ClassId(0),
            size: Bytes::gib(gib),
            device: DeviceId(1),
            measured: Some(measured),
            calibration: vec![],
            calibrating: false,
            last_moved: None,
            extents: None,
        }],
        devices,
        moves: vec![],
        failed: vec![],
        topology,
        nodes: Default::default(),
    }
}

/// Returns a volume of 10 GiB with 10,000 reads per second at 100 us, on the second of two tiers with 100,000 IOPS.
fn two_like_tiers() -> Facts {
    facts(
        topology([(100, 1e5, 100), (100, 1e5, 100)]),
        10,
        10_000.0,
        100.0,
    )
}

fn config(value: serde_json::Value) -> (AutoTieringConfig, Switches) {
    let config: AutoTieringConfig = serde_json::from_value(value).unwrap();
    let switches = config.switches();
    (config, switches)
}

/// Returns a sensitivity with exactly this line, from a session on the second tier.
fn sensitivity(points: &[(f64, f64)], response: f64) -> Sensitivity {
    Sensitivity {
        joint: fit_line(points).unwrap(),
        reads: None,
        writes: None,
        confidence: 0.9,
        windows: points.len() as u32,
        device: DeviceId(1),
        rate_response: response,
        origin: Origin::Injected,
        zero: 1.0,
    }
}

fn predicted(
    facts: &Facts,
    form: serde_json::Value,
    s: Option<&Sensitivity>,
) -> (predict::Latency, f64) {
    let (config, switches) = config(form);
    let measured = facts.volumes[0].measured.unwrap();
    let tier = TierId(0);
    let latency = predict::latency(&config, &switches, facts, VolumeId(0), tier, &measured, s);
    (
        latency,
        predict::iops(
            &switches,
            &measured,
            s,
            predict::saturated(facts, VolumeId(0)),
            latency.mean_us,
        ),
    )
}

const LINE: [(f64, f64); 3] = [(0.0, 100.0), (50.0, 140.0), (100.0, 180.0)];

#[test]
fn prediction_matches_a_worked_example() {
    // m = 0.8, b = 100, L_c = 100, L_t = 60: 68 us, 14,706 IOPS with one request in flight.
    let facts = facts(
        topology([(60, 1e6, 100), (100, 1e6, 100)]),
        10,
        10_000.0,
        100.0,
    );
    let s = sensitivity(&LINE, 0.5);
    for form in ["literal", "corrected"] {
        let (latency, _) = predicted(&facts, json!({ "form": form }), Some(&s));
        assert!((latency.mean_us - 68.0).abs() < 1e-6, "{form} {latency:?}");
    }
    let (_, one) = predicted(&facts, json!({ "form": "literal" }), Some(&s));
    assert_eq!(one.round(), 14_706.0);
}

#[test]
fn sensitivity_line_starts_at_the_load_of_its_session() {
    // The device doubles its latency at half load. The session ran at half load: b = 200 at 2 · 100 us.
    let mut topology = topology([(60, 1e6, 100), (100, 1e6, 100)]);
    topology.devices[1].spec.curve = LoadCurve::new(vec![(0.0, 1.0), (0.5, 2.0)]).unwrap();
    let mut facts = facts(topology, 10, 10_000.0, 200.0);
    let s = Sensitivity {
        zero: 2.0,
        ..sensitivity(&[(0.0, 200.0), (50.0, 250.0), (100.0, 300.0)], 0.5)
    };
    // The other tier is at 60 − 200 on the line's axis, whatever the present load of the device is.
    for utilization in [0.0, 0.5] {
        facts.devices[1].utilization = utilization;
        let session = json!({ "intercept": "session" });
        let (latency, _) = predicted(&facts, session, Some(&s));
        assert!((latency.mean_us - 60.0).abs() < 1e-3, "{latency:?}");
    }
    // With the present latency as intercept, the prediction starts from 200 us at half load; with an idle device, from 130
    // at 100.
    let (latency, _) = predicted(&facts, json!({}), Some(&s));
    assert!((latency.mean_us - 60.0).abs() < 1e-3, "{latency:?}");
    facts.devices[1].utilization = 0.0;
    facts.volumes[0]
        .measured
        .as_mut()
        .unwrap()
        .reads
        .latency
        .mean_us = 130.0;
    let (latency, _) = predicted(&facts, json!({}), Some(&s));
    assert!(
        (latency.mean_us - 90.0).abs() < 1e-3,
        "130 + 60 - 100: {latency:?}"
    );
    // The load of a session is recorded when it ends.
    facts.devices[1].utilization = 0.25;
    facts.volumes[0].calibration = (0..10)
        .map(|i| CalibrationWindow {
            wanted_us: f64::from(i % 5) * 50.0,
            injected_us: f64::from(i % 5) * 50.0,
            duration: Nanos::from_secs(1),
            reads: 1_000,
            writes: 0,
            read_mean_us: 150.0 + f64::from(i % 5) * 50.0,
            write_mean_us: 0.0,
            device: DeviceId(1),
            last: i == 9,
        })
        .collect();
    let (config, switches) = config(json!({ "controls": "without" }));
    let mut own = VolumeState::default();
    calibrate::absorb(&config, &switches, &facts, &facts.volumes[0], &mut own);
    assert_eq!(own.sensitivity.unwrap().zero, 1.5);
}

#[test]
fn predicted_iops_follow_the_concurrency_option() {
    // Forty requests in flight at 100 us are 400,000 IOPS; the paper's formula gives 10,000.
    let facts = facts(
        topology([(100, 1e6, 100), (100, 1e6, 100)]),
        10,
        400_000.0,
        100.0,
    );
    let flat = sensitivity(&[(0.0, 100.0), (100.0, 200.0)], 0.5);
    let (_, literal) = predicted(&facts, json!({ "concurrency": "one" }), Some(&flat));
    let (_, little) = predicted(&facts, json!({ "concurrency": "little" }), Some(&flat));
    assert_eq!((literal.round(), little.round()), (10_000.0, 400_000.0));
    // A load that does not react keeps its offered rate on every tier.
    let facts = super::tests::facts(
        topology([(50, 1e6, 100), (100, 1e6, 100)]),
        10,
        5_000.0,
        100.0,
    );
    let open = sensitivity(&[(0.0, 100.0), (100.0, 200.0)], 1.0);
    let (_, offered) = predicted(&facts, json!({}), Some(&open));
    assert_eq!(offered.round(), 5_000.0);
}

#[test]
fn prediction_below_zero_is_clamped_and_keeps_the_tier() {
    // m = 3: on a tier 50 us faster the line is at −50 us.
    let facts = facts(
        topology([(50, 1e6, 100), (100, 1e6, 100)]),
        10,
        10_000.0,
        100.0,
    );
    let steep = sensitivity(&[(0.0, 100.0), (50.0, 250.0), (100.0, 400.0)], 0.3);
    let (literal, none) = predicted(&facts, json!({ "form": "literal" }), Some(&steep));
    assert!(literal.mean_us < 0.0 && none == 0.0, "{literal:?} {none}");
    let (clamped, some) = predicted(&facts, json!({}), Some(&steep));
    assert!(
        (clamped.mean_us - 25.0).abs() < 1e-3,
        "half of the tier's bare latency"
    );
    assert!(some > 10_000.0);
}

#[test]
fn negative_slope_is_treated_as_zero() {
    let facts = facts(
        topology([(50, 1e6, 100), (100, 1e6, 100)]),
        10,
        10_000.0,
        100.0,
    );
    let falling = sensitivity(&[(0.0, 100.0), (50.0, 95.0), (100.0, 90.0)], 1.0);
    let (latency, _) = predicted(&facts, json!({}), Some(&falling));
    assert!((latency.mean_us - 100.0).abs() < 1e-6, "{latency:?}");
}

#[test]
fn variation_confidence_is_discontinuous_below_its_floor() {
    let facts = facts(
        topology([(60, 1e6, 100), (100, 1e6, 100)]),
        10,
        10_000.0,
        100.0,
    );
    for (mean_cv, literal, floored) in [
        (0.3, 0.7, 0.7),
        (0.97, 0.03, 0.05),
        (1.0, 0.05, 0.05),
        (1.4, 0.05, 0.05),
    ] {
        let s = Sensitivity {
            confidence: 1.0 - mean_cv,
            ..sensitivity(&LINE, 0.5)
        };
        let of = |rule: &str| {
            predicted(&facts, json!({ "confidence": rule }), Some(&s))
                .0
                .confidence
        };
        assert!((of("variation") - literal).abs() < 1e-9, "{mean_cv}");
        assert!(
            (of("floored-variation") - floored).abs() < 1e-9,
            "{mean_cv}"
        );
    }
}

#[test]
fn confidence_falls_with_the_distance_of_the_extrapolation() {
    let s = sensitivity(
        &[(0.0, 98.0), (50.0, 143.0), (100.0, 178.0), (150.0, 222.0)],
        0.5,
    );
    let at = |fast_us: u64| {
        let facts = facts(
            topology([(fast_us, 1e6, 100), (200, 1e6, 100)]),
            10,
            10_000.0,
            200.0,
        );
        predicted(&facts, json!({}), Some(&s)).0.confidence
    };
    assert!(
        at(190) > at(150) && at(150) > at(110),
        "{} {} {}",
        at(190),
        at(150),
        at(110)
    );
    // Two points give no scatter, and without a session there is no information.
    let two = sensitivity(&[(0.0, 100.0), (100.0, 180.0)], 0.5);
    let facts = facts(
        topology([(60, 1e6, 100), (100, 1e6, 100)]),
        10,
        10_000.0,
        100.0,
    );
    assert_eq!(predicted(&facts, json!({}), Some(&two)).0.confidence, 0.05);
    let (latency, _) = predicted(&facts, json!({}), None);
    assert_eq!(
        (latency.mean_us, latency.confidence),
        (60.0, 0.05),
        "slope 1 from what is measured"
    );
}

fn scored(
    facts: &Facts,
    policy: &Policy,
    form: serde_json::Value,
    tier: u16,
    own: &mut VolumeState,
) -> score::TierScore {
    let strategy = AutoTiering::new(config(form).0).unwrap();
    let context = Context {
        facts,
        policy,
        seed: 1,
    };
    let measured = facts.volumes[0].measured.unwrap();
    score::score(
        &strategy,
        &context,
        VolumeId(0),
        TierId(tier),
        &measured,
        own,
    )
}

#[test]
fn equation_6_matches_a_manual_calculation() {
    // Tier 0: 100,000 IOPS, spc {1, 1, 0}. The volume: 10,000 IOPS there, class weight 2, confidence 0.05.
    let facts = two_like_tiers();
    let form = json!({ "history": "ewma", "weight_migration": 0.0 });
    let policy = Policy::default();
    let first = scored(
        &facts,
        &policy,
        form.clone(),
        0,
        &mut VolumeState::default(),
    );
    let bandwidth = 10_000.0 * 4096.0 / (1u64 << 50) as f64;
    let want = (1.0 * 0.1 + 1.0 * bandwidth + 0.0) * 2.0 * 0.05 / 3.0;
    assert!((first.score - want).abs() < 1e-12, "{} {want}", first.score);
    // Tier 1 is the capacity tier, spc {0.2, 0.2, 1}: a tenth of its space counts.
    let second = scored(&facts, &policy, form, 1, &mut VolumeState::default());
    let want = (0.2 * 0.1 + 0.2 * bandwidth + 1.0 * 0.1) * 2.0 * 0.05 / 3.0;
    assert!(
        (second.score - want).abs() < 1e-12,
        "{} {want}",
        second.score
    );
}

/// Weights of a named tier apply to that tier alone; an unknown tier is refused.
#[test]
fn named_tier_has_separate_weights() {
    let facts = two_like_tiers();
    let policy = Policy::default();
    let parts = |form: &serde_json::Value, tier| {
        let s = scored(
            &facts,
            &policy,
            form.clone(),
            tier,
            &mut VolumeState::default(),
        );
        s.parts.unwrap()
    };
    let all = json!({ "form": "literal" });
    let own = json!({ "form": "literal", "tier_weights": { "t0": { "performance": 6.0, "migration": 0.4 } } });
    assert_eq!(parts(&all, 1), parts(&own, 1));
    let (plain, heavy) = (parts(&all, 0), parts(&own, 0));
    let weight = |p: &MatchParts| p.performance.unwrap().weight;
    assert!((weight(&plain) - 1.0 / 3.0).abs() < 1e-12);
    assert!((weight(&heavy) - 6.0 / 8.0).abs() < 1e-12);
    assert!((heavy.move_cost - 2.0 * plain.move_cost).abs() < 1e-12 && plain.move_cost > 0.0);
    let strategy = AutoTiering::new(config(own).0).unwrap();
    let suits = |tiers: &[&str]| {
        let tiers: Vec<String> = tiers.iter().map(|t| (*t).into()).collect();
        strategy.suits(&policy.epochs, Some(&tiers))
    };
    assert_eq!(suits(&["t0", "t1"]), Ok(()));
    let fault = suits(&["nvme", "t1"]).unwrap_err();
    assert_eq!(fault.key, "tier_weights.t0");
    let bad = json!({ "tier_weights": { "t0": { "performance": -1.0 } } });
    let fault = AutoTiering::new(config(bad).0).err().unwrap();
    assert_eq!(fault.key, "tier_weights.t0.performance");
}

/// The literal form charges seconds to every tier; as a cost of migrating they are charged to moves only.
#[test]
fn staying_is_charged_in_the_literal_form_only() {
    let facts = two_like_tiers();
    let policy = Policy::default();
    let cost = |form: serde_json::Value, tier| {
        let s = scored(&facts, &policy, form, tier, &mut VolumeState::default());
        s.parts.unwrap().move_cost
    };
    let letter = json!({ "form": "literal" });
    let moves = json!({ "form": "literal", "move_cost": "seconds-of-moves" });
    assert!(cost(letter.clone(), 1) > 0.0);
    assert_eq!(cost(moves.clone(), 1), 0.0);
    assert_eq!(cost(letter, 0), cost(moves, 0));
}

/// Every volume in every monitor epoch, or spread over a migration epoch.
#[test]
fn calibration_interval_is_the_configured_one() {
    let mut facts = two_like_tiers();
    let one = facts.volumes[0].clone();
    for i in 1..20 {
        let name = format!("v{i}");
        facts.volumes.push(VolumeFacts {
            name,
            ..one.clone()
        });
    }
    let policy = Policy::default();
    let asked = |every: &str, after: Nanos| {
        let (config, switches) = config(json!({ "calibration": { "every": every } }));
        let mut state = super::AutoTieringState::default();
        for v in &facts.volumes {
            state.volumes.insert(v.name.clone(), VolumeState::default());
        }
        let mut sessions = |at: Nanos| {
            let mut facts = facts.clone();
            facts.at = at;
            let context = Context {
                facts: &facts,
                policy: &policy,
                seed: 1,
            };
            calibrate::sessions(&config, &switches, &context, &mut state).len()
        };
        (sessions(facts.at), sessions(facts.at + after))
    };
    let monitor = policy.epochs.monitor;
    assert_eq!(asked("monitor", monitor), (20, 20));
    let slots = (policy.epochs.migration.0 / monitor.0 - 1) as usize;
    let at_once = 20usize.div_ceil(slots);
    assert_eq!(asked("migration", monitor), (at_once, at_once));
}

/// Every part is the documented product, and the parts make the score, in both forms and with a growing history.
#[test]
fn score_is_the_sum_of_its_documented_parts() {
    let facts = two_like_tiers();
    let policy = Policy::default();
    for form in ["literal", "corrected"] {
        // Specialties {1, 1, 0} and {0.2, 0.2, 1}; the weights are 3, 2 and 1 of 6.
        for (tier, specialty) in [(0, [1.0, 1.0, 0.0]), (1, [0.2, 0.2, 1.0])] {
            let value = json!({
                "form": form, "aging": 0.25, "weight_performance": 3.0, "weight_bandwidth": 2.0, "weight_space": 1.0,
            });
            let mut own = VolumeState::default();
            let mut before: Option<f64> = None;
            for epoch in 0..3 {
                let s = scored(&facts, &policy, value.clone(), tier, &mut own);
                let parts = s.parts.expect("it may be on both tiers");
                let space_counts = tier == 1 || form == "literal";
                assert_eq!(parts.space.is_some(), space_counts, "{form} {tier}");
                let all = [parts.performance, parts.bandwidth, parts.space];
                let mut matched = 0.0;
                for (k, part) in all.into_iter().enumerate() {
                    let Some(part) = part else { continue };
                    assert!((part.weight - [3.0, 2.0, 1.0][k] / 6.0).abs() < 1e-12);
                    assert_eq!(part.specialty, specialty[k]);
                    let product = part.share * part.specialty * part.weight;
                    let product = product * parts.class_weight * parts.confidence;
                    assert!((part.adds - product).abs() < 1e-12, "{part:?}");
                    matched += part.adds;
                }
                assert_eq!(parts.class_weight, 2.0);
                assert_eq!(parts.aging.before, before, "{form} {tier} {epoch}");
                let (aged, next) = match form {
                    "literal" => {
                        let score = 0.25 * before.unwrap_or(0.0) + matched - parts.move_cost;
                        (score + parts.move_cost, score)
                    }
                    _ => {
                        let aged = 0.25 * before.unwrap_or(matched) + 0.75 * matched;
                        (aged, aged)
                    }
                };
                assert!((s.score - (aged - parts.move_cost)).abs() < 1e-12);
                assert_eq!(s.score, parts.score());
                let free = form == "corrected" && tier == 1;
                assert_eq!(parts.move_cost == 0.0, free, "staying is not charged");
                before = own.history.get(&format!("t{tier}")).copied();
                assert!((before.unwrap() - next).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn infeasible_tier_contributes_no_score() {
    // The demand exceeds the caps of both tiers.
    let facts = facts(
        topology([(100, 1e3, 100), (100, 1e3, 100)]),
        10,
        10_000.0,
        100.0,
    );
    let policy = Policy::default();
    let with = |history: &str| {
        let value = json!({ "over_demand": "refuse", "history": history });
        scored(&facts, &policy, value, 0, &mut VolumeState::default())
    };
    let mean = with("ewma");
    let parts = mean.parts.unwrap();
    assert_eq!((parts.performance, parts.bandwidth), (None, None));
    assert_eq!(mean.score, -parts.move_cost);
    let mark = with("recursion");
    assert_eq!((mark.score, mark.parts), (-1.0, None), "a mark, not a sum");
}

#[test]
fn staying_is_not_charged_and_penalties_are_not_recycled() {
    let facts = two_like_tiers();
    let policy = Policy::default();
    let with = |form: &str, cost: &str, weight: f64| {
        let value = json!({ "form": form, "move_cost": cost, "weight_migration": weight });
        scored(&facts, &policy, value, 1, &mut VolumeState::default())
    };
    assert_eq!(
        with("corrected", "epochs", 0.2).score,
        with("corrected", "epochs", 0.0).score
    );
    assert!(with("literal", "seconds", 0.2).score < with("literal", "seconds", 0.0).score);
    // Ten equal epochs: the average converges to the match, the recursion to twice its first value.
    let rounds = |history: &str| {
        let mut own = VolumeState::default();
        let value = json!({ "history": history, "weight_migration": 0.0 });
        let scores: Vec<f64> = (0..40)
            .map(|_| scored(&facts, &policy, value.clone(), 0, &mut own).score)
            .collect();
        (scores[0], scores[39])
    };
    let (first, last) = rounds("ewma");
    assert!((last / first - 1.0).abs() < 1e-9);
    let (first, last) = rounds("recursion");
    assert!(
        (last / first - 2.0).abs() < 1e-6,
        "gain 1 / (1 − 0.5): {first} {last}"
    );
}

#[test]
fn copy_time_is_bounded_by_source_reads_and_target_writes() {
    // 100 GB from a device that reads 500 MB/s to one that writes 800 MB/s: 200 s.
    let mut topology = topology([(100, 1e5, 200), (100, 1e5, 200)]);
    topology.devices[1].spec.read_bandwidth = BytesPerSec(500_000_000);
    topology.devices[0].spec.write_bandwidth = BytesPerSec(800_000_000);
    topology.devices[1].spec.write_bandwidth = BytesPerSec(1);
    let mut facts = facts(topology, 10, 0.0, 100.0);
    facts.volumes[0].size = Bytes(100_000_000_000);
    let policy = Policy::default();
    let form = json!({ "form": "literal" });
    let s =
        |facts: &Facts| scored(facts, &policy, form.clone(), 0, &mut VolumeState::default()).move_s;
    assert!((s(&facts) - 200.0).abs() < 1e-6, "{}", s(&facts));
    // Other volumes take 400 MB/s of the target's writes: 400 are left.
    facts.devices[0].write_bytes_per_s = 400e6;
    assert!((s(&facts) - 250.0).abs() < 1e-6, "{}", s(&facts));
    // The volume's own reads are part of the source's load, and its copy may use their share.
    facts.devices[1].read_bytes_per_s = 300e6;
    facts.volumes[0].measured.as_mut().unwrap().reads = Flow {
        ios: 1,
        bytes: 60 * 150_000_000,
        latency: LatencySummary::default(),
    };
    assert!((s(&facts) - 100e9 / 350e6).abs() < 1e-6, "{}", s(&facts));
}

#[test]
fn demand_above_the_tier_cap_is_refused_or_capped() {
    let facts = facts(
        topology([(50, 1e5, 100), (100, 1e6, 100)]),
        10,
        400_000.0,
        100.0,
    );
    let policy = Policy::default();
    let refused = scored(
        &facts,
        &policy,
        json!({ "over_demand": "refuse" }),
        0,
        &mut VolumeState::default(),
    );
    let why = refused.infeasible.expect("refused");
    assert!(
        matches!(&why, Rejection::ExceedsTier { resource, .. } if resource == "iops"),
        "{why:?}"
    );
    let capped = scored(
        &facts,
        &policy,
        json!({ "over_demand": "cap" }),
        0,
        &mut VolumeState::default(),
    );
    assert!(capped.infeasible.is_none());
    assert!(
        (capped.demand.iops - 0.8e5).abs() < 1e-6,
        "the planned share of the cap: {:?}",
        capped.demand
    );
}

/// A queue of 256 behind a device at its cap hides that a faster device would serve it sooner.
#[test]
fn saturated_volume_is_neither_insensitive_nor_open_loop() {
    let mut facts = facts(
        topology([(100, 240e3, 100), (150, 99e3, 100)]),
        10,
        99e3,
        256.0 / 99e3 * 1e6,
    );
    let deaf = sensitivity(&[(0.0, 2586.0), (50.0, 2586.0), (100.0, 2586.0)], 1.0);
    facts.devices[1].utilization = 0.5;
    let (_, offered) = predicted(&facts, json!({}), Some(&deaf));
    assert!(
        (offered / 99e3 - 1.0).abs() < 0.01,
        "not full: what is offered is offered"
    );
    facts.devices[1].utilization = 1.0;
    let (latency, iops) = predicted(&facts, json!({}), Some(&deaf));
    assert!(
        (latency.mean_us / (256.0 / 240e3 * 1e6) - 1.0).abs() < 0.01,
        "{latency:?}"
    );
    assert!((iops / 240e3 - 1.0).abs() < 0.01, "{iops}");
}
