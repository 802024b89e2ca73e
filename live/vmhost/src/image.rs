//! Images: place and format of a disk's data.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::is_storage;
use crate::{Disk, Source};

/// Place of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ImageLocation {
    /// A file, by its absolute path.
    File(String),
    /// An NBD export behind a unix socket.
    Nbd {
        /// The socket's absolute path.
        socket: String,
        /// The export's name.
        export: String,
    },
    /// A block device.
    Block {
        /// Its absolute path.
        path: String,
        /// Bytes of the disk, if the device is larger.
        bytes: Option<u64>,
    },
    /// An image on a network, which only an operator moves.
    Network {
        /// `rbd` or `iscsi`.
        protocol: String,
        name: String,
    },
}

impl ImageLocation {
    /// Parses the URI of an NBD export in QEMU's form: name and path are not encoded, and an empty name has no slash.
    /// `None` for any other text.
    pub fn of_uri(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("nbd+unix://")?;
        let (export, socket) = rest.split_once("?socket=")?;
        let export = match export {
            "" => "",
            name => name.strip_prefix('/')?,
        };
        let plain = socket.starts_with('/') && !socket.contains('&');
        plain.then(|| ImageLocation::Nbd {
            socket: socket.into(),
            export: export.into(),
        })
    }

    /// Returns the path of a file; `None` for other places.
    pub fn file(&self) -> Option<&str> {
        match self {
            ImageLocation::File(path) => Some(path),
            ImageLocation::Nbd { .. }
            | ImageLocation::Block { .. }
            | ImageLocation::Network { .. } => None,
        }
    }

    /// Returns the path of a block device; `None` for other places.
    pub fn device(&self) -> Option<&str> {
        match self {
            ImageLocation::Block { path, .. } => Some(path),
            ImageLocation::File(_) | ImageLocation::Nbd { .. } | ImageLocation::Network { .. } => {
                None
            }
        }
    }
}

impl fmt::Display for ImageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageLocation::File(path) => f.write_str(path),
            ImageLocation::Nbd { socket, export } => {
                write!(f, "nbd+unix:///{export}?socket={socket}")
            }
            ImageLocation::Block { path, .. } => f.write_str(path),
            ImageLocation::Network { protocol, name } => write!(f, "{protocol}:{name}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub at: ImageLocation,
    /// Format as configured; never probed.
    pub format: String,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.at, self.format)
    }
}

impl Source {
    /// Returns the place of the source, if disks can move from and to it. `directory_of` returns the directory of a
    /// pool's volumes.
    pub fn at<'p>(&self, directory_of: impl Fn(&str) -> Option<&'p str>) -> Option<ImageLocation> {
        match self {
            Source::File(path) => Some(ImageLocation::File(path.clone())),
            Source::Nbd { socket, export } => Some(ImageLocation::Nbd {
                socket: socket.clone(),
                export: export.clone(),
            }),
            Source::Volume { pool, volume } => {
                let path = format!("{}/{volume}", directory_of(pool)?);
                Some(match path.starts_with("/dev/") {
                    true => ImageLocation::Block { path, bytes: None },
                    false => ImageLocation::File(path),
                })
            }
            Source::Block { path, bytes } => Some(ImageLocation::Block {
                path: path.clone(),
                bytes: *bytes,
            }),
            Source::Network { protocol, name, .. } => {
                let is_known = is_storage(protocol) && !name.is_empty();
                is_known.then(|| ImageLocation::Network {
                    protocol: protocol.clone(),
                    name: name.clone(),
                })
            }
            Source::Empty | Source::Other(_) => None,
        }
    }
}

impl Disk {
    /// Returns the image of the disk, if both place and format are known.
    pub fn image<'p>(&self, directory_of: impl Fn(&str) -> Option<&'p str>) -> Option<Image> {
        Some(Image {
            at: self.source.at(directory_of)?,
            format: self.format.clone()?,
        })
    }
}
