//! A domain and its disks, as libvirt's XML has them.

use std::fmt;

use roxmltree::Node;

use crate::xml::{Xml, child, parsed};
use crate::{HostError, Image};

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its name; another one may have it when this one is gone.
    pub name: String,
    /// Its own for good.
    pub uuid: String,
    /// Another number for each time that it is started; none of one that does not run.
    pub id: Option<u32>,
    /// Who owns it, if that is not libvirt's operator.
    pub platform: Option<Platform>,
    /// Its disks, in the order of the XML.
    pub disks: Vec<Disk>,
    /// Files of images below those of its disks, and of copies of them that are under way.
    pub below: Vec<String>,
}

/// What manages domains by itself, and does not expect anybody else to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Nova.
    OpenStack,
    /// KubeVirt.
    KubeVirt,
    /// oVirt or its kin.
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

/// What kind of device a disk is to the guest.
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

/// Where a disk's data is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nothing is in it.
    Empty,
    File(String),
    /// A block device.
    Block {
        path: String,
        /// Bytes of the disk, where its device has more (`<slices>`).
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
    /// Over a network.
    Network {
        protocol: String,
        /// Name of the image there, such as `pool/image`.
        name: String,
        /// Elements with hosts and credentials, as text of the definition.
        access: String,
    },
    /// Something else, by libvirt's name of it.
    Other(String),
}

/// Images below the one that a disk writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// So many.
    Images(u32),
    /// It was not said: of a domain that does not run nobody looks.
    Unknown,
}

/// A block job on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The image that it copies to; none if it does something else, or that is not known.
    pub to: Option<Image>,
    /// Whether all is there, and stays so: it may pivot.
    pub ready: bool,
}

/// A disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its name in the domain, such as `vda`.
    pub target: String,
    /// What it is to the guest.
    pub kind: DiskKind,
    /// Where its data is.
    pub source: Source,
    /// The format of its image, as configured; never probed.
    pub format: Option<String>,
    /// The guest may not write.
    pub readonly: bool,
    /// Other domains may use it at the same time.
    pub shareable: bool,
    /// What is written is thrown away.
    pub transient: bool,
    /// Images below.
    pub chain: Chain,
    /// What of its source cannot be carried over, such as `encryption`, by the element's name.
    pub bound: Option<String>,
    /// The block job that is under way on it.
    pub mirror: Option<Mirror>,
    /// Whether it is limited in rate already.
    pub limited: bool,
    /// The serial number that its guest sees.
    pub serial: Option<String>,
    /// Whether what the guest discards is given back to its image's file system.
    pub unmap: bool,
    /// Whether a thread of its own serves it.
    pub iothread: bool,
    /// What else keeps it where it is, in words.
    pub stays: Option<String>,
    /// What libvirt calls its device, while it runs.
    pub alias: Option<String>,
}

/// Why a disk stays where it is, whatever is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fixed {
    /// It is no disk that data is kept on.
    NoDisk,
    /// Nothing is in it.
    Empty,
    /// The guest cannot write to it.
    ReadOnly,
    /// Several domains use it.
    Shareable,
    /// What is written to it is thrown away.
    Transient,
    /// It is reached over a network.
    Network(String),
    /// It is a block device of a machine of plain QEMU.
    BlockDevice,
    /// Its volume has these snapshots or clones.
    VolumeSnapshots(String),
    /// It is named by a path that does not change with the name of its volume, which has this one.
    VolumeAlias(String),
    /// Only root may rename and remove its volume.
    VolumeRights,
    /// Its source is of a kind that is not known.
    Kind(String),
    /// Its image has others below it, which would be lost or copied along.
    Chain(u32),
    /// It is not known whether its image has others below it.
    ChainUnknown,
    /// Its image is of a format that is not known, or was not said.
    Format(Option<String>),
    /// Its source has something that a new image would not have, by the element's name.
    Bound(String),
    /// A block job is under way on it that is not ours.
    Job,
    /// A job of its whole domain is under way.
    DomainJob(String),
    /// A platform owns its domain.
    Platform(Platform),
    /// The features of its image cannot be read, for this reason.
    ImageUnknown(String),
    /// Its image names this one below it.
    Backing(String),
    /// Its image has so many internal snapshots.
    InternalSnapshots(usize),
    /// Its image has so many bitmaps.
    Bitmaps(usize),
    /// Its image keeps its data in this file.
    DataFile(String),
    Encrypted,
    /// Its image is marked corrupt.
    Corrupt,
    /// Its image has this option, which no new one can be given.
    Option(String),
    /// The metadata of its domain cannot be read, for this reason.
    MetadataUnknown(String),
    /// libvirt has snapshots of its domain.
    Snapshots,
    /// libvirt has checkpoints of its domain.
    Checkpoints,
    /// Somebody else uses its image, in words.
    NamedBy(String),
    /// Its build of QEMU may not copy, by a printed command neither, for this reason.
    Build(String),
    /// Its build of QEMU may not copy, and a person can move it while its VM is shut down.
    Running(String),
    /// Its guest has to be paused while a copy begins.
    Hold,
    /// Its process cannot be seen.
    Unseen,
    /// Its directory cannot be written by the agent.
    Directory,
    /// Something else, in words.
    Other(String),
}

