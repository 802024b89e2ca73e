//! A host of virtual machines: libvirt in session mode, of an ordinary user, in a directory of its own, with guests that check their own disks.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::guest::{Guest, Log};

use super::PATIENCE;

/// Programs that a host needs.
pub const PROGRAMS: [&str; 4] = ["virsh", "libvirtd", "qemu-system-x86_64", "qemu-img"];
const URI: &str = "qemu:///session";

/// A host of virtual machines.
pub struct Kvm {
    dir: tempfile::TempDir,
    /// Who runs everything: root's session would be the system's libvirt.
    user: Option<(u32, u32)>,
    domains: Vec<String>,
    pub server: Option<Child>,
}

/// A disk of a domain: its file below the host's directory, and its format.
pub struct DiskOf<'a> {
    pub file: &'a str,
    pub format: &'a str,
    /// More of its driver, such as `discard='unmap'`.
    pub driver: &'a str,
}

impl Kvm {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let host = Self {
            dir,
            user: root.then(nobody),
            domains: vec![],
            server: None,
        };
        host.make_dir("run");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(host.path("run"), private).unwrap();
        fs::set_permissions(host.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_terrace"), host.path("terrace")).unwrap();
        host.give();
        host
    }

    /// Whether this test may do what only root may.
    pub fn is_root(&self) -> bool {
        self.user.is_some()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn make_dir(&self, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        self.give();
        path.to_str().unwrap().into()
    }

    /// All of it belongs to who runs libvirt.
    pub fn give(&self) {
        if self.user.is_some() {
            let mut chown = Command::new("chown");
            chown.args(["-R", "nobody"]).arg(self.dir.path());
            // Files come and go meanwhile.
            let _ = chown.stderr(Stdio::null()).status().unwrap();
        }
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
            ("TMPDIR", ""),
        ] {
            command.env(variable, self.path(name));
        }
        let socket = self.path("state/controller.sock");
        command.env("TERRACE_CONTROLLER", format!("unix:{}", socket.display()));
        command
    }

    pub fn try_virsh(&self, words: &[&str]) -> Output {
        let mut command = self.command(Path::new("virsh"));
        command
            .args(["-q", "-c", URI])
            .args(words)
            .output()
            .unwrap()
    }

    pub fn virsh(&self, words: &[&str]) -> String {
        said(self.try_virsh(words))
    }

    pub fn terrace(&self, words: &[&str]) -> Output {
        let mut command = self.command(&self.path("terrace"));
        command.args(words).output().unwrap()
    }

    /// Defines a domain with a guest of the first disk's boot sector; what it reports is in `NAME.log`.
    pub fn define(&mut self, name: &str, guest: &Guest, disks: &[DiskOf<'_>]) {
        let mut xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
             <iothreads>1</iothreads><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
             <serial type='file'><source path='{}' append='on'/></serial>",
            self.path(&format!("{name}.log")).display()
        );
        for (n, disk) in disks.iter().enumerate() {
            let path = self.path(disk.file);
            let raw = self.path("new.raw");
            let mut bytes = guest.boot_sector().to_vec();
            bytes.resize(guest.disk_bytes() as usize, 0);
            fs::write(&raw, bytes).unwrap();
            let mut convert = Command::new("qemu-img");
            convert.args(["convert", "-f", "raw", "-O", disk.format]);
            assert!(convert.arg(&raw).arg(&path).status().unwrap().success());
            let letter = char::from(b'a' + n as u8);
            // What qcow2 has in QEMU's memory would be lost with QEMU otherwise.
            xml += &format!(
                "<disk type='file' device='disk'><driver name='qemu' type='{}' cache='writethrough' {}/>
                 <source file='{}'/><target dev='vd{letter}' bus='virtio'/></disk>",
                disk.format,
                disk.driver,
                path.display()
            );
        }
        xml += "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk></devices></domain>";
        let file = format!("{name}.xml");
        fs::write(self.path(&file), xml).unwrap();
        self.give();
        self.virsh(&["define", &file]);
        self.domains.push(name.into());
    }

    /// What a guest reports.
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

    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(
                Instant::now() < until,
                "waited too long until {what}: {}",
                fs::read_to_string(self.path("serve.log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The image of a disk; none if it does not say.
    pub fn image_of(&self, name: &str, target: &str, inactive: bool) -> Option<String> {
        let mut words = vec!["domblklist", name];
        if inactive {
            words.push("--inactive");
        }
        let output = self.try_virsh(&words);
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|l| l.trim().starts_with(target))?;
        Some(line.split_whitespace().nth(1)?.into())
    }

    /// The bytes that a guest of an image would see.
    pub fn bytes_of(&self, image: &str, format: &str) -> Vec<u8> {
        let raw = self.path("read.raw");
        let mut convert = self.command(Path::new("qemu-img"));
        convert.args(["convert", "-U", "-f", format, "-O", "raw", image]);
        assert!(convert.arg(&raw).status().unwrap().success());
        fs::read(raw).unwrap()
    }

    /// Serves a controller with an agent, of the configuration in `kvm.toml`.
    pub fn serve(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("serve.log"))
            .unwrap();
        let mut command = self.command(&self.path("terrace"));
        let child = command
            .args(["serve", "--config", "kvm.toml"])
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.server = Some(child);
    }

    pub fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// The process of a file with its number in libvirt's directory.
    pub fn pid(&self, file: &str) -> Option<i32> {
        let text = fs::read_to_string(self.path("run/libvirt").join(file)).ok()?;
        text.trim().parse().ok()
    }

    pub fn status(&self) -> Value {
        let output = self.terrace(&["status", "-o", "json"]);
        serde_json::from_str(&said(output)).unwrap()
    }
}

impl Drop for Kvm {
    fn drop(&mut self) {
        self.kill_server();
        // Its libvirtd ends by itself when nobody has asked it for a while.
        for name in &self.domains {
            self.try_virsh(&["destroy", name]);
            self.try_virsh(&["undefine", name]);
        }
    }
}

/// The user who owns nothing.
fn nobody() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|l| l.starts_with("nobody:"));
    let mut fields = line.expect("there is a user nobody").split(':').skip(2);
    let mut number = || fields.next().unwrap().parse().unwrap();
    (number(), number())
}

pub fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
