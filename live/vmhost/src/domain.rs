//! Domains and their disks, parsed from libvirt's XML.

use std::fmt;

use roxmltree::Node;

use crate::xml::{Xml, child, parsed};
use crate::{HostError, Image};

/// Virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Name of the domain. It may be reused after the domain was removed.
    pub name: String,
    /// Permanent identifier of the domain.
    pub uuid: String,
    /// Number that differs for each start of the domain; `None` if it does not run.
    pub id: Option<u32>,
    /// Platform that owns the domain; `None` if it is libvirt's operator.
    pub platform: Option<Platform>,
    /// Disks of the domain, in the order of the XML.
    pub disks: Vec<Disk>,
    /// Backing files of its disks, and files of copies in progress.
    pub below: Vec<String>,
}

/// Platforms that manage domains themselves. Changes by others may conflict with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Nova.
    OpenStack,
    /// KubeVirt.
    KubeVirt,
    /// oVirt or a derivative.
    OVirt,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Platform::OpenStack => "OpenStack",
            Platform::KubeVirt => "KubeVirt",
            Platform::OVirt => "oVirt",
        })
    }
}

/// Kind of device that the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    Disk,
    /// A CD-ROM drive.
    Cdrom,
    /// A floppy drive.
    Floppy,
    /// A SCSI device that is passed through.
    Lun,
}

/// Place of a disk's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A drive without a medium.
    Empty,
    File(String),
    /// A block device.
    Block {
        path: String,
        /// Bytes of the disk, if the device is larger (`<slices>`).
        bytes: Option<u64>,
    },
    /// A volume of a pool, both by name.
    Volume {
        pool: String,
        volume: String,
    },
    /// An NBD export behind a unix socket.
    Nbd {
        /// The socket's path.
        socket: String,
        /// The export's name.
        export: String,
    },
    /// An image on a network.
    Network {
        protocol: String,
        /// Name of the image there, such as `pool/image`.
        name: String,
        /// Elements with hosts and credentials, as text of the definition.
        access: String,
    },
    /// Another type, by libvirt's name.
    Other(String),
}

/// Number of backing images below the one to which a disk writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// Known number.
    Images(u32),
    /// Not reported: libvirt does not determine it for a domain that does not run.
    Unknown,
}

/// Block job on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// Target of the copy; `None` if the job is not a copy, or its target is unknown.
    pub to: Option<Image>,
    /// True if all data is copied and both images receive the writes, so the job may pivot.
    pub ready: bool,
}

/// Disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name of the disk in the domain, such as `vda`.
    pub target: String,
    /// Kind of device that the guest sees.
    pub kind: DiskKind,
    /// Place of the disk's data.
    pub source: Source,
    /// Format of its image, as configured; never probed.
    pub format: Option<String>,
    /// True if the guest may not write.
    pub readonly: bool,
    /// True if other domains may use it at the same time.
    pub shareable: bool,
    /// True if writes are discarded at the end of the domain.
    pub transient: bool,
    /// Backing images.
    pub chain: Chain,
    /// Element of its source that a new image would not have, such as `encryption`.
    pub bound: Option<String>,
    /// Block job on the disk.
    pub mirror: Option<Mirror>,
    /// True if the disk has a rate limit.
    pub limited: bool,
    /// Serial number that the guest sees.
    pub serial: Option<String>,
    /// True if discards of the guest free space in the image's file system.
    pub unmap: bool,
    /// True if an iothread serves it.
    pub iothread: bool,
    /// Another reason for which it stays in place, as text.
    pub stays: Option<String>,
    /// libvirt's name of its device, while the domain runs.
    pub alias: Option<String>,
}

