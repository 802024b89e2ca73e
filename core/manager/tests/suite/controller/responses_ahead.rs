//! Seasonal peaks: a live host starts remedies before they begin. Here a day has ten minutes, and an hour half a
//! minute.

use manager::service::Service;
use manager::store::{Change, Store};
use manager::view::{ResponseState, ResponseView};
use manager::wire::{ApplianceWindow, CacheWindow};
use slo::ApplianceEvent;

use super::host::{Host, settings};
use super::responses::{QUICK, noisy, responses, said};
use super::{responses_cache, with};

const MIB: u64 = 1 << 20;
const NODE: &str = "[[response.nodes]]\nname = \"other\"\nuri = \"nbd+unix:///?socket=n.sock\"\nmemory = \"512 MiB\"\n";
const AHEAD: &str =
    "[response.ahead]\nlead = \"60s\"\nseasonal = { season = \"10m\", slot = \"30s\" }\n";
const DAY_S: u64 = 600;
/// Start and end of the peak, in seconds of the day.
const PEAK: std::ops::Range<u64> = 240..300;

fn config(modes: &str, ahead: &str) -> String {
    let quick = QUICK.replace("patience = 0.1", "patience = 0.01");
    format!(
        "[response]\nmodes = {{ throttle = \"off\", memory-share = \"off\", mirror = \"off\", {modes} }}\n{ahead}{NODE}{quick}"
    )
}

fn appliance(mode: &str) -> String {
    config(&format!("move = \"off\", appliance = \"{mode}\""), AHEAD)
}

/// Returns a cache of 4 MiB. Its curve is reported on request.
fn cache(curve: Option<&[(u64, f64)]>) -> CacheWindow {
    let known = responses_cache::cache(curve.unwrap_or(&[]));
    CacheWindow {
        pool_bytes: 4 * MIB,
        in_parts: false,
        curve: known.curve.filter(|_| curve.is_some()),
        ..known
    }
}

/// Events of a day.
#[derive(Debug, Default)]
struct Day {
    /// Second of the day in which an appliance was first ordered, and second in which it was no longer ordered.
    ordered: Option<u64>,
    given_up: Option<u64>,
    /// Windows with a violation of the objective.
    violated: u64,
    /// Volumes whose curves are requested just before the peak.
    curves_before: Vec<String>,
}

fn second(host: &Host) -> u64 {
    host.now().unix_ms / 1000 % DAY_S
}

/// A database that reads 200 MiB repeatedly in its peak, from a device that is overloaded then. Outside the peak it
/// reads little.
struct World {
    host: Host,
    /// True if caches report curves.
    curves: bool,
    peak: bool,
}

impl World {
    fn new(config: &str) -> Self {
        let mut host = noisy(config);
        host.volumes[1].ios = 50;
        World {
            host,
            curves: true,
            peak: true,
        }
    }

    fn ordered(&self) -> Option<u64> {
        let orders = self.host.orders.as_ref()?;
        orders.remedies.appliances.first().map(|a| a.id)
    }

    /// Runs a window: the agent executes its orders, and the load follows the time of day.
    fn window(&mut self) -> bool {
        let ordered = self.ordered();
        let host = &mut self.host;
        host.appliances = match (ordered, host.appliances.first()) {
            (Some(id), _) => vec![ApplianceWindow {
                id,
                event: Some(ApplianceEvent::Serving),
            }],
            (None, Some(before)) if before.event == Some(ApplianceEvent::Serving) => {
                vec![ApplianceWindow {
                    id: before.id,
                    event: Some(ApplianceEvent::Removed),
                }]
            }
            _ => vec![],
        };
        let served = ordered.is_some();
        // Time of day of the next window.
        let loud = self.peak && PEAK.contains(&second(host));
        let ios = if loud { 200 } else { 20 };
        let reads = if served { ios / 20 } else { ios };
        let violated = loud && !served;
        host.volumes[0].ios = ios;
        host.volumes[0].latency_us = if violated { 5000 } else { 500 };
        host.array_reads = vec![("orders", reads)];
        host.takes = vec![("orders", 0.0045 * reads as f64, 0), ("batch", 0.05, 0)];
        let asked = host.orders.as_ref().map(|o| o.remedies.curves.clone());
        let asked = asked.unwrap_or_default();
        let curves = self.curves;
        let told = |name: &str| curves && asked.iter().any(|n| n == name);
        let orders = cache(told("orders").then_some(&[(200, 0.05)]));
        let batch = cache(told("batch").then_some(&[(4096, 0.99)]));
        host.caches = vec![("orders", orders), ("batch", batch)];
        host.windows(1);
        violated
    }

