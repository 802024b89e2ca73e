//! Invariants of lent memory and flash under arbitrary faults.

use std::collections::BTreeMap;

use algo::Rng;
use manager::wire::NodeStore;

use super::MIB;
use super::site::{Site, User};

/// Messages are lost, and agents, processes and the controller are killed. No donor lends more than it has, no memory
/// has two users, no user gets an address that no donor reported, and in the end every user has memory if there is
/// enough.
fn run_random_events(seed: u64) {
    let mut rng = Rng::new(seed, 1);
    let donors: Vec<u64> = (0..1 + rng.below(2))
        .map(|_| (256 + rng.below(512)) * MIB)
        .collect();
    let mut site = Site::avoiding(1 + rng.below(3) as usize, &donors, "30s");
    for donor in &mut site.donors {
        donor.flash = rng.below(512) * MIB;
    }
    let mut sessions = 1000;
    let mut away = BTreeMap::new();
    for _ in 0..300 {
        site.begin();
        sessions += 1;
        let (users, hosts) = (site.users.len() as u64, site.donors.len() as u64);
        match rng.below(40) {
            0 => site.donors[rng.below(hosts) as usize].begins_anew(sessions),
            1 => site.donors[rng.below(hosts) as usize].all_fail(),
            2 => site.donors[rng.below(hosts) as usize].slow = rng.below(12),
            3 => site.host.restart_controller(),
            4 => site.register(rng.below(users) as usize),
            5 => {
                let who = rng.below(users + hosts);
                away.insert(who, site.window + rng.below(20));
            }
            _ => {}
        }
        let window = site.window;
        away.retain(|_, until| *until > window);
        for who in 0..users + hosts {
            let heard = !away.contains_key(&who) && rng.below(20) > 0;
            match usize::try_from(who).unwrap() {
                n if who < users => site.user(n, heard),
                n => site.donor(n - users as usize, heard),
            }
        }
        site.check();
    }
    // After some time without faults, no donor is avoided any more.
    site.donors.iter_mut().for_each(|l| l.slow = 1);
    site.pass(60);
    site.until("what is lent is what is used, by somebody", |site| {
        let used = |server: String| {
            let orders = site.users.iter().filter_map(User::ordered);
            let here = orders.filter(|o| o.server == server);
            here.map(|o| o.cache_bytes).sum::<u64>()
        };
        let mut donors = site.donors.iter();
        donors.all(|l| {
            let name = format!("host {}", l.name);
            l.lent_of(NodeStore::Flash) == used(format!("flash of {name}"))
                && l.lent() == used(name)
        }) && site.users.iter().any(User::is_serving)
    });
}

#[test]
fn donors_never_overlend_and_memory_has_one_user() {
    testkit::seeds::run(0..12, |seed| {
        run_random_events(seed);
        Ok(())
    });
}
