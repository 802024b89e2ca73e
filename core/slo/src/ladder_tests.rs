//! Tests of the ladder: each remedy can be taken, and each has reasons for its rejection.

use units::BytesPerSec;

use super::*;
use crate::curve::Curve;
use crate::load::{Cost, Place, Resource};
use crate::sample::Promise;
use crate::solutions::{Temper, solutions};

struct World {
    backend: Backend,
    streams: Vec<Stream>,
    hosts: Vec<Host>,
    sizing: SizingConfig,
    held: Vec<ThrottledWorkload>,
    ops: Vec<SpareOps>,
    full: Vec<ResourceId>,
    copies: Vec<SecondCopies>,
    others: Vec<OtherDevice>,
    choice: Choice,
    weights: PriceWeights,
}

/// Workload 0 demands 600 of 1,000 requests/s and does not get them, because workload 1 demands 600 as well. Both read over
/// 8 GiB with 1 GiB of memory.
fn world() -> World {
    let stream = |id, promised| {
        let size = |i: u64| (Bytes::mib(512 * i), 1.0 - i as f64 / 16.0);
        Stream {
            workload: WorkloadId(id),
            reads_per_s: 550.0,
            writes_per_s: 50.0,
            read_bytes: 65_536.0,
            costs: vec![Cost {
                read_s: 0.001,
                write_s: 0.001,
            }],
            pool: 0,
            passes: 1.0,
            memory_misses: 1.0,
            curve: Some(Curve::new((1..=16).map(size).collect())),
            part: None,
            objective: Promise {
                rate_min_per_s: promised,
                latency_max: None,
                ..Promise::default()
            },
        }
    };
    World {
        backend: Backend {
            resources: vec![Resource {
                name: "disks".into(),
                place: Place::BehindMemory,
            }],
            memory: vec![Bytes::gib(1)],
            use_max: 0.8,
        },
        streams: vec![stream(0, Some(600.0)), stream(1, Some(600.0))],
        hosts: vec![Host {
            id: HostId(0),
            name: "a".into(),
            rack: 0,
            cpus_free: 8,
            memory_free: Bytes::gib(24),
        }],
        sizing: SizingConfig::default(),
        held: Vec::new(),
        ops: vec![],
        full: vec![],
        copies: vec![],
        others: vec![],
        choice: Choice::Order,
        weights: PriceWeights::default(),
    }
}

fn look(world: &World, allowed: &[RemedyKind]) -> Vec<Remedy> {
    let mut streams = world.streams.clone();
    hold(&mut streams, &world.held);
    let set: Vec<WorkloadId> = streams.iter().map(|s| s.workload).collect();
    let tempers: Vec<_> = set.iter().map(|w| (*w, Temper::default())).collect();
    let solutions = solutions(&world.backend, &streams, &world.sizing, &tempers);
    let at = Situation {
        backend: &world.backend,
        streams: &streams,
        affected: WorkloadId(0),
        set: &set,
        solutions: &solutions,
        hosts: &world.hosts,
        own_hosts: &[HostId(0); 3],
        held: &world.held,
        avoid: &[],
        resting: &[],
        untested: 0,
        sizing: &world.sizing,
        boot: Nanos::from_secs(60),
        ops: &world.ops,
        full: &world.full,
        copies: &world.copies,
        others: &world.others,
        choice: world.choice,
        weights: &world.weights,
    };
    remedies(&at, allowed).0
}

fn choice(world: &World) -> Option<RemedyKind> {
    taken(&look(world, &RemedyKind::ALL)).map(|r| r.kind)
}

