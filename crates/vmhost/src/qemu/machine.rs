//! A machine as it is, by seven queries.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::histogram::Histogram;
use super::value::At as Field;
use super::{Names, Options};
use crate::moving::Live;
use crate::{
    At, BlockStats, Chain, Direction, Disk, DiskKind, Domain, DomainStats, Fixed, HostError, Image,
    ImageInfo, Latencies, Limits, Mirror, Source,
};

/// Nodes that are looked through on the way down from a device, at most.
const DEPTH_MAX: usize = 16;
/// Filters of block jobs.
const JOB_FILTERS: [&str; 4] = [
    "mirror_top",
    "commit_top",
    "copy-before-write",
    "backup-top",
];
/// The filter that limits a rate.
const THROTTLE: &str = "throttle";
/// What the name of a package has where a platform has built it.
const PROXMOX: &str = "pve-qemu";

/// What is asked, with its arguments. Jobs come first: one that goes on in their answer may have ended in the others, never the other way round.
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
    /// What QEMU calls its state, such as `running`.
    pub status: String,
    /// What it calls its way to another host, such as `active`; none if there never was one.
    migration: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its driver: of a format, of a protocol, or of a filter.
    pub driver: String,
    /// What it was opened as.
    pub file: String,
    /// Whether the host's cache is passed by.
    pub direct: bool,
    /// Whether flushes are passed over.
    pub no_flush: bool,
    /// What becomes of zeroes that are written.
    pub detect_zeroes: String,
    capacity: Option<u64>,
    physical: Option<u64>,
    read_only: bool,
    /// The image below.
    backing: Option<String>,
    /// Features of its image.
    info: ImageInfo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Drive {
    target: String,
    /// The device that the guest has.
    qdev: Option<String>,
    /// The name that it had before devices had names.
    id: String,
    removable: bool,
    limits: Limits,
    /// Names of nodes, from the device down.
    chain: Vec<String>,
    stats: BlockStats,
    histogram: Counted,
}

/// Who counts a disk's requests by latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// They are not counted.
    Nobody,
    /// By our bounds.
    Us,
    /// Somebody else has set other bounds.
    Others,
}

/// A block job.
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

    /// Why it does not go on by itself.
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

/// Where a disk's image is among the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// The node that the device is on, below filters of block jobs.
    pub top: &'a str,
    /// The node of the image's format.
    pub format: &'a str,
    pub node: &'a Node,
    /// The node of its file; that of the format, where the device is on it directly.
    pub protocol: &'a str,
    below: &'a Node,
    job: bool,
    throttled: bool,
}

impl Machine {
    /// From the answers to [`queries`].
    ///
    /// # Errors
    /// What is missing or wrong, with its place.
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

    /// Where the image of a disk is.
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
        // A filter without a name of its own is in no list of what a device is on.
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

    /// Names by which the command line may call a disk's nodes: of its format, of its file, and of itself.
    pub fn names_of(&self, target: &str) -> Option<[&str; 3]> {
        let drive = self.drive(target)?;
        let tree = self.tree_of(drive)?;
        Some([tree.format, tree.protocol, &drive.id])
    }

    /// What each of its disks is limited to by its device, by name.
    pub fn limits(&self) -> BTreeMap<String, Limits> {
        let drives = self.drives.iter();
        drives
            .map(|d| (d.target.clone(), d.limits.clone()))
            .collect()
    }

    /// The name by which orders about a disk call its device.
    pub fn device_of(&self, target: &str) -> Option<&str> {
        let drive = self.drive(target)?;
        Some(drive.qdev.as_deref().unwrap_or(&drive.id))
    }

