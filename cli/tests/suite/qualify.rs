//! Qualification of the host's QEMU: leftovers after every kind of end, and the effect of its record.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};

use serde_json::Value;

use crate::support::kvm::{Kvm, PROGRAMS, URI};
use crate::support::machine_host::{self, MachineHost};
use crate::support::signal;

/// Running qualification.
struct RunningQualification {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl RunningQualification {
    fn start(host: &MachineHost, way: &[&str]) -> Self {
        let mut command = host.command(&host.path("terrace"));
        command.args(["host", "qualify", "-o", "json"]).args(way);
        command.arg(host.path("images"));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Waits for a line with this text; returns all lines up to that line.
    fn wait_for(&mut self, text: &str) -> String {
        let mut said = String::new();
        while !said.contains(text) {
            let n = self.stderr.read_line(&mut said).unwrap();
            assert!(n > 0, "it ended before {text:?}: {said}");
        }
        said
    }

    fn end(mut self, with: &str) -> Value {
        signal(self.child.id(), with);
        let mut said = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        self.stderr.read_to_string(&mut String::new()).unwrap();
        self.child.wait().unwrap();
        serde_json::from_str(&said).unwrap_or_default()
    }
}

impl Drop for RunningQualification {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of processes whose command line contains a text.
fn processes(text: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    let has = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(text);
    lines.filter(has).count()
}

/// Stops one qualification by a signal, kills a second one, and lets a third one remove the leftovers.
fn leaves_no_files(host: &MachineHost, way: &[&str], by: &str) {
    host.make_dir("images");
    let mut first = RunningQualification::start(host, way);
    let said = first.wait_for("round 1, ");
    assert!(
        said.contains(" writes verified, 0 lost") || said.contains("not counted"),
        "{said}"
    );
    let found = first.end("-INT");
    assert_eq!(host.files("images"), [""; 0]);
    assert_eq!(
        (&found["result"], &found["by"]),
        (&"undecided".into(), &by.into())
    );
    let file = found["file"].as_str().unwrap();
    let id = found["build_id"].as_str().unwrap();
    assert!(file.contains("xdg-state") && file.contains(id), "{file}");

    let mut killed = RunningQualification::start(host, way);
    killed.wait_for("round 1, ");
    let left = host.files("images");
    assert_eq!(left.len(), 1, "{left:?}");
    host.wait_until("its QEMU runs", || processes(&left[0]) > 0);
    killed.end("-9");
    assert_eq!(host.files("images"), left);
    let mut next = RunningQualification::start(host, way);
    next.wait_for(&format!(
        "{}, left behind by a killed qualification",
        left[0]
    ));
    assert_eq!(processes(&left[0]), 0, "its QEMU runs");
    next.end("-TERM");
    assert_eq!(host.files("images"), [""; 0]);
}

#[test]
fn qualification_of_plain_qemu_leaves_no_files() {
    if !testkit::needs::programs(&["qemu-system-x86_64", "qemu-img"]) {
        return;
    }
    let host = MachineHost::new(None);
    let qemu = machine_host::qemu();
    leaves_no_files(&host, &["--qemu", qemu.to_str().unwrap()], "qemu");
}

#[test]
fn qualification_under_libvirt_leaves_no_files() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let host = Kvm::new();
    leaves_no_files(&host, &["--libvirt", URI], "libvirt");
    assert_eq!(host.virsh(&["list", "--all", "--name"]).trim(), "");
}