/// Reason for which a disk stays in place, whatever is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StayReason {
    /// It is not a disk that stores data.
    NoDisk,
    /// It has no medium.
    Empty,
    /// The guest cannot write to it.
    ReadOnly,
    /// Several domains use it.
    Shareable,
    /// Its writes are discarded.
    Transient,
    /// It is on a network.
    Network(String),
    /// It is a block device of a machine of plain QEMU.
    BlockDevice,
    /// Its volume has these snapshots or clones.
    VolumeSnapshots(String),
    /// Its path does not change with the name of its volume, which is this one.
    VolumeAlias(String),
    /// Only root may rename and remove its volume.
    VolumeRights,
    /// Its source has an unknown type.
    Kind(String),
    /// Its image has this number of backing images, which a copy would lose or include.
    Chain(u32),
    /// The number of its backing images is unknown.
    ChainUnknown,
    /// The format of its image is not supported, or not configured.
    Format(Option<String>),
    /// Its source has this element, which a new image would not have.
    Bound(String),
    /// Another program runs a block job on it.
    Job,
    /// A job on the whole domain is in progress.
    DomainJob(String),
    /// A platform owns its domain.
    Platform(Platform),
    /// The features of its image cannot be read, for this reason.
    ImageUnknown(String),
    /// Its image names this backing file.
    Backing(String),
    /// Its image has this number of internal snapshots.
    InternalSnapshots(usize),
    /// Its image has this number of bitmaps.
    Bitmaps(usize),
    /// Its image stores its data in this file.
    DataFile(String),
    Encrypted,
    /// Its image is marked corrupt.
    Corrupt,
    /// Its image has this option, which a new image cannot have.
    Option(String),
    /// The metadata of its domain cannot be read, for this reason.
    MetadataUnknown(String),
    /// libvirt has snapshots of its domain.
    Snapshots,
    /// libvirt has checkpoints of its domain.
    Checkpoints,
    /// Another user of its image, as text.
    NamedBy(String),
    /// Its build of QEMU may not copy, not even with a printed command, for this reason.
    Build(String),
    /// Its build of QEMU may not copy; an operator can move the disk while its VM is shut down.
    Running(String),
    /// Its guest must be paused while a copy begins.
    Hold,
    /// Its process is not visible to the agent.
    Unseen,
    /// The agent cannot write to its directory.
    Directory,
    /// Another reason, as text.
    Other(String),
}

impl StayReason {
    /// Returns true if an operator can move the disk by hand, so that moves of it are planned and recommended.
    pub fn is_for_people(&self) -> bool {
        matches!(
            self,
            StayReason::Platform(_)
                | StayReason::Running(_)
                | StayReason::Unseen
                | StayReason::Directory
                | StayReason::BlockDevice
                | StayReason::VolumeSnapshots(_)
                | StayReason::VolumeAlias(_)
                | StayReason::VolumeRights
                | StayReason::Network(_)
        )
    }
}

