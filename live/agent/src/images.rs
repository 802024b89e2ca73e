//! Properties of disk images, as `qemu-img` reports them, and users of images.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use vmhost::{DiskFacts, Domain, HostError, Image, ImageInfo, ImageLocation, StayReason};

use crate::error::{AgentError, Result, file_error, in_context};
use crate::kernel;
use crate::process::run;

/// Images that are read at the same time. Bounds the processes on a host with a thousand disks.
const READ_AT_ONCE: usize = 8;

/// Returns true if both are the same image, possibly under different paths.
pub(crate) fn is_same<'a>(a: &'a ImageLocation, b: &'a ImageLocation) -> bool {
    let file = |a: &str, b: &str| a == b || kernel::same_file(Path::new(a), Path::new(b));
    let path = |at: &'a ImageLocation| at.file().or(at.device());
    if let (Some(a), Some(b)) = (path(a), path(b)) {
        return file(a, b);
    }
    match (a, b) {
        (
            ImageLocation::Nbd { socket, export },
            ImageLocation::Nbd {
                socket: other,
                export: name,
            },
        ) => export == name && file(socket, other),
        (a, b) => a == b,
    }
}

/// Checks that an export contains only zeroes, as far as its server reports.
///
/// # Errors
/// The export has data, or its content cannot be determined.
pub(crate) fn check_empty(uri: &str) -> Result<()> {
    let said = qemu_img(&["map", "--output=json", "-f", "raw", uri])?;
    let not_a_list = || AgentError::Unknown("the output of qemu-img map is not a list".into());
    let parts = said.as_array().ok_or_else(not_a_list)?;
    match parts.iter().all(|p| p["zero"] == true) {
        true => Ok(()),
        false => Err(AgentError::Unsuitable(format!(
            "{uri} is not empty; set `overwrite = true` in its tier to overwrite it"
        ))),
    }
}

/// Reads the features of a qcow2 image.
///
/// # Errors
/// `qemu-img` failed, or its output is not understood.
pub(crate) fn info(path: &str) -> Result<ImageInfo> {
    let said = qemu_img(&["info", "--output=json", "-U", "-f", "qcow2", path])?;
    ImageInfo::of(&said).map_err(in_context(path))
}

/// Reads the features of images. Writes nothing; guests may write to the images at the same time.
pub(crate) fn facts(images: &[Image]) -> Vec<DiskFacts> {
    let mut all = Vec::with_capacity(images.len());
    for some in images.chunks(READ_AT_ONCE) {
        std::thread::scope(|scope| {
            let started = some
                .iter()
                .map(|image| scope.spawn(move || facts_of(image)));
            let started: Vec<_> = started.collect();
            all.extend(
                started
                    .into_iter()
                    .map(|t| t.join().expect("it reads only")),
            );
        });
    }
    all
}

fn facts_of(image: &Image) -> DiskFacts {
    let info = match (&image.at, &*image.format) {
        (ImageLocation::File(path), "qcow2") => plain(path).and_then(|()| info(path)),
        (ImageLocation::File(path), _) => plain(path).and_then(|()| {
            let found = std::fs::metadata(path).map_err(file_error("", path))?;
            Ok(ImageInfo {
                virtual_size: Some(found.len()),
                ..ImageInfo::default()
            })
        }),
        (ImageLocation::Block { path, .. }, "qcow2") => info(path),
        (ImageLocation::Block { path, bytes }, _) => {
            kernel::block_device(Path::new(path)).map(|device| ImageInfo {
                virtual_size: Some(bytes.unwrap_or(device.size)),
                ..ImageInfo::default()
            })
        }
        (ImageLocation::Nbd { .. } | ImageLocation::Network { .. }, _) => Ok(ImageInfo::default()),
    };
    let storage = match &image.at {
        ImageLocation::Network { protocol, .. } => Some(StayReason::Network(protocol.clone())),
        ImageLocation::File(_) | ImageLocation::Block { .. } | ImageLocation::Nbd { .. } => None,
    };
    DiskFacts {
        info: info.map_err(HostError::unread),
        named_by: None,
        renamable: is_renamable(&image.at),
        storage,
    }
}

/// Returns true if the agent may rename an image, or if the image is no file.
pub(crate) fn is_renamable(at: &ImageLocation) -> bool {
    let path = at.file().map(Path::new);
    path.is_none_or(kernel::may_rename)
}

/// Checks that no part of a path is a link.
///
/// # Errors
/// The first link.
pub(crate) fn plain(path: &str) -> Result<()> {
    match kernel::is_plain(Path::new(path)) {
        true => Ok(()),
        false => Err(AgentError::Unsuitable(format!(
            "{path} is a link, is below a link, or cannot be inspected: name the file itself"
        ))),
    }
}

/// Uses of images by domains, to detect an image with two users.
#[derive(Default)]
pub(crate) struct Users(BTreeMap<Key, Vec<User>>);

/// Identity of an image, independent of its path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(u64, u64),
    Device(u64),
    Other(ImageLocation),
}

struct User {
    uuid: String,
    name: String,
    /// Disk that uses the image; `None` if another image is based on it.
    target: Option<String>,
}

impl Users {
    /// Adds all images of a domain.
    pub(crate) fn add<'p>(
        &mut self,
        domain: &Domain,
        directory_of: impl Fn(&str) -> Option<&'p str>,
    ) {
        let disks = domain.disks.iter();
        let disks =
            disks.filter_map(|d| Some((d.source.at(&directory_of)?, Some(d.target.clone()))));
        let below = domain
            .below
            .iter()
            .map(|path| (ImageLocation::File(path.clone()), None));
        for (at, target) in disks.chain(below) {
            self.0.entry(key(&at)).or_default().push(User {
                uuid: domain.uuid.clone(),
                name: domain.name.clone(),
                target,
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a user of an image other than this disk, as text.
    pub(crate) fn other(
        &self,
        domain: &Domain,
        target: &str,
        image: &ImageLocation,
    ) -> Option<String> {
        // Each move changes the backing files and copies of the domain's own images: a job checks
        // them itself.
        let is_other = |u: &&User| match &u.target {
            None => u.uuid != domain.uuid,
            Some(other) => u.uuid != domain.uuid || other != target,
        };
        let user = self.0.get(&key(image))?.iter().find(is_other)?;
        Some(match user.target {
            Some(_) => format!("domain {} also uses its image", user.name),
            None => format!("an image of domain {} is based on it", user.name),
        })
    }
}

fn key(at: &ImageLocation) -> Key {
    let path = at.file().or(at.device());
    match path.and_then(|path| std::fs::metadata(path).ok()) {
        Some(found) if found.file_type().is_block_device() => Key::Device(found.rdev()),
        Some(found) => Key::File(found.dev(), found.ino()),
        None => Key::Other(at.clone()),
    }
}

/// Returns the size of an NBD export in bytes.
///
/// # Errors
/// The size cannot be determined; the error has the reason.
pub(crate) fn size_of_export(uri: &str) -> Result<u64> {
    let said = qemu_img(&["info", "--output=json", "-f", "raw", uri])?;
    let size = said["virtual-size"].as_u64();
    size.ok_or_else(|| AgentError::Unknown(format!("{uri}: qemu-img does not report its size")))
}

fn qemu_img(words: &[&str]) -> Result<Value> {
    let mut command = Command::new("qemu-img");
    command.args(words).stdin(Stdio::null());
    let text = run(command, "qemu-img")?.text("qemu-img")?;
    serde_json::from_str(&text).map_err(in_context("qemu-img"))
}
