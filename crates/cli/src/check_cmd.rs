//! `terrace volume check` and `repair`: the map of an array that nobody serves.

use std::fmt::Write;
use std::process::ExitCode;

use array::{Array, CheckReport};
use serde::Serialize;

use crate::live::{ArrayArg, OutputArg, explained};

#[derive(Serialize)]
struct Checked {
    tiers: u64,
    devices: u64,
    volumes: u64,
    extents: u64,
    moves: u64,
    repaired: Vec<String>,
    problems: Vec<String>,
}

impl Checked {
    fn new(report: &CheckReport, repaired: Vec<String>) -> Self {
        Self {
            tiers: report.tiers,
            devices: report.devices,
            volumes: report.volumes,
            extents: report.extents,
            moves: report.moves,
            repaired,
            problems: report.problems.iter().map(ToString::to_string).collect(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.repaired {
            let _ = writeln!(out, "repaired: {}", report::printable(line));
        }
        for line in &self.problems {
            let _ = writeln!(out, "problem: {}", report::printable(line));
        }
        let Self {
            tiers,
            devices,
            volumes,
            extents,
            moves,
            problems,
            ..
        } = self;
        let _ = writeln!(
            out,
            "{tiers} tiers, {devices} devices, {volumes} volumes, {extents} extents, {moves} moves: {}",
            match problems.len() {
                0 => "no problem".to_owned(),
                1 => "1 problem".to_owned(),
                n => format!("{n} problems"),
            }
        );
        out
    }

    fn code(&self) -> ExitCode {
        match self.problems.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

fn open(array: &ArrayArg) -> anyhow::Result<Array> {
    datapath::open_to_serve(&array.array).map_err(explained)
}

/// Runs `terrace volume check`: fails if there are problems.
pub fn check(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let report = open(array)?.check().map_err(explained)?;
    let checked = Checked::new(&report, vec![]);
    output.print("terrace.volume.check/1", &checked, Checked::text)?;
    Ok(checked.code())
}

/// Runs `terrace volume repair`: fails if problems are left.
pub fn repair(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let array = open(array)?;
    let before = array.check().map_err(explained)?;
    let repaired = array.repair(&before).map_err(explained)?;
    let left = array.check().map_err(explained)?;
    let repaired = repaired.iter().map(ToString::to_string).collect();
    let checked = Checked::new(&left, repaired);
    output.print("terrace.volume.repair/1", &checked, Checked::text)?;
    Ok(checked.code())
}
