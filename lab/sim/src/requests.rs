//! Log of single requests, for callers that want one. Other runs keep none.
//!
//! A request is logged when its completion is known, so rows are not in the order of completions. Memory is bounded by the requests of one
//! measurement window: the caller takes the rows at the end of each.

use model::Op;
use units::TierId;

use crate::answering::ServedPart;
use crate::source::Issue;

/// Request of a guest, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedRequest {
    /// Start of the latency, since the start of the run: the time in the trace for open replay, else the time of the
    /// issue.
    pub arrival_ns: u64,
    /// Number of the volume, in the scenario's order.
    pub volume: u32,
    /// Kind.
    pub op: Op,
    /// First byte on the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Part of the array that served it.
    pub by: RequestServer,
    /// Time from arrival to completion.
    pub latency_ns: u64,
}

/// Part of the array that served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestServer {
    /// Devices of a tier. `missed` for a read that the cache of the volume did not have in full.
    Tier { tier: TierId, missed: bool },
    /// The cache in front of the devices.
    Cache,
    /// A caching appliance.
    Appliance,
}

/// Requests since the caller last took them.
#[derive(Default)]
pub(crate) struct RequestLog {
    rows: Vec<ServedRequest>,
}

/// Indexes of the cache and the appliances among the tiers, and whether the request's volume has a cache.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) cache: Option<usize>,
    pub(crate) appliances: Option<usize>,
    pub(crate) is_cached: bool,
}

impl RequestLog {
    pub(crate) fn put(&mut self, issue: &Issue, served: ServedPart, stages: Stages) {
        let by = match Some(served.by) {
            by if by == stages.cache => RequestServer::Cache,
            by if by == stages.appliances => RequestServer::Appliance,
            _ => RequestServer::Tier {
                tier: TierId::from_index(served.by),
                missed: stages.is_cached && issue.op == Op::Read,
            },
        };
        self.rows.push(ServedRequest {
            arrival_ns: issue.arrival_ns,
            volume: issue.volume,
            op: issue.op,
            offset: issue.offset,
            length: issue.length,
            by,
            latency_ns: served.done_ns - issue.arrival_ns,
        });
    }

    /// Passes the rows to `taker` and clears them.
    pub(crate) fn take(&mut self, taker: &mut dyn FnMut(&[ServedRequest])) {
        if !self.rows.is_empty() {
            taker(&self.rows);
            self.rows.clear();
        }
    }
}
