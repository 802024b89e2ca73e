//! One move: what is remembered of it beside what is written down, and its pace.

use std::time::{Duration, Instant, SystemTime};

use units::BytesPerSec;
use vmhost::moving::{ImageId, Intent, Kept, Live, Phase, Seen};
use volume::Pace;

use super::{MoveOperations, Sight};
use crate::storage;
use crate::yielding::Yielding;

/// An order that was not answered is not carried out any more after this time.
pub(super) const SURE_AFTER: Duration = Duration::from_secs(20);
/// An intent is recent for so long: until then nobody but its agent has had to do with a guest that is held.
const RECENT_S: u64 = 300;
/// A rate that differs by less from the one that was set is not set.
const RATE_STEP: f64 = 0.05;

pub(super) struct Move {
    pub intent: Intent,
    pace: Pace,
    /// What was set last; 0 is not known.
    pub rate: u64,
    pub copied: u64,
    pub left: u64,
    /// When an order that may yet be carried out was given; the start of the agent, for one that was found.
    ordered: Instant,
    /// Whether a pivot was ordered and did not come to pass.
    pub refused: bool,
    /// When a pivot was ordered that was not answered.
    pub unanswered: Option<Instant>,
    /// Why its next step could not be taken.
    pub stuck: Option<String>,
}

impl Move {
    /// One that is ordered now, with so many bytes to copy.
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

    /// One that was written down by an agent before: nobody knows what rate that set last.
    pub(super) fn found(intent: Intent) -> Self {
        Self {
            rate: 0,
            ..Self::of(intent, 0)
        }
    }

    /// The host as far as it is concerned.
    ///
    /// # Errors
    /// Why it is unknown which images exist.
    pub(super) fn seen(
        &self,
        sight: Sight,
        boot: Option<&str>,
        keep: Duration,
    ) -> Result<Seen, String> {
        let intent = &self.intent;
        // While the guest is on the old image and the copy goes on, neither is asked for.
        let on_from = matches!(&sight.live, Live::On { image: Some(i), .. } if *i == intent.from);
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
        Ok(Seen {
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

    /// As fast as guests leave room for.
    pub(super) fn keep_pace(
        &mut self,
        operations: &mut dyn MoveOperations,
        yielding: &Yielding,
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

/// Which image is at a path.
fn id_at(path: Option<&str>) -> Result<Option<ImageId>, String> {
    let Some(path) = path else {
        return Ok(None);
    };
    Ok(storage::of(path).describe(path)?.map(|there| there.id))
}

/// Returns true if the old image still has its own name.
fn source_there(intent: &Intent) -> Result<bool, String> {
    match (&intent.left, intent.source_path()) {
        (Some(volume @ ImageId::Volume(_)), path) => Ok(id_at(path)?.as_ref() == Some(volume)),
        (_, path) => Ok(path.is_some_and(storage::may_be_there)),
    }
}

fn kept_there(kept: &Kept) -> Result<bool, String> {
    match &kept.file {
        Some(ImageId::Volume(_)) => Ok(id_at(Some(&kept.path))?.is_some()),
        Some(ImageId::File(file)) => Ok(!storage::is_gone(&kept.path, Some(*file))),
        None => Ok(!storage::is_gone(&kept.path, None)),
    }
}

/// Seconds of the wall clock.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
