//! Agent's report of a host: the real inventory, from the state of the simulated hypervisor.

use manager::agent::Snapshot;
use vmhost::builds::CopyInitiator;
use vmhost::{BlockStats, Direction, DomainStats, Inventory, Place, RunningDomain};

use super::FakeMachines;
use super::guests::{FakeDisk, Guest};

impl FakeMachines {
    pub(super) fn inventory(&self) -> Snapshot {
        let running = || self.host.guests.iter().filter(|g| g.life.is_some());
        let known: Vec<RunningDomain> = running().map(Guest::known).collect();
        let stats: Vec<DomainStats> = running().map(|g| self.stats(g)).collect();
        let places: Vec<Place> = (0..self.host.files.devices.len())
            .map(|d| self.place(d))
            .collect();
        let inventory = Inventory {
            tiers: &self.tiers,
            places: &places,
            pools: &[],
            stored: &[],
            domains: known.iter().collect(),
            stats: &stats,
            by: CopyInitiator::Libvirt,
        };
        let disks = self.host.guests.iter();
        let class_of = |name: &str| {
            let mut disks = disks
                .clone()
                .flat_map(|g| g.disks.iter().map(move |d| (g, d)));
            let found = disks.find(|(g, d)| g.volume(d) == name);
            found.expect("it is one of ours").1.class.clone()
        };
        inventory.snapshot(class_of)
    }

    fn stats(&self, guest: &Guest) -> DomainStats {
        let block = |d: &FakeDisk| {
            let open = d.live.as_ref().expect("it runs");
            BlockStats {
                target: d.target.clone(),
                reads: Some(Direction {
                    requests: d.ios,
                    bytes: d.ios * 4096,
                    time_ns: d.time_ns,
                }),
                writes: Some(Direction::default()),
                capacity: Some(d.capacity),
                physical: Some(self.host.files.get(open.file).bytes),
                ..BlockStats::default()
            }
        };
        DomainStats {
            domain: guest.name.clone(),
            blocks: guest.disks.iter().map(block).collect(),
        }
    }

    fn place(&self, device: usize) -> Place {
        let (name, size) = &self.host.files.devices[device];
        Place {
            name: name.clone(),
            tier: name.split('-').next().expect("it begins with it").into(),
            path: format!("/{name}"),
            size: *size,
            used: self.host.files.used(device),
            // Only I/O of guests is counted here.
            io: self.counted.then_some(self.counts[device]),
            connected: true,
        }
    }

    /// Reports constraints of volumes. The agent's own moves do not block its moves.
    pub(super) fn report_bounds(&self, snapshot: &mut Snapshot) {
        for v in &mut snapshot.volumes {
            if v.moving.is_some() {
                v.bound = None;
            }
        }
    }
}
