//! An array in its own directory, with the real binary and servers that end with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use datapath::Client;
use serde_json::Value;

use crate::support::PATIENCE;
pub use crate::support::signal;

pub struct Bench {
    dir: tempfile::TempDir,
}

/// Running server and the URIs of its exports.
pub struct RunningServer {
    pub child: Child,
    pub lines: Vec<String>,
    rest: Option<BufReader<std::process::ChildStdout>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RunningServer {
    pub fn client(&self) -> Client {
        self.client_of(0)
    }

    /// Returns the URI in a line with a name and a URI, or in a JSON line.
    pub fn uri(&self, line: usize) -> &str {
        let line = self.lines[line].as_str();
        let uri = match line.split_once(r#""uri":""#) {
            Some((_, rest)) => rest.strip_suffix("\"}"),
            None => line.split_once(' ').map(|(_, uri)| uri),
        };
        uri.expect("name and URI")
    }

    pub fn client_of(&self, line: usize) -> Client {
        Client::connect(&self.uri(line).parse().unwrap()).unwrap()
    }

    pub fn kill_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Makes the server reload its configuration.
    pub fn hang_up(&self) {
        signal(self.child.id(), "-HUP");
    }

    /// Makes the server start its successor; returns the successor's process ID.
    pub fn is_succeeded(&self) -> u32 {
        signal(self.child.id(), "-USR2");
        let own = self.child.id().to_string();
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "cannot start a successor");
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let mut pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
            let parent = |pid: u32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                // The fields after the process name, which may contain any character: state and parent.
                let (_, rest) = stat.rsplit_once(") ")?;
                rest.split(' ').nth(1).map(str::to_owned)
            };
            if let Some(pid) = pids.find(|pid| parent(*pid).as_ref() == Some(&own)) {
                return pid;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the server has ended by itself with success.
    pub fn ends(mut self) {
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }

    /// Stops the server in order; returns its final output.
    pub fn stop(mut self) -> String {
        signal(self.child.id(), "-TERM");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.rest.take().unwrap(), &mut rest).unwrap();
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
        rest
    }
}

impl Bench {
    /// Creates a directory with room for two tiers, without an array.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("f")).unwrap();
        std::fs::create_dir(dir.path().join("s")).unwrap();
        Self { dir }
    }

    /// Creates an array with two tiers.
    pub fn new() -> Self {
        let bench = Self::empty();
        bench.ok(&["tier", "add", "fast", "--dir", "f", "--size", "128 MiB"]);
        bench.ok(&["tier", "add", "slow", "--dir", "s", "--size", "1 GiB"]);
        bench
    }

    /// Creates an array with a volume `data` on the upper tier.
    pub fn with_volume(size: &str) -> Self {
        let bench = Self::new();
        bench.ok(&["volume", "create", "data", "--size", size, "--tier", "fast"]);
        bench
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("terrace-array/control.sock")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command
            .current_dir(self.path())
            .args(arguments)
            .env_remove("TERRACE_ARRAY");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("terrace runs")
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{arguments:?}: {said}");
        String::from_utf8(out.stdout).unwrap()
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// Runs a command that must fail; returns its message without "error: " and without the directory.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {said}");
        let place = self.path().canonicalize().unwrap();
        let said = said.replace(&place.display().to_string(), "HERE");
        said.trim_end().strip_prefix("error: ").unwrap().to_owned()
    }

    /// Starts a command that announces `lines` exports and keeps running.
    pub fn start(&self, arguments: &[&str], lines: usize) -> RunningServer {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("terrace runs");
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut announced = vec![];
        for _ in 0..lines {
            let mut line = String::new();
            assert!(
                out.read_line(&mut line).unwrap() > 0,
                "{arguments:?} has ended"
            );
            announced.push(line.trim_end().to_owned());
        }
        RunningServer {
            child,
            lines: announced,
            rest: Some(out),
        }
    }

    pub fn export(&self) -> RunningServer {
        self.start(&["volume", "export", "--workers", "2"], 1)
    }

    pub fn show(&self) -> Value {
        self.json(&["volume", "show", "data"])
    }

    /// Waits until the volume satisfies a condition.
    pub fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = self.show();
            if holds(&now) {
                return now;
            }
            assert!(Instant::now() < until, "not {what}: {now:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns bytes that identify their position.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| seed ^ (i / 4096) as u8 ^ (i % 251) as u8)
        .collect()
}

pub const MIB: u64 = 1 << 20;

pub fn fill(client: &mut Client, mib: u64) {
    for i in 0..mib {
        let data = pattern(i as u8, MIB as usize);
        client.write(i * MIB, &data).unwrap();
    }
    client.flush().unwrap();
}

pub fn verify(client: &mut Client, mib: u64) {
    for i in 0..mib {
        let data = client.read(i * MIB, MIB as u32).unwrap();
        assert!(
            data == pattern(i as u8, MIB as usize),
            "MiB {i} is not what was written"
        );
    }
}

/// Polls until `look` returns a value. Panics after `patience`.
pub fn wait<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        let late = Instant::now() >= until;
        assert!(!late, "{what} did not happen in {patience:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
