//! `colloid` and `arms` on made-up arrays, computed by hand.

use model::*;
use planner::{AnyStrategy, Decision, StrategyState, build, decide};
use serde_json::{Value, json};
use units::*;

use crate::support;

const EXTENT: Bytes = Bytes::mib(64);
const MINUTE: Nanos = Nanos::from_secs(60);

/// A volume: device and requests of each extent per minute, and its mean latency.
#[derive(Clone)]
struct Volume {
    places: Vec<u16>,
    requests: Vec<u32>,
    latency_us: f64,
}

/// Tiers of one device each, with space for these numbers of extents.
struct Array {
    facts: Facts,
    volumes: Vec<Volume>,
    policy: Policy,
    strategy: Box<dyn AnyStrategy>,
    state: StrategyState,
}

impl Array {
    fn new(strategy: &str, config: Value, extents: &[u64], volumes: &[Volume]) -> Self {
        let devices: Vec<[u64; 1]> = extents.iter().map(|n| [*n]).collect();
        let tiers: Vec<&[u64]> = devices.iter().map(|d| &d[..]).collect();
        let facts = support::tiers_of_extents(&tiers, EXTENT);
        let policy = Policy {
            epochs: Epochs {
                monitor: MINUTE,
                migration: MINUTE,
            },
            ..Policy::default()
        };
        let strategy = build(strategy, config).unwrap();
        Self {
            facts,
            volumes: volumes.to_vec(),
            policy,
            state: strategy.initial_state(),
            strategy,
        }
    }

    /// One minute passes.
    fn observe(&mut self) {
        self.facts.at += MINUTE;
        self.facts.epoch += 1;
        support::clear_volumes(&mut self.facts);
        for v in &self.volumes {
            let ios: u64 = v.requests.iter().map(|n| u64::from(*n)).sum();
            let touched = (0..).zip(v.requests.iter().copied());
            let touched = touched.filter(|t| t.1 > 0).collect();
            let size = Bytes(v.places.len() as u64 * EXTENT.0);
            let heat = Some(ExtentHeat::of(touched));
            support::add_volume(&mut self.facts, size, EXTENT, &v.places, heat);
            let added = self.facts.volumes.last_mut().expect("it was just added");
            added.measured = Some(MeasuredLoad {
                window: MINUTE,
                reads: Flow {
                    ios,
                    bytes: ios * 4096,
                    latency: LatencySummary {
                        mean_us: v.latency_us,
                        ..Default::default()
                    },
                },
                writes: Flow::default(),
                outstanding: ios as f64 / 60.0 * v.latency_us / 1e6,
            });
        }
    }

    /// Makes a decision; only its stored state is kept.
    fn decide(&mut self) -> Decision {
        let decision = decide(&*self.strategy, &self.facts, &self.policy, &self.state, 7).unwrap();
        let stored = decision.state.to_json();
        self.state = self.strategy.state_from_json(stored).unwrap();
        decision
    }

    fn minute(&mut self) -> Decision {
        self.observe();
        self.decide()
    }

    fn carry_out(&mut self, plan: &Plan) {
        for m in plan.moves() {
            let places = &mut self.volumes[m.volume.index()].places;
            match &m.extents {
                Some(ranges) => ranges.iter().for_each(|e| places[e as usize] = m.to.0),
                None => places.fill(m.to.0),
            }
        }
        self.facts.generation = plan.generation;
    }
}

/// Volume, source, target and extents of each move.
fn moved(decision: &Decision) -> Vec<(u32, u16, u16, String)> {
    let moves = decision.plan.moves().into_iter();
    let extents = |m: &Move| m.extents.as_ref().map_or("all".into(), |e| e.to_string());
    moves
        .map(|m| (m.volume.0, m.from.0, m.to.0, extents(m)))
        .collect()
}

fn on(device: u16, requests: &[u32], latency_us: f64) -> Volume {
    Volume {
        places: vec![device; requests.len()],
        requests: requests.to_vec(),
        latency_us,
    }
}

#[test]
fn colloid_moves_the_hottest_extents_within_the_shift() {
    // 7,500 of 10,000 requests are on the fast tier, which is quicker: at most 1,250 should follow.
    let slow = on(1, &[1_100, 900, 300, 100, 100, 0, 0], 900.0);
    let fast = on(0, &[7_500, 0, 0], 100.0);
    let mut array = Array::new("colloid", json!({}), &[10, 20], &[fast, slow]);
    array.facts.at = Nanos::ZERO;
    let decision = array.minute();
    // After 1,100, 150 are left: 100.
    assert_eq!(moved(&decision), [(1, 1, 0, "0,3".into())]);
    let reason = &decision.plan.moves()[0].terms.reason;
    assert_eq!(reason.kind(), "balances-latency");
    assert_eq!(reason.value("slower"), Some(&ReasonValue::from("t1")));
    let share = reason.number("share").unwrap();
    assert!((share - 0.125).abs() < 1e-9, "{share}");
    let note = "t0 100 us, t1 900 us, 0.750 of requests on t0, 0.875 wanted: 2 to move";
    assert_eq!(decision.report.notes, [note]);
}

