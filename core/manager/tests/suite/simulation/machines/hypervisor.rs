//! Execution of orders by libvirt or plain QEMU, immediate or delayed.

use vmhost::Image;
use vmhost::moving::{Definition, FileId, Intent, LiveDomain};

use super::files::Files;
use super::guests::{BlockJob, Guest, Open, PauseCause, definition_by_name, path_of};

/// Order to QEMU or libvirt.
#[derive(Debug, Clone)]
pub enum Order {
    Begin(Intent),
    Pivot(Intent),
    Abort(Intent),
    Pause(Intent),
    Resume(Intent),
    /// Changes the definition, which must equal the observed one.
    Define(Intent, Definition, Image),
}

impl Order {
    pub fn intent(&self) -> &Intent {
        match self {
            Order::Begin(i) | Order::Pivot(i) | Order::Abort(i) => i,
            Order::Pause(i) | Order::Resume(i) | Order::Define(i, ..) => i,
        }
    }
}

/// Domain and the job on its disk, as observed.
pub struct Sight {
    pub live: LiveDomain,
    pub definition: Definition,
    pub runs: bool,
    pub progress: Option<(u64, u64)>,
    pub failed: Option<String>,
}

/// State that does not depend on an agent.
#[derive(Debug, Clone)]
pub struct Hypervisor {
    /// True without libvirt.
    pub plain: bool,
    pub guests: Vec<Guest>,
    pub files: Files,
    pub now_ns: u64,
    pub next_life: u32,
    /// Orders without a reply that are executed later, with their times.
    pub late: Vec<(u64, Order)>,
}

impl Hypervisor {
    pub fn index(&self, uuid: &str) -> usize {
        let found = self.guests.iter().position(|g| g.uuid == uuid);
        found.expect("domains stay")
    }

    pub fn guest(&self, uuid: &str) -> &Guest {
        &self.guests[self.index(uuid)]
    }

    pub fn guest_mut(&mut self, uuid: &str) -> &mut Guest {
        let index = self.index(uuid);
        &mut self.guests[index]
    }

    pub fn look(&self, intent: &Intent) -> Sight {
        let guest = self.guest(&intent.uuid);
        let definition = match self.plain {
            true => definition_by_name(&self.files, intent),
            false => guest.definition(intent),
        };
        let mut sight = Sight {
            live: guest.live(&intent.target),
            definition,
            runs: guest.runs(),
            progress: None,
            failed: None,
        };
        if let Some(BlockJob::Mirror {
            to, copied, failed, ..
        }) = &guest.disk(&intent.target).job
        {
            // Jobs of other tools are not reported: jobs have names.
            if to.image == intent.to {
                let all = self.size(guest.disk(&intent.target).live.as_ref());
                sight.progress = Some((*copied, all.saturating_sub(*copied)));
                sight.failed.clone_from(failed);
            }
        }
        sight
    }

    fn size(&self, open: Option<&Open>) -> u64 {
        open.map_or(0, |o| self.files.get(o.file).bytes)
    }

    /// Returns a domain that names a file.
    pub fn user_of(&self, path: &str) -> Option<String> {
        let names = |g: &&Guest| {
            g.disks.iter().any(|d| {
                let open = d.live.iter().any(|o| path_of(&o.image) == path);
                let defined = !self.plain && path_of(&d.defined) == path;
                let copied = matches!(&d.job, Some(BlockJob::Mirror { to, .. }) if path_of(&to.image) == path);
                open || defined || copied
            })
        };
        self.guests.iter().find(names).map(|g| g.name.clone())
    }

    /// Returns the files that QEMU processes have open, once per open.
    pub fn open_files(&self) -> Vec<FileId> {
        let disks = self.guests.iter().flat_map(|g| &g.disks);
        let open = disks.flat_map(|d| {
            let copied = match &d.job {
                Some(BlockJob::Mirror { to, .. }) => Some(to.file),
                _ => None,
            };
            d.live.iter().map(|o| o.file).chain(copied)
        });
        open.collect()
    }

