//! Tests of `terrace` on volumes with known extents: the part with the load moves.

use model::*;
use planner::{Decision, StrategyState, build, decide};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use units::*;

use crate::support::{facts, inventory, preset_spec, v};

const EXTENT: Bytes = Bytes::mib(64);

/// Returns the extents of a volume on one device, before any requests.
fn all_on(device: DeviceId, size: Bytes) -> ExtentFacts {
    let count = size.0.div_ceil(EXTENT.0) as u32;
    ExtentFacts {
        extent: EXTENT,
        places: ExtentPlaces::of_runs([(count, Some(device))]),
        heat: None,
    }
}

fn ranges(text: &str) -> ExtentRanges {
    text.parse().unwrap()
}

/// Returns a volume that violates its objective on the slowest tier and would meet it on the fastest.
fn misses_on_the_slowest(statistic: SloStatistic) -> Facts {
    let bare = |name: &str| preset_spec(name).bare_latency_us(Op::Read, 4096.0);
    let us = (bare("pm953") + bare("pm863")) / 2.0;
    let mut facts = facts(&[v(3, 3, 500.0, 1.0, 1.0)]);
    facts.classes[0].target = Some(Objective {
        statistic,
        latency: Nanos((us * 1000.0) as u64),
    });
    let v = &mut facts.volumes[0];
    v.extents = Some(all_on(v.device, v.size));
    let latency = &mut v.measured.as_mut().unwrap().reads.latency;
    (latency.p95_us, latency.p99_us) = (bare("pm863"), bare("pm863"));
    facts
}

/// Makes decisions over this number of epochs with these requests to the first volume; no move is carried out.
fn decisions(
    facts: &mut Facts,
    config: Value,
    epochs: u32,
    heat: impl Fn(u32) -> Vec<(u32, u32)>,
) -> Vec<Decision> {
    let strategy = build("terrace", config).unwrap();
    let mut state = strategy.initial_state();
    let mut made = vec![];
    for epoch in 0..epochs {
        let extents = facts.volumes[0].extents.as_mut().unwrap();
        extents.heat = Some(ExtentHeat::of(heat(epoch)));
        facts.placement_due = epoch + 1 == epochs;
        let decision = decide(&*strategy, facts, &Policy::default(), &state, 1).unwrap();
        state = decision.state.clone();
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
        made.push(decision);
    }
    made
}

/// Returns the last move: extents, size, and reason.
fn moved(
    facts: &mut Facts,
    heat: impl Fn(u32) -> Vec<(u32, u32)>,
) -> (Option<ExtentRanges>, Bytes, String) {
    moved_with(facts, Value::Null, heat)
}

fn moved_with(
    facts: &mut Facts,
    config: Value,
    heat: impl Fn(u32) -> Vec<(u32, u32)>,
) -> (Option<ExtentRanges>, Bytes, String) {
    let made = decisions(facts, config, 12, heat);
    let moves = made.last().unwrap().plan.moves();
    assert_eq!(moves.len(), 1, "{moves:?}");
    let m = moves[0];
    assert_eq!(facts.topology.tier_of(m.to), TierId(0));
    (m.extents.clone(), m.size, m.terms.reason.to_string())
}

#[test]
fn hot_extents_move_and_the_rest_of_the_volume_stays() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let (extents, size, why) = moved(&mut facts, |_| vec![(4, 900), (5, 20_000), (7, 9000)]);
    assert_eq!(extents, Some(ranges("4-5,7")));
    assert_eq!(size, Bytes::mib(192));
    assert!(
        why.contains("moves the 192 MiB that carry the load"),
        "{why}"
    );
}

#[test]
fn entire_volume_moves_if_extents_are_disabled() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let config = json!({ "without": ["extents"] });
    let (extents, size, _) = moved_with(&mut facts, config, |_| vec![(4, 30_000)]);
    assert_eq!((extents, size), (None, Bytes::gib(3)));
}

#[test]
fn extents_scanned_once_do_not_move() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let (extents, ..) = moved(&mut facts, |epoch| vec![(0, 30_000), (10 + 3 * epoch, 60)]);
    assert_eq!(extents, Some(ranges("0")));
}

#[test]
fn scattered_load_moves_the_entire_volume_for_a_percentile() {
    // One of a hundred requests: half of the tail of a p99 is less than that, half of the tail of a p95 is more.
    let heat = |epoch: u32| vec![(0, 29_700), (10 + 3 * epoch, 300)];
    let mut p99 = misses_on_the_slowest(SloStatistic::P99);
    assert_eq!(moved(&mut p99, heat).0, None);
    let mut p95 = misses_on_the_slowest(SloStatistic::P95);
    assert_eq!(moved(&mut p95, heat).0, Some(ranges("0")));
}

