//! The cells of a sweep: found on disk or run, as many at once as there are cores.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use runner::jobs;
use sim::sweep::{Cell, CellResult, CellRow, Metric, SWEEP_SCHEMA, Sweep, SweepResult, means};
use sim::{RunOptions, RunProgress};
use xxhash_rust::xxh3::xxh3_64;

use crate::sweep_bar::{State, SweepBar};
use runner::cells::{self, Cells};
use runner::inputs::Inputs;

/// A cell is said to have come further no more often than this many times.
const REPORTS_MAX: f64 = 200.0;

/// A value of each metric.
type Values = Vec<Option<f64>>;

/// A sweep whose cells can all be built.
pub struct Prepared {
    sweep: Sweep,
    /// The scenario's file.
    path: PathBuf,
    metrics: Vec<Metric>,
    inputs: Inputs,
    /// Every cell, with the number of its run.
    cells: Vec<(Cell, usize)>,
    /// Runs: the first cell that needs each, and the name of its result. Cells that depend on the same share one.
    runs: Vec<(Cell, String)>,
}

/// What a sweep has come to.
pub struct Ran {
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
pub enum Tell {
    /// Only what goes wrong.
    Faults,
    /// A line for each.
    Every,
}

impl Prepared {
    /// Builds all cells once, so that whatever is wrong with one is found before anything runs. `path` is the scenario's.
    pub fn new(sweep: Sweep, path: PathBuf, metrics: Vec<Metric>) -> anyhow::Result<Self> {
        let mut inputs = Inputs::default();
        let (mut cells, mut runs) = (Vec::new(), Vec::new());
        let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
        for of_point in sweep.cells().chunk_by(|a, b| a.point == b.point) {
            let point = of_point[0].point;
            let file = sweep.scenario(point, of_point[0].seed)?;
            let blame = |fault| sweep.blame(point, fault);
            inputs.read(&path, &file).map_err(blame)?;
            let loaded = inputs.build(&path, &file).map_err(blame)?;
            for metric in &metrics {
                metric.check(&loaded.model).map_err(anyhow::Error::msg)?;
            }
            for strategy in sweep.strategies() {
                file.strategy(strategy).map_err(blame)?;
            }
            for cell in of_point {
                let identity = sweep.identity(&file, cell, &loaded.traces, &loaded.measurements)?;
                let name = cells::name(&identity);
                let run = *by_name.entry(name.clone()).or_insert_with(|| {
                    runs.push((cell.clone(), name));
                    runs.len() - 1
                });
                cells.push((cell.clone(), run));
            }
        }
        Ok(Self {
            sweep,
            path,
            metrics,
            inputs,
            cells,
            runs,
        })
    }

    /// What has come of it, as rows and means.
    pub fn result(&self, rows: Vec<CellRow>) -> SweepResult {
        let (sweep, metrics) = (&self.sweep, &self.metrics);
        SweepResult {
            schema: SWEEP_SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            scenario: sweep.base().scenario.name.clone(),
            keys: sweep.keys().map(String::from).collect(),
            strategies: sweep.strategies().to_vec(),
            seeds: sweep.seeds().to_vec(),
            means: means(&rows, sweep.seeds().len(), metrics),
            metrics: metrics.clone(),
            cells: rows,
        }
    }

    /// Finds or runs all cells. A cell that fails leaves a row without values; a result that cannot be written ends it all.
    pub fn run(&self, cells: &Cells, resume: Resume, tell: Tell) -> anyhow::Result<Ran> {
        let mut found = match resume {
            Resume::Use => self.find(cells),
            Resume::Ignore => self.runs.iter().map(|_| None).collect(),
        };
        let missing: Vec<usize> = (0..found.len()).filter(|i| found[*i].is_none()).collect();
        let kept = found.len() - missing.len();
        let states = self.runs.iter().zip(&found).map(|((cell, _), found)| {
            let strategies = self.sweep.strategies();
            let strategy = strategies.iter().position(|s| *s == cell.strategy);
            let done = found.as_ref().map(|(_, took_s)| State::Done(*took_s));
            (strategy.unwrap_or(0), done.unwrap_or(State::Waiting))
        });
        let name = &self.sweep.base().scenario.name;
        let mut bar = SweepBar::new(name, states.collect(), jobs::threads(missing.len()));
        let done = say_what_is_kept(kept, self.runs.len());
        let stop = AtomicBool::new(false);
        let made = jobs::with_events(
            &missing,
            |i, say: &mut dyn FnMut(Event)| {
                if stop.load(Ordering::Relaxed) {
                    // The error of the one that stopped it is what is told.
                    return Ok(Err(String::new()));
                }
                let made = self.make(&self.runs[*i], cells, say);
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
                    let line = self.line(missing[i], took_s, error.as_deref(), tell);
                    bar.done(missing[i], took_s, line.as_deref());
                }
            },
        );
        drop(bar);
        for (i, made) in missing.iter().zip(made) {
            found[*i] = Some((made?, 0.0));
        }
        let rows = self.cells.iter().map(|(cell, run)| {
            let name = self.runs[*run].1.clone();
            let values = found[*run].as_ref().map(|f| f.0.clone());
            let values = values.expect("every run was found or made");
            CellRow::new(&self.sweep, cell, name, &self.metrics, values)
        });
        Ok(Ran {
            rows: rows.collect(),
            kept,
            made: missing.len(),
        })
    }

