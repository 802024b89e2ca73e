//! Sources of imports: a volume reads extents from its source until they are copied to the array. A source is never
//! written.
//!
//! Raw files and block devices are read directly. An NBD export is read over one connection: the import first
//! inspects the export over this connection, then the worker of the volume uses it. Other image formats of QEMU are
//! exported by a `qemu-nbd` process, which ends when its last client disconnects. One connection is kept open here,
//! so the process lives at least as long as the source, and ends with this process.

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::{LOGICAL_BLOCK_MAX, LOGICAL_BLOCK_MIN, SourceMark, SourceRecord};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, ioctl_blksszget};
use units::{Bytes, DeviceId};

use crate::client::{Client, ClientError};
use crate::control_server::SECTOR_BYTES;
use crate::device::{Device, file_bytes};
use crate::error::{DatapathError, Result};
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

/// Format of a source that is read directly.
pub const RAW: &str = "raw";

/// Interval between checks of a source.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Time after which a server that refuses connections counts as unreachable. It may have been started together with
/// the import, or may still serve its previous client.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Pause between two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Longest search for the allocated parts of a source, because an operator waits for it.
const LOOK_THROUGH: Duration = Duration::from_secs(60);

/// Open source.
#[derive(Debug)]
pub(crate) struct Source {
    /// Device that workers read.
    pub(crate) device: Arc<Device>,
    /// Identity and size of the source when it was opened.
    pub(crate) mark: SourceMark,
    pub(crate) format: String,
    /// Logical block size in bytes; its partition table counts in this unit.
    pub(crate) logical_block: u32,
    /// Description of content that is not imported.
    pub(crate) more: Option<String>,
    path: Option<PathBuf>,
    /// File with the lock.
    file: Option<Arc<File>>,
    /// Connection that keeps the source's `qemu-nbd` process running.
    server: Option<Mutex<Client>>,
    uri: Option<nbd::Uri>,
}

/// Source to open.
#[derive(Debug, Clone)]
pub(crate) struct SourceSpec {
    /// Device number of the source in places of extents.
    pub(crate) device: DeviceId,
    /// File, block device or NBD URI.
    pub(crate) from: String,
    /// Format; by default `raw`, unless the content looks like another format.
    pub(crate) format: Option<String>,
    /// Directory for the socket of a `qemu-nbd` process.
    pub(crate) dir: PathBuf,
}

impl SourceSpec {
    /// Returns the source of an existing import.
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
    /// [`DatapathError::SourceGone`] if the source does not exist or does not respond; other variants of
    /// [`DatapathError`] if another program writes to it, or its format cannot be read.
    pub(crate) fn open(wanted: &SourceSpec) -> Result<Self> {
        match wanted.from.contains("://") {
            true => Self::open_export(wanted),
            false => Self::open_path(wanted),
        }
    }

    /// Connects and reads the first bytes, with repetitions up to a time limit: early reads may fail like later ones.
    fn open_export(wanted: &SourceSpec) -> Result<Self> {
        let until = Instant::now() + CONNECT_TIME;
        loop {
            match Self::try_to_open_export(wanted) {
                Err(DatapathError::SourceGone(_)) if Instant::now() < until => {
                    std::thread::sleep(CONNECT_PAUSE);
                }
                done => return done,
            }
        }
    }

