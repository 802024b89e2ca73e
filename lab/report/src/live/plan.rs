//! `terrace plan`, and the moves that `terrace apply` shows before it approves them.

use std::fmt::Write;

use manager::view::{HeldMove, MoveState, PlanState, PlanView, PlannedMove};
use units::{Nanos, counted};

use super::ago;
use crate::format::{LATENCY, fixed, gib, maybe, span};
use crate::tables::{number, printable, table, words};

/// Level of detail of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanDetail {
    Moves,
    /// Moves with their reasons, rejected moves with their filters, and notes.
    Reasons,
}

/// Renders a plan; `now` is the controller's time.
pub fn plan(plan: &PlanView, now: Nanos, detail: PlanDetail) -> String {
    let mut out = heading(plan, now);
    if plan.moves.is_empty() {
        out += "\nno moves\n";
    } else {
        let moves: Vec<&PlannedMove> = plan.moves.iter().collect();
        let _ = write!(out, "\n{}", move_table(&moves));
        whys(&mut out, plan);
    }
    let (staying, held) = (plan.staying as usize, plan.held.len());
    let _ = writeln!(
        out,
        "\nstaying: {}; rejected moves: {held}",
        counted(staying, "volume")
    );
    if detail == PlanDetail::Reasons {
        reasons(&mut out, &plan.moves);
        held_back(&mut out, &plan.held);
        notes(&mut out, &plan.notes);
    }
    out
}

/// Renders the moves of a plan that nobody carries out, with their reasons.
pub fn recommended(plan: &PlanView) -> String {
    let mut out = String::new();
    if plan.moves.is_empty() {
        out += "no moves\n";
    } else {
        let moves: Vec<&PlannedMove> = plan.moves.iter().collect();
        out += &move_table(&moves);
        reasons(&mut out, &plan.moves);
    }
    held_back(&mut out, &plan.held);
    notes(&mut out, &plan.notes);
    out
}

/// Renders the moves before they are approved.
pub fn to_apply(plan: &PlanView, moves: &[&PlannedMove], now: Nanos) -> String {
    let bytes = moves.iter().map(|m| m.bytes).sum();
    format!(
        "{}\n{}\n{}, {} GiB to copy\n",
        heading(plan, now),
        move_table(moves),
        counted(moves.len(), "move"),
        fixed(gib(bytes), 2)
    )
}

fn heading(plan: &PlanView, now: Nanos) -> String {
    let state = match plan.state {
        PlanState::Current => "current",
        PlanState::Superseded => "replaced by a newer plan",
    };
    let text = format!(
        "plan {} of {} by {}, {}: {state}",
        plan.generation,
        plan.host,
        plan.strategy,
        ago(now, plan.at_ns)
    );
    printable(&text) + "\n"
}

fn move_table(moves: &[&PlannedMove]) -> String {
    let columns = [
        number("move", ""),
        words("volume"),
        words("goal"),
        words("from → to"),
        number("before", LATENCY),
        number("after", LATENCY),
        number("size", "GiB"),
        number("copy time", ""),
        words("state"),
    ];
    let rows = moves.iter().map(|m| {
        vec![
            m.position.to_string(),
            m.subject(),
            m.goal.to_string(),
            format!("{} → {}", m.from_tier, m.to_tier),
            maybe(m.before_us, 0),
            maybe(m.after_us, 0),
            fixed(gib(m.bytes), 2),
            span(m.duration_ns),
            state(m).into(),
        ]
    });
    table(&columns, rows.collect())
}

fn state(of: &PlannedMove) -> &'static str {
    match of.state {
        MoveState::Proposed { .. } if of.by_hand.is_some() => "by hand",
        MoveState::Proposed { .. } => "proposed",
        MoveState::Approved => "approved",
        MoveState::Running => "running",
        MoveState::Done => "done",
        MoveState::Ended { .. } => "ended",
    }
}

/// Adds the reasons why moves wait or have ended, grouped by reason.
fn whys(out: &mut String, plan: &PlanView) {
    let mut groups: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for m in &plan.moves {
        let (what, why) = match (&m.state, &m.by_hand) {
            (MoveState::Proposed { .. }, Some(why)) => ("by hand", why),
            (MoveState::Proposed { why }, None) => ("waiting for approval", why),
            (MoveState::Ended { why }, _) => ("ended", why),
            (MoveState::Approved | MoveState::Running | MoveState::Done, _) => continue,
        };
        let position = m.position.to_string();
        match groups
            .iter_mut()
            .find(|g| (g.0, g.1) == (what, why.as_str()))
        {
            Some(group) => group.2.push(position),
            None => groups.push((what, why, vec![position])),
        }
    }
    if !groups.is_empty() {
        out.push('\n');
    }
    for (what, why, positions) in &groups {
        let s = if positions.len() == 1 { "" } else { "s" };
        let text = format!("{what} (move{s} {}): {why}", positions.join(", "));
        let _ = writeln!(out, "{}", printable(&text));
    }
    if groups.iter().any(|g| g.0 == "by hand") {
        out.push_str("`terrace plan --commands` prints the commands of moves by hand\n");
    }
    let open = groups.iter().any(|g| g.0 == "waiting for approval");
    if open && plan.state == PlanState::Current {
        let _ = writeln!(
            out,
            "`terrace apply {}` approves the moves, `terrace reject {}` rejects them",
            plan.generation, plan.generation
        );
    }
}

fn reasons(out: &mut String, moves: &[PlannedMove]) {
    if moves.is_empty() {
        return;
    }
    out.push_str("\nreasons\n");
    for m in moves {
        let mut text = format!(
            "  {} {}: {} → {}: {}",
            m.position,
            m.subject(),
            m.from,
            m.to,
            m.reason
        );
        if !m.after_moves.is_empty() {
            let before: Vec<String> = m.after_moves.iter().map(u32::to_string).collect();
            text += &format!("; needs the space that move {} frees", before.join(", "));
        }
        if let Some(why) = &m.doubt {
            text += &format!("; the prediction is doubtful: {why}");
        }
        let _ = writeln!(out, "{}", printable(&text));
    }
}

/// Adds the moves that filters rejected.
pub(super) fn held_back(out: &mut String, held: &[HeldMove]) {
    if held.is_empty() {
        return;
    }
    out.push_str("\nrejected moves\n");
    for h in held {
        let text = format!("  {} from {} to {}: {}", h.volume, h.tier, h.wanted, h.why);
        let _ = writeln!(out, "{}", printable(&text));
    }
}

/// Adds the notes of the strategy.
pub(super) fn notes(out: &mut String, notes: &[String]) {
    if !notes.is_empty() {
        out.push_str("\nnotes\n");
    }
    for note in notes {
        let _ = writeln!(out, "  {}", printable(note));
    }
}
