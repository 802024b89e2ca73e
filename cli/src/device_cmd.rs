//! `terrace device …`. This module has `calibrate`, which fits a device of a scenario to measurements of fio.

mod doubts;
mod fio;
mod output;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use algo::{Basis, DeviceFit, LoadPoint, fit_device};
use anyhow::{Context, bail, ensure};
use clap::{Subcommand, ValueEnum};
use model::DevicePreset;

use fio::FioLoad;

use crate::device_live;
use crate::file_kind::{FileKind, with_kind};

/// Largest size of an input file, bytes. It limits memory, because files are read as a whole; a sweep of fio is below a megabyte.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Ratio of requests in flight to the configured depth above which a measurement contradicts itself. A smaller excess is possible, because
/// fio counts rates and latencies over slightly different times.
const IN_FLIGHT_HIGH: f64 = 1.5;

/// Names of the directions in columns.
const DIRECTIONS: [&str; 2] = ["reads", "writes"];

/// `terrace device …`
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Fit a scenario's device to measurements by fio: caps, latencies, the growth of latency with load
    Calibrate {
        /// Outputs of `fio --output-format=json`, of one device
        #[arg(required = true, value_name = "RUN.json")]
        runs: Vec<PathBuf>,
        /// Name of the tier; by default from the first file
        #[arg(long)]
        name: Option<String>,
        /// Preset for values that were not measured (size, price, …) instead of the most similar one
        #[arg(long)]
        preset: Option<String>,
        /// Form of the output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Form,
        /// Write a chart of the points and the fitted curves, as a picture or as an offline page
        #[arg(long, value_name = "FILE.svg|FILE.html")]
        chart: Option<PathBuf>,
    },
    /// Remove an empty or a lost device from its array
    Remove(device_live::Remove),
    /// Replace a lost or empty device with a new one
    Replace(device_live::Replace),
    /// Accept a device that the array refuses, with its present content
    Accept(device_live::Accept),
    /// Set whether I/O on a device bypasses the page cache of the host
    Direct(device_live::DirectArgs),
}

/// Form of a calibration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people: the fit, and every point as measured and as fitted
    Table,
    /// For programs; the layout names its version
    Json,
    /// A tier for a scenario file
    Toml,
}

/// Data of all forms of output.
struct Calibration {
    name: String,
    preset: &'static DevicePreset,
    loads: Vec<FioLoad>,
    fit: DeviceFit,
    doubts: Vec<String>,
}

#[derive(Clone, Copy)]
enum ChartForm {
    Svg,
    Html,
}

