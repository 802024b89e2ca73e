//! Doing what is safe about problems.
//!
//! A repair that a report suggests is only made if the problem is still found by a second check: the array may have changed since.

use std::collections::BTreeMap;

use units::VolumeId;

use crate::problem::{CheckReport, Repair, Repaired};
use crate::read::{each, open};
use crate::record::{Health, VolumeRecord};
use crate::tables::{Table, VOLUMES};
use crate::{Array, ArrayError, Change};

impl Array {
    /// The repairs of a report that are still called for. [`Change::Repair`](crate::Change::Repair) makes one.
    ///
    /// Nothing that may be a guest's is dropped: an extent whose record is corrupt, or whose slot has another owner, stays as
    /// it is, and its volume is marked [`Health::Damaged`]. So those problems are found again by the next check.
    pub fn repairs(&self, report: &CheckReport) -> Result<Vec<Repaired>, ArrayError> {
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
            .map(|(repair, because)| Repaired { repair, because })
            .collect())
    }

    /// Makes the repairs of a report that are still called for, in one durable step, and says which. Of a map with several copies this
    /// is one: [`Copies::commit`](crate::Copies::commit) keeps them alike.
    pub fn repair(&self, report: &CheckReport) -> Result<Vec<Repaired>, ArrayError> {
        let repairs = self.repairs(report)?;
        let changes: Vec<Change> = repairs.iter().map(|r| Change::Repair(r.repair)).collect();
        self.commit(&changes)?;
        Ok(repairs)
    }

    /// Volumes that are marked as damaged.
    fn damaged(&self) -> Result<Vec<VolumeId>, ArrayError> {
        let txn = self.begin_read()?;
        let mut damaged = vec![];
        each::<VolumeRecord>(&open(&txn, VOLUMES, Table::Volumes)?, |_, found| {
            // One that cannot be read cannot be marked either.
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
