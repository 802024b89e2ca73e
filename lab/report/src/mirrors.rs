//! Table of mirrored extents: sets of extents, and the share of reads that the mirror served.

use sim::RunResult;

use crate::format::{fixed, gib, maybe};
use crate::run::labels;
use crate::tables::{Column, number, table, words};
use crate::wear::Rows;

/// Returns the table of sets; `None` if mirrors are off.
pub(crate) fn rows(results: &[RunResult]) -> Option<Rows> {
    results.iter().find(|r| r.mirrors.is_some())?;
    let mut rows = Vec::new();
    for (result, label) in results.iter().zip(&labels(results)) {
        for set in result.mirrors.iter().flat_map(|m| &m.sets) {
            let reads = set.first_reads + set.second_reads;
            let second = (reads > 0).then(|| 100.0 * set.second_reads as f64 / reads as f64);
            rows.push(vec![
                label.clone(),
                set.volume.clone(),
                set.device.clone(),
                set.extents.to_string(),
                fixed(gib(set.bytes), 2),
                fixed(gib(set.copied_bytes), 2),
                fixed(set.begun_s, 0),
                maybe(set.alike_s, 0),
                maybe(set.ended_s, 0),
                reads.to_string(),
                maybe(second, 1),
            ]);
        }
    }
    let mut columns: Vec<Column> = ["strategy", "volume", "mirror device"].map(words).into();
    columns.extend([
        number("extents", ""),
        number("size", "GiB"),
        number("copied data", "GiB"),
        number("start", "s"),
        number("in sync", "s"),
        number("removal", "s"),
        number("reads", ""),
        number("mirror reads", "%"),
    ]);
    Some((columns, rows))
}

/// Renders the same table as text; `None` if mirrors are off.
pub fn mirrors(results: &[RunResult]) -> Option<String> {
    let (columns, rows) = rows(results)?;
    Some(match rows.is_empty() {
        true => "no extents were mirrored\n".into(),
        false => table(&columns, rows),
    })
}
