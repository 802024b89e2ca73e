//! QEMU of a qualification: a process of its own, or a transient domain under libvirt with the operator's confinement.
//!
//! No guest runs in it. Many writes at a time come through QEMU's own NBD export of the node that a guest's disk would
//! have. They take the path of a guest's writes from the block layer on.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use vmhost::builds::{Build, Version};
use vmhost::{Image, ImageLocation, copy_target};

use super::Way;
use super::place::{self, Place};
use super::writer::BLOCK;
use crate::error::{AgentError, Result, file_error, in_context, system_error};
use crate::program;
use crate::qemu::Monitor;
use crate::virsh::Virsh;

/// Time limit for the start or the end of QEMU.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two checks of an awaited condition.
const PAUSE: Duration = Duration::from_millis(10);
/// Names of the copy in QEMU.
const JOB: &str = "copy";
const SOURCE_NODE: &str = "source";
const TARGET_NODE: &str = "target";

/// State of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    Copying,
    /// Both images have all data, and writes go to both.
    Ready,
    Ended,
}

/// Running QEMU.
pub(super) enum Machine {
    Plain(Box<QemuProcess>),
    Libvirt(Domain),
}

pub(super) struct QemuProcess {
    child: Child,
    monitor: Monitor,
}

pub(super) struct Domain {
    virsh: Virsh,
    uuid: String,
    pid: i32,
}

