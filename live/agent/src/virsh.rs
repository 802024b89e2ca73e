//! Access to libvirt through the program `virsh`. One process sends all queries of one moment.
//!
//! A separate process has advantages over libvirt's C library. It needs no linking and has the version of the host's
//! libvirt. It can neither crash nor block the agent. Operators know it and can try each command by hand. It costs some
//! milliseconds per look; there is one look per window, or one per second during a move.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::error::{AgentError, Result};
use crate::moves::Refusal;
use crate::process::{ProgramOutput, run};

/// Separator between the answers to the commands of one process; libvirt's texts do not contain it.
const MARK: &str = "terrace-next-answer-5d1f";

/// Connection options of `virsh`.
#[derive(Debug, Clone)]
pub(crate) struct Virsh {
    /// URI of the hypervisor; the default of virsh if `None`.
    pub uri: Option<String>,
    /// Lock and directory for processes that change something.
    pub orders: Option<OrderContext>,
}

/// Lock and directory for processes that change something.
#[derive(Debug, Clone)]
pub(crate) struct OrderContext {
    /// Locked file that these processes keep open too. The owner of the lock therefore knows that no command of an
    /// earlier agent is in progress.
    pub lock: Arc<File>,
    /// Directory for texts that commands read.
    pub dir: PathBuf,
}

impl Virsh {
    /// Sends queries. Returns their answers in order. The connection is read-only.
    ///
    /// # Errors
    /// The program is missing, cannot connect, or exceeds the time limit.
    pub(crate) fn ask(&self, commands: &[String]) -> Result<Vec<Answer>> {
        self.ask_by(&["-r"], commands)
    }

    /// Sends queries that libvirt answers only on a connection with write access.
    ///
    /// # Errors
    /// There is no answer; the error has the reason.
    pub(crate) fn ask_for_more(&self, commands: &[String]) -> Result<Vec<Answer>> {
        self.ask_by(&[], commands)
    }

    fn ask_by(&self, more: &[&str], commands: &[String]) -> Result<Vec<Answer>> {
        let mark = format!("; echo -- {MARK}; ");
        let mut command = self.command(more);
        // The last separator is ours as well: if it is missing, the connection may have been lost in the middle.
        let all = format!("{}; echo -- {MARK}", commands.join(&mark));
        command.arg("--").arg(all);
        let said = run(command, "virsh")?;
        let mut texts: Vec<&str> = said.out.split(MARK).collect();
        let rest = texts.pop().unwrap_or("");
        if texts.len() != commands.len() || !rest.trim().is_empty() {
            return Err(AgentError::Silent(
                said.error("the output of virsh is incomplete"),
            ));
        }
        // virsh does not report which of the commands an error belongs to.
        let sure = said.success && said.errors.trim().is_empty();
        let answers = texts.into_iter().map(|text| match text.trim() {
            "" if sure => Answer::Empty,
            "" => Answer::Failed(said.error("virsh has no output")),
            text => Answer::Text(text.into()),
        });
        Ok(answers.collect())
    }

    /// Carries out one command that may change something. Returns its output.
    ///
    /// # Errors
    /// The command was refused, or has no answer and may still be carried out.
    pub(crate) fn order(&self, words: &[&str]) -> Result<String, Refusal> {
        let said = self.carry_out(words)?;
        match said.success {
            true => Ok(said.out),
            false => Err(refusal(said.error("virsh gave no reason"))),
        }
    }

    /// Carries out one command that may change something, and a query after it. Returns the answer to the query.
    ///
    /// # Errors
    /// One of them was refused, or has no answer and may still be carried out.
    pub(crate) fn order_and_ask(&self, order: &str, question: &str) -> Result<String, Refusal> {
        let said = self.carry_out(&["--", &format!("{order}; echo -- {MARK}; {question}")])?;
        // The exit status is that of the last command, even if the first one failed.
        if !said.success || !said.errors.trim().is_empty() {
            return Err(refusal(said.error("virsh gave no reason")));
        }
        match said.out.split_once(MARK) {
            Some((_, answer)) => Ok(answer.trim().into()),
            None => Err(Refusal::Silent(incomplete())),
        }
    }

    fn carry_out(&self, words: &[&str]) -> Result<ProgramOutput, Refusal> {
        let mut command = self.command(&[]);
        command.args(words);
        let orders = self.orders.as_ref();
        if let Some(lock) = orders.and_then(|o| o.lock.try_clone().ok()) {
            command.stdin(Stdio::from(lock)); // it reads nothing
        }
        run(command, "virsh").map_err(Refusal::Silent)
    }

    /// Returns the program with additional options before its command.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        command.arg("-q").args(more);
        if let Some(uri) = &self.uri {
            command.args(["-c", uri]);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }
}

/// Answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Text without surrounding blanks.
    Text(String),
    /// Successful command without output.
    Empty,
    /// No output, and an error of this command or of another one of the same process.
    Failed(String),
}

impl Answer {
    /// Returns the text, which may be empty.
    ///
    /// # Errors
    /// The command failed, or may have failed; the error has the reason.
    pub(crate) fn text(&self) -> Result<&str> {
        match self {
            Answer::Text(text) => Ok(text),
            Answer::Empty => Ok(""),
            Answer::Failed(why) => Err(AgentError::Refused(why.clone())),
        }
    }

    /// Returns the text; `None` if it is empty or the command failed.
    pub(crate) fn some(&self) -> Option<&str> {
        match self {
            Answer::Text(text) => Some(text),
            Answer::Empty | Answer::Failed(_) => None,
        }
    }
}

/// Returns the error for output with fewer answers than expected.
pub(crate) fn incomplete() -> AgentError {
    AgentError::Silent("the output of virsh is incomplete".into())
}

/// Classifies an error. After a lost connection the command may still be carried out.
fn refusal(why: String) -> Refusal {
    const LOST: [&str; 6] = [
        "End of file",
        "Disconnected",
        "Cannot write data",
        "Cannot recv data",
        "connection",
        "client socket is closed",
    ];
    match LOST.iter().any(|lost| why.contains(lost)) {
        true => Refusal::Silent(AgentError::Silent(why)),
        false => Refusal::Said(AgentError::Refused(why)),
    }
}
