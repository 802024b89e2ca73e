//! Strategies in Python: facts out as tables, moves back as a list or a table.
//!
//! [`planner::hosted`] makes wishes of the moves, so pins, rules, gates and lint apply. Each decision is made twice, and both must be equal.

use std::sync::{Arc, Mutex, PoisonError};

use planner::hosted::{Decider, DecisionRequest, HostedDecision, WantedMove, wishes};
use planner::{Context, StrategyFailure};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use serde_json::{Value, json};

use crate::error::{error, other};
use crate::facts::FactsView;
use crate::import::ForeignTable;
use crate::interrupt::Interrupts;
use crate::json;

/// Keys of a move.
const KEYS: [&str; 6] = ["volume", "tier", "device", "value", "latency_us", "reason"];

/// First exception of a strategy in a run.
pub type Failure = Arc<Mutex<Option<PyErr>>>;

/// Strategy that is an object in Python.
pub struct PythonStrategy {
    object: Py<PyAny>,
    name: String,
    every_epoch: bool,
    failure: Failure,
    interrupts: Arc<Interrupts>,
}

/// Name of a strategy in Python: its attribute `name`, or that of its class.
pub fn name_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Some(name) = object.getattr_opt("name")? {
        return name.extract();
    }
    match object.cast::<PyType>() {
        Ok(class) => Ok(class.name()?.to_string()),
        Err(_) => Ok(object.get_type().name()?.to_string()),
    }
}

impl PythonStrategy {
    /// A strategy for one run, with the place of its first exception. A class is instantiated.
    pub fn new(
        name: &str,
        object: &Bound<'_, PyAny>,
        interrupts: &Arc<Interrupts>,
    ) -> PyResult<(Self, Failure)> {
        let object = match object.is_instance_of::<PyType>() {
            true => interrupts.call(object.py(), || object.call0())?,
            false => object.clone(),
        };
        let every_epoch = match object.getattr_opt("every_epoch")? {
            Some(flag) => flag.is_truthy()?,
            None => false,
        };
        let failure = Failure::default();
        let made = Self {
            object: object.unbind(),
            name: name.into(),
            every_epoch,
            failure: Arc::clone(&failure),
            interrupts: Arc::clone(interrupts),
        };
        Ok((made, failure))
    }

    /// Two decisions, which must be equal: the moves by names, and what the planner makes of them.
    fn twice(
        &self,
        py: Python<'_>,
        context: &Context<'_>,
        state: &Value,
    ) -> PyResult<(Vec<WantedMove>, HostedDecision)> {
        let facts = Bound::new(py, FactsView::new(py, context)?)?;
        let (moves, next) = self.once(&facts, context, state)?;
        let wishes = wishes(context, &moves);
        let wishes = wishes.map_err(|e| error(format!("strategy {}: {e}", self.name)))?;
        let (again, next_again) = self.once(&facts, context, state)?;
        if moves != again || next != next_again {
            let what = match moves != again {
                true => "moves",
                false => "states",
            };
            return Err(error(format!(
                "strategy {} is not deterministic: at {} s, two decisions from the same facts, state and seed differ in their {what}; keep \
                 everything that it remembers in the state, sort sets, and draw random numbers from the seed",
                self.name,
                context.facts.at.as_secs_f64()
            )));
        }
        let state = next;
        Ok((moves, HostedDecision { wishes, state }))
    }

    fn once(
        &self,
        facts: &Bound<'_, FactsView>,
        context: &Context<'_>,
        state: &Value,
    ) -> PyResult<(Vec<WantedMove>, Value)> {
        let py = facts.py();
        let before = json::to_python(py, state)?;
        let decide = self.object.bind(py).getattr("decide")?;
        let returned = decide.call1((facts, before, context.seed))?;
        self.plain(&returned, state)
    }

