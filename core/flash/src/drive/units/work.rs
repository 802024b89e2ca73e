//! Operations of the translation layer on the units.

use super::{COST_WEIGHT, Units};
use crate::ftl::FlashWork;

impl FlashWork for Units {
    #[inline]
    fn programmed(&mut self, page: u32) {
        self.program(self.unit_of(page));
    }

    fn copied(&mut self, block: u32, survivors: &[u64], to: u32) {
        if !self.striped {
            let n = survivors.len() as u32;
            self.copy(self.unit_of(to), n, n);
            return;
        }
        let base = block << self.shift;
        if !self.paced {
            for (survivor, at) in survivors.iter().zip(to..) {
                self.copy(self.unit_of(base + (survivor >> 32) as u32), 1, 0);
                self.copy(self.unit_of(at), 0, 1);
            }
            return;
        }
        for u in 0..self.units.len() {
            self.begin_owing(u);
        }
        let work = survivors.len() as u64 * (self.copy_read_ns + self.copy_program_ns);
        self.victim_work += work;
        self.spent += work;
        for (survivor, at) in survivors.iter().zip(to..) {
            let (from, to) = (
                self.unit_of(base + (survivor >> 32) as u32),
                self.unit_of(at),
            );
            self.units[from].later.reads += 1;
            self.units[to].later.programs += 1;
        }
    }

    fn summarized(&mut self, block: u32) {
        // The last page of the block. Its data does not come from the host.
        let page = ((block + 1) << self.shift) - 1;
        let u = self.unit_of(page);
        self.collect(u, self.program_ns, |later| later.programs += 1);
    }

    fn erased(&mut self, block: u32, valid: u32) {
        let units = match self.striped {
            true => 0..self.units.len(),
            false => {
                let u = self.unit_of(block << self.shift);
                u..u + 1
            }
        };
        for u in units.clone() {
            self.erase(u);
        }
        let work = std::mem::take(&mut self.victim_work);
        let share = work / u64::from((self.data_pages - valid).max(1));
        for u in units {
            self.units[u].quantum = share as i64;
        }
        self.mean_cost += COST_WEIGHT * (share as f64 - self.mean_cost);
    }
}