#[test]
fn colloid_relieves_the_fast_tier_if_it_is_slower() {
    let fast = on(0, &[3_000, 2_000, 1_000], 2_000.0);
    let slow = on(1, &[4_000, 10, 0], 400.0);
    let mut array = Array::new("colloid", json!({}), &[10, 20], &[fast, slow]);
    // 0.6 of the requests are on the fast tier, 0.3 are wanted there: 3,003 of 10,010 should leave.
    assert_eq!(moved(&array.minute()), [(0, 0, 1, "0".into())]);
}

#[test]
fn colloid_exchanges_extents_if_the_target_is_full() {
    let slow = on(1, &[400, 400, 0], 900.0);
    let fast = on(0, &[4_000, 3_000, 0, 20], 100.0);
    let mut array = Array::new("colloid", json!({}), &[4, 20], &[fast, slow]);
    // 400 requests should come: one extent, which replaces an idle one. The reserve of space does not prevent it.
    let decision = array.minute();
    let all = moved(&decision);
    assert_eq!(all, [(0, 0, 1, "2".into()), (1, 1, 0, "0".into())]);
    array.carry_out(&decision.plan);
    let reason = &decision.plan.moves()[1].terms.reason;
    let text = "balances latency under load: t1 900 us, t0 100 us; 5.1 % of their requests are to go to t0";
    assert_eq!(reason.to_string(), text);
    // Half of the rest is less than an extent.
    assert_eq!(moved(&array.minute()), []);
}

#[test]
fn colloid_makes_no_move_between_balanced_or_idle_tiers() {
    let fast = on(0, &[3_000, 2_000], 100.0);
    let slow = on(1, &[3_000, 2_000], 104.9);
    let mut array = Array::new("colloid", json!({}), &[10, 10], &[fast.clone(), slow]);
    let decision = array.minute();
    assert_eq!(moved(&decision), []);
    assert!(decision.report.notes[0].ends_with(": balanced"));
    let beyond = on(1, &[3_000, 2_000], 105.2);
    let mut array = Array::new("colloid", json!({}), &[10, 10], &[fast, beyond]);
    assert_ne!(moved(&array.minute()), []);
    let idle = [on(0, &[0, 0], 0.0), on(1, &[0, 0], 0.0)];
    let mut array = Array::new("colloid", json!({}), &[10, 10], &idle);
    assert_eq!(moved(&array.minute()), []);
}

#[test]
fn colloid_selects_the_tiers_with_the_extreme_latencies() {
    let all = [
        on(0, &[3_000, 1_000], 500.0),
        on(1, &[3_000, 1_000], 200.0),
        on(2, &[300, 200], 5_000.0),
    ];
    let mut array = Array::new("colloid", json!({}), &[10, 10, 10], &all);
    // Tier 2 is the slowest, tier 1 the quickest; tier 0 is not involved.
    let decision = array.minute();
    let [(2, 2, 1, _)] = &moved(&decision)[..] else {
        panic!("{:?}", moved(&decision));
    };
}

#[test]
fn colloid_respects_its_byte_limit() {
    let slow = on(1, &[100; 10], 900.0);
    let fast = on(0, &[9_000], 100.0);
    let config = json!({"limit": "4 MiB/s", "dynamic_limit": false});
    let mut array = Array::new("colloid", config, &[20, 20], &[fast.clone(), slow.clone()]);
    // 240 MiB are three extents.
    assert_eq!(moved(&array.minute()), [(1, 1, 0, "0-2".into())]);
    // 500 requests of 4 KiB are less than an extent: one exchange is always allowed.
    let mut array = Array::new("colloid", json!({}), &[20, 20], &[fast, slow]);
    assert_eq!(moved(&array.minute()), [(1, 1, 0, "0-1".into())]);
}

#[test]
fn gated_colloid_waits_until_a_shift_pays_for_its_copies() {
    let slow = on(1, &[600, 300, 300], 110.0);
    let fast = on(0, &[2_400_000], 100.0);
    let volumes = [fast, slow];
    let mut literal = Array::new("colloid", json!({}), &[10, 20], &volumes);
    assert_ne!(moved(&literal.minute()), []);
    let mut gated = Array::new("colloid", json!({"gate": true}), &[10, 20], &volumes);
    let refused = gated.minute();
    assert_eq!(moved(&refused), []);
    let note = &refused.report.notes[0];
    assert!(note.contains("not worth its copies: 0.000 s"), "{note}");
    let waited = (0..2_000).find(|_| !moved(&gated.minute()).is_empty());
    assert!(waited.is_some_and(|n| n > 2), "{waited:?}");
}

