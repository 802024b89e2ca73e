//! Tiers of a host of virtual machines: their storage, its space, and the names of new images on it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use model::NO_CLASS;
use vmhost::stored::{Space, Storage};
use vmhost::{Image, ImageLocation, Place, SPARE_BYTES, needed_bytes};

use crate::error::{AgentError, Result, in_context};
use crate::kernel::FileSystem;
use crate::moves::{FREE_S, check_unused};
use crate::storage::{self, may_be_there};
use crate::{images, kernel};

/// Largest number of names that are tried for a new image.
const NAMES_MAX: u32 = 99;

/// Storage of a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacesOf {
    /// A pool, by name.
    Pool(String),
    /// A directory, by path.
    Directory(String),
    /// NBD export behind a unix socket, for one image of its size.
    Export(ImageLocation),
    /// Block device, by path, for one image.
    Device(String),
    /// Storage without files.
    Storage(Storage),
}

impl fmt::Display for PlacesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacesOf::Pool(name) | PlacesOf::Directory(name) | PlacesOf::Device(name) => {
                f.write_str(name)
            }
            PlacesOf::Export(at) => at.fmt(f),
            PlacesOf::Storage(storage) => storage.fmt(f),
        }
    }
}

impl FromStr for PlacesOf {
    type Err = AgentError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: String| Err(AgentError::Setting(why));
        if let Some(storage) = storage_of(text) {
            return Ok(Self::Storage(storage?));
        }
        match text {
            "" => bad("name a pool or a directory".into()),
            "/" => bad("the root directory cannot be used for images".into()),
            uri if uri.starts_with("nbd+unix:///") => {
                if !uri.contains("?socket=") {
                    return bad(format!("{uri:?} is not nbd+unix:///EXPORT?socket=PATH"));
                }
                let at = ImageLocation::of_uri(uri).filter(|at| match at {
                    ImageLocation::Nbd { socket, export } => {
                        !socket.contains('%') && !export.contains(['%', '?'])
                    }
                    ImageLocation::File(_)
                    | ImageLocation::Block { .. }
                    | ImageLocation::Network { .. } => false,
                });
                match at {
                    Some(at) => Ok(Self::Export(at)),
                    None => bad(format!(
                        "{uri:?}: a plain absolute path and name are needed"
                    )),
                }
            }
            path if path.starts_with("/dev/") => Ok(Self::Device(path.into())),
            path if path.starts_with('/') => Ok(Self::Directory(path.trim_end_matches('/').into())),
            other if other.contains("://") || other.contains('/') => bad(format!(
                "{other:?} is neither a pool nor an absolute directory; other kinds are not supported"
            )),
            pool => Ok(Self::Pool(pool.into())),
        }
    }
}

/// Parses the name of a storage without files; `None` for any other text.
fn storage_of(text: &str) -> Option<Result<Storage>> {
    let storage = Storage::of(text)?;
    Some(storage.map_err(|why| AgentError::Setting(why.to_string())))
}

/// Tier of a host of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierOf {
    pub name: String,
    /// Storage that belongs to the tier.
    pub places: Vec<PlacesOf>,
    /// Format of new images in its directories; `None` keeps the format of the old image.
    pub format: Option<String>,
    /// True if the content of its exports and devices may be overwritten.
    pub overwrite: bool,
    /// Capacity of its storage in bytes, if only the operator knows it.
    pub capacity: Option<u64>,
}

impl FromStr for TierOf {
    type Err = AgentError;

    /// Parses `NAME=POOL,DIRECTORY`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, places) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                AgentError::Setting(format!(
                    "{text:?} is not NAME=POOL or NAME=DIRECTORY, several with commas"
                ))
            })?;
        let places = places.split(',').map(str::parse);
        Ok(Self {
            name: name.into(),
            places: places.collect::<Result<_, _>>()?,
            format: None,
            overwrite: false,
            capacity: None,
        })
    }
}

/// Settings of moves of disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveSettings {
    /// Directory for the records of moves. It must survive restarts of the host.
    pub dir: PathBuf,
    /// Time for which the old image of a moved disk is kept.
    pub keep_source: Duration,
}

/// Returns the class of a volume: that of the first matching pattern.
pub(crate) fn class_of(classes: &[(String, String)], volume: &str) -> String {
    let mut classes = classes.iter();
    let found = classes.find(|(pattern, _)| fits(pattern, volume));
    found.map_or(NO_CLASS.to_owned(), |(_, class)| class.clone())
}

