//! Advice for a volume that does not exist yet.

use model::*;
use planner::{
    GuessedOf, KnownLoad, PlaceAdvice, PlaceRequest, PlaceVerdict, build, guess_load, place,
};
use units::*;

use crate::support::{V, facts, v};

const T1: TierId = TierId(0);
const T2: TierId = TierId(1);
const T3: TierId = TierId(2);

/// Returns a load of 4 KiB reads, measured on an idle device.
fn reads(iops: u64) -> MeasuredLoad {
    MeasuredLoad {
        window: Nanos::from_secs(60),
        reads: Flow {
            ios: iops * 60,
            bytes: iops * 60 * 4096,
            latency: LatencySummary::default(),
        },
        writes: Flow::default(),
        outstanding: iops as f64 * 100e-6,
    }
}

/// Returns facts with one more class: the objective of its mean, microseconds; 0 for no objective.
fn with_class(volumes: &[V], target_us: u64) -> (Facts, ClassId) {
    let mut facts = facts(volumes);
    let target = (target_us > 0).then_some(Objective {
        statistic: SloStatistic::Mean,
        latency: Nanos(target_us * 1000),
    });
    facts.classes.push(SloClass {
        name: "new".into(),
        weight: 1.0,
        target,
        max_slowdown: None,
    });
    let class = ClassId::from_index(facts.classes.len() - 1);
    (facts, class)
}

fn request(class: ClassId, gib: u64, load: MeasuredLoad) -> PlaceRequest {
    PlaceRequest {
        size: Bytes::gib(gib),
        class,
        load,
    }
}

fn placed(strategy: &str, facts: &Facts, policy: &Policy, new: &PlaceRequest) -> PlaceAdvice {
    let strategy = build(strategy, serde_json::Value::Null).unwrap();
    place(&*strategy, facts, policy, &strategy.initial_state(), new)
}

fn advised(facts: &Facts, policy: &Policy, new: &PlaceRequest) -> PlaceAdvice {
    placed("terrace", facts, policy, new)
}

fn row(advice: &PlaceAdvice, tier: TierId) -> &planner::TierAdvice {
    advice.tiers.iter().find(|t| t.tier == tier).unwrap()
}

#[test]
fn tight_objective_with_heavy_load_is_placed_on_the_fast_tier() {
    let (facts, class) = with_class(&[v(0, 10, 100.0, 1.0, 1.0)], 120);
    let advice = advised(&facts, &Policy::default(), &request(class, 20, reads(5000)));
    let order: Vec<TierId> = advice.tiers.iter().map(|t| t.tier).collect();
    assert_eq!(order, [T1, T2, T3], "{advice:#?}");
    let best = advice.best().unwrap();
    let option = best.best.unwrap();
    let (low, high) = option.range_us.unwrap();
    let mean = option.latency_us.unwrap();
    assert!(low < mean && mean < high, "{option:?}");
    assert!(mean < 120.0, "{option:?}");
    // Two devices of 100 GiB, of which 10 GiB are used.
    assert_eq!(best.free_after, Some(Bytes::gib(170)));
    let reason = advice.reason.unwrap();
    assert_eq!(reason.kind(), "misses-less");
    assert!(reason.to_string().ends_with("per second compared with t2"));
    assert!(reason.number("less_per_s").unwrap() > 0.02);
}

#[test]
fn volume_without_load_is_placed_on_the_lowest_tier() {
    let (facts, class) = with_class(&[], 120);
    let advice = advised(&facts, &Policy::default(), &request(class, 20, reads(0)));
    assert_eq!(advice.best().unwrap().tier, T3);
    let option = advice.best().unwrap().best.unwrap();
    assert_eq!((option.cost.own, option.latency_us), (0.0, None));
    let reason = advice.reason.unwrap();
    assert_eq!(
        reason.to_string(),
        "as good as t2 and t1, whose space is reserved for volumes that need it"
    );
}

#[test]
fn objective_met_by_every_tier_selects_the_lowest_tier() {
    let (facts, class) = with_class(&[], 5000);
    let advice = advised(&facts, &Policy::default(), &request(class, 20, reads(300)));
    assert_eq!(advice.best().unwrap().tier, T3, "{advice:#?}");
}

