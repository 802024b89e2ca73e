//! `terrace sim cache`: hits and misses of caches over traces, by policy and size.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use cache::{
    Ageing, Counts, EvaluateOptions, PolicyKind, PolicyOptions, REGISTRY, RatesConfig, References,
    ReferencesConfig, ResponseTimes, STACK_SIZES_MAX, Tally, evaluate, evaluate_optimum,
    evaluate_stack,
};
use clap::Args;
use runner::jobs;
use units::{Bytes, Nanos};

use crate::cache_checks::{self, CacheOptions};
use crate::cache_read::{self, CacheTrace, Ops};
use crate::cache_sizes::{AskedSize, HitMissTimes, HitPlace, UnknownPlace};
use crate::cache_table::{self, ExtentRow, Row, TraceResult};
use crate::progress::CountBar;
use crate::table_files::ParquetArg;
use crate::trace_cmd::{Output, Reading, message};

/// Name of the optimum, which is no policy: it needs the future.
const OPTIMUM: &str = "belady";
const EXTENTS_SHOWN: usize = 20;
/// A cache that has fewer pages than this in a sample says little.
const SAMPLED_PAGES_MIN: u32 = 100;

/// Shown below the help.
pub const EXAMPLES: &str = "\
Examples:
  terrace sim cache vm.vscsi.xz --policies lru,arc,s3-fifo --sizes 1%,10%,1GiB
  terrace sim cache big.trc --policies all --sizes 10% --sample 0.01
  terrace sim cache vm.csv --policies priority-lru --sizes 64MiB --page 64KiB --response 20us,6ms --target 2ms";

/// `terrace sim cache`
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Trace files of any known format, or generated traces (generate:preset=jesd), each with a cache of its own
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Policies: fifo, clock, lru, slru, two-q, lfu, lfu-plain, arc, lirs, s3-fifo, sieve, w-tinylfu, hr-lru,
    /// priority-lru, belady (the optimum), or all
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "lru"
    )]
    policies: Vec<String>,
    /// Sizes: with a unit (1GiB), in pages (5000p), or as a share of the pages that occur in the trace (10%)
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        default_value = "1%,3%,10%,30%"
    )]
    sizes: Vec<AskedSize>,
    /// Size of a page: a power of two from 512 B to 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "4 KiB")]
    page: Bytes,
    /// Simulate with this share of the pages, and scale the caches accordingly
    #[arg(long, value_name = "SHARE")]
    sample: Option<f64>,
    /// Seed of the hash for --sample
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Which requests go through the cache
    #[arg(long, value_enum, default_value = "all")]
    ops: Ops,
    /// Count by extent of 3.75 MiB too, and show those with the most misses
    #[arg(long)]
    extents: bool,
    /// Response times of hits and misses: adds mean response times, which Priority-LRU needs
    #[arg(long, value_name = "HIT,MISS")]
    response: Option<HitMissTimes>,
    /// Response-time objective of every volume, for --response
    #[arg(
        long,
        value_name = "TIME",
        default_value = "6ms",
        requires = "response"
    )]
    target: Nanos,
    /// HR-LRU and Priority-LRU as published: without ageing, least numbers of accesses, and memory of the hour before
    #[arg(long)]
    literal: bool,
    /// Position to which HR-LRU and Priority-LRU move a page on a hit
    #[arg(long, value_name = "PLACE", value_enum, default_value = "top")]
    on_hit: HitPlace,
    /// Position at which HR-LRU and Priority-LRU insert pages of extents without statistics
    #[arg(long, value_name = "PLACE", value_enum, default_value = "lowest")]
    unknown_extent: UnknownPlace,
    /// Write the references for other simulators (libCacheSim's oracleGeneral); one trace only
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    parquet: ParquetArg,
    #[command(flatten)]
    reading: Reading,
}

/// What is simulated on one thread.
#[derive(Debug, Clone)]
enum Cell {
    One(PolicyKind, usize),
    /// LRU at all sizes.
    Stack,
    /// The optimum at all sizes.
    Optimum,
}

/// A policy, a size by its number, and what was found.
struct PolicyResult {
    policy: &'static str,
    size: usize,
    tally: Tally,
    seconds: f64,
    extents: Vec<Counts>,
}

