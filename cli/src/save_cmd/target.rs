//! Target of a saved image: a file, which has a temporary name until it is complete, or a block device.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use datapath::control_server::VolumeInfo;
use datapath::image_in_use;
use rustix::fs::{
    Advice, CWD, FallocateFlags, OFlags, RenameFlags, fadvise, fallocate, renameat_with,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use units::Bytes;

use super::{RAW, Save};
use crate::live::absolute;

/// Smallest range of zeroes that a device is requested to punch. Shorter ranges are written, because each such request takes as long as some
/// writes.
const ASKED_BYTES: u64 = 1 << 20;

/// Mode of a file that only its owner may read and write.
const PRIVATE: u32 = 0o600;

/// Zeroes for one write.
static ZEROES: [u8; 256 << 10] = [0; 256 << 10];

/// Image that is being written.
pub struct Target {
    file: File,
    kind: Kind,
}

enum Kind {
    /// File with a temporary name, which is removed unless it is renamed to `to`.
    File {
        partial: PartialFile,
        to: PathBuf,
        replace: Replace,
    },
    Device(PathBuf),
}

/// File that is removed on drop, unless its path is cleared.
struct PartialFile(PathBuf);

/// Treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replace {
    Never,
    IfThere,
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0); // a file that remains is recognized by its name
        }
    }
}

enum Place {
    File { to: PathBuf, replace: Replace },
    Device(PathBuf),
}

/// Checks the target before the save begins.
pub fn check(what: &Save) -> anyhow::Result<()> {
    place(what).map(drop)
}

/// Refuses a target from which a volume is being imported, even if the server does not have it open.
pub fn is_no_source(what: &Save, volumes: &[VolumeInfo]) -> anyhow::Result<()> {
    // Two device nodes may belong to the same device, so devices are compared by number.
    let file = |path: &Path| {
        path.metadata()
            .map(|m| match m.file_type().is_block_device() {
                true => (None, m.rdev()),
                false => (Some(m.dev()), m.ino()),
            })
    };
    let Ok(to) = file(&what.to) else {
        return Ok(()); // the target does not exist
    };
    for volume in volumes {
        let from = volume.import.as_ref().map(|i| Path::new(&i.from));
        if from.is_some_and(|from| file(from).is_ok_and(|from| from == to)) {
            bail!(
                "{} is in use: volume {:?} is being imported from it",
                what.to.display(),
                volume.name
            );
        }
    }
    Ok(())
}

fn place(what: &Save) -> anyhow::Result<Place> {
    let to = absolute(&what.to)?;
    let meta = match fs::metadata(&to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if to.is_symlink() {
                bail!("{} is a link to a file that does not exist", to.display());
            }
            let dir = to.parent().filter(|_| to.file_name().is_some());
            match dir.is_some_and(Path::is_dir) {
                true => {
                    let replace = Replace::Never;
                    return Ok(Place::File { to, replace });
                }
                false => bail!("{}: the directory does not exist", to.display()),
            }
        }
        meta => meta.with_context(|| format!("cannot inspect {}", to.display()))?,
    };
    let kind = meta.file_type();
    if kind.is_block_device() {
        if what.format != RAW {
            bail!("{}: a block device can only take format raw", to.display());
        }
        if !what.force {
            bail!(
                "{} is a block device and its data will be lost: add --force to overwrite it",
                to.display()
            );
        }
        return Ok(Place::Device(to));
    }
    if !kind.is_file() {
        bail!("{} is neither a file nor a block device", to.display());
    }
    if !what.force {
        bail!("{} already exists: add --force to replace it", to.display());
    }
    // The target of a link is replaced, not the link.
    let to = to.canonicalize();
    let to = to.with_context(|| format!("cannot inspect {}", what.to.display()))?;
    let replace = Replace::IfThere;
    Ok(Place::File { to, replace })
}

impl Target {
    /// Opens the target for an image of `size` bytes.
    pub fn open(what: &Save, size: u64) -> anyhow::Result<Self> {
        match place(what)? {
            Place::File { to, replace } => {
                let mut name = OsString::from(to.file_name().unwrap_or_default());
                name.push(".partial");
                let path = to.with_file_name(name);
                if replace == Replace::IfThere {
                    not_in_use(&to)?;
                }
                let (file, partial) = begin(path)?;
                if what.format == RAW {
                    let grown = file.set_len(size);
                    grown.with_context(|| {
                        format!("cannot grow {} to {}", partial.0.display(), Bytes(size))
                    })?;
                }
                let kind = Kind::File {
                    partial,
                    to,
                    replace,
                };
                Ok(Self { file, kind })
            }
            Place::Device(path) => {
                let file = device(&path, size)?;
                let kind = Kind::Device(path);
                Ok(Self { file, kind })
            }
        }
    }

    /// Returns the path of the file or device that is being written.
    pub fn path(&self) -> &Path {
        match &self.kind {
            Kind::File { partial, .. } => &partial.0,
            Kind::Device(path) => path,
        }
    }

