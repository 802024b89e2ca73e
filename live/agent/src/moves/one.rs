//! State of one move that is not in its intent, and its pace.

use std::time::{Duration, Instant, SystemTime};

use units::BytesPerSec;
use vmhost::moving::{ImageId, Intent, KeptFile, LiveDomain, MoveObservation, Phase};
use volume::Pace;

use super::{MoveOperations, Sight};
use crate::error::Result;
use crate::storage;
use crate::yielding::GuestSlack;

/// Time after which an order without an answer is no longer carried out.
pub(super) const SURE_AFTER: Duration = Duration::from_secs(20);
/// Seconds for which an intent is recent. A move assumes that no other program resumes a held guest within this time.
const RECENT_S: u64 = 300;
/// Smallest relative difference for which the rate of a copy is changed.
const RATE_STEP: f64 = 0.05;

pub(super) struct Move {
    pub intent: Intent,
    pace: Pace,
    /// Rate that was set last; 0 if it is unknown.
    pub rate: u64,
    pub copied: u64,
    pub left: u64,
    /// Time of the last order that may still be carried out. For a move from the directory, the start of the agent.
    ordered: Instant,
    /// True if a pivot was refused.
    pub refused: bool,
    /// Time of a pivot command without an answer.
    pub unanswered: Option<Instant>,
    /// Reason for which the next step failed.
    pub stuck: Option<String>,
}

impl Move {
    /// Creates the state for a new order with this many bytes to copy.
    pub(super) fn of(intent: Intent, left: u64) -> Self {
        Self {
            pace: Pace::new(BytesPerSec(intent.rate_bytes_per_s)),
            rate: intent.rate_bytes_per_s,
            intent,
            copied: 0,
            left,
            ordered: Instant::now(),
            refused: false,
            unanswered: None,
            stuck: None,
        }
    }

    /// Creates the state for a recorded move of an earlier agent. The rate that was set last is unknown.
    pub(super) fn found(intent: Intent) -> Self {
        Self {
            rate: 0,
            ..Self::of(intent, 0)
        }
    }

    /// Combines the sight of the domain with the files on the host.
    ///
    /// # Errors
    /// It cannot be determined which images exist.
    pub(super) fn seen(
        &self,
        sight: Sight,
        boot: Option<&str>,
        keep: Duration,
    ) -> Result<MoveObservation> {
        let intent = &self.intent;
        // While the guest uses the old image and the copy runs, no decision needs these two facts.
        let on_from =
            matches!(&sight.live, LiveDomain::On { image: Some(i), .. } if *i == intent.from);
        let early = matches!(
            intent.phase,
            Phase::Begun | Phase::Copying | Phase::Blocking
        );
        let (target, source_there) = match on_from && early {
            true => (None, true),
            false => (id_at(intent.target_path())?, source_there(intent)?),
        };
        let now_s = now_s();
        let age_s = now_s.checked_sub(intent.at_s);
        let same_boot = boot == Some(&*intent.boot);
        Ok(MoveObservation {
            live: sight.live,
            definition: sight.definition,
            failed: sight.failed,
            runs: sight.runs,
            recent: same_boot && age_s.is_some_and(|age| age < RECENT_S),
            refused: self.refused,
            target,
            source_there,
            kept_there: match &intent.phase {
                Phase::Kept(kept) => kept_there(kept)?,
                _ => false,
            },
            sure: self.ordered.elapsed() >= SURE_AFTER,
            now_s,
            keep_s: keep.as_secs(),
        })
    }

    /// Adjusts the rate of the copy to the load of guests.
    pub(super) fn keep_pace(
        &mut self,
        operations: &mut dyn MoveOperations,
        yielding: &GuestSlack,
        now_ns: u64,
    ) {
        let volume = &self.intent.volume;
        let others = yielding.others(volume, &self.intent.device);
        let guest = yielding.guest(volume);
        self.pace.took(now_ns, 0, &guest, others);
        let rate = self.pace.rate().0.max(1);
        let differs = (rate as f64 / self.rate.max(1) as f64 - 1.0).abs() > RATE_STEP;
        if differs && operations.set_rate(&self.intent, rate).is_ok() {
            self.rate = rate;
        }
    }
}

/// Returns the identity of the image at a path.
fn id_at(path: Option<&str>) -> Result<Option<ImageId>> {
    let Some(path) = path else {
        return Ok(None);
    };
    Ok(storage::of(path).describe(path)?.map(|there| there.id))
}

/// Returns true if the old image still has its own name.
fn source_there(intent: &Intent) -> Result<bool> {
    match (&intent.left, intent.source_path()) {
        (Some(volume @ ImageId::Volume(_)), path) => Ok(id_at(path)?.as_ref() == Some(volume)),
        (_, path) => Ok(path.is_some_and(storage::may_be_there)),
    }
}

fn kept_there(kept: &KeptFile) -> Result<bool> {
    match &kept.file {
        Some(ImageId::Volume(_)) => Ok(id_at(Some(&kept.path))?.is_some()),
        Some(ImageId::File(file)) => Ok(!storage::is_gone(&kept.path, Some(*file))),
        None => Ok(!storage::is_gone(&kept.path, None)),
    }
}

/// Returns the wall-clock time in seconds.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
