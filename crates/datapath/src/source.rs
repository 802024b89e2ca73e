//! Sources of imports: what a volume's extents are read from until they are in the array. A source
//! is never written to.
//!
//! Raw files and block devices are read as they are. An NBD export is read over one connection: it
//! is looked at over this connection, and then the worker of the volume takes it. Whatever else
//! QEMU can read is exported by `qemu-nbd`, which is started for it and ends when nobody is
//! connected any more: one connection is held here, so it ends with this process.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::{LOGICAL_BLOCK_MAX, LOGICAL_BLOCK_MIN, SourceMark, SourceRecord};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, ioctl_blksszget};
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::client::{Client, ClientError};
use crate::control_server::SECTOR_BYTES;
use crate::device::{Device, file_bytes};
use crate::text::explain;

mod allocated;
mod check;
mod formats;
mod headers;
mod image;
mod locks;
mod qcow;
mod sectors;
mod vmdk;

pub use locks::image_in_use;
pub(crate) use locks::users;

/// The format that is read as it is.
pub const RAW: &str = "raw";

/// Time between two looks at a source.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// A server that refuses connections for so long is not there. It may have been started together
/// with the import, or still count the client before.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Time between two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

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
    /// Bytes of a sector that its partition table counts in.
    pub(crate) logical_block: u32,
    /// Content that is not imported, in words.
    pub(crate) more: Option<String>,
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

    /// Connects and reads the head, again and again for a while: the first reads may fail, as later ones may.
    fn open_export(wanted: &Wanted) -> Result<Self, Unusable> {
        let until = Instant::now() + CONNECT_TIME;
        loop {
            match Self::try_to_open_export(wanted) {
                Err(Unusable::Gone(_)) if Instant::now() < until => {
                    std::thread::sleep(CONNECT_PAUSE);
                }
                done => return done,
            }
        }
    }

    fn try_to_open_export(wanted: &Wanted) -> Result<Self, Unusable> {
        let from = &wanted.from;
        if let Some(format) = wanted.format.as_deref().filter(|f| *f != RAW) {
            let why = format!(
                "{from} is an NBD export, which is imported as a raw disk: omit `--format {format}`"
            );
            return Err(why.into());
        }
        let uri: nbd::Uri = from.parse().map_err(|e| format!("{from}: {e}"))?;
        let mut client = connect_patiently(&uri)?;
        let size = whole(from, client.size())?;
        let mut reads = |at, length| read_export(&mut client, at, length);
        if wanted.format.is_none() {
            let content = formats::recognize(size.0, &mut reads);
            if let Some(content) = content.map_err(|e| Unusable::Gone(e.to_string()))? {
                return Err(content.refusal(from).into());
            }
        }
        let head = reads(0, sectors::HEAD_BYTES);
        let head = head.map_err(|e| Unusable::Gone(e.to_string()))?;
        // A larger minimum is one of the server, not that of a disk.
        let own = match client.block_sizes().minimum {
            own if (LOGICAL_BLOCK_MIN..=LOGICAL_BLOCK_MAX).contains(&own) => own,
            _ => LOGICAL_BLOCK_MIN,
        };
        let logical_block = blocks(from, size, sectors::logical_block(&head, size.0, own))?;
        let mark = SourceMark {
            size,
            file_bytes: 0,
            modified_ns: 0,
            inode: 0,
        };
        let device = Device::source_at(wanted.device, uri.clone(), mark.size);
        device.keep_connection(client);
        Ok(Self {
            device: Arc::new(device),
            mark,
            format: RAW.into(),
            logical_block,
            more: None,
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
        let file_mark = mark_of(&file).map_err(|e| failed("measure", e))?;
        let bytes = file_mark.file_bytes;
        let format = match &wanted.format {
            Some(format) => known(from, format)?,
            None => {
                let mut reads = |at, length| read_at(&file, at, length);
                let content = formats::recognize(bytes, &mut reads);
                if let Some(content) = content.map_err(|e| failed("read", e))? {
                    let lost = match content {
                        formats::Content::Image(format) => {
                            lost_by_conversion(&path, &file, from, format)?
                        }
                        _ => String::new(),
                    };
                    return Err((content.refusal(from) + &lost).into());
                }
                RAW
            }
        };
        let more = headers::more_than_disk(&file, from, format)?;
        let (device, size, head, server, uri) = if format == RAW {
            let device = Device::source_in(wanted.device, file.clone());
            let head = read_at(&file, 0, sectors::HEAD_BYTES);
            let head = head.map_err(|e| failed("read", e))?;
            (device, bytes, head, None, None)
        } else {
            headers::stands_alone(&file, from, format)?;
            let (mut client, uri) = image::serve(&path, format, &wanted.dir, wanted.device)?;
            let size = client.size();
            let head = read_export(&mut client, 0, sectors::HEAD_BYTES);
            let head = head.map_err(|e| format!("{from}: {e}"))?;
            let device = Device::source_at(wanted.device, uri.clone(), Bytes(size));
            (device, size, head, Some(Mutex::new(client)), Some(uri))
        };
        let own = match format {
            RAW => own_block(&file).map_err(|e| failed("inspect", e))?,
            _ => LOGICAL_BLOCK_MIN,
        };
        let size = whole(from, size)?;
        let logical_block = blocks(from, size, sectors::logical_block(&head, size.0, own))?;
        Ok(Self {
            device: Arc::new(device),
            mark: SourceMark { size, ..file_mark },
            format: format.to_owned(),
            logical_block,
            more,
            path: Some(path),
            file: Some(file),
            server,
            uri,
        })
    }

    /// Refuses an image that is damaged or not complete. May take minutes.
    ///
    /// # Errors
    /// The damage, in words.
    pub(crate) fn is_whole(&self) -> Result<(), String> {
        match (&self.path, &self.file) {
            (Some(path), Some(file)) if self.format != RAW => {
                check::is_whole(path, file, &self.format)
            }
            _ => Ok(()),
        }
    }

    /// The extents of which not all bytes are known to be zeroes, as ranges. May take long.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn extents(&self, extent: Bytes) -> Result<Vec<(u32, u32)>, String> {
        let size = self.mark.size.0;
        let until = Instant::now() + LOOK_THROUGH;
        match (&self.uri, &self.file) {
            (Some(uri), Some(_)) => {
                let client = Client::connect_for_status(uri);
                let mut client = client.map_err(|e| explain(&e))?;
                allocated::of_export(&mut client, size, extent.0, until)
            }
            (Some(_), None) => {
                let client = self.device.take_connection();
                let mut client = client.ok_or("the connection to the source was lost")?;
                let found = allocated::of_export(&mut client, size, extent.0, until)?;
                self.device.keep_connection(client);
                Ok(found)
            }
            (None, Some(file)) => allocated::of_file(file, size, extent.0, until),
            (None, None) => unreachable!("a source is a file or an export"),
        }
    }

    /// Checks that the source is unchanged and readable. A file that only moved stays in use, and the
    /// result says so. May take long.
    ///
    /// An export is connected to only if the worker's connection to it broke: until then it is the
    /// same, and its server may allow one client.
    ///
    /// # Errors
    /// Why it is of no use any more.
    pub(crate) fn look(&self, broke: bool) -> Result<Option<String>, Unusable> {
        if let Some(server) = &self.server {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let length = SECTOR_BYTES as u32;
            let read = server.read(0, length);
            read.map_err(|e| Unusable::Gone(explain(&e)))?;
        }
        match (&self.path, &self.file, &self.uri) {
            (Some(path), Some(file), _) => look_at_file(path, file, self.mark),
            (_, _, Some(uri)) if broke => self.connect_again(uri).map(|()| None),
            (_, _, Some(_)) => Ok(None),
            _ => unreachable!("a source is a file or an export"),
        }
    }

    /// Connects for the worker. Only the size of an export can be compared.
    fn connect_again(&self, uri: &nbd::Uri) -> Result<(), Unusable> {
        let client = connect_patiently(uri)?;
        let (now, size) = (Bytes(client.size()), self.mark.size);
        if now != size {
            return Err(Unusable::Unfit(format!(
                "the size of {uri} changed from {size} to {now} since the import began"
            )));
        }
        self.device.keep_connection(client);
        Ok(())
    }
}

