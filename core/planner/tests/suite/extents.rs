//! Strategies that place extents: plans, budgets, rules, and state.

use model::*;
use planner::{AnyStrategy, Decision, LintError, PlanError, StrategyState, build, decide, lint};
use proptest::prelude::*;
use units::*;

use crate::support::{self, change};

const HOUR: Nanos = Nanos::from_secs(3600);
const EXTENT: Bytes = Bytes::mib(10);

/// Made-up array: one or two fast devices, slow ones below, and volumes with extents on them.
#[derive(Debug, Clone)]
struct Array {
    facts: Facts,
    /// Device of every extent, by volume.
    places: Vec<Vec<u16>>,
}

impl Array {
    /// Creates tiers; `tiers` has the number of extents that each device holds.
    fn new(tiers: &[&[u64]], volumes: &[u32]) -> Self {
        let facts = support::tiers_of_extents(tiers, EXTENT);
        let slow = facts.devices.len() as u16 - 1;
        let places = volumes.iter().map(|n| vec![slow; *n as usize]).collect();
        Self { facts, places }
    }

    /// Returns the facts an hour later, after these requests by volume and extent.
    fn hour(&mut self, heat: &[Option<Vec<(u32, u32)>>]) -> &mut Facts {
        self.facts.at += HOUR;
        self.facts.epoch += 1;
        support::clear_volumes(&mut self.facts);
        for (places, heat) in self.places.iter().zip(heat) {
            // The last extent is short.
            let size = Bytes(places.len() as u64 * EXTENT.0 - 4096);
            let heat = heat.clone().map(ExtentHeat::of);
            support::add_volume(&mut self.facts, size, EXTENT, places, heat);
        }
        &mut self.facts
    }

    /// Carries a plan out in order. Checks that each moved extent is on the source of its move.
    fn carry_out(&mut self, plan: &Plan) {
        for m in plan.moves() {
            let places = &mut self.places[m.volume.index()];
            match &m.extents {
                Some(ranges) => {
                    for e in ranges.iter() {
                        assert_eq!(places[e as usize], m.from.0, "extent {e} is on its source");
                        places[e as usize] = m.to.0;
                    }
                }
                None => places.fill(m.to.0),
            }
        }
        self.facts.generation = plan.generation;
    }

    fn on(&self, device: u16) -> usize {
        let all = self.places.iter().flatten();
        all.filter(|d| **d == device).count()
    }
}

struct Run {
    array: Array,
    policy: Policy,
    strategy: Box<dyn AnyStrategy>,
    state: StrategyState,
}

impl Run {
    fn new(array: Array, strategy: &str, config: serde_json::Value) -> Self {
        let mut policy = Policy::default();
        policy.headroom.space = 1.0;
        let strategy = build(strategy, config).unwrap();
        let state = strategy.initial_state();
        Self {
            array,
            policy,
            strategy,
            state,
        }
    }

    fn hourly(array: Array) -> Self {
        Self::new(array, "period", serde_json::json!({"period": "1h"}))
    }

    fn decide(&mut self) -> Result<Decision, PlanError> {
        let decision = decide(
            &*self.strategy,
            &self.array.facts,
            &self.policy,
            &self.state,
            7,
        )?;
        // Only the stored state is kept.
        let stored = decision.state.to_json();
        self.state = self.strategy.state_from_json(stored).unwrap();
        Ok(decision)
    }

    fn hour(&mut self, heat: &[Option<Vec<(u32, u32)>>]) -> Decision {
        self.array.hour(heat);
        self.decide().unwrap()
    }
}

fn moved(decision: &Decision) -> Vec<(u32, u16, u16, String, Vec<u32>)> {
    let moves = decision.plan.moves().into_iter();
    let row = |m: &Move| {
        let ranges = m.extents.as_ref().map_or("all".into(), ToString::to_string);
        (m.volume.0, m.from.0, m.to.0, ranges, m.after.clone())
    };
    moves.map(row).collect()
}

