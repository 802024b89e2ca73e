//! Panel of one strategy: its moves as a timeline and a table, and its volumes before and after.

use std::collections::BTreeSet;

use maud::{Markup, html};
use model::JobStatus;
use sim::{GroupKind, GroupSeries, GroupSummary, MoveRecord, RunResult, Series};

use super::Comparison;
use super::cells::{self, ImprovementDirection, changed, plain};
use crate::chart::{Bar, BarState, Gantt, Lane, line_sample, sparkline};
use crate::format::{MICROS, NONE, fixed, gib, seconds};
use crate::run::{duration_s, measured_after_us, stays, tier_at_end, tier_at_start, tiers};
use crate::series;
use crate::tables::{reason, took_s};

/// Maximum number of rows in the table of volumes; the CSV has all volumes.
const VOLUMES_SHOWN_MAX: usize = 64;

/// Maximum number of rows in the timeline.
const LANES_SHOWN_MAX: usize = 64;

/// Maximum number of rows in the table of moves. Keeps the page of a run with many moves small enough for a browser.
const MOVES_SHOWN_MAX: usize = 5000;

pub(super) fn panel(
    compared: &Comparison<'_>,
    i: usize,
    result: &RunResult,
    label: &str,
) -> Markup {
    html! {
        section class="strategy" id={ "strategy-" (i) } aria-labelledby={ "strategy-name-" (i) } {
            h3 id={ "strategy-name-" (i) } { (line_sample(i)) (label) }
            (moves(compared, result))
            (volumes(i, result))
        }
    }
}

fn moves(compared: &Comparison<'_>, result: &RunResult) -> Markup {
    let log = &result.move_log;
    html! {
        h4 { "Moves" }
        @if log.is_empty() {
            p class="note" { "This strategy made no moves." }
        } @else {
            (timeline(compared, result))
            @if log.len() > MOVES_SHOWN_MAX {
                p class="note" { "The first " (MOVES_SHOWN_MAX) " of " (log.len()) " moves; the CSV has all moves." }
            }
            p class="note" {
                "Mean latency of the moved volume: " em { "before" } " is the input of the decision, " em { "predicted" }
                " is the prediction for the target, and " em { "after" } " is measured from the move to the volume's next move or the end of the run."
            }
            div class="scroll tall" tabindex="0" role="region" aria-label="Moves" {
                table {
                    thead { tr {
                        @for (name, unit) in [("time of plan", "s"), ("start", "s"), ("duration", "s")] {
                            th class="n" scope="col" { (name) br; span class="unit" { (unit) } }
                        }
                        th scope="col" { "volume" }
                        th scope="col" { "VM" }
                        th scope="col" { "source → target tier" }
                        th class="n" scope="col" { "copied data" br; span class="unit" { "GiB" } }
                        th scope="col" { "state" }
                        @for name in ["latency before", "predicted latency", "latency after"] {
                            th class="n" scope="col" { (name) br; span class="unit" { (MICROS) } }
                        }
                        th class="n" scope="col" { "latency after" br; span class="unit" { "vs before" } }
                        th scope="col" { "reason" }
                    } }
                    tbody { @for m in log.iter().take(MOVES_SHOWN_MAX) { (move_row(result, m)) } }
                }
            }
        }
    }
}

fn move_row(result: &RunResult, m: &MoveRecord) -> Markup {
    let after_us = measured_after_us(result, m);
    html! {
        tr {
            td class="n" { (plain(m.planned_s, 1)) }
            td class="n" { (cells::maybe(m.started_s, 1)) }
            td class="n" { (cells::maybe(took_s(m), 1)) }
            th scope="row" { (m.volume) }
            td { (m.vm) }
            td class="keep" { (m.from) " → " (m.to) }
            td class="n" { (plain(gib(m.bytes), 2)) }
            td { (m.state) }
            td class="n" { (cells::maybe(m.before_us, 1)) }
            td class="n" { (cells::maybe(m.predicted_us, 1)) }
            td class="n" { (cells::maybe(after_us, 1)) }
            (changed(m.before_us, after_us, ImprovementDirection::Lower))
            td class="reason" { (reason(m)) }
        }
    }
}

