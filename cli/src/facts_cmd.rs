//! `terrace export …`: inputs of a controller's decisions as files.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use crate::asking::ControllerArg;

/// `terrace export …`
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// Print the inputs of a decision as a scenario for `terrace sim plan` and `terrace sim run`
    Facts(FactsArgs),
}

/// `terrace export facts`
#[derive(Debug, Args)]
pub struct FactsArgs {
    /// The host; optional with one host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Number of the plan; by default the last decision that could place data
    #[arg(long, value_name = "N")]
    plan: Option<u64>,
    #[command(flatten)]
    controller: ControllerArg,
}

/// Runs `terrace export …`.
pub fn run(command: &ExportCommand) -> anyhow::Result<()> {
    let ExportCommand::Facts(args) = command;
    let mut client = args.controller.client()?;
    let text = client.export_facts(args.host.as_deref(), args.plan)?;
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(())
}