fn outcomes(decision: &Decision) -> Vec<String> {
    let rows = decision.report.volumes.iter();
    let row = |v: &VolumeReport, e: &ExtentOutcome| {
        let by = e
            .refused
            .as_ref()
            .map_or("moves".into(), ToString::to_string);
        format!(
            "{} {} {}>{} {}: {by}",
            v.volume, e.extents, e.from, e.to, e.requests
        )
    };
    rows.flat_map(|v| v.extents.iter().map(move |e| row(v, e)))
        .collect()
}

#[test]
fn hot_extents_move_up_and_cool_ones_make_space_first() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[10, 10]));
    // Ties fill the tier with low numbers: extents 0 and 1 of the first volume never had requests.
    let first = run.hour(&[Some(vec![(3, 9), (7, 5)]), Some(vec![])]);
    assert_eq!(moved(&first), [(0, 1, 0, "0-1,3,7".into(), vec![])]);
    assert_eq!(first.plan.moves()[0].size, Bytes(4 * EXTENT.0));
    run.array.carry_out(&first.plan);
    // Two extents of the second volume are hotter than those on the fast tier: two must leave before they come.
    let second = run.hour(&[Some(vec![(3, 9), (7, 5)]), Some(vec![(0, 1), (9, 4)])]);
    let expected = [
        (0, 0, 1, "0-1".to_string(), vec![]),
        (1, 1, 0, "0,9".to_string(), vec![0]),
    ];
    assert_eq!(moved(&second), expected);
    // The last extent of the volume is short.
    assert_eq!(second.plan.moves()[1].size, Bytes(2 * EXTENT.0 - 4096));
    assert_eq!(
        second.plan.moves()[1].terms.reason.to_string(),
        "hot enough for the fast tier (5 requests in 1h)"
    );
    assert_eq!(
        outcomes(&second),
        ["v0 2 t0>t1 0: moves", "v1 2 t1>t0 5: moves"]
    );
    run.array.carry_out(&second.plan);
    // The same heat again changes nothing.
    let third = run.hour(&[Some(vec![(3, 9), (7, 5)]), Some(vec![(0, 1), (9, 4)])]);
    assert_eq!(moved(&third), []);
}

#[test]
fn extent_moves_wait_only_for_the_space_that_they_need() {
    let mut run = Run::hourly(Array::new(&[&[6], &[100]], &[4, 4, 4, 4]));
    let cold = || Some(vec![]);
    let hot = |ios| Some(vec![(0, ios), (1, ios), (2, ios)]);
    let first = run.hour(&[hot(5), hot(4), cold(), cold()]);
    run.array.carry_out(&first.plan);
    assert_eq!(run.array.on(0), 6);
    let second = run.hour(&[Some(vec![(0, 1)]), cold(), hot(9), hot(8)]);
    let expected = [
        (1, 0, 1, "0-2".to_string(), vec![]),
        (0, 0, 1, "0-2".to_string(), vec![]),
        (2, 1, 0, "0-2".to_string(), vec![0]),
        (3, 1, 0, "0-2".to_string(), vec![0, 1]),
    ];
    assert_eq!(
        moved(&second),
        expected,
        "the hottest waits for one move only"
    );
}

