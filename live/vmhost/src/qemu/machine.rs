//! State of a QEMU machine, from seven queries.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::histogram::Histogram;
use super::value::PathValue as Field;
use super::{Names, Options};
use crate::moving::LiveDomain;
use crate::{
    BlockStats, Chain, Direction, Disk, DiskKind, Domain, DomainStats, HostError, Image, ImageInfo,
    ImageLocation, Latencies, Limits, Mirror, Source, StayReason,
};

/// Largest number of nodes that are followed below a device.
const DEPTH_MAX: usize = 16;
/// Filters of block jobs.
const JOB_FILTERS: [&str; 4] = [
    "mirror_top",
    "commit_top",
    "copy-before-write",
    "backup-top",
];
/// Filter that limits a rate.
const THROTTLE: &str = "throttle";
/// Part of the package name of Proxmox VE's QEMU.
const PROXMOX: &str = "pve-qemu";

/// Returns the queries with their arguments. Jobs come first: a job that is active in this answer may have ended in the
/// later ones, but not the reverse.
pub fn queries() -> [(&'static str, Option<Value>); 7] {
    [
        ("query-block-jobs", None),
        ("query-block", None),
        ("query-blockstats", None),
        ("query-named-block-nodes", Some(json!({ "flat": true }))),
        ("query-iothreads", None),
        ("query-status", None),
        ("query-migrate", None),
    ]
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    nodes: BTreeMap<String, Node>,
    drives: Vec<Drive>,
    jobs: Vec<Job>,
    iothreads: bool,
    /// QEMU's name of the machine's state, such as `running`.
    pub status: String,
    /// QEMU's name of the migration's state, such as `active`; `None` if there never was a migration.
    migration: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Driver of a format, of a protocol, or of a filter.
    pub driver: String,
    /// File name with which the node was opened.
    pub file: String,
    /// True if the host's page cache is bypassed.
    pub direct: bool,
    /// True if flushes are ignored.
    pub no_flush: bool,
    /// Treatment of written zeroes.
    pub detect_zeroes: String,
    capacity: Option<u64>,
    physical: Option<u64>,
    read_only: bool,
    /// Backing image.
    backing: Option<String>,
    /// Features of its image.
    info: ImageInfo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Drive {
    target: String,
    /// Device of the guest.
    qdev: Option<String>,
    /// Name of the drive in the old form, without a device name.
    id: String,
    removable: bool,
    limits: Limits,
    /// Names of nodes, from the device down.
    chain: Vec<String>,
    stats: BlockStats,
    histogram: HistogramOwner,
}

/// Owner of a disk's latency histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistogramOwner {
    /// There is no histogram.
    Nobody,
    /// This agent: the histogram has our bounds.
    Us,
    /// Another program has set other bounds.
    Others,
}

/// Block job.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    id: String,
    status: String,
    ready: bool,
    io_status: String,
    error: Option<String>,
    offset: u64,
    len: u64,
}

impl Job {
    fn is_over(&self) -> bool {
        matches!(&*self.status, "concluded" | "null")
    }

    /// Returns the reason for which the job does not continue; `None` if it does.
    fn failure(&self) -> Option<String> {
        match (&self.error, &*self.io_status) {
            (Some(why), _) => Some(format!("QEMU cancelled the copy: {why}")),
            (None, "nospace") => Some("QEMU stopped the copy: its target is full".into()),
            (None, "failed") => {
                Some("QEMU stopped the copy: its target, or its source, fails".into())
            }
            _ => None,
        }
    }
}

/// Nodes of a disk's image.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// Node below the filters of block jobs, to which the device is attached.
    pub top: &'a str,
    /// The node of the image's format.
    pub format: &'a str,
    pub node: &'a Node,
    /// Node of the image's file; that of the format, if the device is directly attached to a file.
    pub protocol: &'a str,
    below: &'a Node,
    job: bool,
    throttled: bool,
}

