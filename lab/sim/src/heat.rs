//! Access counts of extents, taken on the request path, for strategies that place extents.

use algo::HeatCounters;
use model::{ExtentHeat, Op};

use crate::Model;
use crate::source::Issue;

/// Counters of all extents of all volumes.
pub(crate) struct ExtentCounters {
    counters: HeatCounters,
    /// Number of each volume's first extent, followed by the total number of extents.
    first: Vec<u32>,
    extent_bytes: u64,
}

impl ExtentCounters {
    pub(crate) fn new(model: &Model) -> Self {
        let mut first = vec![0_u32];
        for v in &model.volumes {
            let extents = v.size.0.div_ceil(model.extent.0) as u32;
            first.push(first.last().expect("begins with zero") + extents);
        }
        Self {
            counters: HeatCounters::new(*first.last().expect("begins with zero")),
            first,
            extent_bytes: model.extent.0,
        }
    }

    /// Counts a request for each extent that it reads or writes.
    #[inline]
    pub(crate) fn count(&mut self, issue: &Issue) {
        if issue.length == 0 || issue.op as u8 > Op::Write as u8 {
            return; // flushes and trims transfer no data
        }
        let base = self.first[issue.volume as usize];
        let first = issue.offset / self.extent_bytes;
        let last = (issue.offset + issue.length - 1) / self.extent_bytes;
        for extent in first..=last {
            self.counters.add(base + extent as u32, 1);
        }
    }

    /// Returns the counts by volume and resets them.
    pub(crate) fn take(&mut self) -> Vec<ExtentHeat> {
        let volumes = self.first.len() - 1;
        let mut touched: Vec<Vec<(u32, u32)>> = vec![vec![]; volumes];
        let mut volume = 0;
        for (no, ios) in self.counters.ordered() {
            while no >= self.first[volume + 1] {
                volume += 1;
            }
            touched[volume].push((no - self.first[volume], ios));
        }
        self.counters.reset();
        touched.into_iter().map(ExtentHeat::of).collect()
    }
}