#[test]
fn volume_with_mostly_used_extents_moves_entirely() {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    let (extents, size, _) = moved(&mut facts, |_| (0..40).map(|e| (e, 700)).collect());
    assert_eq!((extents, size), (None, Bytes::gib(3)));
}

#[test]
fn newly_used_extents_follow_the_rest_of_the_volume() {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    let v = &mut facts.volumes[0];
    let places = [(8, Some(DeviceId(0))), (40, Some(DeviceId(3)))];
    v.extents.as_mut().unwrap().places = ExtentPlaces::of_runs(places);
    facts.devices[0].used = Bytes::mib(512);
    let latency = &mut v.measured.as_mut().unwrap().reads.latency;
    latency.mean_us = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
    latency.p95_us = latency.mean_us;
    let heat = |_| vec![(0, 9000), (1, 9000), (3, 9000), (20, 3000)];
    let made = decisions(&mut facts, Value::Null, 12, heat);
    let moves = made.last().unwrap().plan.moves();
    let found: Vec<_> = moves
        .iter()
        .map(|m| (m.from, m.to, m.extents.clone()))
        .collect();
    let follows = (DeviceId(3), DeviceId(0), Some(ranges("20")));
    assert_eq!(found, [follows]);
    let row = &made.last().unwrap().report.volumes[0];
    assert_eq!(row.tier, "t3", "where what moves is: {row:?}");
    assert!(
        moves[0]
            .terms
            .reason
            .to_string()
            .starts_with("joins the rest of the volume: 10.0 % of its requests")
    );
}

#[test]
fn rarely_used_extents_make_space_with_a_reason() {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    // A bronze volume with little of its data in use fills both devices of the fastest tier.
    let mut more = crate::support::facts(&[
        v(0, 99, 300.0, 1.0, 1.0),
        v(1, 99, 300.0, 1.0, 1.0),
        v(3, 3, 500.0, 1.0, 1.0),
    ]);
    more.classes[2] = facts.classes[0].clone();
    more.volumes[2].measured = facts.volumes[0].measured;
    for v in &mut more.volumes {
        v.extents = Some(all_on(v.device, v.size));
        v.extents.as_mut().unwrap().heat = Some(ExtentHeat::of(vec![(0, 1000), (2, 1000)]));
    }
    // All of the gold volume is in use: it does not fit into the remaining gigabyte.
    let heat = |_| (0..48).map(|e| (e, 600)).collect::<Vec<_>>();
    more.volumes.swap(0, 2);
    facts = more;
    let made = decisions(&mut facts, Value::Null, 12, heat);
    let moves = made.last().unwrap().plan.moves();
    assert_eq!(moves.len(), 2, "{:#?}", made.last().unwrap().report.volumes);
    let away = moves[0];
    assert!(
        away.extents.is_some() && away.size < Bytes::gib(99),
        "{away:?}"
    );
    assert!(
        !away.extents.as_ref().unwrap().contains(0),
        "what is in use stays"
    );
    let why = away.terms.reason.to_string();
    assert!(why.contains("with little load"), "{why}");
    assert_eq!((moves[1].volume, &moves[1].extents), (VolumeId(0), &None));
    assert_eq!(moves[1].after, [0]);
}

/// Returns a volume whose hot part, extents 0 to 7, is on the fastest tier, where it meets its objective; the rest is on the
/// slowest.
fn hot_on_the_fastest() -> Facts {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    let v = &mut facts.volumes[0];
    v.size = Bytes::gib(100);
    let places = [(8, Some(DeviceId(0))), (1592, Some(DeviceId(3)))];
    v.extents.as_mut().unwrap().places = ExtentPlaces::of_runs(places);
    v.device = DeviceId(3);
    account(&mut facts);
    let latency = &mut facts.volumes[0].measured.as_mut().unwrap().reads.latency;
    latency.mean_us = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
    latency.p95_us = latency.mean_us;
    facts
}

fn hot(requests: u32) -> Vec<(u32, u32)> {
    (0..8).map(|e| (e, requests)).collect()
}

#[test]
fn repeated_cold_scans_do_not_change_the_home_of_a_volume() {
    let mut facts = hot_on_the_fastest();
    // In each epoch, a scan reads forty other extents once.
    let heat = |epoch: u32| {
        let scan = (8 + 100 * epoch..48 + 100 * epoch).map(|e| (e, 1));
        hot(4000).into_iter().chain(scan).collect()
    };
    let made = decisions(&mut facts, Value::Null, 15, heat);
    assert_eq!(made.last().unwrap().plan.moves(), Vec::<&Move>::new());
    let row = &made.last().unwrap().report.volumes[0];
    assert_eq!(row.tier, "t1", "{row:?}");
}

