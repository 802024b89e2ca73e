//! Simulations side by side, one thread each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use sim::{Manifest, Model, RunOptions, RunProgress, RunResult, ScenarioFile, TraceHash};
use xxhash_rust::xxh3::xxh3_64;

use crate::progress::SimBar;

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
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").into(),
            scenario: file.scenario.name.clone(),
            scenario_xxh3: format!("{:016x}", xxh3_64(file.source.text.as_bytes())),
            traces: self.traces.to_vec(),
            strategy: self.strategy.clone(),
            strategy_config: file
                .scenario
                .strategies
                .get(&self.strategy)
                .cloned()
                .unwrap_or_default(),
            seed: model.seed,
            duration_s: model.duration.as_secs_f64(),
            warmup_s: model.warmup.as_secs_f64(),
        };
        Ok(sim::run(model, &*strategy, manifest, self.options, report)?)
    }
}

/// Runs all of them, as many at once as there are cores; results in the order of the jobs. They share nothing but what they
/// borrow.
pub fn run_all(title: &str, jobs: &[Job<'_>]) -> anyhow::Result<Vec<RunResult>> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len().max(1));
    let (send, progress) = mpsc::channel::<(usize, RunProgress)>();
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<anyhow::Result<RunResult>>> =
        (0..jobs.len()).map(|_| None).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (send, next) = (send.clone(), &next);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(i) else {
                            return done;
                        };
                        let mut report = |p: RunProgress| {
                            let _ = send.send((i, p)); // nobody listens any more: no reason to stop
                        };
                        done.push((i, job.run(&mut report)));
                    }
                })
            })
            .collect();
        drop(send);
        let mut bar = SimBar::new(title, jobs.len());
        for (i, p) in progress {
            bar.update(i, &p);
        }
        drop(bar);
        for worker in workers {
            for (i, result) in worker.join().expect("a run does not panic") {
                results[i] = Some(result);
            }
        }
    });
    results
        .into_iter()
        .map(|r| r.expect("every run was started"))
        .collect()
}

/// The same for anything else that is short: as many at once as there are cores, results in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(over: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some(item) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            over.get(i).map(|item| (i, item))
        } {
            done.push((item.0, work(item.1)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(over.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let results = workers.into_iter().map(|w| w.join());
        results
            .flat_map(|r| r.expect("work does not panic"))
            .collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}
