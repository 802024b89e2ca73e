//! Explanations of placements of a recorded run: why a volume is on its tier, and why it is not on another one.
//!
//! This module evaluates nothing: it prints the reasons, numbers and rejections that the decisions recorded.

use std::fmt::Write;

use model::{Outcome, Rejection, Report, TierOption, Verdict, VolumeReport};
use sim::{RemedyRecord, RunResult};
use thiserror::Error;

use crate::format::{
    MICROS, NONE, fixed, gib, maybe, seconds, shortened, significant, with_unit_of,
};
use crate::parts::parts;
use crate::response::not_taken;
use crate::run::{duration_s, moves_of, remedies_of, stays, tier_at_end, tiers};
use crate::tables::{number, printable, reason, table, took_s, words};

/// Maximum number of names that an error lists.
const KNOWN_SHOWN_MAX: usize = 20;

/// Reasons why a placement cannot be explained.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WhyError {
    /// The run has no recorded decisions.
    #[error(
        "this run recorded no decisions: its strategy makes none, or they were not recorded; run the scenario again"
    )]
    NoDecisions,
    /// The volume is unknown.
    #[error("no volume \"{volume}\" in this run{}", hint(.volume, .known))]
    UnknownVolume {
        /// Requested volume.
        volume: String,
        /// Volumes of the run.
        known: Vec<String>,
    },
    /// The tier is unknown.
    #[error("no tier \"{tier}\" in this run{}", hint(.tier, .known))]
    UnknownTier {
        /// Requested tier.
        tier: String,
        /// Tiers of the run.
        known: Vec<String>,
    },
    /// The requested time is before the first decision.
    #[error("no decision by {}; the first one is at {}", seconds(*.at_s), seconds(*.first_s))]
    BeforeFirstDecision {
        /// Requested time, seconds.
        at_s: f64,
        /// Time of the first decision, seconds.
        first_s: f64,
    },
}

/// Returns `, did you mean "x"?` and the known names.
fn hint(given: &str, known: &[String]) -> String {
    let near = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(k, given), k))
        .min();
    let meant = match near {
        Some((distance, name)) if distance <= 2.max(given.chars().count() / 3) => {
            format!(", did you mean \"{name}\"?")
        }
        _ => String::new(),
    };
    let mut listed = known
        .iter()
        .take(KNOWN_SHOWN_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = known
        .len()
        .checked_sub(KNOWN_SHOWN_MAX)
        .filter(|more| *more > 0)
    {
        let _ = write!(listed, " and {more} more");
    }
    match (meant.is_empty(), known.is_empty()) {
        (_, true) => ": the run has none".into(),
        (true, false) => format!("; known: {listed}"),
        (false, false) => format!("{meant} (known: {listed})"),
    }
}

/// A decision and its row for the requested volume.
#[derive(Clone, Copy)]
pub(crate) struct DecisionRow<'a> {
    /// Position among all decisions of the run, from 1.
    pub(crate) number: usize,
    report: &'a Report,
    /// `None` if the strategy did not consider the volume.
    pub(crate) row: Option<&'a VolumeReport>,
}

impl DecisionRow<'_> {
    pub(crate) fn at_s(&self) -> f64 {
        self.report.at.as_secs_f64()
    }

    fn moved(&self) -> bool {
        let some = |r: &VolumeReport| r.extents.iter().any(|e| e.refused.is_none());
        self.row
            .is_some_and(|r| matches!(r.outcome, Outcome::Move { .. }) || some(r))
    }
}

pub(crate) fn decided<'a>(
    result: &'a RunResult,
    volume: &str,
) -> Result<Vec<DecisionRow<'a>>, WhyError> {
    if tier_at_end(result, volume).is_none() {
        let known = result
            .final_tiers
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        return Err(WhyError::UnknownVolume {
            volume: volume.into(),
            known,
        });
    }
    let decisions = result
        .decisions
        .as_deref()
        .filter(|d| !d.is_empty())
        .ok_or(WhyError::NoDecisions)?;
    let with_row = decisions.iter().enumerate().map(|(i, report)| DecisionRow {
        number: i + 1,
        report,
        row: report.volumes.iter().find(|v| v.volume == volume),
    });
    Ok(with_row.collect())
}

