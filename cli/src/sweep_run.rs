//! The cells of a sweep: found on disk or run, as many at once as there are cores.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use runner::jobs;
use sim::RunProgress;
use sim::sweep::{Cell, CellResult, CellRow};

use crate::sweep_bar::{State, SweepBar};
use runner::cells::Cells;
use runner::strategies::ByName;
use runner::sweeps::{PreparedSweep, Values, run_cell};

/// A cell is said to have come further no more often than this many times.
const REPORTS_MAX: f64 = 200.0;

/// What a sweep has come to.
pub struct SweepOutcome {
    /// A row per cell.
    pub rows: Vec<CellRow>,
    /// Runs whose results were there.
    pub kept: usize,
    /// Runs that were made now.
    pub made: usize,
}

/// Whether results that are there are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Yes.
    Use,
    /// Everything is run again.
    Ignore,
}

/// Whether every finished cell is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellMessages {
    /// Only what goes wrong.
    Faults,
    /// A line for each.
    Every,
}

/// Finds or runs all cells. A cell that fails leaves a row without values; a result that cannot be written ends it all. `failed` has the reasons
/// of runs that failed elsewhere, by the name of the result: they do not run again.
pub fn run(
    prepared: &PreparedSweep,
    strategies: &ByName,
    cells: &Cells,
    resume: Resume,
    tell: CellMessages,
    failed: &BTreeMap<String, String>,
) -> anyhow::Result<SweepOutcome> {
    let runs = prepared.runs();
    let mut found = match resume {
        Resume::Use => find(prepared, cells),
        Resume::Ignore => runs.iter().map(|_| None).collect(),
    };
    for (found, (_, name)) in found.iter_mut().zip(runs) {
        if let Some(why) = failed.get(name) {
            *found = Some((Err(why.clone()), 0.0));
        }
    }
    let missing: Vec<usize> = (0..found.len()).filter(|i| found[*i].is_none()).collect();
    let kept = found.len() - missing.len();
    let states = runs.iter().zip(&found).map(|((cell, _), found)| {
        let strategies = prepared.sweep().strategies();
        let strategy = strategies.iter().position(|s| *s == cell.strategy);
        let done = found.as_ref().map(|(_, took_s)| State::Done(*took_s));
        (strategy.unwrap_or(0), done.unwrap_or(State::Waiting))
    });
    let name = &prepared.sweep().base().scenario.name;
    let mut bar = SweepBar::new(name, states.collect(), jobs::threads(missing.len()));
    let done = report_kept_results_at_interrupt(kept, runs.len());
    let stop = AtomicBool::new(false);
    let made = jobs::with_events(
        &missing,
        |i, say: &mut dyn FnMut(Event)| {
            if stop.load(Ordering::Relaxed) {
                // The error of the run that stopped the sweep is reported instead.
                return Ok(Err(String::new()));
            }
            let made = make(prepared, strategies, &runs[*i], cells, say);
            match &made {
                Ok(Ok(_)) => _ = done.fetch_add(1, Ordering::Relaxed),
                Ok(Err(_)) => {}
                Err(_) => stop.store(true, Ordering::Relaxed),
            }
            made
        },
        |i, event| match event {
            Event::At(share) => bar.running(missing[i], share),
            Event::Ended(took_s, error) => {
                let run = &runs[missing[i]];
                let line = line(prepared, run, took_s, error.as_deref(), tell);
                bar.done(missing[i], took_s, line.as_deref());
            }
        },
    );
    drop(bar);
    for (i, made) in missing.iter().zip(made) {
        found[*i] = Some((made?, 0.0));
    }
    let rows = prepared.rows(|run| {
        let values = found[run].as_ref().map(|f| f.0.clone());
        values.expect("every run was found or made")
    });
    Ok(SweepOutcome {
        rows,
        kept,
        made: missing.len(),
    })
}

/// Values of runs that have results, with the seconds that each took; the reason for damaged results.
fn find(prepared: &PreparedSweep, cells: &Cells) -> Vec<Option<(Result<Values, String>, f64)>> {
    jobs::side_by_side(prepared.runs(), |(_, name)| {
        let (result, took_s) = cells.find::<CellResult>(name)?;
        Some((Ok(result.values(prepared.metrics())), took_s))
    })
}

/// Runs one and writes its result; its values, or why it failed. An error if the result cannot be written.
fn make(
    prepared: &PreparedSweep,
    strategies: &ByName,
    (cell, name): &(Cell, String),
    cells: &Cells,
    say: &mut dyn FnMut(Event),
) -> anyhow::Result<Result<Values, String>> {
    let start = Instant::now();
    let mut next = 0.0;
    let result = run_cell(
        prepared.source(),
        cell,
        strategies,
        &mut |p: RunProgress| {
            let share = p.now.as_secs_f64() / p.duration.as_secs_f64();
            if share >= next {
                next = share + 1.0 / REPORTS_MAX;
                say(Event::At(share.min(1.0)));
            }
            ControlFlow::Continue(())
        },
    );
    let took_s = start.elapsed().as_secs_f64();
    let values = match result {
        Err(error) => Err(format!("{error:#}")),
        Ok((_, result)) => {
            let values = result.values(prepared.metrics());
            cells.write(name, &result, took_s)?;
            Ok(values)
        }
    };
    say(Event::Ended(took_s, values.as_ref().err().cloned()));
    Ok(values)
}

/// Returns the line about a run that has ended; none if it is not reported.
pub fn line(
    prepared: &PreparedSweep,
    (cell, name): &(Cell, String),
    took_s: f64,
    error: Option<&str>,
    tell: CellMessages,
) -> Option<String> {
    let settings = sim::sweep::label(&prepared.sweep().varying(cell.point));
    let blank = if settings.is_empty() { "" } else { " " };
    let what = format!("{settings}{blank}{} seed {}", cell.strategy, cell.seed);
    match (error, tell) {
        (Some(why), _) => Some(format!("error: {what}: {why}")),
        (None, CellMessages::Every) => Some(format!("{what}: {took_s:.1} s, {name}")),
        (None, CellMessages::Faults) => None,
    }
}

/// What workers say.
enum Event {
    /// So much of the cell is done.
    At(f64),
    /// All of it, in so many seconds, or it failed.
    Ended(f64, Option<String>),
}

/// Reports the number of kept results when a user ends the program. Returns the counter of completed runs.
fn report_kept_results_at_interrupt(kept: usize, runs: usize) -> Arc<AtomicUsize> {
    let done = Arc::new(AtomicUsize::new(kept));
    let counted = Arc::clone(&done);
    // Without it, results are kept all the same.
    let _ = ctrlc::set_handler(move || {
        let done = counted.load(Ordering::Relaxed);
        // On a line of its own, below the bar.
        let _ = writeln!(
            io::stderr(),
            "\nstopped: {done} of {runs} results are kept; run the same command again to continue"
        );
        std::process::exit(130);
    });
    done
}
