//! Goals that outrank a strategy's, and the gates for a strategy's wishes.

use model::*;
use planner::{AnyStrategy, ConfigError, Context, Decision, Draft, Strategy as _, Wish, decide};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use units::*;

use crate::support::{STRATEGIES, V, facts, inventory, plan_with, v};

/// A volume, its wanted tier, and its mean latency before and after in microseconds.
type Want = (u32, u16, Option<(f64, f64)>);

/// Strategy with given wishes.
struct ScriptedStrategy(ScriptedConfig);

#[derive(Default, Serialize, Deserialize, schemars::JsonSchema)]
struct ScriptedConfig {
    wants: Vec<Want>,
}

impl planner::Strategy for ScriptedStrategy {
    type Config = ScriptedConfig;
    type State = ();
    const NAME: &'static str = "scripted";
    const SUMMARY: &'static str = "for tests";

    fn new(config: ScriptedConfig) -> Result<Self, ConfigError> {
        Ok(Self(config))
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        for i in 0..context.facts.volumes.len() {
            let mut wish = Wish::stay(context, VolumeId::from_index(i));
            if let Some((_, tier, effect)) = self.0.wants.iter().find(|w| w.0 as usize == i) {
                wish.tier = TierId(*tier);
                wish.reason = Reason::new("test", "for a test");
                wish.value = 1.0;
                wish.effect = Effect {
                    latency_before_us: effect.map(|e| e.0),
                    latency_after_us: effect.map(|e| e.1),
                    ..Effect::default()
                };
            }
            draft.wishes.push(wish);
        }
    }
}

fn scripted(wants: &[Want]) -> ScriptedStrategy {
    let wants = wants.to_vec();
    ScriptedStrategy::new(ScriptedConfig { wants }).unwrap()
}

fn decided(strategy: &dyn AnyStrategy, facts: &Facts, policy: &Policy) -> Decision {
    decide(strategy, facts, policy, &strategy.initial_state(), 7).unwrap()
}

/// Returns volume, target tier and goal of every move.
fn moves(d: &Decision, facts: &Facts) -> Vec<(u32, u16, Goal)> {
    let target = |m: &Move| facts.topology.tier_of(m.to).0;
    d.plan
        .moves()
        .iter()
        .map(|m| (m.volume.0, target(m), m.terms.goal))
        .collect()
}

fn held(d: &Decision, volume: usize) -> &Rejection {
    match &d.report.volumes[volume].outcome {
        Outcome::Held { by, .. } => by,
        other => panic!("{other:?}"),
    }
}

fn draining(tiers: &[u16]) -> Policy {
    Policy {
        draining: tiers.iter().map(|t| TierId(*t)).collect(),
        ..Policy::default()
    }
}

fn gated(gates: Gates) -> Policy {
    Policy {
        gates,
        ..Policy::default()
    }
}

#[test]
fn draining_tier_is_emptied_into_the_nearest_tier_lower_first() {
    let mut f = facts(&[v(2, 50, 100.0, 0.5, 1.0), v(2, 90, 100.0, 0.5, 1.0)]);
    f.volumes[0].measured = None;
    let d = plan_with("noop", json!({}), &f, &draining(&[1]));
    // The largest first, and also a volume with unknown load.
    assert_eq!(moves(&d, &f), [(1, 2, Goal::Drain), (0, 2, Goal::Drain)]);
    let reason = d.plan.moves()[0].terms.reason.to_string();
    assert_eq!(reason, "tier t2 is being drained");
    // The lower tier is closed: they go to the upper one, on one device each, because a device holds 100 GiB.
    let mut policy = draining(&[1]);
    policy.cordoned = vec![TierId(2)];
    let d = plan_with("noop", json!({}), &f, &policy);
    assert_eq!(moves(&d, &f), [(1, 0, Goal::Drain), (0, 0, Goal::Drain)]);
    assert_ne!(d.plan.moves()[0].to, d.plan.moves()[1].to);
}

