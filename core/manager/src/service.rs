//! Interface of a controller for its front ends, independent of their protocol.

use units::Nanos;

use crate::question::{Actor, Answer, Done, Question, Refusal};
use crate::settings::Settings;
use crate::wire::{JobsReport, Orders, Register, Welcome, WindowReport, WireRefusal};

/// Present time, supplied by the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Controller time: counted from the first start, monotonic, also across restarts.
    pub at: Nanos,
    /// Wall-clock time, milliseconds since 1970. Used for display and hours of the day, never for
    /// intervals.
    pub unix_ms: u64,
}

/// Reason for the rejection of an agent's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageRefusal {
    #[error("{0}")]
    Wire(WireRefusal),
    /// The store fails; the controller decides and orders nothing until it works again.
    #[error("{0}")]
    Unavailable(String),
}

/// End of the access of a token name: the expiry of its last token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTerm {
    pub name: String,
    pub role: String,
    /// Wall-clock time of the expiry, milliseconds since 1970; `None` if it does not expire.
    pub expires_ms: Option<u64>,
}

/// Controller with its store. Every result is committed before it is acknowledged.
pub trait Service {
    /// Registers an agent.
    fn register(
        &mut self,
        now: Now,
        host: &str,
        message: Register,
    ) -> Result<Welcome, MessageRefusal>;
    /// Accepts an agent's report about a window.
    fn report(
        &mut self,
        now: Now,
        host: &str,
        message: WindowReport,
    ) -> Result<Orders, MessageRefusal>;
    /// Accepts an agent's message about jobs that have ended.
    fn jobs_ended(
        &mut self,
        now: Now,
        host: &str,
        message: JobsReport,
    ) -> Result<Orders, MessageRefusal>;
    /// Processes the passage of time, such as late agents and stuck jobs. Call it about once a
    /// second.
    fn tick(&mut self, now: Now);
    /// Replaces the configuration, completely or not at all.
    ///
    /// # Errors
    /// A change that needs a restart, with file, line and key; a failing store.
    fn reload(&mut self, now: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal>;
    /// Sets the tokens in force. Tokens that expire soon are reported as a problem.
    fn set_tokens(&mut self, now: Now, terms: Vec<TokenTerm>);
    /// Records in the audit log that the tokens were read again.
    fn tokens_changed(&mut self, now: Now, actor: &Actor, text: String);
    /// Records rejected callers in the audit log.
    fn refused(&mut self, now: Now, text: String);
    /// Processes a question or an order of an operator or program.
    fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal>;
}