/// Connects to a server that may be about to start, or to let go of the client before.
fn connect_patiently(uri: &nbd::Uri) -> Result<Client, Unusable> {
    let until = Instant::now() + CONNECT_TIME;
    loop {
        match Client::connect_for_status(uri) {
            Ok(client) => return Ok(client),
            Err(ClientError::Io { .. }) if Instant::now() < until => {
                std::thread::sleep(CONNECT_PAUSE);
            }
            Err(error) => return Err(Unusable::Gone(explain(&error))),
        }
    }
}

/// Words for what a conversion to a raw disk loses of an image.
///
/// # Errors
/// The image is damaged or not complete: `qemu-img convert` may replace the missing data by zeroes without an error.
fn lost_by_conversion(
    path: &Path,
    file: &File,
    from: &str,
    format: &str,
) -> Result<String, String> {
    let explained = |why| {
        format!(
            "{from} is an image of format {format}, not a raw disk: {why}; `--format raw` imports the file unchanged"
        )
    };
    headers::stands_alone(file, from, format).map_err(explained)?;
    check::is_whole(path, file, format).map_err(explained)?;
    let more = headers::more_than_disk(file, from, format).map_err(explained)?;
    Ok(more.map_or_else(String::new, |more| format!("; both ways lose {more}")))
}

