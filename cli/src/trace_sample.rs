//! `terrace trace sample`: extraction of a representative part of a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trace::{SampleSpec, convert};
use units::{Bytes, Nanos};

use crate::progress::Bar;
use crate::trace_cmd::{Reading, message, open};
use crate::trace_table::{percent, size};

/// `terrace trace sample`
#[derive(Debug, Args)]
pub struct Sample {
    /// Trace file of any known format
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File to write; its extension names the format, as for convert; appears when it is complete
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Keep this share of the places: a hash of the volume and of the place of its first byte selects a request. All
    /// requests of a place are kept, or none
    #[arg(long, value_name = "SHARE")]
    rate: Option<f64>,
    /// Size of a place for --rate: a power of two from 4 KiB to 1 GiB
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    unit: Bytes,
    /// Seed of the hash for --rate
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Keep only these volumes
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    volumes: Vec<String>,
    /// Keep only requests at or after this time of the trace, which becomes time 0
    #[arg(long, value_name = "TIME")]
    from: Option<Nanos>,
    /// Keep only requests before this time of the trace
    #[arg(long, value_name = "TIME")]
    to: Option<Nanos>,
    /// Of the remaining requests, keep the first of every N (this changes the reuse of the trace)
    #[arg(long, value_name = "N")]
    every: Option<u64>,
    #[command(flatten)]
    reading: Reading,
}

/// Runs `terrace trace sample`.
pub fn run(sample: &Sample) -> anyhow::Result<ExitCode> {
    let spec = SampleSpec {
        rate: sample.rate,
        unit: Some(sample.unit),
        seed: sample.seed,
        volumes: sample.volumes.clone(),
        from: sample.from,
        to: sample.to,
        every: sample.every,
    };
    let all = SampleSpec {
        unit: spec.unit,
        seed: spec.seed,
        ..SampleSpec::default()
    };
    anyhow::ensure!(
        spec != all,
        "select requests with --rate, --volumes, --from, --to or --every"
    );
    let mut stream = open(&sample.input, &sample.reading.options())?;
    stream.sample(&spec)?;
    let mut bar = Bar::new(
        &sample
            .input
            .file_name()
            .unwrap_or_default()
            .to_string_lossy(),
    );
    let converted = convert(&mut stream, &sample.output, &mut |progress| {
        bar.update(progress)
    })?;
    drop(bar);
    let sampled = stream.sampled().unwrap_or_default();
    let place = sample.rate.map_or_else(String::new, |rate| {
        format!(
            "; places of {} at a rate of {rate}, seed {}; requests that cross places kept by their first",
            size(sample.unit.0),
            sample.seed
        )
    });
    message(format_args!(
        "{}: kept {} of {} requests read ({}), {} of {}, {} volumes{place}",
        sample.output.display(),
        sampled.requests_kept,
        sampled.requests_seen,
        percent(sampled.rate()),
        size(sampled.bytes_kept),
        size(sampled.bytes_seen),
        converted.volumes,
    ));
    Ok(ExitCode::SUCCESS)
}