/// Returns true if a name matches a pattern, in which `*` matches any characters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(i, _)| &rest[i..]).chain([""]);
            ends.any(|end| fits(after, end))
        }),
    }
}

/// Inputs of a reading of all places.
pub(crate) struct Look<'a> {
    pub tiers: &'a [TierOf],
    pub before: &'a [Place],
    pub path_of_pool: &'a dyn Fn(&str) -> Result<String>,
    /// Images of disks, with their sizes in bytes where known.
    pub images: &'a BTreeMap<String, Option<u64>>,
}

impl Look<'_> {
    /// Reads the present state of all places. Returns them with warnings for the operator. An unavailable place keeps
    /// its last state and is marked unreachable.
    ///
    /// # Errors
    /// A place that was never available.
    pub(crate) fn now(&self) -> Result<(Vec<Place>, Vec<String>)> {
        let mut places: Vec<Place> = vec![];
        let mut warnings = vec![];
        let mut devices: Vec<(u64, String)> = vec![];
        for tier in self.tiers {
            for of in &tier.places {
                let (name, path) = match of {
                    PlacesOf::Directory(path) => (path.clone(), Ok(path.clone())),
                    PlacesOf::Pool(name) => (name.clone(), (self.path_of_pool)(name)),
                    PlacesOf::Export(at) => {
                        let place = self.export(&tier.name, at);
                        match place.size {
                            0 => warnings
                                .push(format!("{of} does not report its size: it is not used")),
                            _ => places.push(place),
                        }
                        continue;
                    }
                    PlacesOf::Device(path) => (path.clone(), Ok(path.clone())),
                    PlacesOf::Storage(storage) => {
                        let (place, warning) = self.storage(tier, storage)?;
                        warnings.extend(warning);
                        places.push(place);
                        continue;
                    }
                };
                let there = path.and_then(|path| {
                    let system = match of {
                        PlacesOf::Device(_) => self.device(&path)?,
                        _ => kernel::file_system(Path::new(&path))?,
                    };
                    Ok((path, system))
                });
                let before = self.before.iter().find(|p| p.name == name);
                let place = match (there, before) {
                    (Ok((path, system)), _) => {
                        let other = devices.iter().find(|(device, _)| *device == system.device);
                        if let Some((_, other)) = other {
                            warnings.push(format!(
                                "{name} and {other} are on the same file system: its space counts for both"
                            ));
                        }
                        devices.push((system.device, name.clone()));
                        Place {
                            name: name.clone(),
                            tier: tier.name.clone(),
                            path,
                            size: system.size,
                            used: system.used,
                            io: kernel::io(system.device),
                            connected: true,
                        }
                    }
                    (Err(why), Some(before)) => {
                        warnings.push(why.to_string());
                        Place {
                            connected: false,
                            ..before.clone()
                        }
                    }
                    (Err(why), None) => return Err(in_tier(tier)(why)),
                };
                places.push(place);
            }
        }
        Ok((places, warnings))
    }

    /// Space of a block device, which one image occupies as a whole.
    fn device(&self, path: &str) -> Result<FileSystem> {
        let device = kernel::block_device(Path::new(path))?;
        let of = |image: &String| kernel::block_device(Path::new(image)).ok();
        let mut taken = self.images.keys().filter_map(of);
        let is_taken = taken.any(|other| other.number == device.number);
        Ok(FileSystem {
            size: device.size,
            used: if is_taken { device.size } else { 0 },
            device: device.number,
        })
    }

    /// Returns the device of a storage, and its problem if there is one. The space of LVM and ZFS is read each time.
    /// The space of network storage is the configured capacity, or else the total size of the disks there.
    fn storage(&self, tier: &TierOf, storage: &Storage) -> Result<(Place, Option<String>)> {
        let name = storage.to_string();
        let there = match storage {
            Storage::Network { .. } => {
                let below = format!("{name}/");
                let here = self.images.iter().filter(|(i, _)| i.starts_with(&below));
                let used = here.filter_map(|(_, bytes)| *bytes).sum();
                let size = tier.capacity.unwrap_or(used);
                Ok(Space { size, used })
            }
            Storage::Lvm { .. } | Storage::Zfs { .. } => {
                storage::space(storage).map(|(space, _)| space)
            }
        };
        let before = self.before.iter().find(|p| p.name == name);
        match (there, before) {
            (Ok(Space { size, used }), _) => {
                let is_unknown =
                    matches!(storage, Storage::Network { .. }) && tier.capacity.is_none();
                let warning = is_unknown.then(|| {
                    format!(
                        "the size of {name} is unknown, so nothing is planned onto it: set `capacity` in tier {}",
                        tier.name
                    )
                });
                let place = Place {
                    path: name.clone(),
                    name,
                    tier: tier.name.clone(),
                    size,
                    used,
                    io: None,
                    connected: true,
                };
                Ok((place, warning))
            }
            (Err(why), Some(before)) => {
                let place = Place {
                    connected: false,
                    ..before.clone()
                };
                Ok((place, Some(why.to_string())))
            }
            (Err(why), None) => Err(in_tier(tier)(why)),
        }
    }

    /// Returns the place of an export, which holds one image. The disks show whether it is in use. Its size is read
    /// from its server.
    fn export(&self, tier: &str, at: &ImageLocation) -> Place {
        let path = at.to_string();
        let before = self.before.iter().find(|p| p.path == path);
        let connected =
            matches!(at, ImageLocation::Nbd { socket, .. } if Path::new(socket).exists());
        let known = before.map_or(0, |p| p.size);
        let size = match known {
            0 if connected => images::size_of_export(&path).unwrap_or(0),
            known => known,
        };
        let taken = self.images.contains_key(&path);
        Place {
            name: path.clone(),
            tier: tier.into(),
            path,
            size,
            used: if taken { size } else { 0 },
            io: None,
            connected,
        }
    }
}