#[test]
fn extent_history_survives_an_epoch_without_heat() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let strategy = build("terrace", Value::Null).unwrap();
    let mut state = strategy.initial_state();
    let mut last = None;
    for epoch in 0..12 {
        let known = facts.volumes[0].extents.clone();
        facts.volumes[0].extents = known.clone().filter(|_| epoch != 10).map(|e| ExtentFacts {
            heat: Some(ExtentHeat::of(vec![(4, 20_000), (5, 20_000)])),
            ..e
        });
        facts.placement_due = epoch == 11;
        let decision = decide(&*strategy, &facts, &Policy::default(), &state, 1).unwrap();
        facts.volumes[0].extents = known;
        state = strategy.state_from_json(decision.state.to_json()).unwrap();
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
        last = Some(decision);
    }
    let decision = last.unwrap();
    let moves = decision.plan.moves();
    assert_eq!(moves[0].extents, Some(ranges("4-5")));
}

#[test]
fn thin_volume_is_sized_by_its_written_extents() {
    // It is larger than any device, but few of its extents were ever written.
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    let v = &mut facts.volumes[0];
    v.size = Bytes::gib(4000);
    let places = [(48, Some(v.device)), (64_000 - 48, None)];
    v.extents.as_mut().unwrap().places = ExtentPlaces::of_runs(places);
    account(&mut facts);
    let (extents, size, why) = moved(&mut facts, |_| (0..48).map(|e| (e, 700)).collect());
    assert_eq!((extents, size), (None, Bytes::gib(3)), "{why}");
}

#[test]
fn only_extents_on_the_draining_tier_leave_it() {
    let mut facts = hot_on_the_fastest();
    let policy = Policy {
        draining: vec![TierId(2)],
        ..Policy::default()
    };
    let extents = facts.volumes[0].extents.as_mut().unwrap();
    extents.heat = Some(ExtentHeat::of(hot(4000)));
    let strategy = build("terrace", Value::Null).unwrap();
    let state = strategy.initial_state();
    let decision = decide(&*strategy, &facts, &policy, &state, 1).unwrap();
    let moves = decision.plan.moves();
    assert_eq!(moves.len(), 1, "{moves:?}");
    assert_eq!(moves[0].extents, Some(ranges("8-1599")));
    assert_eq!(facts.topology.tier_of(moves[0].to), TierId(1));
}

#[test]
fn only_extents_on_the_full_device_leave_it() {
    let mut facts = hot_on_the_fastest();
    let capacity = facts.topology.devices[3].spec.capacity;
    let policy = Policy {
        space_high: Some(0.5 * Bytes::gib(100).as_f64() / capacity.as_f64()),
        ..Policy::default()
    };
    let extents = facts.volumes[0].extents.as_mut().unwrap();
    extents.heat = Some(ExtentHeat::of(hot(4000)));
    facts.placement_due = true;
    let strategy = build("terrace", Value::Null).unwrap();
    let decision = decide(&*strategy, &facts, &policy, &strategy.initial_state(), 1).unwrap();
    for m in decision.plan.moves() {
        assert_eq!((m.terms.goal, m.from), (Goal::Space, DeviceId(3)));
        assert_eq!(m.extents, Some(ranges("8-1599")), "what is hot stays");
    }
}

/// Carries a move out, for at most this number of extents.
fn carry_out(facts: &mut Facts, m: &RunningMove, extents: u32) {
    let v = &mut facts.volumes[m.volume.index()];
    let known = v.extents.as_mut().unwrap();
    let mut places: Vec<Option<DeviceId>> = known
        .places
        .runs()
        .iter()
        .flat_map(|(count, place)| vec![*place; *count as usize])
        .collect();
    let all = places.len() as u32;
    let mut left = extents;
    for (e, place) in (0..all).zip(&mut places) {
        let meant = m.extents.as_ref().is_none_or(|of| of.contains(e));
        if left > 0 && meant && place.is_some() && *place != Some(m.to) {
            *place = Some(m.to);
            left -= 1;
        }
    }
    known.places = ExtentPlaces::of(places);
    let held = known.places.held(v.size, EXTENT);
    v.device = held.iter().max_by_key(|h| h.1).unwrap().0;
    v.last_moved = Some(facts.at);
}

