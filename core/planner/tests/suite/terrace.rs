//! Tests of the strategy `terrace` through its public interface.

use model::*;
use planner::strategies::TerraceConfig;
use planner::{BuildError, build, decide};
use proptest::prelude::*;
use serde_json::{Value, json};
use units::*;

use crate::support::{V, facts, inventory, preset_spec, v};

/// Returns a volume of large weight without load on the slowest tier, where a load like that of the other volume would
/// violate its objective.
fn silent_on_the_slowest() -> Facts {
    let mut facts = facts(&[v(3, 2, 0.0, 1.0, 4.0), v(0, 10, 2000.0, 1.0, 1.0)]);
    let bare = |name: &str| preset_spec(name).bare_latency_us(Op::Read, 4096.0);
    let between = (bare("pm953") + bare("pm863")) / 2.0;
    for (class, us) in facts.classes.iter_mut().zip([between, 1e6]) {
        class.target = Some(Objective {
            statistic: SloStatistic::Mean,
            latency: Nanos((us * 1000.0) as u64),
        });
    }
    facts
}

/// Returns the wanted moves, with the kinds of their reasons.
fn wanted(facts: &Facts, config: Value) -> Vec<(VolumeId, DeviceId, String)> {
    let strategy = build("terrace", config).unwrap();
    let state = strategy.initial_state();
    let decision = decide(&*strategy, facts, &Policy::default(), &state, 1).unwrap();
    decision
        .plan
        .moves()
        .into_iter()
        .map(|m| (m.volume, m.to, m.terms.reason.kind().to_owned()))
        .collect()
}

#[test]
fn silent_volume_moves_in_advance_within_its_budget() {
    let facts = silent_on_the_slowest();
    let moves = wanted(&facts, Value::Null);
    assert_eq!(moves, [(VolumeId(0), DeviceId(1), "in-advance".to_owned())]);
    let without = json!({ "rates": { "advance_s": 0.0 } });
    assert_eq!(wanted(&facts, without), []);
    let never = json!({ "rates": { "surge": 0.0 } });
    assert_eq!(wanted(&facts, never), []);
}

#[test]
fn each_ablation_variant_is_a_valid_strategy() {
    let variants = TerraceConfig::variants();
    assert!(variants.len() > 30, "{}", variants.len());
    for (name, config) in variants {
        assert!(build("terrace", config).is_ok(), "{name}");
    }
}

#[test]
fn invalid_rates_are_refused_with_their_key() {
    for (rates, key) in [
        (json!({ "gib": -1.0 }), "rates.gib"),
        (json!({ "sigma_here": 0.0 }), "rates.sigma_here"),
        (json!({ "surge": 1.5 }), "rates.surge"),
    ] {
        let Err(BuildError::Config(fault)) = build("terrace", json!({ "rates": rates })) else {
            panic!("{rates} is taken");
        };
        assert_eq!(fault.key, key);
    }
}

/// Returns facts of volumes with these objectives of the mean, microseconds.
fn aimed(volumes: &[V], objectives_us: &[f64]) -> Facts {
    let mut facts = facts(volumes);
    for (class, us) in facts.classes.iter_mut().zip(objectives_us) {
        class.target = Some(Objective {
            statistic: SloStatistic::Mean,
            latency: Nanos((us * 1000.0) as u64),
        });
    }
    facts
}

/// Returns the mean of the latencies of two presets.
fn between(fast: &str, slow: &str) -> f64 {
    let bare = |name: &str| preset_spec(name).bare_latency_us(Op::Read, 4096.0);
    (bare(fast) + bare(slow)) / 2.0
}