/// Returns the conversion of an error into that of a tier.
fn in_tier(tier: &TierOf) -> impl Fn(AgentError) -> AgentError {
    in_context(format!("tier {}", tier.name))
}

/// New image of a disk.
pub(crate) struct Target {
    pub image: Image,
    /// Storage in which a volume is created for the image.
    pub within: Option<Storage>,
}

/// Returns the image for a disk of this many bytes in a place.
///
/// # Errors
/// No image name is available there.
pub(crate) fn target_in(
    tiers: &[TierOf],
    place: &Place,
    volume: &str,
    from: &Image,
    capacity: u64,
) -> Result<Target> {
    let raw = |at| Image {
        at,
        format: "raw".into(),
    };
    let slice = |size: u64| (size != capacity).then_some(capacity);
    if let Some(storage) = storage_of(&place.path) {
        let storage = storage?;
        let (_, unit) = storage::space(&storage)?;
        let path = volume_path(&storage, volume)?;
        let bytes = slice(capacity.next_multiple_of(unit.max(1)));
        return Ok(Target {
            image: raw(ImageLocation::Block { path, bytes }),
            within: Some(storage),
        });
    }
    let alone = |image| Target {
        image,
        within: None,
    };
    if place.path.starts_with("/dev/") {
        let path = place.path.clone();
        let bytes = slice(kernel::block_device(Path::new(&path))?.size);
        return Ok(alone(raw(ImageLocation::Block { path, bytes })));
    }
    if let Some(at) = ImageLocation::of_uri(&place.path) {
        return Ok(alone(raw(at)));
    }
    let tier = tiers.iter().find(|t| t.name == place.tier);
    let format = tier.and_then(|t| t.format.as_ref());
    let format = format.unwrap_or(&from.format).clone();
    let file = from
        .at
        .file()
        .and_then(|p| Path::new(p).file_name()?.to_str());
    let stem = file.and_then(|name| {
        let mut endings = ["raw", "qcow2", "img"].iter();
        endings.find_map(|e| name.strip_suffix(&format!(".{e}")))
    });
    let name = match (file, stem) {
        (Some(_), Some(stem)) if format != from.format => format!("{stem}.{format}"),
        (Some(file), _) => file.to_owned(),
        // The name of an export or a device is not suitable as a file name, so the name of the volume is used.
        (None, _) => format!("{}.{format}", volume.replace([':', '/'], "-")),
    };
    if name.starts_with('.') {
        return Err(AgentError::Unsuitable(format!(
            "{} gives no name to its copy",
            from.at
        )));
    }
    // An existing file belongs to another disk or is the kept image of a move, so the new image needs an unused name.
    let free = (1..=NAMES_MAX).map(|n| match (n, name.rsplit_once('.')) {
        (1, _) => name.clone(),
        (n, Some((stem, ending))) => format!("{stem}-{n}.{ending}"),
        (n, None) => format!("{name}-{n}"),
    });
    let mut free = free.map(|name| format!("{}/{name}", place.path));
    let path = free.find(|path| !may_be_there(path));
    let path = path.ok_or_else(|| {
        AgentError::Unsuitable(format!("{} is full of files named {name}", place.path))
    })?;
    Ok(alone(Image {
        at: ImageLocation::File(path),
        format,
    }))
}