/// Returns the last decision at or before a time.
fn last_by<'a>(decisions: &[DecisionRow<'a>], at_s: f64) -> Result<DecisionRow<'a>, WhyError> {
    // Decisions are on whole epochs; a time from a table is rounded.
    let by = decisions.iter().rev().find(|d| d.at_s() <= at_s + 0.05);
    by.copied().ok_or_else(|| WhyError::BeforeFirstDecision {
        at_s,
        first_s: decisions.first().map_or(0.0, DecisionRow::at_s),
    })
}

/// Explains the place of `volume`: its places and moves over the run, remedies for it or on it, and the last decision with its
/// numbers, all tiers as options and the outcome. If an earlier decision moved the volume last, that decision is included. With
/// `at`, the decision at or before that second is shown instead.
///
/// # Errors
/// If the run has no decisions, the volume is unknown, or `at` is before the first decision.
pub fn why(result: &RunResult, volume: &str, at: Option<f64>) -> Result<String, WhyError> {
    let decisions = decided(result, volume)?;
    let mut out = heading(result, volume);
    where_it_was(&mut out, result, volume);
    remedies(&mut out, result, volume);
    for decision in &decisions_of(&decisions, at)? {
        tell(&mut out, decision, decisions.len());
    }
    Ok(out)
}

/// Returns the decisions that explain the place of a volume: the one that moved it last, and the last one; with `at` the one at
/// or before that second.
pub(crate) fn decisions_of<'a>(
    decisions: &[DecisionRow<'a>],
    at: Option<f64>,
) -> Result<Vec<DecisionRow<'a>>, WhyError> {
    if let Some(at_s) = at {
        return Ok(vec![last_by(decisions, at_s)?]);
    }
    let last = decisions.len() - 1;
    let moved = decisions
        .iter()
        .rposition(DecisionRow::moved)
        .filter(|i| *i != last);
    let relevant = moved.into_iter().chain([last]);
    Ok(relevant.map(|i| decisions[i]).collect())
}

fn heading(result: &RunResult, volume: &str) -> String {
    let m = &result.manifest;
    format!(
        "volume {} under {} (scenario {}, seed {}, {})\n",
        printable(volume),
        printable(&m.strategy),
        printable(&m.scenario),
        m.seed,
        seconds(duration_s(result))
    )
}

fn where_it_was(out: &mut String, result: &RunResult, volume: &str) {
    out.push_str("\nplaces over the run\n");
    for stay in stays(result, volume) {
        let _ = writeln!(
            out,
            "  {:>9} to {:>9}  on {}",
            seconds(stay.from_s),
            seconds(stay.to_s),
            printable(stay.tier)
        );
    }
    let moves = moves_of(result, volume);
    if moves.is_empty() {
        out.push_str("  never moved\n");
        return;
    }
    out.push_str("\nmoves\n");
    for m in moves {
        let started = m.started_s.map_or_else(
            || "not started".into(),
            |s| format!("started at {}", seconds(s)),
        );
        let took = took_s(m).map_or_else(String::new, |s| format!(", took {}", seconds(s)));
        let _ = writeln!(
            out,
            "  planned at {}: {} → {}, {} ({started}{took}, {} GiB copied): {}",
            seconds(m.planned_s),
            printable(&m.from),
            printable(&m.to),
            m.state,
            fixed(gib(m.bytes), 2),
            printable(&reason(m))
        );
    }
}

/// Adds remedies for SLO violations; equal ones are merged.
fn remedies(out: &mut String, result: &RunResult, volume: &str) {
    let mut alike: Vec<Vec<&RemedyRecord>> = Vec::new();
    for answer in remedies_of(result, volume) {
        let key = |a: &RemedyRecord| (a.volume.clone(), a.remedy, a.to.clone());
        match alike.iter_mut().find(|all| key(all[0]) == key(answer)) {
            Some(all) => all.push(answer),
            None => alike.push(vec![answer]),
        }
    }
    if !alike.is_empty() {
        out.push_str("\nremedies for SLO violations\n");
    }
    for all in alike {
        let last = all[all.len() - 1];
        let mut line = format!("at {}", seconds(all[0].at_s));
        if all.len() > 1 {
            let _ = write!(line, " ({} times to {})", all.len(), seconds(last.at_s));
        }
        let _ = write!(line, ", for {}: ", last.volume);
        match last.remedy {
            Some(remedy) => {
                let to = last.to.as_deref().unwrap_or(NONE);
                let _ = write!(line, "{} to {to}", remedy.name());
            }
            None => line.push_str("no remedy is effective"),
        }
        if let Some(lost) = last.lost_per_s.filter(|lost| *lost > 0.0) {
            let _ = write!(line, ", other volumes lose {} requests/s", fixed(lost, 0));
        }
        if let Some(price) = last.price_s {
            let _ = write!(line, ", price {}", seconds(price));
        }
        let _ = writeln!(out, "  {}", printable(&line));
        for why in not_taken(last) {
            let _ = writeln!(out, "    rejected: {}", printable(&why));
        }
    }
}

