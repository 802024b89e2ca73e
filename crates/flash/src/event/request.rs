//! Requests for either kind of drive, and the fast one under them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::drive::{Drive, Op};
use crate::ftl::TenantId;

/// A request for either kind of drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it comes; without meaning where requests come as fast as they are answered.
    pub at_ns: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it asks for.
    pub op: Op,
    /// Where, within the tenant.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// When requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At their times.
    Open,
    /// So many at a time: the next comes when one is answered.
    Closed(u32),
}

/// When a request came and when it was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Came.
    pub from_ns: u64,
    /// Answered.
    pub done_ns: u64,
}

/// The fast drive under the same requests.
pub fn run_fast(drive: &mut Drive, requests: &[Request], arrivals: Arrivals) -> Vec<Answered> {
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
            Answered {
                from_ns,
                done_ns: served.done_ns,
            }
        })
        .collect()
}
