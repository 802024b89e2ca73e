//! Results of a longer piece of work on disk, of a sweep's cells or an experiment's runs: one file each, named by all that the result depends on.
//!
//! ```text
//!  terrace-sweep/
//!    lock                                    held by the command that writes here
//!    3c1b…e2.json                            a result: appears when it is complete
//!    3c1b…e2.json.tmp                        one that was being written when something ended the program
//! ```
//!
//! A name is never given to another result, so nothing that is here ever has to be dated: what a command asks for is there or
//! is not. Files are not flushed to the device; what a loss of power leaves of one is found out by its checksum.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::RUN_SCHEMA;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::jobs;

/// Name and version of the layout of a file.
const CELL_SCHEMA: &str = "terrace.sim.cell/1";

/// The name of a cell's result, from what it depends on besides the program (`sim::sweep::Sweep::identity`).
pub fn name(identity: &Value) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let all = json!([CELL_SCHEMA, RUN_SCHEMA, version, identity]);
    format!("{:032x}", xxh3_128(all.to_string().as_bytes()))
}

/// What can be kept. Its version is in the name ([`name`]): no other one has it.
pub trait Kept: Serialize + DeserializeOwned {}

impl<R: Serialize + DeserializeOwned> Kept for R {}

/// A result with what says that it is whole.
#[derive(Serialize, Deserialize)]
struct CellFile<R> {
    schema: String,
    /// Its own name.
    cell: String,
    /// How long it took.
    took_s: f64,
    /// XXH3-64 of the result as compact JSON.
    xxh3: String,
    result: R,
}

/// What is there of a cell.
enum Found<R> {
    /// Nothing.
    Missing,
    /// A file that is not what it should be, and why.
    Damaged(String),
    /// Its result, and the seconds that it took.
    Result(Box<R>, f64),
}

/// A directory of results.
pub struct Cells {
    dir: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Cells {
    /// Opens the directory, which is made if it is not there, for this command only.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join("lock");
        // Never emptied: a directory that is given by mistake may have a file of that name.
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
            _lock: lock,
        })
    }

    /// Where the result of a cell is.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }

    /// The result of a cell and the seconds that it took, if it is there. One that is damaged is told, and is not.
    pub fn find<R: Kept>(&self, name: &str) -> Option<(R, f64)> {
        match self.read(name) {
            Found::Missing => None,
            Found::Result(result, took_s) => Some((*result, took_s)),
            Found::Damaged(why) => {
                let path = self.path(name);
                let _ = writeln!(
                    io::stderr(),
                    "{path:?} is damaged and is computed again: {why}"
                );
                None
            }
        }
    }

    /// What is there of a cell.
    fn read<R: Kept>(&self, name: &str) -> Found<R> {
        let bytes = match fs::read(self.path(name)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Found::Missing,
            Err(e) => return Found::Damaged(e.to_string()),
        };
        match whole(name, &bytes) {
            Ok(file) => Found::Result(Box::new(file.result), file.took_s),
            Err(why) => Found::Damaged(why),
        }
    }

    /// Writes the result of a cell: it is there in full or not at all.
    pub fn write<R: Kept>(&self, name: &str, result: &R, took_s: f64) -> anyhow::Result<()> {
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

/// Runs all items that have no result in `cells` yet, as many at once as there are cores, and keeps what they give; results in the order of the
/// items. Two items with the same identity are the same.
///
/// # Errors
/// The first of an item's, or of a result that cannot be written: those that were written are kept.
pub fn run_kept<T: Sync, R: Kept + Send>(
    cells: Option<&Cells>,
    title: &str,
    items: &[T],
    identity: impl Fn(&T) -> Value + Sync,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let one = |item: &T| {
        let Some(cells) = cells else {
            return work(item);
        };
        let name = name(&identity(item));
        if let Some((result, _)) = cells.find(&name) {
            return Ok(result);
        }
        let started = Instant::now();
        let result = work(item)?;
        cells.write(&name, &result, started.elapsed().as_secs_f64())?;
        Ok(result)
    };
    jobs::with_bar(title, items, one).into_iter().collect()
}

/// Content of a result's file.
///
/// # Errors
/// A result that has no JSON form.
pub fn encode<R: Kept>(name: &str, result: &R, took_s: f64) -> anyhow::Result<Vec<u8>> {
    let file = json!(CellFile {
        schema: CELL_SCHEMA.into(),
        cell: name.into(),
        took_s,
        xxh3: checksum(result)?,
        result,
    });
    Ok(serde_json::to_vec(&file)?)
}

/// Reads the content of a result's file: the result, and the seconds that it took.
///
/// # Errors
/// A damaged file, and one of another result.
pub fn decode<R: Kept>(name: &str, bytes: &[u8]) -> Result<(R, f64), String> {
    let file = whole(name, bytes)?;
    Ok((file.result, file.took_s))
}

fn checksum<R: Kept>(result: &R) -> serde_json::Result<String> {
    let bytes = serde_json::to_vec(result)?;
    Ok(format!("{:016x}", xxh3_64(&bytes)))
}

fn whole<R: Kept>(name: &str, bytes: &[u8]) -> Result<CellFile<R>, String> {
    let file: CellFile<R> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if file.schema != CELL_SCHEMA {
        return Err(format!(
            "unsupported schema {}: expected {CELL_SCHEMA}",
            file.schema
        ));
    }
    if file.cell != name {
        return Err(format!("it is the result of {}", file.cell));
    }
    // What was read is written with the same bytes.
    match checksum(&file.result) {
        Ok(sum) if sum == file.xxh3 => Ok(file),
        Ok(sum) => Err(format!("its checksum is {sum}, not {}", file.xxh3)),
        Err(e) => Err(e.to_string()),
    }
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
    fn what_is_kept_is_not_run_again_and_what_is_damaged_is() {
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
