//! Tables of the cache in front of the devices: hit ratios by share and by volume.

use ::cache::PageCounts;
use sim::RunResult;

use crate::format::{fixed, gib, maybe};
use crate::run::labels;
use crate::tables::{Column, number, table, words};
use crate::wear::Rows;

/// Returns the tables of shares and of volumes, a row per strategy and share or volume; `None` without a cache.
pub(crate) fn rows(results: &[RunResult]) -> Option<[Rows; 2]> {
    results.iter().find(|r| r.cache.is_some())?;
    let (mut parts, mut volumes) = (Vec::new(), Vec::new());
    for (result, label) in results.iter().zip(&labels(results)) {
        let Some(cache) = &result.cache else { continue };
        for p in &cache.parts {
            let mut row = vec![
                label.clone(),
                p.name.clone(),
                cache.policy.clone(),
                fixed(gib(p.size_bytes), 2),
                fixed(gib(p.used_bytes), 2),
            ];
            row.extend(counted(p.read_hit_ratio, &p.counts));
            parts.push(row);
        }
        for v in &cache.volumes {
            let mut row = vec![label.clone(), v.name.clone(), v.class.clone()];
            row.extend(counted(v.read_hit_ratio, &v.counts));
            row.push(v.priority_percent.map_or("-".into(), |p| p.to_string()));
            volumes.push(row);
        }
    }
    let counted = || {
        [
            number("read hit ratio", "%"),
            number("reads", "pages"),
            number("write hit ratio", "%"),
            number("writes", "pages"),
        ]
    };
    let mut of_parts: Vec<Column> = ["strategy", "cache share", "policy"].map(words).into();
    of_parts.extend([number("size", "GiB"), number("used", "GiB")]);
    of_parts.extend(counted());
    let mut of_volumes: Vec<Column> = ["strategy", "volume", "class"].map(words).into();
    of_volumes.extend(counted());
    of_volumes.push(number("priority", "%"));
    Some([(of_parts, parts), (of_volumes, volumes)])
}

fn counted(read_hit_ratio: Option<f64>, c: &PageCounts) -> [String; 4] {
    let writes = c.write_hits + c.write_misses;
    let hit = (writes > 0).then(|| c.write_hits as f64 / writes as f64);
    let percent = |share: Option<f64>| maybe(share.map(|s| 100.0 * s), 1);
    [
        percent(read_hit_ratio),
        (c.read_hits + c.read_misses).to_string(),
        percent(hit),
        writes.to_string(),
    ]
}

/// Renders the same tables as text; `None` without a cache.
pub fn cache(results: &[RunResult]) -> Option<String> {
    let [(part_columns, parts), (volume_columns, volumes)] = rows(results)?;
    let (parts, volumes) = (table(&part_columns, parts), table(&volume_columns, volumes));
    Some(format!("{parts}\n{volumes}"))
}
