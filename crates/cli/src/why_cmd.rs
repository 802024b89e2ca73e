//! `terrace why` and `terrace why-not`: reasons, from a controller or from the record of a run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use client::{Client, ClientError};
use report::live;
use sim::RunResult;
use units::Nanos;

use crate::asking::{ControllerArg, time, usual_socket_is_there};
use crate::live::{Form, OutputArg, message, wrong_usage};
use crate::record;

/// Which volume, and where the reasons are from.
#[derive(Debug, Args)]
pub struct Which {
    /// The volume; of a controller HOST/VOLUME where several hosts have one of that name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Directory of the record; the run recorded last if left out
    #[arg(long, value_name = "DIR", help_heading = "Record of a run")]
    run: Option<PathBuf>,
    /// Strategy, where the record has several (default: autotiering)
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
pub fn why(which: &Which) -> anyhow::Result<ExitCode> {
    let volume = &which.volume;
    if let Some((why, mut client)) = which.asked(|client| client.why(volume))? {
        let now = time(&mut client)?;
        let text = |w: &_| live::why(w, now);
        which.output.print("terrace.why/1", &why, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    which.recorded(|result, at_s| report::why(result, volume, at_s))
}

/// `terrace why-not VOLUME --tier T`
pub fn why_not(which: &Which, tier: &str) -> anyhow::Result<ExitCode> {
    let volume = &which.volume;
    if let Some((why, _)) = which.asked(|client| client.why_not(volume, tier))? {
        let text = |w: &_| live::why_not(w);
        which.output.print("terrace.why-not/1", &why, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    which.recorded(|result, at_s| report::why_not(result, volume, tier, at_s))
}

impl Which {
    /// What a controller answers; none where the record of a run is to be read.
    fn asked<T>(
        &self,
        ask: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> anyhow::Result<Option<(T, Client)>> {
        let about_record = self.run.is_some() || self.strategy.is_some() || self.at.is_some();
        let named = self.controller.named();
        if about_record || !(named || usual_socket_is_there()) {
            return Ok(None);
        }
        let address = self.controller.address();
        let mut client = self.controller.client()?;
        match ask(&mut client) {
            Ok(answer) => {
                message(&format!("asked the controller on {address}"));
                Ok(Some((answer, client)))
            }
            // A socket may outlast its controller, and nobody asked for one.
            Err(e @ ClientError::Nobody { .. }) if !named => {
                message(&e.to_string());
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn recorded(
        &self,
        tell: impl FnOnce(&RunResult, Option<f64>) -> Result<String, report::WhyError>,
    ) -> anyhow::Result<ExitCode> {
        if self.output.form() == Form::Json {
            return Ok(wrong_usage(
                "-o json is for the answers of a controller; `terrace sim run -o json --full` has all decisions of a run",
            ));
        }
        let dir = record::directory(self.run.as_deref())?;
        let result = record::read(&dir, self.strategy.as_deref())?;
        message(&format!(
            "from the record in {}, under {}",
            dir.display(),
            result.manifest.strategy
        ));
        let text = tell(&result, self.at.map(Nanos::as_secs_f64))?;
        write!(io::stdout().lock(), "{text}")?;
        Ok(ExitCode::SUCCESS)
    }
}
