//! `terrace diff`: changes of a plan, and differences of two plans.

use std::collections::BTreeMap;
use std::fmt::Write;

use manager::view::{PlanView, PlannedMove};
use units::counted;

use crate::format::{fixed, gib};
use crate::tables::{number, printable, table, words};

#[derive(Default)]
struct TierChange {
    leaving: u32,
    coming: u32,
    leaving_bytes: u64,
    coming_bytes: u64,
}

/// Renders the placement before and after by volume, and the sums by tier.
pub fn diff(plan: &PlanView) -> String {
    let title = format!("plan {} of {}", plan.generation, plan.host);
    if plan.moves.is_empty() {
        return printable(&title) + " changes nothing\n";
    }
    let moves: Vec<&PlannedMove> = plan.moves.iter().collect();
    format!(
        "{}\n\n{}\n{}",
        printable(&title),
        placements(&moves),
        tiers(&plan.moves)
    )
}

fn placements(moves: &[&PlannedMove]) -> String {
    let columns = [
        words("volume"),
        words("before"),
        words("after"),
        number("size", "GiB"),
        words("goal"),
    ];
    let place = |tier: &str, device: &str| match tier == device {
        true => tier.to_owned(),
        false => format!("{tier} ({device})"),
    };
    let rows = moves.iter().map(|m| {
        vec![
            m.subject(),
            place(&m.from_tier, &m.from),
            place(&m.to_tier, &m.to),
            fixed(gib(m.bytes), 2),
            m.goal.to_string(),
        ]
    });
    table(&columns, rows.collect())
}

fn tiers(moves: &[PlannedMove]) -> String {
    let mut changes: BTreeMap<&str, TierChange> = BTreeMap::new();
    for m in moves {
        let from = changes.entry(&m.from_tier).or_default();
        let whole = u32::from(m.extents.is_none());
        from.leaving += whole;
        from.leaving_bytes += m.bytes;
        let to = changes.entry(&m.to_tier).or_default();
        to.coming += whole;
        to.coming_bytes += m.bytes;
    }
    let columns = [
        words("tier"),
        number("outgoing", "volumes"),
        number("incoming", "volumes"),
        number("outgoing", "GiB"),
        number("incoming", "GiB"),
        number("net change", "GiB"),
    ];
    let rows = changes.iter().map(|(tier, c)| {
        let change = fixed(gib(c.coming_bytes) - gib(c.leaving_bytes), 2);
        let sign = if c.coming_bytes > c.leaving_bytes {
            "+"
        } else {
            ""
        };
        vec![
            (*tier).to_owned(),
            c.leaving.to_string(),
            c.coming.to_string(),
            fixed(gib(c.leaving_bytes), 2),
            fixed(gib(c.coming_bytes), 2),
            format!("{sign}{change}"),
        ]
    });
    table(&columns, rows.collect())
}

/// Differences of two plans.
#[derive(Debug, Clone, PartialEq)]
pub struct OnlyInOne<'a> {
    pub first: Vec<&'a PlannedMove>,
    pub second: Vec<&'a PlannedMove>,
    /// Number of moves that both plans have.
    pub both: usize,
}

/// Compares two plans. Moves are the same when they take the same volume, or the same extents of it, between the same devices.
pub fn only_in_one<'a>(first: &'a PlanView, second: &'a PlanView) -> OnlyInOne<'a> {
    let same = |a: &PlannedMove, b: &PlannedMove| {
        (&a.volume, &a.from, &a.to, &a.extents) == (&b.volume, &b.from, &b.to, &b.extents)
    };
    let missing = |of: &'a PlanView, from: &PlanView| -> Vec<&'a PlannedMove> {
        let lacks = |m: &&PlannedMove| !from.moves.iter().any(|o| same(o, m));
        of.moves.iter().filter(lacks).collect()
    };
    let only = missing(first, second);
    OnlyInOne {
        both: first.moves.len() - only.len(),
        first: only,
        second: missing(second, first),
    }
}

/// Renders the differences of two plans.
pub fn diff_plans(first: &PlanView, second: &PlanView) -> String {
    let only = only_in_one(first, second);
    let mut out = String::new();
    for (plan, moves) in [(first, &only.first), (second, &only.second)] {
        let title = format!("only in plan {} of {}", plan.generation, plan.host);
        let title = printable(&title);
        let _ = match moves.is_empty() {
            true => writeln!(out, "{title}: no moves\n"),
            false => writeln!(out, "{title}\n{}", placements(moves)),
        };
    }
    let _ = writeln!(out, "in both: {}", counted(only.both, "move"));
    out
}