fn timeline(compared: &Comparison<'_>, result: &RunResult) -> Markup {
    let tiers = tiers(result);
    let place = |name: &str| tiers.iter().position(|t| *t == name).unwrap_or(0);
    let end_s = duration_s(result);
    let mut seen = BTreeSet::new();
    // In the order of the first move.
    let moved: Vec<&str> = result
        .move_log
        .iter()
        .map(|m| m.volume.as_str())
        .filter(|v| seen.insert(*v))
        .collect();
    let lane = |volume: &&str| Lane {
        name: (*volume).into(),
        stays: stays(result, volume)
            .iter()
            .map(|s| (s.from_s, s.to_s, place(s.tier)))
            .collect(),
        bars: result
            .move_log
            .iter()
            .filter(|m| m.volume == **volume)
            .map(|m| bar(m, place(&m.to), end_s))
            .collect(),
    };
    let lanes = moved.iter().take(LANES_SHOWN_MAX).map(lane).collect();
    html! {
        (Gantt { tiers: &tiers, lanes, end_s: compared.end_s }.render())
        @if moved.len() > LANES_SHOWN_MAX {
            p class="note" { "The timeline shows the first " (LANES_SHOWN_MAX) " of " (moved.len()) " moved volumes; the table below has the others." }
        }
    }
}

fn bar(m: &MoveRecord, tier: usize, end_s: f64) -> Bar {
    let state = match m.state {
        JobStatus::Done => BarState::Done,
        JobStatus::Failed | JobStatus::Cancelled => BarState::NotDone,
        JobStatus::Proposed | JobStatus::Waiting | JobStatus::Active => BarState::UnderWay,
    };
    let to_s = m.ended_s.unwrap_or(end_s);
    // A move that never started is drawn as a mark at its end.
    let from_s = m.started_s.unwrap_or(to_s);
    let took = took_s(m).map_or_else(String::new, |s| format!(", took {}", seconds(s)));
    let title = format!(
        "{}: {} → {}, planned at {}, {}{took}, {} GiB copied. {}",
        m.volume,
        m.from,
        m.to,
        seconds(m.planned_s),
        m.state,
        fixed(gib(m.bytes), 2),
        reason(m)
    );
    let label = if state == BarState::Done {
        m.to.clone()
    } else {
        format!("{} ({})", m.to, m.state)
    };
    Bar {
        planned_s: m.planned_s,
        from_s,
        to_s,
        tier,
        state,
        label,
        title,
    }
}

/// Returns the volumes to show, in the order of the scenario: those with the longest violation, then the busiest.
fn shown(result: &RunResult) -> Vec<&GroupSummary> {
    let mut volumes: Vec<(usize, &GroupSummary)> =
        result.of_kind(GroupKind::Volume).enumerate().collect();
    volumes.sort_by(|(_, a), (_, b)| {
        let violated = |g: &GroupSummary| g.slo_violation_s.unwrap_or(0.0);
        violated(b)
            .total_cmp(&violated(a))
            .then(b.all.ios.cmp(&a.all.ios))
    });
    volumes.truncate(VOLUMES_SHOWN_MAX);
    volumes.sort_by_key(|(i, _)| *i);
    volumes.into_iter().map(|(_, g)| g).collect()
}