#[test]
fn appliance_is_chosen_if_neighbours_have_guarantees() {
    let world = world();
    let remedies = look(&world, &RemedyKind::ALL);
    let taken = taken(&remedies).unwrap();
    assert_eq!(taken.kind, RemedyKind::Appliance);
    let Some(RemedyAction::Appliance {
        workload, cache, ..
    }) = &taken.action
    else {
        panic!("{taken:?}");
    };
    assert_eq!((*workload, *cache), (WorkloadId(0), Bytes::gib(6)));
    assert_eq!(taken.price.memory, Bytes::gib(7));
    assert!(
        taken.price.effect_after > Nanos::from_secs(60),
        "booting and filling"
    );
    let why = |kind| {
        remedies
            .iter()
            .find(|r| r.kind == kind)
            .unwrap()
            .refused
            .clone()
            .unwrap()
    };
    assert_eq!(
        why(RemedyKind::Throttle),
        "no interfering workload can be throttled within its objective and guaranteed rate"
    );
    assert!(why(RemedyKind::MemoryShare).starts_with("disks would be"));
    assert!(why(RemedyKind::OpsShare).contains("have no unused flash"));
    assert_eq!(
        why(RemedyKind::Move),
        "no other device has time and space for the data of these workloads"
    );
}

#[test]
fn neighbour_without_a_guarantee_is_throttled_first() {
    let mut world = world();
    world.streams[1].objective = Promise::default();
    let remedies = look(&world, &RemedyKind::ALL);
    let taken = taken(&remedies).unwrap();
    assert_eq!(taken.kind, RemedyKind::Throttle);
    // It is not taken if it is not allowed.
    let without = look(&world, &RemedyKind::ALL[1..]);
    assert_eq!(without[0].refused.as_deref(), Some("not allowed here"));
    assert_eq!(super::taken(&without).unwrap().kind, RemedyKind::Appliance);
}

fn throttled(world: &World) -> (Remedy, f64) {
    let remedy = look(world, &[RemedyKind::Throttle]).swap_remove(0);
    match remedy.action {
        Some(RemedyAction::Throttle { rate_per_s, .. }) => (remedy, rate_per_s),
        _ => panic!("{remedy:?}"),
    }
}

#[test]
fn neighbour_is_throttled_to_the_highest_sufficient_rate() {
    let mut world = world();
    let at = |world: &World, rate_per_s| {
        let workload = WorkloadId(1);
        let change = Change::Throttled {
            workload,
            rate_per_s,
        };
        predict(&world.backend, &world.streams, &change)
    };
    // The demand of all others determines the remaining rate: a fifth of 600 and more.
    for (own, promised) in [(500.0, None), (600.0, None), (600.0, Some(150.0))] {
        world.streams[0].reads_per_s = own - 50.0;
        world.streams[1].objective.rate_min_per_s = promised;
        let (remedy, rate) = throttled(&world);
        assert_eq!(remedy.refused, None);
        assert!((120.0..600.0).contains(&rate) && rate >= promised.unwrap_or(0.0));
        assert_eq!(remedy.price.lost_per_s, 600.0 - rate);
        // The evidence is the prediction at that rate; two percent more does not suffice.
        assert_eq!(remedy.prediction, Some(at(&world, rate)));
        let more = rate + 0.02 * 600.0;
        assert!(at(&world, more).fails.is_some(), "{rate}");
    }
    // If even the lowest rate does not suffice, it is rejected with its prediction.
    for (promised, least) in [(Some(400.0), 400.0), (None, 120.0)] {
        world.streams[0].reads_per_s = 750.0;
        world.streams[1].objective.rate_min_per_s = promised;
        let (remedy, rate) = throttled(&world);
        assert_eq!(rate, least);
        assert_eq!(remedy.refused, at(&world, least).fails);
        assert!(remedy.refused.unwrap().starts_with("disks would be"));
    }
}

#[test]
fn neighbour_with_the_least_loss_is_throttled() {
    let mut world = world();
    // Requests of the second workload cost twice as much, so a smaller reduction suffices.
    world.streams[1].objective = Promise::default();
    let mut dear = world.streams[1].clone();
    dear.workload = WorkloadId(2);
    dear.reads_per_s = 250.0;
    dear.costs[0].read_s = 0.002;
    world.streams[0].reads_per_s = 100.0;
    world.streams[1].reads_per_s = 350.0;
    world.streams.push(dear);
    let (remedy, _) = throttled(&world);
    assert_eq!(remedy.refused, None);
    assert!(matches!(
        remedy.action,
        Some(RemedyAction::Throttle { workload, .. }) if workload == WorkloadId(2)
    ));
}