    /// Adds path and offset to a system error.
    pub fn failed(&self, what: &str, offset: u64, error: io::Error) -> anyhow::Error {
        let path = self.path().display();
        anyhow!(error).context(format!("cannot {what} {path} at byte {offset}"))
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| self.failed("write", offset, e))
    }

    /// Makes a range read as zeroes. Nothing is written to a new file, whose holes already do.
    pub fn zero(&self, offset: u64, length: u64) -> anyhow::Result<()> {
        if let Kind::File { .. } = self.kind {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if length >= ASKED_BYTES && fallocate(&self.file, punch, offset, length).is_ok() {
            return Ok(());
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let n = (end - at).min(ZEROES.len() as u64) as usize;
            self.write(at, &ZEROES[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// Makes all writes to the target durable, including those of other processes.
    pub fn make_durable(&self) -> anyhow::Result<()> {
        let path = self.path().display();
        let synced = self.file.sync_all();
        synced.with_context(|| format!("cannot flush {path}"))
    }

    /// Drops the page cache of the target, so later reads come from the disk.
    pub fn forget_cached(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed); // without effect, the comparison reads from memory
    }

    /// Opens the target for reading.
    pub fn reread(&self) -> anyhow::Result<File> {
        let path = self.path();
        File::open(path).with_context(|| format!("cannot open {}", path.display()))
    }

    /// Renames a file to its final name, durably. Returns the path of the image.
    pub fn finish(self) -> anyhow::Result<PathBuf> {
        let (mut partial, to, replace) = match self.kind {
            Kind::Device(path) => return Ok(path),
            Kind::File {
                partial,
                to,
                replace,
            } => (partial, to, replace),
        };
        let from = &partial.0;
        if replace == Replace::IfThere && to.exists() {
            not_in_use(&to)?; // another process may use it since the first check
        }
        if let (Replace::IfThere, Ok(old)) = (replace, fs::metadata(&to)) {
            // The new file keeps the mode of the old one, if the file system has modes.
            let mode = Permissions::from_mode(old.mode() & 0o777);
            let _ = self.file.set_permissions(mode);
        }
        let renamed = match replace {
            Replace::IfThere => fs::rename(from, &to),
            Replace::Never => rename_new(from, &to),
        };
        renamed.with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))?;
        partial.0.clear();
        let dir = to.parent().unwrap_or(Path::new("/"));
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.with_context(|| format!("cannot flush the directory of {}", to.display()))?;
        Ok(to)
    }
}

/// Renames a file, unless a file of the new name exists by now.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support this in one step.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

/// Creates an empty file that only this command uses. A file left by a killed save is reused.
fn begin(path: PathBuf) -> anyhow::Result<(File, PartialFile)> {
    let shown = path.display().to_string();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    // Other users must not read the data of guests.
    options.mode(PRIVATE);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let (file, left) = match options.open(&path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            (options.create_new(false).open(&path), true)
        }
        made => (made, false),
    };
    let file = file.with_context(|| format!("cannot create {shown}"))?;
    let meta = file.metadata();
    let own = meta.with_context(|| format!("cannot inspect {shown}"))?;
    if left && own.uid() != geteuid().as_raw() {
        bail!("{shown} exists and belongs to another user: remove it");
    }
    if !own.is_file() {
        bail!("{shown} is not a file");
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another save is writing {shown}"),
        // Not every file system has locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    // An unfinished save is readable only for its owner and has one name. Any other file of this name is not overwritten.
    if left && (own.nlink() > 1 || own.mode() & 0o777 != PRIVATE) {
        bail!("{shown} exists and is not an unfinished save: rename or remove it");
    }
    // Another save may have ended before the lock was taken, and renamed the file.
    let same = |m: &fs::Metadata| (m.dev(), m.ino()) == (own.dev(), own.ino());
    if !fs::symlink_metadata(&path).is_ok_and(|m| same(&m)) {
        bail!("another save has just written {shown}: try again");
    }
    let partial = PartialFile(path);
    let emptied = file.set_len(0);
    emptied.with_context(|| format!("cannot empty {shown}"))?;
    Ok((file, partial))
}

/// Refuses to replace an image that is in use.
fn not_in_use(path: &Path) -> anyhow::Result<()> {
    let file = File::open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    nobody_has(&file, path)
}

/// Checks that neither an array nor a virtual machine uses the file. Also takes the lock that arrays use.
fn nobody_has(file: &File, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        bail!("{shown} is in use, perhaps as a device of an array");
    }
    match image_in_use(file) {
        Some(who) => bail!("{shown} is in use: {who}"),
        // Not every file system has locks.
        None => Ok(()),
    }
}

/// Opens a block device. Refuses a device that is in use or smaller than `size` bytes.
fn device(path: &Path, size: u64) -> anyhow::Result<File> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    // O_EXCL refuses a device that is mounted or part of another device.
    options.custom_flags(OFlags::EXCL.bits() as i32);
    let file = options.open(path);
    let mut file = file.with_context(|| format!("cannot open {shown} exclusively"))?;
    nobody_has(&file, path)?;
    let there = file.seek(SeekFrom::End(0));
    let there = there.with_context(|| format!("cannot read the size of {shown}"))?;
    if there < size {
        bail!(
            "{shown} has {}, the volume {}: it does not fit",
            Bytes(there),
            Bytes(size)
        );
    }
    Ok(file)
}
