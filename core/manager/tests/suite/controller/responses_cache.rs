//! Cache shares as remedies of a live host.

use manager::question::Question;
use manager::view::ResponseState;
use manager::wire::{CacheShareOrder, CacheWindow, CurvePoint};

use super::host::{Host, WINDOW};
use super::responses::{QUICK, noisy, responses, said};

const MIB: u64 = 1 << 20;

pub(super) fn cache(curve: &[(u64, f64)]) -> CacheWindow {
    let points = curve.iter().map(|(mib, miss_ratio)| CurvePoint {
        bytes: mib * MIB,
        miss_ratio: *miss_ratio,
    });
    CacheWindow {
        pool: 1,
        pool_bytes: 64 * MIB,
        page_bytes: 4096,
        in_parts: true,
        given_bytes: None,
        lent_bytes: None,
        curve: Some(points.collect()),
    }
}

/// Returns a host with a database that reads 40 MiB repeatedly, and a job that reads everything once. The job evicts
/// the database's data from their cache.
fn scanned(mode: &str) -> Host {
    // A cache share is predicted to help after two minutes, although a remedy settles in two seconds here.
    let quick = QUICK.replace("patience = 0.1", "patience = 0.01");
    let modes =
        format!("modes = {{ throttle = \"off\", move = \"off\", memory-share = \"{mode}\" }}");
    let mut host = noisy(&format!("[response]\n{modes}\n{quick}"));
    host.takes = vec![("orders", 0.45, 0), ("batch", 0.5, 0)];
    let orders = cache(&[(40, 0.0)]);
    host.caches = vec![("orders", orders), ("batch", cache(&[(4096, 0.99)]))];
    host
}

fn shares(host: &Host) -> Vec<CacheShareOrder> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.remedies.cache_shares.clone()
}

fn curves(host: &Host) -> Vec<String> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.remedies.curves.clone()
}

#[test]
fn cache_share_is_ordered_with_a_lease_and_revoked() {
    let mut host = scanned("auto");
    host.windows(1);
    assert_eq!(curves(&host), ["batch", "orders"], "from the first miss on");
    host.windows(2);
    let share = CacheShareOrder {
        volume: "orders".into(),
        bytes: 16 * MIB,
    };
    assert_eq!(shares(&host), std::slice::from_ref(&share));
    let text = said(&mut host, "Remedy:").remove(0);
    for part in [
        "Remedy: reserve 16 MiB of the cache for orders",
        "predicted: utilization of slow-0 7",
        "price: ",
        "120 s until it helps",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(
        said(&mut host, "orders: 16 MiB of the cache reserved").len(),
        1
    );
    // The share has the predicted effect, and stays while it is needed.
    host.volumes[0].latency_us = 1000;
    host.caches[0].1.lent_bytes = Some(16 * MIB);
    host.takes = vec![("orders", 0.27, 0), ("batch", 0.5, 0)];
    host.hits = vec![("orders", 80)];
    for _ in 0..140 {
        host.windows(1);
        assert_eq!(shares(&host), std::slice::from_ref(&share));
        assert_eq!(curves(&host).len(), 2, "it is judged by what is known now");
    }
    // The job ends.
    host.volumes[1].ios = 1;
    host.takes = vec![("orders", 0.27, 0), ("batch", 0.001, 0)];
    host.windows(20);
    assert_eq!(shares(&host), []);
    let back = said(&mut host, "orders: 16 MiB of the cache released");
    assert_eq!(back.len(), 1);
    let shown = responses(&mut host);
    assert_eq!(shown.len(), 1, "{shown:#?}");
    assert_eq!(shown[0].state, ResponseState::TakenBack);
    assert_eq!(shown[0].cache_bytes, Some(16 * MIB));
    assert!(shown[0].price_s.is_some_and(|s| s >= 120.0));
    assert_eq!(curves(&host), Vec::<String>::new());
}

#[test]
fn recommended_cache_share_is_not_ordered() {
    let mut host = scanned("recommend");
    for _ in 0..20 {
        host.windows(1);
        assert_eq!(shares(&host), []);
    }
    let text = said(&mut host, "Recommended").remove(0);
    assert!(
        text.contains("reserve 16 MiB of the cache for orders")
            && text.contains("Not applied: the mode of memory-share is recommend"),
        "{text}"
    );
}

#[test]
fn cache_share_without_a_curve_is_rejected_with_the_reason() {
    let mut host = scanned("auto");
    host.caches[0].1.curve = None;
    host.windows(10);
    assert_eq!(shares(&host), []);
    let text = said(&mut host, "No remedy").remove(0);
    assert!(
        text.contains("memory-share: no miss-ratio curve is known"),
        "{text}"
    );
    // Shares are no remedy if the policy cannot change them.
    let mut host = scanned("auto");
    host.caches.iter_mut().for_each(|c| c.1.in_parts = false);
    host.windows(10);
    assert_eq!((shares(&host), curves(&host)), (vec![], vec![]));
}

#[test]
fn manual_cache_share_is_enlarged_and_not_given_twice() {
    let mut host = scanned("auto");
    host.caches[0].1.given_bytes = Some(4 * MIB);
    host.windows(3);
    assert_eq!(shares(&host)[0].bytes, 16 * MIB);
    // Shares of others are not given twice: three quarters of the remaining 8 of 64 MiB.
    let mut host = scanned("auto");
    host.caches[1].1.given_bytes = Some(56 * MIB);
    host.windows(10);
    assert_eq!(shares(&host), []);
}

#[test]
fn cache_share_ends_after_a_restart_or_pause() {
    let mut host = scanned("auto");
    host.windows(3);
    assert_eq!(shares(&host).len(), 1);
    assert_eq!(host.tell_of_jobs().unwrap().remedies.cache_shares.len(), 1);
    host.now_ns += 4 * WINDOW;
    assert!(host.tell_of_jobs().unwrap().remedies.is_empty());
    host.windows(1);
    host.restart_controller();
    host.register();
    host.windows(1);
    assert_eq!(shares(&host), [], "it is not known why");
    host.order(Question::Pause);
    host.windows(10);
    assert_eq!(shares(&host), []);
}
