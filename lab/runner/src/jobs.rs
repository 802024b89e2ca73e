//! Parallel simulations, one thread each.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use planner::AnyStrategy;
use sim::{Manifest, Model, RunOptions, RunProgress, RunResult, ScenarioFile, TraceHash};
use tables::RequestFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::progress::{SimBar, StepBar};
use crate::strategies::ByName;
use crate::sweeps::Strategies;

/// One simulation.
pub struct Job<'a> {
    /// Scenario with the parameters of the strategy.
    pub file: &'a ScenarioFile,
    /// Array, volumes and workloads of the simulation.
    pub model: &'a Model,
    /// Name of the strategy.
    pub strategy: String,
    /// Source of the strategy.
    pub strategies: &'a ByName,
    /// The traces.
    pub traces: &'a [TraceHash],
    /// Parts of the result to keep.
    pub options: RunOptions,
    /// File for every request ([`RequestFile`]).
    pub requests: Option<&'a Path>,
}

impl Job<'_> {
    fn run(&self, report: &mut dyn FnMut(RunProgress)) -> anyhow::Result<RunResult> {
        let (file, model) = (self.file, self.model);
        let strategy = self.strategies.build(file, &self.strategy)?;
        let text = xxh3_64(file.source.text.as_bytes());
        let manifest = manifest(file, model, &self.strategy, self.traces, text);
        match self.requests {
            None => Ok(sim::run(model, strategy, manifest, self.options, report)?),
            Some(path) => self.run_with_requests(path, strategy, manifest, report),
        }
    }

    fn run_with_requests(
        &self,
        path: &Path,
        strategy: Box<dyn AnyStrategy>,
        manifest: Manifest,
        report: &mut dyn FnMut(RunProgress),
    ) -> anyhow::Result<RunResult> {
        let mut file = RequestFile::create(path, self.model)?;
        let written = RefCell::new(Ok(()));
        let result = sim::run_with_requests(
            self.model,
            strategy,
            manifest,
            self.options,
            &mut |requests| {
                let mut written = written.borrow_mut();
                if written.is_ok() {
                    *written = file.write(requests);
                }
            },
            &mut |progress| {
                report(progress);
                match *written.borrow() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            },
        );
        written.into_inner()?;
        let result = result?;
        file.finish()?;
        Ok(result)
    }
}

/// Returns the description that makes a run repeatable. `scenario_xxh3` is the hash of the scenario.
pub fn manifest(
    file: &ScenarioFile,
    model: &Model,
    strategy: &str,
    traces: &[TraceHash],
    scenario_xxh3: u64,
) -> Manifest {
    let parameters = file.scenario.strategies.get(strategy);
    Manifest {
        version: env!("CARGO_PKG_VERSION").into(),
        scenario: file.scenario.name.clone(),
        scenario_xxh3: format!("{scenario_xxh3:016x}"),
        traces: traces.to_vec(),
        strategy: strategy.into(),
        strategy_config: parameters.cloned().unwrap_or_default(),
        seed: model.seed,
        duration_s: model.duration.as_secs_f64(),
        warmup_s: model.warmup.as_secs_f64(),
    }
}

/// Runs all jobs, one per core at a time. Returns their results in the order of the jobs. Jobs share only borrowed data.
pub fn run_all(title: &str, jobs: &[Job<'_>]) -> anyhow::Result<Vec<RunResult>> {
    let mut bar = SimBar::new(title, jobs.len());
    let results = with_events(
        jobs,
        |job, report| job.run(report),
        |i, progress: RunProgress| bar.update(i, &progress),
    );
    results.into_iter().collect()
}

/// Applies `work` to all items, one per core at a time. Returns the results in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(over: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    with_events(over, |item, _: &mut dyn FnMut(())| work(item), |_, ()| ())
}

/// Like [`side_by_side`], with a bar that advances with each finished item.
pub fn with_bar<T: Sync, R: Send>(
    title: &str,
    over: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let bar = StepBar::new(title, over.len() as u64);
    side_by_side(over, |item| {
        let result = work(item);
        bar.step();
        result
    })
}

/// Returns the number of threads for so many items.
pub fn threads(items: usize) -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(items.max(1))
}

/// Like [`side_by_side`], with events of the workers: `on` receives them on the caller's thread, with the number of the item.
pub fn with_events<T: Sync, R: Send, E: Send>(
    over: &[T],
    work: impl Fn(&T, &mut dyn FnMut(E)) -> R + Sync,
    mut on: impl FnMut(usize, E),
) -> Vec<R> {
    with_timed_events(over, work, Duration::MAX, |event| {
        if let Some((i, event)) = event {
            on(i, event);
        }
    })
}

/// Like [`with_events`]; `on` also receives `None` whenever no event comes for the time `quiet`.
pub fn with_timed_events<T: Sync, R: Send, E: Send>(
    over: &[T],
    work: impl Fn(&T, &mut dyn FnMut(E)) -> R + Sync,
    quiet: Duration,
    mut on: impl FnMut(Option<(usize, E)>),
) -> Vec<R> {
    let (send, events) = mpsc::channel::<(usize, E)>();
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads(over.len()))
            .map(|_| {
                let send = send.clone();
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = over.get(i) else {
                            return done;
                        };
                        let mut say = |event: E| {
                            let _ = send.send((i, event)); // nobody listens any more: no reason to stop
                        };
                        done.push((i, work(item, &mut say)));
                    }
                })
            })
            .collect();
        drop(send);
        loop {
            match events.recv_timeout(quiet) {
                Ok(event) => on(Some(event)),
                Err(RecvTimeoutError::Timeout) => on(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let results = workers.into_iter().map(|w| w.join());
        results
            .flat_map(|r| r.expect("work does not panic"))
            .collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}
