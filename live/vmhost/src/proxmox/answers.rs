//! Types for answers of the API. They contain only the fields that are used.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Drive;
use crate::qemu::Field;
use crate::{BlockStats, Direction, HostError};

type Read<T> = Result<T, HostError>;

/// Reads an optional text.
fn text(of: &Field<'_>, name: &str) -> Read<Option<String>> {
    let text = of.field(name).maybe(|f| f.text().map(str::to_owned))?;
    Ok(text.filter(|t| !t.is_empty()))
}

/// VM in `GET /cluster/resources?type=vm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVm {
    pub vmid: u32,
    pub node: String,
    pub name: String,
    pub runs: bool,
    /// State in the HA manager, if it manages the VM.
    pub ha: Option<String>,
}

fn vmid(of: &Field<'_>) -> Read<u32> {
    let number = of.loose_number()?;
    u32::try_from(number).map_err(|_| of.fault("not the ID of a VM"))
}

/// Reads `GET /cluster/resources?type=vm`. Containers and templates are omitted.
///
/// # Errors
/// The field that is wrong.
pub fn vms(data: &Value) -> Read<Vec<ListedVm>> {
    let all = Field::data("list of VMs", data).items()?;
    let mut found = vec![];
    for item in &all {
        if item.field("type").text()? != "qemu" || item.field("template").loose_flag()? {
            continue;
        }
        let id = vmid(&item.field("vmid"))?;
        found.push(ListedVm {
            vmid: id,
            node: item.field("node").text()?.into(),
            // An offline node reports no name.
            name: text(item, "name")?.unwrap_or_else(|| format!("VM {id}")),
            runs: text(item, "status")?.as_deref() == Some("running"),
            ha: text(item, "hastate")?,
        });
    }
    Ok(found)
}

/// State of a VM: `GET /nodes/NODE/qemu/ID/status/current`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmStatus {
    pub runs: bool,
    /// Process of its QEMU on its node. The number differs for each start.
    pub pid: Option<u32>,
    /// Lock in its configuration, such as `backup`.
    pub lock: Option<String>,
    /// Version of the running QEMU, three numbers (qemu-server, `vmstatus`).
    pub qemu: Option<String>,
    /// State in the HA manager, if it manages the VM; empty if the state is unknown.
    pub ha: Option<String>,
    /// Counters by drive, as QEMU's `query-blockstats` reports them.
    pub blocks: BTreeMap<String, BlockStats>,
}

impl VmStatus {
    /// Reads the answer.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read(data: &Value) -> Read<Self> {
        let of = Field::data("state of a VM", data);
        let ha = of.field("ha");
        let managed = ha.is_there() && ha.field("managed").loose_flag()?;
        let state = match managed {
            true => Some(text(&ha, "state")?.unwrap_or_default()),
            false => None,
        };
        let stats = of.field("blockstat");
        let stats = stats.maybe(Field::fields)?.unwrap_or_default();
        let pid = of.field("pid").maybe(Field::loose_number)?;
        let blocks = stats
            .into_iter()
            .map(|(name, f)| Ok((name.to_owned(), block(name, &f)?)));
        Ok(Self {
            runs: of.field("status").text()? == "running",
            pid: pid.and_then(|p| u32::try_from(p).ok()),
            lock: text(&of, "lock")?,
            qemu: text(&of, "running-qemu")?.filter(|v| v != "unknown"),
            ha: state,
            blocks: blocks.collect::<Read<_>>()?,
        })
    }
}

fn block(target: &str, of: &Field<'_>) -> Read<BlockStats> {
    let direction = |requests: &str, bytes: Option<&str>, time: &str| {
        let number = |name: &str| of.field(name).loose_number();
        let bytes = bytes.map_or(Ok(0), number)?;
        Ok::<_, HostError>(Some(Direction {
            requests: number(requests)?,
            bytes,
            time_ns: number(time)?,
        }))
    };
    Ok(BlockStats {
        target: target.into(),
        reads: direction("rd_operations", Some("rd_bytes"), "rd_total_time_ns")?,
        writes: direction("wr_operations", Some("wr_bytes"), "wr_total_time_ns")?,
        flushes: direction("flush_operations", None, "flush_total_time_ns")?,
        ..BlockStats::default()
    })
}

/// Configuration of a VM: `GET /nodes/NODE/qemu/ID/config?current=1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmConfig {
    /// SHA-1 of the file. A change with this digest is refused if the file has changed meanwhile.
    pub digest: String,
    pub lock: Option<String>,
    /// True if the removal of disks is refused.
    pub protection: bool,
    /// Drives by key, such as `scsi0`.
    pub drives: BTreeMap<String, Drive>,
    /// Volumes without a drive, by key, such as `unused0`.
    pub unused: BTreeMap<String, String>,
}

/// Buses of drives, and the drives of firmware and TPM.
const BUSES: [&str; 6] = ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"];

