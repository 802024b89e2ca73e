//! The stop of a server: workers end, then the keeper flushes and stamps the devices.
//!
//! ```text
//!  cut connections ─▶ workers end ─▶ keeper flushes and stamps ─▶ stopped in order
//!                          └── a worker or the keeper hangs ───▶ error, no stamp: the next start is as after a crash
//! ```

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::Server;
use crate::keeper::KeeperMessage;
use crate::pulse::{StalledWorker, WorkerState};
use crate::worker::Message;

/// Time limit for the end of the workers and of the keeper, which flushes the devices, at a stop. It is below `TimeoutStopSec=` of the systemd
/// units (60 s), which leaves time to report a hang before systemd kills the process.
pub const STOP_WITHIN: Duration = Duration::from_secs(50);

/// Interval of the calls of [`poll_until`].
const LOOK: Duration = Duration::from_millis(5);

/// Reason why a server did not stop in order.
///
/// Superblocks are left without the stamp of an orderly stop: the next start treats the array as after a crash.
#[derive(Debug, Error)]
pub enum StopError {
    /// They may still have I/O in flight.
    #[error(
        "{} did not stop: acknowledged writes are safe, and the next start treats an array as after a crash", workers(.0)
    )]
    Workers(Vec<StalledWorker>),
    #[error(
        "the devices were not flushed within {} s: the next start treats the array as after a crash; check that they respond, then start again", .0.as_secs()
    )]
    Keeper(Duration),
    #[error(
        "a request of an operator did not end within {} s: acknowledged writes are safe, and the next start treats the array as after a crash", .0.as_secs()
    )]
    Busy(Duration),
}

fn workers(stalled: &[StalledWorker]) -> String {
    let one = |s: &StalledWorker| format!("worker {}, which serves {},", s.worker, s.names());
    stalled.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// Calls `look` every few milliseconds until it returns a value; `None` if it has not by `until`.
pub(crate) fn poll_until<T>(until: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= until {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for the end of a thread. Returns true if it has ended by then.
pub fn ended_by<T>(thread: &JoinHandle<T>, until: Instant) -> bool {
    poll_until(until, || thread.is_finished().then_some(())).is_some()
}

impl Server {
    /// Stops serving: connections are cut, workers end, then the keeper flushes the devices and stamps their superblocks.
    ///
    /// While a worker has not ended, the keeper stamps nothing and holds the locks of the array: that worker may have I/O in flight.
    ///
    /// # Errors
    /// [`StopError`], when a part does not end within [`ServerConfig::stop_within`], or a worker is stalled.
    pub fn stop(&mut self) -> Result<(), StopError> {
        let until = Instant::now() + self.config.stop_within;
        self.vhost = None;
        for socket in self.sockets.drain(..) {
            let _ = std::fs::remove_file(socket);
        }
        for worker in &self.workers {
            worker.send(Message::Stop);
        }
        let running = self.workers_running(until);
        if !running.is_empty() {
            return Err(StopError::Workers(running));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // why it ended early is in the log
        }
        if let Some((sender, thread)) = self.keeper.take() {
            let _ = sender.send(KeeperMessage::Stop);
            if !ended_by(&thread, until) {
                return Err(StopError::Keeper(self.config.stop_within));
            }
            let _ = thread.join();
        }
        Ok(())
    }

    /// Waits until all workers have ended, and returns the workers that still run at `until`. Returns early if all of these are stalled.
    fn workers_running(&self, until: Instant) -> Vec<StalledWorker> {
        let began = Instant::now();
        let running = || {
            let running = self.threads.iter().enumerate();
            let running = running.filter(|(_, thread)| !thread.is_finished());
            let states = running.map(|(worker, _)| (worker, self.shared.beats.state(worker)));
            states.collect::<Vec<_>>()
        };
        poll_until(until, || {
            let stalled = |(_, state): &_| matches!(state, WorkerState::Stalled(_));
            running().iter().all(stalled).then_some(())
        });
        let still = |state| match state {
            WorkerState::Stalled(still) => still,
            WorkerState::Responds | WorkerState::Ended => began.elapsed(),
        };
        let running = running().into_iter();
        running
            .map(|(worker, state)| self.stalled_worker(worker, still(state)))
            .collect()
    }
}
