//! Heartbeats of workers: which worker does not respond, and for how long.
//!
//! ```text
//!  worker ──beat──▶ count ◀──compare, each tick── ticker ──same count──▶ still += time of the tick
//!                                                         ──other one──▶ still = 0
//!
//!  still ≥ stalled_after: the worker is stalled. Requests to it fail, the status names it.
//! ```
//!
//! A worker whose thread has ended is found by [`crate::Server::healthy`]. A stalled worker has not ended: its count stands still. Workers never wait
//! for the system, so a slow disk or a frozen file system does not stop the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracing::{error, info};
use units::VolumeId;

/// Time without a beat after which a worker is stalled. Protects reports, requests of operators and the stop of the server from waiting forever
/// for a worker that hangs. A worker that is only slow misses fewer than these twenty beats.
pub const STALLED_AFTER: Duration = Duration::from_secs(5);

/// Most names of volumes in a message about a stalled worker. Bounds the length of a line of status or log.
const NAMES_MAX: usize = 8;

/// State of a worker's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    Responds,
    /// It has not beaten for this long.
    Stalled(Duration),
    /// It has left its loop and takes no more messages.
    Ended,
}

#[derive(Debug, Default)]
struct Beat {
    count: AtomicU64,
    /// The count when the ticker last looked.
    seen: AtomicU64,
    /// Time in nanoseconds for which the ticker has seen the same count.
    still_ns: AtomicU64,
    ended: AtomicBool,
}

/// Beats of all workers.
#[derive(Debug)]
pub struct Beats {
    workers: Box<[Beat]>,
    stalled_after: Duration,
}

impl Beats {
    pub fn new(workers: usize, stalled_after: Duration) -> Self {
        Self {
            workers: (0..workers).map(|_| Beat::default()).collect(),
            stalled_after,
        }
    }

    /// Counts a beat of a worker; called by that worker.
    pub fn beat(&self, worker: usize) {
        self.workers[worker].count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a worker has left its loop; called by that worker.
    pub fn end(&self, worker: usize) {
        self.workers[worker].ended.store(true, Ordering::Release);
    }

    /// Compares all counts with those of the last look, `passed` ago. Only the ticker thread calls this; it never
    /// waits for a worker.
    pub fn look(&self, passed: Duration) {
        for (worker, beat) in self.workers.iter().enumerate() {
            let count = beat.count.load(Ordering::Relaxed);
            let before = self.state(worker);
            if beat.seen.swap(count, Ordering::Relaxed) == count {
                let passed_ns = passed.as_nanos() as u64;
                beat.still_ns.fetch_add(passed_ns, Ordering::Relaxed);
            } else {
                beat.still_ns.store(0, Ordering::Relaxed);
            }
            match (before, self.state(worker)) {
                (WorkerState::Responds, WorkerState::Stalled(still)) => {
                    let still_s = still.as_secs();
                    error!(worker, still_s, "a worker does not respond");
                }
                (WorkerState::Stalled(_), WorkerState::Responds) => {
                    info!(worker, "a worker responds again");
                }
                _ => {}
            }
        }
    }

    pub fn state(&self, worker: usize) -> WorkerState {
        let beat = &self.workers[worker];
        if beat.ended.load(Ordering::Acquire) {
            return WorkerState::Ended;
        }
        let still = Duration::from_nanos(beat.still_ns.load(Ordering::Relaxed));
        match still >= self.stalled_after {
            true => WorkerState::Stalled(still),
            false => WorkerState::Responds,
        }
    }
}

/// A worker that does not respond, and the volumes that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledWorker {
    pub worker: usize,
    /// Time since its last beat.
    pub still: Duration,
    /// In order of their names.
    pub volumes: Vec<(VolumeId, String)>,
}

impl StalledWorker {
    /// Names of its volumes, for a message.
    pub fn names(&self) -> String {
        let names = self.volumes.iter().map(|(_, name)| name.as_str());
        let mut names: Vec<&str> = names.collect();
        let more = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        match (names.is_empty(), more) {
            (true, _) => "no volume".into(),
            (false, 0) => names.join(", "),
            (false, more) => format!("{} and {more} more", names.join(", ")),
        }
    }
}

/// Watches the workers of a server for a watchdog, from any thread and without a lock.
#[derive(Debug)]
pub struct Pulse {
    beats: Arc<Beats>,
    last: Vec<u64>,
}

impl Pulse {
    pub(crate) fn of(beats: Arc<Beats>) -> Self {
        let last = vec![0; beats.workers.len()];
        Self { beats, last }
    }

    /// Returns true if every worker has beaten since the last call, or since its start. Workers beat several times a second.
    pub fn beats(&mut self) -> bool {
        let mut all = true;
        for (beat, last) in self.beats.workers.iter().zip(&mut self.last) {
            let now = beat.count.load(Ordering::Relaxed);
            all &= now != *last;
            *last = now;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    #[test]
    fn pulse_with_one_silent_worker_is_false() {
        let beats = Arc::new(Beats::new(2, STALLED_AFTER));
        let mut pulse = Pulse::of(beats.clone());
        assert!(!pulse.beats(), "no worker has beaten yet");
        beats.beat(0);
        assert!(!pulse.beats());
        beats.beat(1);
        assert!(!pulse.beats(), "worker 0 has not, since");
        beats.beat(0);
        beats.beat(1);
        assert!(pulse.beats());
        assert!(!pulse.beats());
    }

    #[test]
    fn worker_without_beats_is_stalled_until_it_beats() {
        let beats = Beats::new(2, TICK * 3);
        let states = || [beats.state(0), beats.state(1)];
        beats.beat(0);
        beats.beat(1);
        beats.look(TICK);
        for _ in 0..2 {
            beats.look(TICK);
        }
        assert_eq!(states(), [WorkerState::Responds; 2]);
        beats.beat(0);
        beats.look(TICK);
        let stalled = WorkerState::Stalled(TICK * 3);
        assert_eq!(states(), [WorkerState::Responds, stalled]);
        beats.look(TICK);
        assert_eq!(beats.state(1), WorkerState::Stalled(TICK * 4));
        beats.beat(1);
        beats.look(TICK);
        assert_eq!(states(), [WorkerState::Responds; 2]);
    }

    #[test]
    fn ended_worker_is_not_stalled() {
        let beats = Beats::new(1, TICK);
        beats.end(0);
        beats.look(TICK * 100);
        assert_eq!(beats.state(0), WorkerState::Ended);
    }

    #[test]
    fn long_list_of_volumes_is_truncated() {
        let of = |count: u32| StalledWorker {
            worker: 0,
            still: STALLED_AFTER,
            volumes: (0..count).map(|i| (VolumeId(i), format!("v{i}"))).collect(),
        };
        assert_eq!(of(0).names(), "no volume");
        assert_eq!(of(2).names(), "v0, v1");
        assert_eq!(of(8).names(), "v0, v1, v2, v3, v4, v5, v6, v7");
        assert_eq!(of(10).names(), "v0, v1, v2, v3, v4, v5, v6, v7 and 2 more");
    }

    #[test]
    fn idle_workers_beat_until_the_server_stops() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = crate::serving::one_volume(dir.path());
        let mut pulse = serving.pulse();
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(120);
            while !pulse.beats() {
                assert!(Instant::now() < until, "a worker does not beat");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        serving.stop().unwrap();
        pulse.beats();
        assert!(!pulse.beats(), "no worker runs any more");
    }
}
