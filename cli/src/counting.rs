//! Scenarios with a table `counting`: `terrace sim run` and `compare` evaluate them by counting.

use std::io::{self, Write};
use std::path::Path;

use runner::jobs;
use sim::ScenarioFile;
use sim::counting::CountingResult;

use runner::inputs::Inputs;

/// Evaluates these methods on every load of a scenario, with loads in parallel. `path` is the path of the scenario.
pub fn evaluate(
    path: &Path,
    file: &ScenarioFile,
    strategies: &[String],
) -> anyhow::Result<CountingResult> {
    file.check_methods(strategies)?;
    let mut inputs = Inputs::default();
    inputs.read(path, file)?;
    let (traces, measurements) = inputs.of(path, file);
    let loads = file.counting_loads(&traces, &measurements)?;
    let counted = jobs::side_by_side(&loads, |load| file.count(load, strategies));
    let mut rows = vec![];
    for of_load in counted {
        rows.extend(of_load?);
    }
    Ok(file.counting_result(rows)?)
}

/// Reads all loads of a scenario and checks that they can be counted. Returns their number.
pub fn loads(path: &Path, file: &ScenarioFile) -> anyhow::Result<usize> {
    let mut inputs = Inputs::default();
    inputs.read(path, file)?;
    let (traces, measurements) = inputs.of(path, file);
    Ok(file.counting_loads(&traces, &measurements)?.len())
}

/// Prints the result as a table.
pub fn print(result: &CountingResult) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let about = match result.about.as_str() {
        "" => String::new(),
        about => format!(": {about}"),
    };
    writeln!(out, "scenario {}{about}\n", result.scenario)?;
    write!(out, "{}", report::counting(result))
}
