//! Mirrors as remedies of a live host.

use manager::view::ResponseState;
use manager::wire::{CopiesWindow, ExtentAccess, MirrorOrder, MirrorWindow};
use model::ExtentHeat;

use super::host::Host;
use super::responses::{QUICK, noisy, responses, said};

const MIB: u64 = 1 << 20;

/// Returns accesses to 512 extents of 1 MiB on the slow device: ten are read a hundred times each, and one is written
/// as often.
fn read_much() -> ExtentAccess {
    ExtentAccess {
        extent_bytes: MIB,
        places: "512x2".to_string().try_into().unwrap(),
        reads: ExtentHeat::of((20..30).map(|e| (e, 100)).chain([(40, 50)]).collect()),
        writes: ExtentHeat::of(vec![(40, 100)]),
    }
}

fn mirror(access: Option<ExtentAccess>) -> MirrorWindow {
    MirrorWindow {
        copies: None,
        access,
    }
}

/// Returns a host with a database that reads more than its device can serve, but not much more.
fn busy(mode: &str) -> Host {
    let quick = QUICK.replace("patience = 0.1", "patience = 0.01");
    let modes = format!(
        "modes = {{ throttle = \"off\", memory-share = \"off\", move = \"off\", mirror = \"{mode}\" }}"
    );
    let mut host = noisy(&format!("[response]\n{modes}\n{quick}"));
    host.takes = vec![("orders", 0.8, 0), ("batch", 0.18, 0)];
    host.mirrors = vec![
        ("orders", mirror(Some(read_much()))),
        ("batch", mirror(None)),
    ];
    host
}

fn ordered(host: &Host) -> Vec<MirrorOrder> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.remedies.mirrors.clone()
}

fn asked(host: &Host) -> Vec<String> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.remedies.access.clone()
}

#[test]
fn mirrors_are_ordered_while_needed() {
    let mut host = busy("auto");
    host.windows(1);
    let both = ["orders", "batch"];
    let mut access = asked(&host);
    access.sort();
    assert_eq!(access, ["batch", "orders"], "from the first miss on");
    host.windows(2);
    let order = ordered(&host).pop().expect("it is ordered");
    assert_eq!(order.volume, both[0]);
    assert_ne!(order.device, "slow-0");
    // The written extent is not mirrored.
    let extents: Vec<u32> = order.extents.iter().collect();
    assert!(extents.iter().all(|e| (20..30).contains(e)), "{extents:?}");
    let text = said(&mut host, "Remedy:").remove(0);
    for part in [
        "Remedy: mirror ",
        "of orders on",
        "of its reads",
        "predicted: utilization of slow-0",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(said(&mut host, "orders: mirror of").len(), 1);
    // The mirror has the predicted effect, and stays while it is needed.
    host.volumes[0].latency_us = 1000;
    host.takes = vec![("orders", 0.4, 0), ("batch", 0.18, 0)];
    let copies = CopiesWindow {
        device: order.device.clone(),
        bytes: u64::from(order.extents.count()) * MIB,
        read_share: 0.5,
        by_hand: false,
    };
    host.mirrors[0].1.copies = Some(copies);
    for window in 0..60 {
        host.windows(1);
        assert_eq!(ordered(&host), std::slice::from_ref(&order));
        let nothing_is_violated = window > 3;
        assert!(asked(&host).is_empty() || !nothing_is_violated);
    }
    // The database reads less: its device can serve all of it.
    host.takes = vec![("orders", 0.05, 0), ("batch", 0.18, 0)];
    host.volumes[0].ios = 25;
    host.windows(20);
    assert_eq!(ordered(&host), []);
    assert_eq!(said(&mut host, "orders: mirror on").len(), 1);
    let shown = responses(&mut host);
    assert_eq!(shown.len(), 1, "{shown:#?}");
    assert_eq!(shown[0].state, ResponseState::TakenBack);
    let copies = shown[0].copies.as_ref().expect("it is a mirror");
    assert_eq!((&copies.device, copies.reads > 0.0), (&order.device, true));
}

#[test]
fn uncreated_mirrors_are_cancelled_and_reported() {
    let mut host = busy("auto");
    host.windows(3);
    assert_eq!(ordered(&host).len(), 1);
    host.windows(13);
    assert_eq!(ordered(&host), []);
    let text = said(&mut host, "mirror cancelled").remove(0);
    assert!(text.contains("the array has not created it"), "{text}");
    let mut states = responses(&mut host).into_iter().map(|r| r.state);
    assert!(states.any(|s| s == ResponseState::TakenBack));
    host.windows(30);
    assert_eq!(ordered(&host), [], "not again for half an hour");
}

#[test]
fn cached_manually_mirrored_or_rarely_read_extents_are_not_mirrored() {
    let nothing = |mut host: Host| {
        host.windows(10);
        assert_eq!(ordered(&host), []);
        let text = said(&mut host, "No remedy").remove(0);
        assert!(
            text.contains("mirror: no extents with many reads"),
            "{text}"
        );
    };
    let mut host = busy("auto");
    host.mirrors[0].1.copies = Some(CopiesWindow {
        device: "fast-0".into(),
        bytes: MIB,
        read_share: 0.1,
        by_hand: true,
    });
    nothing(host);
    let mut host = busy("auto");
    host.mirrors[0].1.access.as_mut().unwrap().reads = ExtentHeat::of(vec![(20, 99)]);
    nothing(host);
    let mut host = busy("auto");
    host.mirrors[0].1.access = None;
    nothing(host);
    // Hosts that cannot mirror do not evaluate mirrors.
    let mut host = busy("auto");
    host.mirrors.clear();
    host.windows(10);
    assert_eq!((ordered(&host), asked(&host)), (vec![], vec![]));
}

#[test]
fn recommended_mirrors_are_not_ordered() {
    let mut host = busy("recommend");
    for _ in 0..10 {
        host.windows(1);
        assert_eq!(ordered(&host), []);
    }
    let text = said(&mut host, "Recommended remedy: mirror ").remove(0);
    assert!(text.contains("the mode of mirror is recommend"), "{text}");
}

#[test]
fn invalid_mirror_reports_are_refused_with_their_volume() {
    let refused = |change: fn(&mut MirrorWindow)| {
        let mut host = busy("auto");
        change(&mut host.mirrors[0].1);
        format!("{:?}", host.window().unwrap_err())
    };
    let beyond = |m: &mut MirrorWindow| {
        m.access.as_mut().unwrap().writes = ExtentHeat::of(vec![(512, 1)]);
    };
    assert!(refused(beyond).contains("requests to extent 512, but the volume has 512 extents"));
    let nowhere = |m: &mut MirrorWindow| {
        m.access.as_mut().unwrap().places = "512x9".to_string().try_into().unwrap();
    };
    assert!(refused(nowhere).contains("extents on device 9"));
    let short = |m: &mut MirrorWindow| {
        m.access.as_mut().unwrap().places = "9x2".to_string().try_into().unwrap();
    };
    assert!(refused(short).contains("9 extents of"));
    let share = |m: &mut MirrorWindow| {
        m.copies = Some(CopiesWindow {
            device: "fast-0".into(),
            bytes: 1,
            read_share: f64::NAN,
            by_hand: false,
        });
    };
    let text = refused(share);
    assert!(text.contains("orders") && text.contains("mirror"), "{text}");
}
