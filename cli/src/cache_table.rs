//! What `terrace sim cache` shows.

use std::io::{self, Write};

use cache::ReferencesConfig;
use serde::Serialize;
use tables::{Columns, RecordBatch};

use crate::trace_table::{aligned, size};

/// A trace and what was simulated with it.
#[derive(Debug, Serialize)]
pub struct TraceResult {
    pub file: String,
    /// Requests that went through the cache.
    pub requests: u64,
    /// References to pages that they are.
    pub references: u64,
    /// Bytes that they want.
    pub bytes: u64,
    /// Pages that occur; of a sample, an estimate.
    pub working_set_pages: u64,
    /// The same in bytes.
    pub working_set_bytes: u64,
    /// References that were simulated: fewer in a sample.
    pub simulated_references: u64,
    pub simulated_pages: u32,
    /// By policy and size.
    pub results: Vec<Row>,
}

/// A policy at a size.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub policy: &'static str,
    /// Size of the cache.
    pub size_bytes: u64,
    /// The same in pages.
    pub pages: u64,
    /// Pages of the cache that was simulated: fewer in a sample.
    pub simulated_pages: u32,
    /// References that found their page, of those that were simulated.
    pub hits: u64,
    /// References that did not.
    pub misses: u64,
    /// Share of references that miss.
    pub miss_ratio: f64,
    /// Share of requests all pages of which hit; not in samples.
    pub request_hit_ratio: Option<f64>,
    /// Share of bytes that hit.
    pub byte_hit_ratio: Option<f64>,
    /// Mean response time of requests, if times were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_mean_us: Option<f64>,
    /// Speed of the simulation.
    pub references_per_s: f64,
    /// Extents with the most misses, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<ExtentRow>,
}

/// An extent of 3.75 MiB.
#[derive(Debug, Serialize)]
pub struct ExtentRow {
    pub volume: String,
    /// Where it begins there.
    pub offset_bytes: u64,
    /// References that found their page.
    pub hits: u64,
    /// References that did not.
    pub misses: u64,
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{:.3} %", v * 100.0))
}

/// Name and version of the layout of the JSON and of the tables.
const SCHEMA: &str = "terrace.sim.cache/1";

/// Returns the tables by name: traces, policies by size, and the extents with the most misses.
pub fn tables(traces: &[TraceResult]) -> Vec<(&'static str, RecordBatch)> {
    let of_trace = || traces.iter();
    let count = |take: fn(&TraceResult) -> u64| of_trace().map(move |t| Some(take(t)));
    let trace_rows = Columns::default()
        .text("file", of_trace().map(|t| Some(&t.file)))
        .u64("requests", "", count(|t| t.requests))
        .u64("references", "", count(|t| t.references))
        .u64("bytes", "B", count(|t| t.bytes))
        .u64("working_set_pages", "", count(|t| t.working_set_pages))
        .u64("working_set_bytes", "B", count(|t| t.working_set_bytes))
        .u64(
            "simulated_references",
            "",
            count(|t| t.simulated_references),
        )
        .u64("simulated_pages", "", count(|t| t.simulated_pages.into()));
    let mut rows: Vec<(&str, &Row)> = vec![];
    let mut extents: Vec<(&str, &Row, &ExtentRow)> = vec![];
    for t in traces {
        for r in &t.results {
            rows.push((&t.file, r));
            extents.extend(r.extents.iter().map(|e| (t.file.as_str(), r, e)));
        }
    }
    let of_row = || rows.iter();
    let count = |take: fn(&Row) -> u64| of_row().map(move |r| Some(take(r.1)));
    let policy_rows = Columns::default()
        .text("file", of_row().map(|r| Some(r.0)))
        .text("policy", of_row().map(|r| Some(r.1.policy)))
        .u64("size_bytes", "B", count(|r| r.size_bytes))
        .u64("pages", "", count(|r| r.pages))
        .u64("simulated_pages", "", count(|r| r.simulated_pages.into()))
        .u64("hits", "", count(|r| r.hits))
        .u64("misses", "", count(|r| r.misses))
        .f64("miss_ratio", "", of_row().map(|r| Some(r.1.miss_ratio)))
        .f64(
            "request_hit_ratio",
            "",
            of_row().map(|r| r.1.request_hit_ratio),
        )
        .f64("byte_hit_ratio", "", of_row().map(|r| r.1.byte_hit_ratio))
        .f64(
            "response_mean_us",
            "us",
            of_row().map(|r| r.1.response_mean_us),
        )
        .f64(
            "references_per_s",
            "1/s",
            of_row().map(|r| Some(r.1.references_per_s)),
        );
    let of_extent = || extents.iter();
    let count = |take: fn(&ExtentRow) -> u64| of_extent().map(move |e| Some(take(e.2)));
    let extent_rows = Columns::default()
        .text("file", of_extent().map(|e| Some(e.0)))
        .text("policy", of_extent().map(|e| Some(e.1.policy)))
        .u64("size_bytes", "B", of_extent().map(|e| Some(e.1.size_bytes)))
        .text("volume", of_extent().map(|e| Some(&e.2.volume)))
        .u64("offset_bytes", "B", count(|e| e.offset_bytes))
        .u64("hits", "", count(|e| e.hits))
        .u64("misses", "", count(|e| e.misses));
    vec![
        ("traces", trace_rows.finish(SCHEMA)),
        ("policies", policy_rows.finish(SCHEMA)),
        ("extents", extent_rows.finish(SCHEMA)),
    ]
}

