//! `terrace volume snapshot …`: snapshots, the content of volumes at one time.

use std::process::ExitCode;

use clap::Subcommand;
use datapath::control_server::ControlRequest;
use serde::Serialize;

use crate::live::{ArrayArg, OutputArg, wrong_usage};
use crate::live_table;
use crate::volume_listed::{ListedVolume, ListedVolumes};

/// `terrace volume snapshot …`
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Create a snapshot of a volume while guests use it; the two share unchanged extents
    Create {
        #[command(flatten)]
        array: ArrayArg,
        /// The volume
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// The snapshot's name; it is called VOLUME@NAME
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the snapshots of a volume, or of all
    List {
        #[command(flatten)]
        array: ArrayArg,
        /// The volume; all if left out
        #[arg(value_name = "VOLUME")]
        volume: Option<String>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Delete a snapshot; its volume, and other snapshots, stay as they are
    Delete {
        #[command(flatten)]
        array: ArrayArg,
        /// The snapshot, as VOLUME@NAME
        #[arg(value_name = "SNAPSHOT")]
        snapshot: String,
        /// Confirm: the data cannot be recovered
        #[arg(long)]
        yes: bool,
    },
    /// Restore a volume from a snapshot; no guest may be connected
    Restore {
        #[command(flatten)]
        array: ArrayArg,
        /// The snapshot, as VOLUME@NAME
        #[arg(value_name = "SNAPSHOT")]
        snapshot: String,
        /// Confirm: data written after the snapshot is lost
        #[arg(long)]
        yes: bool,
    },
}

/// Listed snapshots.
#[derive(Debug, Serialize)]
struct SnapshotList {
    /// Snapshots in order of creation.
    snapshots: Vec<ListedVolume>,
}

/// Runs `terrace volume snapshot …`.
pub fn run(command: SnapshotCommand) -> anyhow::Result<ExitCode> {
    match command {
        SnapshotCommand::Create {
            array,
            volume,
            name,
        } => array.order(ControlRequest::TakeSnapshot { volume, name })?,
        SnapshotCommand::List {
            array,
            volume,
            output,
        } => {
            if let Some(volume) = &volume {
                ListedVolume::of(&array, volume)?; // the error lists the existing volumes
            }
            let mut snapshots = ListedVolumes::of(&array)?.volumes;
            snapshots.retain(|v| {
                let of = v.info.snapshot.as_ref().map(|s| &s.of);
                of.is_some_and(|of| volume.as_ref().is_none_or(|wanted| wanted == of))
            });
            let all = SnapshotList { snapshots };
            let text = |all: &SnapshotList| live_table::snapshots(&all.snapshots);
            output.print("terrace.volume.snapshot.list/1", &all, text)?;
        }
        SnapshotCommand::Delete { snapshot, yes, .. } if !yes => {
            return Ok(wrong_usage(&format!(
                "the data of snapshot {snapshot:?} would be lost for ever: add --yes to delete it"
            )));
        }
        SnapshotCommand::Delete {
            array, snapshot, ..
        } => {
            if ListedVolume::of(&array, &snapshot)?.info.snapshot.is_none() {
                anyhow::bail!(
                    "{snapshot} is not a snapshot: use `terrace volume delete` for volumes"
                );
            }
            array.order(ControlRequest::Delete {
                volume: snapshot,
                force: false,
            })?;
        }
        SnapshotCommand::Restore { snapshot, yes, .. } if !yes => {
            return Ok(wrong_usage(&format!(
                "data written after snapshot {snapshot:?} would be lost: add --yes to restore it"
            )));
        }
        SnapshotCommand::Restore {
            array, snapshot, ..
        } => array.order(ControlRequest::RestoreSnapshot { snapshot })?,
    }
    Ok(ExitCode::SUCCESS)
}
