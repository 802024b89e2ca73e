//! `terrace trace mrc`: miss-ratio curves of traces, by several methods side by side.

mod output;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use trace::curves::{self, Estimate, Method, Rate, Records, Reopened};
use trace::{CacheKind, NativeTrace, PageReferences, Record, TraceError};
use units::Bytes;

use crate::table_files::ParquetArg;
use crate::trace_cmd::{Output, Reading, message, not_a_trace};

/// `terrace trace mrc`
#[derive(Debug, Args)]
pub struct Mrc {
    /// Trace files of any known format, or generated traces such as generate:preset=jesd,requests=1000000
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Methods; with exact, the error of the others is shown, too
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "METHOD,…",
        default_value = "exact,shards,shards-size,aet,wss"
    )]
    method: Vec<MethodArg>,
    /// Sizes of the cache; by default powers of two up to the footprint
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<Bytes>,
    /// Size of a page of the cache: a power of two from 512 B to 1 GiB
    #[arg(long, value_name = "SIZE", default_value = "4 KiB")]
    page: Bytes,
    /// Model a write-around cache: writes drop their pages, and only reads count
    #[arg(long)]
    reads_only_cache: bool,
    /// Share of the pages that shards samples. auto: 0.001, or more for 8,192 pages; exact if that is most of the
    /// pages
    #[arg(long, value_name = "SHARE|auto", default_value = "auto")]
    rate: Rate,
    /// Seed of the samples
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Take native traces as they are, without comparing their records with the checksums
    #[arg(long)]
    unchecked: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Write a chart of the curves, as a picture (of one trace) or as an offline page
    #[arg(long, value_name = "FILE.svg|FILE.html")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    parquet: ParquetArg,
    #[command(flatten)]
    reading: Reading,
}

/// `--method`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodArg(Method);

impl ValueEnum for MethodArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [MethodArg; Method::ALL.len()] = {
            let mut all = [MethodArg(Method::Exact); Method::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = MethodArg(Method::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.summary()))
    }
}

/// The curves of one trace.
struct Curves {
    file: String,
    page: Bytes,
    cache: CacheKind,
    /// In bytes.
    sizes: Vec<u64>,
    estimates: Vec<Estimate>,
}

/// Records of a trace: in memory, mapped, or generated again for each method.
enum Source {
    Loaded(trace::LoadedTrace),
    Unchecked(NativeTrace),
    Generated(Reopened),
}

impl Records for Source {
    fn each_part(&self, take: &mut dyn FnMut(&[Record])) -> Result<(), TraceError> {
        match self {
            Source::Loaded(loaded) => loaded.records().each_part(take),
            Source::Unchecked(native) => native.records().each_part(take),
            Source::Generated(generated) => generated.each_part(take),
        }
    }
}

#[derive(Clone, Copy)]
enum ChartForm {
    Svg,
    Html,
}

/// Runs `terrace trace mrc`.
pub fn run(mrc: &Mrc) -> anyhow::Result<ExitCode> {
    let cache = if mrc.reads_only_cache {
        CacheKind::ReadsOnly
    } else {
        CacheKind::ReadWrite
    };
    let pages = PageReferences::new(mrc.page, cache).with_context(|| {
        format!(
            "--page {}: a page is a power of two from 512 B to 1 GiB",
            mrc.page
        )
    })?;
    ensure!(
        !(mrc.reads_only_cache && mrc.method.contains(&MethodArg(Method::Wss)))
            || is_default(&mrc.method),
        "--method wss cannot model --reads-only-cache, because working sets ignore the pages that writes drop: leave wss out"
    );
    ensure!(
        mrc.sizes.iter().all(|size| size.0 >= mrc.page.0),
        "--sizes: a cache has at least one page of {}",
        mrc.page
    );
    let chart = mrc
        .chart
        .as_deref()
        .map(|path| chart_form(path, mrc.files.len()).map(|form| (path, form)))
        .transpose()?;
    let mut all = Vec::new();
    for file in &mrc.files {
        all.push(curves_of(file, mrc, &pages, cache)?);
    }
    if let Some((path, form)) = chart {
        let text = match form {
            ChartForm::Svg => output::svg(&all[0]),
            ChartForm::Html => output::page(&all),
        };
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        message(format_args!("chart written to {}", path.display()));
    }
    mrc.parquet.write(|| output::tables(&all))?;
    let mut out = io::stdout().lock();
    match mrc.output {
        Output::Table => write!(out, "{}", output::document(&all).text())?,
        Output::Csv => write!(out, "{}", output::csv(&all))?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &output::json(&all))?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// All methods, which is what comes when none is asked for: then those that do not apply are left out without a word.
fn is_default(methods: &[MethodArg]) -> bool {
    methods == MethodArg::value_variants()
}

fn chart_form(path: &Path, files: usize) -> anyhow::Result<ChartForm> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => {
            ensure!(
                files == 1,
                "--chart {}: a picture shows one trace; name a page (.html) for several",
                path.display()
            );
            Ok(ChartForm::Svg)
        }
        Some("html") => Ok(ChartForm::Html),
        _ => bail!(
            "--chart {}: the name must end in .svg or .html",
            path.display()
        ),
    }
}

fn source(file: &Path, mrc: &Mrc) -> anyhow::Result<Source> {
    let options = mrc.reading.options();
    if trace::is_generated(file) {
        return Ok(Source::Generated(Reopened {
            path: file.into(),
            options,
        }));
    }
    if mrc.unchecked && file.extension().is_some_and(|e| e == "trc") {
        return Ok(Source::Unchecked(NativeTrace::open(file)?));
    }
    let loaded = trace::load(file, &options).map_err(|error| not_a_trace(file, error))?;
    Ok(Source::Loaded(loaded))
}

fn curves_of(
    file: &Path,
    mrc: &Mrc,
    pages: &PageReferences,
    cache: CacheKind,
) -> anyhow::Result<Curves> {
    let source = source(file, mrc)?;
    let methods: Vec<Method> = mrc
        .method
        .iter()
        .map(|m| m.0)
        .filter(|m| !(mrc.reads_only_cache && *m == Method::Wss))
        .collect();
    let shown = file.display().to_string();
    let mut note = |text: String| message(format_args!("{shown}: {text}"));
    let asked = curves::CurveOptions {
        methods: &methods,
        rate: mrc.rate,
        seed: mrc.seed,
    };
    let estimates = curves::estimates(&source, pages, &asked, &mut note)?;
    let sizes = if mrc.sizes.is_empty() {
        let pages = curves::default_sizes(&estimates).into_iter();
        pages.map(|n| n.saturating_mul(mrc.page.0)).collect()
    } else {
        mrc.sizes.iter().map(|size| size.0).collect()
    };
    Ok(Curves {
        file: shown.clone(),
        page: mrc.page,
        cache,
        sizes,
        estimates,
    })
}
