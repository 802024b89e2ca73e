//! Appliances as answers to broken objectives of a live host: memory of nodes that an operator has named.

use manager::view::ResponseState;
use manager::wire::{
    ApplianceOrder, ApplianceWindow, CacheWindow, ExtentAccess, MirrorWindow, Warm,
};
use model::ExtentHeat;
use slo::ApplianceEvent;

use super::host::Host;
use super::responses::{QUICK, noisy, responses, said};
use super::responses_cache;

const MIB: u64 = 1 << 20;
const NODE: &str = "[[response.nodes]]\nname = \"other\"\nuri = \"nbd+unix:///?socket=n.sock\"\nmemory = \"512 MiB\"\n";

/// A cache of 4 MiB, of which no parts are given.
fn cache(curve: &[(u64, f64)]) -> CacheWindow {
    CacheWindow {
        pool_bytes: 4 * MIB,
        in_parts: false,
        ..responses_cache::cache(curve)
    }
}

/// A database that reads 200 MiB over and over from a device that is full with that, and has a cache of 4 MiB.
pub(super) fn full(mode: &str, nodes: &str) -> Host {
    full_avoiding(mode, nodes, "30m")
}

/// Likewise; where one has failed none is tried for so long.
pub(super) fn full_avoiding(mode: &str, nodes: &str, avoid: &str) -> Host {
    let patience = format!("patience = 0.01\navoid_host = \"{avoid}\"");
    let quick = QUICK.replace("patience = 0.1", &patience);
    let others = "throttle = \"off\", memory-share = \"off\", mirror = \"off\", move = \"off\"";
    let modes = format!("modes = {{ {others}, appliance = \"{mode}\" }}");
    let mut host = noisy(&format!("[response]\n{modes}\n{nodes}{quick}"));
    host.takes = vec![("orders", 0.9, 0), ("batch", 0.05, 0)];
    let orders = cache(&[(200, 0.05)]);
    host.caches = vec![("orders", orders), ("batch", cache(&[(4096, 0.99)]))];
    host
}

fn ordered(host: &Host) -> Option<ApplianceOrder> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.remedies.appliances.first().cloned()
}

fn until_ordered(host: &mut Host) -> ApplianceOrder {
    for _ in 0..12 {
        host.windows(1);
        if let Some(order) = ordered(host) {
            return order;
        }
    }
    panic!("no appliance is ordered: {:?}", host.events())
}

/// How the first answer stands.
fn first(host: &mut Host) -> ResponseState {
    let shown = responses(host).into_iter().rev();
    let mut ordered = shown.filter(|r| r.remedy.is_some());
    ordered.next().expect("it was ordered").state
}

fn told(host: &mut Host, id: u64, event: Option<ApplianceEvent>) {
    host.appliances = vec![ApplianceWindow { id, event }];
    host.windows(1);
}

