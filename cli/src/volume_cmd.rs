//! `terrace volume …`: the volumes of an array, served or not. `pin`, `throttle` and `history` are requests to a
//! controller; `create` may request a recommended tier.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use datapath::control_server::ControlRequest;
use datapath::stages::{measure, throttle};
use model::NO_CLASS;
use units::{Bytes, BytesPerSec, Iops};

use crate::live::{ArrayArg, OutputArg, absolute, parse_iops, wrong_usage};
use crate::snapshot_cmd::{self, SnapshotCommand};
use crate::volume_listed::{ListedVolume, ListedVolumes};
use crate::{
    check_cmd, export_cmd, heat_cmd, import_cmd, inject_cmd, live_table, mirror_cmd, move_cmd,
    place_cmd, reuse_cmd, save_cmd, volume_asked,
};

/// Default socket of guests in the directory of an array.
pub(crate) const NBD_SOCKET: &str = "nbd.sock";

/// `terrace volume …`: `pin` and `history` ask a controller, and `create` does for a tier; all others act on an array.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume; space is allocated at the first write to an extent
    Create {
        #[command(flatten)]
        array: ArrayArg,
        /// Its name
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Size of the volume, such as 100G or "100 GiB"
        #[arg(long, value_name = "SIZE")]
        size: Bytes,
        /// Tier of its data; by default the one that a controller recommends, as `terrace place` does
        #[arg(long, value_name = "TIER", conflicts_with_all = ["like", "host"])]
        tier: Option<String>,
        /// Service class of the volume; without one it has no objective
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        #[command(flatten)]
        advised: place_cmd::AdviceArgs,
    },
    /// List the volumes
    List {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show one volume: tiers, load, latency and move
    Show {
        #[command(flatten)]
        which: VolumeSelector,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show the most used extents of a served volume, and their tiers
    Heat(heat_cmd::Heat),
    /// Show the miss ratio of read caches for a served volume by size, and its working sets
    Mrc(reuse_cmd::VolumeMrc),
    /// Delete a volume and its data
    Delete {
        #[command(flatten)]
        which: VolumeSelector,
        /// Confirm: the data cannot be recovered
        #[arg(long)]
        yes: bool,
        /// Delete it even while guests are connected; they lose their connections
        #[arg(long)]
        force: bool,
    },
    /// Create a volume from an image, a block device or an NBD export; guests may use it during the copy
    Import(import_cmd::Import),
    /// Save a volume that is not in use, or a snapshot, as an image or on a block device
    Save(save_cmd::Save),
    /// Grow a volume in use; guests see the new size after they reconnect
    Resize {
        #[command(flatten)]
        which: VolumeSelector,
        /// New size, such as 200G; a volume cannot shrink
        #[arg(long, value_name = "SIZE")]
        size: Bytes,
    },
    /// Rename a volume; guests stay connected
    Rename {
        #[command(flatten)]
        which: VolumeSelector,
        /// The new name
        #[arg(value_name = "NAME")]
        to: String,
    },
    /// Create, list, restore and delete snapshots
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Serve volumes over NBD and vhost-user until the process is stopped
    Export(export_cmd::Export),
    /// Print a volume as a disk for libvirt: `virsh attach-device DOMAIN FILE`, or in a domain's definition
    Xml {
        #[command(flatten)]
        which: VolumeSelector,
        /// The unix socket on which the volume is served; `nbd.sock` in the array's directory if left out
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// For vhost-user: the directory of `volume export --vhost-user`
        #[arg(long, value_name = "DIR", conflicts_with = "socket")]
        vhost_user: Option<PathBuf>,
        /// Target name of the disk in the domain
        #[arg(long, value_name = "NAME", default_value = "vdb")]
        target: String,
    },
    /// Move a volume to another tier while it is in use
    Move(move_cmd::Move),
    /// Mirror the most-read extents of a served volume on another tier
    Mirror(mirror_cmd::Mirror),
    /// Cancel the move of a volume; extents already moved stay on the new tier
    Cancel {
        #[command(flatten)]
        which: VolumeSelector,
    },
    /// Change the service class of a volume
    Class {
        #[command(flatten)]
        which: VolumeSelector,
        /// The class
        #[arg(value_name = "CLASS", required_unless_present = "none")]
        class: Option<String>,
        /// Remove the class: no objective
        #[arg(long, conflicts_with = "class")]
        none: bool,
    },
    /// Set limits, weight and measurement of a served volume until the server ends
    Set(Set),
    /// Delay the replies of a served volume, and measure the actual delay
    Inject(inject_cmd::Inject),
    /// Pin a volume to a tier
    Pin(volume_asked::Pin),
    /// Limit the IOPS or bandwidth of a volume for some time
    Throttle(volume_asked::ThrottleArgs),
    /// Show the history of a volume: load, latency, moves and objectives
    History(volume_asked::History),
    /// Check the map of an array that is not served
    Check {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Repair the map of an array that is not served, where a repair is safe
    Repair {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
}

/// Which volume of which array.
#[derive(Debug, Args)]
pub struct VolumeSelector {
    #[command(flatten)]
    pub array: ArrayArg,
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: String,
}

/// `terrace volume set`
#[derive(Debug, Args)]
pub struct Set {
    #[command(flatten)]
    which: VolumeSelector,
    #[command(flatten)]
    what: SettingArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct SettingArgs {
    /// Requests per second at most; 0 removes the limit
    #[arg(long, value_name = "N", value_parser = parse_iops)]
    iops: Option<Iops>,
    /// Bytes per second at most, such as "200 MiB/s"; "0 B/s" removes the limit
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BytesPerSec>,
    /// Weight among the volumes of a limited tier, 0.01 to 100; 1 at first
    #[arg(long, value_name = "WEIGHT")]
    weight: Option<f64>,
    /// Turn measurement on (from zero) or off
    #[arg(long, value_enum)]
    measure: Option<OnOff>,
    /// Cache share of this volume, such as "64 MiB"; "0 B" for the common part
    #[arg(long, value_name = "SIZE")]
    cache_part: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// Runs `terrace volume …`.
pub fn run(command: VolumeCommand) -> anyhow::Result<ExitCode> {
    match command {
        VolumeCommand::Create {
            array,
            volume,
            size,
            tier,
            class,
            advised,
        } => {
            let tier = match tier {
                Some(tier) => tier,
                None => advised.tier(&volume, size, class.as_deref())?,
            };
            array.order(ControlRequest::Create {
                volume,
                size,
                tier,
                class,
            })?;
        }
        VolumeCommand::List { array, output } => {
            let all = ListedVolumes::of(&array)?.without_snapshots();
            let text = |v: &ListedVolumes| live_table::volumes(&v.volumes) + &live_table::polled(v);
            output.print("terrace.volume.list/1", &all, text)?;
        }
        VolumeCommand::Show { which, output } => {
            let volume = ListedVolume::of(&which.array, &which.volume)?;
            output.print("terrace.volume.show/1", &volume, live_table::volume)?;
        }
        VolumeCommand::Delete {
            which,
            yes: false,
            force: false,
        } => {
            return Ok(wrong_usage(&format!(
                "the data of volume {:?} would be lost for ever: add --yes to delete it",
                which.volume
            )));
        }
        VolumeCommand::Delete { which, force, .. } => {
            which.array.order(ControlRequest::Delete {
                volume: which.volume,
                force,
            })?
        }
        VolumeCommand::Import(import) => return import_cmd::run(import),
        VolumeCommand::Save(save) => return save_cmd::run(save),
        VolumeCommand::Resize { which, size } => which.array.order(ControlRequest::Resize {
            volume: which.volume,
            size,
        })?,
        VolumeCommand::Rename { which, to } => which.array.order(ControlRequest::Rename {
            volume: which.volume,
            to,
        })?,
        VolumeCommand::Snapshot { command } => return snapshot_cmd::run(command),
        VolumeCommand::Heat(heat) => heat_cmd::run(&heat)?,
        VolumeCommand::Mrc(mrc) => reuse_cmd::run(&mrc)?,
        VolumeCommand::Export(export) => return export_cmd::run(export),
        VolumeCommand::Xml {
            which,
            socket,
            vhost_user,
            target,
        } => print!("{}", xml(&which, socket, vhost_user, &target)?),
        VolumeCommand::Move(what) => return move_cmd::run(&what),
        VolumeCommand::Mirror(what) => mirror_cmd::run(&what)?,
        VolumeCommand::Cancel { which } => return move_cmd::cancel(&which),
        VolumeCommand::Class { which, class, .. } => {
            which.array.order(ControlRequest::SetClass {
                volume: which.volume,
                class: class.unwrap_or_else(|| NO_CLASS.into()),
            })?
        }
        VolumeCommand::Set(set) => self::set(set)?,
        VolumeCommand::Inject(inject) => return inject_cmd::run(&inject),
        VolumeCommand::Pin(pin) => volume_asked::pin(&pin)?,
        VolumeCommand::Throttle(throttling) => volume_asked::throttle(&throttling)?,
        VolumeCommand::History(history) => volume_asked::history(&history)?,
        VolumeCommand::Check { array, output } => return check_cmd::check(&array, &output),
        VolumeCommand::Repair { array, output } => return check_cmd::repair(&array, &output),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a served volume as a disk for the XML of a domain.
fn xml(
    which: &VolumeSelector,
    socket: Option<PathBuf>,
    vhost_user: Option<PathBuf>,
    target: &str,
) -> anyhow::Result<String> {
    let info = ListedVolume::of(&which.array, &which.volume)?.info;
    let (name, logical_block) = (info.name, info.logical_block);
    if let Some(dir) = vhost_user {
        let socket = dir.join(format!("{name}.sock"));
        let socket = is_socket(
            &socket,
            "give the directory of the vhost-user sockets with --vhost-user",
        )?;
        return Ok(vmhost::vhost_user_disk(&socket, target));
    }
    let socket = socket.unwrap_or_else(|| which.array.array.join(NBD_SOCKET));
    let socket = is_socket(
        &socket,
        "give the socket that serves the volume with --socket",
    )?;
    let image = vmhost::Image {
        at: vmhost::ImageLocation::Nbd {
            socket,
            export: name,
        },
        format: "raw".into(),
    };
    let ide = !target.starts_with("vd") && !target.starts_with("sd");
    if ide && logical_block != 512 {
        bail!(
            "a disk on an IDE bus has sectors of 512 bytes, and this volume has {logical_block}: choose a target such as vda or sda"
        );
    }
    Ok(vmhost::disk_of(&image, target, logical_block))
}

/// Returns the absolute path of a socket, or an error with the advice `otherwise` if it does not exist.
fn is_socket(path: &Path, otherwise: &str) -> anyhow::Result<String> {
    let socket = absolute(path)?;
    let is_one = std::fs::metadata(&socket).is_ok_and(|m| m.file_type().is_socket());
    if !is_one {
        return Err(anyhow!("{} is not a socket: {otherwise}", socket.display()));
    }
    match socket.to_str() {
        Some(text) => Ok(text.into()),
        None => Err(anyhow!(
            "{} is not UTF-8, which XML needs",
            socket.display()
        )),
    }
}

fn set(set: Set) -> anyhow::Result<()> {
    let VolumeSelector { array, volume } = set.which;
    let SettingArgs {
        iops,
        bandwidth,
        weight,
        measure,
        cache_part,
    } = set.what;
    if iops.is_some() || bandwidth.is_some() || weight.is_some() {
        let limit = throttle::Command::Limit {
            volume: volume.clone(),
            iops,
            bandwidth,
            weight,
        };
        array.order(limit.into())?;
    }
    if let Some(measure) = measure {
        let on = measure == OnOff::On;
        let volume = volume.clone();
        array.order(measure::Command::Measure { volume, on }.into())?;
    }
    if let Some(part) = cache_part {
        let part = Some(part).filter(|p| *p > Bytes::ZERO);
        array.order(ControlRequest::ShareCache { volume, part })?;
    }
    Ok(())
}
