//! Throttles of a host's volumes: they expire, fail at times, and end with a restart of the server or machine.

use std::collections::BTreeMap;

use manager::agent::Snapshot;
use manager::limited::TimedThrottle;
use manager::wire::Throttle;

#[derive(Debug, Default)]
pub struct Throttles {
    in_force: BTreeMap<String, TimedThrottle>,
}

impl Throttles {
    pub fn tell(&mut self, now_ns: u64, snapshot: &mut Snapshot) {
        self.in_force.retain(|_, limited| limited.until_ns > now_ns);
        for v in &mut snapshot.volumes {
            let limited = self.in_force.get(&v.name);
            v.throttle = limited.and_then(|l| l.left(now_ns));
        }
    }

    /// Returns the limits in force, requests per second by volume.
    pub fn iops(&self, now_ns: u64) -> BTreeMap<String, u64> {
        let there = self.in_force.iter().filter(|(_, l)| l.until_ns > now_ns);
        there
            .filter_map(|(v, l)| Some((v.clone(), l.iops?)))
            .collect()
    }

    pub fn order(&mut self, now_ns: u64, volume: &str, to: Option<Throttle>) {
        match to {
            Some(to) => {
                assert!(to.lasting_ns > 0, "it is over before it begins");
                let limited = TimedThrottle::of(to, now_ns);
                self.in_force.insert(volume.into(), limited);
            }
            None => {
                self.in_force.remove(volume);
            }
        }
    }

    /// Removes all limits in force.
    pub fn lose(&mut self) {
        self.in_force.clear();
    }
}
