//! The files of images: which one it is, when it was written, and what is done to its name.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use vmhost::moving::{FileId, Intent};
use vmhost::{Image, Layout};

use super::intents::sync_directory;
use crate::images;
use crate::process::run;

/// The kernel's name of the host's present life; none where it does not say.
pub(crate) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().into())
}

/// Whether a file is at a path. One that cannot be looked at may be.
pub(crate) fn may_be_there(path: &str) -> bool {
    let looked = fs::symlink_metadata(path);
    !looked.is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Whether a file that was in a file system is gone from there, and not the file system.
pub(super) fn is_gone(path: &str, file: Option<FileId>) -> bool {
    let dir = Path::new(path).parent().and_then(|d| fs::metadata(d).ok());
    let mounted = dir.is_some_and(|d| file.is_none_or(|f| f.device == d.dev()));
    mounted && !may_be_there(path)
}

/// Which file is at a path.
pub(super) fn id(path: &str) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|found| id_of(&found))
}

/// Which file it is that was looked at.
pub(crate) fn id_of(found: &fs::Metadata) -> FileId {
    FileId {
        device: found.dev(),
        inode: found.ino(),
    }
}

/// Makes an empty file where there is none.
pub(super) fn make(path: &str) -> Result<FileId, String> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let made = options.open(path).and_then(|f| f.metadata());
    let made = made.map_err(|e| format!("cannot create {path}: {e}"))?;
    Ok(id_of(&made))
}

/// Makes an image without data of an empty file, with the options of `layout`, and reads it back.
///
/// # Errors
/// Why it cannot be made, or which option it does not have.
pub(super) fn prepare(image: &Image, bytes: u64, layout: Option<&Layout>) -> Result<(), String> {
    let Some(path) = image.at.file() else {
        return Ok(());
    };
    if image.format == "raw" {
        let sized = OpenOptions::new().write(true).open(path);
        return sized
            .and_then(|f| f.set_len(bytes))
            .map_err(|e| format!("cannot grow {path} to the size of its disk: {e}"));
    }
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", &image.format]);
    if let Some(layout) = layout {
        command.args(["-o", &layout.create_options()?]);
    }
    command
        .arg(path)
        .arg(bytes.to_string())
        .stdin(Stdio::null());
    let said = run(command, "qemu-img")?;
    if !said.success {
        return Err(format!("qemu-img: {}", said.error("no reason given")));
    }
    let made = images::info(path)?;
    if made.virtual_size != Some(bytes) {
        let size = made.virtual_size.unwrap_or(0);
        return Err(format!("{path} has {size} bytes, and its disk has {bytes}"));
    }
    let differs = layout.and_then(|l| match &made.layout {
        Some(made) => l.difference(made),
        None => Some("unknown options".into()),
    });
    match differs {
        None => Ok(()),
        Some(option) => Err(format!(
            "{path} has {option}: qemu-img cannot create a copy with all options of the image"
        )),
    }
}

/// Bytes that are free where an image is.
pub(super) fn free(image: &Image) -> Option<u64> {
    let dir = Path::new(image.at.file()?).parent()?;
    let system = crate::kernel::file_system(dir).ok()?;
    Some(system.size.saturating_sub(system.used))
}

/// Makes all that was written to an image durable; of what is no file QEMU's own flush has to do.
pub(super) fn flush(image: &Image) -> Result<(), String> {
    let Some(path) = image.at.file() else {
        return Ok(());
    };
    let said = |e| format!("cannot flush {path}: {e}");
    File::open(path).and_then(|f| f.sync_all()).map_err(said)?;
    directory_of(Path::new(path))
}

/// Makes the name of a file durable.
fn directory_of(path: &Path) -> Result<(), String> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    sync_directory(dir).map_err(|e| format!("cannot flush {}: {e}", dir.display()))
}

/// Removes an image that is the file which it is taken for.
pub(super) fn remove(image: &Image, made: Option<FileId>) -> Result<(), String> {
    let Some(path) = image.at.file() else {
        return Ok(());
    };
    match id(path) {
        Some(there) if Some(there) == made => remove_path(Path::new(path)),
        _ => Ok(()), // another one, which is not ours
    }
}

/// Removes a file, durably.
pub(super) fn remove_path(path: &Path) -> Result<(), String> {
    fs::remove_file(path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
    directory_of(path)
}

/// Gives the old image the name that it is kept under; never over another file.
pub(super) fn rename(intent: &Intent) -> Result<(), String> {
    match (intent.from.at.file(), &intent.kept_as) {
        (Some(from), Some(to)) => rename_durably(from, to),
        _ => Ok(()),
    }
}

/// Gives a file another name, durably; never over another file.
///
/// # Errors
/// Why it has the old one, or may have it again after a power loss.
pub(crate) fn rename_durably(from: &str, to: &str) -> Result<(), String> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Network file systems know no such rename.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let linked = match fs::hard_link(from, to) {
                // Somebody was killed in between.
                Err(_) if crate::kernel::same_file(Path::new(from), Path::new(to)) => Ok(()),
                other => other,
            };
            linked.and_then(|()| fs::remove_file(from))
        }
        other => other.map_err(Into::into),
    };
    renamed.map_err(|e| format!("cannot rename {from} to {to}: {e}"))?;
    directory_of(Path::new(from))
}
