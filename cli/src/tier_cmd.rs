//! `terrace tier …`: tiers of an array and their devices. `cordon`, `drain` and `open` are requests to a controller.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource};
use model::{DevicePreset, DirectIo, TierState};
use units::{Bytes, BytesPerSec, Iops};

use crate::asking::ControllerArgs;
use crate::live::{ArrayArg, OutputArg, absolute, message, parse_iops, said, unexpected};
use crate::live_table::{self, Tiers};
use crate::tier_describe::Description;

/// `terrace tier …`
#[derive(Debug, Subcommand)]
pub enum TierCommand {
    /// Add a device to a tier; creates the tier, below the existing ones, and the array if needed
    Add(Add),
    /// List the tiers, fastest first, with their devices
    List {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Remove an empty tier and its devices from the array
    Remove {
        #[command(flatten)]
        array: ArrayArg,
        /// The tier
        #[arg(value_name = "TIER")]
        tier: String,
    },
    /// Limit the total load of a tier until the server ends; its volumes share the limit by weight
    Limit {
        #[command(flatten)]
        array: ArrayArg,
        /// The tier
        #[arg(value_name = "TIER")]
        tier: String,
        /// Requests per second; no limit if left out
        #[arg(long, value_name = "N", value_parser = parse_iops)]
        iops: Option<Iops>,
        /// Bytes per second, such as "200 MiB/s"; no limit if left out
        #[arg(long, value_name = "RATE")]
        bandwidth: Option<BytesPerSec>,
    },
    /// Cordon a tier: the controller places no new data on it
    Cordon(TierOrder),
    /// Drain a tier: the controller moves all data away and places no new data
    Drain(TierOrder),
    /// Reopen a cordoned or drained tier
    Open(TierOrder),
}

/// `terrace tier cordon`, `drain` and `open`
#[derive(Debug, Args)]
pub struct TierOrder {
    /// The tier; HOST/TIER where several hosts have one of that name
    #[arg(value_name = "TIER")]
    tier: String,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// `terrace tier add`
#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    array: ArrayArg,
    /// The tier
    #[arg(value_name = "TIER")]
    tier: String,
    #[command(flatten)]
    device: DeviceArgs,
    /// Device model of the tier, a preset of `terrace sim presets`; the controller decides nothing about a tier
    /// without a model
    #[arg(long, value_name = "PRESET", value_parser = parse_preset, conflicts_with = "emulate")]
    preset: Option<&'static DevicePreset>,
    /// Configuration of the controller, to which the description is added; only printed by default
    #[arg(long, value_name = "FILE", requires = "preset")]
    config: Option<PathBuf>,
    /// Size of extents, the unit of placement; only for the first device of a new array (default: 1 MiB)
    #[arg(long, value_name = "SIZE")]
    extent: Option<Bytes>,
}

/// A device that is new to an array.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    source: Source,
    /// Size to use, such as 10G or "10 GiB"; by default all of a block device or export
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["block", "nbd"])]
    size: Option<Bytes>,
    /// Add delay so that the device is as slow as a preset of `terrace sim presets`
    #[arg(long, value_name = "PRESET", value_parser = parse_preset)]
    emulate: Option<&'static DevicePreset>,
    /// Direct I/O on a file or block device, which bypasses the host's page cache; auto: the faster way, as measured
    /// at each start
    #[arg(long, value_name = "auto|on|off", default_value = "auto")]
    direct: DirectIo,
    /// Format the device even if it holds data. That data is destroyed, and the output names it. A
    /// device in use is always refused
    #[arg(long)]
    force: bool,
    /// Allow devices in the directory's file system to be larger together than the file system.
    /// Writes to new extents fail when it is full
    #[arg(long, requires = "dir")]
    thin: bool,
}

impl DeviceArgs {
    /// Converts the arguments to a new device of a tier.
    pub fn wanted(self, tier: String) -> anyhow::Result<NewDevice> {
        Ok(NewDevice {
            tier,
            source: self.source.wanted()?,
            size: self.size,
            emulate: self.emulate.map(DevicePreset::spec),
            direct: self.direct,
            force: self.force,
            thin: self.thin,
        })
    }
}

/// Where the bytes of a device are.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Keep the data in a file in this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the data on this block device
    #[arg(long = "device", id = "block", value_name = "PATH")]
    block: Option<PathBuf>,
    /// Keep the data on this export of an NBD server
    #[arg(long, value_name = "URI")]
    nbd: Option<String>,
}

impl Source {
    /// Converts the arguments to the source of a new device.
    fn wanted(self) -> anyhow::Result<NewSource> {
        Ok(match self {
            Source { dir: Some(dir), .. } => NewSource::Dir(absolute(&dir)?),
            Source {
                block: Some(path), ..
            } => NewSource::Block(absolute(&path)?),
            Source { nbd, .. } => NewSource::Nbd(nbd.unwrap_or_default()),
        })
    }
}

/// Returns a preset by its name.
fn parse_preset(name: &str) -> datapath::Result<&'static DevicePreset> {
    let known = model::PRESETS.iter().map(|p| p.name);
    model::preset(name).ok_or_else(|| datapath::DatapathError::unknown("preset", name, known))
}

/// Runs `terrace tier …`.
pub fn run(command: TierCommand) -> anyhow::Result<ExitCode> {
    match command {
        TierCommand::Add(add) => {
            // Errors of the description are reported before a device is added.
            let describe = |preset| Description::of(&add.tier, preset, add.config.as_deref());
            let description = add.preset.map(describe).transpose()?;
            let new = add.device.wanted(add.tier)?;
            let added = datapath::add_device(&add.array.array, add.extent, new);
            said(&added.map_err(|why| anyhow::anyhow!(why))?);
            if let Some(description) = description {
                description.write()?.lines().for_each(message);
            }
        }
        TierCommand::List { array, output } => {
            let ControlAnswer::Tiers {
                tiers,
                overcommit_max,
            } = array.ask(ControlRequest::Tiers)?
            else {
                return Err(unexpected());
            };
            let tiers = Tiers::of(tiers, overcommit_max);
            output.print("terrace.tier.list/1", &tiers, live_table::tiers)?;
        }
        TierCommand::Remove { array, tier } => array.order(ControlRequest::RemoveTier { tier })?,
        TierCommand::Limit {
            array,
            tier,
            iops,
            bandwidth,
        } => array.order(ControlRequest::TierLimits {
            tier,
            iops,
            bandwidth,
        })?,
        TierCommand::Cordon(order) => set_state(&order, TierState::Cordoned)?,
        TierCommand::Drain(order) => set_state(&order, TierState::Draining)?,
        TierCommand::Open(order) => set_state(&order, TierState::Open)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set_state(order: &TierOrder, state: TierState) -> anyhow::Result<()> {
    let done = order.asking.client()?.set_tier(&order.tier, state)?;
    order.asking.done(&done)
}