#[test]
fn space_is_counted_across_the_decision_and_excess_is_rejected() {
    // 120 GiB are left on each device of t3: room for one of these on each. The third goes up, the fourth has no place.
    let mut volumes: Vec<V> = vec![v(3, 380, 1.0, 0.5, 1.0), v(4, 380, 1.0, 0.5, 1.0)];
    volumes.extend([81, 80, 39].map(|gib| v(2, gib, 1.0, 0.5, 1.0)));
    let f = facts(&volumes);
    let d = plan_with("noop", json!({}), &f, &draining(&[1]));
    assert_eq!(
        moves(&d, &f),
        [
            (2, 2, Goal::Drain),
            (3, 2, Goal::Drain),
            (4, 2, Goal::Drain)
        ]
    );
    let mut f = f;
    f.devices[3].reserved = Bytes::gib(40);
    f.devices[4].reserved = Bytes::gib(50);
    f.devices[0].reserved = Bytes::gib(10);
    f.devices[1].reserved = Bytes::gib(70);
    let d = plan_with("noop", json!({}), &f, &draining(&[1]));
    // 80 and 70 GiB are left below, 90 and 30 above: the largest and the next use this space.
    assert_eq!(
        moves(&d, &f),
        [
            (2, 0, Goal::Drain),
            (3, 2, Goal::Drain),
            (4, 2, Goal::Drain)
        ]
    );
    f.devices[0].reserved = Bytes::gib(20);
    let d = plan_with("noop", json!({}), &f, &draining(&[1]));
    assert!(
        matches!(held(&d, 2), Rejection::NoDevice { need, .. } if *need == Bytes::gib(81)),
        "{:?}",
        held(&d, 2)
    );
    assert_eq!(d.plan.moves().len(), 2);
}

#[test]
fn drained_volume_follows_its_strategy_or_pin() {
    let f = facts(&[v(2, 10, 100.0, 0.5, 1.0), v(2, 10, 100.0, 0.5, 1.0)]);
    let strategy = scripted(&[(0, 0, Some((100.0, 80.0)))]);
    let d = decided(&strategy, &f, &draining(&[1]));
    assert_eq!(moves(&d, &f), [(0, 0, Goal::Drain), (1, 2, Goal::Drain)]);
    assert_eq!(d.plan.moves()[0].terms.effect.latency_after_us, Some(80.0));
    // The wanted tier is draining, too.
    let d = decided(&strategy, &f, &draining(&[0, 1]));
    assert_eq!(moves(&d, &f), [(0, 2, Goal::Drain), (1, 2, Goal::Drain)]);
    assert_eq!(d.plan.moves()[0].terms.effect, Effect::default());
    let mut policy = draining(&[1]);
    let pin = |volume, tier| Pin {
        volume: VolumeId(volume),
        tier: TierId(tier),
    };
    policy.pins = vec![pin(0, 1), pin(1, 0)];
    let d = decided(&strategy, &f, &policy);
    assert_eq!(moves(&d, &f), [(1, 0, Goal::Drain)]);
    assert_eq!(held(&d, 0), &Rejection::Pinned { tier: "t2".into() });
    // Without another open tier, it is rejected as well.
    let d = decided(&strategy, &f, &draining(&[0, 1, 2]));
    assert_eq!(
        (held(&d, 0), held(&d, 1)),
        (&Rejection::Cordoned, &Rejection::Cordoned)
    );
}