#[test]
fn budget_drops_the_coolest_extents_which_move_later() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[10]));
    run.policy.budget.bytes_per_epoch = Some(Bytes(3 * EXTENT.0));
    let heat = || [Some(vec![(1, 5), (2, 8), (3, 1), (6, 7)])];
    let first = run.hour(&heat());
    assert_eq!(moved(&first), [(0, 1, 0, "1-2,6".into(), vec![])]);
    let rows = [
        "v0 3 t1>t0 20: moves",
        "v0 1 t1>t0 1: budget: 30MiB to move is used up in this epoch",
    ];
    let got = outcomes(&first);
    assert_eq!(got[0], rows[0]);
    assert!(got[1].starts_with("v0 1 t1>t0 1: budget: "), "{}", got[1]);
    run.array.carry_out(&first.plan);
    // Half an hour later no period ends, and the rest is still wanted.
    run.array.hour(&[Some(vec![])]);
    run.array.facts.at = Nanos(HOUR.0 * 3 / 2);
    let second = run.decide().unwrap();
    assert_eq!(moved(&second), [(0, 1, 0, "3".into(), vec![])]);

    // A budget of a single move.
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[10, 10]));
    run.policy.budget.moves_per_epoch = 1;
    let one = run.hour(&[Some(vec![(1, 5)]), Some(vec![(2, 8), (4, 8)])]);
    assert_eq!(moved(&one), [(1, 1, 0, "2,4".into(), vec![])]);
}

#[test]
fn full_tier_accepts_extents_within_its_headroom() {
    let mut run = Run::hourly(Array::new(&[&[10], &[100]], &[20]));
    run.policy.headroom.space = 0.5;
    let hot = (0..20).map(|e| (e, 20 - e)).collect();
    let first = run.hour(&[Some(hot)]);
    assert_eq!(moved(&first), [(0, 1, 0, "0-4".into(), vec![])]);
}

#[test]
fn extents_with_unknown_heat_pins_or_rules_do_not_move() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[5, 5, 5, 5]));
    let pin = Pin {
        volume: VolumeId(1),
        tier: TierId(1),
    };
    run.policy.pins.push(pin);
    run.policy.affinity.push(Affinity {
        kind: AffinityKind::DifferentDevices,
        volumes: vec![VolumeId(2)],
    });
    let hot = || Some(vec![(0, 9)]);
    let first = run.hour(&[None, hot(), hot(), Some(vec![(4, 1)])]);
    assert_eq!(moved(&first), [(3, 1, 0, "4".into(), vec![])]);
    // Places on the fast tier for extents without requests went to the volume of unknown heat, which does not use them.
    assert_eq!(
        outcomes(&first),
        [
            "v0 3 t1>t0 0: no measurement of its load in this epoch",
            "v3 1 t1>t0 1: moves"
        ]
    );
    let left_out = "; 1 volumes are not split: bound to other volumes by a rule; 1 volumes are not split: pinned to a tier";
    assert!(
        first.report.notes[0].ends_with(left_out),
        "{}",
        first.report.notes[0]
    );
}

#[test]
fn moving_volume_is_not_moved_again() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[5]));
    let first = run.hour(&[Some(vec![(0, 9), (1, 5), (2, 5), (3, 5)])]);
    run.array.carry_out(&first.plan);
    run.array
        .hour(&[Some(vec![(1, 5), (2, 5), (3, 5), (4, 9)])]);
    run.array.facts.moves.push(RunningMove {
        volume: VolumeId(0),
        from: DeviceId(1),
        to: DeviceId(0),
        extents: Some("0".parse().unwrap()),
    });
    let second = run.decide().unwrap();
    assert_eq!(moved(&second), []);
    let held = outcomes(&second);
    assert_eq!(held.len(), 2, "{held:?}");
    assert!(
        held.iter()
            .all(|h| h.ends_with("the volume is already moving")),
        "{held:?}"
    );
}

