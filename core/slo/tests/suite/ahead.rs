//! Seasonal peaks: a recorded peak is acted on before it starts again.

use slo::seasonal::{SeasonalConfig, SlotRecord};
use slo::{AheadConfig, ApplianceEvent, Cause, KnownPeak, WarmForecast};
use units::Nanos;

use crate::support::{DB, Script, appliance_only, forecast, site};

/// Season of 200 samples in slots of 10.
fn config() -> AheadConfig {
    AheadConfig {
        seasonal: SeasonalConfig {
            season: Nanos::from_secs(2000),
            slot: Nanos::from_secs(100),
            ..SeasonalConfig::default()
        },
        lead: Nanos::from_secs(300),
        ..AheadConfig::default()
    }
}

/// Two seasons with a peak from sample 100 to 150, which ends before a violation is detected, and the third season up to its
/// sample 100.
fn three_seasons(ahead: Option<AheadConfig>) -> Script {
    let mut script = Script::new(appliance_only(), site());
    ahead
        .into_iter()
        .for_each(|a| script.responder.look_ahead(a));
    for season in 0..3 {
        script.run(100, 300.0, 0.5);
        if season < 2 {
            script.run(30, 900.0, 1.0);
            script.run(70, 300.0, 0.5);
        }
    }
    script
}

#[test]
fn peak_seen_twice_is_acted_on_before_the_third() {
    assert_eq!(three_seasons(None).log, Vec::<String>::new());
    let script = three_seasons(Some(config()));
    assert_eq!(script.log.len(), 1, "once for each peak: {:?}", script.log);
    assert!(
        script.log[0].starts_with("470: create for 0 on 0: 2 GiB"),
        "thirty samples before the peak: {:?}",
        script.log
    );
    assert!(script.log[0].ends_with("\"zones\""), "{:?}", script.log);
    let decision = script.responder.decisions().last().unwrap();
    let Cause::Forecast { workload, at } = decision.cause else {
        panic!("{:?}", decision.cause);
    };
    assert_eq!((workload, at), (DB, Nanos::from_secs(5000)));
}

#[test]
fn zones_stay_cold_if_configured_and_an_existing_appliance_remains() {
    let cold = AheadConfig {
        zones: WarmForecast::Leave,
        ..config()
    };
    let mut script = three_seasons(Some(cold));
    assert!(script.log[0].ends_with("\"cold\""), "{:?}", script.log);
    script.event(ApplianceEvent::Serving);
    script.run(30, 900.0, 0.9);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
}

#[test]
fn removed_workload_loses_its_seasons() {
    let mut script = three_seasons(None);
    script.responder.look_ahead(config());
    script.run(200, 300.0, 0.5);
    script.responder.forget(DB);
    // The next workload with this number is a different one.
    let workload = site().workloads[0].clone();
    assert_eq!(script.responder.join(workload), DB);
    script.run(300, 300.0, 0.5);
    assert_eq!(script.log, Vec::<String>::new());
}

#[test]
fn invalid_forecast_options_are_named() {
    let window = Nanos::from_secs(10);
    assert_eq!(config().fault(window), None);
    assert_eq!(AheadConfig::default().fault(window), None);
    let odd = |change: fn(&mut AheadConfig)| {
        let mut config = config();
        change(&mut config);
        config.fault(window).map(|f| f.0)
    };
    for (key, change) in [
        (
            "seasonal.slot",
            (|c| c.seasonal.slot = Nanos(1)) as fn(&mut AheadConfig),
        ),
        ("seasonal.season", |c| {
            c.seasonal.season = Nanos::from_secs(150)
        }),
        ("seasonal.occurrences", |c| c.seasonal.occurrences = 0),
        ("seasonal.occurrences_min", |c| {
            c.seasonal.occurrences_min = 5
        }),
        ("seasonal.quantile", |c| c.seasonal.quantile = f64::NAN),
        ("lead", |c| c.lead = Nanos::ZERO),
        ("over_mean", |c| c.over_mean = 0.5),
    ] {
        assert_eq!(odd(change), Some(key));
    }
}

/// Peak of the database from sample 100 on, with the remedy at sample 70.
fn known_peak(rate_per_s: f64) -> KnownPeak {
    KnownPeak {
        workload: DB,
        at: Nanos::from_secs(1000),
        act_at: Nanos::from_secs(700),
        rate_per_s,
        warm: WarmForecast::Read,
        recorded: None,
    }
}

#[test]
fn announced_peak_is_acted_on_once() {
    let told_of = |peak: Option<KnownPeak>| {
        let mut script = Script::new(appliance_only(), site());
        peak.into_iter().for_each(|p| script.responder.know_of(p));
        script.run(100, 300.0, 0.5);
        script.log
    };
    assert_eq!(told_of(None), Vec::<String>::new());
    // The forecast has the guaranteed rate and the database's present character.
    let log = told_of(Some(known_peak(0.0)));
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(
        log[0].starts_with("70: create for 0 on 0: 2 GiB"),
        "{log:?}"
    );
    let more = told_of(Some(known_peak(1500.0)));
    assert!(
        more[0].starts_with("70: create for 0 on 0: 3 GiB"),
        "{more:?}"
    );
}