/// A format that images may have.
fn known<'a>(from: &str, format: &'a str) -> Result<&'a str, String> {
    if format == RAW || formats::IMAGE_FORMATS.contains(&format) {
        return Ok(format);
    }
    Err(format!(
        "cannot import {from} as {format}: the formats are {RAW}, {}; convert others with `qemu-img convert`",
        formats::IMAGE_FORMATS.join(", ")
    ))
}

/// Bytes of a file, or as many as it has.
fn read_at(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.read_at(&mut bytes[done..], at.saturating_add(done as u64))? {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Bytes of an export, or as many as it has.
fn read_export(client: &mut Client, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let left = client.size().saturating_sub(at);
    let length = left.min(length as u64) as u32;
    let read = client.read(at, length);
    read.map_err(|e| io::Error::other(explain(&e)))
}

/// The logical block size of a block device; that of all others is not known, so the usual one.
fn own_block(file: &File) -> io::Result<u32> {
    match file.metadata()?.file_type().is_block_device() {
        true => Ok(ioctl_blksszget(file)?),
        false => Ok(LOGICAL_BLOCK_MIN),
    }
}

/// A logical block size that a volume can have.
fn blocks(from: &str, size: Bytes, bytes: u32) -> Result<u32, String> {
    if bytes > LOGICAL_BLOCK_MAX {
        return Err(format!(
            "{from} has logical blocks of {bytes} bytes; a volume can have at most {LOGICAL_BLOCK_MAX}"
        ));
    }
    match size.0.is_multiple_of(u64::from(bytes)) {
        true => Ok(bytes),
        false => Err(format!(
            "the size of {from}, {} bytes, is not a multiple of its logical block size of {bytes}: enlarge a copy with `truncate --size=%{bytes}`",
            size.0
        )),
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
            "{from} is in use: it is mounted or part of another device; unmount it first, because a copy of a device in use is not consistent"
        ),
        _ => failed("open", e),
    })?;
    is_block(&file.metadata().map_err(|e| failed("inspect", e))?)?;
    // Reads are to wait for the disk.
    let flags = fcntl_getfl(&file).map_err(|e| failed("inspect", e.into()))?;
    let waits = fcntl_setfl(&file, flags - OFlags::NONBLOCK);
    waits.map_err(|e| failed("open", e.into()))?;
    Ok(file)
}

/// What is open stays what it is when its name goes.
fn look_at_file(path: &Path, file: &File, mark: SourceMark) -> Result<Option<String>, Unusable> {
    let shown = path.display();
    let failed = |e: io::Error| Unusable::Gone(format!("cannot inspect {shown}: {e}"));
    let own = file.metadata().map_err(failed)?;
    let now = SourceMark {
        size: mark.size,
        ..mark_of(file).map_err(failed)?
    };
    if now != mark {
        return Err(Unusable::Unfit(changed(&shown.to_string())));
    }
    let why = match path.metadata() {
        Err(e) => format!("{shown} no longer exists ({e})"),
        Ok(there) if own.is_file() && (own.dev(), own.ino()) != (there.dev(), there.ino()) => {
            format!("{shown} was replaced by another file")
        }
        Ok(_) => return Ok(None),
    };
    Ok(Some(format!(
        "{why}: the import continues from the open file, and a restart of the server would end it; restore the original file before a restart"
    )))
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
        "{from} was changed since the import began, so the copy would not be consistent: delete the volume and import it again"
    )
}

/// The size of a source, if it can be that of a volume.
fn whole(from: &str, bytes: u64) -> Result<Bytes, String> {
    match bytes {
        0 => Err(format!("{from} is empty")),
        n if n.is_multiple_of(SECTOR_BYTES) => Ok(Bytes(n)),
        n => Err(format!(
            "the size of {from}, {n} bytes, is not a multiple of {SECTOR_BYTES}: enlarge it first with `truncate --size=%{SECTOR_BYTES}`"
        )),
    }
}
