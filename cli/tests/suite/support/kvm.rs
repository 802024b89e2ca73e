//! A host of virtual machines under libvirt in session mode, run by an ordinary user.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use testkit::guest::Guest;

use super::machine_host::{MachineHost, end, qemu, said};

/// Programs that a host needs.
pub const PROGRAMS: [&str; 4] = ["virsh", "libvirtd", "qemu-system-x86_64", "qemu-img"];
pub const URI: &str = "qemu:///session";

/// Host of virtual machines.
pub struct Kvm {
    host: MachineHost,
    domains: Vec<String>,
}

/// Disk of a domain: its file below the host's directory, and its format.
pub struct DiskOf<'a> {
    pub file: &'a str,
    pub format: &'a str,
    /// Additional driver attributes, such as `discard='unmap'`.
    pub driver: &'a str,
}

impl Deref for Kvm {
    type Target = MachineHost;

    fn deref(&self) -> &MachineHost {
        &self.host
    }
}

impl DerefMut for Kvm {
    fn deref_mut(&mut self) -> &mut MachineHost {
        &mut self.host
    }
}

impl Kvm {
    pub fn new() -> Self {
        // A session of root would use the system's libvirt.
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let host = MachineHost::new(root.then(nobody));
        host.make_dir("run");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(host.path("run"), private).unwrap();
        Self {
            host,
            domains: vec![],
        }
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

    /// Defines a domain that boots the test guest from its first disk. The guest's reports are in `NAME.log`.
    pub fn define(&mut self, name: &str, guest: &Guest, disks: &[DiskOf<'_>]) {
        let emulator = match qemu() {
            named if named.is_absolute() => format!("<emulator>{}</emulator>", named.display()),
            _ => String::new(),
        };
        let mut xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
             <iothreads>1</iothreads><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>{emulator}
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
            // Without write-through, qcow2 metadata in QEMU's memory would be lost with the process.
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

    /// Returns the image of a disk, or `None` if libvirt does not report it.
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

    /// Returns the process ID in a file of libvirt's directory.
    pub fn pid(&self, file: &str) -> Option<i32> {
        let text = fs::read_to_string(self.path("run/libvirt").join(file)).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for Kvm {
    fn drop(&mut self) {
        end(&mut self.server, "-9");
        // The session's libvirtd ends by itself when it is idle.
        for name in &self.domains {
            self.try_virsh(&["destroy", name]);
            self.try_virsh(&["undefine", name]);
        }
    }
}

/// Returns user and group ID of the user `nobody`.
fn nobody() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|l| l.starts_with("nobody:"));
    let mut fields = line.expect("there is a user nobody").split(':').skip(2);
    let mut number = || fields.next().unwrap().parse().unwrap();
    (number(), number())
}
