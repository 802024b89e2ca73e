//! `terrace why` and `terrace why-not`: reasons, from the record of a run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use units::Nanos;

use crate::record;

/// Which run and which moment.
#[derive(Debug, Args)]
pub struct Which {
    /// The volume
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Directory of the record; the run recorded last if left out
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Strategy, where the record has several (default: autotiering)
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// The decision at or before this time, such as "15m"
    #[arg(long, value_name = "TIME")]
    at: Option<Nanos>,
}

/// `terrace why VOLUME`
pub fn why(which: &Which) -> anyhow::Result<ExitCode> {
    let result = record::read(which.run.as_deref(), which.strategy.as_deref())?;
    let text = report::why(&result, &which.volume, which.at.map(Nanos::as_secs_f64))?;
    write!(io::stdout().lock(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

/// `terrace why-not VOLUME --tier T`
pub fn why_not(which: &Which, tier: &str) -> anyhow::Result<ExitCode> {
    let result = record::read(which.run.as_deref(), which.strategy.as_deref())?;
    let text = report::why_not(
        &result,
        &which.volume,
        tier,
        which.at.map(Nanos::as_secs_f64),
    )?;
    write!(io::stdout().lock(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}
