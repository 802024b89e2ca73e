//! How far a sweep has come, and how long it will take: on a terminal only, for whatever takes more than two seconds.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner shows no bar.
const QUIET: Duration = Duration::from_secs(2);
/// The time that is left is worked out no more often.
const EVERY: Duration = Duration::from_millis(200);
/// Steps of the bar, over all cells.
const STEPS: f64 = 10_000.0;
/// The time of a cell is not guessed from less of it.
const SHARE_MIN: f64 = 0.05;

/// How far a cell is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Not begun.
    Waiting,
    /// So much of it is done, 0..=1, since a time.
    Running(f64, Instant),
    /// Done, in so many seconds.
    Done(f64),
}

pub struct SweepBar {
    started: Instant,
    drawn: Instant,
    title: String,
    /// By cell: the number of its strategy, and how far it is.
    cells: Vec<(usize, State)>,
    threads: usize,
    bar: Option<ProgressBar>,
}

impl SweepBar {
    /// Over cells of strategies, by number, of which so many run at once.
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

    /// So much of a cell is done.
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

    /// A cell is done; `line` is printed where there is one.
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

/// Seconds until all cells are done: each takes as long as those of its strategy did, or all, in the mean. `None` while
/// nothing is known about any.
fn left_s(cells: &[(usize, State)], threads: usize, now: Instant) -> Option<f64> {
    // What is known of a cell's whole time.
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
    fn the_time_left_is_from_cells_of_the_same_strategy() {
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
        // Four of strategy 1, on two threads.
        assert_eq!(left(&with(&[(1, State::Waiting); 4]), 2), Some(4.0));
        // Nothing known about strategy 2: the mean of all.
        assert_eq!(left(&with(&[(2, State::Waiting)]), 1), Some(6.0));
        // Half of it took 20 s; its own time counts, and nothing ends before it does.
        let half = [(0, State::Running(0.5, ago(20)))];
        assert_eq!(left(&with(&half), 4), Some(20.0));
        // Not begun long enough: as its strategy.
        assert_eq!(
            left(&with(&[(1, State::Running(0.0, ago(3)))]), 4),
            Some(2.0)
        );
    }
}