#[test]
fn throttled_neighbour_may_be_throttled_more_without_an_objective() {
    let mut world = world();
    world.streams[1].objective = Promise::default();
    let held = |rate_per_s, asked_per_s| ThrottledWorkload {
        workload: WorkloadId(1),
        rate_per_s,
        asked_per_s,
    };
    // The demand is higher than at the start of the throttle: the limit is lowered, down to a fifth of the first demand.
    (world.streams[1].reads_per_s, world.streams[1].writes_per_s) = (350.0, 50.0);
    world.held = vec![held(400.0, 1000.0)];
    let (remedy, rate) = throttled(&world);
    assert!(remedy.refused.is_none() && (200.0..260.0).contains(&rate));
    world.held = vec![held(400.0, 1900.0)];
    let (remedy, rate) = throttled(&world);
    assert!(remedy.refused.is_some() && rate == 380.0, "{rate}");
    world.held = vec![held(400.0, 2000.0)];
    assert_ne!(choice(&world), Some(RemedyKind::Throttle));
    world.held.clear();
    assert_eq!(choice(&world), Some(RemedyKind::Throttle));
    world.streams[1].objective.latency_max = Some(Nanos::from_millis(5));
    assert_ne!(choice(&world), Some(RemedyKind::Throttle));
}

#[test]
fn tightened_throttle_decreases_by_a_tenth_or_to_the_minimum() {
    let mut world = world();
    world.streams[1].objective = Promise::default();
    // The first rate suffices for a demand of 600. Then the limit is slightly higher, and the workload exceeds it.
    let (_, enough) = throttled(&world);
    let held_to = |rate_per_s| {
        vec![ThrottledWorkload {
            workload: WorkloadId(1),
            rate_per_s,
            asked_per_s: 600.0,
        }]
    };
    world.held = held_to(1.04 * enough);
    let (remedy, rate) = throttled(&world);
    assert_eq!((remedy.refused, rate), (None, 0.9 * 1.04 * enough));
    assert_eq!(remedy.price.lost_per_s, 1.04 * enough - rate);
    // If that is below the lowest permitted rate, the limit is the lowest permitted rate.
    world.held = held_to(125.0);
    world.streams[0].reads_per_s = 750.0;
    assert_eq!(throttled(&world).1, 120.0);
    // A rate above the limit is not guaranteed. The model predicts no violation, so it cannot choose a rate, and the lowest
    // permitted one is taken.
    world.streams[0].reads_per_s = 550.0;
    world.held = held_to(enough);
    let (remedy, rate) = throttled(&world);
    assert_eq!((remedy.refused, rate), (None, 120.0));
}

#[test]
fn neighbour_with_rate_and_latency_guarantee_keeps_both() {
    let mut world = world();
    world.streams[1].objective.rate_min_per_s = Some(150.0);
    assert_eq!(choice(&world), Some(RemedyKind::Throttle));
    world.streams[1].objective.latency_max = Some(Nanos::from_millis(5));
    let remedies = look(&world, &RemedyKind::ALL);
    let why = remedies[0].refused.as_deref();
    assert_eq!(
        why,
        Some("no interfering workload can be throttled within its objective and guaranteed rate")
    );
}

#[test]
fn memory_share_is_chosen_if_it_is_sufficient() {
    let mut world = world();
    world.backend.memory = vec![Bytes::gib(8)];
    // The neighbour scans, so memory is useless for it.
    world.streams[1].curve = Some(Curve::new(vec![(Bytes::gib(100), 0.99)]));
    world.streams[1].reads_per_s = 400.0;
    world.streams[1].objective.rate_min_per_s = Some(450.0);
    world.streams[1].read_bytes *= 8.0;
    assert_eq!(choice(&world), Some(RemedyKind::MemoryShare));
}

