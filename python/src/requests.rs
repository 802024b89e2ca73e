//! Single requests of a run as tables.

use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt8Array, UInt32Array};
use pyo3::prelude::*;
use sim::{Model, ServedBy, ServedRequest};

use crate::error::other;
use crate::table::{Columns, Table};
use crate::traces::OPS;

/// Layout of the table.
const REQUESTS_SCHEMA: &str = "terrace.run.requests/1";
/// Outcomes of a cache.
const OUTCOMES: [&str; 3] = ["hit", "miss", "appliance"];

/// Names in the tables of one run, which all of them share.
pub struct RequestNames {
    volumes: ArrayRef,
    tiers: ArrayRef,
    ops: ArrayRef,
    outcomes: ArrayRef,
}

impl RequestNames {
    /// Names of this array.
    pub fn new(model: &Model) -> Self {
        let volumes = model.volumes.iter().map(|v| Some(v.name.as_str()));
        let tiers = model.topology.tiers.iter().map(|t| Some(t.name.as_str()));
        Self {
            volumes: Arc::new(volumes.collect::<StringArray>()),
            tiers: Arc::new(tiers.collect::<StringArray>()),
            ops: Arc::new(StringArray::from(OPS.to_vec())),
            outcomes: Arc::new(StringArray::from(OUTCOMES.to_vec())),
        }
    }

    /// Returns a row per request.
    pub fn table(&self, requests: &[ServedRequest]) -> PyResult<Table> {
        let rows = || requests.iter();
        let short = |keys: UInt8Array, names: &ArrayRef| {
            DictionaryArray::<UInt8Type>::try_new(keys, Arc::clone(names)).map_err(other)
        };
        let long = |keys: UInt32Array, names: &ArrayRef| {
            DictionaryArray::<UInt32Type>::try_new(keys, Arc::clone(names)).map_err(other)
        };
        let tier = |r: &ServedRequest| match r.by {
            ServedBy::Tier { tier, .. } => Some(tier.index() as u32),
            ServedBy::Cache | ServedBy::Appliance => None,
        };
        let outcome = |r: &ServedRequest| match r.by {
            ServedBy::Cache => Some(0),
            ServedBy::Tier { missed: true, .. } => Some(1),
            ServedBy::Appliance => Some(2),
            ServedBy::Tier { missed: false, .. } => None,
        };
        let volume = long(rows().map(|r| Some(r.volume)).collect(), &self.volumes)?;
        let op = short(rows().map(|r| Some(r.op as u8)).collect(), &self.ops)?;
        let tier = long(rows().map(tier).collect(), &self.tiers)?;
        let outcome = short(rows().map(outcome).collect(), &self.outcomes)?;
        Columns::default()
            .u64("time_ns", "ns", rows().map(|r| Some(r.arrival_ns)))
            .array("volume", "", Arc::new(volume))
            .array("op", "", Arc::new(op))
            .u64("offset_bytes", "B", rows().map(|r| Some(r.offset)))
            .u64("length_bytes", "B", rows().map(|r| Some(r.length)))
            .array("tier", "", Arc::new(tier))
            .array("cache", "", Arc::new(outcome))
            .u64("latency_ns", "ns", rows().map(|r| Some(r.latency_ns)))
            .finish(REQUESTS_SCHEMA)
    }

    /// Joins the tables of all windows.
    pub fn joined(&self, tables: Vec<Table>) -> PyResult<Table> {
        let empty = self.table(&[])?;
        Ok(Table::joined(empty, tables))
    }
}
