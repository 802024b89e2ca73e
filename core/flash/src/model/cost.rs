//! Cost of a page, by the formula of paper 4.

use serde::Serialize;

/// Parameters of the cost model: times of flash operations and size of an erase block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PageCost {
    /// Time to read a page, in microseconds.
    pub read_us: f64,
    /// Time to program a page, in microseconds.
    pub program_us: f64,
    /// Time to erase a block, in microseconds.
    pub erase_us: f64,
    /// Time to transfer a page, in microseconds.
    pub transfer_us: f64,
    /// Number of pages in an erase block.
    pub pages: u32,
}

impl PageCost {
    /// Values of paper 4: 60 µs, 800 µs, 1.5 ms, 102 µs, blocks of 512 KiB in pages of 4 KiB.
    pub const PAPER4: Self = Self {
        read_us: 60.0,
        program_us: 800.0,
        erase_us: 1500.0,
        transfer_us: 102.0,
        pages: 128,
    };

    /// Returns the time to collect one block with a share `u` of valid pages, in microseconds. Copies stay on the
    /// plane, without transfers.
    pub fn collect_us(&self, u: f64) -> f64 {
        u * f64::from(self.pages) * (self.read_us + self.program_us) + self.erase_us
    }

    /// Returns the collection time per page that the host writes, in microseconds.
    pub fn collect_per_write_us(&self, u: f64) -> f64 {
        self.collect_us(u) / ((1.0 - u) * f64::from(self.pages))
    }

    /// Returns the time per page that the host writes, including collection, in microseconds.
    pub fn write_us(&self, u: f64) -> f64 {
        self.collect_per_write_us(u) + self.program_us + self.transfer_us
    }

    /// Returns the pages per second that the host can write while the device serves only this tenant.
    pub fn iops(&self, u: f64) -> f64 {
        1e6 / self.write_us(u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cleaning::victim_utilization;

    #[test]
    fn cost_model_matches_reference_values() {
        let cost = PageCost::PAPER4;
        for (spare, block_ms, write_us, iops) in [
            (0.05, 100.8, 8007.0, 112.0),
            (0.07, 96.5, 5519.0, 156.0),
            (0.10, 90.3, 3654.0, 220.0),
            (0.15, 80.3, 2207.0, 322.0),
            (0.20, 70.7, 1487.0, 419.0),
            (0.28, 56.3, 876.0, 562.0),
        ] {
            let u = victim_utilization(1.0 - spare);
            assert!((cost.collect_us(u) / 1e3 - block_ms).abs() < 0.06);
            let per_write = cost.collect_per_write_us(u);
            assert!((per_write - write_us).abs() < 0.6, "{spare}: {per_write}");
            assert!((cost.iops(u) - iops).abs() < 0.6, "{spare}");
        }
        assert!((cost.iops(0.0) - 1094.0).abs() < 0.6);
        assert!((1e6 / (cost.program_us + cost.transfer_us) - 1109.0).abs() < 0.6);
    }
}
