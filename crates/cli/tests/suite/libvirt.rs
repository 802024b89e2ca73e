//! A trial on a host of virtual machines: real libvirt in session mode, a real guest under QEMU, nothing emulated but its processor.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Sectors of a guest's disk that is written to: 64 MiB.
const BLOCKS: u32 = 0x3fff;
const TERRACE: &str = env!("CARGO_BIN_EXE_terrace");

/// A boot sector that does 4 KiB of reading or, once in four, of writing somewhere on its disk, so many times at each tick of the clock, 18.2
/// times a second: a guest without a system.
fn boot_sector(requests_per_tick: u16) -> Vec<u8> {
    const AT: u16 = 0x7c00;
    /// The random number, and the packet that says what to read.
    const SEED: u16 = AT + 0x1e0;
    const PACKET: u16 = AT + 0x1e8;
    let [seed, top, packet, block] = [SEED, SEED + 3, PACKET, PACKET + 8].map(u16::to_le_bytes);
    let mut code = vec![
        0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c,
        0xfb, // segments and stack
    ];
    let tick = code.len();
    code.push(0xf4); // hlt: until the next interrupt
    code.push(0xb9); // mov cx, requests
    code.extend(requests_per_tick.to_le_bytes());
    let again = code.len();
    code.push(0x51); // push cx
    code.extend([0x66, 0xa1, seed[0], seed[1]]); // mov eax, [seed]
    code.extend([0x66, 0x69, 0xc0, 0x6d, 0x4e, 0xc6, 0x41]); // imul eax, eax, 1103515245
    code.extend([0x66, 0x05, 0x39, 0x30, 0x00, 0x00]); // add eax, 12345
    code.extend([0x66, 0xa3, seed[0], seed[1]]); // mov [seed], eax
    code.extend([0x66, 0xc1, 0xe8, 0x0b]); // shr eax, 11
    code.extend([0x66, 0x25]); // and eax, blocks
    code.extend(BLOCKS.to_le_bytes());
    code.extend([0x66, 0xc1, 0xe0, 0x03]); // shl eax, 3: eight sectors each
    code.extend([0x66, 0x83, 0xc0, 0x08]); // add eax, 8: not this one
    code.extend([0x66, 0xa3, block[0], block[1]]); // mov [packet.block], eax
    code.extend([0xb4, 0x42]); // mov ah, 42h: read
    code.extend([0xf6, 0x06, top[0], top[1], 0x03, 0x75, 0x03]); // test [seed + 3], 3; jnz
    code.extend([0xb8, 0x00, 0x43]); // mov ax, 4300h: write
    code.extend([0xbe, packet[0], packet[1], 0xcd, 0x13, 0x59]); // mov si, packet; int 13h; pop cx
    let back = |from: usize, to: usize| (to as i64 - from as i64 - 2) as i8 as u8;
    let (at, far) = (code.len(), back(code.len(), again));
    code.extend([0xe2, far, 0xeb, back(at + 2, tick)]); // loop again; jmp tick
    code.resize(usize::from(SEED - AT), 0);
    code.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    code.extend([16, 0, 8, 0, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // eight sectors to 0:8000h
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code
}

/// libvirt of an ordinary user, in a directory of its own.
struct Host {
    dir: tempfile::TempDir,
    root: bool,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let host = Self { dir, root };
        for name in ["run", "fast", "slow"] {
            fs::create_dir(host.path(name)).unwrap();
        }
        fs::copy(TERRACE, host.path("terrace")).unwrap();
        host.give();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// All of it belongs to who runs libvirt.
    fn give(&self) {
        fs::set_permissions(self.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        if self.root {
            let mut chown = Command::new("chown");
            chown.args(["-R", "nobody"]).arg(self.dir.path());
            assert!(chown.status().unwrap().success());
            fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// A program as an ordinary user: root's session would be the system's libvirt.
    fn command(&self, program: &Path) -> Command {
        let mut command = match self.root {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "nobody", "--"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command
            .env("HOME", self.dir.path())
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
        command
    }

    fn virsh(&self, words: &[&str]) -> String {
        let mut command = self.command(Path::new("virsh"));
        let output = command
            .args(["-q", "-c", "qemu:///session"])
            .args(words)
            .output();
        said(output.unwrap())
    }

    /// A domain whose disk is in `slow`, with a second one in `fast` that nobody uses.
    fn start_guest(&self) {
        let mut disk = boot_sector(10);
        disk.resize(64 << 20, 0);
        fs::write(self.path("slow/web.raw"), disk).unwrap();
        let data = self.path("fast/data.qcow2");
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&data)
            .arg("1G")
            .status();
        assert!(made.unwrap().success());
        let slow = self.path("slow/web.raw");
        let xml = format!(
            "<domain type='qemu'><name>web</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
             <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
             <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>
             <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{}'/><target dev='vdb' bus='virtio'/></disk>
             <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
             </devices></domain>",
            slow.display(),
            data.display()
        );
        fs::write(self.path("web.xml"), xml).unwrap();
        self.give();
        self.virsh(&["define", "web.xml"]);
        self.virsh(&["start", "web"]);
    }

    /// Requests of the guest's disk so far.
    fn requests(&self) -> u64 {
        let stats = self.virsh(&["domstats", "--block", "--raw", "web"]);
        let reads = stats
            .lines()
            .find_map(|l| l.trim().strip_prefix("block.0.rd.reqs="));
        reads.map_or(0, |n| n.parse().unwrap())
    }

    fn wait_for_requests(&self, more_than: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.requests() <= more_than {
            assert!(Instant::now() < until, "the guest asks for nothing");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn trial(&self, words: &[&str]) -> Output {
        let mut command = self.command(&self.path("terrace"));
        command.args(["trial", "qemu:///session"]).args(words);
        command.output().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its libvirtd ends by itself when nobody has asked it for a while.
        let mut destroy = self.command(Path::new("virsh"));
        let _ = destroy
            .args(["-q", "-c", "qemu:///session", "destroy", "web"])
            .output();
        let mut undefine = self.command(Path::new("virsh"));
        let _ = undefine
            .args(["-q", "-c", "qemu:///session", "undefine", "web"])
            .output();
    }
}

fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_trial_says_what_would_move_and_its_command_moves_it() {
    if !testkit::needs::programs(&["virsh", "libvirtd", "qemu-system-x86_64", "qemu-img"]) {
        return;
    }
    let host = Host::new();
    host.start_guest();
    host.wait_for_requests(100);
    let slow = format!("slow={}", host.path("slow").display());
    let fast = format!("fast={}", host.path("fast").display());
    let output = host.trial(&[
        "--for",
        "1m",
        "--tier",
        &fast,
        "--tier",
        &slow,
        "--preset",
        "fast=nvme-tlc",
        "--preset",
        "slow=sata-ssd",
        "--latency",
        "50us",
        "-o",
        "json",
    ]);
    let found: Value = serde_json::from_str(&said(output)).unwrap();
    assert_eq!(found["schema"], "terrace.trial/1");
    let volumes = found["volumes"].as_array().unwrap();
    let of = |name: &str| volumes.iter().find(|v| v["name"] == name).unwrap();
    let (vda, vdb) = (of("web:vda"), of("web:vdb"));
    assert_eq!(
        (vda["tier"].as_str(), vdb["tier"].as_str()),
        (Some("slow"), Some("fast"))
    );
    let load = &vda["load"];
    let rate = |of: &str| load[of].as_f64().unwrap();
    assert!(
        rate("reads_per_s") > 20.0 && rate("writes_per_s") > 5.0,
        "{load}"
    );
    assert!(rate("mean_us") > 0.0 && load["p99_us"].is_null(), "{load}");
    assert_eq!(vdb["load"]["reads_per_s"], 0.0);
    let moves = found["plan"]["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{}", found["plan"]);
    assert_eq!(
        (&moves[0]["volume"], &moves[0]["to_tier"]),
        (&"web:vda".into(), &"fast".into())
    );
    // Nothing was done about it; then the command is typed.
    assert!(host.virsh(&["domblklist", "web"]).contains("/slow/web.raw"));
    let command = found["commands"]["web:vda"].as_str().unwrap();
    let words = command.strip_prefix("virsh ").unwrap();
    host.virsh(&[words]);
    for which in [
        &["domblklist", "web"][..],
        &["domblklist", "web", "--inactive"],
    ] {
        assert!(host.virsh(which).contains("/fast/web.raw"), "{which:?}");
    }
    host.wait_for_requests(host.requests());
}

#[test]
fn a_trial_without_anything_to_look_at_says_so() {
    if !testkit::needs::programs(&["virsh"]) {
        return;
    }
    let trial = |words: &[&str]| {
        let output = Command::new(TERRACE)
            .arg("trial")
            .args(words)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // libvirt's own mock hypervisor: its images are nowhere.
    let said = trial(&["test:///default"]);
    assert!(
        said.contains("no pool of files and no image of a running domain"),
        "{said}"
    );
    let said = trial(&["test:///default", "--tier", "fast=nowhere"]);
    assert!(
        said.contains("there is no active pool of files \"nowhere\""),
        "{said}"
    );
    let said = trial(&["nonsense:///x"]);
    assert!(said.contains("libvirt: "), "{said}");
    let said = trial(&["test:///default", "--for", "5s"]);
    assert!(said.contains("must be at least 1m"), "{said}");
}