fn account(facts: &mut Facts) {
    for d in &mut facts.devices {
        (d.used, d.reserved) = (Bytes::ZERO, Bytes::ZERO);
    }
    for v in &facts.volumes {
        for (device, bytes) in v.held() {
            facts.devices[device.index()].used += bytes;
        }
    }
}

#[derive(Debug, Clone)]
struct RuleSet {
    pin: Option<(usize, u16)>,
    together: Option<(usize, usize)>,
    apart: Option<(usize, usize)>,
    draining: Option<u16>,
    cordoned: Option<u16>,
    high: Option<f64>,
    gib: Option<u64>,
    gates: Option<Gates>,
}

fn ruled() -> impl Strategy<Value = RuleSet> {
    let of = |r: std::ops::Range<u16>| prop::option::weighted(0.3, r);
    let pair = || prop::option::weighted(0.3, (0usize..25, 0usize..25));
    (
        prop::option::weighted(0.3, (0usize..25, 0u16..3)),
        pair(),
        pair(),
        of(0..3),
        of(0..3),
        prop::option::weighted(0.3, 0.05f64..0.9),
        prop::option::weighted(0.3, 1u64..60),
        prop::option::weighted(0.3, (0u32..3, 0u64..300)),
    )
        .prop_map(
            |(pin, together, apart, draining, cordoned, high, gib, gates)| RuleSet {
                pin,
                together,
                apart,
                draining,
                cordoned,
                high,
                gib,
                gates: gates.map(|(hold, cooldown_s)| Gates {
                    hold,
                    cooldown: Nanos::from_secs(cooldown_s),
                    ..Gates::default()
                }),
            },
        )
}

impl RuleSet {
    fn policy(&self, volumes: usize) -> Policy {
        let affinity = |kind: AffinityKind, of: Option<(usize, usize)>| {
            let (a, b) = of.map(|(a, b)| (a % volumes, b % volumes))?;
            let volumes = [a, b].map(VolumeId::from_index).to_vec();
            (a != b).then_some(Affinity { kind, volumes })
        };
        let pin = self.pin.map(|(volume, tier)| Pin {
            volume: VolumeId::from_index(volume % volumes),
            tier: TierId(tier),
        });
        Policy {
            pins: pin.into_iter().collect(),
            affinity: [
                affinity(AffinityKind::SameTier, self.together),
                affinity(AffinityKind::DifferentDevices, self.apart),
            ]
            .into_iter()
            .flatten()
            .collect(),
            draining: self.draining.map(TierId).into_iter().collect(),
            cordoned: self.cordoned.map(TierId).into_iter().collect(),
            space_high: self.high,
            gates: self.gates.unwrap_or_default(),
            budget: Budget {
                bytes_per_epoch: self.gib.map(Bytes::gib),
                ..Budget::default()
            },
            ..Policy::default()
        }
    }
}

/// Random numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left {
                self.0 << shift
            } else {
                self.0 >> shift
            };
        }
        self.0 % below.max(1)
    }
}

/// Returns volumes with hot parts, parts that were never written, and parts whose reports are missing at times.
fn scattered(volumes: &[crate::support::V], draw: &mut Draw, free: f64) -> Facts {
    let bare = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
    let mut facts = facts(volumes);
    for (v, class) in facts.volumes.iter_mut().zip(&mut facts.classes) {
        class.target = (draw.below(100) as f64 > 100.0 * free).then(|| Objective {
            statistic: [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99]
                [draw.below(3) as usize],
            latency: Nanos((bare * (0.5 + draw.below(40) as f64 / 10.0) * 1000.0) as u64),
        });
        let mut known = all_on(v.device, v.size);
        let count = known.places.count();
        if draw.below(3) == 0 {
            let hole = draw.below(u64::from(count)) as u32;
            let (end, device) = (count - hole, Some(v.device));
            known.places =
                ExtentPlaces::of_runs([(hole / 2, device), (hole - hole / 2, None), (end, device)]);
        }
        if draw.below(2) == 0 {
            v.size = Bytes(v.size.0 - draw.below(EXTENT.0)); // the last extent is short
        }
        v.extents = Some(known);
    }
    facts
}

/// Returns the requests of one epoch: to hot extents, random others, and sometimes a few that a scan reads.
fn asked(count: u64, hot: u64, stride: u64, draw: &mut Draw) -> Option<ExtentHeat> {
    if draw.below(12) == 0 {
        return None;
    }
    let mut touched: std::collections::BTreeMap<u32, u32> = (0..hot)
        .map(|e| ((e * stride % count) as u32, 40 + draw.below(900) as u32))
        .collect();
    if draw.below(4) == 0 {
        let (first, length) = (draw.below(count), 1 + draw.below(count));
        (first..(first + length).min(count)).for_each(|e| {
            touched.entry(e as u32).or_insert(1);
        });
    }
    Some(ExtentHeat::of(touched.into_iter().collect()))
}

