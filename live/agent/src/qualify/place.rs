//! Directory of a qualification on a storage. The qualification creates it and removes it at its end; after a kill, the next one removes it.
//!
//! Nothing else is opened, renamed or removed: every file has one of the names below, within a directory whose name has the UUID of the
//! qualification's own domain.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Way;
use crate::error::{AgentError, Result, file_error, system_error};

/// Beginning of names of directories and domains.
pub(super) const PREFIX: &str = "terrace-qualify-";
/// Locked while the qualification runs. It names the libvirt URI, if any, through which a left-over QEMU is ended.
const LOCK: &str = "lock.json";
pub(super) const BASE: &str = "base.qcow2";
pub(super) const SOURCE: &str = "source.qcow2";
pub(super) const TARGET: &str = "target.img";
pub(super) const RAW: &str = "check.raw";
pub(super) const XML: &str = "definition.xml";
pub(super) const QMP: &str = "qmp.sock";
pub(super) const NBD: &str = "nbd.sock";
/// Files of a qualification, with the lock last: while it exists, the next qualification removes the rest.
const FILES: [&str; 8] = [BASE, SOURCE, TARGET, RAW, XML, QMP, NBD, LOCK];

/// Contents of the lock file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    /// URI of libvirt, empty for the default of virsh; `None` for plain QEMU.
    libvirt: Option<String>,
}

/// Directory of a qualification. Dropping it removes it.
pub(super) struct Place {
    pub dir: PathBuf,
    pub uuid: String,
    /// Open directory, for paths that are too long for the name of a socket.
    handle: File,
    _lock: File,
}

