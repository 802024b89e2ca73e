//! Results of a long computation on disk, such as the cells of a sweep or the runs of an experiment. Each result is one
//! file. Its name is a hash of all inputs of the result.
//!
//! ```text
//!  terrace-sweep/
//!    lock                                    held by the command that writes here
//!    3c1b…e2.json                            a result: appears when it is complete
//!    3c1b…e2.json.tmp                        unfinished result of a program that was interrupted
//! ```
//!
//! A name belongs to one result for ever, so no file is ever out of date: a result exists or does not exist. Files are not
//! flushed to the device; a checksum detects files that a loss of power has damaged.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::RUN_SCHEMA;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::jobs;
use crate::progress::StepBar;
use crate::ray::{self, OneCell, OneCellDone, RayArg};

/// Name and version of the layout of a file.
const CELL_SCHEMA: &str = "terrace.sim.cell/1";

/// Returns the name of a cell's result. It depends on the program's version and on `identity`
/// (`sim::sweep::Sweep::identity`).
pub fn name(identity: &Value) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let all = json!([CELL_SCHEMA, RUN_SCHEMA, version, identity]);
    format!("{:032x}", xxh3_128(all.to_string().as_bytes()))
}

/// Result that can be stored. The file needs no version of its own, because the version is part of the name ([`name`]).
pub trait StorableResult: Serialize + DeserializeOwned {}

impl<R: Serialize + DeserializeOwned> StorableResult for R {}

/// Content of a file: a result with its checksum.
#[derive(Serialize, Deserialize)]
struct CellFile<R> {
    schema: String,
    /// Name of the cell, as in the file's name.
    cell: String,
    /// Duration of the computation in seconds.
    took_s: f64,
    /// XXH3-64 of the result as compact JSON.
    xxh3: String,
    result: R,
}

/// Stored state of a cell.
enum StoredCell<R> {
    /// No file exists.
    Missing,
    /// The file is damaged, for this reason.
    Damaged(String),
    /// Result, and the duration of its computation in seconds.
    Result(Box<R>, f64),
}

/// Directory of results.
pub struct Cells {
    dir: PathBuf,
    place: Place,
    /// Lock file; closing it releases the lock.
    _lock: Option<File>,
}

/// Place where missing results are computed.
#[derive(Debug)]
enum Place {
    /// Threads of this process.
    Here,
    /// Tasks of Ray at this address, or on this machine.
    Ray(Option<String>),
    /// Other processes, except this one cell. Its result is printed and not written.
    One(OneCell),
}

