//! What a page costs: paper 4's formula.

use serde::Serialize;

/// Times of flash and of an erase block, as the cost model has them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PageCost {
    /// Reading a page, microseconds.
    pub read_us: f64,
    /// Programming a page, microseconds.
    pub program_us: f64,
    /// Erasing a block, microseconds.
    pub erase_us: f64,
    /// Transferring a page, microseconds.
    pub transfer_us: f64,
    /// Pages of an erase block.
    pub pages: u32,
}

impl PageCost {
    /// Paper 4's table: 60 µs, 800 µs, 1.5 ms, 102 µs, blocks of 512 KiB in pages of 4 KiB.
    pub const PAPER4: Self = Self {
        read_us: 60.0,
        program_us: 800.0,
        erase_us: 1500.0,
        transfer_us: 102.0,
        pages: 128,
    };

    /// Collecting one block with a share `u` of valid pages, microseconds. Copies stay on the plane: no transfers.
    pub fn collect_us(&self, u: f64) -> f64 {
        u * f64::from(self.pages) * (self.read_us + self.program_us) + self.erase_us
    }

    /// Collection's share in one page that the host writes, microseconds.
    pub fn collect_per_write_us(&self, u: f64) -> f64 {
        self.collect_us(u) / ((1.0 - u) * f64::from(self.pages))
    }

    /// One page that the host writes, collection with it, microseconds.
    pub fn write_us(&self, u: f64) -> f64 {
        self.collect_per_write_us(u) + self.program_us + self.transfer_us
    }

    /// Pages that the host can write each second, while the device serves nobody else.
    pub fn iops(&self, u: f64) -> f64 {
        1e6 / self.write_us(u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cleaning::victim_utilization;

    #[test]
    fn the_cost_model_has_the_values_of_its_formula() {
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
