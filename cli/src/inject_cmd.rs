//! `terrace volume inject`: an injection session, and the actual delays.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use datapath::control_server::ControlRequest;
use datapath::stages::inject::Command;
use units::Nanos;

use crate::live::{Go, OutputArg, Stop, message};
use crate::live_table;
use crate::volume_cmd::VolumeSelector;

/// Longest delay of the server's end of a session after its duration.
const SLACK: Duration = Duration::from_millis(300);

/// `terrace volume inject`
#[derive(Debug, Args)]
pub struct Inject {
    #[command(flatten)]
    which: VolumeSelector,
    /// Delay of each read, such as 100us
    #[arg(long, value_name = "TIME", default_value = "0us")]
    read: Nanos,
    /// Delay of each write
    #[arg(long, value_name = "TIME", default_value = "0us")]
    write: Nanos,
    /// Duration
    #[arg(long = "for", value_name = "TIME")]
    lasting: Nanos,
    #[command(flatten)]
    output: OutputArg,
}

/// Longest delay of a request. Guests abandon requests that take longer.
const DELAY_MAX: Nanos = Nanos(10_000_000_000);

/// Runs `terrace volume inject`.
pub fn run(inject: &Inject) -> anyhow::Result<ExitCode> {
    let VolumeSelector { array, volume } = &inject.which;
    if inject.read.max(inject.write) > DELAY_MAX || inject.read.max(inject.write) == Nanos::ZERO {
        bail!("give --read or --write a delay of at most {DELAY_MAX}");
    }
    if inject.lasting == Nanos::ZERO {
        bail!("--for must be above 0");
    }
    let ask = |read, write, lasting| {
        ControlRequest::from(Command::Inject {
            volume: volume.clone(),
            read,
            write,
            lasting,
        })
    };
    let stop = Stop::listen()?;
    array.order(ask(inject.read, inject.write, inject.lasting))?;
    if stop.sleep(Duration::from_nanos(inject.lasting.0) + SLACK) == Go::Stop {
        array.ask(ask(Nanos::ZERO, Nanos::ZERO, Nanos::ZERO))?;
        message("ended early");
    }
    let status = array.show(volume)?.status;
    let injected = status.and_then(|s| s.stages.inject.injected);
    let injected = injected.ok_or_else(|| anyhow!("volume {volume:?} is no longer served"))?;
    inject
        .output
        .print("terrace.volume.inject/1", &injected, live_table::injected)?;
    Ok(ExitCode::SUCCESS)
}
