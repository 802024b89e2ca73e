//! An array in a temporary directory, served by the real binary.

#![allow(dead_code)] // each test file uses its part

pub mod checking;
pub mod extents;
pub mod kvm;
pub mod machine_host;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use datapath::Reach;
use datapath::control_server::{ControlAnswer, ControlRequest};
use serde_json::Value;
use tempfile::TempDir;

/// Deadline that only ends a test that hangs, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the directories of all crates of the workspace, in order of their names.
pub fn crate_dirs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut dirs = vec![root.join("cli")];
    for folder in ["core", "live", "lab", "papers", "test"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        dirs.extend(entries.map(|entry| entry.unwrap().path()));
    }
    dirs.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    dirs
}

/// Polls until a condition holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it does not come true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a process a signal, such as `-TERM`, after the process has installed its handler. Before that the signal would kill it.
pub fn signal(pid: u32, which: &str) {
    let number = match which {
        "-HUP" => Some(1),
        "-INT" => Some(2),
        "-USR2" => Some(12),
        "-TERM" => Some(15),
        _ => None, // the server installs no handler for other signals
    };
    if let Some(number) = number {
        wait_for("the process handles the signal", || handles(pid, number));
    }
    let sent = Command::new("kill")
        .args([which, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Returns true if a process catches a signal or waits for it, and for a process that does not exist.
fn handles(pid: u32, number: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let mut masks = lines.filter(|(name, _)| matches!(*name, "SigCgt" | "SigBlk"));
    masks.any(|(_, mask)| {
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        mask >> (number - 1) & 1 == 1
    })
}

/// Array and, optionally, the process that serves it.
pub struct Site {
    pub dir: TempDir,
    server: Option<Child>,
    /// Socket that receives the server's messages, as a service manager's does.
    pub notify: Option<PathBuf>,
}

impl Site {
    /// Creates three tiers of files, and volumes of these sizes in MiB on the first tier.
    pub fn new(volumes: &[(&str, u32)]) -> Self {
        Self::with_tiers(&["2 GiB", "2 GiB", "2 GiB"], volumes)
    }

    /// Creates tiers `fast`, `middle` and `slow` of these sizes.
    pub fn with_tiers(sizes: &[&str], volumes: &[(&str, u32)]) -> Self {
        let site = Self::empty();
        for (name, size) in ["fast", "middle", "slow"].iter().zip(sizes) {
            let dir = site.path(name);
            std::fs::create_dir(&dir).unwrap();
            let dir = dir.to_str().unwrap();
            site.ok(&["tier", "add", name, "--dir", dir, "--size", size]);
        }
        for (name, mib) in volumes {
            let size = format!("{mib} MiB");
            site.ok(&["volume", "create", name, "--size", &size, "--tier", "fast"]);
        }
        site
    }

    /// Creates a site without tiers.
    pub fn empty() -> Self {
        // Uses a file system in memory if available, because these tests do not depend on a disk.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        Self {
            dir: dir.unwrap(),
            server: None,
            notify: None,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket().display())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command
            .env("TERRACE_ARRAY", self.path("array"))
            .env("NO_COLOR", "1");
        if let Some(socket) = &self.notify {
            command.env("NOTIFY_SOCKET", socket);
        }
        command.args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let [stdout, stderr] = [&out.stdout, &out.stderr].map(|o| String::from_utf8_lossy(o));
        assert!(
            out.status.success(),
            "terrace {args:?} failed: {stderr}{stdout}"
        );
        String::from_utf8(out.stdout).unwrap()
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["-o", "json"]].concat();
        serde_json::from_str(&self.ok(&args)).unwrap()
    }

    /// Serves all volumes; `more` has further arguments for `volume export`.
    pub fn serve(&mut self, more: &[&str]) {
        assert!(self.server.is_none());
        let listen = format!("unix:{}", self.socket().display());
        let args = [&["volume", "export", "--listen", &listen], more].concat();
        drop(std::fs::File::create(self.path("server.log")).unwrap());
        let log = self.to_log();
        let child = self
            .command(&args)
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.server = Some(child);
        let until = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "the server does not serve: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a process that takes over from the server; `more` has further arguments for `volume export`. Its messages
    /// go to the log.
    pub fn begin_to_take_over(&self, more: &[&str]) -> Child {
        let listen = format!("unix:{}", self.socket().display());
        let args = [
            &["volume", "export", "--take-over", "--listen", &listen],
            more,
        ]
        .concat();
        let log = self.to_log();
        let mut command = self.command(&args);
        command
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log));
        command.spawn().unwrap()
    }

    /// Takes over from the server, which ends by itself. A server that exceeds its own time limits refuses; then the
    /// take-over is repeated.
    pub fn take_over(&mut self, more: &[&str]) {
        let mut said = self.log().len();
        let mut new = self.begin_to_take_over(more);
        let until = Instant::now() + PATIENCE;
        let ended = loop {
            let old = self.server.as_mut().expect("served");
            if let Some(ended) = old.try_wait().unwrap() {
                break ended;
            }
            if new.try_wait().unwrap().is_some() {
                let why = self.log()[said..].to_owned();
                assert!(is_too_slow(&why), "it is not taken over: {}", self.log());
                said = self.log().len();
                new = self.begin_to_take_over(more);
            }
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        };
        self.server = Some(new);
        assert!(ended.success(), "{}", self.log());
    }

    /// Returns the number of a volume's requests in flight.
    pub fn outstanding(&self, volume: &str) -> u32 {
        let array = Reach::find(&self.path("array")).unwrap();
        let samples = match array.ask(ControlRequest::Samples) {
            Ok(ControlAnswer::Samples(samples)) => samples,
            other => panic!("{other:?}"),
        };
        let of = samples.volumes.iter().find(|v| v.name == volume).unwrap();
        of.stages.measure.counts.as_ref().unwrap().outstanding
    }

    /// Waits until all copies of the map are current. The server checks them after its start.
    pub fn copies_are_current(&self) {
        let until = Instant::now() + PATIENCE;
        let current = |site: &Self| {
            let copies = site.json(&["array", "copies"]);
            let copies = copies["copies"].as_array().unwrap();
            copies.iter().all(|c| c["state"] == "current")
        };
        while !current(self) {
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the server process.
    pub fn server_mut(&mut self) -> &mut Option<Child> {
        &mut self.server
    }

    fn to_log(&self) -> std::fs::File {
        let mut options = std::fs::File::options();
        options.append(true).open(self.path("server.log")).unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("served").id()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.server.take().expect("served");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the server in order.
    #[allow(
        dead_code,
        reason = "one of the two programs that share this file only kills"
    )]
    pub fn stop(&mut self) {
        signal(self.server_pid(), "-TERM");
        let mut child = self.server.take().expect("served");
        assert!(child.wait().unwrap().success());
    }

    /// Starts a move and waits for its end.
    pub fn move_to(&self, volume: &str, tier: &str) {
        self.ok(&[
            "volume",
            "move",
            volume,
            "--to",
            tier,
            "--bandwidth",
            "2 GiB/s",
            "--wait",
        ]);
    }

    /// Runs a client program that must succeed; returns its standard output.
    pub fn client(&self, program: &str, args: &[&str]) -> String {
        let out = Command::new(program)
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {args:?}: {text}{stderr}");
        text
    }

    /// Returns the memory of the server in MiB.
    pub fn memory_mib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.server_pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            / 1024
    }
}

/// Returns true if a hand-over was cancelled because a step exceeded the time that guests may wait.
fn is_too_slow(why: &str) -> bool {
    let slow = [
        "after ",
        "in time",
        "was not accepted",
        "did not pause",
        "timed out",
    ];
    // The server may not have noticed yet that the previous successor has failed.
    why.contains("already taking over the array")
        || why.contains("does not respond, or is being zeroed")
        || why.contains("continues to serve it") && slow.iter().any(|s| why.contains(s))
}

/// Process that is killed on drop.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
