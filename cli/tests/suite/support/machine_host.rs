//! A manager of a host of virtual machines in its own directory, with guests that verify their own disks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::guest::Log;

use super::PATIENCE;

/// Returns the QEMU for the machines: `TERRACE_QEMU`, or the host's.
pub fn qemu() -> PathBuf {
    let named = std::env::var_os("TERRACE_QEMU");
    named.map_or("qemu-system-x86_64".into(), PathBuf::from)
}

/// Directory of a host, its user and its server.
pub struct MachineHost {
    dir: tempfile::TempDir,
    /// User that runs every process, if it differs from the user of the tests.
    user: Option<(u32, u32)>,
    /// Copy of Terrace that this user may run.
    program: PathBuf,
    pub server: Option<Child>,
}

impl MachineHost {
    pub fn new(user: Option<(u32, u32)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("terrace");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_terrace"), &program).unwrap();
        let host = Self {
            dir,
            user,
            program,
            server: None,
        };
        host.give();
        host
    }

    /// Returns true if the processes run as a different user than the tests.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    pub fn make_dir(&self, name: &str) -> String {
        fs::create_dir(self.path(name)).unwrap();
        self.give();
        self.text(name)
    }

    /// Makes the user of the host the owner of all files.
    pub fn give(&self) {
        if let Some((uid, _)) = self.user {
            let mut chown = Command::new("chown");
            chown.args(["-R", &uid.to_string()]).arg(self.dir.path());
            // Ignores errors, because files may be created and deleted meanwhile.
            let _ = chown.stderr(Stdio::null()).status().unwrap();
        }
    }

    /// Returns the names of the files in a directory, sorted.
    pub fn files(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Returns true if no move is recorded in a directory of intents, which also has a lock and the lease of a controller.
    ///
    /// A record that is replaced while the directory is read may be missed, so the directory is read twice.
    pub fn rests(&self, dir: &str) -> bool {
        let own = ["lock", "controller.json"];
        let is_empty = || self.files(dir).iter().all(|f| own.contains(&f.as_str()));
        is_empty() && {
            std::thread::sleep(Duration::from_millis(20));
            is_empty()
        }
    }

    /// Returns the log of the agent, for messages of failed checks.
    pub fn serve_log(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
            .env("HOME", self.dir.path())
            .env("NO_COLOR", "1")
            .current_dir(self.dir.path());
        for (variable, name) in [
            ("XDG_RUNTIME_DIR", "run"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "xdg-state"),
            ("TMPDIR", ""),
        ] {
            command.env(variable, self.path(name));
        }
        let socket = self.path("state/controller.sock");
        command.env("TERRACE_CONTROLLER", format!("unix:{}", socket.display()));
        command
    }

    /// Writes the configuration. `host` is the table of the hypervisor; each tier has a name, a place and optionally a
    /// format. Pinned disks move automatically within seconds.
    pub fn configure(
        &self,
        host: &str,
        copy_bandwidth: &str,
        tiers: &[(&str, &str, Option<&str>)],
    ) {
        let mut text = format!(
            "window = \"200ms\"
             [controller]
             state = \"state\"
             {host}
             host = \"kvm1\"
             keep_source = \"1s\"
             [policy]
             monitor_epoch = \"1s\"
             migration_epoch = \"2s\"
             headroom_space = 1.0
             copy_bandwidth = \"{copy_bandwidth}\"
             [modes]
             rules = \"auto\"
             drain = \"recommend\"
             space = \"recommend\"
             latency = \"recommend\"\n"
        );
        for (name, place, format) in tiers {
            text += &format!(
                "[[tiers]]\nname = \"{name}\"\npreset = \"sata-ssd\"\npools = [\"{place}\"]\n"
            );
            if let Some(format) = format {
                text += &format!("format = \"{format}\"\n");
            }
            if place.starts_with("nbd") || place.starts_with("/dev/") {
                text += "overwrite = true\n";
            }
        }
        fs::write(self.path("machines.toml"), text).unwrap();
        self.give();
    }

    /// Starts a controller with an agent, as configured.
    pub fn serve(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("serve.log"))
            .unwrap();
        let child = self
            .command(&self.program)
            .args(["serve", "--config", "machines.toml"])
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn();
        self.server = Some(child.unwrap());
    }

    pub fn terrace(&self, words: &[&str]) -> Output {
        self.command(&self.program).args(words).output().unwrap()
    }

    pub fn pin(&self, volume: &str, tier: &str) {
        self.wait_until("the pin is taken", || {
            let output = self.terrace(&["volume", "pin", volume, tier]);
            output.status.success()
        });
    }

    pub fn status(&self) -> Value {
        let output = self.terrace(&["status", "-o", "json"]);
        serde_json::from_str(&said(output)).unwrap()
    }

    /// Reads the log of a guest.
    pub fn log(&self, name: &str) -> Result<Log, String> {
        let bytes = fs::read(self.path(&format!("{name}.log"))).unwrap_or_default();
        Log::read(&bytes)
    }

    pub fn wait_for_writes(&self, name: &str, more: usize) {
        let before = self.log(name).unwrap().writes();
        self.wait_until("the guest writes", || {
            self.log(name).unwrap().writes() >= before + more
        });
    }

    /// Waits until a volume has counted latencies.
    pub fn wait_for_a_p99(&self) {
        self.wait_until("a p99 is known", || {
            let output = self.terrace(&["top", "-n", "1", "-o", "json"]);
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            p99_of(&shown).is_some_and(|us| us > 10.0)
        });
    }

    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(
                Instant::now() < until,
                "waited too long until {what}: {}",
                self.serve_log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the recorded moves of a directory.
    pub fn intents(&self, dir: &str) -> String {
        let entries = fs::read_dir(self.path(dir)).into_iter().flatten();
        let paths = entries.filter_map(|e| Some(e.ok()?.path()));
        let texts = paths.filter(|p| p.extension().is_some_and(|e| e == "json"));
        texts.filter_map(|p| fs::read_to_string(p).ok()).collect()
    }

    /// Returns the disk content that a guest of the image sees.
    pub fn bytes_of(&self, image: &str, format: &str) -> Vec<u8> {
        let raw = self.path("read.raw");
        let mut convert = self.command(Path::new("qemu-img"));
        convert.args(["convert", "-U", "-f", format, "-O", "raw", image]);
        assert!(convert.arg(&raw).status().unwrap().success());
        fs::read(raw).unwrap()
    }
}

/// Sends a signal to a process and waits for its end.
pub fn end(child: &mut Option<Child>, signal: &str) {
    if let Some(mut child) = child.take() {
        super::signal(child.id(), signal);
        let _ = child.wait();
    }
}

impl Drop for MachineHost {
    fn drop(&mut self) {
        end(&mut self.server, "-9");
    }
}

/// Returns the format of an image, from the file name that a move gives it.
pub fn format_of(image: &str) -> &str {
    image.rsplit_once('.').unwrap().1
}

pub fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Finds a 99th percentile at any depth of the output.
fn p99_of(shown: &Value) -> Option<f64> {
    match shown {
        Value::Object(fields) => {
            let own = fields.get("p99_us").and_then(Value::as_array);
            let own = own.and_then(|windows| windows.iter().find_map(Value::as_f64));
            own.or_else(|| fields.values().find_map(p99_of))
        }
        Value::Array(list) => list.iter().find_map(p99_of),
        _ => None,
    }
}