impl Fixed {
    /// Returns true if an operator can move it by hand: the move is planned and recommended.
    pub fn is_for_people(&self) -> bool {
        matches!(
            self,
            Fixed::Platform(_)
                | Fixed::Running(_)
                | Fixed::Unseen
                | Fixed::Directory
                | Fixed::BlockDevice
                | Fixed::VolumeSnapshots(_)
                | Fixed::VolumeAlias(_)
                | Fixed::VolumeRights
                | Fixed::Network(_)
        )
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fixed::NoDisk => {
                f.write_str("it is not a disk, but a drive or a passed-through device")
            }
            Fixed::Empty => f.write_str("the drive is empty"),
            Fixed::ReadOnly => f.write_str("the guest may only read it"),
            Fixed::Shareable => f.write_str("other domains may use it at the same time"),
            Fixed::Transient => f.write_str("its writes are discarded (transient disk)"),
            Fixed::Network(protocol) if protocol == "rbd" => f.write_str(
                "it is an RBD image, and the agent does not change Ceph: run the printed command. \
                 QEMU's mirror moves the disk of a running guest; `rbd migration` needs the guest \
                 shut off",
            ),
            Fixed::Network(protocol) => write!(
                f,
                "it is reached over a network ({protocol}), and the agent creates and removes \
                 nothing there: move it by hand"
            ),
            Fixed::BlockDevice => f.write_str(
                "it is on a block device, and the agent moves such disks under libvirt only: move it by hand",
            ),
            Fixed::VolumeSnapshots(names) => write!(
                f,
                "its volume has {names}, which a copy would not have and which keep the old volume: \
                 remove them, or move it by hand"
            ),
            Fixed::VolumeAlias(path) => write!(
                f,
                "its domain would start from the old volume again, since its path stays when the \
                 volume is renamed: set the path {path} with `virsh edit`, and restart the domain"
            ),
            Fixed::VolumeRights => f.write_str(
                "the agent does not run as root, so it could not rename and remove the old volume",
            ),
            Fixed::Kind(kind) => write!(
                f,
                "its source has type {kind:?}, and moves of this type are not tested"
            ),
            Fixed::Chain(images) => write!(f, "backing images below its image: {images}"),
            Fixed::ChainUnknown => {
                f.write_str("its image may have backing images")
            }
            Fixed::Format(Some(format)) => write!(
                f,
                "its image has format {format:?}, and moves of this format are not tested"
            ),
            Fixed::Format(None) => {
                f.write_str("the format of its image is not configured, and must not be guessed")
            }
            Fixed::Bound(element) => write!(
                f,
                "its source has <{element}>, and moves with it are not tested"
            ),
            Fixed::Job => f.write_str("another program runs a block job on it"),
            Fixed::DomainJob(job) => write!(
                f,
                "a job of its domain is running ({job}): wait until it ends"
            ),
            Fixed::Other(why) | Fixed::NamedBy(why) | Fixed::Build(why) | Fixed::Running(why) => f.write_str(why),
            Fixed::Platform(platform) => {
                write!(f, "{platform} owns its domain: move the disk with the tools of that platform")
            }
            Fixed::ImageUnknown(why) => write!(f, "the content of its image is unknown: {why}"),
            Fixed::Backing(file) => write!(
                f,
                "its image has the backing image {file}: merge both with `virsh blockpull`"
            ),
            Fixed::InternalSnapshots(n) => write!(
                f,
                "its image has {n} internal snapshots, which a copy would lose: delete them with \
                 `virsh snapshot-delete`, or with `qemu-img snapshot -d` while the domain is off"
            ),
            Fixed::Bitmaps(n) => write!(
                f,
                "its image has {n} bitmaps, which a copy would lose: delete them with \
                 `virsh checkpoint-delete`, or with `qemu-img bitmap --remove` while the domain is off"
            ),
            Fixed::DataFile(file) => write!(
                f,
                "its image keeps its data in another file, {file}, which a copy would not: \
                 shut the domain off and convert the image with `qemu-img convert`"
            ),
            Fixed::Encrypted => {
                f.write_str("its image is encrypted, and moves of encrypted images are not tested")
            }
            Fixed::Corrupt => f.write_str(
                "its image is marked corrupt: shut the domain off and run `qemu-img check`",
            ),
            Fixed::Option(option) => write!(
                f,
                "its image has the option {option}, which a copy cannot have"
            ),
            Fixed::MetadataUnknown(why) => write!(
                f,
                "the snapshots and checkpoints of its domain are unknown: {why}"
            ),
            Fixed::Snapshots => f.write_str(
                "its domain has snapshots, which name the old image: delete them with \
                 `virsh snapshot-delete`",
            ),
            Fixed::Checkpoints => f.write_str(
                "its domain has checkpoints, which a copy would lose: delete them with \
                 `virsh checkpoint-delete`",
            ),
            Fixed::Hold => f.write_str(
                "its disk has discard='unmap' or an iothread, so its guest must be paused while a \
                 copy begins: let the agent move it (`moves = true`), or shut the domain off and \
                 convert the image",
            ),
            Fixed::Unseen => f.write_str(
                "the process of its domain is not visible to the agent, so the agent could not detect a restart",
            ),
            Fixed::Directory => f.write_str(
                "the agent may not write to the directory of its image, so it could not rename it",
            ),
        }
    }
}

