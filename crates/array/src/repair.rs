//! Doing what is safe about problems.
//!
//! A repair that a report suggests is only made if the problem is still found by a second check inside the transaction
//! that makes it: the array may have changed since.

use std::collections::BTreeMap;

use crate::check::{Tables, check};
use crate::commit::finish;
use crate::draft::Draft;
use crate::problem::{CheckReport, Repair, Repaired};
use crate::tables::extent_key;
use crate::{Array, ArrayError};

impl Array {
    /// Makes the repairs of a report that are still called for, in one durable step, and says which.
    ///
    /// Nothing that may be a guest's is dropped: an extent whose record is corrupt, or whose slot has another owner, stays as
    /// it is, and its volume is marked [`Health::Damaged`](crate::Health::Damaged). So those problems are found again by the next check.
    pub fn repair(&self, report: &CheckReport) -> Result<Vec<Repaired>, ArrayError> {
        let txn = self.begin_write()?;
        let mut draft = Draft::open(&txn, self.extent)?;
        let still = check(&Tables {
            extent: self.extent,
            tiers: &draft.tiers,
            devices: &draft.devices,
            volumes: &draft.volumes,
            extents: &draft.extents,
            moves: &draft.moves,
        })?;
        let mut because: BTreeMap<Repair, Vec<String>> = BTreeMap::new();
        for problem in &still.problems {
            if let Some(repair) = problem.repair
                && report.problems.contains(problem)
            {
                let text = format!(
                    "table {}, key {}: {}",
                    problem.table, problem.key, problem.what
                );
                because.entry(repair).or_default().push(text);
            }
        }
        let mut repaired = vec![];
        for (repair, because) in because {
            if make(&mut draft, repair)? {
                repaired.push(Repaired { repair, because });
            }
        }
        drop(draft);
        if !repaired.is_empty() {
            finish(txn)?;
        }
        Ok(repaired)
    }
}

/// Makes one repair; says whether there was anything to do.
fn make(draft: &mut Draft<'_>, repair: Repair) -> Result<bool, ArrayError> {
    match repair {
        Repair::DropExtent { volume, extent } => {
            let removed = draft.extents.remove(extent_key(volume, extent));
            removed.map_err(ArrayError::store("drop an extent"))?;
        }
        Repair::DropMove(volume) => {
            let removed = draft.moves.remove(volume.0);
            removed.map_err(ArrayError::store("drop a move"))?;
        }
        Repair::RaiseHighWater { device, slots } => draft.raise_mark(device, slots)?,
        Repair::MarkDamaged(volume) => return draft.mark_damaged(volume),
    }
    Ok(true)
}
