//! Memory and flash that hosts lend to arrays of other hosts: the controller's orders, and their state after failures
//! of any part.

mod anything;
mod site;

use std::collections::BTreeMap;

use manager::question::Question;
use manager::service::Service;
use manager::wire::{LendWindow, NodeState, NodeStore, NodeWindow};

use super::responses::said;
use site::{Donor, LEASE, Site, User};

const MIB: u64 = 1 << 20;

/// Windows in which a donor must report the address of its memory: two leases and twenty seconds.
const BEGINS_WITHIN: u64 = 2 * LEASE + 20;

#[test]
fn memory_is_ordered_from_the_donor_before_the_user_gets_it() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.until("a node", |s| !s.donors[0].nodes.is_empty());
    assert_eq!(
        site.users[0].ordered(),
        None,
        "nobody knows where it is yet"
    );
    let (bytes, _) = site.donors[0].nodes.values().next().unwrap();
    assert_eq!(*bytes, 256 * MIB);
    let ordered = said(
        &mut site.host,
        "orders: caching appliance ordered: 256 MiB on host donor-0",
    );
    assert_eq!(ordered.len(), 1);
    let lends = site.lends("donor-0");
    assert_eq!(
        (lends.memory_bytes, lends.lent_bytes),
        (512 * MIB, 256 * MIB)
    );
    assert_eq!(
        (lends.to[0].to.as_str(), lends.to[0].volume.as_deref()),
        ("user-0", Some("orders"))
    );
    site.until_serving();
    let order = site.users[0].ordered().unwrap().clone();
    assert_eq!(order.server, "host donor-0");
    assert!(
        order.at.as_ref().unwrap().contains("/donor-0/"),
        "{order:?}"
    );
    site.pass(2);
    assert!(site.lends("donor-0").to[0].ready);
    assert_eq!(
        said(&mut site.host, "orders goes through its appliance").len(),
        1
    );
    // No volume is placed on a host that only lends.
    let view = site.host_view("donor-0");
    assert_eq!((view.problem, view.next_decision_ns), (None, None));
    // If the mode no longer allows it, the loan ends: first at the user, then at the donor.
    let text = site
        .host
        .config
        .replace("appliance = \"auto\"", "appliance = \"off\"");
    let settings = super::host::settings(&text);
    let (now, actor) = (site.host.now(), manager::question::Actor("somebody".into()));
    site.host.managed.reload(now, &actor, settings).unwrap();
    site.until("gone", |s| s.donors[0].nodes.is_empty());
    assert!(!site.users[0].is_serving());
}

#[test]
fn donor_node_ends_after_its_user_has_detached() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.until_serving();
    // The load is now so low that the device can serve it alone.
    site.host.volumes[0].latency_us = 200;
    site.host.volumes[0].ios = 20;
    site.host.array_reads = vec![("orders", 1)];
    site.host.takes = vec![("orders", 0.005, 0), ("batch", 0.05, 0)];
    for _ in 0..2000 {
        let had = site.users[0].is_serving();
        site.pass(1);
        let there = site.donors[0].nodes.values().next().map(|n| n.1.clone());
        if had && site.users[0].ordered().is_some() {
            assert!(matches!(there, Some(NodeState::Ready { .. })), "{there:?}");
        }
        if there.is_none() {
            break;
        }
    }
    assert!(site.donors[0].nodes.is_empty(), "it is never given up");
    assert_eq!(said(&mut site.host, "appliance to be removed").len(), 1);
    assert_eq!(
        said(&mut site.host, "appliance of orders was removed").len(),
        1
    );
    assert_eq!(said(&mut site.host, "failed").len(), 0);
    // The memory is free when the donor has reported it.
    site.pass(1);
    assert_eq!(site.lends("donor-0").lent_bytes, 0);
}

#[test]
fn donor_lends_at_most_its_memory() {
    let mut site = Site::new(4, &[512 * MIB]);
    site.pass(40);
    let serving = site.users.iter().filter(|u| u.is_serving()).count();
    assert_eq!(serving, 2, "256 MiB each");
    assert_eq!(site.donors[0].lent(), 512 * MIB);
    let text = said(&mut site.host, "No remedy").join("\n");
    assert!(
        text.contains("no host has enough free CPUs and memory"),
        "{text}"
    );
    // With another donor, the other volumes get memory from it.
    site.donors.push(Donor::new("donor-1", 512 * MIB));
    site.until_serving();
    assert_eq!(site.donors[1].lent(), 512 * MIB);
}

