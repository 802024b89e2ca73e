//! The strategy that keeps objectives, on volumes whose extents are known: the part that carries the load moves.

use model::*;
use planner::{Decision, StrategyState, build, decide};
use proptest::prelude::*;
use serde_json::{Value, json};
use units::*;

use crate::support::{facts, inventory, preset_spec, v};

const EXTENT: Bytes = Bytes::mib(64);

/// Extents of a volume that lies on one device, before anything was asked of it.
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

/// One that misses its objective on the slowest tier and would keep it on the fastest.
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

/// Decisions of so many epochs in which this is asked of the first volume; no move is carried out.
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

/// What is moved in the end: extents, size, and the words for it.
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
fn the_part_that_carries_the_load_moves_and_the_rest_stays() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let (extents, size, why) = moved(&mut facts, |_| vec![(4, 900), (5, 20_000), (7, 9000)]);
    assert_eq!(extents, Some(ranges("4-5,7")));
    assert_eq!(size, Bytes::mib(192));
    assert!(
        why.contains("of it move the 192 MiB that carry its load"),
        "{why}"
    );
}

#[test]
fn without_that_part_of_the_strategy_the_volume_moves_whole() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let config = json!({ "without": ["extents"] });
    let (extents, size, _) = moved_with(&mut facts, config, |_| vec![(4, 30_000)]);
    assert_eq!((extents, size), (None, Bytes::gib(3)));
}

#[test]
fn what_a_scan_touches_once_stays_where_it_is() {
    let mut facts = misses_on_the_slowest(SloStatistic::P99);
    let (extents, ..) = moved(&mut facts, |epoch| vec![(0, 30_000), (10 + 3 * epoch, 60)]);
    assert_eq!(extents, Some(ranges("0")));
}

#[test]
fn a_percentile_is_kept_by_the_whole_volume_where_too_many_requests_go_anywhere() {
    // One of a hundred: half of the tail of a p99 is less than that, of a p95 it is more.
    let heat = |epoch: u32| vec![(0, 29_700), (10 + 3 * epoch, 300)];
    let mut p99 = misses_on_the_slowest(SloStatistic::P99);
    assert_eq!(moved(&mut p99, heat).0, None);
    let mut p95 = misses_on_the_slowest(SloStatistic::P95);
    assert_eq!(moved(&mut p95, heat).0, Some(ranges("0")));
}

#[test]
fn a_volume_of_which_most_is_in_use_moves_whole() {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    let (extents, size, _) = moved(&mut facts, |_| (0..40).map(|e| (e, 700)).collect());
    assert_eq!((extents, size), (None, Bytes::gib(3)));
}

#[test]
fn what_comes_into_use_follows_to_where_the_rest_of_it_is() {
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
    let told: Vec<_> = moves
        .iter()
        .map(|m| (m.from, m.to, m.extents.clone()))
        .collect();
    let follows = (DeviceId(3), DeviceId(0), Some(ranges("20")));
    assert_eq!(told, [follows]);
    let row = &made.last().unwrap().report.volumes[0];
    assert_eq!(row.tier, "t3", "where what moves is: {row:?}");
    assert!(
        moves[0]
            .terms
            .reason
            .to_string()
            .starts_with("10.0 % of its requests")
    );
}

#[test]
fn room_is_made_by_what_is_hardly_used_and_that_is_said() {
    let mut facts = misses_on_the_slowest(SloStatistic::P95);
    // A bronze volume that uses a little of what it has fills both devices of the fastest tier.
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
    // All of the gold one is in use: it does not fit into the gigabyte that is left.
    let heat = |_| (0..48).map(|e| (e, 600)).collect::<Vec<_>>();
    more.volumes.swap(0, 2);
    facts = more;
    let made = decisions(&mut facts, Value::Null, 12, heat);
    let moves = made.last().unwrap().plan.moves();
    assert_eq!(moves.len(), 2, "{moves:?}");
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
    assert!(why.contains("hardly used"), "{why}");
    assert_eq!((moves[1].volume, &moves[1].extents), (VolumeId(0), &None));
    assert_eq!(moves[1].after, [0]);
}

/// Carries a move out, up to some of its extents.
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
    facts.devices.iter_mut().for_each(|d| d.used = Bytes::ZERO);
    for v in &facts.volumes {
        for (device, bytes) in v.held() {
            facts.devices[device.index()].used += bytes;
        }
    }
}

