//! `terrace volume check` and `repair`: the map, its copies and the devices of an array that nobody serves.

use std::fmt::Write;
use std::process::ExitCode;

use array::{Array, Change, CheckReport, CopyHealth, Repaired};
use datapath::{Keeper, KeeperError, ReachError};
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

/// What is wrong with the devices and the copies of the map: superblocks, sizes, generations.
fn parts(keeper: &Keeper) -> Vec<String> {
    let doubt = keeper.not_believed().map(|why| format!("map: {why}"));
    // Until the map is believed nothing is changed in it by one word alone.
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

impl Checked {
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

/// An array that nobody serves: as a whole, or only its map where that contradicts itself.
enum Opened {
    Whole(Box<Keeper>),
    Map(Array),
}

fn open(array: &ArrayArg) -> anyhow::Result<Opened> {
    match datapath::open_to_look(&array.array) {
        Ok(keeper) => Ok(Opened::Whole(Box::new(keeper))),
        Err(ReachError::Keeper(KeeperError::Slots(_))) => {
            let map = Array::look_at(&array.array.join(array::MAP_FILE));
            Ok(Opened::Map(map.map_err(explained)?))
        }
        Err(error) => Err(explained(error)),
    }
}

/// Runs `terrace volume check`: fails if there are problems.
pub fn check(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let checked = match open(array)? {
        Opened::Whole(keeper) => {
            let report = keeper.map.check().map_err(explained)?;
            Checked::new(&report, parts(&keeper), vec![])
        }
        Opened::Map(map) => Checked::new(&map.check().map_err(explained)?, vec![], vec![]),
    };
    output.print("terrace.volume.check/1", &checked, Checked::text)?;
    Ok(checked.code())
}

/// Runs `terrace volume repair`: fails if problems are left.
pub fn repair(array: &ArrayArg, output: &OutputArg) -> anyhow::Result<ExitCode> {
    let mut repaired = vec![];
    if let Opened::Map(map) = open(array)? {
        let before = map.check().map_err(explained)?;
        let map = map.open_for_changes().map_err(explained)?;
        repaired = map.repair(&before).map_err(explained)?;
    }
    let checked = match open(array)? {
        Opened::Map(map) => {
            let left = map.check().map_err(explained)?;
            Checked::new(&left, vec![], said(&repaired))
        }
        Opened::Whole(mut keeper) => {
            let before = keeper.map.check().map_err(explained)?;
            let map = keeper.map.array().map_err(explained)?;
            let more = map.repairs(&before).map_err(explained)?;
            let changes: Vec<Change> = more.iter().map(|r| Change::Repair(r.repair)).collect();
            keeper.commit(&changes).map_err(explained)?;
            repaired.extend(more);
            // A copy of the map that is out of date is one more thing to repair.
            let copies = keeper.finish_copies().err();
            keeper.note_changes();
            let left = keeper.map.check().map_err(explained)?;
            let mut problems = parts(&keeper);
            problems.extend(copies);
            Checked::new(&left, problems, said(&repaired))
        }
    };
    output.print("terrace.volume.repair/1", &checked, Checked::text)?;
    Ok(checked.code())
}

fn said(repaired: &[Repaired]) -> Vec<String> {
    repaired.iter().map(ToString::to_string).collect()
}
