//! Progress of what commands do; bars appear late, and on a terminal only ([`runner::progress`]).

use std::collections::BTreeMap;

use datapath::Moving;
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

/// Shows how far a trace has been read.
pub struct Bar {
    what: String,
    bar: LateBar,
}

impl Bar {
    /// A bar that says what is done.
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

/// Shows how many of a known number of things are done.
pub struct CountBar {
    what: String,
    done: u64,
    total: u64,
    bar: LateBar,
}

impl CountBar {
    /// A bar that says what is done.
    pub fn new(what: &str, total: u64) -> Self {
        Self {
            what: what.to_owned(),
            done: 0,
            total,
            bar: LateBar::default(),
        }
    }

    /// So many more are done.
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

/// Shows how far something has come of which it is known how many bytes are left: a move, an import, a save.
pub struct LeftBar {
    what: String,
    /// Most bytes that were left at once: all of it.
    total: u64,
    bar: LateBar,
}

impl LeftBar {
    /// A bar that says what is done.
    pub fn new(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            total: 0,
            bar: LateBar::default(),
        }
    }

    /// Reports what is left.
    pub fn update(&mut self, left: Bytes) {
        self.total = self.total.max(left.0);
        let Some(bar) = self.bar.get(|| bytes_bar(Some(self.total))) else {
            return;
        };
        bar.set_length(self.total);
        bar.set_position(self.total - left.0);
        bar.set_message(self.what.clone());
    }

    /// Reports what is left of a move, and what it does.
    pub fn update_move(&mut self, volume: &str, moving: &Moving) {
        self.what = format!("{volume}: {}", moving.phase);
        self.update(moving.left);
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
