//! Single requests of a run as tables.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use model::Op;
use sim::{Model, RequestServer, ServedRequest};

use crate::columns::Columns;

/// Layout of the table.
pub const REQUESTS_SCHEMA: &str = "terrace.run.requests/1";
/// Kinds of requests, in the order of their numbers.
pub const OPS: [&str; Op::ALL.len()] = ["read", "write", "trim", "flush"];
/// Outcomes of a cache.
const OUTCOMES: [&str; 3] = ["hit", "miss", "appliance"];
const HIT: u32 = 0;
const MISS: u32 = 1;
const APPLIANCE: u32 = 2;

/// Names that all tables of one run share.
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
    pub fn table(&self, requests: &[ServedRequest]) -> RecordBatch {
        let rows = || requests.iter();
        Columns::default()
            .u64("time_ns", "ns", rows().map(|r| Some(r.arrival_ns)))
            .names("volume", &self.volumes, rows().map(|r| Some(r.volume)))
            .names("op", &self.ops, rows().map(|r| Some(r.op as u32)))
            .u64("offset_bytes", "B", rows().map(|r| Some(r.offset)))
            .u64("length_bytes", "B", rows().map(|r| Some(r.length)))
            .names("tier", &self.tiers, rows().map(tier))
            .names("cache", &self.outcomes, rows().map(outcome))
            .u64("latency_ns", "ns", rows().map(|r| Some(r.latency_ns)))
            .finish(REQUESTS_SCHEMA)
    }

    /// Adds a line of comma-separated values per request, with the columns of [`RequestNames::table`].
    pub(crate) fn csv(&self, requests: &[ServedRequest], out: &mut Vec<u8>) {
        fn name(of: &ArrayRef, number: Option<u32>) -> String {
            let names = of.as_any().downcast_ref::<StringArray>();
            let names = names.expect("names are text");
            let name = number.map_or("", |n| names.value(n as usize));
            match name.contains([',', '"', '\n']) {
                true => format!("\"{}\"", name.replace('"', "\"\"")),
                false => name.to_owned(),
            }
        }
        for r in requests {
            let line = format!(
                "{},{},{},{},{},{},{},{}\n",
                r.arrival_ns,
                name(&self.volumes, Some(r.volume)),
                OPS[r.op as usize],
                r.offset,
                r.length,
                name(&self.tiers, tier(r)),
                name(&self.outcomes, outcome(r)),
                r.latency_ns
            );
            out.extend_from_slice(line.as_bytes());
        }
    }
}

fn tier(r: &ServedRequest) -> Option<u32> {
    match r.by {
        RequestServer::Tier { tier, .. } => Some(tier.index() as u32),
        RequestServer::Cache | RequestServer::Appliance => None,
    }
}

fn outcome(r: &ServedRequest) -> Option<u32> {
    match r.by {
        RequestServer::Cache => Some(HIT),
        RequestServer::Tier { missed: true, .. } => Some(MISS),
        RequestServer::Appliance => Some(APPLIANCE),
        RequestServer::Tier { missed: false, .. } => None,
    }
}