    /// Executes an order.
    pub fn execute(&mut self, order: &Order) -> Result<(), String> {
        let intent = order.intent();
        let (uuid, target, now_ns) = (&intent.uuid, &intent.target, self.now_ns);
        if let Order::Define(_, seen, image) = order {
            // The check and the change are atomic here. libvirt has no lock for this.
            if self.look(intent).definition != *seen {
                return Err("the domain's definition was changed just now".into());
            }
            return self.define(intent, image);
        }
        if self.guest(uuid).life.is_none() {
            return Err("the domain is not running".into());
        }
        match order {
            Order::Begin(_) => self.begin(intent),
            Order::Pivot(_) => {
                let disk = self.guest_mut(uuid).disk_mut(target);
                match disk.job.take() {
                    Some(BlockJob::Mirror {
                        to,
                        ready: true,
                        failed: None,
                        ..
                    }) => {
                        (disk.last, disk.placed_ns) = (to.image.clone(), now_ns);
                        let file = to.file;
                        disk.live = Some(to);
                        let file = self.files.get_mut(file);
                        file.flushed = file.content;
                        Ok(())
                    }
                    job => {
                        disk.job = job;
                        Err("the block job is not ready".into())
                    }
                }
            }
            Order::Abort(_) => match self.guest_mut(uuid).disk_mut(target).job.take() {
                Some(_) => Ok(()),
                None => Err("there is no block job on the disk".into()),
            },
            Order::Pause(_) => {
                let guest = self.guest_mut(uuid);
                guest.paused = guest.paused.or(Some(PauseCause::User));
                Ok(())
            }
            Order::Resume(_) => {
                self.guest_mut(uuid).paused = None;
                Ok(())
            }
            Order::Define(..) => Ok(()),
        }
    }

    fn begin(&mut self, intent: &Intent) -> Result<(), String> {
        let file = self.files.at(path_of(&intent.to));
        let file = file.ok_or("the target is not there")?;
        let disk = self.guest(&intent.uuid).disk(&intent.target);
        // libvirt does not check the place of the disk.
        let is_from = disk.live.as_ref().is_some_and(|o| o.image == intent.from);
        if self.plain && !is_from {
            return Err("its disk is not what it was".into());
        }
        if disk.job.is_some() {
            return Err("there is a block job on the disk already".into());
        }
        if disk.snapshot {
            return Err("its image has others below it".into());
        }
        if self.files.get(file).capacity != disk.capacity {
            return Err("source and target differ in size".into());
        }
        assert!(
            !self.open_files().contains(&file),
            "{} is used already",
            intent.to
        );
        let disk = self.guest_mut(&intent.uuid).disk_mut(&intent.target);
        disk.job = Some(BlockJob::Mirror {
            to: Open {
                image: intent.to.clone(),
                file,
            },
            copied: 0,
            rate: intent.rate_bytes_per_s,
            ready_ns: None,
            ready: false,
            failed: None,
        });
        Ok(())
    }

    fn define(&mut self, intent: &Intent, image: &Image) -> Result<(), String> {
        if !self.plain {
            let disk = self.guest_mut(&intent.uuid).disk_mut(&intent.target);
            disk.defined = image.clone();
            return Ok(());
        }
        let from = path_of(&intent.from);
        let kept = intent.kept_as.as_deref().expect("all are files");
        match path_of(image) == from {
            true => self.files.rename(kept, from),
            false => self.block(intent),
        }
    }

    /// Makes a start from the old image fail, by its name.
    pub fn block(&mut self, intent: &Intent) -> Result<(), String> {
        let from = path_of(&intent.from);
        let kept = intent.kept_as.as_deref().expect("all are files");
        match self.files.at(from) {
            Some(_) => self.files.rename(from, kept),
            None => Ok(()),
        }
    }

    /// Continues copies. `late_ns` is the delay between the completion of a copy and its report.
    pub fn copy(&mut self, dt_ns: u64, late_ns: &mut impl FnMut() -> u64) {
        let Self {
            guests,
            files,
            now_ns,
            plain,
            ..
        } = self;
        for guest in guests.iter_mut() {
            for disk in &mut guest.disks {
                let Some(open) = disk.live.clone() else {
                    continue;
                };
                let ended = match &mut disk.job {
                    Some(BlockJob::Others { until_ns }) => *now_ns >= *until_ns,
                    Some(BlockJob::Mirror {
                        to,
                        copied,
                        rate,
                        ready_ns,
                        ready,
                        failed,
                    }) if failed.is_none() => {
                        let from = files.get(open.file).clone();
                        let more = (*rate as f64 * dt_ns as f64 / 1e9) as u64;
                        let bytes = files.get(to.file).bytes;
                        let grows = match ready_ns {
                            None => more.min(from.bytes.saturating_sub(*copied)),
                            Some(_) => from.bytes.saturating_sub(bytes),
                        };
                        let fits = files.grow(to.file, grows);
                        *copied += grows;
                        if !fits {
                            (*failed, *ready) = (Some("no space left on the target".into()), false);
                        } else if *copied >= from.bytes && ready_ns.is_none() {
                            files.get_mut(to.file).content = from.content;
                            *ready_ns = Some(*now_ns + late_ns());
                        }
                        *ready |= fits && ready_ns.is_some_and(|at| *now_ns >= at);
                        !fits && !*plain
                    }
                    _ => false,
                };
                if ended {
                    disk.job = None;
                }
            }
        }
    }
}