impl Machine {
    /// Parses the answers to [`queries`].
    ///
    /// # Errors
    /// The missing or wrong field, with its path.
    pub fn of(answers: &[Value; 7]) -> Result<Self, HostError> {
        let root = |i: usize| Field::root(queries()[i].0, &answers[i]);
        let jobs = root(0).items()?.iter().map(job).collect::<Result<_, _>>()?;
        let stats = root(2).items()?;
        let stats = Entries::of(&stats)?;
        let mut drives: Vec<Drive> = vec![];
        for field in root(1).items()? {
            let Some(mut drive) = drive(&field, &stats)? else {
                continue;
            };
            if drives.iter().any(|d| d.target == drive.target) {
                let qdev = drive.qdev.as_ref().unwrap_or(&drive.target);
                drive.target = plain(qdev);
            }
            drives.push(drive);
        }
        let named = |field: &Field<'_>| {
            let name = field.field("node-name").text()?;
            Ok::<_, HostError>((name.to_owned(), node(field)?))
        };
        let nodes = root(3)
            .items()?
            .iter()
            .map(named)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            nodes,
            drives,
            jobs,
            iothreads: !root(4).items()?.is_empty(),
            status: root(5).field("status").text()?.into(),
            migration: root(6)
                .field("status")
                .maybe(Field::text)?
                .map(String::from),
        })
    }

    fn drive(&self, target: &str) -> Option<&Drive> {
        self.drives.iter().find(|d| d.target == target)
    }

    /// Returns the nodes of a disk's image.
    pub fn tree(&self, target: &str) -> Option<Tree<'_>> {
        self.tree_of(self.drive(target)?)
    }

    fn tree_of<'a>(&'a self, drive: &'a Drive) -> Option<Tree<'a>> {
        let nodes = drive
            .chain
            .iter()
            .map(|name| Some((&**name, self.nodes.get(name)?)));
        let nodes: Vec<(&str, &Node)> = nodes.collect::<Option<_>>()?;
        let is_job = |node: &Node| JOB_FILTERS.contains(&&*node.driver);
        let mut below = nodes.iter().filter(|(_, node)| !is_job(node)).peekable();
        let (top, _) = below.peek()?;
        let (format, node) = below.find(|(_, node)| node.driver != THROTTLE)?;
        let (protocol, last) = below.next().map_or((*format, *node), |next| *next);
        // A filter without a name is missing from the chain of the device.
        let mut filters = self.nodes.values().filter(|n| is_job(n));
        let nameless = filters.any(|n| n.file == last.file);
        Some(Tree {
            top,
            format,
            node,
            protocol,
            below: last,
            job: nameless || nodes.iter().any(|(_, node)| is_job(node)),
            throttled: nodes.iter().any(|(_, node)| node.driver == THROTTLE),
        })
    }

    /// Returns the names that the command line may use for a disk's nodes: of its format, of its file, and of the
    /// drive.
    pub fn names_of(&self, target: &str) -> Option<[&str; 3]> {
        let drive = self.drive(target)?;
        let tree = self.tree_of(drive)?;
        Some([tree.format, tree.protocol, &drive.id])
    }

    /// Returns the limits of each disk's device, by the disk's name.
    pub fn limits(&self) -> BTreeMap<String, Limits> {
        let drives = self.drives.iter();
        drives
            .map(|d| (d.target.clone(), d.limits.clone()))
            .collect()
    }

    /// Returns the name of a disk's device in commands.
    pub fn device_of(&self, target: &str) -> Option<&str> {
        let drive = self.drive(target)?;
        Some(drive.qdev.as_deref().unwrap_or(&drive.id))
    }

    /// Returns the names of the disks.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.drives.iter().map(|d| &*d.target)
    }

    /// Returns the machine as a domain of this name in its life `id`, with its counters. `package` is the package
    /// version of QEMU. `options_of` returns the known options of a disk's nodes.
    pub fn domain(
        &self,
        name: &str,
        id: u32,
        package: &str,
        options_of: impl Fn(&str) -> Options,
    ) -> (Domain, DomainStats) {
        let disks = self.drives.iter();
        let disks = disks.map(|drive| self.disk(drive, package, options_of(&drive.target)));
        let domain = Domain {
            name: name.into(),
            uuid: name.into(),
            id: Some(id),
            platform: None,
            disks: disks.collect(),
            below: vec![],
        };
        let blocks = self.drives.iter().map(|drive| {
            let node = self.tree_of(drive).map(|t| t.node);
            let capacity = node.and_then(|n| n.capacity);
            BlockStats {
                capacity,
                // An image without a file occupies its full size.
                physical: node.and_then(|n| n.physical).or(capacity),
                ..drive.stats.clone()
            }
        });
        let stats = DomainStats {
            domain: name.into(),
            blocks: blocks.collect(),
        };
        (domain, stats)
    }

    fn disk(&self, drive: &Drive, package: &str, options: Options) -> Disk {
        let tree = self.tree_of(drive);
        let source = match (&tree, drive.chain.is_empty()) {
            (Some(tree), _) => tree.below.source(),
            (None, true) => Source::Empty,
            (None, false) => Source::Other("nodes that QEMU does not list".into()),
        };
        let job = tree.is_some_and(|t| t.job);
        Disk {
            target: drive.target.clone(),
            kind: match drive.removable {
                true => DiskKind::Cdrom,
                false => DiskKind::Disk,
            },
            source,
            format: tree.map(|t| t.format_name().to_owned()),
            readonly: tree.is_some_and(|t| t.node.read_only),
            shareable: false,
            transient: false,
            chain: match tree.is_some_and(|t| t.node.backing.is_some()) {
                true => Chain::Images(1),
                false => Chain::Images(0),
            },
            bound: None,
            mirror: job.then_some(Mirror {
                to: None,
                ready: false,
            }),
            limited: drive.limits.is_any() || tree.is_some_and(|t| t.throttled),
            serial: None,
            // Unknown discards may be enabled.
            unmap: options.unmap != Some(false),
            iothread: self.iothreads,
            stays: self.stays(drive, package),
            alias: None,
        }
    }

    /// Returns a reason specific to QEMU for which a disk stays in place.
    fn stays(&self, drive: &Drive, package: &str) -> Option<String> {
        if package.contains(PROXMOX) {
            return Some("Proxmox owns its machine: move the disk with `qm disk move`".into());
        }
        if let Some(why) = self.goes_away() {
            return Some(why);
        }
        if drive.qdev.is_none() {
            return Some("no device of the guest uses it".into());
        }
        let tree = self.tree_of(drive)?;
        (tree.node.file != tree.below.file)
            .then(|| "its image was opened with options that a copy would not keep".into())
    }

    /// Returns the reason against moves if the machine is migrating to another host or has migrated. QEMU permits
    /// copies during a migration, but the other host would use the old image.
    pub fn goes_away(&self) -> Option<String> {
        let by_state = ["inmigrate", "postmigrate", "finish-migrate"];
        let state = Some(&*self.status).filter(|s| by_state.contains(s));
        let over = ["none", "completed", "failed", "cancelled"];
        let migration = self.migration.as_deref().filter(|s| !over.contains(s));
        let what = state.or(migration)?;
        Some(format!("its machine is migrating to another host ({what})"))
    }

    /// Returns the features of a disk's image.
    pub fn info_of(&self, target: &str) -> Option<&ImageInfo> {
        Some(&self.tree(target)?.node.info)
    }

    /// Returns the feature of a disk's image that a copy would lose.
    pub fn would_be_lost(&self, target: &str) -> Option<StayReason> {
        let tree = self.tree(target)?;
        tree.node.info.of_copy(tree.format_name() == "qcow2").err()
    }

    /// Returns the state of a disk in this life of the machine, for a move.
    pub fn live(&self, target: &str, names: &Names, life: Option<u32>) -> LiveDomain {
        let Some(drive) = self.drive(target) else {
            return LiveDomain::On {
                image: None,
                mirror: None,
                life,
            };
        };
        let tree = self.tree_of(drive);
        let Some((tree, image)) = tree.and_then(|t| Some((t, t.image()?))) else {
            // The disk has an image, but it is unknown.
            return LiveDomain::Unknown;
        };
        let mirror = match self.job(names) {
            Some(job) if !job.is_over() => Some(Mirror {
                to: self.target_of(names),
                ready: job.ready && job.status == "ready" && job.failure().is_none(),
            }),
            _ => tree.job.then_some(Mirror {
                to: None,
                ready: false,
            }),
        };
        LiveDomain::On {
            image: Some(image),
            mirror,
            life,
        }
    }

    fn job(&self, names: &Names) -> Option<&Job> {
        self.jobs.iter().find(|j| j.id == names.job())
    }

    /// Returns the target of our job.
    fn target_of(&self, names: &Names) -> Option<Image> {
        let mut ours = self.nodes.iter().filter(|(name, _)| names.owns(name));
        let (_, format) = ours.clone().find(|(name, _)| names.is_format(name))?;
        let (_, protocol) = ours.find(|(name, _)| names.is_protocol(name))?;
        Some(Image {
            at: protocol.at()?,
            format: format.driver.clone(),
        })
    }

    /// Returns the reason for which the copy of a move does not continue; `None` if it does.
    pub fn failure(&self, names: &Names) -> Option<String> {
        self.job(names)?.failure()
    }

    /// Returns the bytes copied and left.
    pub fn progress(&self, names: &Names) -> Option<(u64, u64)> {
        let job = self.job(names).filter(|j| !j.is_over())?;
        Some((job.offset, job.len.saturating_sub(job.offset)))
    }

    /// Returns true if a job has ended. QEMU keeps it until it is dismissed.
    pub fn is_concluded(&self, names: &Names) -> bool {
        self.job(names).is_some_and(|j| j.status == "concluded")
    }

    /// Returns true if a job can be ended with two images that agree.
    pub fn is_ready(&self, names: &Names) -> bool {
        let job = self.job(names);
        job.is_some_and(|j| j.ready && j.status == "ready" && j.failure().is_none())
    }

    /// Returns all images that QEMU has open, and their backing images.
    pub fn images(&self) -> impl Iterator<Item = ImageLocation> + '_ {
        let below = |node: &Node| node.backing.clone().map(ImageLocation::File);
        self.nodes
            .values()
            .flat_map(move |n| n.at().into_iter().chain(below(n)))
    }

    /// Returns the nodes of an image that no disk uses, format nodes first. They keep the image open.
    pub fn unused_on(&self, at: &ImageLocation) -> Vec<&str> {
        self.unused(|_, node| node.at().as_ref() == Some(at) || node.file == at.to_string())
    }

    /// Returns the nodes of a move that no disk uses, format nodes first.
    pub fn unused_of(&self, names: &Names) -> Vec<&str> {
        self.unused(|name, _| names.owns(name))
    }

    fn unused(&self, wanted: impl Fn(&str, &Node) -> bool) -> Vec<&str> {
        let used = |name: &String| self.drives.iter().any(|d| d.chain.contains(name));
        let found = self
            .nodes
            .iter()
            .filter(|(name, node)| wanted(name, node) && !used(name));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|(_, node)| node.is_protocol());
        found.into_iter().map(|(name, _)| &**name).collect()
    }

    /// Returns the disks without a latency histogram, by their names for `block-latency-histogram-set`.
    pub fn uncounted(&self) -> impl Iterator<Item = String> + '_ {
        self.counted_by(HistogramOwner::Nobody)
    }

    /// Returns the disks whose latency histograms have our bounds.
    pub fn counted(&self) -> impl Iterator<Item = String> + '_ {
        self.counted_by(HistogramOwner::Us)
    }

    fn counted_by(&self, by: HistogramOwner) -> impl Iterator<Item = String> + '_ {
        let drives = self.drives.iter().filter(move |d| d.histogram == by);
        let drives = drives.filter(|d| !d.removable && !d.chain.is_empty());
        drives.filter_map(|d| d.qdev.clone())
    }
}

