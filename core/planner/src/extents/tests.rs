//! Properties of every method, on random loads.

use algo::Rng;
use serde_json::Value;
use units::Nanos;

use super::*;

const HOUR: Nanos = Nanos::from_secs(3600);
const EXTENTS: u32 = 300;

/// Hours of load: a stable part, pages that are hot at the same hours of each day, and noise.
fn hours(seed: u64, count: u64) -> Vec<Vec<(ExtentNo, u32)>> {
    let hour = |h: u64| {
        let mut rng = Rng::new(seed, h);
        let counts = (0..EXTENTS).map(|no| {
            let stable = 40.0 / (1.0 + f64::from(no));
            let recurs = (u64::from(no) * 7) % 24 == h % 24 && no % 3 == 0;
            rng.poisson(stable + if recurs { 60.0 } else { 0.4 })
        });
        let touched = counts.enumerate().filter(|(_, n)| *n > 0);
        touched.map(|(no, n)| (no as u32, n)).collect()
    };
    (0..count).map(hour).collect()
}

fn fresh<P: ExtentPolicy>() -> P {
    let mut policy = P::new(&P::Config::default()).unwrap();
    policy.agree(&Terms::default());
    policy.renumber(&[None; EXTENTS as usize]);
    policy
}

/// Room that grows and shrinks, down to none and up to all extents.
fn capacity(hour: u64) -> u32 {
    [40, 40, 90, 25, 0, 60, EXTENTS][(hour / 48 % 7) as usize]
}

fn held<P: ExtentPolicy>() {
    let mut policy: P = fresh();
    let mut restored: P = fresh();
    let (mut fast, mut same) = (FastSet::first(EXTENTS, 40), FastSet::first(EXTENTS, 40));
    let mut at = Nanos::ZERO;
    for (h, touched) in hours(11, 24 * 14).iter().enumerate() {
        at += HOUR;
        policy.observe(at, &Heat { touched });
        restored.observe(at, &Heat { touched });
        let before = fast.clone();
        let note = policy.decide(at, capacity(h as u64), &mut fast);
        let theirs = restored.decide(at, capacity(h as u64), &mut same);
        assert_eq!(
            (&fast, note),
            (&same, theirs),
            "{} after being stored, hour {h}",
            P::NAME
        );
        match note.ended {
            None => assert_eq!(fast, before, "{} moves where no period ends", P::NAME),
            Some(_) => assert!(
                fast.count() <= capacity(h as u64),
                "{} holds too much",
                P::NAME
            ),
        }
        if h % 5 == 0 {
            let text = serde_json::to_string(&restored).unwrap();
            restored = serde_json::from_str(&text).unwrap();
            restored.agree(&Terms::default());
        }
    }
}

#[test]
fn fast_set_respects_its_capacity_and_state_survives_storage() {
    held::<Period>();
    held::<DualPeriod>();
    held::<AdaptivePeriod>();
    held::<MovingAverages>();
    held::<AgedFrequency>();
}

#[test]
fn long_and_short_area_have_no_extent_in_common() {
    let mut policy: DualPeriod = fresh();
    let mut fast = FastSet::first(EXTENTS, 50);
    let mut at = Nanos::ZERO;
    for (h, touched) in hours(3, 24 * 6).iter().enumerate() {
        at += HOUR;
        policy.observe(at, &Heat { touched });
        policy.decide(at, 50, &mut fast);
        if h < 24 {
            continue;
        }
        let long = policy.long_area().unwrap();
        // C = 20 %: if an extent were in both, the union would hold less.
        assert_eq!((fast.count(), long.count()), (50, 40), "hour {h}");
        assert_eq!(long.difference_count(&fast), 0, "hour {h}");
    }
}

