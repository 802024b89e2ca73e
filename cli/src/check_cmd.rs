//! `terrace volume check` and `repair`: map, copies of the map, and devices of an array that is not served.

use std::fmt::Write;
use std::process::ExitCode;

use array::{Array, Change, CheckReport, CopyHealth, RepairRecord};
use datapath::{Keeper, KeeperError, ReachError};
use serde::Serialize;

use crate::live::{ArrayArg, OutputArg, explained};

#[derive(Serialize)]
struct CheckResult {
    tiers: u64,
    devices: u64,
    volumes: u64,
    extents: u64,
    moves: u64,
    repaired: Vec<String>,
    problems: Vec<String>,
}

/// Returns the problems of the devices and of the copies of the map: superblocks, sizes, generations.
fn parts(keeper: &Keeper) -> Vec<String> {
    let doubt = keeper.not_believed().map(|why| format!("map: {why}"));
    // An unverified map must not be changed because of one option alone.
    let both = match doubt {
        Some(_) => {
            " (until the map is trusted again, `terrace device accept`, `replace` and `remove` also need `--accept-loss map`)"
        }
        None => "",
    };
    let lost = keeper.lost.iter().map(|(id, lost)| {
        let name = &keeper.records[id].name;
        format!("device {name}: {}{both}", lost.why)
    });
    let stale = keeper
        .map
        .health()
        .into_iter()
        .filter_map(|(copy, path, health)| match health {
            CopyHealth::Dropped { why } | CopyHealth::Damaged { why } => {
                Some(format!("{copy} copy of the map, {path}: {why}"))
            }
            CopyHealth::Member | CopyHealth::Removed | CopyHealth::Rebuilding { .. } => None,
        });
    doubt.into_iter().chain(lost).chain(stale).collect()
}

impl CheckResult {
    fn new(report: &CheckReport, of_parts: Vec<String>, repaired: Vec<String>) -> Self {
        Self {
            tiers: report.tiers,
            devices: report.devices,
            volumes: report.volumes,
            extents: report.extents,
            moves: report.moves,
            repaired,
            problems: {
                let of_map = report.problems.iter().map(ToString::to_string);
                of_map.chain(of_parts).collect()
            },
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

/// Array that is not served: as a whole, or only its map if the map contradicts itself.
enum OpenedArray {
    Whole(Box<Keeper>),
    Map(Array),
}

fn open(array: &ArrayArg) -> anyhow::Result<OpenedArray> {
    match datapath::open_to_look(&array.array) {
        Ok(keeper) => Ok(OpenedArray::Whole(Box::new(keeper))),
        Err(ReachError::Keeper(KeeperError::Slots(_))) => {
            let map = Array::look_at(&array.array.join(array::MAP_FILE));
            Ok(OpenedArray::Map(map.map_err(explained)?))
        }
        Err(error) => Err(explained(error)),
    }
}

/// Runs `terrace volume check`. Fails if problems are found.
pub fn check(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let checked = match open(array)? {
        OpenedArray::Whole(keeper) => {
            let report = keeper.map.check().map_err(explained)?;
            CheckResult::new(&report, parts(&keeper), vec![])
        }
        OpenedArray::Map(map) => CheckResult::new(&map.check().map_err(explained)?, vec![], vec![]),
    };
    output.print("terrace.volume.check/1", &checked, CheckResult::text)?;
    Ok(checked.code())
}

/// Runs `terrace volume repair`. Fails if problems remain.
pub fn repair(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let mut repaired = vec![];
    if let OpenedArray::Map(map) = open(array)? {
        let before = map.check().map_err(explained)?;
        let map = map.open_for_changes().map_err(explained)?;
        repaired = map.repair(&before).map_err(explained)?;
    }
    let checked = match open(array)? {
        OpenedArray::Map(map) => {
            let left = map.check().map_err(explained)?;
            CheckResult::new(&left, vec![], said(&repaired))
        }
        OpenedArray::Whole(mut keeper) => {
            let before = keeper.map.check().map_err(explained)?;
            let map = keeper.map.array().map_err(explained)?;
            let more = map.repairs(&before).map_err(explained)?;
            let changes: Vec<Change> = more.iter().map(|r| Change::Repair(r.repair)).collect();
            keeper.commit(&changes).map_err(explained)?;
            repaired.extend(more);
            // An outdated copy of the map is also repaired.
            let copies = keeper.finish_copies().err();
            keeper.note_changes();
            let left = keeper.map.check().map_err(explained)?;
            let mut problems = parts(&keeper);
            problems.extend(copies.map(|why| why.to_string()));
            CheckResult::new(&left, problems, said(&repaired))
        }
    };
    output.print("terrace.volume.repair/1", &checked, CheckResult::text)?;
    Ok(checked.code())
}

fn said(repaired: &[RepairRecord]) -> Vec<String> {
    repaired.iter().map(ToString::to_string).collect()
}