#[test]
fn colloid_separates_the_latencies_of_a_split_volume() {
    // Half of v0's requests are on each tier: its 500 us are 100 and 900, as for the other volumes.
    let mut parted = on(0, &[3_000, 3_000], 500.0);
    parted.places = vec![0, 1];
    let volumes = [on(0, &[6_000, 0], 100.0), parted, on(1, &[6_000, 0], 900.0)];
    let mut array = Array::new("colloid", json!({}), &[10, 20], &volumes);
    let decision = array.minute();
    let note = &decision.report.notes[0];
    let start = "t0 100 us, t1 900 us, 0.500 of requests on t0, 0.750 wanted";
    assert!(note.starts_with(start), "{note}");
}

#[test]
fn colloid_moves_the_volume_nearest_to_the_shift_if_it_helps() {
    // 4,115 of 13,230 requests should go to the fast tier: v1 has 6,000, v2 has 2,200.
    let volumes = [
        on(0, &[2_500, 2_500], 100.0),
        on(1, &[6_000, 0], 900.0),
        on(1, &[2_200, 0], 900.0),
        on(1, &[30, 0], 900.0),
    ];
    let moves = |utilization: [f64; 2]| {
        let config = json!({"unit": "volumes"});
        let mut array = Array::new("colloid", config, &[10, 20], &volumes);
        for (device, utilization) in array.facts.devices.iter_mut().zip(utilization) {
            device.utilization = utilization;
        }
        moved(&array.minute())
    };
    assert_eq!(moves([0.2, 0.6]), [(1, 1, 0, "all".into())]);
    // The fast tier could not serve it. Every volume is still in the report.
    assert_eq!(moves([0.9, 0.6]), []);
}

#[test]
fn colloid_does_not_move_pinned_or_moving_volumes() {
    let volumes = [on(0, &[2_500], 100.0), on(1, &[900, 700], 900.0)];
    for unit in ["extents", "volumes"] {
        let config = json!({"unit": unit});
        let mut array = Array::new("colloid", config.clone(), &[10, 20], &volumes);
        array.policy.pins = vec![Pin {
            volume: VolumeId(1),
            tier: TierId(1),
        }];
        assert_eq!(moved(&array.minute()), [], "{unit}");
        let mut array = Array::new("colloid", config, &[10, 20], &volumes);
        array.facts.moves = vec![RunningMove {
            volume: VolumeId(1),
            from: DeviceId(1),
            to: DeviceId(0),
            extents: None,
        }];
        assert_eq!(moved(&array.minute()), [], "{unit}");
    }
}

#[test]
fn invalid_colloid_parameters_are_refused() {
    for (config, why) in [
        (json!({"delta": 0.0}), "colloid.delta"),
        (json!({"delta": 1.0}), "colloid.delta"),
        (json!({"epsilon": 0.6}), "colloid.epsilon"),
        (json!({"ewma": 0.0}), "colloid.ewma"),
        (json!({"limit": "0 B/s"}), "colloid.limit"),
        (json!({"theta": 0.2}), "unknown field"),
    ] {
        let error = build("colloid", config.clone()).err().unwrap().to_string();
        assert!(error.contains(why), "{config}: {error}");
    }
}

#[test]
fn arms_promotes_in_the_second_hot_epoch_if_it_pays() {
    // A copy of an extent takes a quarter of a second of the devices' time: 60 requests a minute do not gain that much.
    let slow = on(1, &[9_000, 60, 0], 900.0);
    let fast = on(0, &[7_500, 0], 100.0);
    let mut array = Array::new("arms", json!({}), &[10, 20], &[fast, slow]);
    let first = array.minute();
    assert_eq!(moved(&first), []);
    let note = "t0 100 us, t1 900 us; 5 of 5 fit on t0; scores favour history; 0 to be promoted";
    assert_eq!(first.report.notes, [note]);
    let second = array.minute();
    assert_eq!(moved(&second), [(1, 1, 0, "0".into())]);
    let reason = &second.plan.moves()[0].terms.reason;
    assert_eq!(reason.kind(), "worth-promoting");
    assert!((reason.number("gain_us").unwrap() - 800.0).abs() < 1e-6);
    array.carry_out(&second.plan);
    array.volumes[1].latency_us = 100.0;
    for _ in 0..3 {
        let again = array.minute();
        assert_eq!(moved(&again), []);
    }
}