    /// Runs the rest of a day.
    fn day(&mut self) -> Day {
        let mut day = Day::default();
        loop {
            day.violated += u64::from(self.window());
            let now = second(&self.host);
            if self.ordered().is_some() {
                day.ordered.get_or_insert(now);
            } else if day.ordered.is_some() {
                day.given_up.get_or_insert(now);
            }
            if now == PEAK.start - 1 {
                let orders = self.host.orders.as_ref().expect("a window was reported");
                day.curves_before.clone_from(&orders.remedies.curves);
            }
            if now == 0 {
                return day;
            }
        }
    }

    fn until(&mut self, second_of_day: u64) {
        while second(&self.host) != second_of_day {
            self.window();
        }
    }

    fn ahead(&mut self) -> Vec<ResponseView> {
        let all = responses(&mut self.host).into_iter().rev();
        all.filter(|r| r.peak.is_some()).collect()
    }
}

fn is_ahead(day: &Day) -> bool {
    day.violated == 0 && day.ordered.is_some_and(|s| (175..190).contains(&s))
}

#[test]
fn peak_of_two_days_is_remedied_in_advance_on_the_third() {
    let mut world = World::new(&appliance("auto"));
    for _ in 0..2 {
        let day = world.day();
        assert!(day.violated >= 3, "{day:?}");
        assert!(day.ordered.is_some_and(|s| s > PEAK.start), "{day:?}");
        assert!(day.given_up.is_some(), "{day:?}");
    }
    assert_eq!(world.ahead(), []);
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
    assert!(day.given_up.is_some_and(|s| s > PEAK.end), "{day:?}");
    assert_eq!(day.curves_before, ["batch", "orders"]);
    let text = said(&mut world.host, "a peak of").remove(0);
    for part in [
        "orders: a peak of 200 requests/s is forecast to begin in 1m, from the last 2 seasons. Remedy: caching appliance for orders: 64 MiB on other (30 % of its reads expected to hit)",
        "predicted: utilization of slow-0 68 % instead of 94 %",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    let over = said(&mut world.host, "the peak has ended");
    assert_eq!(over.len(), 1, "{over:?}");
    assert!(
        over[0].contains("highest rate 200 requests/s, forecast 200; 0 of 60 windows violated its objective; remedy applied in advance: caching appliance for orders"),
        "{over:?}"
    );
    let shown = world.ahead();
    assert_eq!(shown.len(), 1, "{shown:?}");
    let outcome = shown[0].peak.as_ref().and_then(|p| p.outcome).unwrap();
    assert_eq!(
        (shown[0].state, outcome.violated, outcome.windows),
        (ResponseState::TakenBack, 0, 60)
    );
}

#[test]
fn day_without_the_peak_revokes_the_remedy() {
    let mut world = World::new(&appliance("auto"));
    for _ in 0..3 {
        world.day();
    }
    world.peak = false;
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
    // The appliance stays until the first slot of the peak is over. Then the general rules of appliances apply.
    assert!(
        day.given_up.is_some_and(|s| (440..460).contains(&s)),
        "{day:?}"
    );
    let none = said(&mut world.host, "the peak did not occur");
    assert_eq!(none.len(), 1, "{none:?}");
    assert!(none[0].contains("highest rate 20 requests/s, forecast 200"));
    assert_eq!(said(&mut world.host, "appliance to be removed").len(), 4);
}

#[test]
fn recommended_remedy_is_shown_once_per_peak_and_not_applied() {
    let mut world = World::new(&appliance("recommend"));
    for _ in 0..4 {
        let day = world.day();
        assert_eq!((day.ordered, day.violated), (None, 60));
    }
    let texts = said(&mut world.host, "a peak of");
    assert_eq!(texts.len(), 2, "{texts:?}");
    for part in [
        "Recommended remedy: caching appliance for orders",
        "Not applied: the mode of appliance is recommend",
    ] {
        assert!(texts[0].contains(part), "{part:?} is not in {texts:?}");
    }
    let over = said(&mut world.host, "the peak has ended");
    assert_eq!(over.len(), 2, "{over:?}");
    assert!(over[0].contains("60 of 60 windows violated its objective; no remedy was applied"));
    let shown = world.ahead();
    let states: Vec<ResponseState> = shown.iter().map(|r| r.state).collect();
    assert_eq!(states, [ResponseState::Recommended; 2]);
}

#[test]
fn peaks_are_not_forecast_without_the_ahead_table() {
    let modes = "move = \"off\", appliance = \"auto\"";
    let mut world = World::new(&config(modes, ""));
    for _ in 0..3 {
        let day = world.day();
        assert!(day.ordered.is_some_and(|s| s > PEAK.start), "{day:?}");
    }
    assert_eq!(world.ahead(), []);
    assert_eq!(seasons(&mut world.host), 0);
}

/// Returns the number of stored seasonal values.
fn seasons(host: &mut Host) -> usize {
    let values = host.store.values().unwrap();
    let of_seasons = values.iter().filter(|(key, _)| key.starts_with("season/"));
    of_seasons.count()
}

#[test]
fn seasons_survive_a_controller_restart() {
    let mut world = World::new(&appliance("auto"));
    for _ in 0..2 {
        world.day();
    }
    // One per slot of a day, for the only volume with an objective.
    assert_eq!(seasons(&mut world.host), 20);
    world.until(100);
    world.host.restart_controller();
    world.host.register();
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
    // A controller without this history starts again.
    let mut other = World::new(&appliance("auto"));
    other.day();
    let all = other.host.store.values().unwrap().into_iter();
    let keys = all.map(|(key, _)| key).filter(|k| k.starts_with("season/"));
    let gone: Vec<Change> = keys.map(|key| Change::Remove { key }).collect();
    other.day();
    other.host.store.commit(&gone).unwrap();
    other.host.restart_controller();
    other.host.register();
    let day = other.day();
    assert!(day.violated >= 3, "{day:?}");
}

/// Slots follow the wall clock. The controller's own time since its first start has no time of day.
#[test]
fn clock_adjustment_does_not_change_season_slots() {
    let mut world = World::new(&appliance("auto"));
    for _ in 0..2 {
        world.day();
    }
    world.host.unix_ms += 150_000;
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
}

#[test]
fn restarted_responder_keeps_its_seasons() {
    let mut world = World::new(&appliance("auto"));
    for _ in 0..2 {
        world.day();
    }
    world.until(100);
    let other = appliance("auto").replace("look_again = \"5s\"", "look_again = \"6s\"");
    let (now, actor) = (
        world.host.now(),
        manager::question::Actor("somebody".into()),
    );
    let changed = settings(&with(&other));
    world.host.managed.reload(now, &actor, changed).unwrap();
    world.window();
    assert_eq!(said(&mut world.host, "were reset after a change").len(), 1);
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
    // A volume that is absent for some time keeps its identity.
    world.until(50);
    let orders = world.host.volumes.remove(0);
    world.host.takes.remove(0);
    world.host.caches.remove(0);
    world.host.array_reads.clear();
    world.host.windows(20);
    world.host.volumes.insert(0, orders);
    let day = world.day();
    assert!(is_ahead(&day), "{day:?}");
}

#[test]
fn peak_without_a_curve_gets_no_appliance_but_other_remedies() {
    let mut world = World::new(&appliance("auto"));
    world.curves = false;
    for _ in 0..3 {
        let day = world.day();
        assert_eq!((day.ordered, day.violated), (None, 60));
    }
    let none = said(&mut world.host, "a peak of");
    assert_eq!(none.len(), 1, "{none:?}");
    for part in [
        "no miss-ratio curve of an earlier peak is known",
        "No remedy",
    ] {
        assert!(none[0].contains(part), "{part:?} is not in {none:?}");
    }
    let modes = "move = \"recommend\", appliance = \"off\"";
    let mut world = World::new(&config(modes, AHEAD));
    world.curves = false;
    for _ in 0..3 {
        world.day();
    }
    let texts = said(&mut world.host, "a peak of");
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(
        texts[0].contains("Recommended remedy: move orders to"),
        "{texts:?}"
    );
}

#[test]
fn invalid_season_record_is_reported_and_does_not_stop_the_start() {
    let mut world = World::new(&appliance("auto"));
    world.day();
    let bad = Change::Put {
        key: "season/alpha/orders/8".into(),
        value: "{\"season_ns\":7}".into(),
    };
    world.host.store.commit(&[bad]).unwrap();
    let before = seasons(&mut world.host);
    world.host.restart_controller();
    let texts = said(&mut world.host, "about peaks that could not be read");
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("season/alpha/orders/8"), "{texts:?}");
    assert_eq!(seasons(&mut world.host), before - 1);
    world.host.restart_controller();
    assert_eq!(
        said(&mut world.host, "about peaks that could not be read").len(),
        1,
        "said once"
    );
}

#[test]
fn invalid_ahead_options_are_refused_with_their_key() {
    for (ahead, key) in [
        ("seasonal = { slot = \"1500ms\" }", "ahead.seasonal.slot"),
        ("seasonal = { slot = \"10s\" }", "ahead.seasonal.slot"),
        ("over_mean = 1.0", "ahead.over_mean"),
        ("lead = \"0s\"", "ahead.lead"),
    ] {
        let text = with(&format!("[response.ahead]\n{ahead}\n"));
        let read = config::read::<manager::settings::ManagerConfig>("t.toml", &text);
        let (words, text) = read.unwrap();
        let fault = manager::settings::Settings::new(text, words).unwrap_err();
        assert!(fault.to_string().contains(key), "{fault}");
    }
}
