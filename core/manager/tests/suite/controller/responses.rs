//! Violated objectives of a live host: remedies that are recommended, ordered and ended.

use manager::question::{Answer, Question};
use manager::service::Service;
use manager::settings::{ManagerConfig, Settings};
use manager::view::{ResponseState, ResponseView};
use manager::wire::Throttle;

use super::host::{BASE, FakeVolume, Host, WINDOW, volume};
use super::with;

/// A violation is three of three windows, and a remedy settles in two.
pub(super) const QUICK: &str = r#"
[response.workflow]
settle = "2s"
look_again = "5s"
patience = 0.1
[response.workflow.detect]
samples = 3
violating_min = 3
clear_below = 0.5
[response.workflow.release]
samples = 3
cooldown = "10s"
"#;

const AUTO: &str = "[response]\nmodes.throttle = \"auto\"\n";

/// Returns a host with a database that violates its objective of 2 ms, and a batch job that uses six sevenths of their
/// device.
pub(super) fn noisy(config: &str) -> Host {
    let orders = volume("orders", "slow", "slow-0", 200, 5000);
    let batch = FakeVolume {
        class: "default",
        ..volume("batch", "slow", "slow-0", 1000, 5000)
    };
    let mut host = Host::new(&with(config), vec![orders, batch]);
    host.takes = vec![("orders", 0.1, 0), ("batch", 0.85, 0)];
    host
}

fn auto() -> Host {
    noisy(&format!("{AUTO}{QUICK}"))
}

fn batch(host: &mut Host) -> &mut FakeVolume {
    let batch = host.volumes.iter_mut().find(|v| v.name == "batch");
    batch.expect("it is there")
}

/// Applies the throttle to the batch job, and then the database meets its objective.
fn obey(host: &mut Host) -> Option<Throttle> {
    let orders = host.orders.as_ref().expect("a window was reported");
    let limit = orders.throttles.iter().find(|o| o.volume == "batch");
    let limit = limit.map(|o| o.throttle);
    batch(host).throttle = limit;
    if let Some(iops) = limit.and_then(|t| t.iops) {
        batch(host).ios = iops;
        host.volumes[0].latency_us = 1000;
        host.takes = vec![("orders", 0.1, 0), ("batch", 0.00085 * iops as f64, 16)];
    }
    limit
}

pub(super) fn responses(host: &mut Host) -> Vec<ResponseView> {
    match host.ask(Question::Responses { limit: 100 }) {
        Ok(Answer::Responses(responses)) => responses,
        other => panic!("{other:?}"),
    }
}

pub(super) fn said(host: &mut Host, what: &str) -> Vec<String> {
    host.tick();
    let all = host.events().into_iter();
    all.filter(|text| text.contains(what)).collect()
}

fn held(host: &Host) -> Option<Throttle> {
    let orders = host.orders.as_ref()?;
    let order = orders.throttles.iter().find(|o| o.volume == "batch");
    order.map(|o| o.throttle)
}

