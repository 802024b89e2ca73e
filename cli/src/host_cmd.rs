//! `terrace host …`: tests of a host of virtual machines.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent::qualify::record::Record;
use agent::qualify::{Finding, Settings, Way, qualify, word};
use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde::Serialize;
use vmhost::builds::Qualification;

use crate::live::{Go, OutputArg, Stop, explained, message};

/// `terrace host …`
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Test whether copies by this host's QEMU lose writes
    ///
    /// Runs copies under verified writes in QEMU processes of its own, with images of its own in new directories below DIR. Each storage needs 40
    /// starts and 20 pivots without a lost write. The result is recorded by build-id, and the agent applies it to guests of that build.
    Qualify(Qualify),
}

/// `terrace host qualify`
#[derive(Debug, Args)]
pub struct Qualify {
    /// Directories of images, one for each kind of storage
    #[arg(value_name = "DIR", required = true)]
    storages: Vec<PathBuf>,
    /// URI of libvirt, such as qemu:///system; by default that of virsh
    #[arg(long, value_name = "URI")]
    libvirt: Option<String>,
    /// Program of plain QEMU, to be qualified without libvirt
    #[arg(long, value_name = "PROGRAM", conflicts_with = "libvirt")]
    qemu: Option<PathBuf>,
    /// Time limit in minutes, including the cleanup
    #[arg(long, value_name = "MINUTES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs `terrace host …`.
pub fn run(command: HostCommand) -> anyhow::Result<ExitCode> {
    let HostCommand::Qualify(what) = command;
    let storages = what.storages.iter().map(std::fs::canonicalize);
    let storages = storages
        .zip(&what.storages)
        .map(|(found, dir)| found.map_err(|e| anyhow!("cannot use {}: {e}", dir.display())));
    let settings = Settings {
        way: match what.qemu {
            // The program is started with another working directory, so its path must be absolute.
            Some(program) if program.components().count() > 1 => {
                let found = std::fs::canonicalize(&program);
                Way::Qemu(found.map_err(|e| anyhow!("cannot use {}: {e}", program.display()))?)
            }
            Some(program) => Way::Qemu(program),
            None => Way::Libvirt(what.libvirt),
        },
        storages: storages.collect::<anyhow::Result<_>>()?,
        time: Duration::from_secs(what.minutes * 60),
    };
    let stop = Stop::listen()?;
    let stopped = Cell::new(false);
    let stops = || {
        stopped.set(stopped.get() || stop.sleep(Duration::ZERO) == Go::Stop);
        stopped.get()
    };
    let finding = qualify(&settings, &stops, &mut message).map_err(explained)?;
    let shown = QualificationView {
        result: word(finding.record.qualified()),
        record: &finding.record,
        file: finding.kept.as_ref().ok().map(|f| f.display().to_string()),
        not_recorded: finding.kept.as_ref().err().map(ToString::to_string),
    };
    what.output
        .print("terrace.qualification/1", &shown, |_| text(&finding))?;
    Ok(match (finding.record.qualified(), &finding.kept) {
        (Qualification::Passed, Ok(_)) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

#[derive(Serialize)]
struct QualificationView<'a> {
    result: &'static str,
    #[serde(flatten)]
    record: &'a Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_recorded: Option<String>,
}

fn text(finding: &Finding) -> String {
    let record = &finding.record;
    let mut text = format!(
        "QEMU {} (build-id {}), copies ordered by {}\n",
        record.build, record.build_id, record.by
    );
    for s in &record.storages {
        text += &format!(
            "{}: {} starts under writes ({} more proved nothing), {} pivots, {} cancels, {} kills; {} writes verified, {} lost\n",
            s.path, s.starts, s.unproven, s.pivots, s.cancels, s.kills, s.writes, s.lost
        );
        for fault in &s.faults {
            text += &format!("  fault: {fault}\n");
        }
    }
    text += match record.qualified() {
        Qualification::Passed => "qualified: the agent moves disks of guests with this build\n",
        Qualification::Undecided => {
            "undecided: too few copies; repeat it with more minutes, or on faster storage\n"
        }
        Qualification::Failed => {
            "failed: the agent moves no disk of guests with this build; upgrade QEMU\n"
        }
    };
    match &finding.kept {
        Ok(path) => text + &format!("recorded in {}\n", path.display()),
        Err(why) => text + &format!("not recorded, so the agent does not use this result: {why}\n"),
    }
}