#[test]
fn failed_move_is_retried_elsewhere_or_rejected() {
    let mut f = facts(&[v(2, 10, 100.0, 0.5, 1.0)]);
    let target = |f: &Facts, policy: &Policy| {
        let d = plan_with("noop", json!({}), f, policy);
        d.plan.moves().first().map(|m| m.to.0)
    };
    let fails = |f: &mut Facts, device, left: Option<u64>| {
        f.failed.push(FailedMove {
            volume: VolumeId(0),
            device: DeviceId(device),
            attempts: u32::from(device),
            left: left.map(Nanos::from_secs),
            why: "no permission".into(),
        });
    };
    let policy = draining(&[1]);
    let first = target(&f, &policy).unwrap();
    assert!(first == 3 || first == 4);
    fails(&mut f, first, None);
    let second = target(&f, &policy).unwrap();
    assert_eq!(first + second, 7);
    fails(&mut f, second, Some(60));
    assert!(target(&f, &policy).unwrap() < 2);
    // A pin allows one tier: the rejection names the device with the earliest retry.
    let pinned = Policy {
        pins: vec![Pin {
            volume: VolumeId(0),
            tier: TierId(2),
        }],
        ..Policy::default()
    };
    let d = plan_with("noop", json!({}), &f, &pinned);
    assert!(d.plan.moves().is_empty());
    let by = Rejection::MoveFailed {
        device: f.topology.devices[second as usize].name.clone(),
        attempts: u32::from(second),
        left: Some(Nanos::from_secs(60)),
        why: "no permission".into(),
    };
    assert_eq!(held(&d, 0), &by);
    assert!(by.to_string().contains("the next one in 1m"), "{by}");
    fails(&mut f, 0, None);
    fails(&mut f, 1, None);
    let d = plan_with("noop", json!({}), &f, &policy);
    assert!(d.plan.moves().is_empty());
    assert!(matches!(held(&d, 0), Rejection::MoveFailed { .. }));
}

/// In a cluster, a local device is reachable only from its node.
#[test]
fn moves_stay_on_devices_reachable_from_the_node() {
    let mut f = facts(&[v(2, 10, 100.0, 0.5, 1.0), v(2, 20, 900.0, 0.5, 1.0)]);
    let on = |nodes: [Option<u16>; 5]| Nodes {
        volumes: vec![Some(0), Some(1)],
        devices: nodes.into(),
    };
    f.nodes = on([Some(0), Some(1), None, Some(1), Some(0)]);
    let policy = draining(&[1]);
    for (strategy, parameters) in STRATEGIES {
        let parameters = serde_json::from_str(parameters).unwrap();
        let d = plan_with(strategy, parameters, &f, &policy);
        let moves = d.plan.moves();
        assert_eq!(moves.len(), 2, "{strategy}");
        for m in moves {
            assert!(f.reaches(m.volume, m.to), "{strategy}: {m:?}");
        }
    }
    f.nodes = on([Some(1), Some(1), None, Some(1), Some(1)]);
    let d = plan_with("noop", json!({}), &f, &policy);
    let moved: Vec<u32> = d.plan.moves().iter().map(|m| m.volume.0).collect();
    assert_eq!(moved, [1]);
    assert!(matches!(held(&d, 0), Rejection::Unreachable { .. }));
}

#[test]
fn volumes_bound_to_one_tier_drain_together_despite_gates() {
    let mut f = facts(&[v(2, 30, 100.0, 0.5, 1.0), v(2, 40, 100.0, 0.5, 1.0)]);
    f.volumes[1].last_moved = Some(f.at);
    let mut policy = draining(&[1]);
    policy.affinity = vec![Affinity {
        kind: AffinityKind::SameTier,
        volumes: vec![VolumeId(0), VolumeId(1)],
    }];
    policy.gates.cooldown = Nanos::from_secs(3600);
    // The lower tier has room for the larger one only, so both go up.
    f.devices[3].reserved = Bytes::gib(460);
    f.devices[4].reserved = Bytes::gib(480);
    let d = plan_with("noop", json!({}), &f, &policy);
    assert_eq!(moves(&d, &f), [(1, 0, Goal::Drain), (0, 0, Goal::Drain)]);
    // A pin moves its partner, too, although that one moved recently.
    policy.draining.clear();
    policy.pins = vec![Pin {
        volume: VolumeId(0),
        tier: TierId(0),
    }];
    let d = decided(&scripted(&[(1, 0, None)]), &f, &policy);
    assert_eq!(moves(&d, &f), [(0, 0, Goal::Rules), (1, 0, Goal::Rules)]);
}

