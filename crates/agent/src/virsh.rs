//! The program `virsh`, which talks to libvirt: one process for all that is asked at one moment.
//!
//! A process, and not libvirt's C library: it links nothing, has the version that the host's libvirt has, cannot bring the agent down or hang it, is
//! tried by hand word by word, and is what operators know. It costs some milliseconds per look, which is once a window, or once a second while
//! something moves.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::moves::Refusal;
use crate::process::{Said, run};

/// Stands between answers to the commands of one process; no text of libvirt's has it.
const MARK: &str = "terrace-next-answer-5d1f";

/// How it is called.
#[derive(Debug, Clone)]
pub(crate) struct Virsh {
    /// The hypervisor; virsh's own default if none.
    pub uri: Option<String>,
    /// What programs that give orders need.
    pub orders: Option<OrderContext>,
}

/// What programs that give orders need.
#[derive(Debug, Clone)]
pub(crate) struct OrderContext {
    /// A locked file that processes with orders hold as well: who has the lock knows that no order of another life is under way.
    pub lock: Arc<File>,
    /// Where texts may be written that orders are read from.
    pub dir: PathBuf,
}

impl Virsh {
    /// Answers to commands, in order. Nothing is changed by any: the connection is for reading only.
    ///
    /// # Errors
    /// Why there is none: no program, no connection, no end.
    pub(crate) fn ask(&self, commands: &[String]) -> Result<Vec<Answer>, String> {
        self.ask_by(&["-r"], commands)
    }

    /// The same, where libvirt tells those only who might change something.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) fn ask_for_more(&self, commands: &[String]) -> Result<Vec<Answer>, String> {
        self.ask_by(&[], commands)
    }

    fn ask_by(&self, more: &[&str], commands: &[String]) -> Result<Vec<Answer>, String> {
        let mark = format!("; echo -- {MARK}; ");
        let mut command = self.command(more);
        // The last word is ours as well: without it the connection may have been lost in the middle.
        let all = format!("{}; echo -- {MARK}", commands.join(&mark));
        command.arg("--").arg(all);
        let said = run(command, "virsh")?;
        let mut texts: Vec<&str> = said.out.split(MARK).collect();
        let rest = texts.pop().unwrap_or("");
        if texts.len() != commands.len() || !rest.trim().is_empty() {
            return Err(said.error("the output of virsh is incomplete"));
        }
        // Which of the commands an error is of is not said.
        let sure = said.success && said.errors.trim().is_empty();
        let answers = texts.into_iter().map(|text| match text.trim() {
            "" if sure => Answer::Empty,
            "" => Answer::Failed(said.error("virsh has no output")),
            text => Answer::Text(text.into()),
        });
        Ok(answers.collect())
    }

    /// Carries out one command, which may change something; what it said.
    ///
    /// # Errors
    /// It was refused, or was not answered and may be carried out yet.
    pub(crate) fn order(&self, words: &[&str]) -> Result<String, Refusal> {
        let said = self.carry_out(words)?;
        match said.success {
            true => Ok(said.out),
            false => Err(refusal(said.error("virsh gave no reason"))),
        }
    }

    /// Carries out one command, which may change something, and answers another one after it; what that said.
    ///
    /// # Errors
    /// One of them was refused, or was not answered and may be carried out yet.
    pub(crate) fn order_and_ask(&self, order: &str, question: &str) -> Result<String, Refusal> {
        let said = self.carry_out(&["--", &format!("{order}; echo -- {MARK}; {question}")])?;
        // What the process ends with is the last command's, whatever became of the first.
        if !said.success || !said.errors.trim().is_empty() {
            return Err(refusal(said.error("virsh gave no reason")));
        }
        match said.out.split_once(MARK) {
            Some((_, answer)) => Ok(answer.trim().into()),
            None => Err(Refusal::Silent("the output of virsh is incomplete".into())),
        }
    }

    fn carry_out(&self, words: &[&str]) -> Result<Said, Refusal> {
        let mut command = self.command(&[]);
        command.args(words);
        let orders = self.orders.as_ref();
        if let Some(lock) = orders.and_then(|o| o.lock.try_clone().ok()) {
            command.stdin(Stdio::from(lock)); // it reads nothing
        }
        run(command, "virsh").map_err(Refusal::Silent)
    }

    /// The program, with more words before those of its command.
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

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This, without blanks around it.
    Text(String),
    /// Nothing, and all went well.
    Empty,
    /// Nothing, and something went wrong: with this command, or with another one that was given with it.
    Failed(String),
}

impl Answer {
    /// The text, which may be empty.
    ///
    /// # Errors
    /// Why nobody knows.
    pub(crate) fn text(&self) -> Result<&str, String> {
        match self {
            Answer::Text(text) => Ok(text),
            Answer::Empty => Ok(""),
            Answer::Failed(why) => Err(why.clone()),
        }
    }

    /// The text, if there is any.
    pub(crate) fn some(&self) -> Option<&str> {
        match self {
            Answer::Text(text) => Some(text),
            Answer::Empty | Answer::Failed(_) => None,
        }
    }
}

/// What libvirt did not say itself may be carried out yet.
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
        true => Refusal::Silent(why),
        false => Refusal::Said(why),
    }
}
