//! Whether workers come round: each counts its regular looks, and whoever watches them compares.
//!
//! A worker whose thread has ended is found by [`crate::Server::healthy`]. One that hangs has not ended: its count stands still. Workers never wait
//! for the system, so a slow disk or a frozen file system does not stop the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Regular looks of each worker.
#[derive(Debug)]
pub struct Beats(Box<[AtomicU64]>);

impl Beats {
    /// Of so many workers.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicU64::new(0)).collect())
    }

    /// A worker has come round.
    pub fn beat(&self, worker: usize) {
        self.0[worker].fetch_add(1, Ordering::Relaxed);
    }
}

/// Watches the workers of a server, from any thread and without a lock.
#[derive(Debug)]
pub struct Pulse {
    beats: Arc<Beats>,
    last: Vec<u64>,
}

impl Pulse {
    pub(crate) fn of(beats: Arc<Beats>) -> Self {
        let last = vec![0; beats.0.len()];
        Self { beats, last }
    }

    /// Whether every worker has come round since this was last asked, or since it was started. They do so several times a second.
    pub fn beats(&mut self) -> bool {
        let mut all = true;
        for (beat, last) in self.beats.0.iter().zip(&mut self.last) {
            let now = beat.load(Ordering::Relaxed);
            all &= now != *last;
            *last = now;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn one_that_stands_still_is_seen() {
        let beats = Arc::new(Beats::new(2));
        let mut pulse = Pulse::of(beats.clone());
        assert!(!pulse.beats(), "nobody has come round yet");
        beats.beat(0);
        assert!(!pulse.beats());
        beats.beat(1);
        assert!(!pulse.beats(), "the other one has not, since");
        beats.beat(0);
        beats.beat(1);
        assert!(pulse.beats());
        assert!(!pulse.beats());
    }

    #[test]
    fn workers_with_nothing_to_do_come_round() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = crate::serving::one_volume(dir.path());
        let mut pulse = serving.pulse();
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(120);
            while !pulse.beats() {
                assert!(Instant::now() < until, "a worker does not come round");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        serving.stop();
        pulse.beats();
        assert!(!pulse.beats(), "nobody is there any more");
    }
}