fn tell(out: &mut String, decision: &DecisionRow<'_>, of: usize) {
    let Report {
        epoch, generation, ..
    } = decision.report;
    let _ = writeln!(
        out,
        "\ndecision {} of {of}, at {} (epoch {epoch}, plan {generation})",
        decision.number,
        seconds(decision.at_s())
    );
    let Some(row) = decision.row else {
        out.push_str("  the strategy did not consider this volume\n");
        notes(out, decision.report);
        return;
    };
    let _ = writeln!(out, "  {}", printable(&outcome(row)));
    notes(out, decision.report);
    if row.evidence.is_empty() {
        out.push_str("  not based on measurements\n");
    } else {
        out.push_str("  based on\n");
        let width = row
            .evidence
            .keys()
            .map(|k| k.chars().count())
            .max()
            .unwrap_or(0);
        for (name, value) in &row.evidence {
            let _ = writeln!(
                out,
                "    {:width$}  {}",
                printable(name),
                with_unit_of(name, *value)
            );
        }
    }
    for note in &row.notes {
        let _ = writeln!(out, "  {}", printable(note));
    }
    extents(out, row);
    options(out, row);
}

fn notes(out: &mut String, report: &Report) {
    for note in &report.notes {
        let _ = writeln!(out, "  note: {}", printable(note));
    }
}

fn outcome(row: &VolumeReport) -> String {
    match &row.outcome {
        Outcome::Stay => format!("stays on {}", row.tier),
        Outcome::Move { to, reason, .. } => format!("moves from {} to {to}: {reason}", row.tier),
        Outcome::Held { wanted, by } => format!(
            "stays on {}; the move to {wanted} was rejected by {by}",
            row.tier
        ),
    }
}

/// Adds the extents that the strategy wanted on another tier.
fn extents(out: &mut String, row: &VolumeReport) {
    for e in &row.extents {
        let (n, bytes, from, to) = (e.extents, e.bytes, &e.from, &e.to);
        let _ = match &e.refused {
            None => writeln!(
                out,
                "  {n} extents ({bytes}) move from {from} to {to}: {}",
                e.reason
            ),
            Some(by) => writeln!(
                out,
                "  {n} extents ({bytes}, {} requests) stay on {from}; the move to {to} was rejected by {by}",
                e.requests
            ),
        };
    }
}

fn options(out: &mut String, row: &VolumeReport) {
    if row.options.is_empty() && !row.extents.is_empty() {
        return; // decided extent by extent
    }
    if row.options.is_empty() {
        out.push_str("  no tiers were compared\n");
        return;
    }
    let columns = [
        words("tier"),
        number("score", ""),
        number("latency", MICROS),
        number("IOPS", "/s"),
        number("bandwidth", "MiB/s"),
        number("move time", "s"),
        words("verdict"),
    ];
    let label = |o: &TierOption| match o.tier == row.tier {
        true => format!("{} (current)", o.tier),
        false => o.tier.clone(),
    };
    let rows = row.options.iter().map(|o| {
        let predicted =
            |of: fn(&model::Prediction) -> f64, digits| maybe(o.predicted.as_ref().map(of), digits);
        vec![
            label(o),
            o.score.map_or_else(|| NONE.into(), |s| fixed(s, 4)),
            predicted(|p| p.latency_us, 1),
            predicted(|p| p.iops, 0),
            predicted(|p| p.mib_per_s, 1),
            maybe(o.move_s, 1),
            row.verdict(o),
        ]
    });
    let text = table(&columns, rows.collect());
    out.push_str("  options (latency, IOPS and bandwidth are predictions)\n");
    for line in text.lines() {
        let _ = writeln!(out, "   {line}");
    }
    let scored = row.options.iter();
    parts(out, scored.map(|o| (label(o), o.score, o.parts.as_ref())));
}