#[test]
fn volume_goals_precede_extent_moves_and_reunite_split_volumes() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100], &[100]], &[5, 5]));
    let heat = || [Some(vec![(0, 9), (1, 9)]), Some(vec![(0, 5), (1, 5)])];
    let first = run.hour(&heat());
    run.array.carry_out(&first.plan);
    assert_eq!(run.array.places, [[0, 0, 2, 2, 2], [0, 0, 2, 2, 2]]);
    // The slow tier is draining: its extents leave, the others stay, and no extent moves for heat.
    run.policy.draining = vec![TierId(2)];
    let second = run.hour(&[Some(vec![]), Some(vec![(4, 9)])]);
    let expected = [
        (0, 2, 1, "2-4".to_string(), vec![]),
        (1, 2, 1, "2-4".to_string(), vec![]),
    ];
    assert_eq!(moved(&second), expected);
    // The fast tier is draining: its extents return to their home, and the next tier is then the fast one.
    run.policy.draining = vec![TierId(0)];
    run.policy.budget.moves_per_epoch = 2;
    let third = run.hour(&[Some(vec![]), Some(vec![])]);
    let home = [
        (0, 0, 2, "0-1".to_string(), vec![]),
        (1, 0, 2, "0-1".to_string(), vec![]),
    ];
    assert_eq!(moved(&third), home);
    // A pin unites split volumes.
    run.policy.draining = vec![];
    let tier = TierId(2);
    run.policy.pins = vec![Pin {
        volume: VolumeId(1),
        tier,
    }];
    let fourth = run.hour(&[Some(vec![]), Some(vec![])]);
    assert!(moved(&fourth).contains(&(1, 0, 2, "0-1".to_string(), vec![])));
    assert_eq!(fourth.plan.moves()[0].terms.goal, Goal::Rules);
}

#[test]
fn demoted_extents_go_to_their_volume_or_to_free_space() {
    let mut run = Run::hourly(Array::new(&[&[2], &[1], &[3]], &[3, 2]));
    run.array.places = vec![vec![2, 2, 2], vec![0, 0]];
    let first = run.hour(&[Some(vec![(0, 9), (1, 9)]), Some(vec![(0, 1)])]);
    // The first tier below has room for one; the tier of the other volume is full.
    assert_eq!(
        moved(&first),
        [
            (1, 0, 1, "1".to_string(), vec![]),
            (0, 2, 0, "0".to_string(), vec![0])
        ]
    );
}

#[test]
fn state_follows_volume_names_when_the_inventory_changes() {
    let mut run = Run::new(
        Array::new(&[&[2], &[100]], &[4, 4]),
        "period",
        serde_json::json!({"period": "2h"}),
    );
    run.hour(&[Some(vec![(0, 1)]), Some(vec![(2, 7), (3, 9)])]);
    // The first volume does not exist any more when the period ends, and the second has another number.
    run.array.hour(&[Some(vec![]), Some(vec![(1, 8)])]);
    run.array.places.remove(0);
    run.array.facts.volumes.remove(0);
    let second = run.decide().unwrap();
    assert_eq!(moved(&second), [(0, 1, 0, "1,3".into(), vec![])]);
}

#[test]
fn period_that_ends_between_decisions_is_refused() {
    let strategy = build("period", serde_json::json!({"period": "1h"})).unwrap();
    let epochs = |s| Epochs {
        monitor: Nanos::from_secs(60),
        migration: Nanos::from_secs(s),
    };
    assert_eq!(strategy.suits(&epochs(1200), None), Ok(()));
    let fault = strategy.suits(&epochs(2400), None).unwrap_err();
    assert_eq!(fault.key, "period");
    assert!(
        fault
            .why
            .contains("1h must be a multiple of the migration epoch"),
        "{fault}"
    );
    let dual = build(
        "dual-period",
        serde_json::json!({"long": "24h", "short": "90m"}),
    )
    .unwrap();
    assert_eq!(dual.suits(&epochs(3600), None).unwrap_err().key, "short");
}

