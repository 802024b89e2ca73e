//! Roll-up and deletion of old data, a bounded amount per call.

use manager::store::TidyResult;

use crate::failure::Failure;
use crate::past::AUDIT;
use crate::roll::RollingSums;
use crate::windows::{Level, clamp};
use crate::{ROLLED_WINDOW, Retention, Work};

/// Largest number of rolled-up windows deleted per call: each has a row per 64 volumes.
const WINDOWS_A_ROUND: usize = 16;

/// Largest number of decisions or inputs deleted per call: each may have megabytes.
const DECISIONS_A_ROUND: usize = 16;

/// Largest number of events, of jobs and of outcomes deleted per call: these rows are small.
const RECORDS_A_ROUND: usize = 500;

impl Work<'_> {
    /// Runs one round.
    pub(crate) fn tidy(&mut self, keep: &Retention, now_ns: u64) -> Result<TidyResult, Failure> {
        let before = |age: units::Nanos| now_ns.saturating_sub(age.0);
        let past = before(keep.past);
        let rounds = [
            self.roll_up(before(keep.raw))?,
            self.forget_rolled(before(keep.rolled))?,
            self.forget_by_time(
                "decision_inputs",
                "at_ns",
                before(keep.inputs),
                DECISIONS_A_ROUND,
            )?,
            self.forget_decisions(before(keep.decisions))?,
            self.forget_events(past, keep)?,
            self.forget_by_time("jobs", "ended_ns", past, RECORDS_A_ROUND)?,
            self.forget_by_number("jobs", keep.jobs_max)?,
            self.forget_by_time("outcomes", "ended_ns", past, RECORDS_A_ROUND)?,
            self.forget_by_number("outcomes", keep.outcomes_max)?,
        ];
        Ok(if rounds.contains(&TidyResult::Some) {
            TidyResult::Some
        } else {
            TidyResult::All
        })
    }

    /// Rolls up the oldest raw windows of one host that end within the same five minutes, after this interval is over. An
    /// existing rolled-up window is included, for reports that arrive very late.
    fn roll_up(&mut self, before_ns: u64) -> Result<TidyResult, Failure> {
        for host in self.names.hosts() {
            let oldest = self.find(Level::Raw, host, 0, u64::MAX, 1)?;
            let Some(oldest) = oldest.first() else {
                continue;
            };
            let (first_ns, last_ns) = five_minutes(oldest.at_ns);
            if last_ns >= before_ns {
                continue;
            }
            let mut rolling = RollingSums::default();
            let mut parts = Vec::new();
            for level in [Level::Rolled, Level::Raw] {
                let found = self.find(level, host, first_ns, last_ns, usize::MAX)?;
                parts.extend(found.into_iter().map(|stored| (level, stored)));
            }
            parts.sort_by_key(|(_, stored)| stored.at_ns);
            for (level, stored) in parts {
                rolling.add(&self.load(level, &stored)?);
                self.delete(level, &stored)?;
            }
            self.insert(Level::Rolled, host, &rolling.finish())?;
            return Ok(TidyResult::Some);
        }
        Ok(TidyResult::All)
    }

    fn forget_rolled(&mut self, before_ns: u64) -> Result<TidyResult, Failure> {
        let Some(last_ns) = before_ns.checked_sub(1) else {
            return Ok(TidyResult::All);
        };
        let mut left = WINDOWS_A_ROUND;
        for host in self.names.hosts() {
            for stored in self.find(Level::Rolled, host, 0, last_ns, left)? {
                self.delete(Level::Rolled, &stored)?;
                left -= 1;
            }
        }
        Ok(whether_more(WINDOWS_A_ROUND - left, WINDOWS_A_ROUND))
    }

    /// Deletes decisions, together with their inputs if these still exist.
    fn forget_decisions(&mut self, before_ns: u64) -> Result<TidyResult, Failure> {
        let ids: Vec<i64> = self
            .txn
            .prepare_cached("SELECT id FROM decisions WHERE at_ns < ?1 ORDER BY at_ns LIMIT ?2")?
            .query_map((clamp(before_ns), DECISIONS_A_ROUND), |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for table in ["decision_inputs", "decisions"] {
            let mut statement = self
                .txn
                .prepare_cached(&format!("DELETE FROM {table} WHERE id = ?1"))?;
            for id in &ids {
                statement.execute([id])?;
            }
        }
        Ok(whether_more(ids.len(), DECISIONS_A_ROUND))
    }

    /// Deletes old events, events beyond the limit of a share, and events beyond the total limit. The latter come from the
    /// largest share, and from the audit last.
    fn forget_events(&mut self, before_ns: u64, keep: &Retention) -> Result<TidyResult, Failure> {
        let before = clamp(before_ns);
        // Ids and times of events grow together, so the oldest events have the lowest ids.
        let old = self
            .txn
            .prepare_cached(
                "DELETE FROM events WHERE at_ns < ?1 AND id IN (SELECT id FROM events ORDER BY id LIMIT ?2)",
            )?
            .execute((before, RECORDS_A_ROUND))?;
        let mut tidied = whether_more(old, RECORDS_A_ROUND);
        let shares: Vec<(String, i64)> = self
            .txn
            .prepare_cached(
                "SELECT share, events FROM event_shares ORDER BY share = ?1, events DESC, share",
            )?
            .query_map([AUDIT], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut too_many: i64 = shares.iter().map(|s| s.1).sum::<i64>() - clamp(keep.events_max);
        for (share, events) in shares {
            let beyond = match share.as_str() {
                AUDIT => 0,
                _ => events - clamp(keep.share_events_max),
            };
            let first = beyond.max(too_many).clamp(0, RECORDS_A_ROUND as i64);
            if first == 0 {
                continue;
            }
            let forgotten = self
                .txn
                .prepare_cached(
                    "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE share = ?1 ORDER BY id LIMIT ?2)",
                )?
                .execute((&share, first))?;
            too_many -= forgotten as i64;
            if forgotten == RECORDS_A_ROUND {
                tidied = TidyResult::Some;
                // The next share loses only the events beyond its own limit; the largest share is trimmed further.
                too_many = too_many.min(0);
            }
        }
        Ok(tidied)
    }

    /// Deletes rows with an earlier time; rows without a time are kept.
    fn forget_by_time(
        &mut self,
        table: &str,
        time: &str,
        before_ns: u64,
        limit: usize,
    ) -> Result<TidyResult, Failure> {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {time} < ?1 ORDER BY {time} LIMIT ?2)"
        );
        let forgotten = self
            .txn
            .prepare_cached(&sql)?
            .execute((clamp(before_ns), limit))?;
        Ok(whether_more(forgotten, limit))
    }

    /// Deletes ended rows, except the latest `max` ids.
    fn forget_by_number(&mut self, table: &str, max: u64) -> Result<TidyResult, Failure> {
        let too_many = self.last_id(table)?.saturating_sub(clamp(max));
        // The plus prevents SQLite from using the index by time: the rows with the lowest ids must be examined.
        let sql = format!(
            "DELETE FROM {table} WHERE id IN
             (SELECT id FROM {table} WHERE id <= ?1 AND +ended_ns IS NOT NULL ORDER BY id LIMIT ?2)"
        );
        let forgotten = self
            .txn
            .prepare_cached(&sql)?
            .execute((too_many, RECORDS_A_ROUND))?;
        Ok(whether_more(forgotten, RECORDS_A_ROUND))
    }

    fn last_id(&self, table: &str) -> Result<i64, Failure> {
        let sql = format!("SELECT coalesce(max(id), 0) FROM {table}");
        Ok(self
            .txn
            .prepare_cached(&sql)?
            .query_row([], |row| row.get(0))?)
    }
}

/// Returns the first and last end of windows within the same five minutes.
fn five_minutes(at_ns: u64) -> (u64, u64) {
    let length_ns = ROLLED_WINDOW.0;
    let before_ns = at_ns.saturating_sub(1) / length_ns * length_ns;
    // A window that ends at 0 belongs to the first interval.
    let first_ns = if before_ns == 0 { 0 } else { before_ns + 1 };
    (first_ns, before_ns + length_ns)
}

fn whether_more(done: usize, limit: usize) -> TidyResult {
    if done == limit {
        TidyResult::Some
    } else {
        TidyResult::All
    }
}