#[test]
fn a_node_is_ordered_for_the_volume_and_given_up_when_the_devices_do_without() {
    let mut host = full("auto", NODE);
    let order = until_ordered(&mut host);
    assert_eq!(
        (order.volume.as_str(), order.server.as_str()),
        ("orders", "other")
    );
    assert_eq!(order.at.as_deref(), Some("nbd+unix:///?socket=n.sock"));
    // Its device is full: the eighths that take most off it, and no more.
    assert_eq!(order.cache_bytes, 256 * MIB);
    let text = said(&mut host, "Remedy:").remove(0);
    for part in [
        "Remedy: caching appliance for orders: 256 MiB on other (95 % of its reads expected to hit)",
        "predicted: utilization of slow-0",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    told(&mut host, order.id, None);
    told(&mut host, order.id, Some(ApplianceEvent::Serving));
    assert_eq!(
        said(&mut host, "orders goes through its appliance").len(),
        1
    );
    assert_eq!(first(&mut host), ResponseState::InForce);
    // It does what was predicted, and stays while it is needed.
    host.volumes[0].latency_us = 200;
    host.takes = vec![("orders", 0.05, 0), ("batch", 0.05, 0)];
    host.array_reads = vec![("orders", 10)];
    for _ in 0..60 {
        host.windows(1);
        assert_eq!(ordered(&host).map(|o| o.id), Some(order.id));
    }
    // It asks for so little that its device does without.
    host.volumes[0].ios = 20;
    host.array_reads = vec![("orders", 1)];
    host.takes = vec![("orders", 0.005, 0), ("batch", 0.05, 0)];
    let mut windows = 0;
    while ordered(&host).is_some() {
        host.windows(1);
        windows += 1;
        assert!(windows < 2000, "it is never given up");
    }
    assert_eq!(said(&mut host, "appliance to be removed").len(), 1);
    assert_eq!(first(&mut host), ResponseState::TakenBack);
    told(&mut host, order.id, Some(ApplianceEvent::Removed));
    let orders = host.orders.as_ref().unwrap();
    assert_eq!(orders.remedies.appliances_taken, [order.id]);
}

#[test]
fn one_that_fails_is_said_to_have_and_its_node_is_avoided() {
    let mut host = full("auto", NODE);
    let order = until_ordered(&mut host);
    let failed = ApplianceEvent::Failed {
        why: "its cache node does not respond".into(),
    };
    told(&mut host, order.id, Some(failed));
    assert_eq!(ordered(&host), None);
    let text = said(&mut host, "appliance of orders failed").remove(0);
    assert!(text.contains("its cache node does not respond"), "{text}");
    assert_eq!(first(&mut host), ResponseState::TakenBack);
    host.appliances.clear();
    host.windows(60);
    assert_eq!(ordered(&host), None, "not again for half an hour");
}

#[test]
fn there_is_one_second_level_and_a_persons_goes_first() {
    let mut host = full("auto", NODE);
    host.second_by_hand = true;
    host.windows(12);
    assert_eq!(ordered(&host), None);
    let text = said(&mut host, "No remedy").remove(0);
    assert!(
        text.contains("appliance: no host has enough free CPUs and memory"),
        "{text}"
    );
    let mut host = full("recommend", NODE);
    host.windows(12);
    assert_eq!(ordered(&host), None);
    let text = said(
        &mut host,
        "Recommended remedy: caching appliance for orders",
    )
    .remove(0);
    assert!(
        text.contains("the mode of appliance is recommend"),
        "{text}"
    );
    // Without a cache there is nothing that a node could be a second level of.
    let mut host = full("auto", NODE);
    host.caches.clear();
    host.windows(12);
    assert_eq!(ordered(&host), None);
}

/// Extents of 1 MiB, of which these are read so often in each window.
fn reads(of: &[(std::ops::Range<u32>, u32)]) -> MirrorWindow {
    let touched = of
        .iter()
        .flat_map(|(extents, reads)| extents.clone().map(|e| (e, *reads)));
    MirrorWindow {
        copies: None,
        access: Some(ExtentAccess {
            extent_bytes: MIB,
            places: "512x2".to_string().try_into().unwrap(),
            reads: ExtentHeat::of(touched.collect()),
            writes: ExtentHeat::of(vec![]),
        }),
    }
}

/// What is ordered for a peak whose reads go here, after twenty minutes of others.
fn warm_after(before: &MirrorWindow, now: &MirrorWindow) -> Warm {
    let mut host = full("auto", NODE);
    let (late, takes) = (host.volumes[0].latency_us, host.takes.clone());
    host.volumes[0].latency_us = 200;
    host.takes = vec![("orders", 0.05, 0), ("batch", 0.05, 0)];
    host.mirrors = vec![("orders", before.clone())];
    // Of a second each.
    host.windows(1200);
    assert_eq!(ordered(&host), None);
    let orders = host.orders.as_ref().expect("a window was reported");
    assert_eq!(
        orders.remedies.access,
        ["orders"],
        "what is hot is told before anything is missed"
    );
    (host.volumes[0].latency_us, host.takes) = (late, takes);
    host.mirrors = vec![("orders", now.clone())];
    until_ordered(&mut host).warm
}

#[test]
fn what_is_hot_and_was_before_is_read_in_advance() {
    // Zones of 64 MiB: the second, a little of the fifth, and next to nothing of the first.
    let hot = reads(&[(0..1, 1), (70..80, 100), (256..260, 100)]);
    match warm_after(&hot, &hot) {
        Warm::Zones {
            zones,
            zone,
            rate_per_s,
        } => {
            assert_eq!((zones, zone.0), (vec![1, 4], 64 * MIB));
            // A fifth of what the full device has to spare, and ten at least.
            assert_eq!(rate_per_s, Some(10.0));
        }
        Warm::Cold { why } => panic!("{why}"),
    }
    // Of a host that has only just come nobody knows what was hot before.
    let mut new = full("auto", NODE);
    new.mirrors = vec![("orders", hot)];
    match until_ordered(&mut new).warm {
        Warm::Cold { why } => assert!(why.contains("are unknown"), "{why}"),
        Warm::Zones { zones, .. } => panic!("{zones:?}"),
    }
}
