//! QEMU's locks on images. A locked source is not written by programs that respect these locks. An image with a
//! writer cannot be a source, and an image that is open elsewhere is not replaced.
//!
//! QEMU holds read locks on single bytes of an image: on byte 100 + n for its own operations, and on byte 200 + n for
//! operations that others may not do meanwhile (n: 0 reads, 1 writes, 3 changes the size). It also looks for the
//! locks of others (QEMU, `block/file-posix.c`).

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::DatapathError;

const DOES: i64 = 100;
const OTHERS_MAY_NOT: i64 = 200;
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Permissions of QEMU, and some more.
const PERMISSIONS: i64 = 10;

/// Locks an image while this file is open, so programs that respect these locks do not write to it.
///
/// # Errors
/// [`DatapathError`]: another process writes to the image, or denies reads. A file system without locks gives no
/// error.
pub(super) fn lock_to_read(file: &File) -> Result<(), DatapathError> {
    for byte in [DOES + READ, OTHERS_MAY_NOT + WRITE, OTHERS_MAY_NOT + RESIZE] {
        let lock = one_byte(libc::F_RDLCK, byte);
        match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) | Err(Errno::EINVAL | Errno::ENOLCK | Errno::EOPNOTSUPP) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                return Err(DatapathError::Refused(
                    "another process has locked it".into(),
                ));
            }
            Err(error) => {
                let why = format!("cannot lock the file: {error}");
                return Err(DatapathError::Refused(why));
            }
        }
    }
    for (byte, what) in [
        (DOES + WRITE, "writes to it"),
        (DOES + RESIZE, "may change its size"),
        (OTHERS_MAY_NOT + READ, "locks it against other readers"),
    ] {
        let mut found = one_byte(libc::F_WRLCK, byte);
        let looked = fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut found));
        if looked.is_ok() && found.l_type != libc::F_UNLCK as i16 {
            return Err(DatapathError::Refused(format!(
                "a virtual machine or another QEMU program {what}: shut it down first"
            )));
        }
    }
    Ok(())
}

/// Returns the user of an image among programs that respect these locks: virtual machines, programs of QEMU, imports.
pub fn image_in_use(file: &File) -> Option<String> {
    // Each lock counts alone: programs hold different ones.
    for (byte, what) in [
        (DOES + WRITE, "writes to it"),
        (DOES + RESIZE, "may change its size"),
        (DOES, "has it open"),
        (OTHERS_MAY_NOT, "has it open"),
    ] {
        let mut found = libc::flock {
            l_len: if byte % 100 == 0 { PERMISSIONS } else { 1 },
            ..one_byte(libc::F_WRLCK, byte)
        };
        let looked = fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut found));
        if looked.is_ok() && found.l_type != libc::F_UNLCK as i16 {
            let who = "a virtual machine, another QEMU program or an import";
            return Some(match users(file) {
                users if users.is_empty() => format!("{who} {what}"),
                users => format!("{who} {what} ({})", users.join(", ")),
            });
        }
    }
    None
}

/// Returns the other processes that have a file open, as far as this process can see. The kernel does not report the
/// owner of such a lock.
pub(crate) fn users(file: &File) -> Vec<String> {
    // A block device may have several nodes.
    let id = |m: std::fs::Metadata| match m.file_type().is_block_device() {
        true => (m.rdev(), 0),
        false => (m.dev(), m.ino()),
    };
    let Ok(own) = file.metadata().map(id) else {
        return vec![];
    };
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = vec![];
    for process in entries("/proc".into()) {
        let pid = process.file_name().to_string_lossy().parse::<u32>();
        let Ok(pid) = pid else { continue };
        let mut open = entries(process.path().join("fd"));
        let is = |e: std::fs::DirEntry| e.path().metadata().is_ok_and(|m| id(m) == own);
        if pid != std::process::id() && open.any(is) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{}, process {pid}", name.trim()));
        }
    }
    found
}

fn one_byte(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_readers_share_a_lock_and_a_writer_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, [0; 512]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (one, other, writer) = (open(), open(), open());
        lock_to_read(&one).unwrap();
        lock_to_read(&other).unwrap();
        let writes = one_byte(libc::F_RDLCK, DOES + WRITE);
        fcntl(writer.as_fd(), FcntlArg::F_OFD_SETLK(&writes)).unwrap();
        let refused = lock_to_read(&other).unwrap_err().to_string();
        assert!(refused.contains("writes to it"), "{refused}");
        let used = image_in_use(&other).unwrap();
        assert!(used.contains("writes to it"), "{used}");
        drop(writer);
        lock_to_read(&other).unwrap();
        // Locks of a reader count too, except for its own.
        let used = image_in_use(&open()).unwrap();
        assert!(used.contains("has it open"), "{used}");
        drop(one);
        assert_eq!(image_in_use(&other), None);
    }
}
