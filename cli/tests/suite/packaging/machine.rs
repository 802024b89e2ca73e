//! A disposable copy of this machine: an overlay on its files, in its own mount namespace. The copy's own dpkg installs
//! programs there, at their real paths, for real users.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::run::{err, out};

/// Programs that the copy needs.
const PROGRAMS: [&str; 6] = [
    "dpkg",
    "unshare",
    "nsenter",
    "chroot",
    "setpriv",
    "systemd-sysusers",
];

/// Script that mounts an overlay on the machine's root and keeps it mounted. Of the other file systems, only /proc and
/// /dev are visible; /run and /tmp are empty.
const LAYER: &str = "
set -e
mount -t overlay overlay -o lowerdir=/,upperdir=\"$1/upper\",workdir=\"$1/work\" \"$1/root\"
mount --rbind /proc \"$1/root/proc\"
mount --rbind /dev \"$1/root/dev\"
mount -t tmpfs tmpfs \"$1/root/run\"
mount -t tmpfs tmpfs \"$1/root/tmp\"
chmod 1777 \"$1/root/tmp\"
echo there
exec chroot \"$1/root\" cat
";

/// Copy of the machine; it is removed on drop.
pub struct Machine {
    _dir: TempDir,
    holder: Child,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Machine {
    /// Starts the copy. Returns `None` with a message if this machine does not permit an overlay.
    pub fn start() -> Option<Self> {
        if !testkit::needs::programs(&PROGRAMS) {
            return None;
        }
        let own = fs::metadata("/proc/self").unwrap();
        if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
            testkit::needs::skipped("root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["upper", "work", "root"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", LAYER, "sh"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let machine = Self { _dir: dir, holder };
        if said != "there\n" {
            testkit::needs::skipped("overlay");
            return None;
        }
        Some(machine)
    }

    /// Returns the path at which processes outside the copy see `path`.
    pub fn path(&self, path: &str) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        Path::new(&root).join(path.strip_prefix('/').unwrap())
    }

    /// Returns a command that runs in the copy. `nsenter` executes it in its own process, so the process ID is that of
    /// the command.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.holder.id().to_string();
        command
            .args(["--target", &target, "--mount", "--root", "--wd"])
            .args(words)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env_remove("TERRACE_ARRAY")
            .env_remove("TERRACE_CONTROLLER")
            .stdin(Stdio::null());
        command
    }

    pub fn try_run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert!(output.status.success(), "{words:?}: {}", err(&output));
        out(&output)
    }

    /// Returns a command that runs as the user `terrace`.
    pub fn as_terrace<'a>(words: &[&'a str]) -> Vec<&'a str> {
        let user = [
            "setpriv",
            "--reuid=terrace",
            "--regid=terrace",
            "--init-groups",
            "--inh-caps=-all",
        ];
        [&user, words].concat()
    }

    /// Runs dpkg as an unattended upgrade does: locally changed files are kept, without questions.
    pub fn dpkg(&self, words: &[&str]) -> Output {
        let options = ["--force-confdef", "--force-confold", "--force-unsafe-io"];
        self.try_run(&[&["dpkg", "--no-triggers"], &options[..], words].concat())
    }

    /// Returns owner, group and mode of a path.
    pub fn stat(&self, path: &str) -> String {
        let said = self.run(&["stat", "-c", "%U:%G %a", path]);
        said.trim_end().into()
    }
}
