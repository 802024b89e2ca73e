//! `terrace sim sweep --ray`: the runs of a sweep as tasks of Ray, by the package for Python. It writes results to the directory that the built-in
//! runner uses. Results have the names that this program expects, or the package does not begin.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use config::{Axis, Setting};
use runner::ray;
use runner::sweeps::PreparedSweep;
use serde_json::json;

use crate::sweep_bar::{State, SweepBar};
use crate::sweep_run::{self, CellMessages, Resume};

/// Outcome of the runs on Ray.
#[derive(Default)]
pub struct OnRay {
    /// Reasons of runs that failed, by the name of the result.
    pub failed: BTreeMap<String, String>,
    /// Number of runs that were made now, failed ones included.
    pub made: usize,
}

/// Runs the runs that the directory has no result of. `axes` are those of the sweep. Without an address, Ray starts on this machine.
///
/// # Errors
/// A Python without the package or without Ray; a package of another version; a directory that cannot be written.
pub fn run(
    prepared: &PreparedSweep,
    axes: &[Axis],
    directory: &Path,
    (resume, tell): (Resume, CellMessages),
    address: Option<&str>,
) -> anyhow::Result<OnRay> {
    let (sweep, runs) = (prepared.sweep(), prepared.runs());
    let grid = axes.iter().map(|axis| {
        let values = axis.values.iter().map(Setting::json);
        json!([axis.key, values.collect::<Vec<_>>()])
    });
    let definition = json!({
        "scenario": prepared.source().path,
        "grid": grid.collect::<Vec<_>>(),
        "strategies": sweep.strategies(),
        "seeds": sweep.seeds(),
        "names": runs.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        "directory": directory,
        "fresh": resume == Resume::Ignore,
        "address": address,
    });
    let waiting = runs.iter().map(|_| (0, State::Waiting));
    let mut bar = SweepBar::new(&sweep.base().scenario.name, waiting.collect(), runs.len());
    let mut on_ray = OnRay::default();
    ray::run(&definition, address, &mut |line| {
        let run = runs.iter().position(|(_, name)| *name == line.name);
        let run = run.with_context(|| format!("unexpected result {}", line.name))?;
        on_ray.made += usize::from(!line.existed);
        let tell = if line.existed {
            CellMessages::Faults
        } else {
            tell
        };
        let error = line.error.as_deref();
        let said = sweep_run::line(prepared, &runs[run], line.took_s, error, tell);
        bar.done(run, line.took_s, said.as_deref());
        if let Some(why) = line.error {
            on_ray.failed.insert(line.name, why);
        }
        Ok(())
    })?;
    Ok(on_ray)
}
