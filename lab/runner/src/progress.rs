//! Progress bars for work that takes more than two seconds, on a terminal only.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim::RunProgress;

/// Minimum duration before a bar appears.
const QUIET: Duration = Duration::from_secs(2);

/// Progress bar that appears late and disappears when it is dropped.
pub struct LateBar {
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Default for LateBar {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            bar: None,
        }
    }
}

impl LateBar {
    /// Returns the bar if it is due. `make` creates it at the first use.
    pub fn get(&mut self, make: impl FnOnce() -> ProgressBar) -> Option<&ProgressBar> {
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return None;
        }
        Some(self.bar.get_or_insert_with(make))
    }
}

impl Drop for LateBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Creates a bar on standard error, if that is a terminal, from a template of `indicatif`. Without a total, the bar shows
/// no end.
pub fn bar(total: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.expect("templates are constant"))
}

/// Creates a bar in percent.
pub fn percents(total: u64) -> ProgressBar {
    bar(Some(total), "{wide_bar} {percent}% eta {eta}  {msg}")
}

/// Progress bar of the runs of a scenario.
pub struct SimBar {
    what: String,
    done: Vec<(f64, u64)>,
    bar: LateBar,
}

/// Steps of the bar, over all runs.
const STEPS: f64 = 10_000.0;

impl SimBar {
    /// Creates a bar for `runs` runs.
    pub fn new(what: &str, runs: usize) -> Self {
        Self {
            what: what.to_owned(),
            done: vec![(0.0, 0); runs],
            bar: LateBar::default(),
        }
    }

    /// Reports progress of run `i`.
    pub fn update(&mut self, i: usize, progress: &RunProgress) {
        let share = progress.now.as_secs_f64() / progress.duration.as_secs_f64();
        self.done[i] = (share, progress.requests);
        let Some(bar) = self.bar.get(|| percents(STEPS as u64)) else {
            return;
        };
        let share = self.done.iter().map(|d| d.0).sum::<f64>() / self.done.len() as f64;
        let millions = self.done.iter().map(|d| d.1).sum::<u64>() as f64 / 1e6;
        bar.set_position((share * STEPS) as u64);
        bar.set_message(format!("{}: {millions:.1} M requests", self.what));
    }
}

/// Progress bar of a long computation with equal steps.
pub struct StepBar {
    bar: ProgressBar,
}

impl Drop for StepBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl StepBar {
    /// Creates a bar for `steps` steps. It appears at once, because a step may take minutes.
    pub fn new(what: &str, steps: u64) -> Self {
        let template = "{wide_bar} {pos} of {len}, {elapsed}, eta {eta}  {msg}";
        let bar = bar(Some(steps), template).with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar }
    }

    /// Reports one completed step.
    pub fn step(&self) {
        self.bar.inc(1);
    }
}
