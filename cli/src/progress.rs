//! Progress bars of commands. They appear after a delay and only on a terminal ([`runner::progress`]).

use std::collections::BTreeMap;

use datapath::MoveProgress;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use manager::view::JobView;
use runner::progress::{LateBar, bar, percents};
use trace::Progress;
use units::Bytes;

fn bytes_bar(total_bytes: Option<u64>) -> ProgressBar {
    match total_bytes {
        Some(_) => bar(
            total_bytes,
            "{wide_bar} {binary_bytes}/{binary_total_bytes} {eta}  {msg}",
        ),
        None => bar(None, "{spinner} {elapsed}  {msg}"),
    }
}

/// Progress bar of reading a trace.
pub struct Bar {
    what: String,
    bar: LateBar,
}

impl Bar {
    /// Makes a bar with a description of the activity.
    pub fn new(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            bar: LateBar::default(),
        }
    }

    /// Reports progress.
    pub fn update(&mut self, progress: Progress) {
        let Some(bar) = self.bar.get(|| bytes_bar(progress.total_bytes)) else {
            return;
        };
        bar.set_position(progress.done_bytes);
        bar.set_message(format!("{}: {} requests", self.what, progress.records));
    }
}

/// Progress bar of a known number of items.
pub struct CountBar {
    what: String,
    done: u64,
    total: u64,
    bar: LateBar,
}

impl CountBar {
    /// Makes a bar with a description of the activity.
    pub fn new(what: &str, total: u64) -> Self {
        Self {
            what: what.to_owned(),
            done: 0,
            total,
            bar: LateBar::default(),
        }
    }

    /// Reports that `more` items are done.
    pub fn add(&mut self, more: u64) {
        self.done += more;
        let Some(bar) = self.bar.get(|| percents(self.total)) else {
            return;
        };
        bar.set_position(self.done);
        let millions = self.done as f64 / 1e6;
        bar.set_message(format!("{}: {millions:.1} M references", self.what));
    }
}

/// Progress bar of an activity with a known number of remaining bytes: a move, an import, a save.
pub struct LeftBar {
    what: String,
    /// Largest number of remaining bytes that was reported: the total.
    total: u64,
    bar: LateBar,
}

impl LeftBar {
    /// Makes a bar with a description of the activity.
    pub fn new(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            total: 0,
            bar: LateBar::default(),
        }
    }

    /// Reports the remaining bytes.
    pub fn update(&mut self, left: Bytes) {
        self.total = self.total.max(left.0);
        let Some(bar) = self.bar.get(|| bytes_bar(Some(self.total))) else {
            return;
        };
        bar.set_length(self.total);
        bar.set_position(self.total - left.0);
        bar.set_message(self.what.clone());
    }

    /// Reports the remaining bytes and the phase of a move.
    pub fn update_move(&mut self, volume: &str, moving: &MoveProgress) {
        self.what = format!("{volume}: {}", moving.phase);
        self.update(moving.left);
    }
}

/// Progress bars of the jobs of a controller, one per running job.
pub struct JobBars {
    all: MultiProgress,
    /// Bars by host and number of the job.
    bars: BTreeMap<(String, u32), ProgressBar>,
}

impl JobBars {
    /// Starts without bars. If standard error is not a terminal, bars never appear.
    pub fn new() -> Self {
        Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            bars: BTreeMap::new(),
        }
    }

    /// Reports progress of the running jobs, and removes the bars of other jobs.
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

    /// Runs `print` while the bars are hidden.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.all.suspend(print)
    }
}

/// Makes a bar for a job, without remaining time: the line of the job has the controller's estimate.
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
