//! Sources of imports: what a volume's extents are read from until they are in the array. A source is never written to.
//!
//! Raw files and block devices are read as they are, NBD exports by the workers' own connections. Whatever else QEMU can read is exported by
//! `qemu-nbd`, which is started for it and ends when nobody is connected any more: one connection is held here, so it ends with this process.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::{SourceMark, SourceRecord};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::client::Client;
use crate::control_server::SECTOR_BYTES;
use crate::device::{Device, file_bytes};
use crate::text::explain;

mod allocated;
mod headers;
mod image;
mod locks;

pub use locks::image_in_use;
pub(crate) use locks::users;

/// The format that is read as it is.
pub const RAW: &str = "raw";

/// Time between two looks at a file, or at the server of an image.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two looks at an export: each is a connection, and a broken one is seen at once.
const LOOK_AT_EXPORT: Duration = Duration::from_secs(5);

/// Who asked for an import waits no longer for what of its source holds anything.
const LOOK_THROUGH: Duration = Duration::from_secs(60);

/// Why a source is not read from any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Unusable {
    /// It is another one than the one that the import began with, or may be soon, or is none to read.
    #[error("{0}")]
    Unfit(String),
    /// It is not there.
    #[error("{0}")]
    Gone(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Unusable::Unfit(why)
    }
}

/// A source that is open.
#[derive(Debug)]
pub(crate) struct Source {
    /// To be read by workers.
    pub(crate) device: Arc<Device>,
    /// What it looked like when it was opened.
    pub(crate) mark: SourceMark,
    pub(crate) format: String,
    path: Option<PathBuf>,
    /// The file with the lock on it.
    file: Option<Arc<File>>,
    /// Held so that the server which was started for it stays.
    server: Option<Mutex<Client>>,
    uri: Option<nbd::Uri>,
}

/// What to open.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Stands for it in places.
    pub(crate) device: DeviceId,
    /// The file, the block device or the NBD URI.
    pub(crate) from: String,
    /// What it is; if that is not said, `raw`, unless it looks like something else.
    pub(crate) format: Option<String>,
    /// Where the socket of a server may be that is started for it.
    pub(crate) dir: PathBuf,
}

impl Wanted {
    /// A source that an import has.
    pub(crate) fn of(record: &SourceRecord, dir: &Path) -> Self {
        Self {
            device: record.device,
            from: record.from.clone(),
            format: Some(record.format.clone()),
            dir: dir.to_owned(),
        }
    }
}

impl Source {
    /// Opens a source, and locks it as QEMU does. May take long.
    ///
    /// # Errors
    /// It is not there, somebody writes to it, nobody can read it.
    pub(crate) fn open(wanted: &Wanted) -> Result<Self, Unusable> {
        match wanted.from.contains("://") {
            true => Self::open_export(wanted),
            false => Self::open_path(wanted),
        }
    }

    fn open_export(wanted: &Wanted) -> Result<Self, Unusable> {
        let from = &wanted.from;
        if let Some(format) = wanted.format.as_deref().filter(|f| *f != RAW) {
            let why = format!("{from} is an NBD export: it is read as it is, not as {format}");
            return Err(why.into());
        }
        let uri: nbd::Uri = from.parse().map_err(|e| format!("{from}: {e}"))?;
        let client = Client::connect(&uri).map_err(|e| Unusable::Gone(explain(&e)))?;
        let mark = SourceMark {
            size: whole(from, client.size())?,
            file_bytes: 0,
            modified_ns: 0,
            inode: 0,
        };
        Ok(Self {
            device: Arc::new(Device::source_at(wanted.device, uri.clone(), mark.size)),
            mark,
            format: RAW.into(),
            path: None,
            file: None,
            server: None,
            uri: Some(uri),
        })
    }

    fn open_path(wanted: &Wanted) -> Result<Self, Unusable> {
        let from = &wanted.from;
        let path = PathBuf::from(from);
        let failed = |what: &str, e: io::Error| format!("cannot {what} {from}: {e}");
        let file = open_to_read(&path, from)?;
        let file = Arc::new(file);
        locks::lock_to_read(&file).map_err(|why| format!("{from}: {why}"))?;
        let looks = headers::looks_like(&file).map_err(|e| failed("read", e))?;
        let format = match (&wanted.format, looks) {
            (Some(format), _) => format.as_str(),
            (None, None) => RAW,
            (None, Some(looks)) => {
                let why = format!(
                    "{from} looks like an image of format {looks}: say `--format {looks}`, or `--format {RAW}` if these very bytes are the disk"
                );
                return Err(why.into());
            }
        };
        let file_mark = mark_of(&file).map_err(|e| failed("measure", e))?;
        let (device, size, server, uri) = if format == RAW {
            let device = Device::source_in(wanted.device, file.clone());
            (device, file_mark.file_bytes, None, None)
        } else {
            headers::stands_alone(&file, from, format)?;
            let (client, uri) = image::serve(&path, format, &wanted.dir, wanted.device)?;
            let size = client.size();
            let device = Device::source_at(wanted.device, uri.clone(), Bytes(size));
            (device, size, Some(Mutex::new(client)), Some(uri))
        };
        Ok(Self {
            device: Arc::new(device),
            mark: SourceMark {
                size: whole(from, size)?,
                ..file_mark
            },
            format: format.to_owned(),
            path: Some(path),
            file: Some(file),
            server,
            uri,
        })
    }

