//! A progress bar for whatever takes more than two seconds, on a terminal only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use datapath::Moving;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use manager::view::JobView;
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

/// Shows how many of a known number of things are done.
pub struct CountBar {
    started: Instant,
    what: String,
    done: u64,
    total: u64,
    bar: Option<ProgressBar>,
}

impl CountBar {
    /// A bar that appears after two seconds, if standard error is a terminal.
    pub fn new(what: &str, total: u64) -> Self {
        Self {
            started: Instant::now(),
            what: what.to_owned(),
            done: 0,
            total,
            bar: None,
        }
    }

    /// So many more are done.
    pub fn add(&mut self, more: u64) {
        self.done += more;
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(self.total), target);
            let style = ProgressStyle::with_template("{wide_bar} {percent}% eta {eta}  {msg}");
            bar.set_style(style.expect("the template is constant"));
            bar
        });
        bar.set_position(self.done);
        let millions = self.done as f64 / 1e6;
        bar.set_message(format!("{}: {millions:.1} M references", self.what));
    }
}

impl Drop for CountBar {
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

/// Shows how far the jobs of a controller have come: a bar for each that goes on.
pub struct JobBars {
    all: MultiProgress,
    /// By host and number.
    bars: BTreeMap<(String, u32), ProgressBar>,
}

impl JobBars {
    /// No bars yet; none ever if standard error is no terminal.
    pub fn new() -> Self {
        Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            bars: BTreeMap::new(),
        }
    }

    /// Reports progress of the jobs that go on; bars of others go away.
    pub fn update(&mut self, going: &[&JobView]) {
        let key = |j: &JobView| (j.host.clone(), j.job);
        let gone = |k: &(String, u32)| !going.iter().any(|j| key(j) == *k);
        for (_, bar) in self.bars.extract_if(.., |k, _| gone(k)) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
        for job in going {
            let all = &self.all;
            let bar = self.bars.entry(key(job));
            let bar = bar.or_insert_with(|| all.add(new_job_bar()));
            bar.set_length(job.copied_bytes + job.left_bytes);
            bar.set_position(job.copied_bytes);
            bar.set_message(report::live::job_line(job));
        }
    }

    /// Prints something without disturbing the bars.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.all.suspend(print)
    }
}

/// The time that is left is the controller's to say, in the job's line.
fn new_job_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:16} {percent:>3} %  {msg}");
    ProgressBar::no_length().with_style(style.expect("the template is constant"))
}

impl Drop for JobBars {
    fn drop(&mut self) {
        for bar in self.bars.values() {
            bar.finish_and_clear();
        }
    }
}

/// Shows how many equal steps of a longer piece of work are done.
pub struct StepBar {
    started: Instant,
    what: String,
    steps: u64,
    done: u64,
    bar: Option<ProgressBar>,
}

impl StepBar {
    /// A bar over `steps` steps that appears after two seconds, if standard error is a terminal.
    pub fn new(what: &str, steps: u64) -> Self {
        Self {
            started: Instant::now(),
            what: what.to_owned(),
            steps,
            done: 0,
            bar: None,
        }
    }

    /// One more step is done.
    pub fn step(&mut self) {
        self.done += 1;
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(self.steps), target);
            let style = ProgressStyle::with_template("{wide_bar} {percent}% eta {eta}  {msg}");
            bar.set_style(style.expect("the template is constant"));
            bar
        });
        bar.set_position(self.done);
        bar.set_message(self.what.clone());
    }
}

impl Drop for StepBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