#[test]
fn least_used_volumes_leave_an_overfull_device() {
    let mut f = facts(&[
        v(0, 30, 500.0, 0.5, 1.0),
        v(0, 30, 10.0, 0.5, 1.0),
        v(0, 35, 5000.0, 0.5, 1.0),
    ]);
    let high = |high| Policy {
        space_high: Some(high),
        ..Policy::default()
    };
    let at = |d: &Decision, f: &Facts| moves(d, f).iter().map(|m| (m.0, m.1)).collect::<Vec<_>>();
    let d = plan_with("noop", json!({}), &f, &high(0.9));
    assert_eq!(moves(&d, &f), [(1, 1, Goal::Space)]);
    let reason = d.plan.moves()[0].terms.reason.to_string();
    assert_eq!(
        reason,
        "device t1-0 is 95.0 % full, and the volume has little load"
    );
    let d = plan_with("noop", json!({}), &f, &high(0.6));
    assert_eq!(at(&d, &f), [(1, 1), (0, 1)], "until it is below");
    assert!(
        plan_with("noop", json!({}), &f, &high(0.95))
            .plan
            .moves()
            .is_empty()
    );
    assert!(
        plan_with("noop", json!({}), &f, &Policy::default())
            .plan
            .moves()
            .is_empty()
    );
    // An unknown load may not be idle.
    f.volumes[1].measured = None;
    let d = plan_with("noop", json!({}), &f, &high(0.9));
    assert_eq!(at(&d, &f), [(0, 1)]);
    // Without room below, another device of the tier is used, and then none.
    f.devices[2].reserved = Bytes::gib(180);
    f.devices[3].reserved = Bytes::gib(440);
    f.devices[4].reserved = Bytes::gib(440);
    let d = plan_with("noop", json!({}), &f, &high(0.9));
    assert_eq!(at(&d, &f), [(0, 0)]);
    assert_eq!(d.plan.moves()[0].to, DeviceId(1));
    f.devices[1].reserved = Bytes::gib(80);
    let d = plan_with("noop", json!({}), &f, &high(0.9));
    assert!(d.plan.moves().is_empty());
    assert!(matches!(held(&d, 0), Rejection::NoDevice { .. }));
}

#[test]
fn space_goal_precedes_latency_which_does_not_revert_it() {
    // The strategy wants the cold volume on the overfull tier, and wants the coldest volume there to stay.
    let f = facts(&[
        v(2, 10, 10.0, 0.5, 1.0),
        v(0, 85, 10.0, 0.5, 1.0),
        v(1, 85, 20.0, 0.5, 1.0),
    ]);
    let mut policy = Policy {
        space_high: Some(0.9),
        ..Policy::default()
    };
    let up = scripted(&[(0, 0, None)]);
    let d = decided(&up, &f, &policy);
    assert!(
        matches!(held(&d, 0), Rejection::NoDevice { most_free, .. } if *most_free == Bytes::gib(5))
    );
    policy.space_high = Some(0.8);
    let d = decided(&up, &f, &policy);
    assert_eq!(
        moves(&d, &f),
        [
            (1, 1, Goal::Space),
            (2, 2, Goal::Space), // t2 would be too full itself
            (0, 0, Goal::Latency)
        ]
    );
}