#[test]
fn tier_without_space_is_refused_with_numbers_and_predicted() {
    // 100 GiB each, of which 80 are used.
    let (facts, class) = with_class(&[v(0, 80, 1.0, 1.0, 1.0), v(1, 80, 1.0, 1.0, 1.0)], 120);
    let new = request(class, 30, reads(5000));
    let advice = advised(&facts, &Policy::default(), &new);
    assert_eq!(advice.best().unwrap().tier, T2);
    let last = advice.tiers.last().unwrap();
    assert_eq!(last.tier, T1);
    let PlaceVerdict::Refused {
        by: Rejection::NoDevice { need, most_free },
    } = &last.verdict
    else {
        panic!("{last:?}")
    };
    assert_eq!((*need, *most_free), (Bytes::gib(30), Bytes::gib(20)));
    assert_eq!(last.free_after, None);
    assert!(last.best.unwrap().latency_us.unwrap() < 120.0);
    // It fits into the reserve.
    let new = request(class, 20, reads(5000));
    assert_eq!(
        advised(&facts, &Policy::default(), &new)
            .best()
            .unwrap()
            .tier,
        T1
    );
    let huge = request(class, 1000, reads(5000));
    let advice = advised(&facts, &Policy::default(), &huge);
    assert_eq!(advice.best(), None);
    assert_eq!(
        advice.why_not.as_deref(),
        Some("no tier accepts the volume")
    );
    let by = &row(&advice, T3).verdict;
    assert!(
        matches!(
            by,
            PlaceVerdict::Refused {
                by: Rejection::TooBig { .. }
            }
        ),
        "{by:?}"
    );
}

#[test]
fn cordoned_and_draining_tiers_are_refused() {
    let (facts, class) = with_class(&[], 120);
    let policy = Policy {
        cordoned: vec![T1],
        draining: vec![T2],
        ..Policy::default()
    };
    let advice = advised(&facts, &policy, &request(class, 20, reads(5000)));
    assert_eq!(advice.best().unwrap().tier, T3);
    assert_eq!(advice.reason.as_ref().unwrap().kind(), "only-one");
    for tier in [T1, T2] {
        let by = Rejection::Cordoned;
        assert_eq!(row(&advice, tier).verdict, PlaceVerdict::Refused { by });
    }
}

#[test]
fn emptier_device_of_a_tier_is_preferred() {
    let (mut facts, class) = with_class(&[], 120);
    facts.devices[0].utilization = 0.9;
    let advice = advised(&facts, &Policy::default(), &request(class, 20, reads(5000)));
    let option = row(&advice, T1).best.unwrap();
    assert_eq!(option.device, DeviceId(1));
    assert!(option.use_after < 0.1, "{option:?}");
}

#[test]
fn violation_caused_for_others_is_counted_separately() {
    // A volume with an objective uses the only device of the second tier, which the new volume would fill.
    let (mut facts, class) = with_class(&[v(2, 10, 100_000.0, 1.0, 1.0)], 0);
    facts.devices[2].utilization = 0.5;
    facts.classes[0].target = Some(Objective {
        statistic: SloStatistic::Mean,
        latency: Nanos(200_000),
    });
    let advice = advised(
        &facts,
        &Policy::default(),
        &request(class, 20, reads(90_000)),
    );
    let shared = row(&advice, T2).best.unwrap();
    assert!(shared.cost.others.unwrap() > 0.1, "{shared:?}");
    assert_eq!(
        shared.cost.total(),
        shared.cost.own + shared.cost.others.unwrap()
    );
    assert_eq!(row(&advice, T1).best.unwrap().cost.others, Some(0.0));
}

#[test]
fn strategy_without_a_model_gives_no_recommendation() {
    let (facts, class) = with_class(&[], 120);
    let policy = Policy {
        cordoned: vec![T1],
        ..Policy::default()
    };
    let advice = placed("noop", &facts, &policy, &request(class, 20, reads(5000)));
    assert_eq!(advice.best(), None);
    assert_eq!(
        advice.why_not.as_deref(),
        Some("strategy noop does not advise on new volumes")
    );
    let verdicts: Vec<_> = advice.tiers.iter().map(|t| (t.tier, &t.verdict)).collect();
    let by = Rejection::Cordoned;
    assert_eq!(
        verdicts,
        [
            (T2, &PlaceVerdict::NotJudged),
            (T3, &PlaceVerdict::NotJudged),
            (T1, &PlaceVerdict::Refused { by }),
        ]
    );
    assert!(row(&advice, T2).free_after.is_some());
}

#[test]
fn load_estimate_is_the_median_of_the_class_or_of_all() {
    let loads = [100, 900, 200, 5000].map(reads);
    let known = |i: usize, class: u16, gib: u64| KnownLoad {
        name: ["a", "b", "c", "d"][i],
        class: ClassId(class),
        size: Bytes::gib(gib),
        load: &loads[i],
    };
    // 10, 90 and 2 requests per second and GiB; one volume of another class.
    let all = [
        known(0, 0, 10),
        known(1, 0, 10),
        known(2, 0, 100),
        known(3, 1, 10),
    ];
    let guess = guess_load(&all, ClassId(0), Bytes::gib(20)).unwrap();
    assert_eq!(
        (guess.like.as_str(), guess.volumes, guess.of),
        ("a", 3, GuessedOf::Class)
    );
    assert_eq!(guess.load.iops(), 200.0);
    assert_eq!(guess.load.mean_bytes(Op::Read), 4096.0);
    let guess = guess_load(&all, ClassId(7), Bytes::gib(20)).unwrap();
    assert_eq!((guess.volumes, guess.of), (4, GuessedOf::All));
    assert_eq!(guess_load(&[], ClassId(0), Bytes::gib(20)), None);
}
