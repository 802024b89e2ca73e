//! Parts of the scores of a decision, as a table below its options.

use std::fmt::Write;

use model::{ScoreColumn, ScoreParts};

use crate::format::maybe;
use crate::tables::{number, printable, table, words};

/// Adds a row for each tier whose score has parts, and the formula of the score; nothing if no score has parts. A row has the
/// tier, the parts, the score and the predictions that they are computed from.
pub(crate) fn parts<'a>(
    out: &mut String,
    scored: impl Iterator<Item = (String, Option<f64>, Option<&'a ScoreParts>)>,
) {
    let scored: Vec<_> = scored
        .filter_map(|(tier, score, parts)| Some((tier, score, parts?)))
        .collect();
    let Some((_, _, first)) = scored.first() else {
        return;
    };
    let heading = |c: ScoreColumn| number(c.name, c.unit);
    let mut columns = vec![words("tier")];
    columns.extend(first.columns().into_iter().map(heading));
    columns.push(number("score", ""));
    columns.extend(first.predictions().into_iter().map(heading));
    let cell = |c: ScoreColumn| maybe(c.value, c.digits);
    let rows = scored.iter().map(|(tier, score, parts)| {
        let mut row = vec![tier.clone()];
        row.extend(parts.columns().into_iter().map(cell));
        row.push(maybe(*score, 4));
        row.extend(parts.predictions().into_iter().map(cell));
        row
    });
    out.push_str("  parts of the scores\n");
    for line in table(&columns, rows.collect()).lines() {
        let _ = writeln!(out, "   {line}");
    }
    for line in first.formula() {
        let _ = writeln!(out, "    {}", printable(&line));
    }
}

#[cfg(test)]
mod tests {
    use model::{Bounded, SloStatistic, ViolatedParts};

    use super::*;

    #[test]
    fn predictions_follow_the_score_with_their_unit() {
        let bounded = |value: f64| {
            let (low, high) = (value / 2.0, value * 2.0);
            Some(Bounded { value, low, high })
        };
        let of = |violated: f64, us: f64| {
            ScoreParts::Violated(ViolatedParts {
                class_weight: 4.0,
                violated,
                excess: 0.0,
                faster: 0.0,
                latency: 0.0,
                others: 0.5,
                statistic: Some(SloStatistic::P99),
                target_us: Some(1000.0),
                statistic_us: bounded(4.0 * us),
                mean_us: bounded(us),
            })
        };
        let tiers = [("fast", of(0.25, 200.0)), ("slow", of(3.5, 600.0))];
        let scored = tiers.iter();
        let mut out = String::new();
        parts(
            &mut out,
            scored.map(|(tier, p)| ((*tier).to_owned(), Some(p.score()), Some(p))),
        );
        let words = |line: usize| {
            let line = out.lines().nth(line).expect("a line");
            line.split_whitespace().collect::<Vec<_>>()
        };
        let heading = "tier violated excess faster others score p99 from to mean from to";
        assert_eq!(words(1).join(" "), heading, "{out}");
        assert_eq!(words(2), ["µs"; 6]);
        let fast = "fast 0.2500 0.0000 0.0000 0.5000 -0.7500 800 400 1600 200 100 400";
        assert_eq!(words(4).join(" "), fast, "{out}");
    }
}