impl Tree<'_> {
    /// Returns the format with which a new image would be configured: a device on a plain file is raw.
    fn format_name(&self) -> &str {
        match self.node.is_protocol() {
            true => "raw",
            false => &self.node.driver,
        }
    }

    pub fn image(&self) -> Option<Image> {
        Some(Image {
            at: self.below.at()?,
            format: self.format_name().into(),
        })
    }
}

impl Node {
    fn is_protocol(&self) -> bool {
        matches!(
            &*self.driver,
            "file"
                | "nbd"
                | "host_device"
                | "host_cdrom"
                | "rbd"
                | "iscsi"
                | "nfs"
                | "ssh"
                | "https"
                | "http"
                | "ftp"
                | "ftps"
                | "nvme"
                | "gluster"
                | "null-co"
                | "null-aio"
                | "vvfat"
        )
    }

    fn at(&self) -> Option<ImageLocation> {
        self.source().at(|_| None)
    }

    fn source(&self) -> Source {
        match &*self.driver {
            "file" if self.file.starts_with('/') => Source::File(self.file.clone()),
            "file" if self.file.starts_with("json:") => Source::Other("file with options".into()),
            "file" => Source::Other("file by a relative path".into()),
            "host_device" => Source::Block {
                path: self.file.clone(),
                bytes: None,
            },
            "nbd" => nbd(&self.file),
            "rbd" | "iscsi" | "nfs" | "ssh" | "http" | "https" | "ftp" | "ftps" | "gluster" => {
                network(&self.driver)
            }
            other => Source::Other(other.into()),
        }
    }
}

