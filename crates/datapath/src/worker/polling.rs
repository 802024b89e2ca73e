//! Looking again before sleeping: a core that sleeps takes tens of microseconds to wake, which is most of what a lone request waits.
//!
//! A worker that has nothing to do looks for a while before it lets the kernel wake it. For how long it learns from how long it slept the last times: what came soon
//! after it fell asleep would have been seen by looking longer, what came much later would not, and then it does not look at all. So a quiet worker costs nothing, and a
//! guest that has one request after the other is answered by a core that is awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The first time that it looks for.
const FIRST_NS: u64 = 10_000;

/// Looks that have found nothing one after the other before it looks for less long.
const MISSES_MAX: u32 = 4;

/// Workers that look at the same time, of all of a server: they would take the cores from those who have something to do.
#[derive(Debug)]
pub struct Pollers {
    now: AtomicUsize,
    most: usize,
}

impl Pollers {
    /// On a machine with so many processors: half of them, and nobody where there is one, as others need it.
    pub fn new(processors: usize) -> Self {
        Self {
            now: AtomicUsize::new(0),
            most: processors / 2,
        }
    }

    fn enter(&self) -> bool {
        let entered = self.now.fetch_add(1, Ordering::Relaxed) < self.most;
        if !entered {
            self.leave();
        }
        entered
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a worker looks.
#[derive(Debug)]
pub struct Polling {
    pollers: Arc<Pollers>,
    /// At most; zero is never.
    cap_ns: u64,
    /// Now; zero is not at all.
    window_ns: u64,
    misses: u32,
    /// Time that was spent with looking, all in all.
    spent_ns: u64,
}

impl Polling {
    /// At most so long each time.
    pub fn new(cap: Duration, pollers: Arc<Pollers>) -> Self {
        Self {
            pollers,
            cap_ns: cap.as_nanos() as u64,
            window_ns: 0,
            misses: 0,
            spent_ns: 0,
        }
    }

    /// Time that was spent with looking, all in all.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Looks until something is found, for as long as it pays, and not past `until_ns`. `look` says the time and whether something was found.
    pub fn look<E>(
        &mut self,
        began_ns: u64,
        until_ns: u64,
        mut look: impl FnMut() -> Result<(u64, bool), E>,
    ) -> Result<bool, E> {
        if self.window_ns == 0 || !self.pollers.enter() {
            return Ok(false);
        }
        let end_ns = began_ns.saturating_add(self.window_ns).min(until_ns);
        let (mut now_ns, mut found) = (began_ns, false);
        let result = loop {
            match look() {
                Ok((at_ns, something)) => {
                    (now_ns, found) = (at_ns, something);
                    if something || at_ns >= end_ns {
                        break Ok(found);
                    }
                }
                Err(e) => break Err(e),
            }
            std::hint::spin_loop();
        };
        self.pollers.leave();
        self.spent_ns += now_ns.saturating_sub(began_ns);
        if found {
            self.misses = 0;
        }
        result
    }

    /// It slept for so long, looking before it included, until something came.
    pub fn slept(&mut self, for_ns: u64) {
        if for_ns <= self.cap_ns {
            // Looking for longer would have seen it.
            self.window_ns = (self.window_ns * 2).max(FIRST_NS).min(self.cap_ns);
            self.misses = 0;
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES_MAX {
            self.window_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polling(most: usize) -> Polling {
        let pollers = Pollers {
            now: AtomicUsize::new(0),
            most,
        };
        Polling::new(Duration::from_micros(50), Arc::new(pollers))
    }

    /// Looks with a clock that goes on by a microsecond a look, and finds something after so many; what it took.
    fn look(polling: &mut Polling, finds_after: u64) -> (bool, u64) {
        let before = polling.spent_ns();
        let mut looks = 0;
        let found = polling.look(0, u64::MAX, || {
            looks += 1;
            Ok::<_, ()>((looks * 1000, looks > finds_after))
        });
        (found.unwrap(), polling.spent_ns() - before)
    }

    #[test]
    fn it_looks_longer_while_that_would_have_found_something_and_not_when_idle() {
        let mut polling = polling(1);
        assert_eq!(look(&mut polling, 0), (false, 0), "nothing is known yet");
        for window in [10_000, 20_000, 40_000, 50_000, 50_000] {
            polling.slept(45_000);
            assert_eq!(look(&mut polling, u64::MAX), (false, window));
        }
        assert_eq!(look(&mut polling, 7), (true, 8_000));
        // One request that is late ends nothing.
        polling.slept(1_000_000);
        assert_eq!(look(&mut polling, 7), (true, 8_000));
        for _ in 0..MISSES_MAX {
            assert_eq!(look(&mut polling, u64::MAX), (false, 50_000));
            polling.slept(250_000_000);
        }
        assert_eq!(look(&mut polling, 0), (false, 0));
    }

    #[test]
    fn it_is_off_where_it_is_told_so_and_where_others_look() {
        let pollers = Arc::new(Pollers::new(2));
        let mut off = Polling::new(Duration::ZERO, pollers.clone());
        let mut on = Polling::new(Duration::from_micros(50), pollers.clone());
        for polling in [&mut off, &mut on] {
            polling.slept(0);
        }
        assert_eq!(look(&mut off, 0), (false, 0));
        assert!(pollers.enter());
        assert_eq!(look(&mut on, 0), (false, 0));
        pollers.leave();
        assert_eq!(look(&mut on, 0), (true, 1_000));
        assert_eq!(pollers.now.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_time_below_the_first_one_is_kept_to() {
        let mut polling = Polling::new(Duration::from_micros(5), Arc::new(Pollers::new(2)));
        polling.slept(0);
        assert_eq!(look(&mut polling, u64::MAX), (false, 5_000));
    }

    #[test]
    fn what_is_due_is_not_slept_past() {
        let mut polling = polling(1);
        polling.slept(0);
        let mut at_ns = 0;
        let found = polling.look(0, 3_000, || {
            at_ns += 1_000;
            Ok::<_, ()>((at_ns, false))
        });
        assert_eq!((found, at_ns), (Ok(false), 3_000));
    }
}
