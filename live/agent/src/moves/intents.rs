//! Intents on disk: one file for each move, durable before the recorded step is taken.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{AgentError, Result, file_error, record_error};
use crate::storage::sync_directory;
use crate::virsh::OrderContext;

/// Ending of the name of an intent's file.
const ENDING: &str = ".move.json";
/// Further ending of a file that is being written.
const NEW: &str = ".new";
/// Beginning of the name of a file with the text of an order.
pub(crate) const TEXT: &str = "order-";

/// Longest wait for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Directory of a host's intents. One agent at a time uses it.
pub(crate) struct Intents {
    dir: PathBuf,
    /// Lock file. The lock is held while the file is open, here or in a process with an order.
    lock: Arc<File>,
}

impl Intents {
    /// Opens the directory, or creates it, and reads all its intents of this form.
    ///
    /// # Errors
    /// Another agent uses the directory, or a file in it cannot be read. No move may act on the host's disks then.
    pub(crate) fn open<T: DeserializeOwned>(
        dir: &Path,
        form: u32,
    ) -> Result<(Self, Vec<(String, T)>)> {
        let said = file_error("", dir);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(&said)?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join("lock"))
            .map_err(&said)?;
        take(&lock)
            .map_err(|_| {
                let of = crate::controller::holder(dir);
                let of = of.map(|holder| format!(", for {holder},")).unwrap_or_default();
                AgentError::InUse(format!("{}: another agent{of} manages the moves that are recorded here, or a command of an agent that has ended is still running", dir.display()))
            })?;
        let mut found = vec![];
        let mut rest = vec![];
        for entry in fs::read_dir(dir).map_err(&said)? {
            let path = entry.map_err(&said)?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if let Some(name) = name.strip_suffix(ENDING) {
                let so = "it records the move of a disk, so no disk is moved until it can be read";
                found.push((name.to_owned(), read_kept(&path, form, so)?));
            } else if is_ours(name) {
                rest.push(path);
            }
        }
        // Remove files that a killed agent was writing.
        for path in rest {
            fs::remove_file(&path).map_err(file_error("", &path))?;
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let intents = Self {
            dir: dir.into(),
            lock: Arc::new(lock),
        };
        Ok((intents, found))
    }

    /// Returns the lock and the directory, which commands to a hypervisor need.
    pub(crate) fn orders(&self) -> OrderContext {
        OrderContext {
            lock: self.lock.clone(),
            dir: self.dir.clone(),
        }
    }

    /// Returns a path in the directory at which no file is ever created.
    pub(crate) fn unsettled(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.unsettled"))
    }

    /// Writes an intent, durably.
    ///
    /// # Errors
    /// The intent cannot be written. The file probably still has the old state.
    pub(crate) fn save(&self, name: &str, intent: &impl Serialize) -> Result<()> {
        save_durably(&self.file(name), intent)
    }

    /// Removes an intent, durably. A missing intent is not an error.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        remove_durably(&self.file(name))
    }

    /// Returns the path of an intent's file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{ENDING}"))
    }
}

/// Locks a file. The wait covers a process that is being started: it briefly has all open files of its parent.
fn take(lock: &File) -> rustix::io::Result<()> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
}

/// Returns true if the file is an incomplete one of a killed agent, by its name.
fn is_ours(name: &str) -> bool {
    let number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let order = name.strip_prefix(TEXT).and_then(|n| n.strip_suffix(".xml"));
    let order = order.and_then(|n| n.split_once('-'));
    let ends = |ending: &str| name.ends_with(&format!("{ending}{NEW}"));
    ends(ENDING)
        || ends(crate::throttles::ENDING)
        || ends(crate::controller::FILE)
        || order.is_some_and(|(pid, n)| number(pid) && number(n))
}

/// Reads a file of the form that this program supports. `so` is the consequence of a failure, for the error text.
///
/// # Errors
/// [`AgentError::Record`]: the fault and its consequence.
pub(crate) fn read_kept<T: DeserializeOwned>(
    path: &Path,
    form: u32,
    so: &'static str,
) -> Result<T> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    let text = fs::read_to_string(path).map_err(record_error(path, so))?;
    let written: Form = serde_json::from_str(&text).map_err(record_error(path, so))?;
    if written.form != form {
        let other = written.form;
        let why = format!("it has format {other}, and this program reads {form}");
        return Err(record_error(path, so)(why));
    }
    serde_json::from_str(&text).map_err(record_error(path, so))
}

/// Writes a value to a file, durably and atomically: after a crash the file has the old or the new value.
///
/// # Errors
/// The value cannot be written. The file probably still has the old value.
pub(crate) fn save_durably(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    let mut new = path.as_os_str().to_owned();
    new.push(NEW);
    let written = (|| {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_directory(path.parent().unwrap_or(Path::new("/")))
    })();
    written.map_err(file_error("cannot write", path))
}

/// Removes a file, durably. A missing file is not an error.
///
/// # Errors
/// The file may still exist.
pub(crate) fn remove_durably(path: &Path) -> Result<()> {
    let removed = match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let removed = removed.and_then(|()| sync_directory(path.parent().unwrap_or(Path::new("/"))));
    removed.map_err(file_error("cannot remove", path))
}

#[cfg(test)]
mod tests {
    use vmhost::moving::{INTENT_FORM, Intent, Phase};
    use vmhost::{Image, ImageLocation};

    use super::*;

    fn intent() -> Intent {
        let image = |path: &str| Image {
            at: ImageLocation::File(path.into()),
            format: "raw".into(),
        };
        Intent {
            phase: Phase::GivingUp { why: "full".into() },
            ..Intent::new(
                "u".into(),
                "vda".into(),
                image("/a"),
                image("/b"),
                "/c".into(),
            )
        }
    }

    #[test]
    fn saved_intents_are_found_and_locked_by_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (intents, found) = Intents::open::<Intent>(&path, INTENT_FORM).unwrap();
        assert!(found.is_empty());
        intents.save("a", &intent()).unwrap();
        let said = Intents::open::<Intent>(&path, INTENT_FORM).err().unwrap();
        let said = said.to_string();
        assert!(said.contains("another agent"), "{said}");
        drop(intents);
        let (intents, found) = Intents::open::<Intent>(&path, INTENT_FORM).unwrap();
        assert_eq!(found, [("a".to_owned(), intent())]);
        intents.forget("a").unwrap();
        intents.forget("a").unwrap();
        drop(intents);
        for name in [
            "order-7-1.xml",
            "a.move.json.new",
            "order-db.qcow2",
            "web.img.new",
        ] {
            fs::write(path.join(name), "").unwrap();
        }
        assert!(
            Intents::open::<Intent>(&path, INTENT_FORM)
                .unwrap()
                .1
                .is_empty()
        );
        let there = |name: &str| path.join(name).exists();
        assert!(there("order-db.qcow2") && there("web.img.new"));
        assert!(!there("order-7-1.xml") && !there("a.move.json.new"));
    }

    #[test]
    fn unreadable_intent_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.move.json");
        let mut newer = serde_json::to_value(intent()).unwrap();
        newer["form"] = 3.into();
        for (text, said) in [
            (newer.to_string(), "it has format 3"),
            ("{".to_owned(), "EOF while parsing"),
        ] {
            fs::write(&path, text).unwrap();
            let got = Intents::open::<Intent>(dir.path(), INTENT_FORM)
                .err()
                .unwrap()
                .to_string();
            assert!(got.contains(said) && got.contains("x.move.json"), "{got}");
        }
    }
}
