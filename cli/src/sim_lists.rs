//! `terrace sim strategies` and `terrace sim presets`: names that scenarios can use.

use std::fmt::Write;
use std::process::ExitCode;

use model::DeviceSpec;
use serde::Serialize;

use crate::live::OutputArg;

#[derive(Serialize)]
struct Strategies {
    strategies: Vec<Strategy>,
}

#[derive(Serialize)]
struct Strategy {
    name: &'static str,
    summary: &'static str,
    /// JSON schema of the parameters.
    parameters: serde_json::Value,
}

#[derive(Serialize)]
struct Presets {
    devices: Vec<Device>,
    ssds: Vec<Ssd>,
    clients: Vec<Client>,
}

#[derive(Serialize)]
struct Device {
    name: &'static str,
    source: &'static str,
    spec: DeviceSpec,
}

#[derive(Serialize)]
struct Ssd {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
}

#[derive(Serialize)]
struct Client {
    name: &'static str,
    load: &'static str,
    stands_for: &'static str,
    iops: f64,
    mib_per_s: f64,
}

/// `terrace sim strategies`
pub fn strategies(output: &OutputArg) -> anyhow::Result<ExitCode> {
    let entries = planner::REGISTRY.iter().map(|entry| Strategy {
        name: entry.name,
        summary: entry.summary,
        parameters: (entry.schema)(),
    });
    let strategies = Strategies {
        strategies: entries.collect(),
    };
    output.print("terrace.sim.strategies/1", &strategies, |all| {
        let width = all.strategies.iter().map(|s| s.name.len()).max();
        let width = width.unwrap_or(0) + 2;
        let lines = all.strategies.iter();
        lines
            .map(|s| format!("{:<width$}{}\n", s.name, s.summary))
            .collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `terrace sim presets`
pub fn presets(output: &OutputArg) -> anyhow::Result<ExitCode> {
    let presets = Presets {
        devices: model::PRESETS
            .iter()
            .map(|p| Device {
                name: p.name,
                source: p.source,
                spec: p.spec(),
            })
            .collect(),
        ssds: flash::drive::PRESETS
            .iter()
            .map(|p| Ssd {
                name: p.name,
                summary: p.summary,
                source: p.source,
            })
            .collect(),
        clients: trace::CLIENT_PRESETS
            .iter()
            .chain(trace::FIO_PRESETS)
            .map(|p| Client {
                name: p.name,
                load: p.load,
                stands_for: p.stands_for,
                iops: p.iops,
                mib_per_s: p.mib_per_s,
            })
            .collect(),
    };
    output.print("terrace.sim.presets/1", &presets, table)?;
    Ok(ExitCode::SUCCESS)
}

fn table(presets: &Presets) -> String {
    let mut out = String::from("devices:\n");
    for p in &presets.devices {
        let _ = writeln!(out, "  {:<18}{}", p.name, p.source);
    }
    out += "ssds (terrace sim ssd):\n";
    for p in &presets.ssds {
        let _ = writeln!(out, "  {:<18}{}; {}", p.name, p.summary, p.source);
    }
    out += "clients (paper 0, Table V):\n";
    for p in &presets.clients {
        let _ = writeln!(
            out,
            "  {:<18}{:<7} {} ({:.0} IOPS)",
            p.name, p.load, p.stands_for, p.iops
        );
    }
    out
}
