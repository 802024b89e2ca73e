//! What the keeper writes to the log: what is wrong when it begins and when it is over, and why the array's own files failed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::Keeper;
use crate::control_server::ProblemKind;

/// Time between two looks. Bounds what they cost, and what is said of something that comes and goes.
const LOOK: Duration = Duration::from_secs(1);

/// The same failure is said again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// What was said.
#[derive(Default)]
pub(super) struct Logged {
    looked: Option<Instant>,
    problems: BTreeSet<(ProblemKind, String)>,
    failure: Option<(String, Instant)>,
}

impl Keeper {
    /// To be called often; looks about once a second.
    pub(super) fn log(&mut self) {
        if self.logged.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        self.logged.looked = Some(Instant::now());
        if let Some(why) = self.store_error.take() {
            self.log_failure(why);
        }
        // I/O that fails is said by the worker, with its volume.
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

    /// Says why the array's own files failed.
    fn log_failure(&mut self, why: String) {
        let said = self.logged.failure.as_ref();
        if said.is_some_and(|(before, at)| *before == why && at.elapsed() < AGAIN) {
            return;
        }
        warn!(why, "cannot write the files of the array");
        self.logged.failure = Some((why, Instant::now()));
    }
}

/// A kind of trouble as it is called elsewhere.
fn name(kind: ProblemKind) -> String {
    let name = serde_json::to_value(kind).ok();
    name.and_then(|n| n.as_str().map(String::from))
        .unwrap_or_default()
}