fn is_numbered(key: &str, kind: &str) -> bool {
    let number = key.strip_prefix(kind);
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns true for the key of a drive.
fn is_drive(key: &str) -> bool {
    BUSES.iter().any(|bus| is_numbered(key, bus))
}

impl VmConfig {
    /// Reads the answer.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read(data: &Value) -> Read<Self> {
        let of = Field::data("configuration of a VM", data);
        let mut drives = BTreeMap::new();
        let mut unused = BTreeMap::new();
        for (key, value) in of.fields()? {
            if is_drive(key) {
                drives.insert(key.to_owned(), Drive::parse(key, value.text()?)?);
            } else if is_numbered(key, "unused") {
                let drive = Drive::parse(key, value.text()?)?;
                unused.insert(key.to_owned(), drive.file);
            }
        }
        Ok(Self {
            digest: of.field("digest").text()?.into(),
            lock: text(&of, "lock")?,
            protection: of.field("protection").loose_flag()?,
            drives,
            unused,
        })
    }
}

/// Reads the keys with a change that takes effect at the next start: `GET /nodes/NODE/qemu/ID/pending`.
///
/// # Errors
/// The field that is wrong.
pub fn pending_keys(data: &Value) -> Read<BTreeSet<String>> {
    let all = Field::data("pending changes of a VM", data).items()?;
    let mut found = BTreeSet::new();
    for item in &all {
        let removed = item.field("delete").loose_flag()?;
        if removed || item.field("pending").is_there() {
            found.insert(item.field("key").text()?.to_owned());
        }
    }
    Ok(found)
}

/// Reads the names of snapshots: `GET /nodes/NODE/qemu/ID/snapshot`. The list always ends with `current`, which is not
/// a snapshot (qemu-server, `API2/Qemu.pm`, `snapshot_list`).
///
/// # Errors
/// The field that is wrong.
pub fn snapshot_names(data: &Value) -> Read<Vec<String>> {
    let all = Field::data("snapshots of a VM", data).items()?;
    let names = all
        .iter()
        .map(|s| s.field("name").text().map(str::to_owned));
    let names: Vec<String> = names.collect::<Read<_>>()?;
    Ok(names.into_iter().filter(|n| n != "current").collect())
}

/// Storage as a node sees it: `GET /nodes/NODE/storage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    pub name: String,
    /// Type of its plugin, such as `lvmthin`.
    pub kind: String,
    /// True if all nodes see the same content.
    pub shared: bool,
    /// True if it is enabled and accessible.
    pub active: bool,
    /// True if disks of VMs may be stored on it.
    pub images: bool,
    pub total: u64,
    pub used: u64,
    pub free: u64,
}

/// Reads the storages of a node.
///
/// # Errors
/// The field that is wrong.
pub fn storages(data: &Value) -> Read<Vec<Storage>> {
    let all = Field::data("storages of a node", data).items()?;
    let read = |item: &Field<'_>| {
        let number = |name: &str| item.field(name).maybe(Field::loose_number);
        let content = text(item, "content")?.unwrap_or_default();
        let active = item.field("active").loose_flag()?;
        let enabled = item.field("enabled");
        Ok(Storage {
            name: item.field("storage").text()?.into(),
            kind: item.field("type").text()?.into(),
            shared: item.field("shared").loose_flag()?,
            active: active && (!enabled.is_there() || enabled.loose_flag()?),
            images: content.split(',').any(|c| c.trim() == "images"),
            total: number("total")?.unwrap_or(0),
            used: number("used")?.unwrap_or(0),
            free: number("avail")?.unwrap_or(0),
        })
    };
    all.iter().map(read).collect()
}

/// Volume of a storage: `GET /nodes/NODE/storage/STORAGE/content?content=images`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// `raw`, `qcow2`, …
    pub format: String,
    /// Bytes that the guest sees.
    pub size: Option<u64>,
    /// Bytes that it occupies, if the storage reports them.
    pub used: Option<u64>,
    /// Time in seconds of the wall clock, if the storage reports it: of the last change of a file, or of the creation
    /// of a volume of LVM; `None` for ZFS and RBD (pve-storage, `file_size_info` and `list_images` of each plugin).
    pub ctime_s: Option<u64>,
}

impl Content {
    /// Returns the size and the creation time, which distinguish volumes of the same name; `None` if the storage does
    /// not report both.
    pub fn identity(&self) -> Option<Identity> {
        Some(Identity {
            bytes: self.size?,
            ctime_s: self.ctime_s?,
        })
    }
}

/// Facts that distinguish an unused volume from a later one with the same name: Proxmox VE gives each new volume the
/// lowest free name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Bytes that a guest sees.
    pub bytes: u64,
    /// [`Content::ctime_s`].
    pub ctime_s: u64,
}

