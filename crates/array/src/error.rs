//! What can go wrong with an array's map.

use std::path::PathBuf;

use thiserror::Error;
use units::Bytes;

use crate::file::is_no_space;
use crate::refusal::Refusal;
use crate::{EXTENT_MAX, EXTENT_MIN, FORMAT_VERSION};

/// Why an array could not be created, opened, read or changed.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// There is an array already.
    #[error("{path}: the directory already has an array")]
    Exists {
        /// Its map.
        path: PathBuf,
    },
    /// There is none.
    #[error("{path}: the directory has no array")]
    Missing {
        /// Where its map was expected.
        path: PathBuf,
    },
    /// Another process has it open, or this one does already.
    #[error("{place}: the array is in use by another process")]
    InUse {
        /// Its map.
        place: String,
    },
    /// The file is something else, or its creation did not end.
    #[error("{place}: the file is not the map of an array: {why}")]
    NotAnArray {
        /// The file.
        place: String,
        why: String,
    },
    /// Another version of the program wrote the map.
    #[error(
        "{place}: the map has format version {found}, and this program reads version {FORMAT_VERSION}: use the program that wrote it"
    )]
    Version {
        /// The file.
        place: String,
        /// Its version.
        found: u32,
    },
    /// A page or a record of the map is damaged.
    #[error("{place}: the map is damaged: {why}")]
    Damaged {
        /// The file.
        place: String,
        why: String,
    },
    /// An extent size that is not supported.
    #[error("extent size {extent}: must be a power of two from {EXTENT_MIN} to {EXTENT_MAX}")]
    ExtentSize {
        /// What was asked for.
        extent: Bytes,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {action} {path}")]
    Io {
        /// `create`, `sync`, …
        action: &'static str,
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store failed. After a commit that failed so, whether it is durable is only known after the array was opened
    /// again; until then everything fails.
    #[error("cannot {action}: the store of the map failed")]
    Store {
        /// `begin a commit`, `read table extents`, …
        action: String,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file system of the map is full. Nothing of the commit was done.
    #[error(
        "the file system of {place} is full: a change that adds records needs {needed} of free space there"
    )]
    NoSpace { place: String, needed: Bytes },
    /// A record's checksum does not fit.
    #[error("table {table}, key {key}: checksum mismatch")]
    Corrupt {
        table: &'static str,
        /// The key; `volume:extent` for an extent.
        key: String,
    },
    /// A record cannot be understood although its checksum fits.
    #[error("table {table}, key {key}: {why}")]
    Record {
        table: &'static str,
        key: String,
        /// Which field, and why.
        why: String,
    },
    /// A change is not valid; nothing of its commit was done.
    #[error("change {index} of the commit is refused: {refusal}")]
    Refused {
        /// Which, counted from 0.
        index: usize,
        /// Why.
        refusal: Refusal,
    },
    /// The map can not be read, or not be changed, now.
    #[error("the map cannot be used: {why}")]
    Away { why: String },
    /// Two volumes that are not states of one volume, or not in order of time.
    #[error("the changes from volume {from} to volume {to} are unknown: {why}")]
    NotComparable {
        /// The first.
        from: u32,
        /// The second.
        to: u32,
        /// Why not.
        why: String,
    },
    #[error("no volume {0}")]
    NoVolume(u32),
}

impl ArrayError {
    /// For `map_err`: the store failed while doing `action`.
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

    /// For `map_err`: an operation on a path failed.
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

    /// Whether one record is to blame, so that others may still be read.
    pub(crate) fn of_record(&self) -> bool {
        matches!(self, ArrayError::Corrupt { .. } | ArrayError::Record { .. })
    }
}
