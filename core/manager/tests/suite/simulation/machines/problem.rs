//! Faults on a host of virtual machines, and actions of people.

use vmhost::moving::{Intent, Phase};

use super::guests::{BlockJob, PIECE, PauseCause, path_of};
use super::moves::{RECENT_S, StepResult, Stop};
use super::{FakeMachines, SECOND};

/// Returns true if a pivot may be near, when faults of the domain matter most.
fn near_pivot(intent: &Intent) -> bool {
    matches!(
        intent.phase,
        Phase::Blocking | Phase::Pivoting | Phase::Pivoted
    )
}

impl FakeMachines {
    /// Point between two actions of an agent: guests write, and any process may be killed. `of` is the present move.
    pub(super) fn point(&mut self, of: Option<&Intent>) -> StepResult<()> {
        self.guests_rest();
        let host = &mut self.host;
        for guest in &mut host.guests {
            guest.write(&mut host.files);
        }
        if !self.with_problem {
            return Ok(());
        }
        let near = of.is_some_and(near_pivot);
        match self.rng.below(if near { 12 } else { 150 }) {
            0 => {
                self.happened.count(match near {
                    true => "agents killed around a pivot",
                    false => "agents killed in the middle",
                });
                Err(Stop::Killed)
            }
            1 | 2 if of.is_some() => {
                let uuid = of.map_or("", |i| &i.uuid);
                let index = self.host.index(uuid);
                if near && self.host.guests[index].life.is_some() {
                    self.happened.count("QEMUs killed around a pivot");
                }
                self.kill_qemu(index);
                Ok(())
            }
            3 if of.is_some() => {
                let index = self.host.index(of.map_or("", |i| &i.uuid));
                self.meddle(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn kill_qemu(&mut self, index: usize) {
        let lost = self.rng.below(2) == 0;
        let back_ns = self.host.now_ns + self.rng.below(10) * SECOND;
        let host = &mut self.host;
        if host.guests[index].life.is_none() {
            return;
        }
        let copies = host.guests[index].disks.iter().any(|d| d.job.is_some());
        self.happened.count(match copies {
            true => "QEMUs killed with a copy",
            false => "QEMUs killed",
        });
        host.guests[index].ends(&mut host.files, lost, back_ns);
        let uuid = host.guests[index].uuid.clone();
        host.late.retain(|(_, o)| o.intent().uuid != uuid);
    }

    /// Simulates another tool that uses the block jobs of a domain.
    fn meddle(&mut self, index: usize) {
        let action = self.rng.below(4);
        let until_ns = self.host.now_ns + self.rng.below(6) * SECOND;
        let plain = self.host.plain;
        let moving: Vec<String> = self.intents.values().map(|i| i.unsettled.clone()).collect();
        let intents: Vec<Intent> = self.intents.values().cloned().collect();
        let guest = &mut self.host.guests[index];
        if guest.life.is_none() {
            return;
        }
        let uuid = guest.uuid.clone();
        for disk in &mut guest.disks {
            let own = intents
                .iter()
                .any(|i| i.moves() && i.uuid == uuid && i.target == disk.target);
            match (&mut disk.job, action) {
                (Some(BlockJob::Mirror { failed, ready, .. }), 0) if plain => {
                    (*failed, *ready) = (Some("the target fails".into()), false);
                    self.happened.count("copies whose target failed");
                }
                (Some(BlockJob::Mirror { .. }), 0 | 1) => {
                    disk.job = None;
                    self.happened.count("copies that ended by themselves");
                }
                // As in libvirt, the definition follows the pivot.
                (
                    Some(BlockJob::Mirror {
                        to, ready: true, ..
                    }),
                    2,
                ) if !plain && !moving.iter().any(|path| path == path_of(&disk.defined)) => {
                    let to = to.clone();
                    let file = self.host.files.get_mut(to.file);
                    file.flushed = file.content;
                    (disk.defined, disk.durable) = (to.image.clone(), to.image.clone());
                    disk.last = to.image.clone();
                    (disk.live, disk.job) = (Some(to), None);
                    disk.placed_ns = self.host.now_ns;
                    self.happened.count("pivots by somebody");
                }
                (None, 3) => {
                    disk.job = Some(BlockJob::Others { until_ns });
                    self.happened.count(match own {
                        true => "others' block jobs beside a move",
                        false => "others' block jobs",
                    });
                }
                _ => {}
            }
        }
    }

    /// Injects faults that do not depend on the agent.
    pub(super) fn go_wrong(&mut self) {
        if !self.with_problem {
            self.host.late.clear();
            return;
        }
        if self.fails(2000) {
            self.lose_power();
        }
        if self.fails(1000) {
            // libvirtd restarts, and continues its numbers from the running domains.
            let lives = self.host.guests.iter().filter_map(|g| g.life).max();
            self.host.next_life = lives.unwrap_or(0) + 1;
        }
        for index in 0..self.host.guests.len() {
            let uuid = self.host.guests[index].uuid.clone();
            let mut own = self.intents.values().filter(|i| i.uuid == uuid);
            let near = own.any(near_pivot);
            if self.fails(if near { 30 } else { 1200 }) {
                if near && self.host.guests[index].life.is_some() {
                    self.happened.count("QEMUs killed around a pivot");
                }
                self.kill_qemu(index);
            }
            if self.fails(900) {
                self.shut_down(index);
            }
            if self.fails(500) {
                // A reset guest keeps its QEMU, jobs and counters.
                self.happened.count("resets");
            }
            let mut disks = self.host.guests[index].disks.iter();
            let copies = disks.any(|d| d.job.is_some());
            if self.fails(if copies { 60 } else { 600 }) {
                self.meddle(index);
            }
            if self.fails(700) && self.host.guests[index].runs() {
                let guest = &mut self.host.guests[index];
                guest.paused = Some(PauseCause::User);
                guest.resumed_ns = Some(self.host.now_ns + self.rng.below(8) * SECOND);
                self.happened.count("guests paused by somebody");
            }
            self.change_disks(index);
        }
    }

    fn shut_down(&mut self, index: usize) {
        let back_ns = self.host.now_ns + self.rng.below(20) * SECOND;
        let host = &mut self.host;
        if host.guests[index].runs() {
            self.happened.count("domains shut down");
            host.guests[index].ends(&mut host.files, false, back_ns);
            let uuid = host.guests[index].uuid.clone();
            host.late.retain(|(_, o)| o.intent().uuid != uuid);
        }
    }

    fn change_disks(&mut self, index: usize) {
        for d in 0..self.host.guests[index].disks.len() {
            if self.fails(300) {
                self.host.guests[index].disks[d].rate = (20 << self.rng.below(8)) as f64;
            }
            if self.fails(400) {
                self.grow(index, d);
            }
            let (uuid, target) = {
                let guest = &self.host.guests[index];
                (guest.uuid.clone(), guest.disks[d].target.clone())
            };
            let mut own = self.intents.values();
            let moves = own.any(|i| i.moves() && i.uuid == uuid && i.target == target);
            let resized = self.fails(1500);
            let bound = self.host.guests[index].disks[d].snapshot;
            let snapshot = !moves && self.fails(if bound { 60 } else { 1500 });
            let disk = &mut self.host.guests[index].disks[d];
            // QEMU rejects both during a block job.
            let Some(open) = disk.live.as_ref().filter(|_| disk.job.is_none()) else {
                continue;
            };
            if resized {
                disk.capacity += PIECE;
                self.host.files.get_mut(open.file).capacity = disk.capacity;
                self.happened.count("disks resized");
            }
            if snapshot {
                disk.snapshot = !disk.snapshot;
                self.happened.count("disks bound for a while");
            }
        }
    }

    /// Writes to a new place of a disk. QEMU pauses a guest that finds no space.
    fn grow(&mut self, index: usize, d: usize) {
        let more = (1 + self.rng.below(2)) * PIECE;
        let guest = &mut self.host.guests[index];
        let disk = &guest.disks[d];
        let Some(open) = disk.live.as_ref().filter(|_| guest.paused.is_none()) else {
            return;
        };
        let more =
            more.min(disk.capacity - self.host.files.get(open.file).bytes.min(disk.capacity));
        if !self.host.files.grow(open.file, more) {
            guest.paused = Some(PauseCause::Error);
            guest.resumed_ns = Some(self.host.now_ns + self.rng.below(20) * SECOND);
            self.happened.count("guests without space");
        }
    }

    fn lose_power(&mut self) {
        self.happened.count("power losses");
        let saved = self.rng.below(2) == 0;
        let flushed = self.rng.below(2) == 0;
        let now_ns = self.host.now_ns;
        for guest in &mut self.host.guests {
            let back_ns = now_ns + (2 + self.rng.below(8)) * SECOND;
            guest.ends(&mut self.host.files, false, back_ns);
            for disk in &mut guest.disks {
                match saved {
                    true => disk.durable = disk.defined.clone(),
                    false => disk.defined = disk.durable.clone(),
                }
            }
        }
        if !flushed {
            self.host.files.lose_all();
        }
        self.host.late.clear();
        self.host.next_life = 1;
        self.boot += 1;
        self.agent_dies();
        self.killed = true;
    }

    /// Operators start domains that are off, resume paused ones, and decide uncertain cases.
    pub(super) fn operators_look(&mut self) {
        let now_ns = self.host.now_ns;
        for index in 0..self.host.guests.len() {
            let uuid = self.host.guests[index].uuid.clone();
            let intents: Vec<Intent> = self.intents.values().cloned().collect();
            let own: Vec<&Intent> = intents.iter().filter(|i| i.uuid == uuid).collect();
            let held = own.iter().filter(|i| i.held);
            let recent =
                |i: &&&Intent| i.boot == self.boot.to_string() && self.now_s() < i.at_s + RECENT_S;
            let nobody_lets_go = held.clone().any(|i| recent(&i));
            let held_long = held.clone().next().is_some() && !nobody_lets_go;
            let guest = &self.host.guests[index];
            if guest.life.is_some() && guest.paused.is_some() && !nobody_lets_go {
                let due = guest.resumed_ns.is_some_and(|at| now_ns >= at);
                let person = held_long && self.fails(20);
                if due || person {
                    if held_long {
                        self.happened.count("held guests let go by somebody");
                    }
                    let guest = &mut self.host.guests[index];
                    (guest.paused, guest.resumed_ns) = (None, None);
                    guest.let_go |= held_long;
                }
            }
            self.name_last(index, &own);
            let guest = &self.host.guests[index];
            if guest.life.is_some() || now_ns < guest.back_ns {
                continue;
            }
            self.choose(index, &own);
            let life = self.host.next_life;
            let host = &mut self.host;
            if host.guests[index].start(&host.files, life, now_ns) {
                host.next_life += 1;
                self.happened.count("domains started again");
            } else {
                host.guests[index].back_ns = now_ns + 2 * SECOND;
                self.happened.count("starts that failed");
            }
        }
    }

    /// An operator compares both images of an uncertain move and chooses one, not always the right one.
    fn choose(&mut self, index: usize, own: &[&Intent]) {
        for intent in own {
            if intent.phase != Phase::Doubtful {
                continue;
            }
            let files = &self.host.files;
            let kept = intent.kept_as.as_deref().expect("all are files");
            let from = path_of(&intent.from);
            let old = files.at(from).or(files.at(kept));
            let new = files.at(path_of(&intent.to));
            let usable = |id: &vmhost::moving::FileId| files.get(*id).content.is_some();
            let chosen = match (old.filter(usable), new.filter(usable)) {
                (Some(old), Some(new)) if self.rng.below(2) == 0 => (&intent.to, new, old),
                (Some(old), _) => (&intent.from, old, old),
                (None, Some(new)) => (&intent.to, new, new),
                (None, None) => panic!("both images of {} are gone", intent.volume),
            };
            let (image, file, _) = chosen;
            let version = self.host.files.get(file).content.expect("usable").version;
            self.happened.count("images chosen");
            if self.host.plain && *image == intent.from && self.host.files.at(from).is_none() {
                let renamed = self.host.files.rename(kept, from);
                renamed.expect("it was just seen");
            }
            let disk = self.host.guests[index].disk_mut(&intent.target);
            // Later writes in the other image are lost, with the operator's knowledge.
            disk.acknowledged = version;
            disk.chosen = true;
            (disk.defined, disk.durable) = (image.clone(), image.clone());
        }
    }

    /// Changes a start script of plain QEMU to the disk's new image after all moves, as the guide requires. Without the
    /// change the next start would use the next copy with the old name.
    fn name_last(&mut self, index: usize, own: &[&Intent]) {
        if !self.host.plain {
            return;
        }
        let Self { host, .. } = self;
        for disk in &mut host.guests[index].disks {
            let moves = own.iter().any(|i| i.moves() && i.target == disk.target);
            if !moves && host.files.at(path_of(&disk.defined)).is_none() {
                (disk.defined, disk.durable) = (disk.last.clone(), disk.last.clone());
            }
        }
    }
}
