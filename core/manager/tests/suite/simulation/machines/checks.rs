//! Invariants on a host of virtual machines.

use std::collections::BTreeSet;

use vmhost::moving::Phase;

use super::files::Content;
use super::guests::path_of;
use super::{FakeMachines, SECOND};

impl FakeMachines {
    pub fn check(&self) {
        let files = &self.host.files;
        for (device, (name, size)) in files.devices.iter().enumerate() {
            assert!(files.used(device) <= *size, "{name} holds more than it has");
        }
        let mut open = BTreeSet::new();
        for file in self.host.open_files() {
            let path = &files.get(file).path;
            assert!(open.insert(path), "{path} is used twice");
        }
        let mut named = BTreeSet::new();
        for intent in self.intents.values().filter(|i| i.moves()) {
            for image in [&intent.from, &intent.to] {
                let path = path_of(image);
                assert!(named.insert(path), "two moves are about {path}");
            }
        }
        for guest in &self.host.guests {
            for disk in &guest.disks {
                let content = Some(Content {
                    disk: disk.number,
                    version: disk.acknowledged,
                });
                assert!(
                    files.all().any(|f| f.content == content),
                    "what {} was told is written is nowhere",
                    guest.volume(disk)
                );
            }
        }
        self.no_file_is_lost();
        self.guests_rest();
    }

    /// Checks that a guest is paused from a pivot until the pivot is durable, unless a person resumes it.
    pub(super) fn guests_rest(&self) {
        for intent in self.intents.values() {
            if !matches!(intent.phase, Phase::Pivoting | Phase::GivingUp { .. }) {
                continue;
            }
            let guest = self.host.guest(&intent.uuid);
            let disk = guest.disk(&intent.target);
            let over = disk.live.as_ref().is_some_and(|o| o.image == intent.to);
            // The definition records a pivot by other tools.
            let over = over && (self.host.plain || disk.defined != intent.to);
            assert!(
                !over || !guest.runs() || guest.let_go,
                "{} runs on its new image, and nobody has written down that it does: {:?}",
                intent.volume,
                self.intents
            );
        }
    }

    /// Checks that each file is an image of a disk or belongs to a move.
    fn no_file_is_lost(&self) {
        let disks = self.host.guests.iter().flat_map(|g| &g.disks);
        let of_disks = disks.flat_map(|d| {
            let live = d.live.as_ref().map(|o| path_of(&o.image));
            let defined = [path_of(&d.defined), path_of(&d.last)];
            live.into_iter().chain(defined)
        });
        let of_moves = self.intents.values().flat_map(|i| {
            let kept = match &i.phase {
                Phase::Kept(kept) => vec![&*kept.path],
                _ => vec![path_of(&i.from), path_of(&i.to)],
            };
            kept.into_iter().chain(i.kept_as.as_deref())
        });
        let known: BTreeSet<&str> = of_disks.chain(of_moves).collect();
        for file in self.host.files.all() {
            let path = &file.path;
            assert!(known.contains(&**path), "{path} is left, and nobody knows");
        }
    }

    /// Checks the state after a long time without faults: old moves have ended, no guest is paused, and all domains
    /// run.
    pub fn all_is_well(&self) {
        let now_s = self.now_s();
        for intent in self.intents.values() {
            let age_s = now_s - intent.at_s;
            assert!(
                !intent.moves() || age_s < 60,
                "the move of {} is {} since {age_s} s: {intent:?}",
                intent.volume,
                intent.phase
            );
            assert!(!intent.held || age_s < 3, "a guest is held: {intent:?}");
        }
        for guest in &self.host.guests {
            let held = self
                .intents
                .values()
                .any(|i| i.uuid == guest.uuid && i.held);
            assert!(
                guest.life.is_some() && (held || guest.paused.is_none()),
                "{} does not run: {guest:?}",
                guest.name
            );
        }
    }

    /// Returns the uncertain leftover files with their volumes, which operators must learn of.
    pub fn left_behind(&self) -> Vec<(String, String)> {
        let left = self.intents.values().filter_map(|i| match &i.phase {
            Phase::Kept(kept) if self.now_s() > i.at_s + 5 => {
                kept.doubt.as_ref()?;
                Some((i.volume.clone(), kept.path.clone()))
            }
            _ => None,
        });
        left.collect()
    }

    /// Returns the places of disks that have not moved for some seconds, by volume and device.
    pub fn settled(&self) -> Vec<(String, String)> {
        let now_ns = self.host.now_ns;
        let mut all = vec![];
        for guest in &self.host.guests {
            for disk in &guest.disks {
                if let Some(open) = disk.live.as_ref()
                    && now_ns > disk.placed_ns.max(guest.started_ns) + 5 * SECOND
                {
                    let device = &self.host.files.devices[open.file.device as usize].0;
                    all.push((guest.volume(disk), device.clone()));
                }
            }
        }
        all
    }

    /// Returns the names of all disks.
    pub fn volumes(&self) -> Vec<String> {
        let all = self.host.guests.iter();
        let all = all.flat_map(|g| g.disks.iter().map(|d| g.volume(d)));
        all.collect()
    }

    /// Returns the place of each disk of a running domain, by volume and device.
    pub fn places(&self) -> Vec<(String, String)> {
        let mut all = vec![];
        for guest in &self.host.guests {
            for disk in &guest.disks {
                if let Some(open) = &disk.live {
                    let device = &self.host.files.devices[open.file.device as usize].0;
                    all.push((guest.volume(disk), device.clone()));
                }
            }
        }
        all
    }

    /// Returns `Some` for a volume that no agent may ever move, with true if a person may move it.
    pub fn bound_for_good(&self, volume: &str) -> Option<bool> {
        let mut all = self
            .host
            .guests
            .iter()
            .flat_map(|g| g.disks.iter().map(move |d| (g, d)));
        let (guest, disk) = all.find(|(g, d)| g.volume(d) == volume)?;
        match () {
            () if guest.platform.is_some() => Some(true),
            () if disk.stays => Some(false),
            () => guest.fault.is_some().then_some(true),
        }
    }
}