#[test]
fn lint_checks_moves_of_extents() {
    let mut run = Run::hourly(Array::new(&[&[4], &[100]], &[10, 10]));
    let good = run.hour(&[Some(vec![(3, 9)]), Some(vec![(2, 8)])]).plan;
    let faults = |change: &dyn Fn(&mut Plan, &mut Facts, &mut Policy)| {
        let (mut plan, mut facts) = (good.clone(), run.array.facts.clone());
        let mut policy = run.policy.clone();
        change(&mut plan, &mut facts, &mut policy);
        lint(&plan, &facts, &policy)
    };
    let text = |change: &dyn Fn(&mut Plan, &mut Facts, &mut Policy)| {
        let faults: Vec<String> = faults(change).iter().map(ToString::to_string).collect();
        faults.join("; ")
    };
    let ranges = |text: &str| Some(text.parse::<ExtentRanges>().unwrap());
    assert_eq!(text(&|_, _, _| {}), "");
    // A plan may have two moves of one volume if their extents differ.
    assert_eq!(
        text(&|p, _, _| {
            let mut other = change(p, 1).clone();
            other.extents = ranges("7");
            other.size = EXTENT;
            p.actions.insert(1, Action::Move(other));
            change(p, 0).extents = ranges("0");
            change(p, 0).size = EXTENT;
        }),
        ""
    );
    assert!(matches!(
        &faults(&|p, _, _| p.actions.push(p.actions[1].clone()))[..],
        [LintError::Twice { .. }, ..]
    ));
    assert!(matches!(
        &faults(&|p, _, _| change(p, 1).extents = None)[..],
        [LintError::Size { .. }, ..]
    ));
    let wrong = text(&|p, _, _| change(p, 1).size = EXTENT + EXTENT);
    assert!(
        wrong.starts_with("volume v1: the plan's size is 20 MiB"),
        "{wrong}"
    );
    let there = text(&|_, f, _| {
        let extents = f.volumes[1].extents.as_mut().unwrap();
        extents.places = ExtentPlaces::of((0..10).map(|e| Some(DeviceId(u16::from(e != 2)))));
    });
    assert_eq!(
        there,
        "volume v1: extent 2 is moved from device t1-0, but it is on another device"
    );
    let outside = text(&|p, _, _| change(p, 1).extents = ranges("2,10"));
    assert_eq!(outside, "volume v1 has no extent 10");
    let none = text(&|p, _, _| change(p, 1).extents = ranges(""));
    assert_eq!(none, "volume v1: the move has no extents");
    let unknown = text(&|_, f, _| f.volumes[1].extents = None);
    assert!(
        unknown.contains("the volume's extents are unknown"),
        "{unknown}"
    );
    let parted = text(&|_, _, p| {
        p.affinity.push(Affinity {
            kind: AffinityKind::SameTier,
            volumes: vec![VolumeId(1)],
        });
    });
    assert_eq!(
        parted,
        "volume v1 is bound to other volumes by a rule, but some of its extents are moved"
    );
    let full = text(&|_, f, _| f.devices[0].used = Bytes(EXTENT.0));
    assert!(full.contains("device t0-0 would hold"), "{full}");
}

/// An array, rules, and hours of heat.
fn worlds() -> impl Strategy<Value = (Array, Policy, Vec<Vec<Option<Vec<u32>>>>)> {
    let tiers = prop::sample::select(vec![
        vec![vec![6], vec![60]],
        vec![vec![3, 4], vec![60]],
        vec![vec![5], vec![9], vec![60]],
        vec![vec![5], vec![30, 31]],
        vec![vec![40], vec![42]],
    ]);
    let hour = prop::collection::vec(
        prop::option::weighted(0.9, prop::collection::vec(0..6_u32, 12)),
        4,
    );
    let limits = (
        prop::option::of(1..20_u64),
        1..12_u32,
        prop::sample::select(vec![1.0, 0.9, 0.6]),
        prop::option::weighted(0.3, prop::sample::select(vec![0.7, 0.95])),
    );
    let rules = (
        prop::option::weighted(0.3, 0..4_u32),
        prop::option::weighted(0.2, 0..2_u16),
        prop::option::weighted(0.2, 0..2_u16),
    );
    (tiers, limits, rules, prop::collection::vec(hour, 1..6)).prop_map(
        |(tiers, (bytes, moves, space, high), (pin, cordon, drain), hours)| {
            let tiers: Vec<&[u64]> = tiers.iter().map(Vec::as_slice).collect();
            let array = Array::new(&tiers, &[12, 3, 7, 5]);
            let mut policy = Policy::default();
            policy.budget.bytes_per_epoch = bytes.map(|n| Bytes(n * EXTENT.0));
            policy.budget.moves_per_epoch = moves;
            policy.headroom.space = space;
            policy.space_high = high;
            policy.pins.extend(pin.map(|v| Pin {
                volume: VolumeId(v),
                tier: TierId(1),
            }));
            policy.cordoned.extend(cordon.map(TierId));
            policy.draining.extend(drain.map(TierId));
            (array, policy, hours)
        },
    )
}

