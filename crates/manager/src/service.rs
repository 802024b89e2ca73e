//! What an edge may ask of a controller, whichever way the words came.

use units::Nanos;

use crate::question::{Actor, Answer, Done, Question, Refusal};
use crate::settings::Settings;
use crate::wire::{JobsReport, Orders, Register, Welcome, WindowReport, WireRefusal};

/// The time, as the edge tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The controller's time: since it was first started, never falling, also over restarts.
    pub at: Nanos,
    /// Wall-clock time, milliseconds since 1970: for people and for hours of the day, never for intervals.
    pub unix_ms: u64,
}

/// Why a message of an agent is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageRefusal {
    #[error("{0}")]
    Wire(WireRefusal),
    /// The store fails: nothing is decided or ordered until it works again.
    #[error("{0}")]
    Unavailable(String),
}

/// When the access of a name ends: its last token expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTerm {
    pub name: String,
    pub role: String,
    /// Wall-clock time, milliseconds since 1970; none if it does not expire.
    pub expires_ms: Option<u64>,
}

/// A controller with its store. Every answer is committed before it is given.
pub trait Service {
    /// An agent is there.
    fn register(
        &mut self,
        now: Now,
        host: &str,
        message: Register,
    ) -> Result<Welcome, MessageRefusal>;
    /// A window of an agent's array.
    fn report(
        &mut self,
        now: Now,
        host: &str,
        message: WindowReport,
    ) -> Result<Orders, MessageRefusal>;
    /// Jobs of an agent's array that have ended.
    fn jobs_ended(
        &mut self,
        now: Now,
        host: &str,
        message: JobsReport,
    ) -> Result<Orders, MessageRefusal>;
    /// Time passes: agents may be late, jobs stuck. To be called about once a second.
    fn tick(&mut self, now: Now);
    /// The configuration was read anew: it is in force from now on, or nothing of it is.
    ///
    /// # Errors
    /// What only a restart can change, with file, line and key; a store that fails.
    fn reload(&mut self, now: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal>;
    /// The tokens that are in force. Those that expire soon are a problem.
    fn set_tokens(&mut self, now: Now, terms: Vec<TokenTerm>);
    /// Somebody had the tokens read again: a line for the audit.
    fn tokens_changed(&mut self, now: Now, actor: &Actor, text: String);
    /// Callers were refused: a line for the audit.
    fn refused(&mut self, now: Now, text: String);
    /// A person or program asks.
    fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal>;
}