impl fmt::Display for StayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StayReason::NoDisk => {
                f.write_str("it is not a disk, but a drive or a passed-through device")
            }
            StayReason::Empty => f.write_str("the drive is empty"),
            StayReason::ReadOnly => f.write_str("the guest may only read it"),
            StayReason::Shareable => f.write_str("other domains may use it at the same time"),
            StayReason::Transient => f.write_str("its writes are discarded (transient disk)"),
            StayReason::Network(protocol) if protocol == "rbd" => f.write_str(
                "it is an RBD image, and the agent does not change Ceph: run the printed command. \
                 QEMU's mirror moves the disk of a running guest; `rbd migration` needs the guest \
                 shut off",
            ),
            StayReason::Network(protocol) => write!(
                f,
                "it is reached over a network ({protocol}), and the agent creates and removes \
                 nothing there: move it by hand"
            ),
            StayReason::BlockDevice => f.write_str(
                "it is on a block device, and the agent moves such disks under libvirt only: move it by hand",
            ),
            StayReason::VolumeSnapshots(names) => write!(
                f,
                "its volume has {names}, which a copy would not have and which keep the old volume: \
                 remove them, or move it by hand"
            ),
            StayReason::VolumeAlias(path) => write!(
                f,
                "its domain would start from the old volume again, since its path stays when the \
                 volume is renamed: set the path {path} with `virsh edit`, and restart the domain"
            ),
            StayReason::VolumeRights => f.write_str(
                "the agent does not run as root, so it could not rename and remove the old volume",
            ),
            StayReason::Kind(kind) => write!(
                f,
                "its source has type {kind:?}, and moves of this type are not tested"
            ),
            StayReason::Chain(images) => write!(f, "backing images below its image: {images}"),
            StayReason::ChainUnknown => {
                f.write_str("its image may have backing images")
            }
            StayReason::Format(Some(format)) => write!(
                f,
                "its image has format {format:?}, and moves of this format are not tested"
            ),
            StayReason::Format(None) => {
                f.write_str("the format of its image is not configured, and must not be guessed")
            }
            StayReason::Bound(element) => write!(
                f,
                "its source has <{element}>, and moves with it are not tested"
            ),
            StayReason::Job => f.write_str("another program runs a block job on it"),
            StayReason::DomainJob(job) => write!(
                f,
                "a job of its domain is running ({job}): wait until it ends"
            ),
            StayReason::Other(why) | StayReason::NamedBy(why) | StayReason::Build(why) | StayReason::Running(why) => f.write_str(why),
            StayReason::Platform(platform) => {
                write!(f, "{platform} owns its domain: move the disk with the tools of that platform")
            }
            StayReason::ImageUnknown(why) => write!(f, "the content of its image is unknown: {why}"),
            StayReason::Backing(file) => write!(
                f,
                "its image has the backing image {file}: merge both with `virsh blockpull`"
            ),
            StayReason::InternalSnapshots(n) => write!(
                f,
                "its image has {n} internal snapshots, which a copy would lose: delete them with \
                 `virsh snapshot-delete`, or with `qemu-img snapshot -d` while the domain is off"
            ),
            StayReason::Bitmaps(n) => write!(
                f,
                "its image has {n} bitmaps, which a copy would lose: delete them with \
                 `virsh checkpoint-delete`, or with `qemu-img bitmap --remove` while the domain is off"
            ),
            StayReason::DataFile(file) => write!(
                f,
                "its image keeps its data in another file, {file}, which a copy would not: \
                 shut the domain off and convert the image with `qemu-img convert`"
            ),
            StayReason::Encrypted => {
                f.write_str("its image is encrypted, and moves of encrypted images are not tested")
            }
            StayReason::Corrupt => f.write_str(
                "its image is marked corrupt: shut the domain off and run `qemu-img check`",
            ),
            StayReason::Option(option) => write!(
                f,
                "its image has the option {option}, which a copy cannot have"
            ),
            StayReason::MetadataUnknown(why) => write!(
                f,
                "the snapshots and checkpoints of its domain are unknown: {why}"
            ),
            StayReason::Snapshots => f.write_str(
                "its domain has snapshots, which name the old image: delete them with \
                 `virsh snapshot-delete`",
            ),
            StayReason::Checkpoints => f.write_str(
                "its domain has checkpoints, which a copy would lose: delete them with \
                 `virsh checkpoint-delete`",
            ),
            StayReason::Hold => f.write_str(
                "its disk has discard='unmap' or an iothread, so its guest must be paused while a \
                 copy begins: let the agent move it (`moves = true`), or shut the domain off and \
                 convert the image",
            ),
            StayReason::Unseen => f.write_str(
                "the process of its domain is not visible to the agent, so the agent could not detect a restart",
            ),
            StayReason::Directory => f.write_str(
                "the agent may not write to the directory of its image, so it could not rename it",
            ),
        }
    }
}

/// Returns true for network protocols whose images are volumes and may be moved by hand.
pub(crate) fn is_storage(protocol: &str) -> bool {
    matches!(protocol, "rbd" | "iscsi")
}

impl Disk {
    /// Returns the reason in its definition for which it stays in place: a part of [`crate::RunningDomain::verdict`].
    pub(crate) fn fixed(&self, of: &Domain) -> Option<StayReason> {
        let kind = match &self.source {
            _ if self.kind != DiskKind::Disk => Some(StayReason::NoDisk),
            Source::Empty => Some(StayReason::Empty),
            Source::Network { protocol, .. } if !is_storage(protocol) => {
                Some(StayReason::Network(protocol.clone()))
            }
            Source::Other(kind) => Some(StayReason::Kind(kind.clone())),
            Source::File(_)
            | Source::Block { .. }
            | Source::Volume { .. }
            | Source::Nbd { .. }
            | Source::Network { .. } => None,
        };
        let format = match self.format.as_deref() {
            Some("raw" | "qcow2") => None,
            other => Some(StayReason::Format(other.map(String::from))),
        };
        let chain = match self.chain {
            Chain::Images(0) => None,
            Chain::Images(images) => Some(StayReason::Chain(images)),
            Chain::Unknown => Some(StayReason::ChainUnknown),
        };
        kind.or(of.platform.map(StayReason::Platform))
            .or(self.readonly.then_some(StayReason::ReadOnly))
            .or(self.shareable.then_some(StayReason::Shareable))
            .or(self.transient.then_some(StayReason::Transient))
            .or(format)
            .or(chain)
            .or(self.bound.clone().map(StayReason::Bound))
            .or(self.stays.clone().map(StayReason::Other))
            .or(self.mirror.is_some().then_some(StayReason::Job))
    }
}

