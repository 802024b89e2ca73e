//! Delivery of commits to copies.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::{HANG_MAX, HANG_MAX_OF_A_VOLUME};
use crate::commit::Change;
use crate::membership::CopyId;
use crate::{Array, ArrayError};

/// Result of a commit in a copy; `None` after a timeout.
pub(super) type CommitResult = Option<Result<(), ArrayError>>;

/// Executor of commits.
#[derive(Debug)]
pub(super) enum Runner {
    /// The caller, one copy after the other.
    Inline,
    /// One thread per copy, in parallel, so a copy that hangs can be abandoned.
    Threads([Option<Sender<Job>>; 2]),
}

pub(super) struct Job {
    array: Arc<Array>,
    changes: Arc<[Change]>,
    done: Sender<(CopyId, Result<(), ArrayError>)>,
    copy: CopyId,
}

impl Runner {
    pub(super) fn threads() -> Self {
        Runner::Threads([None, None])
    }

    pub(super) fn has_threads(&self) -> bool {
        matches!(self, Runner::Threads(_))
    }

    /// Commits in the copies and returns the result of each.
    pub(super) fn commit(
        &mut self,
        members: Vec<(CopyId, Arc<Array>)>,
        changes: &Arc<[Change]>,
    ) -> Vec<(CopyId, CommitResult)> {
        let threads = match self {
            Runner::Threads(threads) if members.len() > 1 => threads,
            _ => {
                let one = |(copy, array): (CopyId, Arc<Array>)| (copy, Some(array.commit(changes)));
                return members.into_iter().map(one).collect();
            }
        };
        let (done, answers) = channel();
        let mut results = vec![];
        for (copy, array) in members {
            let job = Job {
                array,
                changes: changes.clone(),
                done: done.clone(),
                copy,
            };
            let said = match hand_over(&mut threads[copy.index()], copy, job) {
                Ok(()) => None,
                // Without a thread, commit here.
                Err(job) => Some(job.array.commit(changes)),
            };
            results.push((copy, said));
        }
        drop(done);
        let mut left = patience(changes);
        while results.iter().any(|r| r.1.is_none()) {
            let Ok((copy, result)) = wait(&answers, &mut left) else {
                break;
            };
            let own = results.iter_mut().find(|r| r.0 == copy);
            own.expect("it was asked").1 = Some(result);
        }
        for (copy, said) in &results {
            if said.is_none() {
                threads[copy.index()] = None; // it ends when the disk answers, if ever
            }
        }
        results
    }
}

/// Returns the time limit of a commit.
fn patience(changes: &[Change]) -> Duration {
    let of_a_volume = |change: &Change| {
        matches!(
            change,
            Change::TakeSnapshot(_) | Change::RestoreSnapshot(_) | Change::RemoveVolume(_)
        )
    };
    match changes.iter().any(of_a_volume) {
        true => HANG_MAX_OF_A_VOLUME,
        false => HANG_MAX,
    }
}

/// Waits for an answer and subtracts the elapsed time from the time left.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a copy that hangs is given up by time"
)]
pub(super) fn wait<T>(answers: &Receiver<T>, left: &mut Duration) -> Result<T, RecvTimeoutError> {
    let began = std::time::Instant::now();
    let answer = answers.recv_timeout(*left);
    *left = left.saturating_sub(began.elapsed());
    answer
}

/// Passes a job to a copy's thread, and starts the thread if none runs.
fn hand_over(thread: &mut Option<Sender<Job>>, copy: CopyId, job: Job) -> Result<(), Job> {
    let sender = match thread {
        Some(sender) => sender,
        None => {
            let (sender, jobs) = channel::<Job>();
            let work = move || {
                for job in jobs {
                    let Job {
                        array,
                        changes,
                        done,
                        copy,
                    } = job;
                    let result = array.commit(&changes);
                    drop(array); // before the result is sent: the copy may be reopened at once
                    let _ = done.send((copy, result));
                }
            };
            let spawned = std::thread::Builder::new()
                .name(format!("terrace-map-{}", copy.index()))
                .spawn(work);
            match spawned {
                Ok(_) => thread.insert(sender),
                Err(_) => return Err(job),
            }
        }
    };
    sender.send(job).map_err(|e| e.0)
}
