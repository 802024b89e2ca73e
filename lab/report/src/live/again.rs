//! `terrace sim plan`: repetition of a live decision.

use std::fmt::Write;

use manager::planned::held;
use model::{Facts, Move, Plan, Report};
use units::{DeviceId, counted};

use super::plan::{held_back, notes};
use crate::format::{LATENCY, fixed, gib, maybe, span};
use crate::tables::{number, printable, table, words};

/// Renders a repeated decision: its moves with their reasons, and the rejected moves with the filters that rejected them.
pub fn decided_again(facts: &Facts, plan: &Plan, report: &Report) -> String {
    let mut out = printable(&format!(
        "plan {} by {}, of {}",
        plan.generation,
        plan.strategy,
        counted(facts.volumes.len(), "volume")
    ));
    out.push('\n');
    let all = plan.moves();
    if all.is_empty() {
        out += "\nno moves\n";
    } else {
        let _ = write!(out, "\n{}", moves(facts, &all));
        out += "\nreasons\n";
        for (i, m) in all.iter().enumerate() {
            let name = &facts.volumes[m.volume.index()].name;
            let (from, to) = (device(facts, m.from), device(facts, m.to));
            let text = format!("  {i} {name}: {from} → {to}: {}", m.terms.reason);
            let _ = writeln!(out, "{}", printable(&text));
        }
    }
    held_back(&mut out, &held(report));
    notes(&mut out, &report.notes);
    out
}

fn device(facts: &Facts, id: DeviceId) -> &str {
    &facts.topology.device(id).name
}

fn moves(facts: &Facts, moves: &[&Move]) -> String {
    let columns = [
        number("move", ""),
        words("volume"),
        words("goal"),
        words("from → to"),
        number("before", LATENCY),
        number("after", LATENCY),
        number("size", "GiB"),
        number("copy time", ""),
    ];
    let tier = |d: DeviceId| &facts.topology.tier(facts.topology.tier_of(d)).name;
    let rows = moves.iter().enumerate().map(|(i, m)| {
        vec![
            i.to_string(),
            facts.volumes[m.volume.index()].name.clone(),
            m.terms.goal.to_string(),
            format!("{} → {}", tier(m.from), tier(m.to)),
            maybe(m.terms.effect.latency_before_us, 0),
            maybe(m.terms.effect.latency_after_us, 0),
            fixed(gib(m.terms.cost.bytes.0), 2),
            span(m.terms.cost.duration.0),
        ]
    });
    table(&columns, rows.collect())
}