/// Namespaces of metadata by which platforms are recognised; each is a prefix.
const PLATFORMS: [(&str, Platform); 3] = [
    (
        "http://openstack.org/xmlns/libvirt/nova/",
        Platform::OpenStack,
    ),
    ("http://kubevirt.io", Platform::KubeVirt),
    ("http://ovirt.org/vm/", Platform::OVirt),
];

impl Domain {
    /// Parses the output of `virsh dumpxml`.
    ///
    /// # Errors
    /// The fault, with its line.
    pub fn of_xml(text: &str) -> Result<Self, HostError> {
        let document = parsed("domain", text)?;
        let xml = Xml {
            document: &document,
            what: "domain",
        };
        let root = document.root_element();
        if !root.has_tag_name("domain") {
            return Err(xml.fault(root, "the root element is not <domain>"));
        }
        let name = xml.text(root, "name")?;
        let uuid = xml.text(root, "uuid")?;
        let xml = Xml {
            what: &format!("domain {name:?}"),
            ..xml
        };
        let platform = child(root, "metadata").and_then(|m| {
            let mut spaces = m.children().filter_map(|c| c.tag_name().namespace());
            spaces.find_map(|space| {
                let mut known = PLATFORMS.iter();
                known
                    .find(|(begins, _)| space.starts_with(begins))
                    .map(|p| p.1)
            })
        });
        let devices = child(root, "devices");
        let disks = devices.into_iter().flat_map(|d| d.children());
        let disks = disks.filter(|d| d.has_tag_name("disk"));
        let is_below = |n: &Node<'_, '_>| matches!(n.tag_name().name(), "backingStore" | "mirror");
        let below = root.descendants().filter(is_below);
        let below = below.filter_map(|n| Some(child(n, "source")?.attribute("file")?.to_owned()));
        Ok(Self {
            below: below.collect(),
            disks: disks.map(|d| xml.disk(d)).collect::<Result<_, _>>()?,
            name,
            uuid,
            id: root.attribute("id").and_then(|id| id.parse().ok()),
            platform,
        })
    }
}