impl Machine {
    /// Starts QEMU with the source image; `unmap` makes discarded space of images free space of their storage.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(way: &Way, place: &Place, unmap: bool) -> Result<Self> {
        match way {
            Way::Qemu(program) => QemuProcess::start(program, place, unmap).map(Machine::Plain),
            Way::Libvirt(uri) => Domain::start(uri.as_ref(), place, unmap).map(Machine::Libvirt),
        }
    }

    fn pid(&self) -> i32 {
        match self {
            Machine::Plain(plain) => plain.child.id().cast_signed(),
            Machine::Libvirt(domain) => domain.pid,
        }
    }

    /// Returns the build that runs.
    ///
    /// # Errors
    /// Its program cannot be read, or QEMU does not report its version.
    pub(super) fn build(&mut self) -> Result<Build> {
        let said = self.qmp("query-version", json!({}))?;
        let number = |name: &str| {
            let number = said["qemu"][name].as_u64();
            number.and_then(|n| u32::try_from(n).ok())
        };
        let version = number("major").zip(number("minor")).zip(number("micro"));
        let unknown = || AgentError::Unknown("QEMU does not report its version".into());
        let ((major, minor), micro) = version.ok_or_else(unknown)?;
        let package = said["package"].as_str().unwrap_or_default();
        let program = program::of(self.pid()).map_err(system_error("the program of QEMU"))?;
        Ok(Build {
            id: program::build_id(&program),
            ..Build::new(Version::new(major, minor, micro), package)
        })
    }

    /// Returns the path of the program that runs.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn program(&self) -> Result<PathBuf> {
        let link = fs::read_link(format!("/proc/{}/exe", self.pid()));
        link.map_err(system_error("the program of QEMU"))
    }

    /// Carries out a QMP command.
    fn qmp(&mut self, name: &'static str, arguments: Value) -> Result<Value> {
        match self {
            Machine::Plain(plain) => Ok(plain.monitor.order(name, arguments)?),
            Machine::Libvirt(domain) => domain.qmp(name, &arguments),
        }
    }

    /// Returns true if QEMU has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        match self {
            Machine::Plain(plain) => !plain.child.try_wait().is_ok_and(|ended| ended.is_none()),
            Machine::Libvirt(domain) => !is_of(domain.pid, &domain.uuid),
        }
    }

    /// Exports the disk over NBD. Returns a connection to the export and its name.
    ///
    /// # Errors
    /// QEMU refuses.
    pub(super) fn export(&mut self, place: &Place) -> Result<(UnixStream, String)> {
        let (node, name, path) = match self {
            Machine::Plain(_) => (
                SOURCE_NODE.into(),
                place::NBD.into(),
                place.short(place::NBD),
            ),
            Machine::Libvirt(domain) => {
                let disks = domain.qmp("query-block", &json!({}))?;
                let node = disks[0]["inserted"]["node-name"].as_str();
                let unknown = "QEMU does not report the node of the disk";
                let node = node.ok_or_else(|| AgentError::Unknown(unknown.into()))?;
                let path = domain.directory()?.join(place::NBD);
                (node.to_owned(), path.to_string_lossy().into_owned(), path)
            }
        };
        let addr = json!({ "type": "unix", "data": { "path": name } });
        self.qmp("nbd-server-start", json!({ "addr": addr }))?;
        let export = json!({ "type": "nbd", "id": "writes", "node-name": node, "writable": true });
        self.qmp("block-export-add", export)?;
        let stream = UnixStream::connect(&path);
        let stream = stream.map_err(file_error("", &path))?;
        Ok((stream, node))
    }

    /// Begins the copy to the target image, with writes to both. The granularity is one block: a larger one could copy
    /// a lost write too and hide the loss.
    ///
    /// # Errors
    /// QEMU refuses the copy.
    pub(super) fn copy(
        &mut self,
        place: &Place,
        format: &str,
        unmap: bool,
        rate: u64,
    ) -> Result<()> {
        match self {
            Machine::Plain(_) => {
                let discard = if unmap { "unmap" } else { "ignore" };
                let file =
                    json!({ "driver": "file", "filename": place::TARGET, "discard": discard });
                let target = json!({ "driver": format, "node-name": TARGET_NODE, "discard": discard, "file": file });
                self.qmp("blockdev-add", target)?;
                let mirror = json!({
                    "job-id": JOB, "device": SOURCE_NODE, "target": TARGET_NODE, "sync": "full",
                    "copy-mode": "write-blocking", "speed": rate, "granularity": BLOCK,
                });
                self.qmp("blockdev-mirror", mirror).map(|_| ())
            }
            Machine::Libvirt(domain) => domain.copy(place, format, rate),
        }
    }

    /// Returns the state of the copy.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub(super) fn copy_state(&mut self) -> Result<CopyState> {
        let jobs = self.qmp("query-block-jobs", json!({}))?;
        Ok(match jobs.as_array().and_then(|jobs| jobs.first()) {
            None => CopyState::Ended,
            Some(job) if job["ready"] == true => CopyState::Ready,
            Some(_) => CopyState::Copying,
        })
    }

    /// Makes the target the disk's image, or cancels the copy.
    ///
    /// # Errors
    /// QEMU refuses it, or does not finish in time.
    pub(super) fn end_copy(&mut self, pivots: bool) -> Result<()> {
        match self {
            Machine::Plain(_) if pivots => {
                self.qmp("block-job-complete", json!({ "device": JOB }))?;
            }
            Machine::Plain(_) => {
                self.qmp("block-job-cancel", json!({ "device": JOB, "force": true }))?;
            }
            Machine::Libvirt(domain) => domain.end_copy(pivots)?,
        }
        let until = Instant::now() + PATIENCE;
        while self.copy_state()? != CopyState::Ended {
            if Instant::now() > until {
                return Err(AgentError::Silent("the copy does not end".into()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends QEMU in an orderly way.
    ///
    /// # Errors
    /// It may still run.
    pub(super) fn quit(mut self) -> Result<()> {
        if let Machine::Plain(plain) = &mut self {
            let _ = plain.monitor.order("quit", json!({}));
            let until = Instant::now() + PATIENCE;
            while plain.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                if Instant::now() > until {
                    return Err(AgentError::Silent("QEMU does not end".into()));
                }
                std::thread::sleep(PAUSE);
            }
        }
        match &self {
            Machine::Plain(_) => Ok(()),
            Machine::Libvirt(domain) => end(&domain.virsh, &domain.uuid),
        }
    }

    /// Kills QEMU, and waits for its end.
    ///
    /// # Errors
    /// It may still run.
    pub(super) fn kill(mut self, place: &Place) -> Result<()> {
        kill(self.pid(), &place.uuid)?;
        match &mut self {
            Machine::Plain(plain) => {
                let ended = plain.child.wait().map(|_| ());
                ended.map_err(system_error(""))
            }
            Machine::Libvirt(domain) => end(&domain.virsh, &domain.uuid),
        }
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = end(&self.virsh, &self.uuid);
    }
}

impl QemuProcess {
    fn start(program: &Path, place: &Place, unmap: bool) -> Result<Box<Self>> {
        let discard = if unmap { "unmap" } else { "ignore" };
        let file = json!({ "driver": "file", "filename": place::SOURCE, "discard": discard });
        let source = json!({ "driver": "qcow2", "node-name": SOURCE_NODE, "discard": discard, "file": file });
        let mut command = Command::new(program);
        let qmp = format!("unix:{},server=on,wait=off", place::QMP);
        let name = format!("{}{}", place::PREFIX, place.uuid);
        command
            .args(["-machine", "none", "-nodefaults", "-display", "none", "-S"])
            .args(["-name", &name, "-uuid", &place.uuid, "-qmp", &qmp])
            .args(["-blockdev", &source.to_string()])
            // Sockets have short names relative to this directory. The process group protects it from signals of the
            // terminal.
            .current_dir(&place.dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        remove_sockets(place);
        let said = file_error("cannot start", program);
        let mut child = command.spawn().map_err(&said)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(said(io::Error::other(format!("it ended ({status})"))));
            }
            match Monitor::open(&place.short(place::QMP)) {
                Ok(monitor) => return Ok(Box::new(Self { child, monitor })),
                Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(said(io::Error::other("it does not answer")));
                }
            }
        }
    }
}

/// A killed QEMU leaves its sockets behind.
fn remove_sockets(place: &Place) {
    for name in [place::QMP, place::NBD] {
        let _ = fs::remove_file(place.path(name));
    }
}

impl Domain {
    fn start(uri: Option<&String>, place: &Place, unmap: bool) -> Result<Self> {
        let virsh = virsh(uri);
        let uuid = place.uuid.clone();
        let path = write_xml(place, &definition(place, unmap))?;
        let order = ["create", &*path, "--paused"];
        let created = virsh.order(&order);
        let mut domain = Self {
            virsh,
            uuid,
            pid: 0,
        };
        // From here on, the drop of `domain` ends it on every path.
        created.map_err(in_context("cannot start the domain of the qualification"))?;
        let found = processes(&domain.uuid);
        match found[..] {
            [pid] => domain.pid = pid,
            _ => {
                let n = found.len();
                return Err(AgentError::Unknown(format!(
                    "found {n} processes of the qualification's domain, expected 1: run the command on the libvirt host, as a user who can see its processes"
                )));
            }
        }
        Ok(domain)
    }

    fn qmp(&self, name: &str, arguments: &Value) -> Result<Value> {
        let command = json!({ "execute": name, "arguments": arguments }).to_string();
        let said = self
            .virsh
            .order(&["qemu-monitor-command", &self.uuid, &command])?;
        let mut answer: Value = serde_json::from_str(&said).map_err(in_context(name))?;
        match answer.get("error") {
            Some(error) => Err(AgentError::Refused(format!("{name}: {}", error["desc"]))),
            None => Ok(answer["return"].take()),
        }
    }

    /// Returns the directory that libvirt created for this domain, in which its QEMU may create a socket under any
    /// confinement.
    fn directory(&self) -> Result<PathBuf> {
        const KEY: &str = "master-key.aes";
        let line = fs::read(format!("/proc/{}/cmdline", self.pid));
        let line = line.map_err(system_error(""))?;
        let line = String::from_utf8_lossy(&line);
        let directory = line.find(KEY).and_then(|end| {
            let begin = line[..end].rfind(['"', '='])?;
            Some(PathBuf::from(&line[begin + 1..end]))
        });
        let none = || AgentError::Unknown("libvirt gave QEMU no directory".into());
        directory.ok_or_else(none)
    }

    fn copy(&self, place: &Place, format: &str, rate: u64) -> Result<()> {
        let target = Image {
            at: ImageLocation::File(place.path(place::TARGET).to_string_lossy().into_owned()),
            format: format.into(),
        };
        let path = write_xml(place, &copy_target(&target))?;
        let (rate, granularity) = (rate.to_string(), BLOCK.to_string());
        let words = [
            "blockcopy",
            &self.uuid,
            "vda",
            "--xml",
            &path,
            "--transient-job",
            "--synchronous-writes",
            "--bandwidth",
            &rate,
            "--bytes",
            "--granularity",
            &granularity,
            "--reuse-external",
        ];
        self.virsh.order(&words)?;
        Ok(())
    }

    /// Ends the copy. libvirt notices its readiness a little after QEMU, so a refusal is retried.
    fn end_copy(&self, pivots: bool) -> Result<()> {
        let how = if pivots { "--pivot" } else { "--abort" };
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            match self.virsh.order(&["blockjob", &self.uuid, "vda", how]) {
                Err(refusal) => {
                    let error = AgentError::from(refusal);
                    if !error.to_string().contains("not ready") || Instant::now() >= until {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
                Ok(_) => return Ok(()),
            }
        }
    }
}

pub(super) fn virsh(uri: Option<&String>) -> Virsh {
    Virsh {
        uri: uri.cloned(),
        orders: None,
    }
}

fn write_xml(place: &Place, text: &str) -> Result<String> {
    let mut file = place.create_anew(place::XML)?;
    file.write_all(text.as_bytes()).map_err(system_error(""))?;
    Ok(place.path(place::XML).to_string_lossy().into_owned())
}

/// Returns the definition of the domain: transient, paused, without network; it needs no KVM. `share-rw` lets QEMU's
/// own export write to the disk while the device, which no guest uses, is attached.
fn definition(place: &Place, unmap: bool) -> String {
    let discard = if unmap { "unmap" } else { "ignore" };
    let image = Image {
        at: ImageLocation::File(place.path(place::SOURCE).to_string_lossy().into_owned()),
        format: "qcow2".into(),
    };
    let target = copy_target(&image);
    let source = target
        .find("<source")
        .map_or("", |at| target[at..].trim_end_matches("</disk>"));
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>{}{}</name><uuid>{1}</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu><os><type>hvm</type></os>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='{discard}'/>{source}
<target dev='vda' bus='virtio'/><alias name='ua-writes'/></disk>
<memballoon model='none'/>
</devices>
<qemu:override><qemu:device alias='ua-writes'><qemu:frontend>
<qemu:property name='share-rw' type='bool' value='true'/>
</qemu:frontend></qemu:device></qemu:override>
</domain>
",
        place::PREFIX,
        place.uuid
    )
}

/// Ends the domain of a qualification, and waits until libvirt no longer lists its UUID.
///
/// # Errors
/// It may still run.
pub(super) fn end(virsh: &Virsh, uuid: &str) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answers = virsh.ask(&["list --all --uuid".into()])?;
        if !answers[0].text()?.lines().any(|l| l.trim() == uuid) {
            return Ok(());
        }
        let destroyed = virsh.order(&["destroy", uuid]);
        if Instant::now() > until {
            let why = destroyed.err().map(AgentError::from);
            let why = why.map(|e| e.to_string()).unwrap_or_default();
            return Err(AgentError::Silent(format!(
                "domain {}{uuid} does not end: {why}",
                place::PREFIX
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the QEMU processes with the name and UUID of a qualification.
pub(super) fn processes(uuid: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_of(*pid, uuid)).collect()
}

fn is_of(pid: i32, uuid: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let name = format!("{}{uuid}", place::PREFIX);
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let named = |pair: &[&[u8]]| {
        let value = String::from_utf8_lossy(pair[1]);
        let value = value.split(',').next().unwrap_or_default();
        pair[0] == b"-name" && (value == name || value == format!("guest={name}"))
    };
    let has_uuid = |pair: &[&[u8]]| pair[0] == b"-uuid" && pair[1] == uuid.as_bytes();
    words.windows(2).any(named) && words.windows(2).any(has_uuid)
}

/// Kills the QEMU of a qualification. It opens a pidfd before it checks the process, so no other process can get the
/// signal.
///
/// # Errors
/// It cannot be killed.
pub(super) fn kill(pid: i32, uuid: &str) -> Result<()> {
    let said = system_error(format!("cannot kill process {pid}"));
    let Some(named) = Pid::from_raw(pid) else {
        return Err(AgentError::Changed(format!("no process {pid}")));
    };
    let held = pidfd_open(named, PidfdFlags::empty()).map_err(&said)?;
    if !is_of(pid, uuid) {
        return Ok(()); // it has ended
    }
    pidfd_send_signal(&held, Signal::KILL).map_err(said)
}