#[test]
fn spare_flash_is_given_to_a_writing_workload() {
    let mut world = world();
    for stream in &mut world.streams {
        (stream.reads_per_s, stream.writes_per_s) = (0.0, 550.0);
    }
    world.hosts.clear();
    assert_eq!(choice(&world), None);
    let spare = |workload, waf_with_spare| SpareOps {
        workload: WorkloadId(workload),
        waf: 4.0,
        waf_with_spare,
    };
    world.ops = vec![spare(0, 3.9)];
    assert_eq!(choice(&world), None, "a little less is not enough");
    // The first workload of the set for which it suffices gets it.
    world.ops.push(spare(1, 1.5));
    let remedies = look(&world, &RemedyKind::ALL);
    let action = taken(&remedies).and_then(|r| r.action.clone());
    let given = RemedyAction::GiveOps {
        workload: WorkloadId(1),
        waf: 4.0,
        waf_with_spare: 1.5,
    };
    assert_eq!(action, Some(given));
}

#[test]
fn smallest_sufficient_mirror_is_chosen_unless_the_device_is_full() {
    let mut world = world();
    world.hosts.clear();
    world.backend.resources.push(Resource {
        name: "others".into(),
        place: Place::BehindMemory,
    });
    for stream in &mut world.streams {
        stream.curve = None;
        stream.costs.push(Cost::default());
    }
    let copies = |mib, reads, write_s| SecondCopies {
        workload: WorkloadId(0),
        from: ResourceId(0),
        to: ResourceId(1),
        extents: "0-9".parse().unwrap(),
        bytes: Bytes::mib(mib),
        reads,
        writes: 1.0,
        cost: Cost {
            read_s: 0.001,
            write_s,
        },
        copy_rate: BytesPerSec(100 << 20),
    };
    assert_eq!(choice(&world), None);
    let offered = [(1000, 1.0), (500, 0.9), (250, 0.3)];
    world.copies = offered.map(|(mib, reads)| copies(mib, reads, 0.0)).into();
    let made = |world: &World| {
        let remedies = look(world, &RemedyKind::ALL);
        let mirror = taken(&remedies).unwrap().clone();
        let Some(RemedyAction::Mirror(made)) = &mirror.action else {
            panic!("{mirror:?}");
        };
        (made.bytes, mirror)
    };
    // The disks are saturated, so the demand may be higher than the measured load.
    world.full = vec![ResourceId(0)];
    assert_eq!(made(&world).0, Bytes::mib(1000));
    // Now the use is 0.9. Reads of workload 0 are 0.4 of it, and nine tenths of them can go elsewhere.
    for stream in &mut world.streams {
        stream.reads_per_s = 400.0;
        stream.objective.rate_min_per_s = Some(450.0);
    }
    world.full.clear();
    world.copies[2].reads = 0.2;
    let (bytes, mirror) = made(&world);
    assert_eq!(bytes, Bytes::mib(500));
    assert_eq!(mirror.price.copied, Bytes::mib(500));
    assert_eq!(mirror.price.effect_after, Nanos::from_secs(5));
    let uses = &mirror.prediction.as_ref().unwrap().uses;
    assert!((uses[0] - (0.9 - 0.9 * 0.36)).abs() < 1e-9, "{uses:?}");
    assert!((uses[1] - 0.9 * 0.36).abs() < 1e-9, "{uses:?}");
    // A write goes to both devices and overloads the second one.
    world.copies = vec![copies(1000, 1.0, 0.02)];
    let remedies = look(&world, &RemedyKind::ALL);
    let mirror = remedies
        .iter()
        .find(|r| r.kind == RemedyKind::Mirror)
        .unwrap();
    assert_eq!(
        mirror.refused.as_deref(),
        Some("others would be 101 % busy, more than 80 %")
    );
}

