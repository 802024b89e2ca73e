//! Domains as libvirt and QEMU have them: what runs, from which image, with which block job, and what a start would read.

use vmhost::moving::{Definition, FileId, Intent, Live, Phase};
use vmhost::{
    At, Chain, Disk, DiskFacts, DiskKind, Domain, Image, ImageInfo, Known, Metadata, Mirror,
    Platform, Source, builds,
};

use super::files::{Content, Files};

/// What a guest writes at a time.
pub const PIECE: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// By somebody's order, ours included: nobody can tell.
    User,
    /// It got an error on a write.
    Error,
}

/// An image that QEMU has open; its file may have another name by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub image: Image,
    pub file: FileId,
}

#[derive(Debug, Clone)]
pub enum BlockJob {
    Mirror {
        to: Open,
        copied: u64,
        rate: u64,
        /// When its readiness is told: all is there before.
        ready_ns: Option<u64>,
        ready: bool,
        /// Why it has stopped; only plain QEMU keeps such a job.
        failed: Option<String>,
    },
    /// Somebody else's.
    Others { until_ns: u64 },
}

#[derive(Debug, Clone)]
pub struct FakeDisk {
    pub number: u32,
    pub target: String,
    pub class: String,
    pub capacity: u64,
    /// Writes that the guest was told of.
    pub acknowledged: u64,
    pub live: Option<Open>,
    /// What a start reads, and what it would read after a power loss.
    pub defined: Image,
    pub durable: Image,
    /// What it ran from last, as its operator knows.
    pub last: Image,
    pub job: Option<BlockJob>,
    pub ios: u64,
    pub time_ns: u64,
    pub rate: f64,
    /// What keeps it where it is, for good.
    pub stays: bool,
    /// Whether somebody's snapshot keeps it where it is, for now.
    pub snapshot: bool,
    /// Whether its guest is held while a copy begins.
    pub iothread: bool,
    /// When it came to where it is.
    pub placed_ns: u64,
    /// Somebody chose what it starts from.
    pub chosen: bool,
}

#[derive(Debug, Clone)]
pub struct Guest {
    pub name: String,
    pub uuid: String,
    /// Another number for each start; none when it is off.
    pub life: Option<u32>,
    pub paused: Option<Paused>,
    /// Somebody lets it go on then.
    pub resumed_ns: Option<u64>,
    /// Somebody let it go on while it was held.
    pub let_go: bool,
    /// When it is to be started.
    pub back_ns: u64,
    pub started_ns: u64,
    pub platform: Option<Platform>,
    /// Why nothing of it is moved by an agent, for good.
    pub fault: Option<String>,
    pub disks: Vec<FakeDisk>,
}

pub fn image(path: &str) -> Image {
    Image {
        at: At::File(path.into()),
        format: "raw".into(),
    }
}

pub fn path_of(image: &Image) -> &str {
    image.at.file().expect("all are files")
}

impl Guest {
    pub fn runs(&self) -> bool {
        self.life.is_some() && self.paused.is_none()
    }

    pub fn volume(&self, disk: &FakeDisk) -> String {
        vmhost::volume_name(&self.name, &disk.target)
    }

    pub fn disk(&self, target: &str) -> &FakeDisk {
        let found = self.disks.iter().find(|d| d.target == target);
        found.expect("disks stay")
    }

    pub fn disk_mut(&mut self, target: &str) -> &mut FakeDisk {
        let found = self.disks.iter_mut().find(|d| d.target == target);
        found.expect("disks stay")
    }

    /// As libvirt's XML has it: as it runs, or as it is defined.
    pub fn shown(&self, live: bool) -> Domain {
        let disk = |d: &FakeDisk| {
            let image = match (&d.live, live) {
                (Some(open), true) => &open.image,
                _ => &d.defined,
            };
            Disk {
                target: d.target.clone(),
                kind: DiskKind::Disk,
                source: Source::File(path_of(image).into()),
                format: Some(image.format.clone()),
                readonly: false,
                shareable: d.stays,
                transient: false,
                chain: Chain::Images(u32::from(d.snapshot)),
                bound: None,
                mirror: d.job.as_ref().filter(|_| live).map(shown_job),
                limited: false,
                serial: None,
                unmap: false,
                iothread: d.iothread,
                stays: None,
                alias: None,
            }
        };
        Domain {
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            id: self.life.filter(|_| live),
            platform: self.platform,
            disks: self.disks.iter().map(disk).collect(),
            below: vec![],
        }
    }

