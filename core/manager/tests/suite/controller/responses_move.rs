//! Moves to another device as remedies of a live host.

use manager::view::ResponseState;
use manager::wire::{JobProgress, MoveOrder};

use super::host::Host;
use super::responses::{QUICK, noisy, responses, said};

const OTHERS_OFF: &str = "throttle = \"off\", memory-share = \"off\", mirror = \"off\"";

fn beside_a_loud_one(mode: &str, more: &str) -> Host {
    noisy(&format!(
        "{more}[response]\nmodes = {{ {OTHERS_OFF}, move = \"{mode}\" }}\n{QUICK}"
    ))
}

fn ordered(host: &Host) -> Vec<MoveOrder> {
    let orders = host.orders.as_ref().expect("a window was reported");
    orders.moves.clone()
}

/// Runs windows until a move is ordered.
fn until_ordered(host: &mut Host) -> MoveOrder {
    for _ in 0..12 {
        host.windows(1);
        if let Some(order) = ordered(host).pop() {
            return order;
        }
    }
    panic!("no move is ordered: {:?}", host.events())
}

#[test]
fn remedial_move_goes_to_another_device_and_is_not_repeated() {
    let mut host = beside_a_loud_one("auto", "");
    let order = until_ordered(&mut host);
    assert_ne!(order.tier, "slow");
    let text = said(&mut host, "Remedy:").remove(0);
    for part in [
        format!("Remedy: move {} to ", order.volume),
        "batch uses 85 % of slow-0".into(),
        "price: ".into(),
    ] {
        assert!(text.contains(&part), "{part:?} is not in {text:?}");
    }
    assert_eq!(responses(&mut host)[0].state, ResponseState::InForce);
    // One move at a time, ordered in every window until it has ended.
    host.windows(3);
    assert_eq!(ordered(&host), std::slice::from_ref(&order));
    host.finish(order.job, 900);
    host.volumes.iter_mut().for_each(|v| v.latency_us = 900);
    let took = |name: &str, share| match order.volume == name {
        true => ("", 0.0, 0),
        false => (if name == "batch" { "batch" } else { "orders" }, share, 0),
    };
    host.takes = vec![took("orders", 0.1), took("batch", 0.6)];
    host.windows(2);
    assert_eq!(ordered(&host), []);
    let shown = responses(&mut host);
    let first = shown.last().expect("it was ordered");
    assert_eq!(first.state, ResponseState::Done, "{shown:#?}");
    assert!(first.ended_ns.is_some());
    // The volume does not move back and forth, even if objectives are violated again.
    host.volumes.iter_mut().for_each(|v| v.latency_us = 5000);
    host.takes = vec![("orders", 0.9, 0), ("batch", 0.9, 0)];
    host.windows(60);
    let again = said(&mut host, &format!("{}: move to", order.volume));
    assert_eq!(again.len(), 1, "{again:?}");
}

#[test]
fn failed_remedial_move_is_reported_and_not_retried_at_once() {
    let mut host = beside_a_loud_one("auto", "");
    let order = until_ordered(&mut host);
    let failed = JobProgress::Failed {
        why: "the target has no space".into(),
        copied_bytes: 0,
    };
    host.progress(order.job, failed);
    host.windows(2);
    let shown = responses(&mut host);
    let first = shown.last().expect("there is one");
    assert_eq!(first.state, ResponseState::TakenBack, "{shown:#?}");
    // Another volume may move, and this one not for half an hour.
    host.windows(60);
    let tried = said(&mut host, &format!("{}: move to", order.volume));
    assert_eq!(tried.len(), 1, "{tried:?}");
}

#[test]
fn cheapest_remedial_move_is_recommended_by_default() {
    let mut host = noisy(QUICK);
    host.windows(12);
    assert_eq!(ordered(&host), []);
    let text = said(&mut host, "Recommended remedy: move orders to ").remove(0);
    assert!(
        text.contains("alternative not taken (mode recommend): throttle batch to"),
        "{text}"
    );
}

#[test]
fn recommended_move_is_not_ordered() {
    let mut host = beside_a_loud_one("recommend", "");
    for _ in 0..12 {
        host.windows(1);
        assert_eq!(ordered(&host), []);
    }
    let text = said(&mut host, "Recommended remedy: ").remove(0);
    assert!(text.contains("remedy: move "), "{text}");
    assert!(text.contains("the mode of move is recommend"), "{text}");
}

#[test]
fn busy_cordoned_or_silent_devices_are_no_targets() {
    let nothing = |mut host: Host, what: &str| {
        host.windows(12);
        assert_eq!(ordered(&host), [], "{what}");
        let text = said(&mut host, "No remedy").remove(0);
        assert!(text.contains("move: no other device"), "{what}: {text}");
    };
    let mut host = beside_a_loud_one("auto", "");
    host.unreachable = vec!["fast-0", "mid-0"];
    nothing(host, "they cannot be reached");
    let cordoned = "cordon = [\"fast\", \"mid\"]\n";
    let mut host = beside_a_loud_one("auto", cordoned);
    host.device_mib = 4096;
    nothing(host, "they take no data");
    let mut host = beside_a_loud_one("auto", "");
    host.device_mib = 1024 + 256;
    host.volumes[0].mib = 600;
    host.volumes[1].mib = 600;
    let more = ["fast", "mid"].map(|tier| {
        let device = if tier == "fast" { "fast-0" } else { "mid-0" };
        let name = if tier == "fast" { "full" } else { "filled" };
        super::host::FakeVolume {
            class: "default",
            mib: 900,
            ..super::host::volume(name, tier, device, 1, 100)
        }
    });
    host.volumes.extend(more);
    nothing(host, "they are full");
    let mut host = beside_a_loud_one("auto", "");
    host.undescribed = vec!["fast", "mid"];
    nothing(host, "nothing is known of them");
    let mut host = beside_a_loud_one("auto", "");
    host.silent = vec!["fast-0", "mid-0"];
    host.undescribed = vec!["fast", "mid"];
    nothing(host, "they do not say how busy they are");
    let mut host = beside_a_loud_one("auto", "");
    for (name, tier, device) in [("one", "fast", "fast-0"), ("two", "mid", "mid-0")] {
        let busy = super::host::FakeVolume {
            class: "default",
            ..super::host::volume(name, tier, device, 100, 100)
        };
        host.volumes.push(busy);
        host.takes.push((name, 0.85, 0));
    }
    nothing(host, "they have enough to do");
    // Saturday, 12:00 UTC.
    let hours = "[hours]\nmoves = [\"22:00-06:00\"]\n";
    nothing(beside_a_loud_one("auto", hours), "it is not the hour");
}

#[test]
fn proposals_for_the_moved_volume_or_its_target_are_dropped() {
    let mut host = beside_a_loud_one("auto", "");
    let order = until_ordered(&mut host);
    let plan = host.plan();
    let stale = plan.iter().flat_map(|p| &p.moves).filter(|m| {
        let open = matches!(m.state, manager::view::MoveState::Proposed { .. });
        open && (m.volume == order.volume || m.to == order.device)
    });
    assert_eq!(stale.count(), 0);
}
