//! A thread that does, one after the other, what may take longer than who wants it done can wait: the file system under a device may be
//! frozen, its disk may hang, a server may be silent.
//!
//! ```text
//!   idle ──begin──▶ busy ──done in time──▶ idle
//!                    │ ╲
//!          begin: no ◀  ╲──late──▶ still busy ──done──▶ idle, and what came of it can be fetched
//! ```
//!
//! It is made when it is first needed. One that hangs stays: a thread that waits for a disk cannot be ended.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

type Job = Box<dyn FnOnce() + Send>;

/// Whether anybody still cares for what is being done; long work asks now and then.
#[derive(Debug, Clone)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Whether its owner is there.
    pub(crate) fn still(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What came of asking for something.
#[derive(Debug)]
pub(crate) enum Outcome<R> {
    /// It was done in time.
    Done(R),
    /// It goes on, and may come to an end at any time: then this says how.
    Late(Receiver<R>),
    /// It was not begun: something else hangs, or there are no threads.
    NotBegun,
}

/// One thread, and whether it is busy.
#[derive(Debug)]
pub(crate) struct HelperThread {
    work: Mutex<Option<Sender<Job>>>,
    /// When what it does was begun, in nanoseconds of the monotonic clock; 0 while it does nothing.
    since_ns: Arc<AtomicU64>,
    wanted: Wanted,
}

impl Default for HelperThread {
    fn default() -> Self {
        Self {
            work: Mutex::new(None),
            since_ns: Arc::default(),
            wanted: Wanted(Arc::new(AtomicBool::new(true))),
        }
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        self.wanted.0.store(false, Ordering::Relaxed);
    }
}

impl HelperThread {
    /// For how long it has been doing what it does.
    pub(crate) fn busy_for(&self) -> Option<Duration> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let passed = clock::now_ns().saturating_sub(since_ns);
        (since_ns > 0).then(|| Duration::from_nanos(passed))
    }

    /// Begins something, unless it is busy.
    pub(crate) fn begin<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Wanted) -> R + Send + 'static,
    ) -> Option<Receiver<R>> {
        let now_ns = clock::now_ns().max(1);
        let (idle, busy) = (Ordering::AcqRel, Ordering::Acquire);
        if self
            .since_ns
            .compare_exchange(0, now_ns, idle, busy)
            .is_err()
        {
            return None;
        }
        let (sender, result) = channel();
        let over = Over(self.since_ns.clone());
        let wanted = self.wanted.clone();
        let job: Job = Box::new(move || {
            let result = work(&wanted);
            drop(over); // before anybody hears of it: who does may ask for more at once
            let _ = sender.send(result);
        });
        let mut thread = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that panicked is followed by another one.
        let job = match &*thread {
            Some(to) => match to.send(job) {
                Ok(()) => return Some(result),
                Err(returned) => returned.0,
            },
            None => job,
        };
        let (to, jobs) = channel::<Job>();
        let spawned = std::thread::Builder::new()
            .name("terrace-hand".into())
            .spawn(move || {
                // What it does must not take the processor from guests' requests.
                let _ = rustix::process::nice(10);
                jobs.into_iter().for_each(|job| job());
            });
        spawned.ok()?;
        to.send(job).ok()?;
        *thread = Some(to);
        Some(result)
    }

    /// Does something, and waits for it no longer than this.
    pub(crate) fn within<R: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce(&Wanted) -> R + Send + 'static,
    ) -> Outcome<R> {
        let Some(result) = self.begin(work) else {
            return Outcome::NotBegun;
        };
        match result.recv_timeout(time) {
            Ok(done) => Outcome::Done(done),
            Err(RecvTimeoutError::Timeout) => Outcome::Late(result),
            // It panicked, and is over without a result.
            Err(RecvTimeoutError::Disconnected) => Outcome::Late(result),
        }
    }
}

/// Says that the thread is idle again, also if what it did panicked.
struct Over(Arc<AtomicU64>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Does things at the same time, each in a thread: one that hangs keeps nobody. An error of those that are not over in time.
pub(crate) fn at_once<R: Send + 'static>(
    work: Vec<impl FnOnce() -> R + Send + 'static>,
    time: Duration,
) -> Vec<io::Result<R>> {
    let (sender, done) = channel();
    let mut results = vec![];
    for (i, work) in work.into_iter().enumerate() {
        let sender = sender.clone();
        let spawned = std::thread::Builder::new()
            .name("terrace-devices".into())
            .spawn(move || drop(sender.send((i, work()))));
        results.push(Err(match spawned {
            Ok(_) => io::ErrorKind::TimedOut.into(),
            Err(error) => error,
        }));
    }
    drop(sender);
    let until = Instant::now() + time;
    while let Ok((i, result)) = done.recv_timeout(until.saturating_duration_since(Instant::now())) {
        results[i] = Ok(result);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// Deadline that only ends a test that hangs.
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn what_hangs_keeps_nobody_and_its_end_is_heard_of() {
        let helper = HelperThread::default();
        assert!(matches!(helper.within(LONG, |_| 1), Outcome::Done(1)));
        assert_eq!(helper.busy_for(), None);
        let (go, gate) = channel::<()>();
        let hangs = move |_: &Wanted| gate.recv().is_ok();
        let Outcome::Late(end) = helper.within(SOON, hangs) else {
            panic!("it cannot have ended");
        };
        assert!(helper.busy_for().is_some_and(|t| t >= SOON));
        // Others are not made to wait behind it: each would wait for the gate, which is opened only then.
        for _ in 0..100 {
            let refused = helper.within(LONG, |_| ());
            assert!(matches!(refused, Outcome::NotBegun));
        }
        go.send(()).unwrap();
        assert!(end.recv().unwrap());
        assert!(matches!(helper.within(LONG, |_| 2), Outcome::Done(2)));
    }

    #[test]
    fn work_that_nobody_wants_any_more_can_end() {
        let helper = HelperThread::default();
        let end = helper.begin(|wanted| {
            while wanted.still() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        drop(helper);
        end.unwrap().recv_timeout(LONG).unwrap();
    }
}
