//! Hard disk for comparison: one head, seek, half a rotation, transfer.

use super::plan::Target;
use crate::drive::{Op, RequestResult};
use crate::ftl::TenantId;

/// Disk with 7,200 revolutions per minute. Seek time grows with the square root of the distance, from 1 to 14 ms. No
/// cache, no reordering.
#[derive(Debug, Clone)]
pub struct Disk {
    bytes: f64,
    /// Start of each tenant's space.
    begins: Vec<u64>,
    head: u64,
    free_ns: u64,
}

const SEEK_LEAST_NS: f64 = 1e6;
const SEEK_MOST_NS: f64 = 14e6;
const HALF_TURN_NS: u64 = 4_166_667;
const BYTE_NS: f64 = 1e9 / 156e6;

impl Disk {
    /// Creates a disk with the tenants one after the other.
    pub fn new(tenants: &[u64]) -> Self {
        let mut at = 0;
        let begins = tenants.iter().map(|bytes| {
            let begin = at;
            at += bytes;
            begin
        });
        let begins = begins.collect();
        Self {
            bytes: at.max(1) as f64,
            begins,
            head: 0,
            free_ns: 0,
        }
    }
}

impl Target for Disk {
    fn serve(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
        // A trim has no effect on a disk.
        if op == Op::Trim {
            return RequestResult {
                done_ns: now_ns,
                device_ns: 0,
            };
        }
        let at = self.begins[usize::from(tenant.0)] + offset;
        let distance = at.abs_diff(self.head) as f64 / self.bytes;
        let mut took = (bytes as f64 * BYTE_NS) as u64;
        if at != self.head {
            let seek = SEEK_LEAST_NS + (SEEK_MOST_NS - SEEK_LEAST_NS) * libm::sqrt(distance);
            took += seek as u64 + HALF_TURN_NS;
        }
        self.head = at + bytes;
        self.free_ns = self.free_ns.max(now_ns) + took;
        RequestResult {
            done_ns: self.free_ns,
            device_ns: took,
        }
    }

    fn ready_ns(&mut self, now_ns: u64, _: TenantId, op: Op, _: u64, _: u64) -> u64 {
        match op {
            Op::Trim => now_ns,
            Op::Read | Op::Write => self.free_ns,
        }
    }

    fn units(&self) -> usize {
        1
    }
}