fn nbd(file: &str) -> Source {
    match ImageLocation::of_uri(file) {
        Some(ImageLocation::Nbd { socket, export }) => Source::Nbd { socket, export },
        _ => network("nbd"),
    }
}

/// Returns the source of a network image, whose name QEMU reports only within options.
fn network(protocol: &str) -> Source {
    Source::Network {
        protocol: protocol.into(),
        name: String::new(),
        access: String::new(),
    }
}

fn node(field: &Field<'_>) -> Result<Node, HostError> {
    let (image, cache) = (field.field("image"), field.field("cache"));
    let number = |name: &str| image.field(name).maybe(Field::number);
    let mut info = ImageInfo::of_field(&image)?;
    let bitmaps = field.field("dirty-bitmaps").maybe(Field::items)?;
    for of in bitmaps.unwrap_or_default() {
        // The internal bitmap of a job has no name; bitmaps of the file appear here again.
        if let Some(name) = of.field("name").maybe(Field::text)?
            && !info.bitmaps.iter().any(|known| known == name)
        {
            info.bitmaps.push(name.into());
        }
    }
    info.encrypted |= field.field("encrypted").maybe(Field::flag)? == Some(true);
    let backing = field.field("backing_file").maybe(Field::text)?;
    let backing = backing.map(String::from).or(info.backing.clone());
    Ok(Node {
        driver: field.field("drv").text()?.into(),
        file: field.field("file").text()?.into(),
        direct: cache.field("direct").maybe(Field::flag)? == Some(true),
        no_flush: cache.field("no-flush").maybe(Field::flag)? == Some(true),
        detect_zeroes: field.field("detect_zeroes").text()?.into(),
        capacity: number("virtual-size")?,
        physical: number("actual-size")?,
        read_only: field.field("ro").flag()?,
        backing,
        info,
    })
}