/// Returns the path of a new volume for a disk, with a name that no other volume has.
fn volume_path(storage: &Storage, volume: &str) -> Result<String> {
    let dir = match storage {
        Storage::Lvm { group, .. } => format!("/dev/{group}"),
        Storage::Zfs { dataset } => format!("/dev/zvol/{dataset}"),
        Storage::Network { .. } => return Err(creates_none(storage)),
    };
    let name = vmhost::stored::volume_name(volume);
    for n in 1..=NAMES_MAX {
        let path = match n {
            1 => format!("{dir}/{name}"),
            n => format!("{dir}/{name}-{n}"),
        };
        if storage::of(&path).describe(&path)?.is_none() && !may_be_there(&path) {
            return Ok(path);
        }
    }
    Err(AgentError::Unsuitable(format!(
        "{storage} is full of volumes named {name}"
    )))
}

/// Returns the error of a storage on which the agent creates no images.
fn creates_none(storage: impl fmt::Display) -> AgentError {
    AgentError::Unsupported(format!("the agent creates no images on {storage}"))
}

/// Checks that an image can be created in a place by a move of this rate.
///
/// # Errors
/// The reason against the image.
pub(crate) fn check_room(
    tiers: &[TierOf],
    place: &Place,
    target: &Target,
    (capacity, physical): (u64, Option<u64>),
    rate_bytes_per_s: u64,
) -> Result<()> {
    let overwrites = || {
        let tier = tiers.iter().find(|t| t.name == place.tier);
        tier.is_some_and(|t| t.overwrite)
    };
    let pace = rate_bytes_per_s.saturating_mul(2 * FREE_S);
    let bad = |why: String| Err(AgentError::Unsuitable(why));
    let has_room = |free: u64, needed: u64| match free < needed {
        true => bad(format!(
            "{}: {free} bytes free, {needed} bytes needed",
            place.name
        )),
        false => Ok(()),
    };
    let to = &target.image;
    match (&to.at, &target.within) {
        (ImageLocation::Nbd { .. }, _) if place.size != capacity => bad(format!(
            "{} has {} bytes and the disk {capacity}: they must be the same",
            place.name, place.size
        )),
        (ImageLocation::Nbd { .. } | ImageLocation::Block { .. }, None) if place.used > 0 => Err(
            AgentError::InUse(format!("{} is the target of another disk", place.name)),
        ),
        (ImageLocation::Nbd { .. }, _) => match overwrites() {
            true => Ok(()),
            false => images::check_empty(&place.path),
        },
        (ImageLocation::Block { .. }, Some(storage)) => {
            let (space, unit) = storage::space(storage)?;
            let pool = matches!(storage, Storage::Lvm { pool: Some(_), .. });
            let more = if pool { pace } else { 0 };
            let needed = capacity.next_multiple_of(unit.max(1)).saturating_add(more);
            has_room(space.size.saturating_sub(space.used), needed)
        }
        (ImageLocation::Block { .. }, None) if place.size < capacity => bad(format!(
            "{} has {} bytes and the disk {capacity}",
            place.name, place.size
        )),
        // Zeroes on a device may be data.
        (ImageLocation::Block { .. }, None) if !overwrites() => bad(format!(
            "{} may have data: set `overwrite = true` in its tier to overwrite it",
            place.name
        )),
        (ImageLocation::Block { path, .. }, None) => check_unused(path),
        (ImageLocation::Network { .. }, _) => Err(creates_none(&place.name)),
        (ImageLocation::File(_), _) => {
            let system = kernel::file_system(Path::new(&place.path))?;
            let needed = needed_bytes(&to.format, capacity, physical)
                .saturating_add(pace.saturating_sub(SPARE_BYTES));
            has_room(system.size.saturating_sub(system.used), needed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_patterns_match() {
        for (pattern, name) in [
            ("web:vda", "web:vda"),
            ("*", "web:vda"),
            ("db-*:vd*", "db-1:vdb"),
            ("*:vda", "a:b:vda"),
            ("a*b*c", "aXbYbc"),
            ("é*", "éa"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("web", "web:vda"),
            ("*:vdb", "web:vda"),
            ("", "a"),
            ("a*b", "ab:c"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    /// Reads the place of one tier, with network storage of unknown space.
    fn look(tier: &TierOf, images: &[(&str, u64)]) -> (Vec<Place>, Vec<String>) {
        let images = images
            .iter()
            .map(|(i, bytes)| ((*i).to_owned(), Some(*bytes)));
        let look = Look {
            tiers: std::slice::from_ref(tier),
            before: &[],
            path_of_pool: &|name| Err(AgentError::Unknown(format!("no pool {name}"))),
            images: &images.collect(),
        };
        look.now().unwrap()
    }

    #[test]
    fn network_storage_has_the_configured_capacity() {
        let mut tier: TierOf = "t=rbd:ssd".parse().unwrap();
        let images = [("rbd:ssd/a", 10), ("rbd:ssd/b", 20), ("rbd:ssd2/c", 40)];
        let (places, warnings) = look(&tier, &images);
        assert_eq!((places[0].size, places[0].used), (30, 30), "no free space");
        assert!(
            warnings[0].contains("set `capacity` in tier t"),
            "{warnings:?}"
        );
        tier.capacity = Some(100);
        let (places, warnings) = look(&tier, &images);
        assert_eq!((places[0].size, places[0].used), (100, 30));
        assert!(warnings.is_empty());
    }

    #[test]
    fn new_volume_on_a_network_is_refused_and_overwrite_needs_consent() {
        let place = |path: &str| Place {
            name: path.into(),
            tier: "t".into(),
            path: path.into(),
            size: 4096,
            used: 0,
            io: None,
            connected: true,
        };
        let mut tier: TierOf = "t=/dev/sdx".parse().unwrap();
        let from = Image {
            at: ImageLocation::File("/srv/a.raw".into()),
            format: "raw".into(),
        };
        let why = target_in(&[], &place("rbd:ssd"), "a:vda", &from, 4096)
            .err()
            .unwrap()
            .to_string();
        assert!(why.contains("rbd:ssd"), "{why}");
        let to = |bytes| Target {
            image: Image {
                at: ImageLocation::Block {
                    path: "/dev/terrace-test-none".into(),
                    bytes,
                },
                format: "raw".into(),
            },
            within: None,
        };
        let check = |tier: &TierOf, place: &Place, capacity| {
            check_room(
                std::slice::from_ref(tier),
                place,
                &to(None),
                (capacity, None),
                1,
            )
            .unwrap_err()
            .to_string()
        };
        let why = check(&tier, &place("/dev/sdx"), 8192);
        assert!(why.contains("has 4096 bytes and the disk 8192"), "{why}");
        let why = check(&tier, &place("/dev/sdx"), 4096);
        assert!(why.contains("set `overwrite = true`"), "{why}");
        tier.overwrite = true;
        let taken = Place {
            used: 4096,
            ..place("/dev/sdx")
        };
        let why = check(&tier, &taken, 4096);
        assert!(why.contains("is the target of another disk"), "{why}");
        let why = check(&tier, &place("/dev/sdx"), 4096);
        assert!(why.contains("cannot find out whether"), "{why}");
    }

    #[test]
    fn tier_option_parses_its_places() {
        let tier: TierOf = "fast=nvme,/srv/images/".parse().unwrap();
        assert_eq!(
            tier.places,
            [
                PlacesOf::Pool("nvme".into()),
                PlacesOf::Directory("/srv/images".into())
            ]
        );
        let tier: TierOf = "t=lvm:vg0/thin,zfs:tank/vm,/dev/sdx,rbd:ssd"
            .parse()
            .unwrap();
        let names = tier.places.iter().map(ToString::to_string);
        let names: Vec<String> = names.collect();
        assert_eq!(
            names,
            ["lvm:vg0/thin", "zfs:tank/vm", "/dev/sdx", "rbd:ssd"]
        );
        assert!(matches!(tier.places[2], PlacesOf::Device(_)));
        for (text, said) in [
            ("fast=lvm:a/b/c", "is not the name of a volume group"),
            ("fast=zfs:tank@now", "is not the name of a dataset"),
            ("fast", "is not NAME=POOL"),
            ("=a", "is not NAME=POOL"),
            ("fast=", "name a pool or a directory"),
            ("fast=/", "the root directory"),
            (
                "fast=nbd+unix:///a",
                "is not nbd+unix:///EXPORT?socket=PATH",
            ),
            ("fast=nbd+unix:///a?socket=/b&tls", "a plain absolute path"),
            (
                "fast=nbd://host/a",
                "neither a pool nor an absolute directory",
            ),
        ] {
            let got = text.parse::<TierOf>().unwrap_err().to_string();
            assert!(got.contains(said), "{got}");
        }
    }
}