/// True for protocols of networks whose images are volumes, and may be moved by hand.
pub(crate) fn is_storage(protocol: &str) -> bool {
    matches!(protocol, "rbd" | "iscsi")
}

impl Disk {
    /// Why its definition keeps it where it is: a part of [`crate::Known::verdict`].
    pub(crate) fn fixed(&self, of: &Domain) -> Option<Fixed> {
        let kind = match &self.source {
            _ if self.kind != DiskKind::Disk => Some(Fixed::NoDisk),
            Source::Empty => Some(Fixed::Empty),
            Source::Network { protocol, .. } if !is_storage(protocol) => {
                Some(Fixed::Network(protocol.clone()))
            }
            Source::Other(kind) => Some(Fixed::Kind(kind.clone())),
            Source::File(_)
            | Source::Block { .. }
            | Source::Volume { .. }
            | Source::Nbd { .. }
            | Source::Network { .. } => None,
        };
        let format = match self.format.as_deref() {
            Some("raw" | "qcow2") => None,
            other => Some(Fixed::Format(other.map(String::from))),
        };
        let chain = match self.chain {
            Chain::Images(0) => None,
            Chain::Images(images) => Some(Fixed::Chain(images)),
            Chain::Unknown => Some(Fixed::ChainUnknown),
        };
        kind.or(of.platform.map(Fixed::Platform))
            .or(self.readonly.then_some(Fixed::ReadOnly))
            .or(self.shareable.then_some(Fixed::Shareable))
            .or(self.transient.then_some(Fixed::Transient))
            .or(format)
            .or(chain)
            .or(self.bound.clone().map(Fixed::Bound))
            .or(self.stays.clone().map(Fixed::Other))
            .or(self.mirror.is_some().then_some(Fixed::Job))
    }
}

/// Metadata that platforms leave in a domain, by the beginning of its namespace.
const PLATFORMS: [(&str, Platform); 3] = [
    (
        "http://openstack.org/xmlns/libvirt/nova/",
        Platform::OpenStack,
    ),
    ("http://kubevirt.io", Platform::KubeVirt),
    ("http://ovirt.org/vm/", Platform::OVirt),
];

impl Domain {
    /// From `virsh dumpxml`.
    ///
    /// # Errors
    /// What is wrong, with the line.
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

    /// NBD without TLS behind a unix socket is a way to other disks of the host; everything else is a network.
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

/// Bytes of the only slice of a source, from its beginning on.
fn slice(source: Node<'_, '_>) -> Option<u64> {
    let slices = child(source, "slices")?;
    let mut inside = slices.children().filter(|c| c.is_element());
    let slice = inside
        .next()
        .filter(|s| s.attribute("type") == Some("storage"))?;
    let is_all = inside.next().is_none() && slice.attribute("offset") == Some("0");
    slice.attribute("size")?.parse().ok().filter(|_| is_all)
}

/// Elements of a source that are more than a place.
fn bound(disk: Node<'_, '_>) -> Option<String> {
    let source = child(disk, "source")?;
    let mut inside = source.children().filter(|c| c.is_element());
    let is_network = source.has_attribute("protocol");
    let is_place = |name: &str| match name {
        "host" | "privateData" => true,
        "slices" => source.has_attribute("dev") && slice(source).is_some(),
        // Of images that are moved by hand only.
        "auth" | "initiator" => is_network,
        _ => false,
    };
    let other = inside.find(|c| !is_place(c.tag_name().name()))?;
    Some(other.tag_name().name().into())
}

/// Images below: each is inside the one above it, and an empty element ends them.
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