    fn try_to_open_export(wanted: &SourceSpec) -> Result<Self> {
        let from = &wanted.from;
        if let Some(format) = wanted.format.as_deref().filter(|f| *f != RAW) {
            let why = format!(
                "{from} is an NBD export, which is imported as a raw disk: omit `--format {format}`"
            );
            return Err(DatapathError::Invalid(why));
        }
        let uri = from.parse::<nbd::Uri>();
        let uri = uri.map_err(|e| DatapathError::Invalid(format!("{from}: {e}")))?;
        let mut client = connect_patiently(&uri)?;
        let size = whole(from, client.size())?;
        let mut reads = |at, length| read_export(&mut client, at, length);
        let gone = |e: io::Error| DatapathError::failed(e).gone();
        if wanted.format.is_none() {
            let content = formats::recognize(size.0, &mut reads);
            if let Some(content) = content.map_err(gone)? {
                return Err(DatapathError::Image(content.refusal(from)));
            }
        }
        let head = reads(0, sectors::HEAD_BYTES);
        let head = head.map_err(gone)?;
        // A larger minimum is a property of the server, not of a disk.
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

    fn open_path(wanted: &SourceSpec) -> Result<Self> {
        let from = &wanted.from;
        let path = PathBuf::from(from);
        let failed = |action| DatapathError::system(action, from);
        let file = open_to_read(&path, from)?;
        let file = Arc::new(file);
        locks::lock_to_read(&file).map_err(|why| why.about(from))?;
        let file_mark = mark_of(&file).map_err(failed("measure"))?;
        let bytes = file_mark.file_bytes;
        let format = match &wanted.format {
            Some(format) => known(from, format)?,
            None => {
                let mut reads = |at, length| read_at(&file, at, length);
                let content = formats::recognize(bytes, &mut reads);
                if let Some(content) = content.map_err(failed("read"))? {
                    let lost = match content {
                        formats::Content::Image(format) => {
                            lost_by_conversion(&path, &file, from, format)?
                        }
                        _ => String::new(),
                    };
                    return Err(DatapathError::Image(content.refusal(from) + &lost));
                }
                RAW
            }
        };
        let more = headers::more_than_disk(&file, from, format)?;
        let (device, size, head, server, uri) = if format == RAW {
            let device = Device::source_in(wanted.device, file.clone());
            let head = read_at(&file, 0, sectors::HEAD_BYTES);
            let head = head.map_err(failed("read"))?;
            (device, bytes, head, None, None)
        } else {
            headers::stands_alone(&file, from, format)?;
            let (mut client, uri) = image::serve(&path, format, &wanted.dir, wanted.device)?;
            let size = client.size();
            let head = read_export(&mut client, 0, sectors::HEAD_BYTES);
            let head = head.map_err(|e| DatapathError::failed(e).about(from))?;
            let device = Device::source_at(wanted.device, uri.clone(), Bytes(size));
            (device, size, head, Some(Mutex::new(client)), Some(uri))
        };
        let own = match format {
            RAW => own_block(&file).map_err(failed("inspect"))?,
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

    /// Refuses an image that is damaged or incomplete. May take minutes.
    ///
    /// # Errors
    /// [`DatapathError::Image`] with the damage; other variants if the check fails.
    pub(crate) fn is_whole(&self) -> Result<()> {
        match (&self.path, &self.file) {
            (Some(path), Some(file)) if self.format != RAW => {
                check::is_whole(path, file, &self.format)
            }
            _ => Ok(()),
        }
    }

    /// Returns the extents that may contain other bytes than zeroes, as ranges. May take long.
    ///
    /// # Errors
    /// [`DatapathError`].
    pub(crate) fn extents(&self, extent: Bytes) -> Result<Vec<(u32, u32)>> {
        let size = self.mark.size.0;
        let until = Instant::now() + LOOK_THROUGH;
        match (&self.uri, &self.file) {
            (Some(uri), Some(_)) => {
                let client = Client::connect_for_status(uri);
                let mut client = client.map_err(DatapathError::failed)?;
                allocated::of_export(&mut client, size, extent.0, until)
            }
            (Some(_), None) => {
                let client = self.device.take_connection();
                let lost = "the connection to the source was lost";
                let mut client = client.ok_or_else(|| DatapathError::Refused(lost.into()))?;
                let found = allocated::of_export(&mut client, size, extent.0, until)?;
                self.device.keep_connection(client);
                Ok(found)
            }
            (None, Some(file)) => allocated::of_file(file, size, extent.0, until),
            (None, None) => unreachable!("a source is a file or an export"),
        }
    }

    /// Checks that the source is unchanged and readable. A file that was only renamed or replaced stays in use, and
    /// the result is a message about it. May take long.
    ///
    /// An export gets a new connection only if the worker's connection to it broke: until then it is the same export,
    /// and its server may allow only one client.
    ///
    /// # Errors
    /// [`DatapathError::SourceGone`] if the source does not exist or does not respond;
    /// [`DatapathError::Refused`] if it differs from the one at the start of the import.
    pub(crate) fn look(&self, broke: bool) -> Result<Option<String>> {
        if let Some(server) = &self.server {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let length = SECTOR_BYTES as u32;
            let read = server.read(0, length);
            read.map_err(|e| DatapathError::failed(e).gone())?;
        }
        match (&self.path, &self.file, &self.uri) {
            (Some(path), Some(file), _) => look_at_file(path, file, self.mark),
            (_, _, Some(uri)) if broke => self.connect_again(uri).map(|()| None),
            (_, _, Some(_)) => Ok(None),
            _ => unreachable!("a source is a file or an export"),
        }
    }

    /// Connects to the export for the worker. Only the size of an export can be compared.
    fn connect_again(&self, uri: &nbd::Uri) -> Result<()> {
        let client = connect_patiently(uri)?;
        let (now, size) = (Bytes(client.size()), self.mark.size);
        if now != size {
            return Err(DatapathError::Refused(format!(
                "the size of {uri} changed from {size} to {now} since the import began"
            )));
        }
        self.device.keep_connection(client);
        Ok(())
    }
}

/// Connects to a server that may be starting, or may still serve its previous client.
fn connect_patiently(uri: &nbd::Uri) -> Result<Client> {
    let until = Instant::now() + CONNECT_TIME;
    loop {
        match Client::connect_for_status(uri) {
            Ok(client) => return Ok(client),
            Err(ClientError::Io { .. }) if Instant::now() < until => {
                std::thread::sleep(CONNECT_PAUSE);
            }
            Err(error) => return Err(DatapathError::failed(error).gone()),
        }
    }
}

/// Describes the content of an image that a conversion to a raw disk loses.
///
/// # Errors
/// [`DatapathError::Image`]: the image is damaged or not complete. `qemu-img convert` may replace the missing data by
/// zeroes without an error.
fn lost_by_conversion(path: &Path, file: &File, from: &str, format: &str) -> Result<String> {
    let explained = |why: DatapathError| {
        DatapathError::Image(format!(
            "{from} is an image of format {format}, not a raw disk: {why}; `--format raw` imports the file unchanged"
        ))
    };
    headers::stands_alone(file, from, format).map_err(explained)?;
    check::is_whole(path, file, format).map_err(explained)?;
    let more = headers::more_than_disk(file, from, format).map_err(explained)?;
    Ok(more.map_or_else(String::new, |more| format!("; both ways lose {more}")))
}

/// Checks that imports support a format.
fn known<'a>(from: &str, format: &'a str) -> Result<&'a str> {
    if format == RAW || formats::IMAGE_FORMATS.contains(&format) {
        return Ok(format);
    }
    Err(DatapathError::Invalid(format!(
        "cannot import {from} as {format}: the formats are {RAW}, {}; convert others with `qemu-img convert`",
        formats::IMAGE_FORMATS.join(", ")
    )))
}

/// Reads `length` bytes of a file, or fewer at its end.
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

/// Reads `length` bytes of an export, or fewer at its end.
fn read_export(client: &mut Client, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let left = client.size().saturating_sub(at);
    let length = left.min(length as u64) as u32;
    let read = client.read(at, length);
    read.map_err(|e| io::Error::other(explain(&e)))
}

/// Returns the logical block size of a block device. For any other file it is unknown, and the usual one is returned.
fn own_block(file: &File) -> io::Result<u32> {
    match file.metadata()?.file_type().is_block_device() {
        true => Ok(ioctl_blksszget(file)?),
        false => Ok(LOGICAL_BLOCK_MIN),
    }
}

/// Checks that a volume can have this logical block size.
fn blocks(from: &str, size: Bytes, bytes: u32) -> Result<u32> {
    if bytes > LOGICAL_BLOCK_MAX {
        return Err(DatapathError::Refused(format!(
            "{from} has logical blocks of {bytes} bytes; a volume can have at most {LOGICAL_BLOCK_MAX}"
        )));
    }
    match size.0.is_multiple_of(u64::from(bytes)) {
        true => Ok(bytes),
        false => Err(DatapathError::Refused(format!(
            "the size of {from}, {} bytes, is not a multiple of its logical block size of {bytes}: enlarge a copy with `truncate --size=%{bytes}`",
            size.0
        ))),
    }
}

/// Removes the sockets of `qemu-nbd` processes that an earlier process started. The caller has exclusive use of the
/// directory.
pub(crate) fn clear_sockets(dir: &Path) {
    image::clear_sockets(dir);
}

/// Opens a file, or a block device that nothing else uses.
fn open_to_read(path: &Path, from: &str) -> Result<File> {
    let failed = |action, e: io::Error| DatapathError::system(action, &from)(e);
    let is_block = |meta: &Metadata| -> Result<bool> {
        match meta.file_type() {
            kind if kind.is_block_device() => Ok(true),
            kind if kind.is_file() => Ok(false),
            _ => {
                let why = format!("{from} is neither a file nor a block device");
                Err(DatapathError::Refused(why))
            }
        }
    };
    // Check before opening: the opening of a pipe waits for its writer.
    let there = path.metadata().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => failed("open", e).gone(),
        _ => failed("open", e),
    });
    let block = is_block(&there?)?;
    let alone = if block { OFlags::EXCL } else { OFlags::empty() };
    let opened = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | alone).bits() as i32)
        .open(path);
    let file = opened.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy if block => DatapathError::Refused(format!(
            "{from} is in use: it is mounted or part of another device; unmount it first, because a copy of a device in use is not consistent"
        )),
        _ => failed("open", e),
    })?;
    is_block(&file.metadata().map_err(|e| failed("inspect", e))?)?;
    // Reads must wait for the disk.
    let flags = fcntl_getfl(&file).map_err(|e| failed("inspect", e.into()))?;
    let waits = fcntl_setfl(&file, flags - OFlags::NONBLOCK);
    waits.map_err(|e| failed("open", e.into()))?;
    Ok(file)
}