/// For people.
pub fn table(out: &mut impl Write, traces: &[TraceResult]) -> io::Result<()> {
    for (i, t) in traces.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: {} requests, {} references to {} pages ({})",
            t.file,
            t.requests,
            t.references,
            t.working_set_pages,
            size(t.working_set_bytes)
        )?;
        if t.simulated_references != t.references {
            writeln!(
                out,
                "sampled: {} references to {} pages; hits and misses are of these",
                t.simulated_references, t.simulated_pages
            )?;
        }
        let mut rows = vec![
            [
                "policy",
                "size",
                "pages",
                "hits",
                "misses",
                "miss ratio",
                "requests hit",
                "bytes hit",
                "mean response",
                "M refs/s",
            ]
            .map(String::from),
        ];
        rows.extend(t.results.iter().map(|r| {
            [
                r.policy.to_string(),
                size(r.size_bytes),
                r.pages.to_string(),
                r.hits.to_string(),
                r.misses.to_string(),
                ratio(Some(r.miss_ratio)),
                ratio(r.request_hit_ratio),
                ratio(r.byte_hit_ratio),
                r.response_mean_us
                    .map_or_else(|| "-".into(), |us| format!("{us:.0} µs")),
                format!("{:.1}", r.references_per_s / 1e6),
            ]
        }));
        aligned(out, &rows)?;
        for r in t.results.iter().filter(|r| !r.extents.is_empty()) {
            writeln!(out)?;
            writeln!(
                out,
                "extents with the most misses, {} at {}",
                r.policy,
                size(r.size_bytes)
            )?;
            let mut rows = vec![["volume", "offset", "hits", "misses"].map(String::from)];
            rows.extend(r.extents.iter().map(|e| {
                [
                    e.volume.clone(),
                    size(e.offset_bytes),
                    e.hits.to_string(),
                    e.misses.to_string(),
                ]
            }));
            aligned(out, &rows)?;
        }
    }
    Ok(())
}

/// For programs.
pub fn json(
    out: &mut impl Write,
    config: ReferencesConfig,
    traces: &[TraceResult],
) -> io::Result<()> {
    #[derive(Serialize)]
    struct All<'a> {
        schema: &'static str,
        page_bytes: u64,
        sample: Option<f64>,
        seed: u64,
        traces: &'a [TraceResult],
    }
    let all = All {
        schema: SCHEMA,
        page_bytes: config.page_bytes,
        sample: config.sample,
        seed: config.seed,
        traces,
    };
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

/// For spreadsheets.
pub fn csv(out: &mut impl Write, traces: &[TraceResult]) -> io::Result<()> {
    fn cell(value: Option<f64>) -> String {
        value.map_or_else(String::new, |v| v.to_string())
    }
    writeln!(
        out,
        "file,policy,size_bytes,pages,simulated_pages,hits,misses,miss_ratio,request_hit_ratio,byte_hit_ratio,\
         response_mean_us,references_per_s"
    )?;
    for t in traces {
        for r in &t.results {
            writeln!(
                out,
                "\"{}\",{},{},{},{},{},{},{},{},{},{},{:.0}",
                t.file.replace('"', "\"\""),
                r.policy,
                r.size_bytes,
                r.pages,
                r.simulated_pages,
                r.hits,
                r.misses,
                r.miss_ratio,
                cell(r.request_hit_ratio),
                cell(r.byte_hit_ratio),
                cell(r.response_mean_us),
                r.references_per_s
            )?;
        }
    }
    Ok(())
}
