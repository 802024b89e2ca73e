//! Strategies in Python: facts out as tables, moves back as a list or a table.
//!
//! The planner treats the moves like the wishes of a native strategy: pins, rules and gates apply, `arrange` chooses devices and order, and
//! `lint` checks the plan. Each decision is made twice, and both must be equal.

use std::sync::{Arc, Mutex, PoisonError};

use model::{Epochs, Goal, Reason};
use planner::{
    AnyStrategy, ConfigError, Context, DeviceOption, Draft, Granularity, PlaceRequest,
    StrategyState, Wish,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use serde_json::Value;
use units::{DeviceId, TierId, VolumeId};

use crate::error::error;
use crate::facts::FactsView;
use crate::import::Imported;
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
}

/// Move that a strategy wants.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    volume: VolumeId,
    tier: TierId,
    device: Option<DeviceId>,
    value: f64,
    latency_us: Option<f64>,
    reason: Option<String>,
}

/// Move as it comes from Python, by names.
struct Row {
    volume: String,
    tier: String,
    device: Option<String>,
    value: Option<f64>,
    latency_us: Option<f64>,
    reason: Option<String>,
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
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<(Self, Failure)> {
        let name = name_of(object)?;
        let object = match object.is_instance_of::<PyType>() {
            true => object.call0()?,
            false => object.clone(),
        };
        let every_epoch = match object.getattr_opt("every_epoch")? {
            Some(flag) => flag.is_truthy()?,
            None => false,
        };
        let failure = Failure::default();
        let made = Self {
            object: object.unbind(),
            name,
            every_epoch,
            failure: Arc::clone(&failure),
        };
        Ok((made, failure))
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<PyErr>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two decisions, which must be equal.
    fn decide(
        &self,
        py: Python<'_>,
        context: &Context<'_>,
        state: &Value,
    ) -> PyResult<(Vec<Wanted>, Value)> {
        let facts = Bound::new(py, FactsView::new(py, context)?)?;
        let (moves, next) = self.once(&facts, context, state)?;
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
        Ok((moves, next))
    }

    fn once(
        &self,
        facts: &Bound<'_, FactsView>,
        context: &Context<'_>,
        state: &Value,
    ) -> PyResult<(Vec<Wanted>, Value)> {
        let py = facts.py();
        let before = json::to_python(py, state)?;
        let decide = self.object.bind(py).getattr("decide")?;
        let returned = decide.call1((facts, before, context.seed))?;
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
        let rows = self.rows(&moves)?;
        if !rows.is_empty() && !context.facts.placement_due {
            return Err(error(format!(
                "strategy {}: moves outside a migration epoch; look at facts.placement_due",
                self.name
            )));
        }
        let wanted: PyResult<Vec<Wanted>> = rows
            .into_iter()
            .enumerate()
            .map(|(i, row)| self.wanted(context, i, row))
            .collect();
        let wanted = wanted?;
        for (i, one) in wanted.iter().enumerate() {
            if wanted[..i].iter().any(|w| w.volume == one.volume) {
                let name = &context.facts.volumes[one.volume.index()].name;
                return Err(self.wrong(i, &format!("volume \"{name}\" is moved twice")));
            }
        }
        Ok((wanted, state))
    }

    fn wrong(&self, i: usize, why: &str) -> PyErr {
        error(format!("strategy {}: move {i}: {why}", self.name))
    }

    /// Moves as they were returned: None, a table, or an iterable of dicts or of pairs (volume, tier).
    fn rows(&self, moves: &Bound<'_, PyAny>) -> PyResult<Vec<Row>> {
        if moves.is_none() {
            return Ok(vec![]);
        }
        if moves.hasattr("__arrow_c_stream__")? || moves.hasattr("__arrow_c_array__")? {
            return table_rows(&Imported::new("moves", moves)?);
        }
        let mut rows = Vec::new();
        for (i, one) in moves.try_iter()?.enumerate() {
            let one = one?;
            if let Ok((volume, tier)) = one.extract::<(String, String)>() {
                rows.push(Row {
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

    fn row(&self, i: usize, dict: &Bound<'_, PyDict>) -> PyResult<Row> {
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
        Ok(Row {
            volume: required("volume")?,
            tier: required("tier")?,
            device: text("device")?,
            value: number("value")?,
            latency_us: number("latency_us")?,
            reason: text("reason")?,
        })
    }

    /// The move by ids, with its numbers checked.
    fn wanted(&self, context: &Context<'_>, i: usize, row: Row) -> PyResult<Wanted> {
        let facts = context.facts;
        let volume = facts.volumes.iter().position(|v| v.name == row.volume);
        let volume =
            volume.ok_or_else(|| self.wrong(i, &format!("unknown volume \"{}\"", row.volume)))?;
        let tier = facts.topology.tiers.iter().position(|t| t.name == row.tier);
        let tier = tier.ok_or_else(|| {
            let known: Vec<&str> = facts
                .topology
                .tiers
                .iter()
                .map(|t| t.name.as_str())
                .collect();
            let known = known.join(", ");
            self.wrong(i, &format!("unknown tier \"{}\"; known: {known}", row.tier))
        })?;
        let tier = TierId::from_index(tier);
        let device = match row.device {
            None => None,
            Some(name) => {
                let devices = facts.topology.devices.iter();
                let found = devices
                    .clone()
                    .position(|d| d.name == name && d.tier == tier);
                Some(DeviceId::from_index(found.ok_or_else(|| {
                    self.wrong(
                        i,
                        &format!("tier \"{}\" has no device \"{name}\"", row.tier),
                    )
                })?))
            }
        };
        for (key, number) in [("value", row.value), ("latency_us", row.latency_us)] {
            if number.is_some_and(|n| !n.is_finite()) {
                return Err(self.wrong(i, &format!("{key} is not a finite number")));
            }
        }
        Ok(Wanted {
            volume: VolumeId::from_index(volume),
            tier,
            device,
            value: row.value.unwrap_or(1.0),
            latency_us: row.latency_us,
            reason: row.reason,
        })
    }
}

fn table_rows(table: &Imported) -> PyResult<Vec<Row>> {
    table.check_names(&KEYS)?;
    let volumes = table.required("volume", table.text("volume")?)?;
    let tiers = table.required("tier", table.text("tier")?)?;
    let (devices, reasons) = (table.text("device")?, table.text("reason")?);
    let (values, latencies) = (table.f64("value")?, table.f64("latency_us")?);
    let text = |of: &Option<Vec<Option<String>>>, i: usize| of.as_ref().and_then(|v| v[i].clone());
    let number = |of: &Option<Vec<Option<f64>>>, i: usize| of.as_ref().and_then(|v| v[i]);
    let rows = volumes.into_iter().zip(tiers).enumerate();
    let row = |(i, (volume, tier)): (usize, (String, String))| Row {
        volume,
        tier,
        device: text(&devices, i),
        value: number(&values, i),
        latency_us: number(&latencies, i),
        reason: text(&reasons, i),
    };
    Ok(rows.map(row).collect())
}

/// Wishes for all volumes: the moves that the strategy wants, and to stay for all others.
fn wishes(context: &Context<'_>, wanted: Vec<Wanted>) -> Vec<Wish> {
    let volumes = (0..context.facts.volumes.len()).map(VolumeId::from_index);
    let mut wishes: Vec<Wish> = volumes.map(|v| Wish::stay(context, v)).collect();
    for one in wanted {
        let wish = &mut wishes[one.volume.index()];
        let measured = context.facts.volumes[one.volume.index()].measured;
        wish.tier = one.tier;
        wish.device = one.device;
        wish.goal = Goal::Latency;
        wish.value = one.value;
        wish.reason = Reason::new(
            "python",
            one.reason
                .unwrap_or_else(|| "wanted by the strategy".into()),
        );
        if one.latency_us.is_some() {
            wish.effect.latency_before_us = measured.and_then(|m| m.latency_mean_us());
            wish.effect.latency_after_us = one.latency_us;
        }
    }
    wishes
}

impl AnyStrategy for PythonStrategy {
    fn name(&self) -> &str {
        &self.name
    }

    fn granularity(&self) -> Granularity {
        Granularity::Volume
    }

    fn suits(&self, _: &Epochs, _: Option<&[String]>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn initial_state(&self) -> StrategyState {
        StrategyState::initial(Value::Null)
    }

    fn state_from_json(&self, value: Value) -> Result<StrategyState, serde_json::Error> {
        StrategyState::from_json::<Value>(value)
    }

    /// After an exception it decides nothing: the run ends at its next window.
    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> StrategyState {
        let due = context.facts.placement_due || self.every_epoch;
        if !due || self.failure().is_some() {
            return state.clone();
        }
        let own = state.own::<Value>().cloned().unwrap_or_default();
        match Python::attach(|py| self.decide(py, context, &own)) {
            Ok((wanted, next)) => {
                if context.facts.placement_due {
                    draft.wishes = wishes(context, wanted);
                }
                state.followed_by(next)
            }
            Err(raised) => {
                *self.failure() = Some(raised);
                state.clone()
            }
        }
    }

    fn place(
        &self,
        _: &Context<'_>,
        _: &StrategyState,
        _: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        None
    }
}
