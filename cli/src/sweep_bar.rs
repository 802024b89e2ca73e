//! Progress bar of a sweep with an estimate of the remaining time. It appears only on a terminal, after two seconds.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time after which the bar appears.
const QUIET: Duration = Duration::from_secs(2);
/// Shortest time between two estimates of the remaining time.
const EVERY: Duration = Duration::from_millis(200);
/// Number of steps of the bar, over all cells.
const STEPS: f64 = 10_000.0;
/// Smallest completed share of a cell from which its total time is estimated.
const SHARE_MIN: f64 = 0.05;

/// State of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Not started.
    Waiting,
    /// Running: completed share, 0..=1, and start time.
    Running(f64, Instant),
    /// Completed, with its duration in seconds.
    Done(f64),
}

pub struct SweepBar {
    started: Instant,
    drawn: Instant,
    title: String,
    /// Number of the strategy and state, by cell.
    cells: Vec<(usize, State)>,
    threads: usize,
    bar: Option<ProgressBar>,
}

impl SweepBar {
    /// Makes a bar for cells, each with the number of its strategy. `threads` cells run at the same time.
    pub fn new(title: &str, cells: Vec<(usize, State)>, threads: usize) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            drawn: now,
            title: title.into(),
            cells,
            threads,
            bar: None,
        }
    }

    /// Reports the completed share of a cell.
    pub fn running(&mut self, cell: usize, share: f64) {
        let since = match self.cells[cell].1 {
            State::Running(_, since) => since,
            _ => Instant::now(),
        };
        self.cells[cell].1 = State::Running(share, since);
        if self.drawn.elapsed() > EVERY {
            self.draw();
        }
    }

    /// Reports a completed cell, and prints `line`, if any.
    pub fn done(&mut self, cell: usize, took_s: f64, line: Option<&str>) {
        self.cells[cell].1 = State::Done(took_s);
        if let Some(line) = line {
            match &self.bar {
                Some(bar) => bar.suspend(|| crate::live::message(line)),
                None => crate::live::message(line),
            }
        }
        self.draw();
    }

    fn draw(&mut self) {
        self.drawn = Instant::now();
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            // Draws nothing where standard error is not a terminal.
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(STEPS as u64), target);
            let style = ProgressStyle::with_template("{wide_bar} {percent}%  {msg}");
            bar.set_style(style.expect("the template is constant"));
            bar
        });
        let share = |s: State| match s {
            State::Waiting => 0.0,
            State::Running(share, _) => share,
            State::Done(_) => 1.0,
        };
        let done: f64 = self.cells.iter().map(|c| share(c.1)).sum();
        let left = left_s(&self.cells, self.threads, Instant::now());
        bar.set_position((done / self.cells.len().max(1) as f64 * STEPS) as u64);
        bar.set_message(format!(
            "{}: {} of {} cells{}",
            self.title,
            self.cells
                .iter()
                .filter(|c| matches!(c.1, State::Done(_)))
                .count(),
            self.cells.len(),
            left.map_or(String::new(), |left| {
                format!(
                    ", eta {:#}",
                    HumanDuration(Duration::from_secs_f64(left.ceil()))
                )
            }),
        ));
    }
}

impl Drop for SweepBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Estimates the seconds until all cells are completed. A cell takes as long as the mean of its strategy's cells, or of all cells if its
/// strategy has none. Returns `None` while no duration is known.
fn left_s(cells: &[(usize, State)], threads: usize, now: Instant) -> Option<f64> {
    // Total time of a cell, if known or estimated.
    let took = |state: State| match state {
        State::Done(took) => Some(took),
        State::Running(share, since) if share >= SHARE_MIN => {
            Some(now.saturating_duration_since(since).as_secs_f64() / share)
        }
        State::Running(..) | State::Waiting => None,
    };
    let strategies = cells.iter().map(|c| c.0 + 1).max()?;
    let mut known = vec![(0.0, 0.0); strategies];
    for (strategy, state) in cells {
        if let Some(s) = took(*state) {
            known[*strategy].0 += s;
            known[*strategy].1 += 1.0;
        }
    }
    let all = known.iter().fold((0.0, 0.0), |a, k| (a.0 + k.0, a.1 + k.1));
    let mean = |(sum, n): (f64, f64)| (n > 0.0).then(|| sum / n);
    let usual = mean(all)?;
    let (mut work, mut longest) = (0.0, 0.0_f64);
    for (strategy, state) in cells {
        let expected = || took(*state).or(mean(known[*strategy])).unwrap_or(usual);
        let left = match state {
            State::Done(_) => continue,
            State::Waiting => expected(),
            State::Running(share, _) => expected() * (1.0 - share),
        };
        work += left;
        longest = longest.max(left);
    }
    Some((work / threads.max(1) as f64).max(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_estimated_from_cells_of_the_same_strategy() {
        let now = Instant::now();
        let ago = |s| now.checked_sub(Duration::from_secs(s)).unwrap();
        let left = |cells: &[(usize, State)], threads| left_s(cells, threads, now);
        assert_eq!(left(&[], 2), None);
        assert_eq!(
            left(&[(0, State::Waiting), (0, State::Running(0.01, ago(1)))], 2),
            None
        );
        let known = [(0, State::Done(10.0)), (1, State::Done(2.0))];
        let with = |more: &[(usize, State)]| [&known[..], more].concat();
        assert_eq!(left(&with(&[]), 2), Some(0.0));
        // Four cells of strategy 1 on two threads.
        assert_eq!(left(&with(&[(1, State::Waiting); 4]), 2), Some(4.0));
        // Strategy 2 has no completed cell, so the mean of all cells counts.
        assert_eq!(left(&with(&[(2, State::Waiting)]), 1), Some(6.0));
        // Half of the running cell took 20 s, so it takes 20 s more, and the sweep cannot end before that cell.
        let half = [(0, State::Running(0.5, ago(20)))];
        assert_eq!(left(&with(&half), 4), Some(20.0));
        // The cell started too recently for an estimate, so the time of its strategy counts.
        assert_eq!(
            left(&with(&[(1, State::Running(0.0, ago(3)))]), 4),
            Some(2.0)
        );
    }
}