fn job(field: &Field<'_>) -> Result<Job, HostError> {
    Ok(Job {
        id: field.field("device").text()?.into(),
        status: field.field("status").text()?.into(),
        ready: field.field("ready").flag()?,
        io_status: field.field("io-status").text()?.into(),
        error: field.field("error").maybe(Field::text)?.map(String::from),
        offset: field.field("offset").number()?,
        len: field.field("len").number()?,
    })
}

/// Counters by device name, or by the old name of the drive without one.
struct Entries<'a>(BTreeMap<(Option<&'a str>, &'a str), &'a Field<'a>>);

impl<'a> Entries<'a> {
    fn of(stats: &'a [Field<'a>]) -> Result<Self, HostError> {
        let mut all = BTreeMap::new();
        for entry in stats {
            let qdev = entry.field("qdev").maybe(Field::text)?;
            let id = entry.field("device").maybe(Field::text)?;
            all.insert(Self::key(qdev, id.unwrap_or_default()), entry);
        }
        Ok(Self(all))
    }

    /// Returns the key of a device. The device name is the same in all lists; the old name may be empty.
    fn key<'k>(qdev: Option<&'k str>, id: &'k str) -> (Option<&'k str>, &'k str) {
        match qdev {
            Some(_) => (qdev, ""),
            None => (None, id),
        }
    }

    fn get(&self, qdev: Option<&'a str>, id: &'a str) -> Option<&'a Field<'a>> {
        self.0.get(&Self::key(qdev, id)).copied()
    }
}

