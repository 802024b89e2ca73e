//! Requests for both kinds of drive, and a run of the fast one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::drive::{Drive, Op};
use crate::ftl::TenantId;

/// Request for either kind of drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Arrival time; ignored in a closed loop.
    pub at_ns: u64,
    /// Tenant.
    pub tenant: TenantId,
    /// Operation.
    pub op: Op,
    /// Offset within the tenant.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// Arrival process of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At their arrival times.
    Open,
    /// Closed loop with this number of outstanding requests: the next one arrives after a reply.
    Closed(u32),
}

/// Arrival and reply time of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Arrival.
    pub from_ns: u64,
    /// Reply.
    pub done_ns: u64,
}

/// Runs the fast drive with the same requests.
pub fn run_fast(drive: &mut Drive, requests: &[Request], arrivals: Arrivals) -> Vec<RequestTimes> {
    let mut at_a_time = BinaryHeap::new();
    requests
        .iter()
        .map(|r| {
            let from_ns = match arrivals {
                Arrivals::Open => r.at_ns,
                Arrivals::Closed(depth) if at_a_time.len() < depth as usize => 0,
                Arrivals::Closed(_) => at_a_time.pop().map_or(0, |Reverse(t)| t),
            };
            let served = drive.submit(from_ns, r.tenant, r.op, r.offset, r.bytes);
            if arrivals != Arrivals::Open {
                at_a_time.push(Reverse(served.done_ns));
            }
            RequestTimes {
                from_ns,
                done_ns: served.done_ns,
            }
        })
        .collect()
}
