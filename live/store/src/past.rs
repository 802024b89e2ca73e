//! Events, jobs and outcomes: JSON, with separate columns for queries and deletion.

use manager::view::{EventView, JobView, OutcomeView};
use rusqlite::{Params, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::windows::clamp;

/// Share of the audit events: orders of operators.
pub(crate) const AUDIT: &str = "";

pub(crate) fn put_event(txn: &Transaction, event: &EventView) -> Result<(), Failure> {
    // A trigger counts the events of each share.
    txn.prepare_cached("INSERT INTO events (id, at_ns, share, event) VALUES (?1, ?2, ?3, ?4)")?
        .execute((
            event.id,
            event.at_ns,
            event.share().unwrap_or(AUDIT),
            json(event)?,
        ))?;
    Ok(())
}

pub(crate) fn put_job(txn: &Transaction, job: &JobView) -> Result<(), Failure> {
    txn.prepare_cached(
        "INSERT INTO jobs (host, job, planned_ns, ended_ns, view) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (host, job) DO UPDATE
         SET planned_ns = excluded.planned_ns, ended_ns = excluded.ended_ns, view = excluded.view",
    )?
    .execute((&job.host, job.job, job.planned_ns, job.ended_ns, json(job)?))?;
    Ok(())
}

pub(crate) fn put_outcome(txn: &Transaction, outcome: &OutcomeView) -> Result<(), Failure> {
    txn.prepare_cached(
        "INSERT INTO outcomes (host, job, ended_ns, view) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (host, job) DO UPDATE SET ended_ns = excluded.ended_ns, view = excluded.view",
    )?
    .execute((&outcome.host, outcome.job, outcome.ended_ns, json(outcome)?))?;
    Ok(())
}

pub(crate) fn events(
    txn: &Transaction,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<EventView>, Failure> {
    let limit = clamp(limit as u64);
    let Some(after) = after else {
        let newest = "SELECT event FROM events ORDER BY id DESC LIMIT ?1";
        let mut events: Vec<EventView> = views(txn, newest, [limit])?;
        events.reverse();
        return Ok(events);
    };
    let next = "SELECT event FROM events WHERE id > ?1 ORDER BY id LIMIT ?2";
    views(txn, next, [clamp(after), limit])
}

pub(crate) fn jobs(txn: &Transaction, limit: usize) -> Result<Vec<JobView>, Failure> {
    let newest = "SELECT view FROM jobs ORDER BY planned_ns DESC, job DESC, host DESC LIMIT ?1";
    views(txn, newest, [clamp(limit as u64)])
}

pub(crate) fn outcomes(txn: &Transaction, limit: usize) -> Result<Vec<OutcomeView>, Failure> {
    let newest = "SELECT view FROM outcomes ORDER BY ended_ns DESC, job DESC, host DESC LIMIT ?1";
    views(txn, newest, [clamp(limit as u64)])
}

fn views<T: DeserializeOwned>(
    txn: &Transaction,
    sql: &str,
    params: impl Params,
) -> Result<Vec<T>, Failure> {
    let mut statement = txn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        let json = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let view = serde_json::from_str(json);
        views.push(view.map_err(|e| {
            Failure::Damaged(format!(
                "a record of an event, job or outcome is invalid: {e}"
            ))
        })?);
    }
    Ok(views)
}

fn json(view: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(view).map_err(|e| Failure::Unfit(e.to_string()))
}
