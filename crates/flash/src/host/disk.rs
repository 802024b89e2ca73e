//! A hard disk, for comparison: one head, seek, half a turn, transfer.

use super::plan::Target;
use crate::drive::{Op, Served};
use crate::ftl::TenantId;

/// One disk of 7,200 turns a minute. Seeks take the square root of the distance between 1 and 14 ms; no cache, no reordering.
#[derive(Debug, Clone)]
pub struct Disk {
    bytes: f64,
    /// Where each tenant's space begins.
    begins: Vec<u64>,
    head: u64,
    free_ns: u64,
}

const SEEK_LEAST_NS: f64 = 1e6;
const SEEK_MOST_NS: f64 = 14e6;
const HALF_TURN_NS: u64 = 4_166_667;
const BYTE_NS: f64 = 1e9 / 156e6;

impl Disk {
    /// A disk on which the tenants lie one after the other.
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
    fn serve(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> Served {
        // A disk has nothing to void.
        if op == Op::Trim {
            return Served {
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
        Served {
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
