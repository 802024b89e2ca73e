//! Simulations side by side, one thread each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use sim::{Manifest, Model, RunOptions, RunProgress, RunResult, ScenarioFile, TraceHash};
use xxhash_rust::xxh3::xxh3_64;

use crate::progress::{SimBar, StepBar};

/// One simulation.
pub struct Job<'a> {
    /// Where the strategy's parameters are.
    pub file: &'a ScenarioFile,
    /// What is simulated.
    pub model: &'a Model,
    /// Under which strategy.
    pub strategy: String,
    /// The traces.
    pub traces: &'a [TraceHash],
    /// What to keep.
    pub options: RunOptions,
}

impl Job<'_> {
    fn run(&self, report: &mut dyn FnMut(RunProgress)) -> anyhow::Result<RunResult> {
        let (file, model) = (self.file, self.model);
        let strategy = file.strategy(&self.strategy)?;
        let text = xxh3_64(file.source.text.as_bytes());
        let manifest = manifest(file, model, &self.strategy, self.traces, text);
        Ok(sim::run(model, strategy, manifest, self.options, report)?)
    }
}

/// What makes a run repeatable. `scenario_xxh3` is the hash of the scenario.
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

/// Runs all of them, as many at once as there are cores; results in the order of the jobs. They share nothing but what they
/// borrow.
pub fn run_all(title: &str, jobs: &[Job<'_>]) -> anyhow::Result<Vec<RunResult>> {
    let mut bar = SimBar::new(title, jobs.len());
    let results = with_events(
        jobs,
        |job, report| job.run(report),
        |i, progress: RunProgress| bar.update(i, &progress),
    );
    results.into_iter().collect()
}

/// The same for anything else.
pub fn side_by_side<T: Sync, R: Send>(over: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    with_events(over, |item, _: &mut dyn FnMut(())| work(item), |_, ()| ())
}

/// The same, with a bar that advances with each finished item.
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

/// How much of `items` is worked on at once.
pub fn threads(items: usize) -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(items.max(1))
}

/// The same, with what workers have to say while they are at it: `on` hears it on the caller's thread, with the number of the
/// item.
pub fn with_events<T: Sync, R: Send, E: Send>(
    over: &[T],
    work: impl Fn(&T, &mut dyn FnMut(E)) -> R + Sync,
    mut on: impl FnMut(usize, E),
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
        for (i, event) in events {
            on(i, event);
        }
        let results = workers.into_iter().map(|w| w.join());
        results
            .flat_map(|r| r.expect("work does not panic"))
            .collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}
