//! Thread for jobs that may take longer than their caller can wait: the file system of a device may be frozen, its
//! disk may hang, a server may be silent. It runs one job at a time.
//!
//! ```text
//!   idle ──begin──▶ busy ──done in time──▶ idle
//!                    │ ╲
//!     begin: refused ◀  ╲──late──▶ still busy ──done──▶ idle, and the result can be fetched
//! ```
//!
//! The thread starts with the first job. A thread that hangs stays: a thread that waits for a disk cannot be ended.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

type Job = Box<dyn FnOnce() + Send>;

/// Flag by which a long job learns that nobody needs its result any more.
#[derive(Debug, Clone)]
pub(crate) struct WorkFlag(Arc<AtomicBool>);

impl WorkFlag {
    /// Returns true while the owner exists.
    pub(crate) fn still(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Outcome of a job.
#[derive(Debug)]
pub(crate) enum Outcome<R> {
    /// The job completed in time.
    Done(R),
    /// The job is still running and may end at any time. The receiver gets its result.
    Late(Receiver<R>),
    /// The job did not start: another job hangs, or no thread can be created.
    NotBegun,
}

/// Helper thread and its state.
#[derive(Debug)]
pub(crate) struct HelperThread {
    work: Mutex<Option<Sender<Job>>>,
    /// Start of the current job, in nanoseconds of the monotonic clock; 0 while the thread is idle.
    since_ns: Arc<AtomicU64>,
    wanted: WorkFlag,
}

impl Default for HelperThread {
    fn default() -> Self {
        Self {
            work: Mutex::new(None),
            since_ns: Arc::default(),
            wanted: WorkFlag(Arc::new(AtomicBool::new(true))),
        }
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        self.wanted.0.store(false, Ordering::Relaxed);
    }
}

impl HelperThread {
    /// Returns the duration of the current job; `None` if the thread is idle.
    pub(crate) fn busy_for(&self) -> Option<Duration> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let passed = clock::now_ns().saturating_sub(since_ns);
        (since_ns > 0).then(|| Duration::from_nanos(passed))
    }

    /// Starts a job, unless the thread is busy.
    pub(crate) fn begin<R: Send + 'static>(
        &self,
        work: impl FnOnce(&WorkFlag) -> R + Send + 'static,
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
        let over = IdleGuard(self.since_ns.clone());
        let wanted = self.wanted.clone();
        let job: Job = Box::new(move || {
            let result = work(&wanted);
            drop(over); // before the result is sent: its receiver may start the next job at once
            let _ = sender.send(result);
        });
        let mut thread = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        // A new thread replaces one that panicked.
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
                // The job must not take the processor from guests' requests.
                let _ = rustix::process::nice(10);
                jobs.into_iter().for_each(|job| job());
            });
        spawned.ok()?;
        to.send(job).ok()?;
        *thread = Some(to);
        Some(result)
    }

    /// Runs a job, and waits for it up to `time`.
    pub(crate) fn within<R: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce(&WorkFlag) -> R + Send + 'static,
    ) -> Outcome<R> {
        let Some(result) = self.begin(work) else {
            return Outcome::NotBegun;
        };
        match result.recv_timeout(time) {
            Ok(done) => Outcome::Done(done),
            Err(RecvTimeoutError::Timeout) => Outcome::Late(result),
            // The job panicked and has no result.
            Err(RecvTimeoutError::Disconnected) => Outcome::Late(result),
        }
    }
}

/// Marks the thread as idle when it is dropped, also after a panic of the job.
struct IdleGuard(Arc<AtomicU64>);

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Runs jobs in parallel, each in its own thread, so a job that hangs delays no other. Jobs that exceed `time` return
/// an error.
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
    fn hanging_helper_does_not_block_the_caller_and_reports_its_end() {
        let helper = HelperThread::default();
        assert!(matches!(helper.within(LONG, |_| 1), Outcome::Done(1)));
        assert_eq!(helper.busy_for(), None);
        let (go, gate) = channel::<()>();
        let hangs = move |_: &WorkFlag| gate.recv().is_ok();
        let Outcome::Late(end) = helper.within(SOON, hangs) else {
            panic!("it cannot have ended");
        };
        assert!(helper.busy_for().is_some_and(|t| t >= SOON));
        // Further jobs do not wait behind it: each would wait for the gate, which opens only later.
        for _ in 0..100 {
            let refused = helper.within(LONG, |_| ());
            assert!(matches!(refused, Outcome::NotBegun));
        }
        go.send(()).unwrap();
        assert!(end.recv().unwrap());
        assert!(matches!(helper.within(LONG, |_| 2), Outcome::Done(2)));
    }

    #[test]
    fn unwanted_work_of_a_helper_can_end() {
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
