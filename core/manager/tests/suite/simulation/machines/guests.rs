//! Domains as libvirt and QEMU represent them: running state, images, block jobs, and the images that a start would
//! read.

use vmhost::moving::{Definition, FileId, Intent, LiveDomain, Phase};
use vmhost::{
    Chain, Disk, DiskFacts, DiskKind, Domain, HostError, Image, ImageInfo, ImageLocation, Metadata,
    Mirror, Platform, RunningDomain, Source, builds,
};

use super::files::{Content, Files};

/// Size of a guest's write.
pub const PIECE: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseCause {
    /// Paused by an unknown order, possibly by the agent.
    User,
    /// Paused by a write error.
    Error,
}

/// Image that QEMU has open. Its file may have another name by now.
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
        /// Time at which readiness is reported. The copy is complete before.
        ready_ns: Option<u64>,
        ready: bool,
        /// Reason of its failure. Only plain QEMU keeps such a job.
        failed: Option<String>,
    },
    /// Block job of another tool.
    Others { until_ns: u64 },
}

#[derive(Debug, Clone)]
pub struct FakeDisk {
    pub number: u32,
    pub target: String,
    pub class: String,
    pub capacity: u64,
    /// Version of the last write that was acknowledged to the guest.
    pub acknowledged: u64,
    pub live: Option<Open>,
    /// Image that a start reads, then the image that it would read after a power loss.
    pub defined: Image,
    pub durable: Image,
    /// Last image that the domain ran from, as its operator knows.
    pub last: Image,
    pub job: Option<BlockJob>,
    pub ios: u64,
    pub time_ns: u64,
    pub rate: f64,
    /// True if the disk must stay in place permanently.
    pub stays: bool,
    /// True if a snapshot of another tool keeps the disk in place for now.
    pub snapshot: bool,
    /// True if the guest is paused while a copy starts.
    pub iothread: bool,
    /// Time at which the disk came to its place.
    pub placed_ns: u64,
    /// True if a person chose the image for the next start.
    pub chosen: bool,
}

#[derive(Debug, Clone)]
pub struct Guest {
    pub name: String,
    pub uuid: String,
    /// Number of the start; `None` if the domain is off.
    pub life: Option<u32>,
    pub paused: Option<PauseCause>,
    /// Time at which a person resumes the domain.
    pub resumed_ns: Option<u64>,
    /// True if a person resumed the domain while the agent had paused it.
    pub let_go: bool,
    /// Time of the next start.
    pub back_ns: u64,
    pub started_ns: u64,
    pub platform: Option<Platform>,
    /// Permanent reason that no agent moves its disks.
    pub fault: Option<String>,
    pub disks: Vec<FakeDisk>,
}

pub fn image(path: &str) -> Image {
    Image {
        at: ImageLocation::File(path.into()),
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

    /// Returns the domain as in libvirt's XML: the running or the defined one.
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

    /// Returns all facts that decide whether the disks of a running domain may move.
    pub fn known(&self) -> RunningDomain {
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
        RunningDomain {
            domain: self.shown(true),
            id: self.life.expect("it runs"),
            build: match &self.fault {
                Some(why) => Err(HostError::unread(why)),
                None => Ok(build),
            },
            metadata: Ok(Metadata::default()),
            disks: self.disks.iter().map(facts).collect(),
        }
    }

    pub fn live(&self, target: &str) -> LiveDomain {
        match self.life {
            None => LiveDomain::Off,
            Some(_) => LiveDomain::of(&self.shown(true), target, |_| None),
        }
    }

    pub fn definition(&self, intent: &Intent) -> Definition {
        Definition::of(&self.shown(false), intent, |_| None)
    }

    /// Writes to each disk. The write is acknowledged when all required images have it.
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
            // The other copy has it too, but it may not survive the end of QEMU.
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

    /// Ends the domain's QEMU. Content in its memory is lost, or was written in time.
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

    /// Starts the domain from its definition. Returns true if the images exist.
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

/// Returns the definition for plain QEMU, which has none: the name of the old image's file represents it.
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
