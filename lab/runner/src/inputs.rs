//! Input files of scenarios: traces and measurements, each read once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sim::{Model, ScenarioError, ScenarioFile, TraceHash};
use trace::measurements::Measurements;
use trace::{Format, LoadedTrace, OptionError, ReadOptions};
use xxhash_rust::xxh3::xxh3_128;

/// Traces and measurements of any number of scenarios, each read once. Clones share them.
#[derive(Clone, Default)]
pub struct Inputs {
    /// Traces by file and by the format in the scenario.
    traces: BTreeMap<(PathBuf, Option<String>), Arc<LoadedTrace>>,
    measurements: BTreeMap<PathBuf, Arc<MeasurementFile>>,
}

struct MeasurementFile {
    measurements: Measurements,
    xxh3: String,
}

/// Scenario with all its inputs.
pub struct LoadedScenario {
    /// Model that the simulator runs.
    pub model: Model,
    pub traces: Vec<TraceHash>,
    /// XXH3-128 hashes of the measurement files.
    pub measurements: Vec<String>,
}

/// Loads the files of one scenario and builds its model. `path` is the path of the scenario.
pub fn load(path: &Path, file: &ScenarioFile) -> Result<LoadedScenario, ScenarioError> {
    let mut inputs = Inputs::default();
    inputs.read(path, file)?;
    inputs.build(path, file)
}

impl Inputs {
    /// Adds a trace from memory, in place of file `name` of the scenario at `path`.
    pub fn add_trace(
        &mut self,
        path: &Path,
        file: &ScenarioFile,
        name: &str,
        trace: &Arc<LoadedTrace>,
    ) {
        let from = directory(path).join(name);
        for config in file.scenario.traces.iter().filter(|t| t.file == name) {
            let key = (from.clone(), config.format.clone());
            self.traces.insert(key, Arc::clone(trace));
        }
    }

    /// Reads the files of a scenario that were not read before.
    pub fn read(&mut self, path: &Path, file: &ScenarioFile) -> Result<(), ScenarioError> {
        let base = directory(path);
        for (i, config) in file.scenario.measurements.iter().enumerate() {
            let from = base.join(&config.file);
            if self.measurements.contains_key(&from) {
                continue;
            }
            let at = |e: String| file.fault(&format!("measurements[{i}].file"), e);
            let measurements = Measurements::read(&from).map_err(|e| at(e.to_string()))?;
            let bytes = fs::read(&from).map_err(|e| at(e.to_string()))?;
            let xxh3 = format!("{:032x}", xxh3_128(&bytes));
            let measured = MeasurementFile { measurements, xxh3 };
            self.measurements.insert(from, Arc::new(measured));
        }
        for (i, config) in file.scenario.traces.iter().enumerate() {
            let key = (base.join(&config.file), config.format.clone());
            if self.traces.contains_key(&key) {
                continue;
            }
            let trace = read_trace(file, i, &key.0, key.1.as_deref())?;
            self.traces.insert(key, Arc::new(trace));
        }
        Ok(())
    }

    /// Returns the traces and measurements of a scenario in its order. Its files must have been read.
    pub fn of(&self, path: &Path, file: &ScenarioFile) -> (Vec<&LoadedTrace>, Vec<&Measurements>) {
        let base = directory(path);
        let traces = file.scenario.traces.iter().map(|t| {
            let key = (base.join(&t.file), t.format.clone());
            &**self.traces.get(&key).expect("it was read")
        });
        let measurements = file.scenario.measurements.iter().map(|m| {
            let measured = self.measurements.get(&base.join(&m.file));
            &measured.expect("it was read").measurements
        });
        (traces.collect(), measurements.collect())
    }

    /// Builds the model of a scenario. Its files must have been read.
    pub fn build(&self, path: &Path, file: &ScenarioFile) -> Result<LoadedScenario, ScenarioError> {
        let base = directory(path);
        let mut file = file.clone();
        let mut measurements = Vec::new();
        for i in 0..file.scenario.measurements.len() {
            let from = base.join(&file.scenario.measurements[i].file);
            let measured = self.measurements.get(&from).expect("it was read");
            file.generate(i, &measured.measurements)?;
            measurements.push(measured.xxh3.clone());
        }
        let (mut traces, mut hashes) = (Vec::new(), Vec::new());
        for config in &file.scenario.traces {
            let key = (base.join(&config.file), config.format.clone());
            let trace = self.traces.get(&key).expect("it was read");
            hashes.push(TraceHash {
                file: config.file.clone(),
                xxh3: trace.content_hash.clone(),
                volumes_xxh3: trace.volumes_hash(),
                requests: trace.records().len() as u64,
            });
            traces.push(Arc::clone(trace));
        }
        Ok(LoadedScenario {
            model: file.build(traces)?,
            traces: hashes,
            measurements,
        })
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Reads trace `i` of a scenario.
fn read_trace(
    file: &ScenarioFile,
    i: usize,
    from: &Path,
    format: Option<&str>,
) -> Result<LoadedTrace, ScenarioError> {
    let at = |e: String| file.fault(&format!("traces[{i}].file"), e);
    let format = format
        .map(str::parse)
        .transpose()
        .map_err(|e: OptionError| file.fault(&format!("traces[{i}].format"), e))?;
    let options = ReadOptions {
        format,
        ..ReadOptions::default()
    };
    let trace = trace::load(from, &options).map_err(|e| at(e.to_string()))?;
    match &trace.format_assumed {
        Some(why) if trace.format == Format::Csv => Err(at(format!(
            "{why}; then convert it for the scenario: terrace trace convert"
        ))),
        Some(why) => Err(at(format!("{why}; name it: format = \"{}\"", trace.format))),
        None => Ok(trace),
    }
}