#[test]
fn flash_is_lent_if_no_memory_is_available() {
    let mut site = Site::new(3, &[256 * MIB]);
    site.donors[0].flash = 512 * MIB;
    site.until_serving();
    assert_eq!(site.donors[0].lent(), 256 * MIB);
    assert_eq!(site.donors[0].lent_of(NodeStore::Flash), 512 * MIB);
    let servers = site
        .users
        .iter()
        .map(|u| u.ordered().unwrap().server.clone());
    let mut servers: Vec<String> = servers.collect();
    servers.sort_unstable();
    let flash = "flash of host donor-0";
    assert_eq!(servers, [flash, flash, "host donor-0"]);
    site.pass(2);
    let lends = site.lends("donor-0");
    assert_eq!(
        lends.stores().collect::<Vec<_>>(),
        [
            (NodeStore::Memory, 256 * MIB, 256 * MIB),
            (NodeStore::Flash, 512 * MIB, 512 * MIB)
        ]
    );
    let of_flash = lends.to.iter().filter(|l| l.store == NodeStore::Flash);
    assert_eq!(of_flash.count(), 2);
    // Memory is preferred to flash for a remedy, even if there is more flash.
    let mut site = Site::new(1, &[256 * MIB]);
    site.donors[0].flash = 25 * 256 * MIB;
    site.until_serving();
    let ordered = site.users[0].ordered().unwrap();
    assert_eq!(ordered.server, "host donor-0");
    // After a failed start on flash, flash is not tried again, but memory of the same host is.
    let mut site = Site::new(1, &[0]);
    site.donors[0].flash = 512 * MIB;
    site.until("a node", |s| !s.donors[0].nodes.is_empty());
    site.donors[0].all_fail();
    site.donors[0].memory = 512 * MIB;
    site.until_serving();
    let ordered = site.users[0].ordered().unwrap();
    assert_eq!(ordered.server, "host donor-0");
}

#[test]
fn host_does_not_lend_to_itself() {
    let mut site = Site::new(1, &[]);
    site.donors.push(Donor::new("user-0", 512 * MIB));
    let lent = LendWindow {
        memory_bytes: 512 * MIB,
        flash_bytes: 512 * MIB,
        nodes: vec![],
    };
    for _ in 0..20 {
        site.begin();
        let now = site.host.now();
        let user = &mut site.users[0];
        user.seq += 1;
        let mut report = site.host.report();
        (report.session, report.seq) = (user.session, user.seq);
        report.lends = Some(lent.clone());
        let orders = site.host.managed.report(now, "user-0", report).unwrap();
        assert_eq!(orders.remedies.nodes, []);
        assert_eq!(orders.remedies.appliances, []);
    }
}

#[test]
fn lent_memory_that_fails_to_start_is_released() {
    // The process fails before it listens.
    let mut site = Site::new(1, &[512 * MIB]);
    site.until("a node", |s| !s.donors[0].nodes.is_empty());
    site.donors[0].all_fail();
    site.pass(3);
    let text = said(&mut site.host, "appliance of orders failed").remove(0);
    assert!(
        text.contains("host donor-0: its process has ended"),
        "{text}"
    );
    site.pass(60);
    assert!(
        site.donors[0].nodes.is_empty(),
        "not again for half an hour"
    );
    // The process never reports its address.
    let mut site = Site::new(1, &[512 * MIB]);
    site.donors[0].slow = 1000;
    site.until("a node", |s| !s.donors[0].nodes.is_empty());
    site.pass(BEGINS_WITHIN - 2);
    assert_eq!(said(&mut site.host, "appliance of orders failed").len(), 0);
    site.pass(6);
    let text = said(&mut site.host, "appliance of orders failed").remove(0);
    assert!(
        text.contains("its memory node was not ready in time"),
        "{text}"
    );
    let (_, state) = site.donors[0].nodes.values().next().unwrap();
    assert_eq!(*state, NodeState::Ending);
    // Memory that the donor still uses is not lent again, and no user received its address.
    assert_eq!(site.lends("donor-0").lent_bytes, 256 * MIB);
    assert_eq!(site.users[0].appliances, BTreeMap::new());
}