#[test]
fn renumbered_extents_keep_their_state() {
    fn carried<P: ExtentPolicy>() {
        let (mut policy, mut turned): (P, P) = (fresh(), fresh());
        // The same extents in reverse.
        let from: Vec<Option<ExtentNo>> = (0..EXTENTS).rev().map(Some).collect();
        let (mut fast, mut theirs) = (FastSet::first(EXTENTS, 40), FastSet::first(EXTENTS, 40));
        let mut at = Nanos::ZERO;
        for (h, load) in hours(5, 24 * 4).iter().enumerate() {
            at += HOUR;
            // No two counts are equal: of equal extents the lower number wins, and renumbering changes that number.
            let mut counts: Vec<u32> = (0..EXTENTS).map(|no| 1 + no * 7919 % 1021).collect();
            load.iter()
                .for_each(|(no, n)| counts[*no as usize] += n * 1024);
            let touched: Vec<(ExtentNo, u32)> = (0..EXTENTS).zip(counts).collect();
            let touched = &touched[..];
            policy.observe(at, &Heat { touched });
            if h == 30 {
                turned.renumber(&from);
                theirs = theirs.renumbered(&from);
            }
            let mut reversed = touched.to_vec();
            if h >= 30 {
                reversed.iter_mut().for_each(|t| t.0 = EXTENTS - 1 - t.0);
                reversed.reverse();
            }
            turned.observe(at, &Heat { touched: &reversed });
            policy.decide(at, 40, &mut fast);
            turned.decide(at, 40, &mut theirs);
            let back = if h >= 30 {
                theirs.renumbered(&from)
            } else {
                theirs.clone()
            };
            assert_eq!(fast, back, "{} hour {h}", P::NAME);
        }
    }
    carried::<Period>();
    carried::<DualPeriod>();
    carried::<MovingAverages>();
    carried::<AgedFrequency>();
}

/// Returns hits and moves over the last days of a load, with room for 30 extents.
fn result<P: ExtentPolicy>(
    config: Value,
    load: &[Vec<(ExtentNo, u32)>],
    terms: &Terms,
) -> (f64, u32) {
    let config: P::Config = serde_json::from_value(config).unwrap();
    let mut policy = P::new(&config).unwrap();
    policy.agree(terms);
    policy.renumber(&[None; EXTENTS as usize]);
    let mut fast = FastSet::first(EXTENTS, 30);
    let (mut hits, mut all, mut moves) = (0u64, 0u64, 0);
    let mut at = Nanos::ZERO;
    for (h, touched) in load.iter().enumerate() {
        at += HOUR;
        if h >= 24 * 7 {
            for (no, n) in touched {
                all += u64::from(*n);
                hits += u64::from(*n) * u64::from(fast.contains(*no));
            }
        }
        policy.observe(at, &Heat { touched });
        let before = fast.clone();
        policy.decide(at, 30, &mut fast);
        if h >= 24 * 7 {
            moves += fast.difference_count(&before);
        }
    }
    (hits as f64 / all as f64, moves)
}

#[test]
fn adaptive_period_promotes_early_if_moves_are_cheap() {
    let load = hours(21, 24 * 14);
    let cheap = Terms {
        extent: Bytes::mib(1),
        ..Terms::default()
    };
    let dear = Terms {
        extent: Bytes::gib(1),
        ..Terms::default()
    };
    let default = || serde_json::json!({});
    let (adaptive, moves) = result::<AdaptivePeriod>(default(), &load, &cheap);
    let (day, _) = result::<Period>(serde_json::json!({"period": "24h"}), &load, &cheap);
    let (hour, hourly_moves) = result::<Period>(serde_json::json!({"period": "1h"}), &load, &cheap);
    assert!(
        adaptive > day.max(hour) + 0.1,
        "{adaptive}, 24 h: {day}, 1 h: {hour}"
    );
    assert!(moves < hourly_moves, "{moves}, 1 h: {hourly_moves}");
    let (_, moves) = result::<AdaptivePeriod>(default(), &load, &dear);
    assert_eq!(moves, 0, "a move costs more than there is to gain");
}

#[test]
fn invalid_parameters_are_refused() {
    fn refused<P: ExtentPolicy>(config: Value, key: &str) {
        let config: P::Config = serde_json::from_value(config).unwrap();
        let Err(error) = P::new(&config) else {
            panic!("{key} of {} is accepted", P::NAME);
        };
        assert_eq!(
            (error.strategy.as_str(), error.key.as_str()),
            (P::NAME, key)
        );
    }
    use serde_json::json;
    refused::<Period>(json!({"period": "0s"}), "period");
    refused::<Period>(json!({"min_gain": -1.0}), "min_gain");
    refused::<DualPeriod>(json!({"share": 1.1}), "share");
    refused::<DualPeriod>(json!({"short": "25h"}), "short");
    refused::<AdaptivePeriod>(json!({"slot": "7h"}), "season");
    refused::<AdaptivePeriod>(json!({"season": "169h"}), "season");
    refused::<AdaptivePeriod>(json!({"slot": "0s"}), "slot");
    refused::<MovingAverages>(json!({"lasts": "1m"}), "lasts");
    refused::<AgedFrequency>(json!({"halve": "0s"}), "halve");
}
