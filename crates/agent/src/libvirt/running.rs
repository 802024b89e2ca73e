//! Which QEMU a domain runs on: libvirt tells the version of the program that it would start now, and a domain that was started before an upgrade,
//! or with a program of its own, runs on another one. So the program that runs is asked itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use vmhost::builds::{self, Build};

use crate::process::run;

/// A program, as a file.
type Program = (u64, u64, i64);

/// What is known of programs that were asked.
#[derive(Debug, Default)]
pub(super) struct Running {
    asked: BTreeMap<Program, Result<Build, String>>,
    processes: BTreeMap<String, Vec<u32>>,
}

impl Running {
    /// Looks at which processes there are.
    pub(super) fn look(&mut self) {
        self.processes.clear();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if let Some(uuid) = uuid_of(&line) {
                self.processes.entry(uuid).or_default().push(pid);
            }
        }
    }

    /// The build that a domain runs on.
    ///
    /// # Errors
    /// Why nobody can say.
    pub(super) fn build_of(&mut self, uuid: &str) -> Result<Build, String> {
        let found = self.processes.get(uuid).map_or(&[][..], |p| p);
        let [pid] = found else {
            let many = found.len();
            return Err(format!(
                "which QEMU it runs on is not known: {many} processes here have its UUID"
            ));
        };
        let path = PathBuf::from(format!("/proc/{pid}/exe"));
        let said = |e: &dyn std::fmt::Display| format!("which QEMU it runs on is not known: {e}");
        let file = fs::metadata(&path).map_err(|e| said(&e))?;
        // Asking a program runs it, and what a guest may have taken over could be any: only those that are the system's, or our own, are asked.
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&file.uid());
        if !trusted || file.mode() & 0o022 != 0 {
            return Err(said(&"its program may be written by others"));
        }
        let program = (file.dev(), file.ino(), file.mtime());
        let asked = self.asked.entry(program).or_insert_with(|| {
            let mut command = Command::new(&path);
            command.arg("--version").stdin(std::process::Stdio::null());
            let said = run(command, "QEMU")?;
            builds::of_program(&said.out).ok_or_else(|| "its program does not say".into())
        });
        asked.clone().map_err(|why| said(&why))
    }
}

/// The UUID in a command line of QEMU's.
fn uuid_of(line: &[u8]) -> Option<String> {
    let mut words = line.split(|b| *b == 0);
    words.find(|word| *word == b"-uuid")?;
    let uuid = std::str::from_utf8(words.next()?).ok()?;
    Some(uuid.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_tells_its_domain() {
        let line = b"/usr/bin/qemu-system-x86_64\0-name\0guest=a\0-uuid\0c0de\0-m\x0032\0";
        assert_eq!(uuid_of(line).as_deref(), Some("c0de"));
        for line in [&b"sh\0-c\0true\0"[..], b"qemu\0-uuid", b""] {
            assert_eq!(uuid_of(line), None);
        }
    }

    #[test]
    fn only_a_domain_of_one_process_has_a_build() {
        let mut running = Running::default();
        running.processes.insert("two".into(), vec![1, 2]);
        running
            .processes
            .insert("us".into(), vec![std::process::id()]);
        for (uuid, why) in [("none", "0 processes"), ("two", "2 processes")] {
            assert!(running.build_of(uuid).unwrap_err().contains(why));
        }
        // This program says no version, whoever asks, or is not asked at all.
        let why = running.build_of("us").unwrap_err();
        assert!(why.contains("which QEMU it runs on is not known"), "{why}");
    }
}
