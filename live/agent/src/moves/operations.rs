//! Interface to a hypervisor for moves.

use vmhost::moving::{Definition, Intent, LiveDomain};
use vmhost::{Image, ImageLocation};

use crate::error::{AgentError, Result};

/// Commands and queries of a hypervisor for a move.
pub(crate) trait MoveOperations {
    /// Returns the present state of the domain and of the copy job.
    ///
    /// # Errors
    /// The state cannot be determined; the error has the reason.
    fn look(&mut self, intent: &Intent) -> Result<Sight>;

    /// Begins the copy, with writes to both images.
    ///
    /// # Errors
    /// The copy did not begin, or possibly did; see [`Refusal`].
    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal>;

    /// Sets the rate of the copy.
    ///
    /// # Errors
    /// The rate is unchanged; the error has the reason.
    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<()>;

    /// Pauses the guest, so it writes nothing.
    ///
    /// # Errors
    /// The guest is not paused; the error has the reason.
    fn pause(&mut self, intent: &Intent) -> Result<Rest>;

    /// Resumes a paused guest. It does nothing if the guest runs, or is paused for another reason. With `just_now`,
    /// this agent has just paused the guest. The check is omitted then, because the guest waits.
    ///
    /// # Errors
    /// The guest is still paused; the error has the reason.
    fn resume(&mut self, intent: &Intent, just_now: bool) -> Result<()>;

    /// Ends the job without a pivot.
    ///
    /// # Errors
    /// The job continues; the error has the reason.
    fn abort(&mut self, intent: &Intent) -> Result<()>;

    /// Switches to the new image. Returns the state of the domain afterwards.
    ///
    /// # Errors
    /// The pivot failed, or possibly did not; see [`Refusal`].
    fn pivot(&mut self, intent: &Intent) -> Result<LiveDomain, Refusal>;

    /// Sets the image in the domain's definition, if the definition is still as `seen`.
    ///
    /// # Errors
    /// The definition cannot be changed; the error has the reason.
    fn define(&mut self, intent: &Intent, seen: &Definition, image: &Image) -> Result<()>;

    /// Returns a domain that names an image or has it open, running or not.
    ///
    /// # Errors
    /// The users cannot be determined; the error has the reason.
    fn user_of(&mut self, image: &ImageLocation) -> Result<Option<String>>;
}

/// State of a guest after a request to pause it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Paused by this agent.
    Ours,
    /// Already paused by another program or after an error.
    Others,
    /// Not running.
    Off,
}

/// State of a domain and of the job on its disk.
pub(crate) struct Sight {
    /// True if the guest runs and is not paused.
    pub runs: bool,
    pub live: LiveDomain,
    pub definition: Definition,
    /// Bytes copied and left, while there is a job.
    pub progress: Option<(u64, u64)>,
    /// Reason for which the copy has stopped, if the hypervisor reports it.
    pub failed: Option<String>,
}

impl Sight {
    /// Creates the state without a job; `runs` is false.
    pub(crate) fn without_job(live: LiveDomain, definition: Definition) -> Self {
        Self {
            runs: false,
            live,
            definition,
            progress: None,
            failed: None,
        }
    }
}

/// Failure of a command.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The command was refused.
    Said(AgentError),
    /// There was no answer: the command may still be carried out.
    Silent(AgentError),
}

impl From<Refusal> for AgentError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Said(why) | Refusal::Silent(why) => why,
        }
    }
}