/// Returns the report row of a volume after this number of epochs without any change or move.
fn row(facts: &Facts, policy: &Policy, config: Value, epochs: u64, volume: &str) -> VolumeReport {
    let strategy = build("terrace", config).unwrap();
    let mut state = strategy.initial_state();
    let mut facts = facts.clone();
    let mut last = None;
    for _ in 0..epochs {
        let decision = decide(&*strategy, &facts, policy, &state, 1).unwrap();
        state = decision.state;
        let rows = decision.report.volumes;
        last = rows.into_iter().find(|r| r.volume == volume);
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
    }
    let row = last.expect("it was looked at");
    assert_eq!(row.outcome, Outcome::Stay, "{row:?}");
    row
}

/// Returns the rejection for a tier.
fn kept_off(row: &VolumeReport, tier: &str) -> Rejection {
    let option = row.options.iter().find(|o| o.tier == tier);
    match &option.expect("all tiers are told").verdict {
        Verdict::Rejected { by } => by.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns a volume that violates its objective on the slowest tier and would meet it on the idle fastest tier.
fn misses_on_the_slowest() -> Facts {
    let us = between("pm953", "pm863");
    aimed(&[v(3, 3, 500.0, 1.0, 1.0)], &[us])
}

#[test]
fn staying_volume_in_violation_lists_the_rejecting_filter() {
    let facts = misses_on_the_slowest();
    let policy = Policy::default();
    let said = |gib: f64, epochs: u64| {
        let config = json!({ "rates": { "gib": gib, "advance_s": 0.0 } });
        kept_off(&row(&facts, &policy, config, epochs, "v0"), "t1")
    };
    let once = Rejection::Burst {
        epochs: 1,
        needed: 3,
    };
    assert_eq!(said(3.0, 1), once);
    let Rejection::Regret { regret_s, price_s } = said(200.0, 3) else {
        panic!("{}", said(200.0, 3));
    };
    assert!((100.0..250.0).contains(&regret_s), "{regret_s}");
    assert!((600.0..700.0).contains(&price_s), "{price_s}");
    let Rejection::Price { gain_s, price_s } = said(1e5, 3) else {
        panic!("{}", said(1e5, 3));
    };
    assert!(gain_s > 1000.0 && price_s > 3e5, "{gain_s} {price_s}");
}

#[test]
fn rules_and_space_of_a_tier_are_reported_with_numbers() {
    let facts = misses_on_the_slowest();
    let mut policy = Policy::default();
    policy.pins.push(Pin {
        volume: VolumeId(0),
        tier: TierId(2),
    });
    let pinned = Rejection::Pinned { tier: "t3".into() };
    let of =
        |facts: &Facts, policy: &Policy| kept_off(&row(facts, policy, Value::Null, 1, "v0"), "t1");
    assert_eq!(of(&facts, &policy), pinned);
    let us = between("pm953", "pm863");
    let silent = |d: u16| v(d, 98, 0.0, 1.0, 1.0);
    let full = aimed(&[v(3, 3, 500.0, 1.0, 1.0), silent(0), silent(1)], &[us]);
    let Rejection::NoDevice { need, most_free } = of(&full, &Policy::default()) else {
        panic!("{}", of(&full, &Policy::default()));
    };
    // All space of a device may be used, including the reserve of `headroom_space`.
    assert_eq!((need, most_free), (Bytes::gib(3), Bytes::gib(2)));
    let limited = Policy {
        space_high: Some(0.99),
        ..Policy::default()
    };
    let Rejection::NoDevice { most_free, .. } = of(&full, &limited) else {
        panic!("{}", of(&full, &limited));
    };
    assert_eq!(
        most_free,
        Bytes::gib(1),
        "less what the operator's limit leaves"
    );
}

/// Returns a violating volume that fits on a faster device only with the reserve: 9 GiB of 100 are free there.
fn fits_into_the_reserve() -> Facts {
    let us = between("pm953", "pm863");
    let silent = |d: u16| v(d, 91, 0.0, 1.0, 1.0);
    let mut volumes = vec![v(3, 8, 500.0, 1.0, 1.0), silent(0), silent(1)];
    volumes.push(v(2, 195, 0.0, 1.0, 1.0));
    aimed(&volumes, &[us])
}

/// Returns the first move in this number of decisions, if any.
fn first_move(facts: &Facts, config: Value, epochs: u64) -> Option<(VolumeId, DeviceId)> {
    let strategy = build("terrace", config).unwrap();
    let mut state = strategy.initial_state();
    let mut facts = facts.clone();
    (0..epochs).find_map(|_| {
        let decision = decide(&*strategy, &facts, &Policy::default(), &state, 1).unwrap();
        state = decision.state;
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
        decision.plan.moves().first().map(|m| (m.volume, m.to))
    })
}

#[test]
fn move_into_the_reserve_is_made_if_it_is_worth_its_price() {
    let facts = fits_into_the_reserve();
    // No volume makes room.
    let config = |reserve: f64| json!({ "without": ["room"], "rates": { "advance_s": 0.0, "reserve": reserve } });
    let moved = first_move(&facts, json!({ "rates": { "advance_s": 0.0 } }), 12);
    assert!(
        matches!(moved, Some((VolumeId(0), DeviceId(0 | 1)))),
        "{moved:?}"
    );
    assert_eq!(first_move(&facts, config(1e5), 12), None);
    let row = row(&facts, &Policy::default(), config(1e5), 4, "v0");
    let Rejection::Price { price_s, .. } = kept_off(&row, "t1") else {
        panic!("{}", kept_off(&row, "t1"));
    };
    // 8 GiB of the reserve.
    assert!((8e5..8.1e5).contains(&price_s), "{price_s}");
}

#[test]
fn reserve_does_not_limit_other_strategies() {
    // 190 GiB on a tier of 200 GiB; a reserve of a tenth would leave room for one of the two.
    let volumes = [v(3, 95, 900.0, 1.0, 8.0), v(4, 95, 900.0, 1.0, 8.0)];
    for name in ["static", "idt", "edt"] {
        let facts = facts(&volumes);
        let config = match name {
            // On a seemingly full device, it would make no other moves.
            "edt" => json!({ "correction": false }),
            _ => Value::Null,
        };
        let mut priced = facts.clone();
        for (d, device) in priced.topology.devices.iter_mut().enumerate() {
            device.spec.usd_per_gb = if d < 2 { 0.01 } else { 100.0 };
        }
        let strategy = build(name, config).unwrap();
        let policy = Policy::default();
        let state = strategy.initial_state();
        let decision = decide(&*strategy, &priced, &policy, &state, 1).unwrap();
        let up = decision.plan.moves();
        let to_first = up.iter().filter(|m| m.to.index() < 2).count();
        assert_eq!(to_first, 2, "{name}: {:#?}", decision.report.volumes);
    }
    // Space that an assignment may plan with.
    let (facts, policy) = (facts(&[]), Policy::default());
    let context = planner::Context {
        facts: &facts,
        policy: &policy,
        seed: 1,
    };
    assert_eq!(planner::Ledger::new(&context).left(TierId(0))[2], 1.0);
}

#[test]
fn recently_moved_volume_reports_its_remaining_rest() {
    let mut facts = misses_on_the_slowest();
    let strategy = build("terrace", Value::Null).unwrap();
    let policy = Policy::default();
    let mut state = strategy.initial_state();
    let mut decide_next = |facts: &mut Facts| {
        let decision = decide(&*strategy, facts, &policy, &state, 1).unwrap();
        state = decision.state;
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
        (decision.plan, decision.report)
    };
    let moved = (0..10).find_map(|_| decide_next(&mut facts).0.moves().first().map(|m| m.to));
    let volume = &mut facts.volumes[0];
    (volume.device, volume.last_moved) = (moved.expect("it moves"), Some(facts.at));
    if let Some(m) = &mut volume.measured {
        m.reads.latency.mean_us *= 6.0;
    }
    facts.at += Nanos::from_secs(60);
    let row = decide_next(&mut facts).1.volumes.remove(0);
    let Rejection::Cooldown { left } = kept_off(&row, "t3") else {
        panic!("{row:?}");
    };
    let rest_s = 12.0 * policy.epochs.migration.as_secs_f64();
    assert!(
        (rest_s - left.as_secs_f64() - 120.0).abs() < 1.0,
        "{left:?}"
    );
}

/// Returns the requests per second that take this share of a device of the preset.
fn takes(preset: &str, share: f64) -> f64 {
    share / preset_spec(preset).occupancy_s(Op::Read, 4096.0)
}

#[test]
fn most_affected_other_volume_is_named() {
    let us = between("pm953", "pm863");
    let heavy = takes("pm953", 0.6);
    let volumes = [
        v(3, 3, takes("pm953", 0.2), 1.0, 1.0),
        v(0, 10, heavy, 1.0, 8.0),
        v(1, 10, heavy, 1.0, 8.0),
        v(0, 10, 100.0, 1.0, 8.0),
        v(1, 10, 100.0, 1.0, 8.0),
    ];
    let bare = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
    let tight = 1.2 * bare;
    let facts = aimed(&volumes, &[us, tight, tight, 1e6, 1e6]);
    let config = json!({ "rates": { "advance_s": 0.0 } });
    let row = row(&facts, &Policy::default(), config, 1, "v0");
    let Rejection::Neighbours {
        volume,
        most,
        others,
        gain,
    } = kept_off(&row, "t1")
    else {
        panic!("{}", kept_off(&row, "t1"));
    };
    assert!(volume == "v1" || volume == "v2", "{volume}");
    assert!(most > 0.5 && others >= most && gain < others, "{row:?}");
}

/// Returns a volume that violates its objective on the slowest tier, and volumes on all faster devices that it would slow
/// down.
fn beside_others(class: impl Fn(&mut SloClass)) -> Facts {
    let us = between("pm953", "pm863");
    let volumes = [
        v(3, 3, takes("pm953", 0.45), 1.0, 8.0),
        v(0, 10, takes("pm953", 0.52), 1.0, 1.0),
        v(1, 10, takes("pm953", 0.52), 1.0, 1.0),
        v(2, 10, takes("pm1633", 0.8), 1.0, 1.0),
    ];
    let mut facts = aimed(&volumes, &[us]);
    facts.classes[1..].iter_mut().for_each(class);
    facts
}

/// Config in which only regret leads to moves, at a price that is reached at once.
fn eager() -> Value {
    json!({ "rates": { "advance_s": 0.0, "gib": 0.01, "free": 0.0 } })
}

#[test]
fn volume_without_objective_is_not_slowed_beyond_its_limit() {
    let unlimited = beside_others(|_| {});
    let moved = first_move(&unlimited, eager(), 4);
    assert!(
        moved.is_some_and(|(v, to)| v.0 == 0 && to.0 < 2),
        "{moved:?}"
    );
    let limited = beside_others(|c| c.max_slowdown = Some(2.0));
    assert_eq!(first_move(&limited, eager(), 4), None);
    let wide = beside_others(|c| c.max_slowdown = Some(1e3));
    assert_eq!(first_move(&wide, eager(), 4), moved);
}

#[test]
fn unattainable_objective_is_explained_in_a_note() {
    let bare = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
    let volumes = [v(0, 3, 500.0, 1.0, 1.0)];
    let too_much = aimed(&volumes, &[bare / 3.0]);
    let policy = Policy::default();
    let row_of = |facts: &Facts| row(facts, &policy, Value::Null, 1, "v0");
    let found = row_of(&too_much);
    let [note] = &found.notes[..] else {
        panic!("{found:?}");
    };
    assert!(note.starts_with("no device meets its objective"), "{note}");
    let objective_us = found.evidence["objective_mean_us"];
    assert!((objective_us - bare / 3.0).abs() < 1e-2, "{objective_us}");
    // A volume that meets its objective has no note.
    let kept = row_of(&aimed(&volumes, &[3.0 * bare]));
    assert!(kept.notes.is_empty(), "{kept:?}");
    assert!(
        kept.options
            .iter()
            .all(|o| !matches!(o.verdict, Verdict::Rejected { .. }))
    );
    // All devices are full except its own, which other volumes use most.
    let busy = |d: u16, preset: &str, share: f64| v(d, 9, takes(preset, share), 1.0, 1.0);
    let crowd = [
        v(0, 3, 500.0, 1.0, 1.0),
        busy(0, "pm953", 0.95),
        busy(1, "pm953", 1.3),
        busy(2, "pm1633", 1.3),
        busy(3, "pm863", 1.3),
        busy(4, "pm863", 1.3),
    ];
    let mut crowded = aimed(&crowd, &[1.5 * bare, 1e6, 1e6, 1e6, 1e6, 1e6]);
    // With so many requests in flight, a full device has long queues.
    for m in crowded.volumes[1..]
        .iter_mut()
        .filter_map(|v| v.measured.as_mut())
    {
        m.outstanding = 4096.0;
    }
    if let Some(m) = &mut crowded.volumes[0].measured {
        m.reads.latency.mean_us *= 4.0;
    }
    let found = row_of(&crowded);
    let [note] = &found.notes[..] else {
        panic!("{found:?}");
    };
    assert!(note.contains("most by v1"), "{note}");
}

#[test]
fn better_device_of_the_same_tier_is_mentioned_in_a_note() {
    let bare = preset_spec("pm863").bare_latency_us(Op::Read, 4096.0);
    let volumes = [
        v(3, 3, 500.0, 1.0, 1.0),
        v(3, 9, takes("pm863", 0.97), 1.0, 1.0),
    ];
    let mut facts = aimed(&volumes, &[1.5 * bare, 1e6]);
    if let Some(m) = &mut facts.volumes[0].measured {
        m.reads.latency.mean_us *= 4.0;
    }
    let found = row(&facts, &Policy::default(), Value::Null, 1, "v0");
    let [note] = &found.notes[..] else {
        panic!("{found:?}");
    };
    let expected = "another device of its tier would be better, but: burst: ";
    assert!(note.starts_with(expected), "{note}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn scores_are_the_sum_of_their_parts(volumes in inventory(), times in 0.5f64..4.0) {
        let bare = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
        // Every other one has an objective.
        let mut facts = aimed(&volumes, &vec![times * bare; volumes.len()]);
        facts.classes.iter_mut().step_by(2).for_each(|c| c.target = None);
        let strategy = build("terrace", Value::Null).unwrap();
        let mut state = strategy.initial_state();
        let decisions = (0..4).map(|_| {
            let decision = decide(&*strategy, &facts, &Policy::default(), &state, 1).unwrap();
            state = decision.state.clone();
            facts.epoch += 1;
            facts.at += Nanos::from_secs(60);
            decision
        });
        let decision = decisions.last().expect("four");
        for (row, class) in decision.report.volumes.iter().zip(&facts.classes) {
            for option in &row.options {
                let Some(ScoreParts::Violated(parts)) = option.parts else {
                    panic!("{option:?}");
                };
                prop_assert_eq!(option.score, Some(parts.score()));
                let sum = parts.violated + parts.excess + parts.faster + parts.latency + parts.others;
                prop_assert_eq!(parts.score(), -sum);
                prop_assert!(parts.others >= 0.0 && parts.violated <= class.weight);
                let aims = class.target.is_some();
                prop_assert_eq!((parts.statistic.is_some(), parts.latency > 0.0), (aims, !aims && sum > parts.others));
                let us = parts.mean_us.expect("all ask for something");
                prop_assert!(us.low < us.value && us.value < us.high);
                prop_assert_eq!(option.predicted.map(|p| p.latency_us), Some(us.value));
            }
        }
    }
}