/// The neighbour of the disks can move to another device, or the affected workload to one that is slower than its objective.
#[test]
fn workload_moves_to_a_fast_device_with_time_left() {
    let mut world = world();
    let resource = |name: &str| Resource {
        name: name.into(),
        place: Place::BehindMemory,
    };
    world.backend.resources.push(resource("spare"));
    for stream in &mut world.streams {
        stream.costs.push(Cost::default());
    }
    let to = ResourceId(world.backend.resources.len() as u16 - 1);
    let offer = |w: u16, per_read_s: f64| OtherDevice {
        workload: WorkloadId(w),
        from: ResourceId(0),
        to,
        bytes: Bytes::gib(50),
        cost: Cost {
            read_s: per_read_s,
            write_s: per_read_s,
        },
        idle_us: Some(900.0),
        copy_rate: BytesPerSec(100 << 20),
    };
    let look = |world: &World| look(world, &[RemedyKind::Move]).swap_remove(5);
    world.others = vec![offer(1, 0.0005)];
    let remedy = look(&world);
    assert_eq!(remedy.refused, None, "{remedy:?}");
    let uses = &remedy.prediction.as_ref().unwrap().uses;
    let rate = world.streams[1].reads_per_s + world.streams[1].writes_per_s;
    assert!(uses[usize::from(to.0)] > 0.0 && uses[usize::from(to.0)] <= 0.0005 * rate + 1e-9);
    assert_eq!(remedy.price.copied, Bytes::gib(50));
    assert_eq!(remedy.price.effect_after, Nanos::from_secs(512));
    // A device that would be full is rejected.
    world.others = vec![offer(1, 0.01)];
    let why = look(&world).refused.unwrap();
    assert!(why.contains("spare would be"), "{why}");
    // A device that is slower than the objective is rejected; the fast one is taken.
    world.streams[1].objective.latency_max = Some(Nanos::from_micros(500));
    world.others = vec![offer(1, 0.0005)];
    let why = look(&world).refused.unwrap();
    assert!(why.contains("at least 900 us on spare"), "{why}");
    let quick = OtherDevice {
        idle_us: Some(100.0),
        ..offer(1, 0.0005)
    };
    world.others.push(quick.clone());
    assert_eq!(look(&world).action, Some(RemedyAction::Move(quick)));
}

#[test]
fn full_device_without_guarantees_rejects_no_remedy() {
    let mut world = world();
    world.streams[1].objective = Promise::default();
    let before = choice(&world);
    assert_eq!(before, Some(RemedyKind::Throttle));
    // A third workload fills its own device.
    world.backend.resources.push(Resource {
        name: "other".into(),
        place: Place::BehindMemory,
    });
    for stream in &mut world.streams {
        stream.costs.push(Cost::default());
    }
    let mut third = world.streams[1].clone();
    third.workload = WorkloadId(2);
    third.costs = vec![Cost::default(); world.backend.resources.len()];
    third.costs.last_mut().unwrap().read_s = 1.0;
    world.streams.push(third);
    assert_eq!(choice(&world), before);
}

#[test]
fn cache_share_is_enlarged_and_shares_of_others_are_kept() {
    let mut world = world();
    world.backend.memory = vec![Bytes::gib(8)];
    let memory = |world: &World| look(world, &[RemedyKind::MemoryShare]).swap_remove(1);
    let size = |remedy: &Remedy| match remedy.action {
        Some(RemedyAction::GiveMemory { size, .. }) => size,
        _ => panic!("{remedy:?}"),
    };
    // The neighbour has four of eight GiB: three of the other four may be reserved.
    world.streams[1].part = Some(Bytes::gib(4));
    assert!(size(&memory(&world)) <= Bytes::gib(3));
    world.streams[0].part = Some(Bytes::gib(2));
    assert_eq!(size(&memory(&world)), Bytes::gib(3), "larger than it is");
    world.streams[0].part = Some(Bytes::gib(3));
    let why = memory(&world).refused;
    assert_eq!(why.as_deref(), Some("its cache share cannot be larger"));
}