/// Statement of a decision about one tier for one volume: a key that identifies equal statements, and the sentence.
pub(crate) struct Statement<'a> {
    decision: DecisionRow<'a>,
    /// Consecutive decisions with the same key are merged.
    key: String,
    pub(crate) words: String,
}

pub(crate) fn said<'a>(decision: DecisionRow<'a>, tier: &str) -> Statement<'a> {
    let (key, words) = match decision.row {
        None => (
            "not considered".into(),
            "the strategy did not consider this volume".into(),
        ),
        Some(row) => said_of(row, tier),
    };
    Statement {
        decision,
        key,
        words,
    }
}

fn said_of(row: &VolumeReport, tier: &str) -> (String, String) {
    let here = row.tier == tier;
    match &row.outcome {
        Outcome::Stay if here => ("here".into(), "stayed there".into()),
        Outcome::Move { to, reason, .. } if here => {
            (format!("left for {to}"), format!("left for {to}: {reason}"))
        }
        Outcome::Held { wanted, by } if here => (
            format!("here, {wanted} wanted, {}", filter(by)),
            format!("stayed there; the move to {wanted} was rejected by {by}"),
        ),
        Outcome::Move { to, reason, .. } if to == tier => (
            "moved there".into(),
            format!("moved there from {}: {reason}", row.tier),
        ),
        Outcome::Held { wanted, by } if wanted == tier => (
            format!("wanted, {}", filter(by)),
            format!("the move there was rejected by {by}"),
        ),
        _ => {
            let chosen = row.chosen_tier();
            match row.options.iter().find(|o| o.tier == tier) {
                None => (
                    "unseen".into(),
                    "the strategy did not consider this tier".into(),
                ),
                Some(option) => match &option.verdict {
                    Verdict::Rejected { by } => (filter(by), row.verdict(option)),
                    Verdict::NotNeeded | Verdict::Chosen => {
                        (format!("elsewhere {chosen}"), row.verdict(option))
                    }
                },
            }
        }
    }
}

/// Returns the kind of a rejection, without its numbers.
fn filter(by: &Rejection) -> String {
    match by {
        Rejection::Headroom { resource, .. } => format!("headroom {resource}"),
        Rejection::ExceedsTier { resource, .. } => format!("exceeds tier {resource}"),
        Rejection::NoDevice { .. } => "no device".into(),
        Rejection::TransientSpace { .. } => "transient space".into(),
        Rejection::Unreachable { .. } => "unreachable".into(),
        Rejection::MoveFailed { device, .. } => format!("move failed {device}"),
        Rejection::Cooldown { .. } => "cooldown".into(),
        Rejection::Hold { .. } => "hold".into(),
        Rejection::Margin { .. } => "margin".into(),
        Rejection::Threshold { .. } => "threshold".into(),
        Rejection::Price { .. } => "price".into(),
        Rejection::Regret { .. } => "regret".into(),
        Rejection::SlowsOther { volume, .. } => format!("slows {volume}"),
        Rejection::ViolatesOther { volume, .. } => format!("violates {volume}"),
        Rejection::Neighbours { volume, .. } => format!("neighbours {volume}"),
        Rejection::NoGain { .. } => "no gain".into(),
        Rejection::Burst { .. } => "burst".into(),
        Rejection::TooLate { .. } => "too late".into(),
        Rejection::CopiesFirst { .. } => "copies first".into(),
        Rejection::Outranked { .. } => "outranked".into(),
        // The other texts have no numbers.
        other => other.to_string(),
    }
}

