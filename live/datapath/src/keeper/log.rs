//! Log messages of the keeper: begin and end of problems, and errors of the array's own files.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::Keeper;
use crate::control_server::ProblemKind;

/// Interval of the check. Bounds its cost and the number of messages about a problem that comes and goes.
const LOOK: Duration = Duration::from_secs(1);

/// Interval at which the same error is logged again.
const AGAIN: Duration = Duration::from_secs(60);

/// Logged problems and errors.
#[derive(Default)]
pub(super) struct LogState {
    looked: Option<Instant>,
    problems: BTreeSet<(ProblemKind, String)>,
    failure: Option<(String, Instant)>,
}

impl Keeper {
    /// Logs changes about once a second. The keeper calls it often.
    pub(super) fn log(&mut self) {
        if self.logged.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        self.logged.looked = Some(Instant::now());
        if let Some(why) = self.store_error.take() {
            self.log_failure(why);
        }
        // The worker logs I/O errors, with the volume.
        let mut problems = self.problems();
        problems.retain(|t| t.kind != ProblemKind::DeviceErrors);
        let now: BTreeSet<_> = problems.iter().map(|t| (t.kind, t.about.clone())).collect();
        let before = std::mem::replace(&mut self.logged.problems, now);
        for problem in problems {
            if !before.contains(&(problem.kind, problem.about)) {
                warn!("{}", problem.what);
            }
        }
        for (kind, about) in before.difference(&self.logged.problems) {
            info!(about, kind = name(*kind), "problem resolved");
        }
    }

    /// Logs an error of the array's own files.
    fn log_failure(&mut self, why: String) {
        let said = self.logged.failure.as_ref();
        if said.is_some_and(|(before, at)| *before == why && at.elapsed() < AGAIN) {
            return;
        }
        warn!(why, "cannot write the files of the array");
        self.logged.failure = Some((why, Instant::now()));
    }
}

/// Returns the name of a kind of problem in JSON.
fn name(kind: ProblemKind) -> String {
    let name = serde_json::to_value(kind).ok();
    name.and_then(|n| n.as_str().map(String::from))
        .unwrap_or_default()
}
