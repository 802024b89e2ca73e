//! Conversion of traces to page references for `terrace sim cache`, and export of references for other simulators.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use cache::{References, ReferencesBuilder, ReferencesConfig};
use clap::ValueEnum;
use model::Op;
use trace::{ReadOptions, Times};

use crate::progress::Bar;
use crate::trace_cmd::{message, open, warn_of_assumed};

/// Number of records between two updates of the progress bar.
const LOOK_EVERY: u64 = 1 << 16;

/// Which requests go through the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ops {
    /// Reads and writes alike
    All,
    /// Reads
    Reads,
    /// Writes
    Writes,
}

impl Ops {
    fn takes(self, op: Op) -> bool {
        match op {
            Op::Read => self != Self::Writes,
            Op::Write => self != Self::Reads,
            // They insert nothing into a cache.
            Op::Trim | Op::Flush => false,
        }
    }
}

/// Loaded trace.
pub struct CacheTrace {
    pub references: References,
    /// Names of the volumes.
    pub names: Vec<String>,
    /// True if the trace has times.
    pub timed: bool,
}

/// Reads a trace of any format.
pub fn read(
    path: &Path,
    options: &ReadOptions,
    config: ReferencesConfig,
    ops: Ops,
) -> anyhow::Result<CacheTrace> {
    let mut builder = ReferencesBuilder::new(config)?;
    let mut stream = open(path, options)?;
    let mut bar = Bar::new(&path.file_name().unwrap_or_default().to_string_lossy());
    let timed = stream.times() == Times::Measured;
    let mut records = 0u64;
    while let Some((record, _)) = stream.next_record()? {
        records += 1;
        if records.is_multiple_of(LOOK_EVERY) {
            bar.update(stream.progress());
        }
        if ops.takes(record.op()) {
            let time = timed.then_some(record.time_ns);
            let (offset, length) = (record.offset_bytes, record.length_bytes);
            let pushed = builder.push(time, record.volume(), offset, length);
            pushed.with_context(|| format!("{}: record {records}", path.display()))?;
        }
    }
    drop(bar);
    if let Some(why) = stream.format_assumed() {
        warn_of_assumed(&path.display().to_string(), stream.format(), why);
    }
    if stream.skipped() > 0 {
        message(format_args!(
            "skipped: {}: {} bad records",
            path.display(),
            stream.skipped()
        ));
    }
    let names = stream.volumes();
    let names = (0..names.len() as u32)
        .map(|v| names.get(v).unwrap_or_default().to_string())
        .collect();
    let references = builder
        .finish()
        .with_context(|| path.display().to_string())?;
    anyhow::ensure!(
        !references.pages().is_empty(),
        "{}: the trace has no page references to simulate ({records} records)",
        path.display()
    );
    Ok(CacheTrace {
        references,
        names,
        timed,
    })
}

/// Writes references as records of libCacheSim's format oracleGeneral: the number of the reference as its time, the page, a size
/// of 1, and the number of the next reference to it (-1: none).
pub fn export(path: &Path, references: &References) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let pages = references.pages();
    let mut last = vec![-1i64; references.universe() as usize];
    let mut next = vec![-1i64; pages.len()];
    for (at, page) in pages.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut last[*page as usize], at as i64);
    }
    let write = || -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        for (at, (page, next)) in pages.iter().zip(&next).enumerate() {
            out.write_all(&(at as u32).to_le_bytes())?;
            // Page numbers start at 1, because other simulators treat zero specially.
            out.write_all(&(u64::from(*page) + 1).to_le_bytes())?;
            out.write_all(&1u32.to_le_bytes())?;
            out.write_all(&next.to_le_bytes())?;
        }
        out.flush()
    };
    write().with_context(failed)
}
