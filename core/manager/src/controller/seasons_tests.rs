use super::*;
use slo::seasonal::SlotRecord;

const DAY_MS: u64 = 86_400_000;

fn config() -> SeasonalConfig {
    SeasonalConfig {
        season: Nanos(DAY_MS * 1_000_000),
        ..SeasonalConfig::default()
    }
}

fn numbers(names: &[&str]) -> Numbers {
    let all = names.iter().zip(0..);
    all.map(|(name, n)| ((*name).into(), ResourceId(n)))
        .collect()
}

/// Slot of nine o'clock on some days, on the second of two devices.
fn nine() -> (SeasonRecord, u64) {
    let mut seasonal = SeasonRecord::new(config());
    let began = Nanos::from_secs(9 * 3600);
    let cost = Cost {
        read_s: 0.001,
        write_s: 0.002,
    };
    for rate in [700.0, 800.0] {
        let recorded = SlotRecord {
            curve: Some(Curve::new(vec![(Bytes::gib(1), 0.1)])),
            rate_max_per_s: rate,
            habit: Some(Habit {
                write_share: 0.2,
                read_bytes: 4096.0,
                costs: vec![Cost::default(), cost],
            }),
            ..SlotRecord::default()
        };
        seasonal.remember(began, rate, recorded);
    }
    (seasonal, 9)
}

/// Content of a store after some changes.
fn stored(seasons: &mut Seasons, changes: Vec<Change>) -> Seasons {
    let mut again = Seasons::default();
    for change in changes {
        if let Change::Put { key, value } = change {
            assert!(again.restore(&key, &value));
        }
    }
    assert_eq!(again.hosts, seasons.hosts);
    again
}

#[test]
fn slot_is_unchanged_after_a_restart_with_renumbered_devices() {
    let (seasonal, number) = nine();
    let mut seasons = Seasons::default();
    // The name of a volume may look like a path.
    let volume = ("alpha", "pool/a/9");
    let slot = (&seasonal, number);
    let changes = seasons.remember(volume, slot, &numbers(&["one", "two"]), 0);
    let mut again = stored(&mut seasons, changes);
    let (same, gone) = again.recall(volume, config(), &numbers(&["one", "two"]), 1);
    assert_eq!((&same, gone), (&seasonal, vec![]));
    let (other, _) = again.recall(volume, config(), &numbers(&["two", "new"]), 1);
    let habit = |s: &SeasonRecord| s.slot(number).unwrap().recorded.habit.clone().unwrap();
    assert_eq!(habit(&other).costs, [habit(&seasonal).costs[1]]);
    let (without, _) = again.recall(volume, config(), &numbers(&["new"]), 1);
    assert_eq!(habit(&without).costs, []);
    // No other volume has it.
    let (none, _) = again.recall(("beta", "pool/a/9"), config(), &numbers(&[]), 1);
    assert_eq!(none, SeasonRecord::new(config()));
}

#[test]
fn changed_season_starts_new_and_fewer_occurrences_keep_the_last() {
    let (seasonal, number) = nine();
    let mut seasons = Seasons::default();
    let volume = ("alpha", "orders");
    seasons.remember(volume, (&seasonal, number), &numbers(&[]), 0);
    let fewer = SeasonalConfig {
        occurrences: 1,
        occurrences_min: 1,
        ..config()
    };
    let (last, gone) = seasons.recall(volume, fewer, &numbers(&[]), 1);
    assert_eq!((last.slot(number).unwrap().rates.len(), gone), (1, vec![]));
    assert_eq!(last.slot(number).unwrap().rates[0], 800.0);
    let half = SeasonalConfig {
        slot: Nanos::from_secs(1800),
        ..config()
    };
    let (anew, gone) = seasons.recall(volume, half, &numbers(&[]), 1);
    let key = "season/alpha/orders/9".to_string();
    assert_eq!(
        (anew, gone),
        (SeasonRecord::new(half), vec![Change::Remove { key }])
    );
    let (anew, _) = seasons.recall(volume, config(), &numbers(&[]), 1);
    assert_eq!(anew, SeasonRecord::new(config()));
}