    /// All that decides whether its disks may move, of one that runs.
    pub fn known(&self) -> Known {
        let facts = |d: &FakeDisk| {
            let facts = DiskFacts {
                info: Ok(ImageInfo {
                    virtual_size: Some(d.capacity),
                    ..ImageInfo::default()
                }),
                named_by: None,
                renamable: true,
                storage: None,
            };
            (d.target.clone(), facts)
        };
        let build = builds::of_program("QEMU emulator version 7.2.22").expect("it is one");
        Known {
            domain: self.shown(true),
            id: self.life.expect("it runs"),
            build: self.fault.clone().map_or(Ok(build), Err),
            metadata: Ok(Metadata::default()),
            disks: self.disks.iter().map(facts).collect(),
        }
    }

    pub fn live(&self, target: &str) -> Live {
        match self.life {
            None => Live::Off,
            Some(_) => Live::of(&self.shown(true), target, |_| None),
        }
    }

    pub fn definition(&self, intent: &Intent) -> Definition {
        Definition::of(&self.shown(false), intent, |_| None)
    }

    /// A write to each of its disks, which the guest is told of when all that counts have it.
    pub fn write(&mut self, files: &mut Files) {
        if !self.runs() {
            return;
        }
        for disk in &mut self.disks {
            disk.acknowledged += 1;
            let content = Some(Content {
                disk: disk.number,
                version: disk.acknowledged,
            });
            let open = disk.live.as_ref().expect("it runs");
            let file = files.get_mut(open.file);
            (file.content, file.flushed) = (content, content);
            // The other end has it too, but perhaps not yet in a way that outlasts QEMU.
            if let Some(BlockJob::Mirror {
                to,
                ready_ns: Some(_),
                failed: None,
                ..
            }) = &disk.job
            {
                files.get_mut(to.file).content = content;
            }
        }
    }

    /// Its QEMU ends. What was in its memory only is lost, or was written in time.
    pub fn ends(&mut self, files: &mut Files, lost: bool, back_ns: u64) {
        (self.life, self.paused, self.resumed_ns) = (None, None, None);
        self.back_ns = back_ns;
        self.let_go = false;
        for disk in &mut self.disks {
            disk.live = None;
            if let Some(BlockJob::Mirror { to, .. }) = disk.job.take()
                && lost
            {
                files.lose(to.file);
            }
        }
    }

    /// It is started from what is defined, if that is there.
    pub fn start(&mut self, files: &Files, life: u32, now_ns: u64) -> bool {
        let defined = self.disks.iter().map(|d| files.at(path_of(&d.defined)));
        let Some(found) = defined.collect::<Option<Vec<FileId>>>() else {
            return false;
        };
        for (disk, file) in self.disks.iter_mut().zip(found) {
            let wanted = Some(Content {
                disk: disk.number,
                version: disk.acknowledged,
            });
            let image = disk.defined.clone();
            let has = files.get(file).content;
            assert_eq!(
                has, wanted,
                "{}:{} starts from {image}, which lacks what its guest was told is written",
                self.name, disk.target
            );
            disk.last = image.clone();
            disk.live = Some(Open { image, file });
            (disk.ios, disk.time_ns, disk.placed_ns) = (0, 0, now_ns);
        }
        (self.life, self.started_ns) = (Some(life), now_ns);
        true
    }
}

fn shown_job(job: &BlockJob) -> Mirror {
    match job {
        BlockJob::Others { .. } => Mirror {
            to: None,
            ready: false,
        },
        BlockJob::Mirror { to, ready, .. } => Mirror {
            to: Some(to.image.clone()),
            ready: *ready,
        },
    }
}

/// Plain QEMU has no definition: the name of the old image's file stands for it.
pub fn definition_by_name(files: &Files, intent: &Intent) -> Definition {
    let there = |path: &str| files.at(path).is_some();
    let kept = intent.kept_as.as_deref().expect("all are files");
    match (&intent.phase, there(path_of(&intent.from))) {
        (Phase::Blocking, true) => Definition::None,
        (_, true) => Definition::Names(Some(intent.from.clone())),
        (Phase::Pivoted | Phase::Kept(_), false) => Definition::None,
        (_, false) if there(kept) => Definition::Unsettled,
        (_, false) => Definition::None,
    }
}