#[test]
fn move_must_be_a_candidate_for_several_epochs() {
    let f = facts(&[v(3, 10, 100.0, 0.5, 1.0)]);
    let policy = gated(Gates {
        hold: 3,
        ..Gates::default()
    });
    let (up, middle) = (scripted(&[(0, 0, None)]), scripted(&[(0, 1, None)]));
    let mut state = up.initial_state();
    let mut next = |strategy: &ScriptedStrategy, f: &Facts| {
        // Stored and read back each time.
        state = strategy.state_from_json(state.to_json()).unwrap();
        let d = decide(strategy, f, &policy, &state, 7).unwrap();
        state = d.state.clone();
        d
    };
    let hold = |seen| Rejection::Hold { seen, needed: 3 };
    assert_eq!(held(&next(&up, &f), 0), &hold(1));
    assert_eq!(held(&next(&up, &f), 0), &hold(2));
    assert_eq!(held(&next(&middle, &f), 0), &hold(1), "another tier");
    assert_eq!(held(&next(&up, &f), 0), &hold(1));
    // Only placement decisions count.
    let not_due = Facts {
        placement_due: false,
        ..f.clone()
    };
    assert!(next(&up, &not_due).report.volumes.is_empty());
    assert_eq!(held(&next(&up, &f), 0), &hold(2));
    assert_eq!(moves(&next(&up, &f), &f), [(0, 0, Goal::Latency)]);
    // A decision without this wish restarts the count.
    next(&scripted(&[]), &f);
    assert_eq!(held(&next(&up, &f), 0), &hold(1));
}

#[test]
fn state_without_later_fields_is_readable() {
    let f = facts(&[v(3, 60, 30_000.0, 1.0, 1.0), v(4, 60, 10.0, 1.0, 1.0)]);
    for name in ["noop", "static", "autotiering"] {
        let strategy = planner::build(name, json!({})).unwrap();
        let d = decided(&*strategy, &f, &Policy::default());
        let stored = d.state.to_json();
        let old = strategy.state_from_json(stored["own"].clone()).unwrap();
        assert_eq!(old.to_json()["own"], stored["own"], "{name}");
        assert_eq!(old.to_json()["holds"], json!({}), "{name}");
    }
}

#[test]
fn volume_cools_down_after_a_move_except_for_rules() {
    let mut f = facts(&[v(3, 10, 100.0, 0.5, 1.0)]);
    let cooldown = Nanos::from_secs(600);
    let policy = gated(Gates {
        cooldown,
        ..Gates::default()
    });
    let up = scripted(&[(0, 0, None)]);
    f.volumes[0].last_moved = Some(f.at - Nanos::from_secs(200));
    let d = decided(&up, &f, &policy);
    let left = Nanos::from_secs(400);
    assert_eq!(held(&d, 0), &Rejection::Cooldown { left });
    let text = held(&d, 0).to_string();
    assert!(text.contains("may move again in 6m 40s"), "{text}");
    let mut pinned = policy.clone();
    pinned.pins = vec![Pin {
        volume: VolumeId(0),
        tier: TierId(0),
    }];
    let by_rule = decided(&up, &f, &pinned);
    assert_eq!(moves(&by_rule, &f), [(0, 0, Goal::Rules)]);
    f.volumes[0].last_moved = Some(f.at - cooldown);
    let d = decided(&up, &f, &policy);
    assert_eq!(moves(&d, &f), [(0, 0, Goal::Latency)]);
    // The lint of the plan checks the rules, too.
    f.volumes[0].last_moved = Some(f.at);
    let errors = planner::lint(&d.plan, &f, &policy);
    assert!(
        errors.len() == 1 && errors[0].to_string().contains("is in cooldown for another"),
        "{errors:?}"
    );
    assert_eq!(planner::lint(&by_rule.plan, &f, &policy), []);
    let errors = planner::lint(&by_rule.plan, &f, &draining(&[0]));
    assert!(
        errors.len() == 1 && errors[0].to_string().contains("being drained"),
        "{errors:?}"
    );
}