#[test]
fn remedies_are_recommended_by_default() {
    let mut host = noisy(&format!("[response]\nmodes.move = \"off\"\n{QUICK}"));
    for _ in 0..40 {
        host.windows(1);
        assert_eq!(host.orders.as_ref().unwrap().throttles, []);
    }
    let broken = said(&mut host, "violates its objective");
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(
        broken[0].contains("orders violates its objective, p99 at most 2ms, in 3 of the last 3"),
        "{broken:?}"
    );
    // The situation is evaluated again every five windows, but recommended once.
    let recommended = said(&mut host, "Recommended");
    assert_eq!(recommended.len(), 1, "{recommended:?}");
    let text = &recommended[0];
    for part in [
        "batch uses 85 % of slow-0, which is saturated",
        "Recommended remedy: throttle batch to 8",
        "predicted: utilization of slow-0 79 % instead of 95 %",
        "Not applied: the mode of throttle is recommend",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    let shown = responses(&mut host);
    assert_eq!(shown.len(), 1, "{shown:?}");
    let r = &shown[0];
    assert_eq!(
        (&*r.volume, r.to.as_deref(), r.state),
        ("orders", Some("batch"), ResponseState::Recommended)
    );
    assert!((770.0..830.0).contains(&r.rate_per_s.unwrap()), "{r:?}");
    assert_eq!(host.status().objectives_violated, 1);
    assert_eq!(host.status().held, 0);
}

#[test]
fn automatic_throttle_is_ordered_with_a_lease_and_revoked() {
    let mut host = auto();
    host.windows(2);
    assert_eq!(held(&host), None, "two windows are no violation");
    host.windows(1);
    let limit = obey(&mut host).expect("it is held");
    let iops = limit.iops.unwrap();
    assert!((770..830).contains(&iops), "{iops}");
    assert_eq!(limit.lasting_ns, 3 * WINDOW);
    let Ok(Answer::Volume(view)) = host.ask(Question::Volume {
        volume: "batch".into(),
    }) else {
        panic!("it answers")
    };
    assert_eq!(view.throttle.unwrap().for_volume.as_deref(), Some("orders"));
    // The job requests as much as before, so the throttle remains.
    for _ in 0..30 {
        host.windows(1);
        assert_eq!(obey(&mut host).and_then(|t| t.iops), Some(iops));
    }
    let kept = said(&mut host, "meets its objective again");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(
        kept[0].contains(
            "no window has violated it since the violation was found; remedy: throttle batch to"
        ),
        "{kept:?}"
    );
    // The job is idle now.
    batch(&mut host).ios = 10;
    host.takes = vec![("orders", 0.1, 0), ("batch", 0.01, 0)];
    let mut left = 0;
    while held(&host).is_some() {
        host.windows(1);
        left += 1;
        assert!(left < 20, "it is held for ever");
    }
    assert!(left >= 3, "after {left} windows");
    assert_eq!(said(&mut host, "batch: throttle removed").len(), 1);
    let shown = responses(&mut host);
    assert_eq!(
        (shown.len(), shown[0].state),
        (1, ResponseState::TakenBack),
        "{shown:?}"
    );
    assert!(shown[0].recovered_ns.is_some() && shown[0].ended_ns.is_some());
    let Ok(Answer::Why(why)) = host.ask(Question::Why {
        volume: "batch".into(),
    }) else {
        panic!("it answers")
    };
    assert_eq!(why.responses, shown);
}

#[test]
fn lower_limit_of_an_operator_overrides_the_throttle() {
    let limited = |iops: Option<u64>, bandwidth: Option<u64>| {
        let mut host = auto();
        host.windows(3);
        host.order(Question::Throttle {
            volume: "batch".into(),
            to: Some(Throttle {
                iops,
                bandwidth_bytes_per_s: bandwidth,
                lasting_ns: 600 * WINDOW,
            }),
        });
        host.windows(1);
        held(&host).expect("it is held")
    };
    let lower = limited(Some(100), None);
    assert_eq!(lower.iops, Some(100));
    assert!(lower.lasting_ns > 500 * WINDOW, "{lower:?}");
    let higher = limited(Some(5000), None);
    assert!(higher.iops.unwrap() < 900, "{higher:?}");
    assert_eq!(higher.lasting_ns, 3 * WINDOW, "no longer than its lease");
    let both = limited(None, Some(4 << 20));
    assert!(both.iops.unwrap() < 900, "{both:?}");
    assert_eq!(both.bandwidth_bytes_per_s, Some(4 << 20));
}

#[test]
fn unmeasured_volumes_give_no_remedy_with_the_reason() {
    let mut host = auto();
    host.takes.clear();
    // The performance of its devices is not configured either.
    host.undescribed = vec!["slow"];
    host.windows(20);
    assert_eq!(held(&host), None);
    let none = said(&mut host, "No remedy");
    assert_eq!(none.len(), 1, "{none:?}");
    for part in [
        "no volume is known to interfere with it",
        "too few samples to test for interference",
        "the device time of each volume is not measured on this host",
    ] {
        assert!(none[0].contains(part), "{part:?} is not in {none:?}");
    }
    assert_eq!(responses(&mut host)[0].state, ResponseState::NoRemedy);
}

#[test]
fn removed_volume_is_forgotten_and_returns_as_a_new_one() {
    let mut host = auto();
    host.windows(3);
    assert!(held(&host).is_some());
    let gone = host.volumes.remove(1);
    host.windows(1);
    assert_eq!(host.orders.as_ref().unwrap().throttles, []);
    // Another volume reuses the number, and is not throttled for the earlier volume.
    let other = FakeVolume {
        name: "other",
        ios: 5,
        ..gone.clone()
    };
    host.volumes.push(other);
    host.takes = vec![("orders", 0.1, 0), ("other", 0.01, 0)];
    host.windows(10);
    assert_eq!(host.orders.as_ref().unwrap().throttles, []);
    host.volumes.push(gone);
    host.takes.push(("batch", 0.85, 0));
    host.windows(8);
    assert!(held(&host).is_some());
    assert_eq!(host.orders.as_ref().unwrap().throttles.len(), 1);
}

#[test]
fn throttles_end_after_a_restart_a_new_agent_or_a_pause() {
    let mut host = auto();
    host.windows(3);
    assert!(held(&host).is_some());
    host.restart_controller();
    host.register();
    host.windows(1);
    assert_eq!(held(&host), None, "it is not known why");
    host.windows(4);
    assert!(held(&host).is_some(), "and found again");
    // Another agent is accepted only after the previous one was late.
    host.now_ns += 6 * WINDOW;
    host.register();
    host.windows(1);
    assert_eq!(held(&host), None);
    assert_eq!(said(&mut host, "its agent has restarted").len(), 1);
    host.order(Question::Pause);
    host.windows(10);
    assert_eq!(held(&host), None);
    let paused = said(&mut host, "Not applied: the controller is paused");
    assert_eq!(paused.len(), 1, "{paused:?}");
}

/// Orders in the middle of a window are complete, too. They do not renew leases without the evaluation of a window.
#[test]
fn throttle_is_renewed_only_after_a_window() {
    let mut host = auto();
    host.windows(3);
    let soon = host.tell_of_jobs().unwrap();
    assert_eq!(
        soon.throttles.len(),
        1,
        "it is still within a window or two"
    );
    host.now_ns += 4 * WINDOW;
    let late = host.tell_of_jobs().unwrap();
    assert_eq!(late.throttles, []);
}

#[test]
fn remedy_modes_can_be_reloaded() {
    let mut host = noisy(QUICK);
    host.windows(5);
    let reload = |host: &mut Host, mode: &str| {
        let config = with(&format!("[response]\nmodes.throttle = \"{mode}\"\n{QUICK}"));
        let (now, actor) = (host.now(), manager::question::Actor("somebody".into()));
        let settings = super::host::settings(&config);
        host.managed.reload(now, &actor, settings).unwrap();
    };
    // Existing measurements are valid for the next evaluation.
    reload(&mut host, "auto");
    host.windows(6);
    assert!(held(&host).is_some());
    reload(&mut host, "recommend");
    host.windows(1);
    assert_eq!(held(&host), None);
    assert_eq!(said(&mut host, "were reset after a change").len(), 1);
    host.windows(10);
    assert_eq!(held(&host), None);
    reload(&mut host, "off");
    let before = said(&mut host, "Recommended").len();
    host.windows(10);
    assert_eq!(said(&mut host, "Recommended").len(), before);
}

#[test]
fn too_many_volumes_are_reported_once_without_a_remedy() {
    let mut host = auto();
    let batch = host.volumes[1].clone();
    for i in 0..255 {
        host.volumes.push(FakeVolume {
            name: Box::leak(format!("v{i}").into_boxed_str()),
            ios: 1,
            mib: 1,
            ..batch.clone()
        });
    }
    host.windows(8);
    assert_eq!(held(&host), None);
    assert_eq!(
        said(&mut host, "it has 257 volumes, the limit is 256").len(),
        1
    );
    host.volumes.pop();
    host.windows(4);
    assert!(held(&host).is_some());
}

#[test]
fn fault_names_file_line_and_key() {
    let refused = |text: &str| {
        let (words, read) = config::read::<ManagerConfig>("live.toml", text).unwrap();
        Settings::new(read, words).unwrap_err().to_string()
    };
    let text = refused(&with("[response.modes]\nops-share = \"auto\"\n"));
    assert!(text.starts_with("live.toml:"), "{text}");
    assert!(text.contains("response.modes.ops-share"), "{text}");
    assert!(
        text.contains("live devices cannot share their over-provisioning"),
        "{text}"
    );
    let long = BASE.replace("window = \"1s\"", "window = \"2m\"");
    let long = long.replace("\"2s\"", "\"4m\"").replace("\"4s\"", "\"8m\"");
    let text = refused(&format!("{long}[response.modes]\nthrottle = \"auto\"\n"));
    assert!(text.contains("at most 60 s"), "{text}");
    let tier = "[[tiers]]\nname = \"x\"\npreset = \"nvme-tlc\"\nread_latency = \"1us\"\n";
    let text = refused(&format!("{BASE}{tier}"));
    assert!(
        text.contains("read_latency: 1.0 µs is impossible")
            && text.contains("measure the device again"),
        "{text}"
    );
    // Without the table, no remedies are searched, and no problem is reported.
    let (words, read) = config::read::<ManagerConfig>("live.toml", &long).unwrap();
    assert_eq!(Settings::new(read, words).unwrap().response(), None);
}
