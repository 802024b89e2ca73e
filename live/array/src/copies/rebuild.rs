//! Rebuild of a copy while the map is in use.
//!
//! ```text
//!   begin ──▶ filled from the other copy ──▶ commits made meanwhile, in order ──▶ equal to the map? moved to its place ──▶ member
//!             └──────────────── thread of the rebuild ──────────────────────────┘     the caller waits only for this part
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{CopyPlace, HANG_MAX, NewMap};
use crate::commit::Change;
use crate::membership::{CopyId, MapState};
use crate::{Array, ArrayError};

/// Number of commits that may be queued for a copy during its rebuild. Above it, the rebuild is restarted later. Bounds
/// memory.
const WAITING_MAX: u64 = 100_000;

/// Number of outstanding commits below which the caller waits for the end.
const NEARLY_DONE: u64 = 64;

/// Copy during its rebuild.
pub(super) struct Rebuild {
    pub(super) copy: CopyId,
    /// Number of the last commit that was sent to it.
    commits_sent: u64,
    work: Work,
}

/// Executor of the rebuild.
enum Work {
    /// The caller, step by step.
    Here(Result<Maker, ArrayError>),
    Thread {
        steps: Sender<Step>,
        done: Receiver<Result<Array, ArrayError>>,
        progress: Arc<Progress>,
    },
}

enum Step {
    /// A commit and its number.
    Commit(u64, Arc<[Change]>),
    /// End of the commits: the copy must have this state, and then moves to its place.
    Finish(Box<MapState>),
}

struct Progress {
    filled: AtomicBool,
    /// Number of the last commit that the copy certainly has; the maximum if it failed.
    commits: AtomicU64,
    /// Set if nobody waits for the copy any more: it must not move to its place.
    given_up: AtomicBool,
}

impl Progress {
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Marks the rebuild as failed, so its end can be collected.
    fn failed(&self) {
        self.commits.store(u64::MAX, Ordering::SeqCst);
        self.filled.store(true, Ordering::SeqCst);
    }
}

/// Input of a rebuild.
pub(super) struct Plan {
    pub(super) place: Arc<dyn CopyPlace>,
    /// Copy to read from.
    pub(super) from: Arc<Array>,
}

/// Filled copy.
struct Maker {
    fresh: NewMap,
    commits: u64,
}

impl Maker {
    fn fill(plan: Plan) -> Result<Self, ArrayError> {
        let Plan { place, from } = plan;
        if let Some(file) = &from.file {
            place.check_space(file.needed_bytes())?;
        }
        // The source copy may have to be reopened. So it is held only for the read, independent of the time that the
        // other disk needs.
        let image = from.image()?;
        drop(from);
        Ok(Self {
            fresh: image.make_in(&*place)?,
            commits: image.commits,
        })
    }

    fn commit(&mut self, number: u64, changes: &[Change]) -> Result<(), ArrayError> {
        if number > self.commits {
            self.fresh.array.commit(changes)?;
            self.commits = number;
        }
        Ok(())
    }

    fn finish(self, expected: &MapState, given_up: &AtomicBool) -> Result<Array, ArrayError> {
        let away = |why: &str| Err(ArrayError::Away { why: why.into() });
        let NewMap { array, put } = self.fresh;
        if array.state()? != *expected {
            return away("it differs from the map that it was copied from");
        }
        if given_up.load(Ordering::SeqCst) {
            return away("it took too long");
        }
        put()?;
        Ok(array)
    }
}

impl Rebuild {
    /// Starts a rebuild, in a thread if `threaded`. `commits` is the number of commits in the map.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn begin(
        copy: CopyId,
        plan: Plan,
        commits: u64,
        threaded: bool,
    ) -> Result<Self, ArrayError> {
        let work = match threaded {
            true => in_thread(plan, commits)?,
            false => Work::Here(Maker::fill(plan)),
        };
        Ok(Self {
            copy,
            commits_sent: commits,
            work,
        })
    }

    /// Passes a new commit of the map to the copy. Returns true if the copy can still catch up.
    pub(super) fn commit(&mut self, number: u64, changes: &Arc<[Change]>) -> bool {
        self.commits_sent = number;
        match &mut self.work {
            Work::Here(maker) => {
                if let Ok(made) = maker
                    && let Err(error) = made.commit(number, changes)
                {
                    *maker = Err(error);
                }
                true
            }
            Work::Thread {
                steps, progress, ..
            } => {
                // If the thread has ended, its result has the reason.
                let _ = steps.send(Step::Commit(number, changes.clone()));
                number.saturating_sub(progress.commits()) <= WAITING_MAX
            }
        }
    }

    /// Returns true if [`Rebuild::end`] has a result or will have one soon.
    pub(super) fn is_near_its_end(&mut self) -> bool {
        match &self.work {
            Work::Here(_) => true,
            Work::Thread { progress, .. } => {
                let left = self.commits_sent.saturating_sub(progress.commits());
                progress.filled.load(Ordering::SeqCst) && left <= NEARLY_DONE
            }
        }
    }

    /// Moves the copy to its place if it is equal to the map, whose state is `state`.
    ///
    /// # Errors
    /// Reason the copy is not in its place. If its disk hangs at that very moment, the copy may still move to its place
    /// later. That is harmless: it is no member of the membership that it records, so it is not trusted.
    pub(super) fn end(self, state: &MapState) -> Result<Array, ArrayError> {
        match self.work {
            Work::Here(maker) => maker?.finish(state, &AtomicBool::new(false)),
            Work::Thread {
                steps,
                done,
                progress,
            } => {
                let _ = steps.send(Step::Finish(Box::new(state.clone())));
                let ended = done.recv_timeout(HANG_MAX);
                ended.unwrap_or_else(|_| {
                    progress.given_up.store(true, Ordering::SeqCst);
                    Err(ArrayError::Away {
                        why: "it did not answer within a second".into(),
                    })
                })
            }
        }
    }
}

fn in_thread(plan: Plan, commits: u64) -> Result<Work, ArrayError> {
    let (steps, todo) = channel();
    let (ended, done) = channel();
    let progress = Arc::new(Progress {
        filled: AtomicBool::new(false),
        commits: AtomicU64::new(commits),
        given_up: AtomicBool::new(false),
    });
    let shared = progress.clone();
    let make = move || drop(ended.send(run(plan, &todo, &shared)));
    let spawned = std::thread::Builder::new()
        .name("terrace-map-copy".into())
        .spawn(make);
    spawned.map_err(ArrayError::io(
        "start a thread for",
        Path::new("a map copy"),
    ))?;
    Ok(Work::Thread {
        steps,
        done,
        progress,
    })
}

fn run(plan: Plan, todo: &Receiver<Step>, progress: &Progress) -> Result<Array, ArrayError> {
    let mut maker = Maker::fill(plan).inspect_err(|_| progress.failed())?;
    progress.commits.store(maker.commits, Ordering::SeqCst);
    progress.filled.store(true, Ordering::SeqCst);
    for step in todo {
        match step {
            Step::Commit(number, changes) => {
                let made = maker.commit(number, &changes);
                made.inspect_err(|_| progress.failed())?;
                progress.commits.store(number, Ordering::SeqCst);
            }
            Step::Finish(expected) => return maker.finish(&expected, &progress.given_up),
        }
    }
    Err(ArrayError::Away {
        why: "it is no longer needed".into(),
    })
}