/// Simulates epochs with moves that are completed, running, or cancelled half way. Returns the number of moved parts of
/// volumes.
fn play(facts: &mut Facts, policy: &Policy, draw: &mut Draw) -> Result<usize, TestCaseError> {
    let strategy = build("terrace", Value::Null).unwrap();
    let mut state: StrategyState = strategy.initial_state();
    let of = |_: &VolumeFacts| (1 + draw.below(20), 1 + 2 * draw.below(30));
    let hot: Vec<(u64, u64)> = facts.volumes.iter().map(of).collect();
    let mut parts = 0;
    for epoch in 0..14 {
        let mut untold = vec![];
        for (v, (hot, stride)) in facts.volumes.iter_mut().zip(&hot) {
            let extents = v.extents.as_mut().unwrap();
            let count = u64::from(extents.places.count());
            extents.heat = asked(count, *hot, *stride, draw);
        }
        account(facts);
        for m in &facts.moves {
            let v = &facts.volumes[m.volume.index()];
            let of = m.extents.as_ref();
            let size = of.map_or(v.taken(), |of| of.bytes(v.size, EXTENT).unwrap());
            let there = v.held().into_iter().find(|h| h.0 == m.to);
            let there = there.filter(|_| of.is_none()).map_or(Bytes::ZERO, |h| h.1);
            facts.devices[m.to.index()].reserved += size.saturating_sub(there);
        }
        // Some volumes on one device have no report of their extents.
        for v in &mut facts.volumes {
            if v.held().len() == 1 && v.taken() == v.size && draw.below(10) == 0 {
                untold.push((v.name.clone(), v.extents.take()));
            }
        }
        facts.placement_due = epoch % 2 == 1;
        let decision = decide(&*strategy, facts, policy, &state, 1);
        let decision = match decision {
            Ok(decision) => decision,
            Err(e) => {
                let used: Vec<_> = facts.devices.iter().map(|d| (d.used, d.reserved)).collect();
                let held: Vec<_> = facts.volumes.iter().map(|v| (v.size, v.held())).collect();
                let why = format!("epoch {epoch}: {e}; {:?}; {used:?}; {held:?}", facts.moves);
                return Err(TestCaseError::fail(why));
            }
        };
        for (name, extents) in untold {
            let v = facts.volumes.iter_mut().find(|v| v.name == name).unwrap();
            v.extents = extents;
        }
        state = strategy.state_from_json(decision.state.to_json()).unwrap();
        for m in std::mem::take(&mut facts.moves) {
            // Completed, or cancelled at some point.
            let extents = if draw.below(3) == 0 {
                draw.below(20) as u32
            } else {
                u32::MAX
            };
            carry_out(facts, &m, extents);
        }
        for m in decision.plan.moves() {
            prop_assert!(m.extents.as_ref().is_none_or(|of| !of.is_empty()));
            parts += usize::from(m.extents.is_some());
            let running = RunningMove {
                volume: m.volume,
                from: m.from,
                to: m.to,
                extents: m.extents.clone(),
            };
            let waits = !m.after.is_empty();
            match draw.below(3) {
                0 if !waits => carry_out(facts, &running, u32::MAX),
                1 if !waits => {
                    carry_out(facts, &running, draw.below(8) as u32);
                    facts.moves.push(running);
                }
                _ => {}
            }
        }
        facts.epoch += 1;
        facts.at += Nanos::from_secs(60);
    }
    Ok(parts)
}

/// Plans keep every rule (`decide` checks them) for any places of extents. Some plans must move parts, otherwise the test is
/// void.
#[test]
fn plans_respect_all_rules_for_any_extent_locations() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(40));
    let parts = std::cell::Cell::new(0);
    let cases = (inventory(), ruled(), any::<u64>(), 0.0f64..1.0);
    let outcome = runner.run(&cases, |(volumes, rules, seed, free)| {
        let mut draw = Draw(seed | 1);
        let mut facts = scattered(&volumes, &mut draw, free);
        let policy = rules.policy(facts.volumes.len());
        parts.set(parts.get() + play(&mut facts, &policy, &mut draw)?);
        Ok(())
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
    assert!(parts.get() > 20, "{} parts moved", parts.get());
}