/// Reads the volumes of a storage, by identifier.
///
/// # Errors
/// The field that is wrong.
pub fn contents(data: &Value) -> Read<BTreeMap<String, Content>> {
    let all = Field::data("content of a storage", data).items()?;
    let read = |item: &Field<'_>| {
        let number = |name: &str| item.field(name).maybe(Field::loose_number);
        let content = Content {
            format: item.field("format").text()?.into(),
            size: number("size")?,
            // Most plugins report nothing, or 0.
            used: number("used")?.filter(|used| *used > 0),
            ctime_s: number("ctime")?.filter(|time| *time > 0),
        };
        Ok((item.field("volid").text()?.to_owned(), content))
    };
    all.iter().map(read).collect()
}

/// Reads the guests that have a replication job: `GET /cluster/replication`.
///
/// # Errors
/// The field that is wrong.
pub fn replicated(data: &Value) -> Read<BTreeSet<u32>> {
    let all = Field::data("replication jobs", data).items()?;
    all.iter().map(|job| vmid(&job.field("guest"))).collect()
}

/// Task in `GET /nodes/NODE/tasks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub upid: String,
    /// Kind, such as `qmmove`.
    pub kind: String,
    /// Guest of the task, if it concerns one.
    pub vmid: Option<u32>,
    /// End in seconds of the wall clock; `None` while it runs.
    pub ended_s: Option<u64>,
}

/// Kinds of tasks that do not touch disks: consoles, which last as long as a viewer is connected.
const CONSOLES: [&str; 4] = ["vncproxy", "spiceproxy", "vncshell", "termproxy"];

impl Task {
    /// Returns true for a task that may touch disks.
    pub fn works(&self) -> bool {
        !CONSOLES.contains(&self.kind.as_str())
    }
}

/// Reads tasks, the newest first.
///
/// # Errors
/// The field that is wrong.
pub fn tasks(data: &Value) -> Read<Vec<Task>> {
    let all = Field::data("tasks of a node", data).items()?;
    let read = |item: &Field<'_>| {
        Ok(Task {
            upid: item.field("upid").text()?.into(),
            kind: item.field("type").text()?.into(),
            // Tasks of other objects have ids of another form.
            vmid: text(item, "id")?.and_then(|id| id.parse().ok()),
            ended_s: item.field("endtime").maybe(Field::loose_number)?,
        })
    };
    all.iter().map(read).collect()
}

/// State of a task: `GET /nodes/NODE/tasks/UPID/status`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TaskState {
    Runs,
    /// It ended with this status: `OK`, `WARNINGS: 1` or an error (pve-common, `Tools.pm`,
    /// `upid_read_status`).
    Ended(String),
}

impl TaskState {
    /// Returns true if it succeeded.
    pub fn is_ok(&self) -> bool {
        matches!(self, TaskState::Ended(how) if how == "OK" || how.starts_with("WARNINGS"))
    }
}

/// Reads the state of a task.
///
/// # Errors
/// The field that is wrong.
pub fn task_state(data: &Value) -> Read<TaskState> {
    let of = Field::data("state of a task", data);
    match of.field("status").text()? {
        "running" => Ok(TaskState::Runs),
        _ => Ok(TaskState::Ended(
            text(&of, "exitstatus")?.unwrap_or_else(|| "no status".into()),
        )),
    }
}

/// Progress of a move according to the log of its task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Number of lines read; the next request begins after them.
    pub lines: u64,
    /// Copied share, of 10,000.
    pub copied: u32,
    /// True if QEMU was ordered to switch, or is about to be. From then to its end, a cancelled task frees the target,
    /// although the guest may already use it (qemu-server, `API2/Qemu.pm`, `move_vm_disk`: an error between the switch
    /// and the new configuration).
    pub switches: bool,
}

impl Progress {
    /// Reads more lines of the log, `GET /nodes/NODE/tasks/UPID/log`, and returns their number. The
    /// lines are those of qemu-server, `BlockJob.pm`, `qemu_drive_mirror_monitor`.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read_more(&mut self, data: &Value) -> Read<usize> {
        let lines = Field::data("log of a task", data).items()?;
        let mut read = 0;
        for line in &lines {
            let number = line.field("n").loose_number()?;
            let text = line.field("t").text()?;
            // This line stands for an empty log (pve-common, `Tools.pm`, `dump_logfile`).
            if text == "no content" {
                continue;
            }
            read += 1;
            self.lines = self.lines.max(number);
            self.switches |= text.contains("jobs are ready")
                || text.contains("Completing block job")
                || text.contains("Completed successfully")
                || text.contains("job finished")
                || text.ends_with(", ready");
            let percent = text.split_once("transferred ").and_then(|(_, rest)| {
                let (_, rest) = rest.split_once('(')?;
                let (percent, _) = rest.split_once("%)")?;
                percent.parse::<f64>().ok()
            });
            if let Some(percent) = percent {
                self.copied = (percent.clamp(0.0, 100.0) * 100.0) as u32;
            }
        }
        Ok(read)
    }
}
