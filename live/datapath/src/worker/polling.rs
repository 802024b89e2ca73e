//! Polling before sleep. A sleeping core needs tens of microseconds to wake up, which is most of the latency of a single
//! request.
//!
//! An idle worker polls for a while before it sleeps. It learns the duration from the length of its last sleeps. If a
//! request arrived soon after the worker fell asleep, longer polling would have found it. If requests arrive much later,
//! the worker does not poll at all. An idle server therefore takes no processor time, and the next request of a guest that
//! sends one after the other meets a core that is awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Initial duration of polling.
const FIRST_NS: u64 = 10_000;

/// Number of consecutive long sleeps after which a worker stops polling.
const MISSES_MAX: u32 = 4;

/// Limit on the workers of a server that poll at the same time. Protects the cores of busy threads.
#[derive(Debug)]
pub struct Pollers {
    now: AtomicUsize,
    most: usize,
}

impl Pollers {
    /// Creates the limit for a number of processors: half of them, so none on a machine with one processor.
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

/// Duration of a worker's polling.
#[derive(Debug)]
pub struct PollTimer {
    pollers: Arc<Pollers>,
    /// Longest duration; 0 disables polling.
    cap_ns: u64,
    /// Present duration; 0 for no polling.
    window_ns: u64,
    misses: u32,
    /// Total time of polling.
    spent_ns: u64,
}

impl PollTimer {
    /// Creates the state with a longest duration.
    pub fn new(cap: Duration, pollers: Arc<Pollers>) -> Self {
        Self {
            pollers,
            cap_ns: cap.as_nanos() as u64,
            window_ns: 0,
            misses: 0,
            spent_ns: 0,
        }
    }

    /// Returns the total time of polling.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Polls with `look` until it finds something, for the present duration and not past `until_ns`. `look` returns the
    /// time and true if it has found something.
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

    /// Adapts the duration to the length of a wait for a completion, including the polling before it.
    pub fn slept(&mut self, for_ns: u64) {
        if for_ns <= self.cap_ns {
            // Longer polling would have found the completion.
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

    fn polling(most: usize) -> PollTimer {
        let pollers = Pollers {
            now: AtomicUsize::new(0),
            most,
        };
        PollTimer::new(Duration::from_micros(50), Arc::new(pollers))
    }

    /// Polls with a clock that advances by 1 µs per look, and finds something after `finds_after` looks. Returns the result
    /// and the time of polling.
    fn look(polling: &mut PollTimer, finds_after: u64) -> (bool, u64) {
        let before = polling.spent_ns();
        let mut looks = 0;
        let found = polling.look(0, u64::MAX, || {
            looks += 1;
            Ok::<_, ()>((looks * 1000, looks > finds_after))
        });
        (found.unwrap(), polling.spent_ns() - before)
    }

    #[test]
    fn polling_window_grows_with_success_and_stops_when_idle() {
        let mut polling = polling(1);
        assert_eq!(look(&mut polling, 0), (false, 0), "nothing is known yet");
        for window in [10_000, 20_000, 40_000, 50_000, 50_000] {
            polling.slept(45_000);
            assert_eq!(look(&mut polling, u64::MAX), (false, window));
        }
        assert_eq!(look(&mut polling, 7), (true, 8_000));
        // A single late request changes nothing.
        polling.slept(1_000_000);
        assert_eq!(look(&mut polling, 7), (true, 8_000));
        for _ in 0..MISSES_MAX {
            assert_eq!(look(&mut polling, u64::MAX), (false, 50_000));
            polling.slept(250_000_000);
        }
        assert_eq!(look(&mut polling, 0), (false, 0));
    }

    #[test]
    fn polling_is_off_when_disabled_or_when_other_workers_poll() {
        let pollers = Arc::new(Pollers::new(2));
        let mut off = PollTimer::new(Duration::ZERO, pollers.clone());
        let mut on = PollTimer::new(Duration::from_micros(50), pollers.clone());
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
    fn polling_limit_below_the_first_window_is_respected() {
        let mut polling = PollTimer::new(Duration::from_micros(5), Arc::new(Pollers::new(2)));
        polling.slept(0);
        assert_eq!(look(&mut polling, u64::MAX), (false, 5_000));
    }

    #[test]
    fn polling_ends_at_the_next_timer() {
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
