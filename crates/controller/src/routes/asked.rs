//! Queries and the parts of bodies that several routes share. What is not known is refused by its name.

use client::body::MovesBody;
use manager::question::Choice;
use schemars::JsonSchema;
use serde::Deserialize;
use units::Nanos;

use crate::call::Call;
use crate::limits::{ROWS_DEFAULT, ROWS_MAX};
use crate::problem::Problem;

/// Of one host.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HostQuery {
    /// The host; may be left out when there is one.
    pub(super) host: Option<String>,
}

/// How much of a past.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LastQuery {
    /// So much of it up to now, such as `1h`; an hour if left out.
    pub(super) last: Option<Nanos>,
}

/// Past that is shown when nobody says how much.
pub(super) const LAST_DEFAULT: Nanos = Nanos(3600 * 1_000_000_000);

/// How much of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitQuery {
    /// At most so many, 1 to 1000; 100 if left out.
    pub(super) limit: Option<usize>,
}

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Events with higher numbers; the newest if left out.
    pub(super) after: Option<u64>,
    /// At most so many, 1 to 1000; 100 if left out.
    pub(super) limit: Option<usize>,
}

/// Which decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// The host; may be left out when there is one.
    pub(super) host: Option<String>,
    /// The decision; the last one that could place data if left out.
    pub(super) generation: Option<u64>,
}

/// How many rows of a list are asked for.
pub(super) fn rows(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(ROWS_DEFAULT),
        Some(limit) if (1..=ROWS_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(format!(
            "limit is {limit}, and must be 1 to {ROWS_MAX}"
        ))),
    }
}

/// Which moves an order is about.
pub(super) fn choice(call: &Call) -> Result<Choice, Problem> {
    let generation = call.number("generation")?;
    let MovesBody { host, moves } = call.body()?;
    Ok(Choice {
        host,
        generation,
        moves,
    })
}

/// An order that needs no words.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}
