//! `terrace sim plan`: repeats a decision of a live controller.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use report::live;

use crate::live::Form;
use crate::sim_cmd::{check_strategies, read_scenario};

/// `terrace sim plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Output of `terrace export facts`, changed or not
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Form of the output; JSON is only the plan, as the controller keeps it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Form,
}

/// Runs `terrace sim plan`.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let file = read_scenario(&args.scenario)?;
    check_strategies(&file)?;
    let (facts, decision) = file.decide_again()?;
    let text = match args.output {
        Form::Table => live::decided_again(&facts, &decision.plan, &decision.report),
        Form::Json => serde_json::to_string_pretty(&decision.plan)? + "\n",
    };
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
