//! Process of each running domain, and the build of QEMU that it runs.
//!
//! libvirt reports the version of the program that it would start now. A domain that was started before an upgrade, or
//! with another program, runs a different build. The program of the process is therefore queried for its version.
//! libvirt also reuses its domain ids after its own restart, so the life of a domain is identified by its process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use vmhost::Domain;
use vmhost::builds::{self, Build, CopyInitiator};

use crate::error::{AgentError, Result, in_context, system_error};
use crate::life::Life;
use crate::moves;
use crate::process::run;
use crate::program;

/// Identity of a program file: device, inode and modification time.
type Program = (u64, u64, i64);

/// User that runs a program to query its version if this process is root: a guest may have replaced the program.
const NOBODY: u32 = 65_534;

/// Processes of domains, and known builds of their programs.
#[derive(Debug, Default)]
pub(super) struct RunningProcesses {
    processes: RefCell<BTreeMap<String, Vec<i32>>>,
    builds: RefCell<BTreeMap<Program, Build>>,
}

impl RunningProcesses {
    /// Reads the list of processes.
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

    /// Returns the process of a domain; an error unless there is exactly one.
    fn process(&self, uuid: &str) -> Result<i32> {
        let known = || match self.processes.borrow().get(uuid).map_or(&[][..], |p| p) {
            [pid] if uuid_of(*pid).as_deref() == Some(uuid) => Ok(*pid),
            found => Err(found.len()),
        };
        let found = known().or_else(|_| {
            self.look();
            known()
        });
        found.map_err(|n| {
            AgentError::Unknown(format!(
                "its process is unknown: {n} processes have its UUID"
            ))
        })
    }

    /// Returns the number of a domain's life, from its process; `None` if the process cannot be seen.
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

    /// Returns a domain with the number of its life instead of libvirt's id, if it runs.
    pub(super) fn with_life(&self, domain: Domain) -> Domain {
        let life = domain.id.and_then(|_| self.life(&domain.uuid));
        Domain { id: life, ..domain }
    }

    /// Returns the build of QEMU that a domain runs.
    ///
    /// # Errors
    /// The build cannot be determined; the error has the reason.
    pub(super) fn build_of(&self, uuid: &str) -> Result<Build> {
        const UNKNOWN: &str = "its version of QEMU is unknown";
        let unknown = |why: &str| AgentError::Unknown(format!("{UNKNOWN}: {why}"));
        let pid = self.process(uuid)?;
        // Use the open file for the check and the query: the process may execute another program meanwhile.
        let file = program::of(pid).map_err(system_error(UNKNOWN))?;
        let found = file.metadata().map_err(system_error(UNKNOWN))?;
        let root = rustix::process::geteuid().is_root();
        let ours = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
        if !ours || found.mode() & 0o022 != 0 {
            return Err(unknown("other users can write to its program"));
        }
        let key = (found.dev(), found.ino(), found.mtime());
        if let Some(known) = self.builds.borrow().get(&key) {
            return program::with_record(known, CopyInitiator::Libvirt);
        }
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command.arg("--version").stdin(Stdio::null()).env_clear();
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let answer = run(command, "QEMU").map_err(in_context(UNKNOWN))?;
        let build = builds::of_program(&answer.out);
        let build = Build {
            id: program::build_id(&file),
            ..build.ok_or_else(|| unknown("its program does not report it"))?
        };
        let judged = program::with_record(&build, CopyInitiator::Libvirt);
        self.builds.borrow_mut().insert(key, build);
        judged
    }
}

/// Returns the UUID in the command line of a QEMU process.
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
    fn domain_uuid_is_parsed_from_process_arguments() {
        let line = b"/usr/bin/qemu-system-x86_64\0-name\0guest=a\0-uuid\0c0de\0-m\x0032\0";
        assert_eq!(uuid_in(line).as_deref(), Some("c0de"));
        for line in [&b"sh\0-c\0true\0"[..], b"qemu\0-uuid", b""] {
            assert_eq!(uuid_in(line), None);
        }
    }

    /// Process with the command line of a QEMU process for a domain of this UUID.
    struct FakeProcess(Child);

    impl FakeProcess {
        fn domain(uuid: &str) -> Self {
            let mut shell = Command::new("sh");
            // The shell itself reads a line. A child process would briefly have the same command line.
            shell.args(["-c", "read line", "-uuid", uuid]);
            let child = shell.stdin(Stdio::piped()).spawn().unwrap();
            // A new process exists shortly before its command line is set.
            let pid = i32::try_from(child.id()).unwrap();
            while uuid_of(pid).is_none() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Self(child)
        }
    }

    impl Drop for FakeProcess {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn only_a_domain_of_one_process_has_a_life_and_a_build() {
        let running = RunningProcesses::default();
        let uuid = format!("test-{}", std::process::id());
        let domain = |id| Domain {
            uuid: uuid.clone(),
            id,
            ..Domain::of_xml("<domain><name>a</name><uuid>u</uuid></domain>").unwrap()
        };
        let life = |id| running.with_life(domain(id)).id;
        assert_eq!(life(Some(1)), None);
        let why = running.build_of(&uuid).unwrap_err().to_string();
        assert!(why.contains(": 0 processes"), "{why}");
        let first = FakeProcess::domain(&uuid);
        let born = life(Some(1)).expect("it runs");
        assert_eq!((life(Some(1)), life(None)), (Some(born), None));
        // A shell does not report a version of QEMU.
        let why = running.build_of(&uuid).unwrap_err().to_string();
        assert!(why.contains("its program does not report it"), "{why}");
        drop(first);
        let second = FakeProcess::domain(&uuid);
        let again = life(Some(1)).expect("it runs again");
        assert_ne!(again, born, "with libvirt's number of before");
        running.look();
        let _third = FakeProcess::domain(&uuid);
        running.look();
        assert_eq!(life(Some(1)), None);
        drop(second);
        assert!(life(Some(1)).is_some_and(|l| l != again));
    }
}