#[test]
fn volume_unseen_for_several_seasons_is_forgotten() {
    let (seasonal, number) = nine();
    let mut seasons = Seasons::default();
    let volume = ("alpha", "orders");
    seasons.remember(volume, (&seasonal, number), &numbers(&[]), 0);
    assert_eq!(seasons.forget_old(5 * DAY_MS - 1), vec![]);
    assert_eq!(seasons.forget_old(5 * DAY_MS), vec![], "once an hour");
    assert_eq!(seasons.forget_old(6 * DAY_MS), vec![], "the clock leapt");
    let gone = seasons.forget_old(6 * DAY_MS + LOOK_EVERY_MS);
    assert!(matches!(&gone[..], [Change::Remove { key }] if key == "season/alpha/orders/9"));
    // It is not recalled in the hour after its expiry either; a clock that goes back restores it.
    seasons.remember(volume, (&seasonal, number), &numbers(&[]), 0);
    let (none, gone) = seasons.recall(volume, config(), &numbers(&[]), 5 * DAY_MS);
    assert_eq!((none, gone), (SeasonRecord::new(config()), vec![]));
    let (again, _) = seasons.recall(volume, config(), &numbers(&[]), 5 * DAY_MS - 1);
    assert!(again.slot(number).is_some());
}

#[test]
fn volume_unseen_for_longest_is_forgotten_above_the_limit() {
    let (seasonal, number) = nine();
    let mut seasons = Seasons::default();
    let slot = (&seasonal, number);
    for v in 0..VOLUMES_MAX as u64 {
        let name = format!("v{v}");
        seasons.remember(("alpha", &name), slot, &numbers(&[]), 1000 - v);
    }
    let changes = seasons.remember(("alpha", "new"), slot, &numbers(&[]), 2000);
    let last = format!("season/alpha/v{}/9", VOLUMES_MAX - 1);
    assert!(matches!(&changes[0], Change::Remove { key } if *key == last));
    assert_eq!(seasons.hosts["alpha"].len(), VOLUMES_MAX);
    // A known volume displaces no other one.
    let changes = seasons.remember(("alpha", "new"), slot, &numbers(&[]), 3000);
    assert_eq!(changes.len(), 1);
}

#[test]
fn invalid_season_record_is_reported_and_removed() {
    let (seasonal, number) = nine();
    let mut seasons = Seasons::default();
    let volume = ("alpha", "orders");
    let changes = seasons.remember(volume, (&seasonal, number), &numbers(&[]), 0);
    let Change::Put { value, .. } = &changes[0] else {
        panic!("{changes:?}")
    };
    let odd = |from: &str, to: &str| {
        assert!(value.contains(from), "{value}");
        value.replacen(from, to, 1)
    };
    let values = [
        ("season/alpha/orders/9", "{".into()),
        ("season/alpha/orders/24", value.clone()),
        ("season/alpha/orders/nine", value.clone()),
        ("season/9", value.clone()),
        ("season/alpha/orders/9", odd("700.0", "-700.0")),
        ("season/alpha/orders/9", odd("700.0", "null")),
        (
            "season/alpha/orders/9",
            odd("\"write_share\":0.2", "\"write_share\":7.0"),
        ),
        (
            "season/alpha/orders/9",
            odd("\"slot_ns\":3600000000000", "\"slot_ns\":0"),
        ),
        (
            "season/alpha/orders/9",
            odd("86400000000000", "18446744073709551615"),
        ),
    ];
    for (key, value) in values {
        let mut seasons = Seasons::default();
        assert!(seasons.restore(key, &value));
        let (text, gone) = seasons.take_refused().expect("it is refused");
        assert!(text.contains(key), "{text}");
        assert_eq!(gone, [Change::Remove { key: key.into() }]);
        assert_eq!(seasons.take_refused(), None, "reported once");
        assert!(seasons.hosts.is_empty());
    }
    assert!(!seasons.restore("host/alpha/kept", "{}"));
}

#[test]
fn zones_of_another_size_are_not_restored() {
    let mut seasonal = SeasonRecord::new(config());
    let zone = |number| Zone { number, share: 0.1 };
    let recorded = SlotRecord {
        zones: (0..500).map(zone).collect(),
        curve: None,
        rate_max_per_s: 900.0,
        habit: None,
    };
    let began = Nanos::from_secs(9 * 3600);
    seasonal.remember(began, 800.0, recorded);
    let number = seasonal.number(began);
    let mut seasons = Seasons::default();
    seasons.zones_of(Bytes::mib(64));
    let volume = ("alpha", "orders");
    seasons.remember(volume, (&seasonal, number), &numbers(&[]), 0);
    let zones = |seasons: &mut Seasons| {
        let (recalled, _) = seasons.recall(volume, config(), &numbers(&[]), 1);
        let slot = recalled.slot(number).expect("it was remembered");
        (slot.rates.len(), slot.recorded.zones.len())
    };
    assert_eq!(zones(&mut seasons), (1, ZONES_MAX));
    seasons.zones_of(Bytes::mib(16));
    assert_eq!(zones(&mut seasons), (1, 0));
}