#[test]
fn announced_peak_without_data_is_ignored() {
    let mut script = Script::new(appliance_only(), site());
    script.responder.know_of(known_peak(1500.0));
    script.known.db = None;
    script.run(100, 300.0, 0.5);
    assert_eq!(script.log, Vec::<String>::new());
    // With the record of an earlier peak the forecast is possible.
    let mut script = Script::new(appliance_only(), site());
    script.known.db = None;
    let earlier = forecast(DB, 0, 1500.0);
    script.responder.know_of(KnownPeak {
        recorded: Some(SlotRecord {
            zones: earlier.zones,
            curve: earlier.curve,
            rate_max_per_s: earlier.rate_per_s,
            habit: Some(earlier.habit),
        }),
        ..known_peak(0.0)
    });
    script.run(100, 300.0, 0.5);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    assert!(script.log[0].starts_with("70: create for 0 on 0: 3 GiB"));
}

/// Log of a responder that gets two seasons with a peak from another responder, whose clock differs.
fn told_by_another(shift_s: u64) -> Vec<String> {
    let mut before = Script::new(appliance_only(), site());
    before.responder.look_ahead(config());
    let mut kept = 0;
    for _ in 0..2 {
        for (steps, rate) in [(100, 300.0), (30, 900.0), (70, 300.0)] {
            before.run(steps, rate, if rate > 800.0 { 1.0 } else { 0.5 });
            kept += before.responder.take_remembered().len();
        }
    }
    assert!(kept > 0, "it says what it remembers");
    assert_eq!(before.responder.take_remembered(), vec![], "once");
    let seasonal = before.responder.remembered(DB).unwrap().clone();
    let mut script = Script::new(appliance_only(), site());
    script.responder.look_ahead(config());
    script.responder.recall(DB, seasonal);
    script
        .responder
        .wall_clock(Nanos::ZERO, Nanos::from_secs(4000 + shift_s));
    script.run(100, 300.0, 0.5);
    let told = script.responder.decisions().last().map(|d| d.cause.clone());
    let begins = Nanos::from_secs(1000 - shift_s);
    assert_eq!(
        told,
        Some(Cause::Forecast {
            workload: DB,
            at: begins
        })
    );
    script.log
}

#[test]
fn recalled_season_is_aligned_to_wall_clock_time() {
    let log = told_by_another(0);
    assert!(
        log[0].starts_with("70: create for 0 on 0: 2 GiB"),
        "{log:?}"
    );
    let log = told_by_another(250);
    assert!(
        log[0].starts_with("45: create for 0 on 0: 2 GiB"),
        "{log:?}"
    );
}

#[test]
fn season_with_other_slots_is_not_recalled() {
    let seasonal = three_seasons(Some(config()))
        .responder
        .remembered(DB)
        .unwrap()
        .clone();
    let mut script = Script::new(appliance_only(), site());
    let mut other = config();
    other.seasonal.slot = Nanos::from_secs(200);
    script.responder.look_ahead(other);
    script.responder.recall(DB, seasonal);
    script.run(100, 300.0, 0.5);
    assert_eq!(script.log, Vec::<String>::new());
}

#[test]
fn peak_uses_the_curve_known_during_its_violation() {
    let mut script = Script::new(appliance_only(), site());
    script.responder.look_ahead(config());
    let curve = script.known.db.take();
    for season in 0..3 {
        script.run(100, 300.0, 0.5);
        if season < 2 {
            // The curve is known in the middle of a slot and unknown at its end.
            script.run(3, 900.0, 1.0);
            script.known.db.clone_from(&curve);
            script.run(3, 900.0, 1.0);
            script.known.db = None;
            script.run(24, 900.0, 1.0);
            script.run(70, 300.0, 0.5);
        }
    }
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    assert!(script.log[0].starts_with("470: create for 0 on 0: 2 GiB"));
    // A curve that was never known is not invented.
    let mut script = Script::new(appliance_only(), site());
    script.responder.look_ahead(config());
    script.known.db = None;
    for _ in 0..2 {
        script.run(100, 300.0, 0.5);
        script.run(30, 900.0, 1.0);
        script.run(70, 300.0, 0.5);
    }
    script.run(100, 300.0, 0.5);
    assert_eq!(script.log, Vec::<String>::new());
    let last = script.responder.decisions().last().unwrap();
    assert!(
        last.peak.is_some_and(|p| p.breaks && p.seen == 2),
        "{last:?}"
    );
}
