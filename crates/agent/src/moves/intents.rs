//! Intents on disk: one file for each move, durable before what it says is done.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::storage::sync_directory;
use crate::virsh::OrderContext;

/// Ends the name of an intent's file.
const ENDING: &str = ".move.json";
/// Ends that of one that is being written.
const NEW: &str = ".new";
/// Begins the name of a file that an order is read from.
pub(crate) const TEXT: &str = "order-";

/// How long the lock is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// The directory of a host's intents, which one agent at a time has.
pub(crate) struct Intents {
    dir: PathBuf,
    /// Locked as long as it is open, here or in a process with an order.
    lock: Arc<File>,
}

impl Intents {
    /// Opens the directory, which is made if it is not there, with all intents of this form that are in it.
    ///
    /// # Errors
    /// Another agent has it, or what is in it cannot be read: nothing may be done about its disks then.
    pub(crate) fn open<T: DeserializeOwned>(
        dir: &Path,
        form: u32,
    ) -> Result<(Self, Vec<(String, T)>), String> {
        let said = |e: &dyn std::fmt::Display| format!("{}: {e}", dir.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|e| said(&e))?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join("lock"))
            .map_err(|e| said(&e))?;
        take(&lock)
            .map_err(|_| {
                let of = crate::controller::holder(dir);
                let of = of.map(|holder| format!(", for {holder},")).unwrap_or_default();
                said(&format!("another agent{of} manages the moves that are recorded here, or a command of an agent that has ended is still running"))
            })?;
        let mut found = vec![];
        let mut rest = vec![];
        for entry in fs::read_dir(dir).map_err(|e| said(&e))? {
            let path = entry.map_err(|e| said(&e))?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if let Some(name) = name.strip_suffix(ENDING) {
                let so = "it records the move of a disk, so no disk is moved until it can be read";
                found.push((name.to_owned(), read_kept(&path, form, so)?));
            } else if is_ours(name) {
                rest.push(path);
            }
        }
        // Of an agent that was killed while it wrote.
        for path in rest {
            fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let intents = Self {
            dir: dir.into(),
            lock: Arc::new(lock),
        };
        Ok((intents, found))
    }

    /// What orders to a hypervisor need.
    pub(crate) fn orders(&self) -> OrderContext {
        OrderContext {
            lock: self.lock.clone(),
            dir: self.dir.clone(),
        }
    }

    /// A path in the directory that never has a file.
    pub(crate) fn unsettled(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.unsettled"))
    }

    /// Writes an intent, durably.
    ///
    /// # Errors
    /// It is as before, as far as anybody knows.
    pub(crate) fn save(&self, name: &str, intent: &impl Serialize) -> Result<(), String> {
        save_durably(&self.file(name), intent)
    }

    /// Removes an intent, durably. One that is not there is no fault.
    pub(crate) fn forget(&self, name: &str) -> Result<(), String> {
        remove_durably(&self.file(name))
    }

    /// Where an intent is written.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{ENDING}"))
    }
}

/// Locks a file. A process that is just being started has all that its parent has open, for a moment.
fn take(lock: &File) -> rustix::io::Result<()> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
}

/// Whether a file is one that an agent was writing when it was killed, and nobody else's.
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

/// Reads what was written so, of the form that this program knows; `so` says what follows where it cannot.
///
/// # Errors
/// What is wrong, and what follows.
pub(crate) fn read_kept<T: DeserializeOwned>(
    path: &Path,
    form: u32,
    so: &str,
) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    let said = |e: &dyn std::fmt::Display| format!("{}: {e}; {so}", path.display());
    let text = fs::read_to_string(path).map_err(|e| said(&e))?;
    let written: Form = serde_json::from_str(&text).map_err(|e| said(&e))?;
    if written.form != form {
        let other = written.form;
        let why = format!("it has format {other}, and this program reads {form}");
        return Err(said(&why));
    }
    serde_json::from_str(&text).map_err(|e| said(&e))
}

/// Writes a value to a file, durably: it has the one before or this one, whatever happens.
///
/// # Errors
/// It is as before, as far as anybody knows.
pub(crate) fn save_durably(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| e.to_string())?;
    let mut new = path.as_os_str().to_owned();
    new.push(NEW);
    let written = (|| {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_directory(path.parent().unwrap_or(Path::new("/")))
    })();
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Removes a file, durably. One that is not there is no fault.
///
/// # Errors
/// It may still be there.
pub(crate) fn remove_durably(path: &Path) -> Result<(), String> {
    let removed = match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let removed = removed.and_then(|()| sync_directory(path.parent().unwrap_or(Path::new("/"))));
    removed.map_err(|e| format!("cannot remove {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use vmhost::moving::{INTENT_FORM, Intent, Phase};
    use vmhost::{At, Image};

    use super::*;

    fn intent() -> Intent {
        let image = |path: &str| Image {
            at: At::File(path.into()),
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
    fn what_was_written_is_found_and_belongs_to_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (intents, found) = Intents::open::<Intent>(&path, INTENT_FORM).unwrap();
        assert!(found.is_empty());
        intents.save("a", &intent()).unwrap();
        let said = Intents::open::<Intent>(&path, INTENT_FORM).err().unwrap();
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
    fn what_cannot_be_read_stops_everything() {
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
                .unwrap();
            assert!(got.contains(said) && got.contains("x.move.json"), "{got}");
        }
    }
}
