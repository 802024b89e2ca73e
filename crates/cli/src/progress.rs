//! A progress bar for whatever takes more than two seconds, on a terminal only.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
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
