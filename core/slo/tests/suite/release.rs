//! Release of remedies, and forecasts.

use slo::ladder::taken;
use slo::{ApplianceEvent, Cause, Promise, ResponderConfig};

use crate::support::{DB, SCAN, Script, appliance_only, forecast, site};

/// Script of a site whose scan has no objective.
fn generous() -> Script {
    let mut generous = site();
    generous.workloads[1].objective = Promise::default();
    Script::new(ResponderConfig::as_published(), generous)
}

#[test]
fn throttle_is_released_only_when_the_demand_fits() {
    let mut script = generous();
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    // There is no violation for two hours; with the scan's 600 the demand would be 1,600 of 1,500.
    script.run(720, 1000.0, 0.9);
    // The rate is less than two percent below 80 % of the disks' capacity and the memory's hits.
    assert_eq!(script.log, ["143: throttle 1 to 209"]);
    script.run(60, 300.0, 0.5);
    assert_eq!(script.log[1..], ["884: unthrottle 1"]);
}

#[test]
fn ineffective_throttle_is_tightened_before_costlier_remedies() {
    let mut generous = site();
    generous.workloads[0].objective.rate_min_per_s = Some(700.0);
    generous.workloads[1].objective = Promise::default();
    let mut script = Script::new(ResponderConfig::as_published(), generous);
    script.run(100, 300.0, 0.5);
    script.run(44, 500.0, 1.0);
    // 700 and 500 are 80 % of 1,500, and the memory serves a few reads.
    let Some(rate) = script.log[0].strip_prefix("143: throttle 1 to ") else {
        panic!("{:?}", script.log);
    };
    assert!((490.0..520.0).contains(&rate.parse::<f64>().unwrap()));
    // The model predicts no violation, but the violation continues.
    script.run(14, 500.0, 1.0);
    assert_eq!(script.log[1..], ["155: throttle 1 to 120"]);
    // Its release depends on its first demand of 600, not on its limit: 550 and 500 would be safe.
    script.run(240, 550.0, 0.9);
    assert_eq!(script.log.len(), 2, "{:?}", script.log);
    script.run(60, 300.0, 0.5);
    assert!(script.log[2].ends_with("unthrottle 1"), "{:?}", script.log);
}

#[test]
fn slightly_exceeded_throttle_is_tightened_at_once() {
    let mut generous = site();
    generous.workloads[0].objective.rate_min_per_s = Some(700.0);
    generous.workloads[1].objective = Promise::default();
    let mut script = Script::new(ResponderConfig::as_published(), generous);
    script.overshoot = 1.05;
    script.run(100, 300.0, 0.5);
    script.run(44, 500.0, 1.0);
    // The model attributes the violation to the excess above the limit; a limit lowered by the excess would change nothing.
    script.run(22, 500.0, 1.0);
    assert_eq!(
        script.log,
        ["143: throttle 1 to 501", "155: throttle 1 to 120"]
    );
    script.run(2, 500.0, 1.0);
    assert!(script.log[2].contains("create for 0"), "{:?}", script.log);
}

#[test]
fn throttle_during_a_backlog_is_released_after_it() {
    let mut script = generous();
    script.queue = Some(0.0);
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    // For an hour the queue grows by 391 per second. Then there is capacity for one and a half times its 600.
    script.run(360, 1000.0, 0.9);
    script.run(20, 150.0, 0.5);
    assert_eq!(script.log[0], "143: throttle 1 to 209");
    assert!(script.log[1].contains("throttle 1 to 89"));
    // It gets 900 when the database demands its 1,000 again.
    script.run(44, 700.0, 1.0);
    assert!(script.log[2].contains("throttle 1 to 20"));
    // With a database load of 300 there is capacity for the scan's 600, but not for 900.
    script.run(360, 300.0, 0.5);
    assert!(script.log[3].contains("throttle 1 to"), "{:?}", script.log);
    script.run(4000, 300.0, 0.5);
    assert!(script.log[4].ends_with("unthrottle 1"), "{:?}", script.log);
}

#[test]
fn unmeasured_throttle_has_a_cooldown_that_doubles() {
    let mut script = generous();
    script.measured = false;
    script.run(100, 300.0, 0.5);
    for _ in 0..3 {
        script.run(44, 800.0, 1.0);
        let orders = script.log.len();
        while script.log.len() == orders {
            script.run(1, 1000.0, 0.9);
        }
    }
    // The limits are a fifth of the two-minute mean: about 120, depending on the disturbance.
    let words = |l: &String| l.split(" to ").next().unwrap_or_default().to_string();
    assert_eq!(
        script.log.iter().map(words).collect::<Vec<_>>(),
        [
            "143: throttle 1",
            "203: unthrottle 1",
            "246: throttle 1",
            "366: unthrottle 1",
            "409: throttle 1",
            "649: unthrottle 1",
        ],
        "after 10, 20 and 40 minutes"
    );
    // A violation long after the release is not a relapse.
    script.run(600, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    script.run(120, 1000.0, 0.9);
    let last: Vec<&str> = script.log[6..].iter().map(|l| &l[..4]).collect();
    assert_eq!(last, ["1292", "1352"]);
}

#[test]
fn forecast_creates_an_appliance_before_the_violation() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.foresee(&forecast(DB, 500, 1100.0));
    script.event(ApplianceEvent::Serving);
    script.run(399, 300.0, 0.5);
    assert_eq!(
        script.log,
        ["100: create for 0 on 0: 3 GiB, address-migration, \"zones\""]
    );
    assert!(script.responder.decisions()[0].interference.is_none());
    assert!(!script.responder.is_broken(SCAN));
}