/// Explains why `volume` is not on `tier`. For each decision of the run (or with `at` the one at or before that second) it names
/// the filter that rejected the tier with its numbers, the tier that was chosen instead, or the stay on that tier. Equal
/// statements of consecutive decisions are merged.
///
/// # Errors
/// If the run has no decisions, the volume or tier is unknown, or `at` is before the first decision.
pub fn why_not(
    result: &RunResult,
    volume: &str,
    tier: &str,
    at: Option<f64>,
) -> Result<String, WhyError> {
    let relevant = asked_of(result, volume, tier, at)?;
    let mut out = heading(result, volume);
    let now = tier_at_end(result, volume).expect("known volumes are somewhere at the end");
    let (name, tier_name) = (printable(volume), printable(tier));
    if now == tier {
        let _ = writeln!(out, "{name} is on {tier_name} at the end of the run.");
    } else {
        let was: Vec<String> = stays(result, volume)
            .iter()
            .filter(|s| s.tier == tier)
            .map(|s| format!("{} to {}", seconds(s.from_s), seconds(s.to_s)))
            .collect();
        let before = if was.is_empty() {
            "It was never on that tier".into()
        } else {
            format!("It was on that tier {}", was.join(", "))
        };
        let _ = writeln!(
            out,
            "{name} is on {} at the end of the run, not on {tier_name}. {before}.",
            printable(now)
        );
    }
    out.push('\n');
    let last = *relevant.last().expect("there is a decision");
    let mut said: Vec<Statement<'_>> = relevant.into_iter().map(|d| said(d, tier)).collect();
    while !said.is_empty() {
        let key = said[0].key.clone();
        let alike = said.iter().take_while(|s| s.key == key).count();
        let run: Vec<Statement<'_>> = said.drain(..alike).collect();
        tell_run(&mut out, &run);
    }
    compare(&mut out, &last, tier);
    Ok(out)
}

/// Returns the decisions that explain why a volume is not on a tier: all, or with `at` the one at or before that second.
pub(crate) fn asked_of<'a>(
    result: &'a RunResult,
    volume: &str,
    tier: &str,
    at: Option<f64>,
) -> Result<Vec<DecisionRow<'a>>, WhyError> {
    let decisions = decided(result, volume)?;
    if !tiers(result).contains(&tier) {
        let known = tiers(result).into_iter().map(String::from).collect();
        return Err(WhyError::UnknownTier {
            tier: tier.into(),
            known,
        });
    }
    match at {
        Some(at_s) => Ok(vec![last_by(&decisions, at_s)?]),
        None => Ok(decisions),
    }
}

fn tell_run(out: &mut String, run: &[Statement<'_>]) {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    let times = match run.len() {
        1 => format!(
            "decision {} ({})",
            first.decision.number,
            seconds(first.decision.at_s())
        ),
        _ => format!(
            "decisions {}–{} ({} to {})",
            first.decision.number,
            last.decision.number,
            seconds(first.decision.at_s()),
            seconds(last.decision.at_s())
        ),
    };
    if first.words == last.words {
        let _ = writeln!(out, "{times}: {}", printable(&first.words));
    } else {
        let _ = writeln!(out, "{times}: {}", printable(&first.words));
        let _ = writeln!(out, "  in the last one: {}", printable(&last.words));
    }
}

/// Adds the predictions for the requested and the chosen tier in the last decision shown.
fn compare(out: &mut String, decision: &DecisionRow<'_>, tier: &str) {
    let Some(row) = decision.row else { return };
    let chosen = row.chosen_tier();
    let find = |name: &str| row.options.iter().find(|o| o.tier == name);
    let both = [tier, chosen];
    let both = both.iter().take(if tier == chosen { 1 } else { 2 });
    let options: Vec<&TierOption> = both.filter_map(|name| find(name)).collect();
    let lines: Vec<String> = options
        .iter()
        .filter_map(|o| {
            let p = o.predicted?;
            let score = o
                .score
                .map_or_else(String::new, |s| format!(", score {}", fixed(s, 4)));
            let time = o
                .move_s
                .filter(|s| *s > 0.0)
                .map_or_else(String::new, |s| format!(", move time {}", seconds(s)));
            Some(format!(
                "  {:12} {} {MICROS}, {} IOPS, {} MiB/s{score}{time}",
                shortened(&printable(&o.tier), 40),
                significant(p.latency_us),
                fixed(p.iops, 0),
                fixed(p.mib_per_s, 1)
            ))
        })
        .collect();
    if !lines.is_empty() {
        let _ = writeln!(
            out,
            "\npredicted in decision {} ({})",
            decision.number,
            seconds(decision.at_s())
        );
        out.push_str(&lines.join("\n"));
        out.push('\n');
    }
    let scored = options.iter();
    parts(
        out,
        scored.map(|o| (o.tier.clone(), o.score, o.parts.as_ref())),
    );
    for note in &row.notes {
        let _ = writeln!(out, "  {}", printable(note));
    }
}