    /// The values of runs whose results are there, with the seconds that they took. Says which are damaged.
    fn find(&self, cells: &Cells) -> Vec<Option<(Result<Values, String>, f64)>> {
        jobs::side_by_side(&self.runs, |(_, name)| {
            let (result, took_s) = cells.find::<CellResult>(name)?;
            Some((Ok(result.values(&self.metrics)), took_s))
        })
    }

    /// Runs one and writes its result; its values, or why it failed. An error if the result cannot be written.
    fn make(
        &self,
        (cell, name): &(Cell, String),
        cells: &Cells,
        say: &mut dyn FnMut(Event),
    ) -> anyhow::Result<Result<Values, String>> {
        let start = Instant::now();
        let mut next = 0.0;
        let result = self.run_cell(cell, &mut |p: RunProgress| {
            let share = p.now.as_secs_f64() / p.duration.as_secs_f64();
            if share >= next {
                next = share + 1.0 / REPORTS_MAX;
                say(Event::At(share.min(1.0)));
            }
        });
        let took_s = start.elapsed().as_secs_f64();
        let values = match result {
            Err(error) => Err(format!("{error:#}")),
            Ok(result) => {
                let values = result.values(&self.metrics);
                cells.write(name, &result, took_s)?;
                Ok(values)
            }
        };
        say(Event::Ended(took_s, values.as_ref().err().cloned()));
        Ok(values)
    }

    /// Runs one cell. What it is a simulation of is decided here and nowhere else: another kind is another case of
    /// [`CellResult`].
    fn run_cell(
        &self,
        cell: &Cell,
        report: &mut dyn FnMut(RunProgress),
    ) -> anyhow::Result<CellResult> {
        let file = self.sweep.scenario(cell.point, cell.seed)?;
        let loaded = self.inputs.build(&self.path, &file)?;
        let strategy = file.strategy(&cell.strategy)?;
        // Not of the text: cells of different texts may share a result.
        let identity = self
            .sweep
            .identity(&file, cell, &loaded.traces, &loaded.measurements)?;
        let scenario_xxh3 = xxh3_64(identity["scenario"].to_string().as_bytes());
        let (model, traces) = (&loaded.model, &loaded.traces);
        let manifest = jobs::manifest(&file, model, &cell.strategy, traces, scenario_xxh3);
        let options = RunOptions {
            series: false,
            decisions: false,
            optimum: None,
        };
        let result = sim::run(model, strategy, manifest, options, report)?;
        Ok(CellResult::Run(Box::new(result)))
    }

    /// What is said of a run that has ended, if anything.
    fn line(&self, run: usize, took_s: f64, error: Option<&str>, tell: Tell) -> Option<String> {
        let (cell, name) = &self.runs[run];
        let settings = sim::sweep::label(&self.sweep.varying(cell.point));
        let blank = if settings.is_empty() { "" } else { " " };
        let what = format!("{settings}{blank}{} seed {}", cell.strategy, cell.seed);
        match (error, tell) {
            (Some(why), _) => Some(format!("error: {what}: {why}")),
            (None, Tell::Every) => Some(format!("{what}: {took_s:.1} s, {name}")),
            (None, Tell::Faults) => None,
        }
    }
}

/// What workers say.
enum Event {
    /// So much of the cell is done.
    At(f64),
    /// All of it, in so many seconds, or it failed.
    Ended(f64, Option<String>),
}

/// Has a user who ends the program told what is kept; the counter of runs that are done.
fn say_what_is_kept(kept: usize, runs: usize) -> Arc<AtomicUsize> {
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