#[test]
fn small_gains_and_dependent_moves_are_rejected() {
    let f = facts(&[
        v(3, 10, 100.0, 0.5, 1.0),
        v(4, 10, 100.0, 0.5, 1.0),
        v(0, 10, 100.0, 0.5, 1.0),
        v(2, 10, 100.0, 0.5, 1.0),
    ]);
    let latency_us = f.volumes[0].measured.unwrap().latency_mean_us().unwrap();
    // Two come up from t3. One makes room on t1, and one on t2, the target of the former.
    let all = scripted(&[
        (0, 0, Some((100.0, 95.0))),
        (1, 0, Some((100.0, 50.0))),
        (2, 1, Some((50.0, 60.0))),
        (3, 2, Some((60.0, 70.0))),
    ]);
    let volumes = |d: &Decision| {
        let mut list: Vec<u32> = d.plan.moves().iter().map(|m| m.volume.0).collect();
        list.sort();
        list
    };
    assert_eq!(
        volumes(&decided(&all, &f, &Policy::default())),
        [0, 1, 2, 3]
    );
    let margin = |margin| {
        gated(Gates {
            margin,
            ..Gates::default()
        })
    };
    let d = decided(&all, &f, &margin(0.2));
    assert_eq!(volumes(&d), [1, 2, 3], "one still comes");
    assert!(
        matches!(held(&d, 0), Rejection::Margin { gain, needed } if (gain - 0.05).abs() < 1e-9 && *needed == 0.2)
    );
    let d = decided(&all, &f, &margin(0.6));
    assert_eq!(volumes(&d), [0; 0]);
    for slower in [2, 3] {
        assert_eq!(held(&d, slower), &Rejection::NoBeneficiary);
    }
    let threshold = |threshold| {
        gated(Gates {
            threshold,
            ..Gates::default()
        })
    };
    let just = Nanos::from_micros_f64(latency_us.floor());
    assert_eq!(volumes(&decided(&all, &f, &threshold(just))), [0, 1, 2, 3]);
    let d = decided(
        &all,
        &f,
        &threshold(Nanos::from_micros_f64(latency_us + 1.0)),
    );
    assert_eq!(volumes(&d), [0; 0]);
    assert!(matches!(held(&d, 1), Rejection::Threshold { latency_us: l, .. } if *l == latency_us));
    // Wishes without a predicted latency need no margin, and none lacks a beneficiary while all others remain.
    let silent = scripted(&[(0, 0, None), (2, 1, Some((50.0, 60.0)))]);
    assert_eq!(volumes(&decided(&silent, &f, &margin(0.9))), [0, 2]);
    let alone = scripted(&[(2, 1, Some((50.0, 60.0)))]);
    assert_eq!(volumes(&decided(&alone, &f, &margin(0.9))), [2]);
}

/// Returns random policies for an array of three tiers.
fn policies() -> impl Strategy<Value = Policy> {
    let gates = (1u32..4, 0u64..900, 0.0f64..0.5, 0u64..200).prop_map(
        |(hold, cooldown, margin, threshold)| Gates {
            hold,
            cooldown: Nanos::from_secs(cooldown),
            margin,
            threshold: Nanos::from_micros(threshold),
        },
    );
    let some_tiers = || prop::collection::vec((0u16..3).prop_map(TierId), 0..3);
    let pin = (0u32..8, 0u16..3).prop_map(|(volume, tier)| Pin {
        volume: VolumeId(volume),
        tier: TierId(tier),
    });
    let rule =
        (any::<bool>(), prop::collection::btree_set(0u32..10, 2..4)).prop_map(|(same, v)| {
            let kind = if same {
                AffinityKind::SameTier
            } else {
                AffinityKind::DifferentDevices
            };
            Affinity {
                kind,
                volumes: v.into_iter().map(VolumeId).collect(),
            }
        });
    (
        gates,
        some_tiers(),
        some_tiers(),
        prop::option::of(0.1f64..1.0),
        prop::collection::vec(pin, 0..3),
        prop::collection::vec(rule, 0..3),
        1u32..40,
    )
        .prop_map(
            |(gates, draining, cordoned, space_high, mut pins, affinity, most)| {
                pins.sort_by_key(|p| p.volume);
                pins.dedup_by_key(|p| p.volume);
                let mut policy = Policy {
                    gates,
                    draining,
                    cordoned,
                    space_high,
                    pins,
                    affinity,
                    ..Policy::default()
                };
                policy.budget.moves_per_epoch = most;
                policy
            },
        )
}

