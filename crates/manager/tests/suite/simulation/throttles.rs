//! Limits of a host's volumes: they end by themselves, fail now and then, and are gone when a server or a machine has begun again.

use std::collections::BTreeMap;

use manager::agent::Snapshot;
use manager::wire::Throttle;

#[derive(Debug, Default)]
pub struct Throttles {
    /// With the time when each ends.
    in_force: BTreeMap<String, (Throttle, u64)>,
}

impl Throttles {
    pub fn tell(&mut self, now_ns: u64, snapshot: &mut Snapshot) {
        self.in_force.retain(|_, (_, until)| *until > now_ns);
        for v in &mut snapshot.volumes {
            v.throttle = self
                .in_force
                .get(&v.name)
                .map(|(throttle, until)| Throttle {
                    lasting_ns: until - now_ns,
                    ..*throttle
                });
        }
    }

    pub fn order(&mut self, now_ns: u64, volume: &str, to: Option<Throttle>) {
        match to {
            Some(to) => {
                assert!(to.lasting_ns > 0, "it is over before it begins");
                let until = now_ns + to.lasting_ns;
                self.in_force.insert(volume.into(), (to, until));
            }
            None => {
                self.in_force.remove(volume);
            }
        }
    }

    /// What is in force is not any more.
    pub fn lose(&mut self) {
        self.in_force.clear();
    }
}