/// Workload 0 violates its latency objective. The disks are half busy, which the model considers fast.
#[test]
fn violation_unknown_to_the_model_is_remedied_only_by_less_load() {
    let mut world = world();
    world.streams[0].objective = Promise {
        rate_min_per_s: None,
        latency_max: Some(Nanos::from_millis(5)),
        ..Promise::default()
    };
    for (w, rate) in [(0, 450.0), (1, 50.0)] {
        (world.streams[w].reads_per_s, world.streams[w].writes_per_s) = (0.0, rate);
    }
    world.streams[1].objective = Promise::default();
    // The neighbour's whole load is a tenth, and a fifth of it must remain.
    let remedies = look(&world, &RemedyKind::ALL);
    assert!(taken(&remedies).is_none(), "{remedies:#?}");
    for remedy in &remedies[..2] {
        let why = remedy.refused.as_ref().unwrap();
        assert!(
            why.starts_with("the model does not predict this violation"),
            "{why}"
        );
    }
    let why = remedies[0].refused.as_ref().unwrap();
    assert!(
        why.ends_with("disks, now 50 % busy, would be 46 %"),
        "{why}"
    );
    // The neighbour now has a larger load, so a throttle relieves the disks enough.
    (world.streams[0].writes_per_s, world.streams[1].writes_per_s) = (200.0, 300.0);
    assert_eq!(choice(&world), Some(RemedyKind::Throttle));
    // The model cannot predict how much is needed.
    assert_eq!(throttled(&world).1, 60.0);
    // For a load that was never measured, only the throttle is tried.
    world
        .streams
        .iter_mut()
        .for_each(|s| s.costs = vec![Cost::default()]);
    assert_eq!(choice(&world), Some(RemedyKind::Throttle));
    assert_eq!(throttled(&world).1, 60.0);
    let rest = look(&world, &RemedyKind::ALL[1..]);
    assert!(taken(&rest).is_none(), "{rest:#?}");
}

#[test]
fn cheapest_remedy_is_chosen_or_the_first_in_fixed_order() {
    let mut world = world();
    // The choice is between two thirds of a neighbour's demand and a cache of 6 GiB.
    world.streams[1].objective = Promise::default();
    let would = |world: &World| -> Vec<(RemedyKind, f64)> {
        let remedies = look(world, &RemedyKind::ALL);
        let would = remedies.iter().filter(|r| r.would_do());
        would.map(|r| (r.kind, r.total.seconds())).collect()
    };
    world.choice = Choice::Price;
    let priced = would(&world);
    assert_eq!(priced[0].0, RemedyKind::Throttle, "{priced:?}");
    assert!(priced[0].1 < priced[1].1, "{priced:?}");
    // With a lower weight of memory and a higher one of losses, the cache is cheaper.
    world.weights.others = 1.0;
    let dearer = would(&world);
    assert_eq!(dearer[0].0, RemedyKind::Appliance, "{dearer:?}");
    assert!(dearer[0].1 < dearer[1].1, "{dearer:?}");
    // Insufficient remedies come after sufficient ones, however cheap they are.
    let remedies = look(&world, &RemedyKind::ALL);
    assert!(remedies[2..].iter().all(|r| !r.would_do()));
    world.choice = Choice::Order;
    assert_eq!(would(&world), [dearer[1], dearer[0]]);
}

#[test]
fn first_remedy_in_order_is_chosen_at_equal_prices() {
    let mut world = world();
    world.choice = Choice::Price;
    world.streams[1].objective = Promise::default();
    let total = |world: &World, kind| {
        let mut remedies = look(world, &RemedyKind::ALL).into_iter();
        remedies.find(|r| r.kind == kind).unwrap().total
    };
    // With this weight the losses of others cost as much as the appliance.
    let appliance = total(&world, RemedyKind::Appliance).seconds();
    let throttle = total(&world, RemedyKind::Throttle);
    world.weights.others *= (appliance - throttle.until_it_helps_s) / throttle.others_s;
    let equal = total(&world, RemedyKind::Throttle).seconds();
    assert!((equal - appliance).abs() < 1e-6, "{equal} {appliance}");
    assert_eq!(choice(&world), Some(RemedyKind::Throttle));
    world.weights.others *= 1.01;
    assert_eq!(choice(&world), Some(RemedyKind::Appliance));
}