#[derive(Debug, Clone)]
struct Ruled {
    pin: Option<(usize, u16)>,
    together: Option<(usize, usize)>,
    apart: Option<(usize, usize)>,
    draining: Option<u16>,
    cordoned: Option<u16>,
    high: Option<f64>,
}

fn ruled() -> impl Strategy<Value = Ruled> {
    let of = |r: std::ops::Range<u16>| prop::option::weighted(0.3, r);
    let pair = || prop::option::weighted(0.3, (0usize..25, 0usize..25));
    (
        prop::option::weighted(0.3, (0usize..25, 0u16..3)),
        pair(),
        pair(),
        of(0..3),
        of(0..3),
        prop::option::weighted(0.3, 0.05f64..0.9),
    )
        .prop_map(|(pin, together, apart, draining, cordoned, high)| Ruled {
            pin,
            together,
            apart,
            draining,
            cordoned,
            high,
        })
}

impl Ruled {
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
            ..Policy::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Plans keep every rule (they are checked in `decide`) whatever lies where, with moves carried out, under way, and given up half way.
    #[test]
    fn plans_keep_every_rule_wherever_extents_are(
        volumes in inventory(),
        rules in ruled(),
        seed in any::<u64>(),
        free in 0.0f64..1.0,
    ) {
        let bare = preset_spec("pm953").bare_latency_us(Op::Read, 4096.0);
        let mut facts = facts(&volumes);
        let mut random = seed | 1;
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below.max(1)
        };
        for (v, class) in facts.volumes.iter_mut().zip(&mut facts.classes) {
            class.target = (draw(100) as f64 > 100.0 * free).then(|| Objective {
                statistic: [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99][draw(3) as usize],
                latency: Nanos((bare * (0.5 + draw(40) as f64 / 10.0) * 1000.0) as u64),
            });
            v.extents = Some(all_on(v.device, v.size));
        }
        let policy = rules.policy(facts.volumes.len());
        let strategy = build("terrace", Value::Null).unwrap();
        let mut state: StrategyState = strategy.initial_state();
        let hot: Vec<u64> = facts.volumes.iter().map(|_| 1 + draw(20)).collect();
        for epoch in 0..14 {
            for (v, hot) in facts.volumes.iter_mut().zip(&hot) {
                let extents = v.extents.as_mut().unwrap();
                let count = u64::from(extents.places.count());
                let begin = if draw(10) == 0 { draw(count) } else { 0 };
                let touched = (0..count).filter(|e| (*e + count - begin) % count < *hot);
                extents.heat = Some(ExtentHeat::of(touched.map(|e| (e as u32, 40 + draw(900) as u32)).collect()));
            }
            account(&mut facts);
            facts.placement_due = epoch % 2 == 1;
            let decision = decide(&*strategy, &facts, &policy, &state, 1);
            let decision = match decision {
                Ok(decision) => decision,
                Err(e) => return Err(TestCaseError::fail(format!("epoch {epoch}: {e}"))),
            };
            state = strategy.state_from_json(decision.state.to_json()).unwrap();
            for m in std::mem::take(&mut facts.moves) {
                // Done, or given up somewhere.
                let extents = if draw(3) == 0 { draw(20) as u32 } else { u32::MAX };
                carry_out(&mut facts, &m, extents);
            }
            for m in decision.plan.moves() {
                let running = RunningMove { volume: m.volume, from: m.from, to: m.to, extents: m.extents.clone() };
                let waits = !m.after.is_empty();
                match draw(3) {
                    0 if !waits => carry_out(&mut facts, &running, u32::MAX),
                    1 if !waits => {
                        carry_out(&mut facts, &running, draw(8) as u32);
                        facts.moves.push(running);
                    }
                    _ => {}
                }
            }
            account(&mut facts);
            for m in &facts.moves {
                let v = &facts.volumes[m.volume.index()];
                let size = m.extents.as_ref().map_or(v.size, |of| of.bytes(v.size, EXTENT).unwrap());
                facts.devices[m.to.index()].reserved = size;
            }
            let moving: Vec<DeviceId> = facts.moves.iter().map(|m| m.to).collect();
            for (d, device) in facts.devices.iter_mut().enumerate() {
                if !moving.contains(&DeviceId::from_index(d)) {
                    device.reserved = Bytes::ZERO;
                }
            }
            facts.epoch += 1;
            facts.at += Nanos::from_secs(60);
        }
    }
}