#[test]
fn arms_respects_hot_age_and_cost_factor() {
    let slow = on(1, &[9_000, 0], 900.0);
    let fast = on(0, &[7_500, 0], 100.0);
    let volumes = [fast, slow];
    let mut array = Array::new("arms", json!({"hot_age": 1}), &[10, 20], &volumes);
    assert_ne!(moved(&array.minute()), []);
    let config = json!({"cost_factor": 1e4});
    let mut array = Array::new("arms", config, &[10, 20], &volumes);
    array.minute();
    assert_eq!(moved(&array.minute()), []);
}

#[test]
fn arms_replaces_the_coldest_unit_with_the_hottest() {
    let slow = on(1, &[9_000, 8_000, 0], 900.0);
    let fast = on(0, &[7_500, 8_500, 20], 100.0);
    let mut array = Array::new("arms", json!({}), &[3, 20], &[fast, slow]);
    array.minute();
    // The three hottest of five extents fit: 9,000 replaces 20; 8,000 is the fourth.
    let decision = array.minute();
    let all = moved(&decision);
    assert_eq!(all, [(0, 0, 1, "2".into()), (1, 1, 0, "0".into())]);
}

#[test]
fn arms_does_not_promote_cooling_units() {
    let slow = on(1, &[9_000, 0], 900.0);
    let fast = on(0, &[7_500, 0], 100.0);
    let mut array = Array::new("arms", json!({"hot_age": 3}), &[10, 20], &[fast, slow]);
    array.minute();
    array.minute();
    array.volumes[1].requests = vec![1_500, 0];
    assert_eq!(moved(&array.minute()), []);
    array.volumes[1].requests = vec![20_000, 0];
    assert_ne!(moved(&array.minute()), []);
}

#[test]
fn arms_does_not_promote_to_an_overloaded_tier() {
    let slow = on(1, &[9_000, 0], 300.0);
    let fast = on(0, &[7_500, 0], 1_200.0);
    let mut array = Array::new("arms", json!({}), &[10, 20], &[fast, slow]);
    for _ in 0..5 {
        assert_eq!(moved(&array.minute()), []);
    }
}

#[test]
fn arms_weights_writes_by_its_option() {
    let promoted = |config: Value| {
        let slow = on(1, &[600, 0], 900.0);
        let fast = on(0, &[7_500, 0], 100.0);
        let mut array = Array::new("arms", config, &[10, 20], &[fast, slow]);
        array.observe();
        array.decide();
        array.observe();
        let m = array.facts.volumes[1].measured.as_mut().unwrap();
        std::mem::swap(&mut m.reads, &mut m.writes);
        moved(&array.decide()).len()
    };
    assert_eq!(promoted(json!({"write_weight": 0.0})), 0);
    assert_eq!(promoted(json!({"write_weight": 3.0})), 1);
}

#[test]
fn arms_demotes_as_many_volumes_as_a_hotter_one_needs() {
    let volumes = [
        on(0, &[30, 0], 100.0),
        on(0, &[20, 0], 100.0),
        on(0, &[9_000, 9_000], 100.0),
        on(1, &[20_000, 9_000, 3_000], 900.0),
    ];
    let config = json!({"unit": "volumes"});
    let mut array = Array::new("arms", config, &[6, 20], &volumes);
    array.minute();
    let decision = array.minute();
    let mut all = moved(&decision);
    all.sort();
    let whole = |volume, from, to| (volume, from, to, "all".to_string());
    assert_eq!(all, [whole(0, 0, 1), whole(1, 0, 1), whole(3, 1, 0)]);
}

#[test]
fn arms_does_not_move_pinned_volumes() {
    let volumes = [on(0, &[2_500], 100.0), on(1, &[9_000, 7_000], 900.0)];
    for unit in ["extents", "volumes"] {
        let mut array = Array::new("arms", json!({"unit": unit}), &[10, 20], &volumes);
        array.policy.pins = vec![Pin {
            volume: VolumeId(1),
            tier: TierId(1),
        }];
        array.minute();
        assert_eq!(moved(&array.minute()), [], "{unit}");
    }
}

#[test]
fn invalid_arms_parameters_are_refused() {
    for (config, why) in [
        (json!({"short": 0.0}), "arms.short"),
        (json!({"long": 1.1}), "arms.long"),
        (json!({"long": 0.9}), "arms.long"),
        (json!({"history": 1.1}), "arms.history"),
        (json!({"recency": -0.1}), "arms.recency"),
        (json!({"write_weight": -1.0}), "arms.write_weight"),
        (json!({"cost_factor": -1.0}), "arms.cost_factor"),
        (json!({"hot_age": 0}), "arms.hot_age"),
        (json!({"busy": 2.0}), "arms.busy"),
        (json!({"ewma": 2.0}), "arms.ewma"),
        (json!({"beta": 0.4}), "unknown field"),
    ] {
        let error = build("arms", config.clone()).err().unwrap().to_string();
        assert!(error.contains(why), "{config}: {error}");
    }
}