impl Cells {
    /// Opens the directory for this command only, and creates it if it does not exist.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join("lock");
        // The lock file is never truncated: a wrong directory may contain a user's file of that name.
        let mut options = File::options();
        let opened = options.create(true).truncate(false).write(true).open(&path);
        let lock = opened.with_context(|| format!("cannot open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another command is writing to {}: use another directory",
                    dir.display()
                )
            }
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(Self {
            dir: dir.into(),
            place: Place::Here,
            _lock: Some(lock),
        })
    }

    /// Opens the directory of a command with these options. A process that computes one cell only reads there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of_command(dir: &Path, ray: &RayArg) -> anyhow::Result<Self> {
        if let Some(one) = &ray.cell {
            return Ok(Self {
                dir: dir.into(),
                place: Place::One(one.clone()),
                _lock: None,
            });
        }
        let mut cells = Self::open(dir)?;
        if let Some(address) = &ray.ray {
            cells.place = Place::Ray(address.clone());
        }
        Ok(cells)
    }

    /// Returns the path of a cell's result.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }

    /// Returns the result of a cell, and the duration of its computation in seconds. Prints a warning for a damaged file
    /// and returns `None`.
    pub fn find<R: StorableResult>(&self, name: &str) -> Option<(R, f64)> {
        match self.read(name) {
            StoredCell::Missing => None,
            StoredCell::Result(result, took_s) => Some((*result, took_s)),
            StoredCell::Damaged(why) => {
                let path = self.path(name);
                let _ = writeln!(
                    io::stderr(),
                    "{path:?} is damaged and is computed again: {why}"
                );
                None
            }
        }
    }

    /// Reads the stored state of a cell.
    fn read<R: StorableResult>(&self, name: &str) -> StoredCell<R> {
        let bytes = match fs::read(self.path(name)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return StoredCell::Missing,
            Err(e) => return StoredCell::Damaged(e.to_string()),
        };
        match whole(name, &bytes) {
            Ok(file) => StoredCell::Result(Box::new(file.result), file.took_s),
            Err(why) => StoredCell::Damaged(why.to_string()),
        }
    }

    /// Writes the result of a cell atomically: the file is complete or does not exist.
    pub fn write<R: StorableResult>(
        &self,
        name: &str,
        result: &R,
        took_s: f64,
    ) -> anyhow::Result<()> {
        let bytes = encode(name, result, took_s)?;
        let path = self.path(name);
        let unfinished = self.dir.join(format!("{name}.json.tmp"));
        let write = || {
            let mut out = File::create(&unfinished)?;
            out.write_all(&bytes)?;
            fs::rename(&unfinished, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Result to find or to compute.
pub struct Task<T> {
    /// Input of the computation.
    pub item: T,
    /// Name of the result.
    pub name: String,
    /// True if a result that exists is not used.
    pub again: bool,
    /// Part of the command that the result belongs to, for a process that computes only this one ([`OneCell::of`]).
    pub of: Value,
}

/// Runs all items without a result in `cells`, as many at a time as there are cores, and stores their results. Returns the
/// results in the order of the items. Items with the same identity share one result.
///
/// # Errors
/// As [`run_tasks`].
pub fn run_kept<T: Sync, R: StorableResult + Send>(
    cells: Option<&Cells>,
    title: &str,
    items: &[T],
    identity: impl Fn(&T) -> Value,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let Some(cells) = cells else {
        return jobs::with_bar(title, items, work).into_iter().collect();
    };
    let task = |item| Task {
        name: name(&identity(item)),
        item,
        again: false,
        of: Value::Null,
    };
    let tasks: Vec<Task<&T>> = items.iter().map(task).collect();
    run_tasks(cells, title, &tasks, |item| work(item))
}

/// Finds or computes all results, here or on Ray, and returns them in the order of the tasks. In a process that computes one cell, it ends the
/// process's work with [`OneCellDone`], or returns nothing if the cell is not one of these.
///
/// # Errors
/// The first error of a task or of writing a result. Results that were written before remain.
pub fn run_tasks<T: Sync, R: StorableResult + Send>(
    cells: &Cells,
    title: &str,
    tasks: &[Task<T>],
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let made = match &cells.place {
        Place::One(one) => return print_one(one, tasks, work).map(|()| vec![]),
        Place::Ray(address) => {
            run_on_ray::<T, R>(cells, title, tasks, address.as_deref())?;
            true
        }
        Place::Here => false,
    };
    let one = |task: &Task<T>| {
        if (made || !task.again)
            && let Some((result, _)) = cells.find(&task.name)
        {
            return Ok(result);
        }
        let started = Instant::now();
        let result = work(&task.item)?;
        cells.write(&task.name, &result, started.elapsed().as_secs_f64())?;
        Ok(result)
    };
    jobs::with_bar(title, tasks, one).into_iter().collect()
}

/// Computes the results that do not exist on Ray. Afterwards all results are in the directory.
fn run_on_ray<T: Sync, R: StorableResult + Send>(
    cells: &Cells,
    title: &str,
    tasks: &[Task<T>],
    address: Option<&str>,
) -> anyhow::Result<()> {
    let exists = jobs::side_by_side(tasks, |task| {
        !task.again && cells.find::<R>(&task.name).is_some()
    });
    let mut names = BTreeSet::new();
    let missing = tasks.iter().zip(exists).filter(|(_, exists)| !exists);
    let missing = missing.filter(|(task, _)| names.insert(&task.name));
    let missing = missing.map(|(task, _)| OneCell {
        name: task.name.clone(),
        of: task.of.clone(),
    });
    let missing: Vec<OneCell> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command: Vec<_> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let definition = json!({
        "command": command,
        "cells": missing,
        "directory": cells.dir,
        "address": address,
    });
    let bar = StepBar::new(title, missing.len() as u64);
    let mut failed: Option<String> = None;
    ray::run(&definition, address, &mut |line| {
        bar.step();
        if let Some(why) = line.error {
            failed.get_or_insert(why);
        }
        Ok(())
    })?;
    match failed {
        Some(why) => Err(anyhow!(why)),
        None => Ok(()),
    }
}

/// Computes one result and prints the content of its file, if it is a result of these tasks.
fn print_one<T, R: StorableResult>(
    one: &OneCell,
    tasks: &[Task<T>],
    work: impl Fn(&T) -> anyhow::Result<R>,
) -> anyhow::Result<()> {
    let Some(task) = tasks.iter().find(|task| task.name == one.name) else {
        return Ok(());
    };
    let started = Instant::now();
    let result = work(&task.item)?;
    let bytes = encode(&task.name, &result, started.elapsed().as_secs_f64())?;
    let mut out = io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()?;
    Err(OneCellDone.into())
}

/// Returns the content of a result's file.
///
/// # Errors
/// The result has no JSON form.
pub fn encode<R: StorableResult>(name: &str, result: &R, took_s: f64) -> anyhow::Result<Vec<u8>> {
    let file = json!(CellFile {
        schema: CELL_SCHEMA.into(),
        cell: name.into(),
        took_s,
        xxh3: checksum(result)?,
        result,
    });
    Ok(serde_json::to_vec(&file)?)
}

/// Reads the content of a result's file. Returns the result, and the duration of its computation in seconds.
///
/// # Errors
/// The file is damaged or belongs to another result.
pub fn decode<R: StorableResult>(name: &str, bytes: &[u8]) -> anyhow::Result<(R, f64)> {
    let file = whole(name, bytes)?;
    Ok((file.result, file.took_s))
}

fn checksum<R: StorableResult>(result: &R) -> serde_json::Result<String> {
    let bytes = serde_json::to_vec(result)?;
    Ok(format!("{:016x}", xxh3_64(&bytes)))
}

fn whole<R: StorableResult>(name: &str, bytes: &[u8]) -> anyhow::Result<CellFile<R>> {
    let file: CellFile<R> = serde_json::from_slice(bytes)?;
    if file.schema != CELL_SCHEMA {
        bail!("unsupported schema {}: expected {CELL_SCHEMA}", file.schema);
    }
    if file.cell != name {
        bail!("it is the result of {}", file.cell);
    }
    // A result that was read is written with the same bytes, so its checksum can be computed from the parsed value.
    let sum = checksum(&file.result)?;
    if sum != file.xxh3 {
        bail!("its checksum is {sum}, not {}", file.xxh3);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Square(f64);

    fn squares(cells: &Cells, upto: usize, ran: &std::sync::atomic::AtomicUsize) -> Vec<Square> {
        let items: Vec<usize> = (0..upto).collect();
        let work = |i: &usize| {
            ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(Square((*i as f64).sqrt()))
        };
        run_kept(Some(cells), "squares", &items, |i| json!(i), work).unwrap()
    }

    #[test]
    fn stored_cells_are_not_run_again_and_damaged_ones_are() {
        let dir = tempfile::tempdir().unwrap();
        let cells = Cells::open(dir.path()).unwrap();
        let ran = std::sync::atomic::AtomicUsize::new(0);
        let first = squares(&cells, 3, &ran);
        assert!(Cells::open(dir.path()).is_err(), "two at once");
        let again = squares(&cells, 5, &ran);
        assert_eq!((&again[..3], ran.into_inner()), (&first[..], 5));
        let path = cells.path(&name(&json!(2)));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("1.4", "1.5")).unwrap();
        let ran = std::sync::atomic::AtomicUsize::new(0);
        assert_eq!(squares(&cells, 5, &ran), again);
        assert_eq!(ran.into_inner(), 1);
    }
}