/// Special properties of a volume: known load, time of its last move, target of a running move.
type Oddity = (bool, Option<u64>, Option<u16>);

fn make_odd(facts: &mut Facts, oddities: &[Oddity]) {
    for (i, (known, moved, target)) in oddities.iter().enumerate().take(facts.volumes.len()) {
        let volume = &mut facts.volumes[i];
        if !known {
            volume.measured = None;
        }
        volume.last_moved = moved.map(Nanos::from_secs);
        let (from, size) = (volume.device, volume.size);
        let Some(to) = target.map(DeviceId).filter(|to| *to != from) else {
            continue;
        };
        let capacity = facts.topology.device(to).spec.capacity;
        let device = &mut facts.devices[to.index()];
        if device.used + device.reserved + size <= capacity {
            device.reserved += size;
            facts.moves.push(RunningMove {
                volume: VolumeId::from_index(i),
                from,
                to,
                extents: None,
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// For any policy and any wishes: no rule is broken, and no volume on a draining tier is forgotten.
    #[test]
    fn goals_and_gates_respect_all_rules_and_drain_all_volumes(
        volumes in inventory().prop_filter("as many as rules name", |v| v.len() >= 10),
        oddities in prop::collection::vec((any::<bool>(), prop::option::of(0u64..900), prop::option::weighted(0.2, 0u16..5)), 10),
        policy in policies(),
    ) {
        let mut f = facts(&volumes);
        make_odd(&mut f, &oddities);
        for (name, config) in STRATEGIES {
            let strategy = planner::build(name, serde_json::from_str(config).unwrap()).unwrap();
            let mut state = strategy.initial_state();
            for placement_due in [true, false, true] {
                f.placement_due = placement_due;
                // A plan that breaks a rule is an error here.
                let d = decide(&*strategy, &f, &policy, &state, 7).map_err(|e| TestCaseError::fail(e.to_string()))?;
                state = strategy.state_from_json(d.state.to_json()).unwrap();
                check(&d, &f, &policy)?;
            }
        }
    }
}

fn check(d: &Decision, facts: &Facts, policy: &Policy) -> Result<(), TestCaseError> {
    prop_assert_eq!(planner::lint(&d.plan, facts, policy), []);
    if !facts.placement_due {
        prop_assert!(d.plan.moves().is_empty() && d.report.volumes.is_empty());
        return Ok(());
    }
    for m in &d.plan.moves() {
        let (from, to) = (facts.topology.tier_of(m.from), facts.topology.tier_of(m.to));
        prop_assert!(!policy.draining.contains(&to));
        prop_assert!(from == to || !policy.cordoned.contains(&to));
        prop_assert!(
            policy.pin_of(m.volume).is_none_or(|pin| pin == to),
            "{:?}",
            m
        );
        prop_assert!(from != to || m.terms.goal == Goal::Space, "{:?}", m);
        let unknown = facts.volumes[m.volume.index()].measured.is_none();
        prop_assert!(
            !unknown || m.terms.goal < Goal::Space || d.plan.strategy == "static",
            "{:?}",
            m
        );
    }
    for (i, v) in facts.volumes.iter().enumerate() {
        let running = facts.moves.iter().find(|m| m.volume.index() == i);
        let stays_on = facts.topology.tier_of(running.map_or(v.device, |m| m.to));
        if policy.draining.contains(&stays_on) {
            let row = d.report.volumes.iter().find(|r| r.volume == v.name);
            let seen_to = row.is_some_and(|r| !matches!(r.outcome, Outcome::Stay));
            prop_assert!(seen_to, "{} {:?}", v.name, row);
        }
    }
    for row in &d.report.volumes {
        let chosen = row.options.iter().filter(|o| o.verdict == Verdict::Chosen);
        prop_assert_eq!(chosen.count(), 1, "{:?}", row);
    }
    Ok(())
}
