//! Simulation of caches in front of a trace, under native policies and under policies in Python.

use std::sync::Arc;

use cache::{
    EvaluateOptions, PolicyKind, References, ReferencesBuilder, ReferencesConfig, evaluate,
};
use model::Op;
use pyo3::prelude::*;
use pyo3::types::PyList;
use trace::{LoadedTrace, Times};
use units::Bytes;

use crate::error::{error, other};
use crate::interrupt::{Abandoned, interruptible};
use crate::table::Table;
use crate::traces::Size;
use tables::Columns;

/// Layout of the table.
const CACHE_SCHEMA: &str = "terrace.cache/1";
/// References that a policy in Python gets between two looks at signals.
const CHUNK: usize = 1 << 16;

/// Policy of one simulation.
enum Policy<'py> {
    Native(PolicyKind),
    /// Class, or any callable that makes a policy from its capacity in pages.
    Python(Bound<'py, PyAny>),
}

/// Row of the result.
struct Row {
    policy: String,
    size_bytes: u64,
    references: u64,
    hits: u64,
}

/// Simulates every policy at every size. All reads and writes go through the cache.
pub fn simulate(
    py: Python<'_>,
    trace: &Arc<LoadedTrace>,
    policies: &[Bound<'_, PyAny>],
    sizes: &[Size],
    page: Bytes,
) -> PyResult<Table> {
    let policies: PyResult<Vec<(String, Policy<'_>)>> = policies.iter().map(policy).collect();
    let policies = policies?;
    let sizes: PyResult<Vec<(u64, u32)>> = sizes
        .iter()
        .map(|size| {
            let bytes = size.bytes("sizes")?.0;
            let pages = u32::try_from(bytes / page.0.max(1)).ok();
            let pages = pages.filter(|n| (1..=cache::CAPACITY_PAGES_MAX).contains(n));
            pages.map(|n| (bytes, n)).ok_or_else(|| {
                error(format!(
                    "sizes: {bytes} bytes are not 1 to {} pages of {page}",
                    cache::CAPACITY_PAGES_MAX
                ))
            })
        })
        .collect();
    let sizes = sizes?;
    let trace = Arc::clone(trace);
    let references = interruptible(py, move |_| references(&trace, page))??;
    let references = Arc::new(references);
    let mut rows = Vec::new();
    for (name, policy) in &policies {
        for (size_bytes, capacity) in &sizes {
            let hits = match policy {
                Policy::Native(kind) => {
                    let (references, kind, capacity) = (Arc::clone(&references), *kind, *capacity);
                    interruptible(py, move |abandoned| {
                        native(&references, kind, capacity, abandoned)
                    })?
                }
                Policy::Python(make) => python(name, make, &references, *capacity)?,
            };
            rows.push(Row {
                policy: name.clone(),
                size_bytes: *size_bytes,
                references: references.pages().len() as u64,
                hits,
            });
        }
    }
    let ratio = |r: &Row| (r.references > 0).then(|| 1.0 - r.hits as f64 / r.references as f64);
    let columns = Columns::default()
        .text("policy", rows.iter().map(|r| Some(&r.policy)))
        .u64("size_bytes", "B", rows.iter().map(|r| Some(r.size_bytes)))
        .u64("references", "", rows.iter().map(|r| Some(r.references)))
        .u64("hits", "", rows.iter().map(|r| Some(r.hits)))
        .u64(
            "misses",
            "",
            rows.iter().map(|r| Some(r.references - r.hits)),
        )
        .f64("miss_ratio", "", rows.iter().map(ratio))
        .finish(CACHE_SCHEMA);
    Ok(columns.into())
}

fn policy<'py>(given: &Bound<'py, PyAny>) -> PyResult<(String, Policy<'py>)> {
    if let Ok(name) = given.extract::<String>() {
        let kind = name.parse::<PolicyKind>().map_err(other)?;
        return Ok((name, Policy::Native(kind)));
    }
    if !given.is_callable() {
        return Err(error(
            "a cache policy is a name or a class whose instances have access(page)",
        ));
    }
    let name = match given.getattr("__name__") {
        Ok(name) => name.extract()?,
        Err(_) => given.get_type().name()?.to_string(),
    };
    Ok((name, Policy::Python(given.clone())))
}

fn references(trace: &LoadedTrace, page: Bytes) -> PyResult<References> {
    let config = ReferencesConfig {
        page_bytes: page.0,
        sample: None,
        seed: 0,
    };
    let mut builder = ReferencesBuilder::new(config).map_err(other)?;
    let timed = trace.times == Times::Measured;
    for record in trace.records() {
        if matches!(record.op(), Op::Read | Op::Write) {
            let time = timed.then_some(record.time_ns);
            let (offset, length) = (record.offset_bytes, record.length_bytes);
            builder
                .push(time, record.volume(), offset, length)
                .map_err(other)?;
        }
    }
    builder.finish().map_err(other)
}

fn native(references: &References, kind: PolicyKind, capacity: u32, abandoned: &Abandoned) -> u64 {
    let options = EvaluateOptions::default();
    let progress = &mut |_| abandoned.check();
    let found = evaluate(references, kind, capacity, &options, progress);
    found.tally.pages.hits
}

/// Number of hits of a policy in Python. The interpreter's own loop (`map`) calls it, reference by reference, which costs less than a call
/// from here; a policy with `access_many` gets the references in batches.
fn python(
    name: &str,
    make: &Bound<'_, PyAny>,
    references: &References,
    capacity: u32,
) -> PyResult<u64> {
    let py = make.py();
    let policy = make.call1((capacity,))?;
    if let Some(many) = policy.getattr_opt("access_many")? {
        return batches(name, &many, references);
    }
    let access = policy.getattr("access").map_err(|_| {
        error(format!(
            "cache policy {name} has neither access(page) nor access_many(pages)"
        ))
    })?;
    let builtins = py.import("builtins")?;
    let (list, map) = (builtins.getattr("list")?, builtins.getattr("map")?);
    let mut hits = 0u64;
    for chunk in references.pages().chunks(CHUNK) {
        let pages = PyList::new(py, chunk)?;
        let found = list.call1((map.call1((&access, pages))?,))?;
        let count =
            |value: bool| -> PyResult<u64> { found.call_method1("count", (value,))?.extract() };
        let hit = count(true)?;
        if hit + count(false)? != chunk.len() as u64 {
            return Err(error(format!(
                "cache policy {name}: access(page) must return True for a hit and False for a miss"
            )));
        }
        hits += hit;
        py.check_signals()?;
    }
    Ok(hits)
}

/// Hits of a policy that takes batches: `access_many(pages)`, with an `array.array` of unsigned 32-bit numbers, returns the hits in it.
fn batches(name: &str, many: &Bound<'_, PyAny>, references: &References) -> PyResult<u64> {
    let py = many.py();
    let array = py.import("array")?.getattr("array")?;
    let mut hits = 0u64;
    for chunk in references.pages().chunks(CHUNK) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|p| p.to_ne_bytes()).collect();
        let pages = array.call1(("I", pyo3::types::PyBytes::new(py, &bytes)))?;
        let hit: u64 = many.call1((pages,))?.extract()?;
        if hit > chunk.len() as u64 {
            return Err(error(format!(
                "cache policy {name}: access_many(pages) returned {hit} hits of {} references",
                chunk.len()
            )));
        }
        hits += hit;
        py.check_signals()?;
    }
    Ok(hits)
}