/// Checks an open file. It stays usable when its name disappears.
fn look_at_file(path: &Path, file: &File, mark: SourceMark) -> Result<Option<String>> {
    let shown = path.display();
    let failed = |e: io::Error| DatapathError::system("inspect", &shown)(e).gone();
    let own = file.metadata().map_err(failed)?;
    let now = SourceMark {
        size: mark.size,
        ..mark_of(file).map_err(failed)?
    };
    if now != mark {
        return Err(changed(&shown));
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

/// Returns the identity of a file or block device. Its `size` is zero, because the imported size is not known here.
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

/// Returns the error for a source that was written since the import began.
pub(crate) fn changed(from: &dyn Display) -> DatapathError {
    DatapathError::Refused(format!(
        "{from} was changed since the import began, so the copy would not be consistent: delete the volume and import it again"
    ))
}

/// Checks that a volume can have the size of a source.
fn whole(from: &str, bytes: u64) -> Result<Bytes> {
    match bytes {
        0 => Err(DatapathError::Refused(format!("{from} is empty"))),
        n if n.is_multiple_of(SECTOR_BYTES) => Ok(Bytes(n)),
        n => Err(DatapathError::Refused(format!(
            "the size of {from}, {n} bytes, is not a multiple of {SECTOR_BYTES}: enlarge it first with `truncate --size=%{SECTOR_BYTES}`"
        ))),
    }
}