    /// The extents of which not all bytes are known to be zeroes, as ranges. May take long.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn extents(&self, extent: Bytes) -> Result<Vec<(u32, u32)>, String> {
        let size = self.mark.size.0;
        let until = Instant::now() + LOOK_THROUGH;
        match (&self.uri, &self.file) {
            (Some(uri), _) => allocated::of_export(uri, size, extent.0, until),
            (None, Some(file)) => allocated::of_file(file, size, extent.0, until),
            (None, None) => unreachable!("a source is a file or an export"),
        }
    }

    /// Time between two looks.
    pub(crate) fn pause(&self) -> Duration {
        match self.path {
            Some(_) => LOOK,
            None => LOOK_AT_EXPORT,
        }
    }

    /// Whether it is still what it was, and can be read. What is only not where it was is read on: then that is said. May take long.
    ///
    /// # Errors
    /// Why it is of no use any more.
    pub(crate) fn look(&self) -> Result<Option<String>, Unusable> {
        if let Some(server) = &self.server {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let length = SECTOR_BYTES as u32;
            let read = server.read(0, length);
            read.map_err(|e| Unusable::Gone(explain(&e)))?;
        }
        match (&self.path, &self.file, &self.uri) {
            (Some(path), Some(file), _) => look_at_file(path, file, self.mark),
            (_, _, Some(uri)) => look_at_export(uri, self.mark.size),
            _ => unreachable!("a source is a file or an export"),
        }
    }
}

/// Forgets the servers of images that a process before this one has started. Whoever calls it has the directory alone.
pub(crate) fn clear_sockets(dir: &Path) {
    image::clear_sockets(dir);
}

/// Opens a file, or a block device that nobody else uses.
fn open_to_read(path: &Path, from: &str) -> Result<File, Unusable> {
    let failed = |what: &str, e: io::Error| format!("cannot {what} {from}: {e}");
    let is_block = |meta: &Metadata| -> Result<bool, String> {
        match meta.file_type() {
            kind if kind.is_block_device() => Ok(true),
            kind if kind.is_file() => Ok(false),
            _ => Err(format!("{from} is neither a file nor a block device")),
        }
    };
    // Before it is opened: opening a pipe waits for who writes to it.
    let there = path.metadata().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Unusable::Gone(failed("open", e)),
        _ => failed("open", e).into(),
    });
    let block = is_block(&there?)?;
    let alone = if block { OFlags::EXCL } else { OFlags::empty() };
    let opened = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | alone).bits() as i32)
        .open(path);
    let file = opened.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy if block => format!(
            "{from} is in use: it is mounted, or a part of another device; unmount it first, as what is read while it is written to is of no one moment"
        ),
        _ => failed("open", e),
    })?;
    is_block(&file.metadata().map_err(|e| failed("look at", e))?)?;
    // Reads are to wait for the disk.
    let flags = fcntl_getfl(&file).map_err(|e| failed("look at", e.into()))?;
    let waits = fcntl_setfl(&file, flags - OFlags::NONBLOCK);
    waits.map_err(|e| failed("open", e.into()))?;
    Ok(file)
}

/// What is open stays what it is when its name goes.
fn look_at_file(path: &Path, file: &File, mark: SourceMark) -> Result<Option<String>, Unusable> {
    let shown = path.display();
    let failed = |e: io::Error| Unusable::Gone(format!("cannot look at {shown}: {e}"));
    let own = file.metadata().map_err(failed)?;
    let now = SourceMark {
        size: mark.size,
        ..mark_of(file).map_err(failed)?
    };
    if now != mark {
        return Err(Unusable::Unfit(changed(&shown.to_string())));
    }
    let why = match path.metadata() {
        Err(e) => format!("{shown} is not to be found any more ({e})"),
        Ok(there) if own.is_file() && (own.dev(), own.ino()) != (there.dev(), there.ino()) => {
            format!("{shown} is another file now")
        }
        Ok(_) => return Ok(None),
    };
    Ok(Some(format!(
        "{why}: what was there is still open, and read on until this process ends; put it back if it is to end before the import"
    )))
}

/// Only the size can be compared.
fn look_at_export(uri: &nbd::Uri, size: Bytes) -> Result<Option<String>, Unusable> {
    let client = match Client::connect(uri) {
        Ok(client) => client,
        Err(e) => {
            let why = explain(&e);
            return Ok(Some(format!("{why}; connections that are there are used")));
        }
    };
    let now = Bytes(client.size());
    let _ = client.disconnect(); // it was asked all that was to be asked
    match now == size {
        true => Ok(None),
        false => Err(Unusable::Unfit(format!(
            "{uri} has {now}, and had {size} when the import began: it is another one now"
        ))),
    }
}

/// What a file or block device looks like now; how many bytes of it are imported is not said.
fn mark_of(file: &File) -> io::Result<SourceMark> {
    let meta = file.metadata()?;
    let of_file = |value: i64| if meta.is_file() { value } else { 0 };
    Ok(SourceMark {
        size: Bytes::ZERO,
        file_bytes: file_bytes(file)?,
        modified_ns: of_file(meta.mtime() * 1_000_000_000 + meta.mtime_nsec()),
        inode: of_file(meta.ino() as i64) as u64,
    })
}

/// Why a source is not read from any more that somebody has written to.
pub(crate) fn changed(from: &str) -> String {
    format!(
        "{from} was written to since the import began: what is there now belongs to another time than what was copied"
    )
}

/// The size of a source, if it can be that of a volume.
fn whole(from: &str, bytes: u64) -> Result<Bytes, String> {
    match bytes {
        0 => Err(format!("{from} is empty")),
        n if n.is_multiple_of(SECTOR_BYTES) => Ok(Bytes(n)),
        n => Err(format!(
            "{from} has {n} bytes, and a volume has a multiple of {SECTOR_BYTES}: make it larger first, with `truncate --size=%{SECTOR_BYTES}`"
        )),
    }
}