/// Runs `terrace sim cache`.
pub fn run(args: &CacheArgs) -> anyhow::Result<ExitCode> {
    let policies = policies(&args.policies)?;
    anyhow::ensure!(
        args.export.is_none() || args.traces.len() == 1,
        "--export needs exactly one trace, not {}",
        args.traces.len()
    );
    anyhow::ensure!(args.target.0 > 0, "--target must be above 0");
    let config = ReferencesConfig {
        page_bytes: args.page.0,
        sample: args.sample,
        seed: args.seed,
    };
    let asked = CacheOptions {
        policies: &policies,
        sampled: args.sample.is_some(),
        response: args.response.is_some(),
        extents: args.extents,
        output: args.output,
    };
    asked.refuse()?;
    cache_checks::check_config(config)?;
    cache_checks::check_sizes(&args.sizes, args.page)?;
    let options = args.reading.options();
    cache_checks::open_all(&args.traces, &options)?;
    asked.warn();
    let mut results = Vec::new();
    for path in &args.traces {
        let loaded = cache_read::read(path, &options, config, args.ops)?;
        let file = path.display().to_string();
        asked.warn_of_trace(&file, &loaded);
        let CacheTrace {
            references, names, ..
        } = loaded;
        let pages = cache_checks::sizes(&args.sizes, references.working_set_pages(), args.page)?;
        if let Some(to) = &args.export {
            cache_read::export(to, &references)?;
            message(format_args!(
                "{}: {} references to {} pages",
                to.display(),
                references.pages().len(),
                references.universe()
            ));
        }
        results.push(simulate(
            args,
            &policies,
            &pages,
            &file,
            &references,
            &names,
        )?);
    }
    args.parquet.write(|| cache_table::tables(&results))?;
    let mut out = io::stdout().lock();
    match args.output {
        Output::Table => cache_table::table(&mut out, &results)?,
        Output::Json => cache_table::json(&mut out, config, &results)?,
        Output::Csv => cache_table::csv(&mut out, &results)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The policies asked for; none is the optimum.
fn policies(names: &[String]) -> anyhow::Result<Vec<Option<PolicyKind>>> {
    let mut kinds = Vec::new();
    for name in names {
        match name.trim() {
            "all" => {
                kinds.extend(REGISTRY.iter().map(|e| Some(e.kind)));
                kinds.push(None);
            }
            OPTIMUM => kinds.push(None),
            name => kinds
                .push(Some(name.parse().with_context(|| {
                    format!("--policies: besides {OPTIMUM} and all")
                })?)),
        }
    }
    let mut unique = Vec::new();
    for kind in kinds {
        if !unique.contains(&kind) {
            unique.push(kind);
        }
    }
    Ok(unique)
}

fn simulate(
    args: &CacheArgs,
    policies: &[Option<PolicyKind>],
    pages: &[u64],
    file: &str,
    references: &References,
    names: &[String],
) -> anyhow::Result<TraceResult> {
    let working_set = references.working_set_pages();
    let scaled: Vec<u32> = pages.iter().map(|p| references.scaled(*p)).collect();
    if let Some(few) = scaled.iter().min().filter(|p| **p < SAMPLED_PAGES_MIN)
        && args.sample.is_some()
    {
        message(format_args!(
            "warning: {file}: the smallest cache has only {few} pages in the sample: its result is not representative; use a larger --sample"
        ));
    }
    let response = args.response.map(|HitMissTimes(hit, miss)| ResponseTimes {
        hit_ns: hit.0,
        miss_ns: miss.0,
        target_ns: args.target.0,
    });
    let options = EvaluateOptions {
        extents: args.extents,
        response,
        policy: PolicyOptions {
            rates: RatesConfig {
                unknown_extent: args.unknown_extent.into(),
                ..match args.literal {
                    true => RatesConfig::literal(),
                    false => RatesConfig::corrected(),
                }
            },
            on_hit: args.on_hit.into(),
            ageing: match args.literal {
                true => Ageing::Never,
                false => Ageing::TwoSlices,
            },
            ..PolicyOptions::default()
        },
    };
    let in_one_pass =
        |kind: PolicyKind| kind.is_stack() && !args.extents && scaled.len() <= STACK_SIZES_MAX;
    let mut cells = Vec::new();
    for kind in policies {
        match kind {
            None => cells.push(Cell::Optimum),
            Some(kind) if in_one_pass(*kind) => cells.push(Cell::Stack),
            Some(kind) => cells.extend((0..scaled.len()).map(|s| Cell::One(*kind, s))),
        }
    }
    let each = references.pages().len() as u64;
    let total = cells.iter().map(|cell| match cell {
        Cell::Optimum => each * scaled.len() as u64,
        Cell::One(..) | Cell::Stack => each,
    });
    let mut bar = CountBar::new(file, total.sum());
    let done = jobs::with_events(
        &cells,
        |cell, say| run_cell(cell, references, &scaled, &options, say),
        |_, more| bar.add(more),
    );
    drop(bar);
    let mut found = Vec::new();
    for cell in done {
        found.extend(cell?);
    }
    let rows = found.iter().map(|f| Row {
        policy: f.policy,
        size_bytes: pages[f.size].saturating_mul(args.page.0),
        pages: pages[f.size],
        simulated_pages: scaled[f.size],
        hits: f.tally.pages.hits,
        misses: f.tally.pages.misses,
        miss_ratio: f.tally.miss_ratio(references).unwrap_or(1.0),
        // What is left of a request in a sample is no request.
        request_hit_ratio: args
            .sample
            .map_or_else(|| f.tally.requests.hit_ratio(), |_| None),
        byte_hit_ratio: f.tally.byte_hit_ratio(),
        response_mean_us: response
            .filter(|_| args.sample.is_none())
            .map(|r| r.mean_ns(&f.tally.requests) / 1e3),
        references_per_s: each as f64 / f.seconds.max(1e-9),
        extents: worst_extents(references, names, &f.extents),
    });
    Ok(TraceResult {
        file: file.to_string(),
        requests: references.requests(),
        references: references.references(),
        bytes: references.bytes(),
        working_set_pages: working_set,
        working_set_bytes: working_set.saturating_mul(args.page.0),
        simulated_references: each,
        simulated_pages: references.universe(),
        results: rows.collect(),
    })
}

fn run_cell(
    cell: &Cell,
    references: &References,
    sizes: &[u32],
    options: &EvaluateOptions,
    say: &mut dyn FnMut(u64),
) -> anyhow::Result<Vec<PolicyResult>> {
    let started = Instant::now();
    let seconds = || started.elapsed().as_secs_f64();
    Ok(match cell {
        Cell::One(kind, size) => {
            let found = evaluate(references, *kind, sizes[*size], options, say);
            vec![PolicyResult {
                policy: kind.name(),
                size: *size,
                tally: found.tally,
                seconds: seconds(),
                extents: found.extents,
            }]
        }
        Cell::Stack => {
            let found = evaluate_stack(references, sizes, say);
            let seconds = seconds();
            let at = |size: &u32| found.iter().find(|f| f.0 == *size);
            let all = sizes.iter().enumerate().filter_map(|(i, size)| {
                Some(PolicyResult {
                    policy: PolicyKind::Lru.name(),
                    size: i,
                    tally: at(size)?.1,
                    seconds,
                    extents: Vec::new(),
                })
            });
            all.collect()
        }
        Cell::Optimum => {
            let found = evaluate_optimum(references, sizes, say)?;
            let seconds = seconds() / sizes.len() as f64;
            let all = found
                .into_iter()
                .enumerate()
                .map(|(i, tally)| PolicyResult {
                    policy: OPTIMUM,
                    size: i,
                    tally,
                    seconds,
                    extents: Vec::new(),
                });
            all.collect()
        }
    })
}

/// The extents with the most misses.
fn worst_extents(references: &References, names: &[String], counts: &[Counts]) -> Vec<ExtentRow> {
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    order.sort_by_key(|e| (std::cmp::Reverse(counts[*e as usize].misses), *e));
    let rows = order.into_iter().take(EXTENTS_SHOWN).map(|extent| {
        let (volume, no) = references.extent(extent);
        let name = names.get(volume as usize).cloned();
        let counts = counts[extent as usize];
        ExtentRow {
            volume: name.unwrap_or_else(|| volume.to_string()),
            offset_bytes: no.saturating_mul(cache::EXTENT_BYTES),
            hits: counts.hits,
            misses: counts.misses,
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_listed_once() {
        let all = policies(&["lru".into(), "all".into(), "belady".into()]).unwrap();
        assert_eq!(all.len(), REGISTRY.len() + 1);
        assert_eq!(all[0], Some(PolicyKind::Lru));
        let error = policies(&["mru".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("unknown cache policy \"mru\""));
    }
}
