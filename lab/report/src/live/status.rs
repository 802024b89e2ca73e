//! `terrace status` and `terrace mode`.

use std::collections::BTreeMap;
use std::fmt::Write;

use manager::problem::ProblemView;
use manager::view::{HostState, HostView, LendsView, StatusView, TrustView};
use model::Goal;
use model::Mode;
use units::{Bytes, counted};

use super::line;
use crate::format::{NONE, fixed, span};
use crate::tables::{number, printable, table, words};

/// Renders the state of the controller on one screen.
pub fn status(status: &StatusView) -> String {
    let mut out = String::new();
    let paused = if status.paused {
        ", paused: no new moves start"
    } else {
        ""
    };
    let what = format!("{}, strategy {}{paused}", status.version, status.strategy);
    line(&mut out, "terrace", &what);
    let modes = status.modes.iter().map(|(g, m)| format!("{g} {m}"));
    line(&mut out, "modes", &modes.collect::<Vec<_>>().join(", "));
    line(&mut out, "predictions", &trust(&status.trust));
    line(&mut out, "auto moves", status.automatic_moves());
    let volumes = format!(
        "{}; objective violated in the last window: {}; load unknown: {}",
        status.volumes, status.slo_violated, status.unknown
    );
    line(&mut out, "volumes", &volumes);
    let moves = format!(
        "waiting for approval: {}; approved or running: {}",
        status.proposed, status.jobs
    );
    line(&mut out, "moves", &moves);
    if status.hosts.is_empty() {
        out += "\nno host is registered yet: start an agent\n";
    } else {
        let _ = write!(out, "\n{}", hosts(&status.hosts));
    }
    let _ = write!(out, "\n{}", problems(&status.problems, status.at_ns));
    out
}

/// Lists the problems, most urgent first.
fn problems(problems: &[ProblemView], at_ns: u64) -> String {
    if problems.is_empty() {
        return "no problems\n".into();
    }
    let urgency = match problems.len() {
        1 => "",
        _ => ", most urgent first",
    };
    let mut out = format!("{}{urgency}\n", counted(problems.len(), "problem"));
    for t in problems {
        let since = span(at_ns.saturating_sub(t.since_ns));
        let what = printable(&t.what);
        let _ = writeln!(out, "  {}, for {since}: {what}", t.kind);
        if let Some(undecided) = &t.undecided {
            let _ = writeln!(out, "    no decisions on: {}", printable(undecided));
        }
    }
    out
}

fn trust(trust: &TrustView) -> String {
    let of = counted(trust.outcomes as usize, "move");
    match (&trust.why, trust.error_median) {
        (Some(why), _) => format!("not trusted: {why}"),
        (None, Some(error)) => {
            format!(
                "trusted: median error {} % over {of}",
                fixed(error * 100.0, 1)
            )
        }
        (None, None) => "no finished move to compare with its prediction yet".into(),
    }
}

fn hosts(hosts: &[HostView]) -> String {
    let columns = [
        words("host"),
        words("state"),
        number("last window", ""),
        number("plan", ""),
        number("next decision", ""),
    ];
    let rows = hosts.iter().map(|h| {
        let state = match h.state {
            HostState::Live => "live",
            HostState::Late => "late",
            HostState::Lost => "lost",
        };
        let age = h.age_ns.map(|a| format!("{} ago", span(a)));
        let next = h.next_decision_ns.map(|n| format!("in {}", span(n)));
        let plan = match h.generation {
            0 => NONE.into(),
            generation => generation.to_string(),
        };
        vec![
            h.name.clone(),
            state.into(),
            age.unwrap_or(NONE.into()),
            plan,
            next.unwrap_or(NONE.into()),
        ]
    });
    let lending = hosts.iter().filter_map(|h| Some((h, h.lends.as_ref()?)));
    let lending = lending.map(|(h, lends)| lent(&h.name, lends));
    table(&columns, rows.collect()) + &lending.collect::<String>()
}

/// Lists the memory and flash that a host lends, and the hosts that use it.
fn lent(host: &str, lends: &LendsView) -> String {
    let size = |bytes: u64| Bytes(bytes).words();
    let mut out = String::new();
    for (store, all, lent) in lends.stores() {
        let _ = writeln!(
            out,
            "{} lends {} of {}, {} in use",
            printable(host),
            size(all),
            store.word(),
            size(lent)
        );
    }
    for of in &lends.to {
        let whose = match &of.volume {
            Some(volume) => format!(" for {}", printable(volume)),
            None => ", being returned".into(),
        };
        let ready = match of.ready {
            true => "",
            false => ", not ready yet",
        };
        let _ = writeln!(
            out,
            "  {} of {} to {}{whose}{ready}",
            size(of.bytes),
            of.store.word(),
            printable(&of.to)
        );
    }
    out
}

/// Renders the mode of each goal.
pub fn modes(modes: &BTreeMap<Goal, Mode>) -> String {
    let row = |(goal, mode): (&Goal, &Mode)| {
        let what = match mode {
            Mode::Off => "no moves are planned",
            Mode::Recommend => "moves wait for approval",
            Mode::Partial => {
                "moves that make their volume faster start without approval, others wait"
            }
            Mode::Auto => "moves start without approval",
        };
        vec![goal.to_string(), mode.to_string(), what.into()]
    };
    let columns = [words("goal"), words("mode"), words("treatment of moves")];
    table(&columns, modes.iter().map(row).collect())
}