fn volumes(style: usize, result: &RunResult) -> Markup {
    let all = result.of_kind(GroupKind::Volume).count();
    let over_time = result.series.as_ref();
    html! {
        h4 { "Volumes: first and last third of the run" }
        p class="note" {
            "The thirds exclude the warm-up. p99 is a median over windows; the value of a window is the p99 of reads or of writes, whichever is higher. "
            "The scale of each curve ends at the maximum of the volume. A bar below a curve marks windows that violated the objective."
        }
        @if all > VOLUMES_SHOWN_MAX {
            p class="note" {
                (VOLUMES_SHOWN_MAX) " of " (all) " volumes: those with the longest violations, then the busiest. The CSV has all volumes."
            }
        }
        div class="scroll tall" tabindex="0" role="region" aria-label="Volumes" {
            table {
                thead {
                    tr {
                        th scope="col" rowspan="2" { "volume" }
                        th scope="col" rowspan="2" { "tier, start → end" }
                        th class="over" scope="colgroup" colspan="3" { "IOPS, /s" }
                        th class="over" scope="colgroup" colspan="3" { "mean latency, " (MICROS) }
                        th class="over" scope="colgroup" colspan="3" { "p99 latency, " (MICROS) }
                        th class="n" scope="col" rowspan="2" { "SLO violation" br; span class="unit" { "s" } }
                        th scope="col" rowspan="2" { "p99 over time" }
                    }
                    tr {
                        @for _ in 0..3 {
                            th class="n" scope="col" { "first third" } th class="n" scope="col" { "last third" } th class="n" scope="col" { "change" }
                        }
                    }
                }
                tbody {
                    @for volume in shown(result) {
                        tr {
                            th scope="row" { (volume.name) }
                            td class="keep" { (places(result, &volume.name)) }
                            (before_after(result, over_time, volume))
                            td class="n" { (cells::maybe(volume.slo_violation_s, 1)) }
                            td { (course(style, over_time, volume)) }
                        }
                    }
                }
            }
        }
    }
}

fn places(result: &RunResult, volume: &str) -> Markup {
    let start = tier_at_start(result, volume).unwrap_or(NONE);
    let end = tier_at_end(result, volume).unwrap_or(NONE);
    html! { @if start == end { (end) } @else { (start) " → " strong { (end) } } }
}

fn group_of<'a>(over_time: Option<&'a Series>, volume: &GroupSummary) -> Option<&'a GroupSeries> {
    series::group(over_time?, GroupKind::Volume, &volume.name)
}

fn before_after(result: &RunResult, over_time: Option<&Series>, volume: &GroupSummary) -> Markup {
    let found = over_time
        .zip(group_of(over_time, volume))
        .and_then(|(s, group)| {
            let thirds =
                series::thirds(series::windows(group), s.window_s, result.manifest.warmup_s)?;
            Some((group, thirds))
        });
    let Some((group, (first, last))) = found else {
        return html! { @for _ in 0..9 { td class="n" { (NONE) } } };
    };
    let iops = series::iops(group);
    let p99 = series::worse_p99_us(group);
    let mean = |r: &std::ops::Range<usize>| {
        let values = iops[r.clone()].iter().flatten();
        Some(values.sum::<f64>() / r.len() as f64)
    };
    let rows = [
        (mean(&first), mean(&last), ImprovementDirection::Higher),
        (
            series::mean_us_over(group, first.clone()),
            series::mean_us_over(group, last.clone()),
            ImprovementDirection::Lower,
        ),
        (
            series::median(p99[first].iter().copied()),
            series::median(p99[last].iter().copied()),
            ImprovementDirection::Lower,
        ),
    ];
    html! {
        @for (before, after, better) in rows {
            td class="n" { (cells::maybe(before, 1)) }
            td class="n" { (cells::maybe(after, 1)) }
            (changed(before, after, better))
        }
    }
}

fn course(style: usize, over_time: Option<&Series>, volume: &GroupSummary) -> Markup {
    let Some(group) = group_of(over_time, volume) else {
        return html! { (NONE) };
    };
    let violated: Vec<bool> = group.violating.iter().map(|v| *v > 0).collect();
    sparkline(
        &series::worse_p99_us(group),
        &violated,
        style,
        &format!("p99 latency of {} over time", volume.name),
    )
}
