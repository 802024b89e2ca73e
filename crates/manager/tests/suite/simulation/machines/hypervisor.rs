//! What libvirt, or plain QEMU, does when it is told to, now or late.

use vmhost::Image;
use vmhost::moving::{Definition, FileId, Intent, Live};

use super::files::Files;
use super::guests::{BlockJob, Guest, Open, Paused, definition_by_name, path_of};

/// Something that QEMU is told to do.
#[derive(Debug, Clone)]
pub enum Order {
    Begin(Intent),
    Pivot(Intent),
    Abort(Intent),
    Pause(Intent),
    Resume(Intent),
    /// From what it was seen to be.
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

/// A domain and the job on its disk.
pub struct Sight {
    pub live: Live,
    pub definition: Definition,
    pub runs: bool,
    pub progress: Option<(u64, u64)>,
    pub failed: Option<String>,
}

/// All that goes on without an agent.
#[derive(Debug, Clone)]
pub struct Hypervisor {
    /// Without libvirt.
    pub plain: bool,
    pub guests: Vec<Guest>,
    pub files: Files,
    pub now_ns: u64,
    pub next_life: u32,
    /// Orders that were not answered and are carried out yet, and when.
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
            // Of somebody else's nothing is told: jobs have names.
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

    /// A domain that names a file.
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

    /// Files that some QEMU has open, each as often as it has.
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

    /// Carries an order out.
    pub fn execute(&mut self, order: &Order) -> Result<(), String> {
        let intent = order.intent();
        let (uuid, target, now_ns) = (&intent.uuid, &intent.target, self.now_ns);
        if let Order::Define(_, seen, image) = order {
            // Nobody else changes it in this instant: there is no lock that libvirt would have for that.
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
                guest.paused = guest.paused.or(Some(Paused::User));
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
        // libvirt does not look where the disk is.
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

    /// Has a start of the old image fail, by its name.
    pub fn block(&mut self, intent: &Intent) -> Result<(), String> {
        let from = path_of(&intent.from);
        let kept = intent.kept_as.as_deref().expect("all are files");
        match self.files.at(from) {
            Some(_) => self.files.rename(from, kept),
            None => Ok(()),
        }
    }

    /// Copies go on; `late_ns` says how long after all is there that is told.
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