/// Runs `terrace device …`.
pub fn run(command: DeviceCommand) -> anyhow::Result<ExitCode> {
    let (runs, name, preset, output, chart) = match command {
        DeviceCommand::Calibrate {
            runs,
            name,
            preset,
            output,
            chart,
        } => (runs, name, preset, output, chart),
        DeviceCommand::Remove(what) => return device_live::remove(&what),
        DeviceCommand::Replace(what) => return device_live::replace(what),
        DeviceCommand::Accept(what) => return device_live::accept(&what),
        DeviceCommand::Direct(what) => return device_live::direct(&what),
    };
    // An invalid name of the chart is reported before the work.
    let chart = chart
        .map(|path| chart_form(&path).map(|form| (path, form)))
        .transpose()?;
    let name = tier_name(name, &runs[0])?;
    let preset = preset.as_deref().map(find_preset).transpose()?;
    let calibration = calibrate(&runs, name, preset)?;
    let mut messages = io::stderr().lock();
    for doubt in &calibration.doubts {
        writeln!(messages, "warning: {}", report::printable(doubt))?;
    }
    if let Some((path, form)) = chart {
        let text = match form {
            ChartForm::Svg => calibration.chart().svg(),
            ChartForm::Html => calibration.page(),
        };
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(messages, "chart written to {}", path.display())?;
    }
    let mut out = io::stdout().lock();
    match output {
        Form::Table => write!(out, "{}", calibration.tables())?,
        Form::Toml => write!(out, "{}", calibration.toml())?,
        Form::Json => {
            serde_json::to_writer_pretty(&mut out, &calibration.json())?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn chart_form(path: &Path) -> anyhow::Result<ChartForm> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty());
    if let Some(dir) = dir.filter(|d| !d.is_dir()) {
        bail!("--chart: directory {} does not exist", dir.display());
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(ChartForm::Svg),
        Some("html") => Ok(ChartForm::Html),
        _ => bail!(
            "--chart {}: the name must end in .svg or .html",
            path.display()
        ),
    }
}

fn tier_name(given: Option<String>, first: &Path) -> anyhow::Result<String> {
    let name = match given {
        Some(name) => name,
        None => first
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or("device")
            .into(),
    };
    let plain = |c: char| c.is_alphanumeric() || "-_. +".contains(c);
    ensure!(
        !name.is_empty() && name.len() <= 100 && name.chars().all(plain),
        "--name {name:?}: letters, digits, - _ . + and blanks, up to 100 bytes"
    );
    Ok(name)
}

fn find_preset(name: &str) -> anyhow::Result<&'static DevicePreset> {
    let names: Vec<&str> = model::PRESETS.iter().map(|p| p.name).collect();
    model::preset(name).with_context(|| {
        format!(
            "--preset {name}: unknown preset; known presets: {}",
            names.join(", ")
        )
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<FioLoad>> {
    let shown = path.display().to_string();
    let cannot = || format!("cannot read {shown}");
    let length = fs::metadata(path).with_context(cannot)?.len();
    ensure!(
        length <= FILE_BYTES_MAX,
        "{shown}: {length} bytes: too large for an output of fio"
    );
    let loads = fs::read_to_string(path)
        .with_context(cannot)
        .and_then(|text| fio::parse(&shown, &text));
    loads.map_err(|e| with_kind(path, &[FileKind::FioOutput], e))
}

fn calibrate(
    runs: &[PathBuf],
    name: String,
    preset: Option<&'static DevicePreset>,
) -> anyhow::Result<Calibration> {
    let mut loads = Vec::new();
    for path in runs {
        loads.extend(read(path)?);
        ensure!(
            loads.len() <= fio::LOADS_MAX,
            "{}: more than {} loads in total: measure fewer",
            path.display(),
            fio::LOADS_MAX
        );
    }
    let points: Vec<LoadPoint> = loads.iter().map(|l| l.point).collect();
    let fitted = |preset: &DevicePreset| {
        fit_device(&points, &preset.spec())
            .context("these files have no load: run fio with at least one job")
    };
    let preset = match preset {
        Some(preset) => preset,
        None => most_alike(&fitted(&model::PRESETS[0])?),
    };
    let fit = fitted(preset)?;
    check_possible(&runs[0], &loads, &fit)?;
    let doubts = doubts::doubts(&loads, &fit);
    Ok(Calibration {
        name,
        preset,
        loads,
        fit,
        doubts,
    })
}

/// Refuses impossible measurements.
fn check_possible(run: &Path, loads: &[FioLoad], fit: &DeviceFit) -> anyhow::Result<()> {
    let shown = run.display();
    let again = "measure the device again, with direct=1 and a load at iodepth=1";
    if let Some((key, why)) = fit.spec.impossible() {
        bail!("{shown}: {key}: {why}; {again}");
    }
    // Little's law. Loads whose engine ignores the depth are skipped.
    let mut known = loads.iter().filter(|l| !l.depth_ignored);
    let above = |l: &&FioLoad| l.point.in_flight() > IN_FLIGHT_HIGH * l.depth as f64;
    if let Some(l) = known.find(above) {
        bail!(
            "{shown}: load {} is impossible: its rate times its latency is {:.0} requests in flight (Little's law), with an iodepth of {} in total; {again}",
            report::printable(&l.name),
            l.point.in_flight(),
            l.depth
        );
    }
    Ok(())
}

/// Returns the preset whose values differ least from the measured ones, by the sum of squared logarithms of their ratios.
fn most_alike(fit: &DeviceFit) -> &'static DevicePreset {
    let distance = |preset: &DevicePreset| {
        let s = preset.spec();
        let of = [
            [
                s.read_latency.as_micros_f64(),
                s.read_iops,
                s.read_bandwidth.as_f64(),
            ],
            [
                s.write_latency.as_micros_f64(),
                s.write_iops,
                s.write_bandwidth.as_f64(),
            ],
        ];
        let measured = fit
            .directions
            .iter()
            .zip(of)
            .filter_map(|(d, s)| Some((d.as_ref()?, s)));
        measured
            .flat_map(|(d, s)| [d.base_us, d.iops, d.bandwidth].into_iter().zip(s))
            .filter(|(value, _)| value.basis != Basis::Given)
            .map(|(value, s)| (value.value / s).ln().powi(2))
            .sum::<f64>()
    };
    model::PRESETS
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .expect("there are presets")
}