    /// Names of its disks.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.drives.iter().map(|d| &*d.target)
    }

    /// The machine as a domain of that name in its life `id`, and its counters; `package` is what the packager calls this QEMU, and `options_of` says
    /// what is known of a disk's nodes.
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
                // What is no file takes all of it.
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
            // What is not known may be.
            unmap: options.unmap != Some(false),
            iothread: self.iothreads,
            stays: self.stays(drive, package),
            alias: None,
        }
    }

    /// Why a disk stays where it is, beside what every hypervisor has.
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

    /// Whether the machine is on its way to another host, or was: QEMU lets a disk move meanwhile, and the other host has the old image.
    pub fn goes_away(&self) -> Option<String> {
        let by_state = ["inmigrate", "postmigrate", "finish-migrate"];
        let state = Some(&*self.status).filter(|s| by_state.contains(s));
        let over = ["none", "completed", "failed", "cancelled"];
        let migration = self.migration.as_deref().filter(|s| !over.contains(s));
        let what = state.or(migration)?;
        Some(format!("its machine is migrating to another host ({what})"))
    }

    /// The image of a disk.
    pub fn info_of(&self, target: &str) -> Option<&ImageInfo> {
        Some(&self.tree(target)?.node.info)
    }

    /// Why a copy of a disk's image would not be what the image is.
    pub fn would_be_lost(&self, target: &str) -> Option<Fixed> {
        let tree = self.tree(target)?;
        tree.node.info.of_copy(tree.format_name() == "qcow2").err()
    }

    /// The disk of a move as it is, in this life of the machine.
    pub fn live(&self, target: &str, names: &Names, life: Option<u32>) -> Live {
        let Some(drive) = self.drive(target) else {
            return Live::On {
                image: None,
                mirror: None,
                life,
            };
        };
        let tree = self.tree_of(drive);
        let Some((tree, image)) = tree.and_then(|t| Some((t, t.image()?))) else {
            // It has one, and nobody knows which.
            return Live::Unknown;
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
        Live::On {
            image: Some(image),
            mirror,
            life,
        }
    }

    fn job(&self, names: &Names) -> Option<&Job> {
        self.jobs.iter().find(|j| j.id == names.job())
    }

    /// The image that our job copies to.
    fn target_of(&self, names: &Names) -> Option<Image> {
        let mut ours = self.nodes.iter().filter(|(name, _)| names.owns(name));
        let (_, format) = ours.clone().find(|(name, _)| names.is_format(name))?;
        let (_, protocol) = ours.find(|(name, _)| names.is_protocol(name))?;
        Some(Image {
            at: protocol.at()?,
            format: format.driver.clone(),
        })
    }

    /// Why the copy of a move does not go on by itself.
    pub fn failure(&self, names: &Names) -> Option<String> {
        self.job(names)?.failure()
    }

    /// Bytes copied and left.
    pub fn progress(&self, names: &Names) -> Option<(u64, u64)> {
        let job = self.job(names).filter(|j| !j.is_over())?;
        Some((job.offset, job.len.saturating_sub(job.offset)))
    }

    /// Whether a job is there and over: QEMU keeps it until somebody has seen that.
    pub fn is_concluded(&self, names: &Names) -> bool {
        self.job(names).is_some_and(|j| j.status == "concluded")
    }

    /// Whether a job can be ended so that both images agree.
    pub fn is_ready(&self, names: &Names) -> bool {
        let job = self.job(names);
        job.is_some_and(|j| j.ready && j.status == "ready" && j.failure().is_none())
    }

    /// All images that it has open, for a disk or for anything else, and those that they are said to be on top of.
    pub fn images(&self) -> impl Iterator<Item = At> + '_ {
        let below = |node: &Node| node.backing.clone().map(At::File);
        self.nodes
            .values()
            .flat_map(move |n| n.at().into_iter().chain(below(n)))
    }

    /// Nodes on an image that no disk has, those of formats first: they hold it open.
    pub fn unused_on(&self, at: &At) -> Vec<&str> {
        self.unused(|_, node| node.at().as_ref() == Some(at) || node.file == at.to_string())
    }

    /// Nodes of a move that no disk has, those of formats first.
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

    /// Disks whose latencies nobody counts, by what `block-latency-histogram-set` calls them.
    pub fn uncounted(&self) -> impl Iterator<Item = String> + '_ {
        self.counted_by(Counted::Nobody)
    }

    /// Disks whose latencies are counted by our bounds.
    pub fn counted(&self) -> impl Iterator<Item = String> + '_ {
        self.counted_by(Counted::Us)
    }

    fn counted_by(&self, by: Counted) -> impl Iterator<Item = String> + '_ {
        let drives = self.drives.iter().filter(move |d| d.histogram == by);
        let drives = drives.filter(|d| !d.removable && !d.chain.is_empty());
        drives.filter_map(|d| d.qdev.clone())
    }
}

impl Tree<'_> {
    /// The format as a new image would be configured: a device on a file is raw.
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

    fn at(&self) -> Option<At> {
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
    match At::of_uri(file) {
        Some(At::Nbd { socket, export }) => Source::Nbd { socket, export },
        _ => network("nbd"),
    }
}

/// An image over a network, whose name QEMU gives only as a part of options.
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
        // A job's own bitmap has no name; those in the file are here again.
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

/// Counters, by the device that they are of; by its old name where it has none.
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

    /// A device is the same one in all lists; its old name is empty where it has none.
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

/// A drive; none of what nobody could call by a name.
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
    let (mut block, mut histogram) = (BlockStats::default(), Counted::Nobody);
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

pub(super) fn counters(stats: &Field<'_>, block: &mut BlockStats) -> Result<Counted, HostError> {
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
            Counted::Us
        }
        (Histogram::None, Histogram::None, Histogram::None) => Counted::Nobody,
        _ => Counted::Others,
    })
}

/// What a disk is called: as its device, whose path may end in the half of it that has the disk; else as its drive.
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

/// Without what separates names.
fn plain(name: &str) -> String {
    let clean = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
        _ => '-',
    };
    let name: String = name.chars().map(clean).collect();
    name.trim_matches('-').into()
}
