//! Distance of strategies from the best possible result, as a table with explanations.

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

/// Renders the three gaps.
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
            "the optimum is at most {:.3}, so at most {} of the gain is lost",
            o.bound,
            percent(Some(gap))
        ),
        None => "no gain is possible".into(),
    };
    format!(
        "comparison with the best possible result ({} epochs)\n{}\n\
         objective: {}.\n\
         best found {:.3} ({violated}), without moves {:.3}.\n\
         horizon gap: {} (the optimum of each epoch by itself has the value {:.3}).\n\
         assignment gap: share of the possible gain that decisions lose, by the strategy's own scores; relative to the optimum if \
         it is known, else to an upper bound.\n\
         prediction gap: share of the gain, by true loads, that the best paths by the strategy's predictions lose.\n",
        o.epochs,
        table(&COLUMNS, rows.collect()),
        o.objective,
        o.best,
        o.stay,
        percent(o.horizon_gap),
        o.chain,
    )
}
