//! Making a copy anew beside what goes on.
//!
//! ```text
//!   begin ──▶ filled from the other copy ──▶ commits made meanwhile, one after the other ──▶ like the map? put in its place ──▶ member
//!             └──────────────── a thread of its own ────────────────────────────────────┘     the caller waits for this only
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{CopyPlace, Fresh, HANG_MAX};
use crate::commit::Change;
use crate::membership::{CopyId, MapState};
use crate::{Array, ArrayError};

/// Commits that wait for a copy that is being made; if there are more, it is begun anew later. Bounds memory.
const WAITING_MAX: u64 = 100_000;

/// With no more commits than this to go, the caller waits for the end.
const NEARLY_DONE: u64 = 64;

/// A copy that is being made anew.
pub(super) struct Rebuild {
    pub(super) copy: CopyId,
    /// Number of the last commit that it was told of.
    commits_sent: u64,
    work: Work,
}

/// Who makes it.
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
    /// A commit, and its number.
    Commit(u64, Arc<[Change]>),
    /// There are no more: the copy must say the same of itself, and takes its place.
    Finish(Box<MapState>),
}

struct Progress {
    filled: AtomicBool,
    /// Number of the last commit that it certainly has; all there are, if it has failed.
    commits: AtomicU64,
    /// Nobody waits for it any more: it must not take its place.
    given_up: AtomicBool,
}

impl Progress {
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// It is at its end, which waits to be told.
    fn failed(&self) {
        self.commits.store(u64::MAX, Ordering::SeqCst);
        self.filled.store(true, Ordering::SeqCst);
    }
}

/// What there is to make a copy.
pub(super) struct Plan {
    pub(super) place: Arc<dyn CopyPlace>,
    /// The copy to read.
    pub(super) from: Arc<Array>,
}

/// A copy that is filled.
struct Maker {
    fresh: Fresh,
    commits: u64,
}

impl Maker {
    fn fill(plan: Plan) -> Result<Self, ArrayError> {
        let Plan { place, from } = plan;
        if let Some(file) = &from.file {
            place.check_space(file.needed_bytes())?;
        }
        // The copy that is read may have to be opened again: it is held for no longer than that, however long the other disk takes.
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
        let Fresh { array, put } = self.fresh;
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
    /// Begins, in a thread if `threaded`. `commits` are in the map now.
    ///
    /// # Errors
    /// When there is no thread to be had.
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

    /// The map has another commit. Whether the copy can still keep up with it.
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
                // Where it has ended, its end says why.
                let _ = steps.send(Step::Commit(number, changes.clone()));
                number.saturating_sub(progress.commits()) <= WAITING_MAX
            }
        }
    }

    /// Whether [`Rebuild::end`] has an answer, or will have one soon.
    pub(super) fn is_near_its_end(&mut self) -> bool {
        match &self.work {
            Work::Here(_) => true,
            Work::Thread { progress, .. } => {
                let left = self.commits_sent.saturating_sub(progress.commits());
                progress.filled.load(Ordering::SeqCst) && left <= NEARLY_DONE
            }
        }
    }

    /// Puts the copy in its place, if it is like the map, which says `state` of itself.
    ///
    /// # Errors
    /// Why it is not there. If its disk hangs in that very moment it may take its place later all the same: it is no member of the membership
    /// that it knows, and is not believed.
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