impl Xml<'_, '_, '_> {
    fn disk(&self, node: Node<'_, '_>) -> Result<Disk, HostError> {
        let target = child(node, "target").and_then(|t| t.attribute("dev"));
        let target = target.ok_or_else(|| self.fault(node, "a disk has no <target dev=…>"))?;
        let kind = match node.attribute("device").unwrap_or("disk") {
            "disk" => DiskKind::Disk,
            "cdrom" => DiskKind::Cdrom,
            "floppy" => DiskKind::Floppy,
            "lun" => DiskKind::Lun,
            other => {
                let why = format!("disk {target}: unknown device={other:?}");
                return Err(self.fault(node, &why));
            }
        };
        let driver = child(node, "driver");
        Ok(Disk {
            target: target.into(),
            kind,
            source: self.source(node),
            format: driver.and_then(|d| d.attribute("type")).map(String::from),
            readonly: child(node, "readonly").is_some(),
            shareable: child(node, "shareable").is_some(),
            transient: child(node, "transient").is_some(),
            chain: chain(node),
            bound: bound(node),
            mirror: child(node, "mirror").map(|m| self.mirror(m)),
            limited: child(node, "iotune").is_some(),
            serial: child(node, "serial")
                .and_then(|s| s.text())
                .map(|s| s.trim().into()),
            unmap: driver.and_then(|d| d.attribute("discard")) == Some("unmap"),
            iothread: driver.is_some_and(|d| d.has_attribute("iothread")),
            stays: driver.and_then(|d| child(d, "iothreads")).map(|_| {
                "several threads serve it, and copies and limits are not tested in this case".into()
            }),
            alias: child(node, "alias")
                .and_then(|a| a.attribute("name"))
                .map(String::from),
        })
    }

    fn source(&self, disk: Node<'_, '_>) -> Source {
        let Some(source) = child(disk, "source") else {
            return Source::Empty;
        };
        let has = |name: &str| source.attribute(name).map(String::from);
        let kind = disk.attribute("type").unwrap_or("file");
        match kind {
            "file" => has("file").map_or(Source::Empty, Source::File),
            "block" => has("dev").map_or(Source::Empty, |path| Source::Block {
                path,
                bytes: slice(source),
            }),
            "volume" => match (has("pool"), has("volume")) {
                (Some(pool), Some(volume)) => Source::Volume { pool, volume },
                _ => Source::Empty,
            },
            "network" => self.network(source),
            other => Source::Other(other.into()),
        }
    }

    /// Parses a network source. NBD without TLS behind a unix socket is an export of the host; every other source is on
    /// a network.
    fn network(&self, source: Node<'_, '_>) -> Source {
        let protocol = source.attribute("protocol").unwrap_or_default();
        let mut hosts = source.children().filter(|c| c.has_tag_name("host"));
        let host = hosts
            .next()
            .filter(|h| h.attribute("transport") == Some("unix"));
        let socket = host.and_then(|h| h.attribute("socket"));
        let name = source.attribute("name").unwrap_or_default().to_owned();
        match (protocol, socket, hosts.next(), source.attribute("tls")) {
            ("nbd", Some(socket), None, None | Some("no")) => Source::Nbd {
                socket: socket.into(),
                export: name,
            },
            _ => {
                let inside = source.children();
                let access = inside.filter(|c| matches!(c.tag_name().name(), "host" | "auth"));
                let text = self.document.input_text();
                Source::Network {
                    protocol: protocol.into(),
                    name,
                    access: access.map(|c| &text[c.range()]).collect(),
                }
            }
        }
    }

    fn mirror(&self, node: Node<'_, '_>) -> Mirror {
        let format = child(node, "format").and_then(|f| f.attribute("type"));
        let at = self.source(node).at(|_| None);
        let copies = node.attribute("job").unwrap_or("copy") == "copy";
        Mirror {
            to: at.zip(format).filter(|_| copies).map(|(at, format)| Image {
                at,
                format: format.into(),
            }),
            ready: node.attribute("ready") == Some("yes"),
        }
    }
}

/// Returns the bytes of the only slice of a source, if it begins at offset 0.
fn slice(source: Node<'_, '_>) -> Option<u64> {
    let slices = child(source, "slices")?;
    let mut inside = slices.children().filter(|c| c.is_element());
    let slice = inside
        .next()
        .filter(|s| s.attribute("type") == Some("storage"))?;
    let is_all = inside.next().is_none() && slice.attribute("offset") == Some("0");
    slice.attribute("size")?.parse().ok().filter(|_| is_all)
}

/// Returns an element of a source that is not a part of its place.
fn bound(disk: Node<'_, '_>) -> Option<String> {
    let source = child(disk, "source")?;
    let mut inside = source.children().filter(|c| c.is_element());
    let is_network = source.has_attribute("protocol");
    let is_place = |name: &str| match name {
        "host" | "privateData" => true,
        "slices" => source.has_attribute("dev") && slice(source).is_some(),
        // Only operators move these images.
        "auth" | "initiator" => is_network,
        _ => false,
    };
    let other = inside.find(|c| !is_place(c.tag_name().name()))?;
    Some(other.tag_name().name().into())
}

/// Counts the backing images. Each is nested in the one above it; an empty element ends the chain.
fn chain(disk: Node<'_, '_>) -> Chain {
    let mut images = 0;
    let mut node = disk;
    loop {
        match child(node, "backingStore") {
            Some(below) if child(below, "source").is_some() => {
                images += 1;
                node = below;
            }
            Some(_) => return Chain::Images(images),
            None if images > 0 => return Chain::Images(images),
            None => return Chain::Unknown,
        }
    }
}
