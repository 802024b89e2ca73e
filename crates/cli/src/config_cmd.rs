//! `terrace config …`: check scenario files, print their schema.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use crate::sim_cmd;

/// `terrace config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check scenario files, with the traces they name
    Check {
        /// Scenario files
        #[arg(required = true, value_name = "SCENARIO")]
        scenarios: Vec<PathBuf>,
    },
    /// Print the JSON schema of scenario files
    Schema,
}

/// Runs `terrace config …`.
pub fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match command {
        ConfigCommand::Check { scenarios } => {
            let mut code = ExitCode::SUCCESS;
            for path in &scenarios {
                match check(path) {
                    Ok(Checked::Skipped(missing)) => {
                        writeln!(out, "{}: skipped: no {missing}", path.display())?;
                    }
                    Ok(Checked::Model(model)) => writeln!(
                        out,
                        "{}: ok: {} tiers, {} volumes of {} VMs, {} traces, {} clients, {}",
                        path.display(),
                        model.topology.tiers.len(),
                        model.volumes.len(),
                        model.vms.len(),
                        model.traces.len(),
                        model.clients.len(),
                        model.duration
                    )?,
                    Err(e) => {
                        let _ = writeln!(io::stderr(), "error: {e:#}");
                        code = ExitCode::FAILURE;
                    }
                }
            }
            Ok(code)
        }
        ConfigCommand::Schema => {
            writeln!(
                out,
                "{}",
                serde_json::to_string_pretty(&sim::scenario_schema())?
            )?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

enum Checked {
    Model(Box<sim::Model>),
    /// A directory that the scenario needs is not there.
    Skipped(String),
}

fn check(path: &Path) -> anyhow::Result<Checked> {
    let file = sim_cmd::read_scenario(path)?;
    sim_cmd::check_strategies(&file)?;
    if let Some(missing) = sim_cmd::missing_requirement(path, &file) {
        return Ok(Checked::Skipped(missing));
    }
    Ok(Checked::Model(Box::new(sim_cmd::load(path, &file)?.0)))
}