fn requests(array: &Array, hour: &[Option<Vec<u32>>]) -> Vec<Option<Vec<(u32, u32)>>> {
    let of_volume = |(places, ios): (&Vec<u16>, &Option<Vec<u32>>)| {
        let ios = ios.as_ref()?.iter().copied();
        let all = (0..places.len() as u32).zip(ios);
        Some(all.filter(|h| h.1 > 0).collect())
    };
    array.places.iter().zip(hour).map(of_volume).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every plan passes the lint, which checks capacity in the worst order of events. After it was carried out, no device
    /// is too full.
    #[test]
    fn plans_of_extents_respect_all_rules((array, policy, hours) in worlds(), name in prop::sample::select(vec!["period", "dual-period"])) {
        let config = match name {
            "period" => serde_json::json!({"period": "1h"}),
            _ => serde_json::json!({"long": "3h", "short": "1h", "share": 0.4}),
        };
        let mut run = Run::new(array, name, config);
        run.policy = policy;
        for hour in hours {
            let heat = requests(&run.array, &hour);
            run.array.hour(&heat);
            let decision = run.decide();
            prop_assert!(decision.is_ok(), "{}", decision.err().unwrap());
            run.array.carry_out(&decision.unwrap().plan);
            for (d, device) in run.array.facts.topology.devices.iter().enumerate() {
                let most = device.spec.capacity.0 / EXTENT.0;
                // A short extent may leave room for part of another.
                prop_assert!(run.array.on(d as u16) as u64 <= most + 1);
            }
        }
    }

    /// Without budgets and rules, no plan follows a plan that was carried out, at the same heat.
    #[test]
    fn applied_plan_of_extents_is_a_fixed_point((array, _, hours) in worlds()) {
        let mut run = Run::hourly(array);
        run.policy.budget.moves_per_epoch = 1000;
        for hour in hours {
            let hour: Vec<_> = hour.into_iter().map(|v| v.or(Some(vec![0; 12]))).collect();
            let heat = requests(&run.array, &hour);
            let decision = run.hour(&heat);
            run.array.carry_out(&decision.plan);
            let again = run.hour(&heat);
            prop_assert_eq!(moved(&again), vec![]);
        }
    }
}

/// A fast tier of four extents above a device that is twenty times slower.
fn far_apart() -> Array {
    let mut array = Array::new(&[&[4], &[100]], &[10, 10]);
    let slow = &mut array.facts.topology.devices[1].spec;
    slow.read_latency = Nanos::from_millis(2);
    slow.write_latency = Nanos::from_millis(2);
    array
}

/// Classes with targets of 1 and 10 ms, with one volume each, equally hot; `first` selects the class of the first volume.
fn of_two_classes(first: u32) -> Run {
    let target = |ms| Objective {
        statistic: SloStatistic::Mean,
        latency: Nanos::from_millis(ms),
    };
    let class = |name: &str, ms| SloClass {
        name: name.into(),
        weight: 1.0,
        target: Some(target(ms)),
        max_slowdown: None,
    };
    let mut run = Run::new(far_apart(), "qos-exchange", serde_json::Value::Null);
    run.array.facts.classes = vec![class("tight", 1), class("loose", 10)];
    let hot = || Some((0..4).map(|e| (e, 2_000)).collect());
    run.array.hour(&[hot(), hot()]);
    let volumes = &mut run.array.facts.volumes;
    volumes[0].class = ClassId(first as u16);
    volumes[1].class = ClassId(1 - first as u16);
    run
}

