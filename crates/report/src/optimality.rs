//! How far strategies were from the best possible, as a table with the words that it needs.

use sim::optimum::Optimality;

use crate::format::NONE;
use crate::tables::{Column, number, table, words};

const COLUMNS: [Column; 6] = [
    words("strategy"),
    number("value", "score"),
    number("gained", "of the best"),
    number("assignment gap", "own scores"),
    number("decisions", "optimum known"),
    number("prediction gap", "true loads"),
];

/// The three gaps, each with its objective.
pub fn optimality(o: &Optimality) -> String {
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.2} %", 100.0 * share),
        None => NONE.into(),
    };
    let rows = o.strategies.iter().map(|s| {
        let assignment = s.assignment.as_ref();
        vec![
            s.strategy.clone(),
            s.value.map_or(NONE.into(), |v| format!("{v:.3}")),
            percent(s.gained),
            percent(assignment.and_then(|a| a.gap)),
            assignment.map_or(NONE.into(), |a| format!("{} of {}", a.solved, a.decisions)),
            percent(s.prediction_gap),
        ]
    });
    let violated = match o.bound_gap {
        Some(gap) => format!(
            "the optimum is at most {:.3}: at most {} of the gain is missed",
            o.bound,
            percent(Some(gap))
        ),
        None => "no gain is possible".into(),
    };
    format!(
        "against the best possible ({} epochs)\n{}\n\
         objective: {}.\n\
         best found {:.3} ({violated}), without moves {:.3}.\n\
         horizon gap: {} (the optimum of every epoch in turn is worth {:.3}).\n\
         assignment gap: what decisions miss, by the strategy's own scores, of what there was to gain: against the optimum where \
         it is known, against an upper bound elsewhere.\n\
         prediction gap: what the best paths by the strategy's predictions miss of the gain, by true loads.\n",
        o.epochs,
        table(&COLUMNS, rows.collect()),
        o.objective,
        o.best,
        o.stay,
        percent(o.horizon_gap),
        o.chain,
    )
}
