//! Strategies by name: of the registry, or `FILE.py:CLASS` in a process of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use interpreter::{PythonStrategy, Source};
use planner::hosted::is_python;
use planner::{AnyStrategy, HostedStrategy};
use serde_json::{Value, json};
use sim::ScenarioFile;

use crate::sweeps::Strategies;

/// Kind of a strategy in Python, in the identity of a result. The package `terrace` has the same.
const PYTHON: &str = "python";

/// Strategies of one command. Strategies of the registry have the parameters of the scenario. A file with a strategy in Python must not
/// change while the command runs.
#[derive(Default)]
pub struct ByName {
    /// Hash of the source of each strategy in Python.
    sources: Mutex<BTreeMap<String, String>>,
}

impl ByName {
    /// Starts a strategy in Python, and returns it with the hash of its source.
    fn start(&self, name: &str) -> anyhow::Result<(PythonStrategy, String)> {
        let source = Source::new(name, Path::new(""));
        let (strategy, hash) =
            PythonStrategy::start(source).with_context(|| format!("strategy {name}"))?;
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sources.entry(name.into()).or_insert_with(|| hash.clone());
        if *known != hash {
            bail!("strategy {name}: the file has changed since the start: run the command again");
        }
        Ok((strategy, hash))
    }

    /// Returns the hash of the source of a strategy in Python.
    ///
    /// # Errors
    /// A strategy that cannot be loaded.
    pub fn source(&self, name: &str) -> anyhow::Result<String> {
        let known = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = known.get(name) {
            return Ok(hash.clone());
        }
        drop(known);
        Ok(self.start(name)?.1)
    }
}

impl Strategies for ByName {
    fn build(&self, file: &ScenarioFile, name: &str) -> anyhow::Result<Box<dyn AnyStrategy>> {
        if is_python(name) {
            return Ok(Box::new(HostedStrategy(self.start(name)?.0)));
        }
        Ok(file.strategy(name)?)
    }

    fn identity(&self, file: &ScenarioFile, name: &str) -> anyhow::Result<(String, Value)> {
        if is_python(name) {
            let source = self.source(name)?;
            return Ok((PYTHON.into(), json!({ "source": source })));
        }
        file.strategy(name)?;
        Ok(file.parameters(name)?)
    }
}
