//! A progress bar for whatever takes more than two seconds, on a terminal only.

use std::time::{Duration, Instant};

use datapath::Moving;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim::RunProgress;
use trace::Progress;

/// Work that is done sooner shows no bar.
const QUIET: Duration = Duration::from_secs(2);

/// Shows how far a trace has been read.
pub struct Bar {
    started: Instant,
    what: String,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar that appears after two seconds, if standard error is a terminal.
    pub fn new(what: &str) -> Self {
        Self {
            started: Instant::now(),
            what: what.to_owned(),
            bar: None,
        }
    }

    /// Reports progress.
    pub fn update(&mut self, progress: Progress) {
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self
            .bar
            .get_or_insert_with(|| new_bar(progress.total_bytes));
        bar.set_position(progress.done_bytes);
        bar.set_message(format!("{}: {} requests", self.what, progress.records));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(total_bytes: Option<u64>) -> ProgressBar {
    // Draws nothing where standard error is not a terminal.
    let target = ProgressDrawTarget::stderr();
    let (bar, template) = match total_bytes {
        Some(total) => (
            ProgressBar::with_draw_target(Some(total), target),
            "{wide_bar} {binary_bytes}/{binary_total_bytes} {eta}  {msg}",
        ),
        None => (
            ProgressBar::with_draw_target(None, target),
            "{spinner} {elapsed}  {msg}",
        ),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Shows how far the runs of a scenario have come.
pub struct SimBar {
    started: Instant,
    what: String,
    done: Vec<(f64, u64)>,
    bar: Option<ProgressBar>,
}

/// Steps of the bar, over all runs.
const STEPS: f64 = 10_000.0;

impl SimBar {
    /// A bar over `runs` runs that appears after two seconds, if standard error is a terminal.
    pub fn new(what: &str, runs: usize) -> Self {
        Self {
            started: Instant::now(),
            what: what.to_owned(),
            done: vec![(0.0, 0); runs],
            bar: None,
        }
    }

    /// Reports progress of run `i`.
    pub fn update(&mut self, i: usize, progress: &RunProgress) {
        let share = progress.now.as_secs_f64() / progress.duration.as_secs_f64();
        self.done[i] = (share, progress.requests);
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(STEPS as u64), target);
            let style = ProgressStyle::with_template("{wide_bar} {percent}% eta {eta}  {msg}");
            bar.set_style(style.expect("the template is constant"));
            bar
        });
        let share = self.done.iter().map(|d| d.0).sum::<f64>() / self.done.len() as f64;
        let requests: u64 = self.done.iter().map(|d| d.1).sum();
        bar.set_position((share * STEPS) as u64);
        bar.set_message(format!(
            "{}: {:.1} M requests",
            self.what,
            requests as f64 / 1e6
        ));
    }
}

impl Drop for SimBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far the move of a volume has come.
pub struct MoveBar {
    started: Instant,
    what: String,
    /// Most bytes that were left at once: all of the move.
    total: u64,
    bar: Option<ProgressBar>,
}

impl MoveBar {
    /// A bar that appears after two seconds, if standard error is a terminal.
    pub fn new(what: &str) -> Self {
        Self {
            started: Instant::now(),
            what: what.to_owned(),
            total: 0,
            bar: None,
        }
    }

    /// Reports progress.
    pub fn update(&mut self, moving: &Moving) {
        self.total = self.total.max(moving.left.0);
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| new_bar(Some(self.total)));
        bar.set_length(self.total);
        bar.set_position(self.total - moving.left.0);
        bar.set_message(format!("{}: {}", self.what, moving.phase));
    }
}

impl Drop for MoveBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