/// Parses a drive; `None` for a drive without a name.
fn drive<'a>(field: &Field<'a>, stats: &Entries<'a>) -> Result<Option<Drive>, HostError> {
    let id = field.field("device").text()?;
    let qdev = field.field("qdev").maybe(Field::text)?;
    let removable = field.field("removable").flag()?;
    let inserted = field.field("inserted");
    let Some(target) = target(qdev, id) else {
        return Ok(None);
    };
    let of = stats.get(qdev, id);
    let limits = Limits::of_qemu(&inserted)?;
    let mut chain = vec![];
    if let Some(entry) = of.filter(|_| inserted.is_there()) {
        let mut entry = entry.clone();
        while chain.len() < DEPTH_MAX && entry.field("node-name").is_there() {
            chain.push(entry.field("node-name").text()?.to_owned());
            entry = entry.field("parent");
        }
    }
    let (mut block, mut histogram) = (BlockStats::default(), HistogramOwner::Nobody);
    block.target.clone_from(&target);
    if let Some(entry) = of {
        histogram = counters(&entry.field("stats"), &mut block)?;
    }
    Ok(Some(Drive {
        target,
        qdev: qdev.map(String::from),
        id: id.into(),
        removable,
        limits,
        chain,
        stats: block,
        histogram,
    }))
}

pub(super) fn counters(
    stats: &Field<'_>,
    block: &mut BlockStats,
) -> Result<HistogramOwner, HostError> {
    let direction = |name: &str| {
        let number = |what: &str| stats.field(&format!("{name}_{what}")).number();
        Ok::<_, HostError>(Direction {
            requests: number("operations")?,
            bytes: match name {
                "flush" => 0,
                _ => number("bytes")?,
            },
            time_ns: number("total_time_ns")?,
        })
    };
    block.reads = Some(direction("rd")?);
    block.writes = Some(direction("wr")?);
    block.flushes = Some(direction("flush")?);
    let histogram = |name: &str| Histogram::of(&stats.field(&format!("{name}_latency_histogram")));
    let all = (histogram("rd")?, histogram("wr")?, histogram("flush")?);
    Ok(match all {
        (Histogram::Ours(reads), Histogram::Ours(writes), Histogram::Ours(flushes)) => {
            let writes = algo::merged_buckets(&writes, &flushes);
            block.latencies = Some(Latencies { reads, writes });
            HistogramOwner::Us
        }
        (Histogram::None, Histogram::None, Histogram::None) => HistogramOwner::Nobody,
        _ => HistogramOwner::Others,
    })
}

/// Returns the name of a disk: that of its device, whose path may end in its backend, or else that of its drive.
fn target(qdev: Option<&str>, id: &str) -> Option<String> {
    let path = qdev.unwrap_or_default();
    let path = path.strip_suffix("/virtio-backend").unwrap_or(path);
    let last = path.rsplit('/').next().unwrap_or_default();
    let anonymous = last.is_empty() || last.contains('[');
    let name = match anonymous && !id.is_empty() {
        true => id,
        false => last,
    };
    (!name.is_empty()).then(|| plain(name))
}

/// Replaces characters that separate parts of names.
fn plain(name: &str) -> String {
    let clean = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
        _ => '-',
    };
    let name: String = name.chars().map(clean).collect();
    name.trim_matches('-').into()
}
