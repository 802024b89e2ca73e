//! Which process a domain runs as, and which QEMU that is.
//!
//! libvirt tells the version of the program that it would start now, and a domain that was started before an upgrade, or with a program of its own, runs on another one:
//! so the program that runs is asked itself. And libvirt's numbers of starts come again when it is started again itself: so a domain's life is that of its process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use vmhost::Domain;
use vmhost::builds::{self, Build, By};

use crate::life::Life;
use crate::moves;
use crate::process::run;
use crate::program;

/// A program, as a file.
type Program = (u64, u64, i64);

/// Who asks a program for its version where we are root: it may be one that a guest has put in its place.
const NOBODY: u32 = 65_534;

/// Processes of domains, and what is known of their programs.
#[derive(Debug, Default)]
pub(super) struct Running {
    processes: RefCell<BTreeMap<String, Vec<i32>>>,
    builds: RefCell<BTreeMap<Program, Build>>,
}

impl Running {
    /// Looks at which processes there are.
    pub(super) fn look(&self) {
        let mut found: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids {
            if let Some(uuid) = uuid_of(pid) {
                found.entry(uuid).or_default().push(pid);
            }
        }
        self.processes.replace(found);
    }

    /// The process of a domain, which only one has to be.
    fn process(&self, uuid: &str) -> Result<i32, String> {
        let known = || match self.processes.borrow().get(uuid).map_or(&[][..], |p| p) {
            [pid] if uuid_of(*pid).as_deref() == Some(uuid) => Ok(*pid),
            found => Err(found.len()),
        };
        let found = known().or_else(|_| {
            self.look();
            known()
        });
        found.map_err(|n| format!("its process is unknown: {n} processes have its UUID"))
    }

    /// The number of a domain's life: that of its process; none of one whose process cannot be seen.
    pub(super) fn life(&self, uuid: &str) -> Option<u32> {
        static BOOT: OnceLock<u32> = OnceLock::new();
        let boot = *BOOT.get_or_init(|| {
            let boot = moves::boot().unwrap_or_default();
            let bytes = boot.bytes();
            bytes.fold(0, |n, b| n.wrapping_mul(31).wrapping_add(b.into()))
        });
        let pid = self.process(uuid).ok()?;
        Some((Life::of(pid)?.number() ^ boot).max(1))
    }

    /// A domain with the number of its life in place of libvirt's, if it runs.
    pub(super) fn with_life(&self, domain: Domain) -> Domain {
        let life = domain.id.and_then(|_| self.life(&domain.uuid));
        Domain { id: life, ..domain }
    }

    /// The build that a domain runs on.
    ///
    /// # Errors
    /// Why nobody can say.
    pub(super) fn build_of(&self, uuid: &str) -> Result<Build, String> {
        let said = |e: &dyn std::fmt::Display| format!("its version of QEMU is unknown: {e}");
        let pid = self.process(uuid)?;
        // What is looked at is what is run: the process may become another program meanwhile.
        let file = program::of(pid).map_err(|e| said(&e))?;
        let found = file.metadata().map_err(|e| said(&e))?;
        let root = rustix::process::geteuid().is_root();
        let ours = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
        if !ours || found.mode() & 0o022 != 0 {
            return Err(said(&"other users can write to its program"));
        }
        let key = (found.dev(), found.ino(), found.mtime());
        if let Some(known) = self.builds.borrow().get(&key) {
            return program::with_record(known, By::Libvirt);
        }
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command.arg("--version").stdin(Stdio::null()).env_clear();
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let answer = run(command, "QEMU").map_err(|e| said(&e))?;
        let build = builds::of_program(&answer.out);
        let build = Build {
            id: program::build_id(&file),
            ..build.ok_or_else(|| said(&"its program does not report it"))?
        };
        let judged = program::with_record(&build, By::Libvirt);
        self.builds.borrow_mut().insert(key, build);
        judged
    }
}

/// The UUID in the command line of a process of QEMU's.
fn uuid_of(pid: i32) -> Option<String> {
    uuid_in(&fs::read(format!("/proc/{pid}/cmdline")).ok()?)
}

fn uuid_in(line: &[u8]) -> Option<String> {
    let mut words = line.split(|b| *b == 0);
    words.find(|word| *word == b"-uuid")?;
    let uuid = std::str::from_utf8(words.next()?).ok()?;
    Some(uuid.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Child;

    use super::*;

    #[test]
    fn a_process_tells_its_domain() {
        let line = b"/usr/bin/qemu-system-x86_64\0-name\0guest=a\0-uuid\0c0de\0-m\x0032\0";
        assert_eq!(uuid_in(line).as_deref(), Some("c0de"));
        for line in [&b"sh\0-c\0true\0"[..], b"qemu\0-uuid", b""] {
            assert_eq!(uuid_in(line), None);
        }
    }

    /// Something that runs as QEMU would, for a domain of this UUID.
    struct Like(Child);

    impl Like {
        fn domain(uuid: &str) -> Self {
            let mut shell = Command::new("sh");
            // The shell waits for a line itself: a process that it made would have the same words for a moment.
            shell.args(["-c", "read line", "-uuid", uuid]);
            let child = shell.stdin(Stdio::piped()).spawn().unwrap();
            // A process is there a little before its words are.
            let pid = i32::try_from(child.id()).unwrap();
            while uuid_of(pid).is_none() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Self(child)
        }
    }

    impl Drop for Like {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn only_a_domain_of_one_process_has_a_life_and_a_build() {
        let running = Running::default();
        let uuid = format!("test-{}", std::process::id());
        let domain = |id| Domain {
            uuid: uuid.clone(),
            id,
            ..Domain::of_xml("<domain><name>a</name><uuid>u</uuid></domain>").unwrap()
        };
        let life = |id| running.with_life(domain(id)).id;
        assert_eq!(life(Some(1)), None);
        let why = running.build_of(&uuid).unwrap_err();
        assert!(why.contains(": 0 processes"), "{why}");
        let first = Like::domain(&uuid);
        let born = life(Some(1)).expect("it runs");
        assert_eq!((life(Some(1)), life(None)), (Some(born), None));
        // A shell says no version of QEMU's.
        let why = running.build_of(&uuid).unwrap_err();
        assert!(why.contains("its program does not report it"), "{why}");
        drop(first);
        let second = Like::domain(&uuid);
        let again = life(Some(1)).expect("it runs again");
        assert_ne!(again, born, "with libvirt's number of before");
        running.look();
        let _third = Like::domain(&uuid);
        running.look();
        assert_eq!(life(Some(1)), None);
        drop(second);
        assert!(life(Some(1)).is_some_and(|l| l != again));
    }
}
