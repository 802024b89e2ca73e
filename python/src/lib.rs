//! Package `terrace` for Python: traces, scenarios, results as Arrow tables, and strategies and cache policies that are written in Python.
//!
//! ```text
//!  Trace ────▶ tables, statistics, miss-ratio curves, cache simulations
//!  Scenario ─▶ runner::inputs ─▶ sim ─▶ Result, Comparison ─▶ tables
//!                                 │ AnyStrategy
//!                                 └▶ strategy in Python: facts as tables, moves back
//! ```
//!
//! Only glue: no rule of the simulator is here. Simulations run on threads without the interpreter's lock. The caller's thread waits for their
//! progress, and ends them when a signal arrives.

mod cache_sim;
mod comparison;
mod error;
mod facts;
mod import;
mod interrupt;
mod json;
mod results;
mod running;
mod scenario;
mod strategy;
mod summary;
mod sweeps;
mod table;
mod traces;

use std::process::ExitCode;

use pyo3::prelude::*;

/// Rust part of the package `terrace`.
#[pymodule]
fn _terrace(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let error = py.get_type::<error::TerraceError>();
    error.setattr("file", py.None())?;
    error.setattr("line", py.None())?;
    module.add("TerraceError", error)?;
    module.add_class::<table::Table>()?;
    module.add_class::<traces::Trace>()?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<results::RunTables>()?;
    module.add_class::<comparison::Comparison>()?;
    module.add_class::<facts::FactsView>()?;
    module.add_class::<strategy::StrategyServer>()?;
    module.add_class::<summary::Summary>()?;
    module.add_class::<sweeps::CellRunner>()?;
    module.add_class::<sweeps::SweepPlan>()?;
    module.add_function(wrap_pyfunction!(run_reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(summary::mrc_summary, module)?)?;
    module.add_function(wrap_pyfunction!(strategies, module)?)?;
    module.add_function(wrap_pyfunction!(cache_policies, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}

/// Names of the strategies that are built in.
#[pyfunction]
fn strategies() -> Vec<&'static str> {
    planner::REGISTRY.iter().map(|e| e.name).collect()
}

/// Runs the program `terrace reproduce` with these arguments; returns True if it succeeded. `terrace._reproduce` calls it in a process of its own.
#[pyfunction]
fn run_reproduce(py: Python<'_>, args: Vec<String>) -> bool {
    let args = std::iter::once("terrace reproduce".to_owned()).chain(args);
    py.detach(|| terrace_reproduce::run_with(args.map(Into::into)) == ExitCode::SUCCESS)
}

/// Names of the cache policies that are built in.
#[pyfunction]
fn cache_policies() -> Vec<&'static str> {
    cache::REGISTRY.iter().map(|e| e.name).collect()
}
