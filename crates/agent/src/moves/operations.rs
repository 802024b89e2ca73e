//! What a hypervisor does for moves, and tells of them.

use vmhost::moving::{Definition, Intent, Live};
use vmhost::{At, Image};

/// What a hypervisor does for a move, and tells of it.
pub(crate) trait MoveOperations {
    /// The domain and the job as they are.
    ///
    /// # Errors
    /// Why nobody can say.
    fn look(&mut self, intent: &Intent) -> Result<Sight, String>;

    /// Begins the copy, with writes to both images.
    ///
    /// # Errors
    /// Why it did not, or may not have.
    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal>;

    /// Says how fast it may copy.
    ///
    /// # Errors
    /// Why that is as before.
    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<(), String>;

    /// Has the guest pause, so that it writes nothing.
    ///
    /// # Errors
    /// Why it goes on.
    fn pause(&mut self, intent: &Intent) -> Result<Rest, String>;

    /// Has a guest that is paused go on; nothing is done if it is not, or is paused for another reason. Whether it does is not looked at before if it was paused
    /// by us a moment ago (`just_now`): a guest waits for that.
    ///
    /// # Errors
    /// Why it is paused still.
    fn resume(&mut self, intent: &Intent, just_now: bool) -> Result<(), String>;

    /// Ends the job without a pivot.
    ///
    /// # Errors
    /// Why it goes on.
    fn abort(&mut self, intent: &Intent) -> Result<(), String>;

    /// Goes over to the new image; the domain as it is then.
    ///
    /// # Errors
    /// Why it may not have.
    fn pivot(&mut self, intent: &Intent) -> Result<Live, Refusal>;

    /// Has the definition name something else, if it still is as it was seen.
    ///
    /// # Errors
    /// Why it may not.
    fn define(&mut self, intent: &Intent, seen: &Definition, image: &Image) -> Result<(), String>;

    /// A domain that names an image, or has it open, whether it runs or not.
    ///
    /// # Errors
    /// Why nobody can say.
    fn user_of(&mut self, image: &At) -> Result<Option<String>, String>;
}

/// Whether a guest rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It was paused by us.
    Ours,
    /// It was paused already, by somebody else or for an error.
    Others,
    /// It does not run.
    Off,
}

/// A domain and the job on its disk.
pub(crate) struct Sight {
    /// Whether the guest runs, and is not paused.
    pub runs: bool,
    pub live: Live,
    pub definition: Definition,
    /// Bytes copied and left, while there is a job.
    pub progress: Option<(u64, u64)>,
    /// Why the copy does not go on by itself, where the hypervisor says so.
    pub failed: Option<String>,
}

impl Sight {
    /// Without a job, and not running as far as is known.
    pub(crate) fn without_job(live: Live, definition: Definition) -> Self {
        Self {
            runs: false,
            live,
            definition,
            progress: None,
            failed: None,
        }
    }
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It was refused.
    Said(String),
    /// There was no answer: it may be carried out yet.
    Silent(String),
}

impl Refusal {
    /// In either case.
    pub(crate) fn why(self) -> String {
        match self {
            Refusal::Said(why) | Refusal::Silent(why) => why,
        }
    }
}
