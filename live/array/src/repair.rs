//! Safe repairs of problems.
//!
//! A repair is made only if a second check still finds the problem, because the array may have changed since the
//! report.

use std::collections::BTreeMap;

use units::VolumeId;

use crate::problem::{CheckReport, Repair, RepairRecord};
use crate::read::{each, open};
use crate::record::{Health, VolumeRecord};
use crate::tables::{Table, VOLUMES};
use crate::{Array, ArrayError, Change};

impl Array {
    /// Returns the repairs of a report that are still needed. [`Change::Repair`](crate::Change::Repair) makes one.
    ///
    /// Records of guest data are never dropped. An extent with a corrupt record, or with a slot that has another owner,
    /// stays as it is, and its volume is marked [`Health::Damaged`]. So the next check finds those problems again.
    pub fn repairs(&self, report: &CheckReport) -> Result<Vec<RepairRecord>, ArrayError> {
        let still = self.check()?;
        let damaged = self.damaged()?;
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
        let done =
            |repair: &Repair| matches!(repair, Repair::MarkDamaged(v) if damaged.contains(v));
        let called_for = because.into_iter().filter(|(repair, _)| !done(repair));
        Ok(called_for
            .map(|(repair, because)| RepairRecord { repair, because })
            .collect())
    }

    /// Makes the repairs of a report that are still needed, in one durable step, and returns them. If the map has
    /// several copies, use [`Copies::commit`](crate::Copies::commit) with [`Array::repairs`] instead, which keeps the
    /// copies equal.
    pub fn repair(&self, report: &CheckReport) -> Result<Vec<RepairRecord>, ArrayError> {
        let repairs = self.repairs(report)?;
        let changes: Vec<Change> = repairs.iter().map(|r| Change::Repair(r.repair)).collect();
        self.commit(&changes)?;
        Ok(repairs)
    }

    /// Returns the volumes marked as damaged.
    fn damaged(&self) -> Result<Vec<VolumeId>, ArrayError> {
        let txn = self.begin_read()?;
        let mut damaged = vec![];
        each::<VolumeRecord>(&open(&txn, VOLUMES, Table::Volumes)?, |_, found| {
            // A volume with an unreadable record cannot be marked.
            damaged.extend(
                found
                    .ok()
                    .filter(|v| v.health == Health::Damaged)
                    .map(|v| v.id),
            );
            Ok(())
        })?;
        Ok(damaged)
    }
}
