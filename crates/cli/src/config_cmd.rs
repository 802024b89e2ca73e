//! `terrace config …`: check scenarios and live configurations, show what they come to, print their schemas.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use manager::settings::{ManagerConfig, Settings};
use serde::Serialize;

use crate::counting;
use crate::inputs;
use crate::live::{OutputArg, wrong_usage};
use crate::sim_cmd;

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
    /// Print all that a live configuration comes to, defaults and all
    Show {
        /// Configuration of `terrace serve`
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Say behind every value which line gives it, or that it is a default
        #[arg(long)]
        origin: bool,
        /// Form of the output
        #[arg(short, long, value_enum, default_value = "toml")]
        output: ShownAs,
    },
    /// Print the JSON schema of scenarios
    Schema {
        /// That of live configurations instead
        #[arg(long)]
        live: bool,
    },
}

/// Form of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShownAs {
    /// As it would be written
    Toml,
    /// For programs; the layout names its version
    Json,
}

/// What was found in files.
#[derive(Serialize)]
struct Checked {
    files: Vec<CheckedFile>,
}

#[derive(Serialize)]
struct CheckedFile {
    file: String,
    /// Whether there is no fault in it.
    ok: bool,
    /// What it is, or its fault.
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
            output: ShownAs::Json,
            ..
        } => {
            return Ok(wrong_usage(
                "--origin writes comments, which JSON has no place for",
            ));
        }
        ConfigCommand::Show {
            file,
            origin,
            output,
        } => {
            let (settings, text) = read_live(&file)?;
            let words = settings.effective()?;
            let shown = match (output, origin) {
                (ShownAs::Json, _) => {
                    let shown = ShownConfig {
                        schema: "terrace.config.show/1",
                        config: words,
                    };
                    Ok(serde_json::to_string_pretty(&shown)? + "\n")
                }
                (ShownAs::Toml, true) => config::write_with_origin(&words, &text),
                (ShownAs::Toml, false) => config::write(&words),
            };
            write!(out, "{}", shown.map_err(|why| anyhow!(why))?)?;
        }
        ConfigCommand::Schema { live } => {
            let schema = match live {
                true => manager::shown::config_schema(),
                false => sim::scenario_schema(),
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&schema)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check_all(files: &[PathBuf], output: &OutputArg) -> anyhow::Result<ExitCode> {
    let mut checked = Checked { files: vec![] };
    for path in files {
        let (ok, what) = match check(path) {
            Ok(found) => (true, found),
            Err(e) => {
                let why = format!("{e:#}");
                let _ = writeln!(io::stderr(), "error: {why}");
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

/// What a file is, where there is no fault in it.
fn check(path: &Path) -> anyhow::Result<String> {
    if is_live(&read(path)?) {
        let settings = read_live(path)?.0;
        let words = &settings.words;
        let hosts = match (&words.array, &words.libvirt, &words.qemu) {
            (Some(array), ..) => format!("array {}", array.dir),
            (_, Some(_), _) => "virtual machines under libvirt".into(),
            (.., Some(qemu)) => format!("virtual machines of QEMU in {}", qemu.sockets),
            _ => "arrays of other hosts".into(),
        };
        return Ok(format!(
            "ok: live configuration: strategy {}, {}, {} tiers, {} classes, window {}",
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

/// Whether a text is a live configuration: it has none of the keys that only scenarios have, such as volumes and loads.
fn is_live(text: &str) -> bool {
    let (scenario, live) = (sim::scenario_schema(), manager::shown::config_schema());
    let has = |schema: &serde_json::Value, key: &str| schema["properties"].get(key).is_some();
    let keys = config::root_keys(text);
    !keys.iter().any(|k| has(&scenario, k) && !has(&live, k))
}

fn read_live(path: &Path) -> anyhow::Result<(Settings, config::Text)> {
    let name = path.display().to_string();
    let (words, text) = config::read::<ManagerConfig>(&name, &read(path)?)?;
    let settings = Settings::new(text.clone(), words)?;
    Ok((settings, text))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_told_from_live_configurations() {
        for text in [
            "",
            "strategy = \"idt\"\nwindow = \"5s\"",
            "[controller]\nstate = \"s\"",
            "[[tiers]]\nname = \"fast\"\n[policy]\nhold = 1",
            // A key that nobody knows is a fault of a live configuration.
            "volums = 1",
            // As is text that is no TOML.
            "strategy =",
        ] {
            assert!(is_live(text), "{text}");
        }
        for text in [
            "[[volumes]]\nname = \"a\"",
            "[[traces]]\nfile = \"a\"",
            "[[clients]]\nvolume = \"a\"",
            "[[measurements]]\nfile = \"a\"",
            "duration = \"1m\"\n[[tiers]]\nname = \"fast\"",
        ] {
            assert!(!is_live(text), "{text}");
        }
    }
}
