//! `terrace why` and `terrace why-not`: reasons of decisions, from a controller or from the record of a run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use client::{Client, ClientError};
use report::live;
use serde::Serialize;
use sim::RunResult;
use units::Nanos;

use crate::asking::{AddressSource, ControllerArg, time, usual_socket_is_there};
use crate::live::{Form, OutputArg, message};
use crate::record;

/// Which volume, and where the reasons are from.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The volume; HOST/VOLUME if several hosts of a controller have a volume of this name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Directory of the record; the latest record by default
    #[arg(long, value_name = "DIR", help_heading = "Record of a run")]
    run: Option<PathBuf>,
    /// Strategy, if the record has several (default: terrace)
    #[arg(long, value_name = "NAME", help_heading = "Record of a run")]
    strategy: Option<String>,
    /// The decision at or before this time, such as "15m"
    #[arg(long, value_name = "TIME", help_heading = "Record of a run")]
    at: Option<Nanos>,
    #[command(flatten)]
    controller: ControllerArg,
    #[command(flatten)]
    output: OutputArg,
}

/// `terrace why VOLUME`
pub fn why(which: &WhyArgs) -> anyhow::Result<ExitCode> {
    let volume = &which.volume;
    if let Some((why, mut client)) = which.asked(|client| client.why(volume))? {
        let now = time(&mut client)?;
        let text = |w: &_| live::why(w, now);
        which.output.print("terrace.why/1", &why, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (result, at_s) = which.recorded()?;
    match which.output.form() {
        Form::Table => text(&report::why(&result, volume, at_s)?)?,
        Form::Json => {
            let data = report::why_data(&result, volume, at_s)?;
            which.json("terrace.why.recorded/1", &data)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `terrace why-not VOLUME --tier T`
pub fn why_not(which: &WhyArgs, tier: &str) -> anyhow::Result<ExitCode> {
    let volume = &which.volume;
    if let Some((why, _)) = which.asked(|client| client.why_not(volume, tier))? {
        let text = |w: &_| live::why_not(w);
        which.output.print("terrace.why-not/1", &why, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (result, at_s) = which.recorded()?;
    match which.output.form() {
        Form::Table => text(&report::why_not(&result, volume, tier, at_s)?)?,
        Form::Json => {
            let data = report::why_not_data(&result, volume, tier, at_s)?;
            which.json("terrace.why-not.recorded/1", &data)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(words: &str) -> anyhow::Result<()> {
    Ok(write!(io::stdout().lock(), "{words}")?)
}

impl WhyArgs {
    /// Sends the request to the controller. Returns its reply, or `None` if the source is the record of a run.
    fn asked<T>(
        &self,
        ask: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> anyhow::Result<Option<(T, Client)>> {
        let about_record = self.run.is_some() || self.strategy.is_some() || self.at.is_some();
        let (address, named) = self.controller.address()?;
        let there = named != AddressSource::Nowhere || usual_socket_is_there();
        if about_record {
            if there {
                message(&format!(
                    "source: the record of a run, because of --run, --strategy or --at; without them the source is the controller on {address}"
                ));
            }
            return Ok(None);
        }
        if !there {
            return Ok(None);
        }
        // A record has precedence over a controller that does not reply, unless the command line names the controller.
        let record = record::directory(None).ok();
        let record = record.filter(|_| named != AddressSource::Here);
        let asked = self.controller.client_at(address.clone());
        let answer = asked.and_then(|mut client| Ok((ask(&mut client)?, client)));
        match (answer, record) {
            (Ok(answer), None) => {
                message(&format!("source: the controller on {address}"));
                Ok(Some(answer))
            }
            (Ok(answer), Some(dir)) => {
                message(&format!(
                    "source: the controller on {address}; a record of a run exists here, too: --run {} reads it",
                    dir.display()
                ));
                Ok(Some(answer))
            }
            (Err(error), Some(_)) => {
                message(&format!(
                    "the controller on {address} did not reply ({error:#}); source: the record of a run. With --controller {address} the source is only the controller"
                ));
                Ok(None)
            }
            // A default socket may remain after its controller has ended, and the user did not name a controller.
            (Err(error), None) if named == AddressSource::Nowhere && nobody(&error) => {
                message(&error.to_string());
                Ok(None)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the record. Returns the run and the time of the decision in seconds, if given.
    fn recorded(&self) -> anyhow::Result<(RunResult, Option<f64>)> {
        let dir = record::directory(self.run.as_deref())?;
        let result = record::read(&dir, self.strategy.as_deref())?;
        message(&format!(
            "source: the record in {}, under {}",
            dir.display(),
            result.manifest.strategy
        ));
        Ok((result, self.at.map(Nanos::as_secs_f64)))
    }

    fn json<T: Serialize>(&self, schema: &'static str, data: &T) -> anyhow::Result<()> {
        self.output.print(schema, data, |_| String::new())
    }
}

fn nobody(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<ClientError>();
    cause.is_some_and(|e| matches!(e, ClientError::Nobody { .. }))
}
