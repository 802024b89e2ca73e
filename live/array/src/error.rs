//! Errors of an array's map.

use std::path::PathBuf;

use thiserror::Error;
use units::Bytes;

use crate::file::is_no_space;
use crate::refusal::Refusal;
use crate::{EXTENT_MAX, EXTENT_MIN, FORMAT_VERSION};

/// Reason an array could not be created, opened, read or changed.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// The directory has an array already.
    #[error("{path}: the directory already has an array")]
    Exists {
        /// Path of its map.
        path: PathBuf,
    },
    /// The directory has no array.
    #[error("{path}: the directory has no array")]
    Missing {
        /// Expected path of the map.
        path: PathBuf,
    },
    /// The array is open in another process, or already in this one.
    #[error("{place}: the array is in use by another process")]
    InUse {
        /// Path of the map.
        place: String,
    },
    /// The file is not a map, or its creation was interrupted.
    #[error("{place}: the file is not the map of an array: {why}")]
    NotAnArray {
        /// Path of the file.
        place: String,
        why: String,
    },
    /// Another version of the program wrote the map.
    #[error(
        "{place}: the map has format version {found}, and this program reads version {FORMAT_VERSION}: use the program that wrote it"
    )]
    Version {
        /// Path of the file.
        place: String,
        /// Version in the file.
        found: u32,
    },
    /// A page or a record of the map is damaged.
    #[error("{place}: the map is damaged: {why}")]
    Damaged {
        /// Path of the file.
        place: String,
        why: String,
    },
    /// The extent size is not supported.
    #[error("extent size {extent}: must be a power of two from {EXTENT_MIN} to {EXTENT_MAX}")]
    ExtentSize {
        /// Requested size.
        extent: Bytes,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {action} {path}")]
    Io {
        /// `create`, `sync`, …
        action: &'static str,
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The store failed. If a commit failed so, only reopening the array shows if it is durable. Until then every
    /// operation fails.
    #[error("cannot {action}: the store of the map failed")]
    Store {
        /// `begin a commit`, `read table extents`, …
        action: String,
        /// Cause.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file system of the map is full. Nothing of the commit was applied.
    #[error(
        "the file system of {place} is full: a change that adds records needs {needed} of free space there"
    )]
    NoSpace { place: String, needed: Bytes },
    /// The checksum of a record does not match.
    #[error("table {table}, key {key}: checksum mismatch")]
    Corrupt {
        table: &'static str,
        /// Key; `volume:extent` for an extent.
        key: String,
    },
    /// The checksum of a record matches, but its content is invalid.
    #[error("table {table}, key {key}: {why}")]
    Record {
        table: &'static str,
        key: String,
        /// Field and reason.
        why: String,
    },
    /// A change is invalid. Nothing of its commit was applied.
    #[error("change {index} of the commit is refused: {refusal}")]
    Refused {
        /// Index of the change, from 0.
        index: usize,
        /// Reason.
        refusal: Refusal,
    },
    /// The map cannot be read, or cannot be changed, at present.
    #[error("the map cannot be used: {why}")]
    Away { why: String },
    /// The copies of the map cannot be handed to another process now. They stay open here.
    #[error("{why}")]
    NotHanded { why: String },
    /// The two volumes are not states of one volume, or not in order of time.
    #[error("the changes from volume {from} to volume {to} are unknown: {why}")]
    NotComparable {
        /// Earlier state.
        from: u32,
        /// Later state.
        to: u32,
        /// Reason.
        why: String,
    },
    #[error("no volume {0}")]
    NoVolume(u32),
}

impl ArrayError {
    /// Error for `map_err`: the store failed during `action`.
    pub(crate) fn store<E: Into<redb::Error>>(
        action: impl Into<String>,
    ) -> impl FnOnce(E) -> ArrayError {
        let action = action.into();
        |e| match e.into() {
            redb::Error::Corrupted(why) => ArrayError::Damaged {
                place: "the map".into(),
                why,
            },
            other => ArrayError::Store {
                action,
                source: Box::new(other),
            },
        }
    }

    /// Error for `map_err`: an operation on a path failed.
    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> ArrayError {
        let path = path.to_path_buf();
        move |source| ArrayError::Io {
            action,
            path,
            source,
        }
    }

    /// Returns true if the file system of the map is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            ArrayError::NoSpace { .. } => true,
            ArrayError::Io { source, .. } => is_no_space(source),
            ArrayError::Store { source, .. } => match &**source {
                redb::Error::Io(error) => is_no_space(error),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns true if another attempt may succeed: the storage failed, and nothing is known to be
    /// damaged.
    pub fn is_transient(&self) -> bool {
        let failed = match self {
            ArrayError::Io { .. } => true,
            ArrayError::Store { source, .. } => {
                matches!(**source, redb::Error::Io(_) | redb::Error::PreviousIo)
            }
            _ => false,
        };
        failed && !self.is_no_space()
    }

    /// Returns true if the error concerns one record, and others may still be readable.
    pub(crate) fn of_record(&self) -> bool {
        matches!(self, ArrayError::Corrupt { .. } | ArrayError::Record { .. })
    }
}