#[test]
fn forecast_without_a_violation_is_ignored() {
    let mut script = Script::new(ResponderConfig::as_published(), site());
    script.run(100, 300.0, 0.5);
    // 500 and the scan's 600 are less than 80 % of 1,500.
    script.foresee(&forecast(DB, 150, 500.0));
    script.run(20, 300.0, 0.5);
    assert!(script.log.is_empty(), "{:?}", script.log);
    let decision = &script.responder.decisions()[0];
    let why = "all objectives are predicted to be met without it";
    let all = decision.remedies.iter();
    assert!(all.clone().all(|r| r.refused.as_deref() == Some(why)));
    // A violation in spite of the forecast is treated as early as any other.
    script.run(44, 800.0, 1.0);
    assert!(script.log[0].starts_with("163: create"), "{:?}", script.log);
}

#[test]
fn idle_workload_is_prepared_by_its_recorded_peak() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 0.0, 0.0);
    script.foresee(&forecast(DB, 150, 1100.0));
    assert_eq!(
        script.log,
        ["100: create for 0 on 0: 3 GiB, address-migration, \"zones\""]
    );
    // A workload that writes in its peak is not cached, even if it writes little now.
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 0.0, 0.0);
    let mut writes = forecast(DB, 150, 1100.0);
    writes.habit.write_share = 0.7;
    script.foresee(&writes);
    assert!(script.log.is_empty(), "{:?}", script.log);
}

#[test]
fn forecast_during_another_creation_is_acted_on_later() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    assert_eq!(script.log.len(), 1);
    script.foresee(&forecast(SCAN, 300, 1000.0));
    // The latest forecast counts.
    script.foresee(&forecast(SCAN, 310, 1400.0));
    script.run(3, 800.0, 1.0);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    script.event(ApplianceEvent::Serving);
    script.hits = 0.95;
    script.run(1, 1000.0, 0.9);
    assert!(
        script.log[1].starts_with("148: create for 1"),
        "{:?}",
        script.log
    );
    let decision = script.responder.decisions().last().unwrap();
    let at = units::Nanos::from_secs(3100);
    assert_eq!(decision.cause, Cause::Forecast { workload: SCAN, at });
    // It is acted on only once.
    script.run(20, 1000.0, 0.9);
    assert_eq!(script.log.len(), 2, "{:?}", script.log);
}

#[test]
fn forecast_of_a_past_peak_is_forgotten() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.run(44, 800.0, 1.0);
    script.foresee(&forecast(SCAN, 150, 1400.0));
    script.run(80, 800.0, 1.0);
    script.event(ApplianceEvent::Serving);
    script.hits = 0.95;
    script.run(20, 1000.0, 0.9);
    assert_eq!(script.log.len(), 1, "{:?}", script.log);
    let acted = script.responder.decisions().iter();
    assert_eq!(acted.filter(|d| taken(&d.remedies).is_some()).count(), 1);
}

#[test]
fn failed_forecast_appliance_is_retried_on_another_host() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.foresee(&forecast(DB, 300, 1100.0));
    script.run(5, 300.0, 0.5);
    script.event(ApplianceEvent::Failed {
        why: "no image".into(),
    });
    script.run(5, 300.0, 0.5);
    assert_eq!(
        script.log,
        [
            "100: create for 0 on 0: 3 GiB, address-migration, \"zones\"",
            "106: create for 0 on 1: 3 GiB, address-migration, \"zones\"",
        ]
    );
    // Once the appliance serves, no further order follows.
    script.event(ApplianceEvent::Serving);
    script.run(50, 300.0, 0.5);
    script.event(ApplianceEvent::Removed);
    script.run(50, 300.0, 0.5);
    assert_eq!(script.log.len(), 2, "{:?}", script.log);
}

#[test]
fn failed_host_is_avoided_for_a_limited_time() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    script.foresee(&forecast(DB, 900, 1100.0));
    script.event(ApplianceEvent::Failed {
        why: "no image".into(),
    });
    script.run(1, 300.0, 0.5);
    assert!(script.log[1].contains("on 1"), "{:?}", script.log);
    script.event(ApplianceEvent::Serving);
    script.event(ApplianceEvent::Removed);
    // Half an hour later, without any violation in between.
    script.run(180, 300.0, 0.5);
    script.foresee(&forecast(DB, 900, 1100.0));
    assert!(script.log[2].contains("on 0"), "{:?}", script.log);
}

#[test]
fn old_decisions_are_forgotten() {
    let mut script = Script::new(appliance_only(), site());
    script.run(100, 300.0, 0.5);
    // Each forecast without a violation adds a decision.
    for n in 0..slo::DECISIONS_MAX as u64 + 5 {
        script.foresee(&forecast(DB, 200 + n, 500.0));
    }
    let decisions = script.responder.decisions();
    assert_eq!(decisions.len(), slo::DECISIONS_MAX);
    let at = units::Nanos::from_secs(10 * (200 + 5));
    assert_eq!(decisions[0].cause, Cause::Forecast { workload: DB, at });
}
