//! Query parameters and bodies that several routes share. An unknown field is rejected by its name.

use client::body::MovesBody;
use manager::question::Choice;
use schemars::JsonSchema;
use serde::Deserialize;
use units::Nanos;

use crate::call::Call;
use crate::limits::{ROWS_DEFAULT, ROWS_MAX};
use crate::problem::Problem;

/// Selects a host.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HostQuery {
    /// Host; optional if only one host exists.
    pub(super) host: Option<String>,
}

/// Length of the history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LastQuery {
    /// Length of the history up to now, such as `1h`; default one hour.
    pub(super) last: Option<Nanos>,
}

/// Default length of the history.
pub(super) const LAST_DEFAULT: Nanos = Nanos(3600 * 1_000_000_000);

/// Length of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitQuery {
    /// Maximum number of rows, 1 to 1000; default 100.
    pub(super) limit: Option<usize>,
}

/// Selects events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Returns only events with a higher number; by default the newest events.
    pub(super) after: Option<u64>,
    /// Maximum number of events, 1 to 1000; default 100.
    pub(super) limit: Option<usize>,
}

/// Selects a decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// Host; optional if only one host exists.
    pub(super) host: Option<String>,
    /// Number of the decision; default is the last one that could place data.
    pub(super) generation: Option<u64>,
}

/// Returns the number of rows of a list.
///
/// # Errors
/// 400 if the limit is out of range.
pub(super) fn rows(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(ROWS_DEFAULT),
        Some(limit) if (1..=ROWS_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(format!(
            "limit is {limit}; it must be 1 to {ROWS_MAX}"
        ))),
    }
}

/// Returns the moves that an order selects.
pub(super) fn choice(call: &Call) -> Result<Choice, Problem> {
    let generation = call.number("generation")?;
    let MovesBody { host, moves } = call.body()?;
    Ok(Choice {
        host,
        generation,
        moves,
    })
}

/// Body of an order without parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}