#[test]
fn lost_donor_ends_its_nodes_and_the_user_continues() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.until_serving();
    let mut alone = 0;
    while !site.donors[0].nodes.is_empty() {
        site.begin();
        site.user(0, true);
        site.donor(0, false);
        alone += 1;
        assert!(alone < 20, "its lease is never over");
    }
    assert!(alone >= LEASE, "{alone}");
    site.begin();
    site.user(0, true);
    site.begin();
    site.user(0, true);
    let text = said(&mut site.host, "appliance of orders failed").remove(0);
    assert!(text.contains("the connection is lost"), "{text}");
    assert!(!site.users[0].is_serving());
    // The host returns and has no orders.
    site.pass(20);
    assert!(site.donors[0].nodes.is_empty());
}

#[test]
fn memory_of_a_lost_user_is_released() {
    let mut site = Site::new(1, &[256 * MIB]);
    site.until_serving();
    for _ in 0..2 * LEASE + 3 {
        site.begin();
        site.user(0, false);
        site.donor(0, true);
    }
    assert_eq!(site.donors[0].lent(), 0);
    assert!(!site.users[0].is_serving());
    // Another user can get the memory.
    site.users.push(User::new("user-1"));
    site.register(1);
    for _ in 0..30 {
        site.begin();
        site.user(0, false);
        site.user(1, true);
        site.donor(0, true);
        site.check();
    }
    assert!(site.users[1].is_serving());
    // The first user returns and finds the memory in use.
    site.pass(20);
    assert!(site.users[1].is_serving() && !site.users[0].is_serving());
}

#[test]
fn restarted_controller_ends_all_lending() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.until_serving();
    let before = *site.donors[0].nodes.keys().next().unwrap();
    site.host.restart_controller();
    site.until("gone", |s| !s.donors[0].nodes.contains_key(&before));
    site.until_serving();
    let now = *site.donors[0].nodes.keys().next().unwrap();
    assert!(now > before, "numbers are not used twice");
}

#[test]
fn restarted_donor_agent_has_no_nodes_and_starts_none() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.until_serving();
    site.donors[0].begins_anew(77);
    for _ in 0..20 {
        site.pass(1);
        assert!(site.donors[0].nodes.is_empty());
    }
    let text = said(&mut site.host, "appliance of orders failed").remove(0);
    assert!(text.contains("the connection is lost"), "{text}");
    // The user's agent fails: its memory is free again.
    let mut site = Site::new(1, &[512 * MIB]);
    site.until_serving();
    let before = *site.donors[0].nodes.keys().next().unwrap();
    site.pass(LEASE);
    for _ in 0..4 {
        site.begin();
        site.donor(0, true);
    }
    site.register(0);
    site.pass(3);
    assert!(!site.donors[0].nodes.contains_key(&before));
    site.until_serving();
}

#[test]
fn invalid_lending_report_is_refused() {
    let mut site = Site::new(1, &[]);
    let node = |id, bytes, at: &str| NodeWindow {
        id,
        bytes,
        store: NodeStore::Memory,
        state: NodeState::Ready { at: at.into() },
    };
    let good = "nbds://192.0.2.7:10810/?tls-certificates=/etc/terrace/tls";
    for (nodes, memory_bytes, part) in [
        (
            vec![node(1, 5, good), node(1, 5, good)],
            9,
            "node 1 is listed twice",
        ),
        (vec![node(1, 5, "nbd://192.0.2.7/")], 9, "the URI of node 1"),
        (
            vec![node(1, 5, "file:///etc/passwd")],
            9,
            "must be an NBD URI",
        ),
        (
            vec![node(1, 5, &format!("{good}{}", "x".repeat(5000)))],
            9,
            "bytes, the limit is",
        ),
        (vec![node(1, u64::MAX, good)], 9, "sizes are out of range"),
        (vec![], u64::MAX, "sizes are out of range"),
        (
            (0..5000).map(|n| node(n, 1, good)).collect(),
            9,
            "nodes, the limit is",
        ),
    ] {
        site.begin();
        let now = site.host.now();
        let user = &mut site.users[0];
        user.seq += 1;
        let mut report = site.host.report();
        (report.session, report.seq) = (user.session, user.seq);
        report.lends = Some(LendWindow {
            memory_bytes,
            flash_bytes: 0,
            nodes,
        });
        let refused = site.host.managed.report(now, "user-0", report).unwrap_err();
        assert!(refused.to_string().contains(part), "{part}: {refused}");
        assert!(refused.to_string().contains("lends"), "{refused}");
    }
}

#[test]
fn manual_l2_cache_excludes_lent_memory() {
    let mut site = Site::new(1, &[512 * MIB]);
    site.host.second_by_hand = true;
    site.pass(20);
    assert!(site.donors[0].nodes.is_empty());
    let _ = site.host.ask(Question::Status);
}