impl Place {
    /// Creates the directory in a storage.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn create(storage: &Path, way: &Way) -> Result<Self> {
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid");
        let uuid = uuid.map_err(system_error("cannot create a UUID"))?;
        let uuid = uuid.trim().to_owned();
        let dir = storage.join(format!("{PREFIX}{uuid}"));
        // QEMU may run as another user, which must be able to reach the images.
        DirBuilder::new()
            .mode(0o711)
            .create(&dir)
            .map_err(file_error("cannot create", &dir))?;
        let owner = Owner {
            libvirt: match way {
                Way::Libvirt(uri) => Some(uri.clone().unwrap_or_default()),
                Way::Qemu(_) => None,
            },
        };
        let made = (|| -> io::Result<(File, File)> {
            let mut lock = create(&dir.join(LOCK))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            lock.write_all(&serde_json::to_vec(&owner)?)?;
            Ok((lock, File::open(&dir)?))
        })();
        match made {
            Ok((lock, handle)) => Ok(Self {
                dir,
                uuid,
                handle,
                _lock: lock,
            }),
            Err(e) => {
                let _ = remove(&dir);
                Err(file_error("cannot create", &dir)(e))
            }
        }
    }

    /// Returns the path of one of its files.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        debug_assert!(FILES.contains(&name));
        self.dir.join(name)
    }

    /// Returns a short path of one of its files, for the name of a socket.
    pub(super) fn short(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()).into()
    }

    /// Removes one of its files if it exists, and creates an empty one.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn create_anew(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        let made = remove_file(&path).and_then(|()| create(&path));
        made.map_err(file_error("cannot create", &path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %e, "cannot remove the directory of a qualification");
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes the files of a qualification, and then its directory, which must be empty.
fn remove(dir: &Path) -> io::Result<()> {
    for name in FILES {
        remove_file(&dir.join(name))?;
    }
    fs::remove_dir(dir)
}

/// Removes the files of killed qualifications from a storage; `end` ends the QEMU of a UUID. Returns the removed
/// directories.
///
/// # Errors
/// A remainder must be removed by hand.
pub(super) fn clean(
    storage: &Path,
    end: impl Fn(&Way, &str) -> Result<()>,
) -> Result<Vec<PathBuf>> {
    let said = |path: &Path, e: &dyn std::fmt::Display| {
        AgentError::InUse(format!(
            "{}: {e}: it was left behind by a killed qualification; end its QEMU if that still runs, then remove the directory",
            path.display()
        ))
    };
    let own = rustix::process::geteuid().as_raw();
    let mut removed = vec![];
    let entries = fs::read_dir(storage).map_err(file_error("", storage))?;
    for entry in entries.flatten() {
        let (dir, name) = (entry.path(), entry.file_name());
        let uuid = name.to_str().and_then(|n| n.strip_prefix(PREFIX));
        let found = fs::symlink_metadata(&dir).ok();
        let is_ours = found.is_some_and(|m| m.is_dir() && m.uid() == own);
        let Some(uuid) = uuid.filter(|u| is_ours && is_uuid(u)) else {
            continue;
        };
        let mut options = OpenOptions::new();
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let lock = options
            .read(true)
            .custom_flags(nofollow)
            .open(dir.join(LOCK));
        if let Ok(lock) = &lock {
            if flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue; // it runs
            }
            // A qualification that was killed before it wrote the lock file has started no QEMU.
            if let Ok(owner) = serde_json::from_reader::<_, Owner>(lock) {
                let way = match owner.libvirt {
                    Some(uri) => Way::Libvirt(Some(uri).filter(|uri| !uri.is_empty())),
                    None => Way::Qemu(PathBuf::new()),
                };
                end(&way, uuid).map_err(|e| said(&dir, &e))?;
            }
        }
        remove(&dir).map_err(|e| said(&dir, &e))?;
        removed.push(dir);
    }
    Ok(removed)
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(n, c): (usize, char)| match n {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.chars().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn directory_is_removed_with_its_files_only() {
        let storage = tempfile::tempdir().unwrap();
        let way = Way::Qemu("qemu".into());
        let place = Place::create(storage.path(), &way).unwrap();
        place.create_anew(SOURCE).unwrap();
        place.create_anew(SOURCE).unwrap();
        let dir = place.dir.clone();
        assert!(place.short(SOURCE).exists());
        drop(place);
        assert!(!dir.exists());
        let place = Place::create(storage.path(), &way).unwrap();
        let (dir, other) = (place.dir.clone(), place.dir.join("other"));
        fs::write(&other, "x").unwrap();
        drop(place);
        assert!(other.exists(), "a file that it did not create");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn killed_qualification_is_cleaned_up_by_the_next() {
        let storage = tempfile::tempdir().unwrap();
        let running = Place::create(storage.path(), &Way::Libvirt(None)).unwrap();
        // State after SIGKILL: the lock is free, and the files exist.
        let killed = Place::create(storage.path(), &Way::Libvirt(Some("a:///b".into()))).unwrap();
        killed.create_anew(TARGET).unwrap();
        let (dir, uuid) = (killed.dir.clone(), killed.uuid.clone());
        let kept = storage.path().join("kept");
        fs::rename(&dir, &kept).unwrap();
        drop(killed);
        fs::rename(&kept, &dir).unwrap();
        for name in ["terrace-qualify-", "terrace-qualify-x", "other"] {
            fs::create_dir(storage.path().join(name)).unwrap();
        }
        let ended = RefCell::new(vec![]);
        let removed = clean(storage.path(), |way, uuid| {
            ended.borrow_mut().push((way.clone(), uuid.to_owned()));
            Ok(())
        });
        assert_eq!(removed.unwrap(), [dir]);
        let way = Way::Libvirt(Some("a:///b".into()));
        assert_eq!(*ended.borrow(), [(way, uuid)]);
        assert!(running.path(LOCK).exists());
        assert_eq!(fs::read_dir(storage.path()).unwrap().count(), 4);
    }

    #[test]
    fn files_of_an_unstoppable_qemu_are_not_removed() {
        let storage = tempfile::tempdir().unwrap();
        let dir = storage
            .path()
            .join(format!("{PREFIX}00000000-0000-0000-0000-000000000000"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(LOCK), "{\"libvirt\":null}").unwrap();
        fs::write(dir.join(SOURCE), "x").unwrap();
        let silent = || AgentError::Silent("no answer".into());
        let why = clean(storage.path(), |_, _| Err(silent())).unwrap_err();
        let why = why.to_string();
        assert!(why.contains("no answer: it was left behind"), "{why}");
        assert!(dir.join(SOURCE).exists());
    }
}
