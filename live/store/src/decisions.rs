//! Decisions as packed JSON. Outputs and inputs are separate, because inputs are deleted earlier.

use std::borrow::Cow;

use manager::store::StoredDecision;
use rusqlite::OptionalExtension;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Work;
use crate::failure::Failure;

/// Parts of a decision that are kept for a long time.
#[derive(Serialize, Deserialize)]
struct Outputs<'a> {
    strategy: Cow<'a, str>,
    parameters: Cow<'a, Value>,
    seed: u64,
    plan: Cow<'a, Value>,
    report: Cow<'a, Value>,
}

/// Inputs of a decision.
#[derive(Default, Serialize, Deserialize)]
struct Inputs<'a> {
    facts: Cow<'a, Value>,
    policy: Cow<'a, Value>,
    state: Cow<'a, Value>,
}

impl Work<'_> {
    pub(crate) fn put_decision(&mut self, made: &StoredDecision) -> Result<(), Failure> {
        let outputs = self.pack_json(&Outputs {
            strategy: Cow::Borrowed(&made.strategy),
            parameters: Cow::Borrowed(&made.parameters),
            seed: made.seed,
            plan: Cow::Borrowed(&made.plan),
            report: Cow::Borrowed(&made.report),
        })?;
        let inputs = self.pack_json(&Inputs {
            facts: Cow::Borrowed(&made.facts),
            policy: Cow::Borrowed(&made.policy),
            state: Cow::Borrowed(&made.state),
        })?;
        let id: i64 = self
            .txn
            .prepare_cached(
                "INSERT INTO decisions (host, generation, at_ns, outputs) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (host, generation) DO UPDATE SET at_ns = excluded.at_ns, outputs = excluded.outputs
                 RETURNING id",
            )?
            .query_row((&made.host, made.generation, made.at_ns, outputs), |row| {
                row.get(0)
            })?;
        self.txn
            .prepare_cached(
                "INSERT OR REPLACE INTO decision_inputs (id, at_ns, inputs) VALUES (?1, ?2, ?3)",
            )?
            .execute((id, made.at_ns, inputs))?;
        Ok(())
    }

    pub(crate) fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, Failure> {
        let mut statement = self.txn.prepare_cached(
            "SELECT d.generation, d.at_ns, d.outputs, i.inputs FROM decisions d LEFT JOIN decision_inputs i ON i.id = d.id
             WHERE d.host = ?1 AND (?2 IS NULL OR d.generation = ?2) ORDER BY d.generation DESC LIMIT 1",
        )?;
        let found = statement
            .query_row((host, generation), |row| {
                let packed: (Vec<u8>, Option<Vec<u8>>) = (row.get(2)?, row.get(3)?);
                Ok((row.get(0)?, row.get(1)?, packed))
            })
            .optional()?;
        let Some((generation, at_ns, (outputs, inputs))) = found else {
            return Ok(None);
        };
        let outputs = self.frames.unpack(&outputs)?;
        let outputs: Outputs = from_json(&outputs)?;
        let inputs = inputs
            .map(|packed| self.frames.unpack(&packed))
            .transpose()?;
        let inputs: Inputs = match &inputs {
            Some(json) => from_json(json)?,
            // Deleted inputs are null.
            None => Inputs::default(),
        };
        Ok(Some(StoredDecision {
            host: host.to_string(),
            generation,
            at_ns,
            strategy: outputs.strategy.into_owned(),
            parameters: outputs.parameters.into_owned(),
            seed: outputs.seed,
            facts: inputs.facts.into_owned(),
            policy: inputs.policy.into_owned(),
            state: inputs.state.into_owned(),
            plan: outputs.plan.into_owned(),
            report: outputs.report.into_owned(),
        }))
    }

    fn pack_json(&mut self, value: &impl Serialize) -> Result<Vec<u8>, Failure> {
        let json = serde_json::to_vec(value).map_err(|e| Failure::Unfit(e.to_string()))?;
        self.frames.pack(&json)
    }
}

fn from_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(json).map_err(|e| Failure::Damaged(format!("a decision: {e}")))
}
