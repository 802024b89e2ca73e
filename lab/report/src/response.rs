//! Tables of remedies for SLO violations: remedies by volume and kind, caching appliances, and guaranteed rates.

use std::collections::BTreeMap;

use sim::{RemedyRecord, RunResult};

use crate::format::{fixed, gib, maybe};
use crate::run::labels;
use crate::tables::{Column, number, table, words};
use crate::wear::Rows;

/// Rejection reason of a kind of remedy that the scenario does not allow.
const LEFT_OUT: &str = "not allowed here";

/// Returns a line for each kind of remedy that was not taken: its price, or the reason why it does not suffice.
pub(crate) fn not_taken(answer: &RemedyRecord) -> Vec<String> {
    let others = answer.others.iter();
    let others = others.map(|r| format!("{}: price {}", r.remedy.name(), r.price));
    let refused = answer.refused.iter().filter(|r| r.why != LEFT_OUT);
    let refused = refused.map(|r| format!("{}: {}", r.remedy.name(), r.why));
    others.chain(refused).collect()
}

/// Returns the tables of remedies, appliances and guaranteed rates; `None` if remedies are off. The second table is empty
/// without appliances, the third without guaranteed rates.
pub(crate) fn rows(results: &[RunResult]) -> Option<[Rows; 3]> {
    results.iter().find(|r| r.response.is_some())?;
    let (mut remedies, mut appliances, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for (result, label) in results.iter().zip(&labels(results)) {
        let Some(response) = &result.response else {
            continue;
        };
        let mut alike: BTreeMap<_, Vec<&RemedyRecord>> = BTreeMap::new();
        for answer in &response.remedies {
            let key = (&answer.volume, answer.remedy, &answer.to);
            alike.entry(key).or_default().push(answer);
        }
        for ((volume, remedy, to), all) in alike {
            let last = all[all.len() - 1];
            let why = not_taken(last).join("; ");
            remedies.push(vec![
                label.clone(),
                volume.clone(),
                remedy.map_or("none".into(), |r| r.name().into()),
                to.clone().unwrap_or("-".into()),
                all.len().to_string(),
                fixed(all[0].at_s, 0),
                maybe(last.lost_per_s, 0),
                maybe(last.price_s, 0),
                why,
            ]);
        }
        for a in &response.appliances {
            let reads = a.read_hits + a.read_misses;
            let hits = (reads > 0).then(|| 100.0 * a.read_hits as f64 / reads as f64);
            appliances.push(vec![
                label.clone(),
                a.volume.clone(),
                a.host.clone(),
                fixed(gib(a.cache_bytes), 2),
                fixed(a.ordered_s, 0),
                maybe(a.serving_s, 0),
                maybe(a.ended_s, 0),
                maybe(hits, 1),
                reads.to_string(),
                a.outcome.clone().unwrap_or("-".into()),
            ]);
        }
        rates.extend(response.rates.iter().map(|r| {
            vec![
                label.clone(),
                r.volume.clone(),
                fixed(r.rate_min_per_s, 0),
                fixed(r.violated_s, 0),
            ]
        }));
    }
    let mut of_remedies: Vec<Column> = ["strategy", "affected volume", "remedy", "target volume"]
        .map(words)
        .into();
    of_remedies.extend([
        number("count", ""),
        number("first time", "s"),
        number("loss of others", "requests/s"),
        number("price", "s"),
        words("rejected remedies"),
    ]);
    let mut of_appliances: Vec<Column> = ["strategy", "volume", "host"].map(words).into();
    of_appliances.extend([
        number("cache size", "GiB"),
        number("order", "s"),
        number("start of service", "s"),
        number("end", "s"),
        number("read hit ratio", "%"),
        number("reads", ""),
        words("reason for the end"),
    ]);
    let mut of_rates: Vec<Column> = ["strategy", "volume"].map(words).into();
    of_rates.extend([
        number("guaranteed rate", "requests/s"),
        number("violation", "s"),
    ]);
    Some([
        (of_remedies, remedies),
        (of_appliances, appliances),
        (of_rates, rates),
    ])
}

/// Text for runs without remedies. It tells apart runs without violations and runs whose violations were too short.
pub(crate) fn no_remedies(results: &[RunResult]) -> &'static str {
    let violated = |r: &RunResult| {
        let mut rates = r.response.iter().flat_map(|x| &x.rates);
        r.total().slo_violation_s.is_some_and(|s| s > 0.0) || rates.any(|x| x.violated_s > 0.0)
    };
    match results.iter().any(violated) {
        true => {
            "no remedies: objectives were violated, but no violation lasted long enough for a remedy"
        }
        false => "no remedies: no objective was violated",
    }
}

/// Renders the same tables as text; `None` if remedies are off.
pub fn response(results: &[RunResult]) -> Option<String> {
    let tables = rows(results)?;
    let none = tables[0].1.is_empty() && tables[1].1.is_empty();
    let none = none.then(|| format!("{}\n", no_remedies(results)));
    let full = tables.into_iter().filter(|(_, rows)| !rows.is_empty());
    let texts = full.map(|(columns, rows)| table(&columns, rows));
    Some(none.into_iter().chain(texts).collect::<Vec<_>>().join("\n"))
}
