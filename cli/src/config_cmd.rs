//! `terrace config …`: check of scenarios and live configurations, their effective values, and their schemas.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agent::Platform;
use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use daemon::Finding;
use manager::settings::{ManagerConfig, Settings};
use serde::Serialize;

use crate::counting;
use crate::file_kind::{FileKind, is_live, with_kind};
use crate::live::{OutputArg, absolute, message, wrong_usage};
use crate::serve_cmd::read_config;
use crate::sim_cmd;
use runner::inputs;

/// `terrace config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check scenarios, with the traces they name, and live configurations
    Check {
        /// Scenarios, and configurations of `terrace serve`
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Print the effective values of a live configuration, with defaults
    Show {
        /// Configuration of `terrace serve`
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Show the source of every value: a line of the file, or the default
        #[arg(long)]
        origin: bool,
        /// Form of the output
        #[arg(short, long, value_enum, default_value = "toml")]
        output: ConfigForm,
    },
    /// Print the JSON schema of scenarios
    Schema {
        /// Print the schema of live configurations instead
        #[arg(long)]
        live: bool,
    },
}

/// Form of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigForm {
    /// As in the file
    Toml,
    /// For programs; the layout names its version
    Json,
}

/// Results of the check of all files.
#[derive(Serialize)]
struct ConfigCheck {
    files: Vec<CheckedFile>,
}

#[derive(Serialize)]
struct CheckedFile {
    file: String,
    /// True if the file has no fault.
    ok: bool,
    /// Description of the content, or the fault.
    what: String,
}

#[derive(Serialize)]
struct ShownConfig {
    schema: &'static str,
    config: ManagerConfig,
}

/// Runs `terrace config …`.
pub fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match command {
        ConfigCommand::Check { files, output } => {
            drop(out);
            return check_all(&files, &output);
        }
        ConfigCommand::Show {
            origin: true,
            output: ConfigForm::Json,
            ..
        } => {
            return Ok(wrong_usage(
                "--origin writes comments, and JSON has none: use -o toml",
            ));
        }
        ConfigCommand::Show {
            file,
            origin,
            output,
        } => {
            let settings = read_config(&file)?;
            let mut words = settings.effective()?;
            agent::fill_platforms(&mut words).map_err(|(_, why)| anyhow!(why))?;
            let shown = match (output, origin) {
                (ConfigForm::Json, _) => {
                    let shown = ShownConfig {
                        schema: "terrace.config.show/1",
                        config: words,
                    };
                    Ok(serde_json::to_string_pretty(&shown)? + "\n")
                }
                (ConfigForm::Toml, true) => config::write_with_origin(&words, settings.text()),
                (ConfigForm::Toml, false) => config::write(&words),
            };
            write!(out, "{}", shown?)?;
        }
        ConfigCommand::Schema { live } => {
            let schema = match live {
                true => agent::config_schema(),
                false => sim::scenario_schema(),
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&schema)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check_all(files: &[PathBuf], output: &OutputArg) -> anyhow::Result<ExitCode> {
    let mut checked = ConfigCheck { files: vec![] };
    for path in files {
        let (ok, what) = match check(path) {
            Ok(found) => (true, found),
            Err(e) => {
                let why = format!("{e:#}");
                for line in why.lines() {
                    let _ = writeln!(io::stderr(), "error: {line}");
                }
                (false, why)
            }
        };
        let file = path.display().to_string();
        checked.files.push(CheckedFile { file, ok, what });
    }
    output.print("terrace.config.check/1", &checked, |all| {
        let good = all.files.iter().filter(|f| f.ok);
        good.map(|f| format!("{}: {}\n", f.file, f.what)).collect()
    })?;
    Ok(match checked.files.iter().all(|f| f.ok) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Checks a file. Returns a description of its content.
fn check(path: &Path) -> anyhow::Result<String> {
    if is_live(&read(path)?) {
        let settings = read_config(path)?;
        let lines = check_start(path, &settings)?;
        let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        let words = &settings.words;
        let mut platforms = words.platforms.iter();
        let machines = platforms.find_map(|(name, table)| Some((Platform::find(name)?, table)));
        let hosts = match (&words.array, machines) {
            (Some(array), _) => format!("array {}", array.dir),
            (None, Some((platform, table))) => {
                platform.title(table).map_err(|(_, why)| anyhow!(why))?
            }
            (None, None) => "arrays of other hosts".into(),
        };
        return Ok(format!(
            "ok: live configuration: strategy {}, {}, tiers: {}, classes: {}, window {}{lines}",
            words.strategy,
            hosts,
            words.tiers.len(),
            words.classes.len(),
            words.window
        ));
    }
    let file = sim_cmd::read_scenario(path)?;
    sim_cmd::check_strategies(&file)?;
    if let Some(missing) = sim_cmd::missing_requirement(path, &file) {
        return Ok(format!("skipped: no {missing}"));
    }
    if let Some(config) = &file.scenario.counting {
        let loads = counting::loads(path, &file)?;
        let s = &file.scenario;
        return Ok(format!(
            "ok: counted: {loads} loads, {} methods, {} sizes of the fast tier, intervals of {}",
            s.compare.len(),
            config.fast_shares.len(),
            config.interval
        ));
    }
    let model = inputs::load(path, &file)?.model;
    Ok(format!(
        "ok: {} tiers, {} volumes of {} VMs, {} traces, {} clients, {}",
        model.topology.tiers.len(),
        model.volumes.len(),
        model.vms.len(),
        model.traces.len(),
        model.clients.len(),
        model.duration
    ))
}

/// Checks a live configuration as a start of `terrace serve` does. Returns lines for the operator about the platform of virtual machines.
///
/// # Errors
/// All faults that `terrace serve` would find, one per line.
fn check_start(path: &Path, settings: &Settings) -> anyhow::Result<Vec<String>> {
    let path = absolute(path)?;
    let base = path.parent().unwrap_or(Path::new("/"));
    let mut found = vec![];
    for finding in daemon::check(settings, base) {
        match finding {
            Finding::NoArray(what) => message(&format!("warning: {what}")),
            Finding::NotServed(what) => found.push(format!("{what} (then no volume is served)")),
            Finding::Degraded(what) => found.push(what),
        }
    }
    match found.is_empty() {
        true => Ok(daemon::check_platform(settings, base)?),
        false => Err(anyhow!(found.join("\n"))),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let expected = [FileKind::LiveConfiguration, FileKind::Scenario];
    text.map_err(|e| with_kind(path, &expected, e))
}