    /// Returns moves and state of what `decide` returned; `state` is the one before.
    fn plain(
        &self,
        returned: &Bound<'_, PyAny>,
        state: &Value,
    ) -> PyResult<(Vec<WantedMove>, Value)> {
        if returned.is_none() {
            return Ok((vec![], state.clone()));
        }
        let (moves, state) = match returned.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => {
                let what = format!("the state of strategy {}", self.name);
                let state = json::from_python(&what, &pair.get_item(1)?)?;
                (pair.get_item(0)?, state)
            }
            _ => (returned.clone(), state.clone()),
        };
        Ok((self.rows(&moves)?, state))
    }

    fn wrong(&self, i: usize, why: &str) -> PyErr {
        error(format!("strategy {}: move {i}: {why}", self.name))
    }

    /// Moves as they were returned: None, a table, or an iterable of dicts or of pairs (volume, tier).
    fn rows(&self, moves: &Bound<'_, PyAny>) -> PyResult<Vec<WantedMove>> {
        if moves.is_none() {
            return Ok(vec![]);
        }
        if moves.hasattr("__arrow_c_stream__")? || moves.hasattr("__arrow_c_array__")? {
            return table_rows(&ForeignTable::new("moves", moves)?);
        }
        let mut rows = Vec::new();
        for (i, one) in moves.try_iter()?.enumerate() {
            let one = one?;
            if let Ok((volume, tier)) = one.extract::<(String, String)>() {
                rows.push(WantedMove {
                    volume,
                    tier,
                    device: None,
                    value: None,
                    latency_us: None,
                    reason: None,
                });
                continue;
            }
            let dict = one
                .cast::<PyDict>()
                .map_err(|_| self.wrong(i, "must be a dict, or a pair (volume, tier)"))?;
            rows.push(self.row(i, dict)?);
        }
        Ok(rows)
    }

    fn row(&self, i: usize, dict: &Bound<'_, PyDict>) -> PyResult<WantedMove> {
        for key in dict.keys() {
            let key: String = key.extract()?;
            if !KEYS.contains(&key.as_str()) {
                let known = KEYS.join(", ");
                return Err(self.wrong(i, &format!("unknown key \"{key}\"; known: {known}")));
            }
        }
        let value = |key: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            Ok(dict.get_item(key)?.filter(|v| !v.is_none()))
        };
        let text = |key: &str| -> PyResult<Option<String>> {
            let found = value(key)?.map(|v| v.extract::<String>()).transpose();
            found.map_err(|_| self.wrong(i, &format!("{key} must be text")))
        };
        let number = |key: &str| -> PyResult<Option<f64>> {
            let found = value(key)?.map(|v| v.extract::<f64>()).transpose();
            found.map_err(|_| self.wrong(i, &format!("{key} must be a number")))
        };
        let required = |key: &str| -> PyResult<String> {
            text(key)?.ok_or_else(|| self.wrong(i, &format!("missing key \"{key}\"")))
        };
        Ok(WantedMove {
            volume: required("volume")?,
            tier: required("tier")?,
            device: text("device")?,
            value: number("value")?,
            latency_us: number("latency_us")?,
            reason: text("reason")?,
        })
    }
}

fn table_rows(table: &ForeignTable) -> PyResult<Vec<WantedMove>> {
    table.check_names(&KEYS)?;
    let volumes = table.required("volume", table.text("volume")?)?;
    let tiers = table.required("tier", table.text("tier")?)?;
    let (devices, reasons) = (table.text("device")?, table.text("reason")?);
    let (values, latencies) = (table.f64("value")?, table.f64("latency_us")?);
    let text = |of: &Option<Vec<Option<String>>>, i: usize| of.as_ref().and_then(|v| v[i].clone());
    let number = |of: &Option<Vec<Option<f64>>>, i: usize| of.as_ref().and_then(|v| v[i]);
    let rows = volumes.into_iter().zip(tiers).enumerate();
    let row = |(i, (volume, tier)): (usize, (String, String))| WantedMove {
        volume,
        tier,
        device: text(&devices, i),
        value: number(&values, i),
        latency_us: number(&latencies, i),
        reason: text(&reasons, i),
    };
    Ok(rows.map(row).collect())
}

impl Decider for PythonStrategy {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide(
        &self,
        context: &Context<'_>,
        state: &Value,
    ) -> Result<Option<HostedDecision>, StrategyFailure> {
        if !context.facts.placement_due && !self.every_epoch {
            return Ok(None);
        }
        let decided = Python::attach(|py| {
            let decide = || self.twice(py, context, state);
            self.interrupts.call(py, decide)
        });
        // The caller raises the exception itself.
        decided.map(|(_, decided)| Some(decided)).map_err(|raised| {
            let words = raised.to_string();
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
            words.into()
        })
    }
}

/// Strategy of a process of its own (`terrace._serve`), which gets facts as JSON.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct StrategyServer {
    strategy: PythonStrategy,
}

#[pymethods]
impl StrategyServer {
    /// Takes an object or a class, which is instantiated.
    #[new]
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.hasattr("decide")? {
            return Err(error("a strategy has decide(facts, state, seed)"));
        }
        let (strategy, _) = PythonStrategy::new(&name_of(object)?, object, &Arc::default())?;
        Ok(Self { strategy })
    }

    /// True if the strategy also decides in epochs without placement.
    #[getter]
    fn every_epoch(&self) -> bool {
        self.strategy.every_epoch
    }

    /// Returns what `decide` returned as JSON, for `terrace._lint`.
    fn plain(&self, returned: &Bound<'_, PyAny>) -> PyResult<String> {
        let (moves, state) = self.strategy.plain(returned, &Value::Null)?;
        Ok(json!({ "moves": moves, "state": state }).to_string())
    }

    /// Returns the decision for a request, both as JSON.
    fn decide<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let request: DecisionRequest<'_> = serde_json::from_slice(request).map_err(other)?;
        let context = Context {
            facts: &request.facts,
            policy: &request.policy,
            seed: request.seed,
        };
        let (moves, decided) = self.strategy.twice(py, &context, &request.state)?;
        let number = request.number;
        let reply =
            json!({ "decided": { "number": number, "moves": moves, "state": decided.state } });
        Ok(PyBytes::new(py, reply.to_string().as_bytes()))
    }
}
