//! Appliances as remedies of a live host, with memory of nodes that an operator has configured.

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

/// Returns a cache of 4 MiB without shares.
fn cache(curve: &[(u64, f64)]) -> CacheWindow {
    CacheWindow {
        pool_bytes: 4 * MIB,
        in_parts: false,
        ..responses_cache::cache(curve)
    }
}

/// Returns a host with a database that reads 200 MiB repeatedly, overloads its device with that, and has a cache of 4
/// MiB.
pub(super) fn full(mode: &str, nodes: &str) -> Host {
    full_avoiding(mode, nodes, "30m")
}

/// Returns the same host with a time in which no node is tried after a failure.
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

/// Returns the state of the first response.
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
fn cache_node_is_ordered_for_a_volume_and_released_later() {
    let mut host = full("auto", NODE);
    let order = until_ordered(&mut host);
    assert_eq!(
        (order.volume.as_str(), order.server.as_str()),
        ("orders", "other")
    );
    assert_eq!(order.at.as_deref(), Some("nbd+unix:///?socket=n.sock"));
    // The device is overloaded. The size has the eighths that reduce its load the most, and no more.
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
    // The appliance has the predicted effect, and stays while it is needed.
    host.volumes[0].latency_us = 200;
    host.takes = vec![("orders", 0.05, 0), ("batch", 0.05, 0)];
    host.array_reads = vec![("orders", 10)];
    for _ in 0..60 {
        host.windows(1);
        assert_eq!(ordered(&host).map(|o| o.id), Some(order.id));
    }
    // The load is now so low that the device can serve it alone.
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
fn failed_cache_node_is_reported_and_avoided() {
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
fn single_l2_cache_is_used_and_a_manual_one_takes_precedence() {
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
    // A node can only be the second level of an existing cache.
    let mut host = full("auto", NODE);
    host.caches.clear();
    host.windows(12);
    assert_eq!(ordered(&host), None);
}

/// Returns extents of 1 MiB, with the number of reads of each range per window.
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

/// Returns the warm-up ordered for a peak with reads `now`, after twenty minutes with reads `before`.
fn warm_after(before: &MirrorWindow, now: &MirrorWindow) -> Warm {
    let mut host = full("auto", NODE);
    let (late, takes) = (host.volumes[0].latency_us, host.takes.clone());
    host.volumes[0].latency_us = 200;
    host.takes = vec![("orders", 0.05, 0), ("batch", 0.05, 0)];
    host.mirrors = vec![("orders", before.clone())];
    // Windows of one second.
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
fn zones_hot_now_and_before_are_warmed_up() {
    // Zones of 64 MiB: mainly the second one, some reads of the fifth, and almost none of the first.
    let hot = reads(&[(0..1, 1), (70..80, 100), (256..260, 100)]);
    match warm_after(&hot, &hot) {
        Warm::Zones {
            zones,
            zone,
            rate_per_s,
        } => {
            assert_eq!((zones, zone.0), (vec![1, 4], 64 * MIB));
            // A fifth of the spare performance of the overloaded device, but at least ten reads per second.
            assert_eq!(rate_per_s, Some(10.0));
        }
        Warm::Cold { why } => panic!("{why}"),
    }
    // For a new host, earlier heat is unknown.
    let mut new = full("auto", NODE);
    new.mirrors = vec![("orders", hot)];
    match until_ordered(&mut new).warm {
        Warm::Cold { why } => assert!(why.contains("are unknown"), "{why}"),
        Warm::Zones { zones, .. } => panic!("{zones:?}"),
    }
}
