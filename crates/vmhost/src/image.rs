//! An image: where a disk's data is, and in which format.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::is_storage;
use crate::{Disk, Source};

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum At {
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
        /// Bytes of the disk, where the device has more.
        bytes: Option<u64>,
    },
    /// An image over a network, which nobody but an operator moves.
    Network {
        /// `rbd` or `iscsi`.
        protocol: String,
        name: String,
    },
}

impl At {
    /// An export of such a URI as QEMU writes it: neither name nor path is encoded, and an empty name has no slash. None of anything else.
    pub fn of_uri(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("nbd+unix://")?;
        let (export, socket) = rest.split_once("?socket=")?;
        let export = match export {
            "" => "",
            name => name.strip_prefix('/')?,
        };
        let plain = socket.starts_with('/') && !socket.contains('&');
        plain.then(|| At::Nbd {
            socket: socket.into(),
            export: export.into(),
        })
    }

    /// The path of a file; none of what is no file.
    pub fn file(&self) -> Option<&str> {
        match self {
            At::File(path) => Some(path),
            At::Nbd { .. } | At::Block { .. } | At::Network { .. } => None,
        }
    }

    /// The path of a block device; none of anything else.
    pub fn device(&self) -> Option<&str> {
        match self {
            At::Block { path, .. } => Some(path),
            At::File(_) | At::Nbd { .. } | At::Network { .. } => None,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::File(path) => f.write_str(path),
            At::Nbd { socket, export } => write!(f, "nbd+unix:///{export}?socket={socket}"),
            At::Block { path, .. } => f.write_str(path),
            At::Network { protocol, name } => write!(f, "{protocol}:{name}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub at: At,
    /// Its format: what is configured, never probed.
    pub format: String,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.at, self.format)
    }
}

impl Source {
    /// Where it is, if it is of a kind that can be moved from and to; `directory_of` says where a pool's volumes are.
    pub fn at<'p>(&self, directory_of: impl Fn(&str) -> Option<&'p str>) -> Option<At> {
        match self {
            Source::File(path) => Some(At::File(path.clone())),
            Source::Nbd { socket, export } => Some(At::Nbd {
                socket: socket.clone(),
                export: export.clone(),
            }),
            Source::Volume { pool, volume } => {
                let path = format!("{}/{volume}", directory_of(pool)?);
                Some(match path.starts_with("/dev/") {
                    true => At::Block { path, bytes: None },
                    false => At::File(path),
                })
            }
            Source::Block { path, bytes } => Some(At::Block {
                path: path.clone(),
                bytes: *bytes,
            }),
            Source::Network { protocol, name, .. } => {
                let is_known = is_storage(protocol) && !name.is_empty();
                is_known.then(|| At::Network {
                    protocol: protocol.clone(),
                    name: name.clone(),
                })
            }
            Source::Empty | Source::Other(_) => None,
        }
    }
}

impl Disk {
    /// Its image, if both place and format are known.
    pub fn image<'p>(&self, directory_of: impl Fn(&str) -> Option<&'p str>) -> Option<Image> {
        Some(Image {
            at: self.source.at(directory_of)?,
            format: self.format.clone()?,
        })
    }
}