#[test]
fn exchange_uses_free_space_and_prefers_the_tighter_class() {
    for first in [0, 1] {
        let mut run = of_two_classes(first);
        let decision = run.decide().unwrap();
        assert_eq!(
            moved(&decision),
            [(first, 1, 0, "0-3".into(), vec![])],
            "four places, eight hot extents"
        );
        let note = &decision.report.notes[0];
        assert!(
            note.starts_with("4 exchanges; the model predicts a weighted response time"),
            "{note}"
        );
        run.array.carry_out(&decision.plan);
    }
}

/// Behind a cache, facts have one class per volume, with the name of its own class and the target of the devices. A volume
/// with a high hit ratio has a long target for its misses, but the target promised to its guests is not longer.
#[test]
fn volumes_behind_a_cache_are_ranked_by_their_promised_target() {
    for first in [0, 1] {
        let mut run = of_two_classes(first);
        let facts = &mut run.array.facts;
        for v in 0..2 {
            let mut own = facts.classes[facts.volumes[v].class.index()].clone();
            let factor = if v == first as usize { 40 } else { 1 };
            let target = own.target.as_mut().expect("both have targets");
            target.latency = Nanos(target.latency.0 * factor);
            facts.classes.push(own);
            facts.volumes[v].class = ClassId::from_index(facts.classes.len() - 1);
        }
        let decision = run.decide().unwrap();
        assert_eq!(moved(&decision), [(first, 1, 0, "0-3".into(), vec![])]);
    }
}

#[test]
fn equally_hot_extents_of_equal_classes_do_not_oscillate() {
    let mut run = of_two_classes(0);
    let first = run.decide().unwrap();
    run.array.carry_out(&first.plan);
    for _ in 0..3 {
        let hot = || Some((0..4).map(|e| (e, 2_000)).collect());
        run.array.hour(&[hot(), hot()]);
        run.array.facts.volumes[1].class = ClassId(1);
        let again = run.decide().unwrap();
        assert_eq!(moved(&again), [], "what is best stays");
    }
}

#[test]
fn hotter_extents_replace_cooler_ones_up_to_the_exchange_limit() {
    let mut run = Run::new(
        far_apart(),
        "qos-exchange",
        serde_json::json!({"exchanges": 2}),
    );
    let first = run.hour(&[Some(vec![(0, 900), (1, 800), (2, 700)]), Some(vec![])]);
    assert_eq!(moved(&first), [(0, 1, 0, "0-1".into(), vec![])]);
    run.array.carry_out(&first.plan);
    let heat = || [Some(vec![(2, 700)]), Some(vec![(5, 9000), (6, 8000)])];
    let second = run.hour(&heat());
    assert_eq!(moved(&second), [(1, 1, 0, "5-6".into(), vec![])]);
    run.array.carry_out(&second.plan);
    // The tier is full: its idle extent makes room for the last one.
    let third = run.hour(&heat());
    let up: Vec<_> = moved(&third).into_iter().filter(|m| m.2 == 0).collect();
    assert_eq!(up.len(), 1);
    assert_eq!((up[0].0, up[0].3.as_str()), (0, "2"));
    assert!(moved(&third).iter().any(|m| m.2 == 1 && m.0 == 0));
}

#[test]
fn invalid_exchange_parameters_are_refused() {
    for (config, why) in [
        (
            serde_json::json!({"burst": 0.5}),
            "burst: must be between 1 and 10",
        ),
        (
            serde_json::json!({"write_share": 2}),
            "write_share: must be between 0 and 1",
        ),
        (serde_json::json!({"exchange": 2}), "unknown field"),
    ] {
        let error = build("qos-exchange", config).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}
