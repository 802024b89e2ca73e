//! What the scores of a decision are made of, as a table under the options that it weighed.

use std::fmt::Write;

use model::ScoreParts;

use crate::format::maybe;
use crate::tables::{number, printable, table, words};

/// Adds a row for each tier whose score has parts, and how they make the score; nothing where none has. Rows are name of
/// the tier, score, parts.
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
    let names = first
        .columns()
        .into_iter()
        .map(|(name, _)| number(name, ""));
    let mut columns = vec![words("tier")];
    columns.extend(names);
    columns.push(number("score", ""));
    let rows = scored.iter().map(|(tier, score, parts)| {
        let values = parts.columns().into_iter().map(|(_, v)| maybe(v, 4));
        let mut row = vec![tier.clone()];
        row.extend(values);
        row.push(maybe(*score, 4));
        row
    });
    out.push_str("  what the scores are made of\n");
    for line in table(&columns, rows.collect()).lines() {
        let _ = writeln!(out, "   {line}");
    }
    for line in first.formula() {
        let _ = writeln!(out, "    {}", printable(&line));
    }
}
