//! The program `virsh`, which talks to libvirt: one process for all that is asked at one moment.
//!
//! A process, and not libvirt's C library: it links nothing, has the version that the host's libvirt has, cannot bring the agent down or hang it, is
//! tried by hand word by word, and is what operators know. It costs some milliseconds per look, which is once a window, or once a second while
//! something moves.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// One that has not answered by then does not.
const PATIENCE: Duration = Duration::from_secs(15);
/// Most bytes of an answer: a host with a thousand domains has some megabytes.
const ANSWER_MAX: u64 = 64 << 20;
/// Stands between answers to the commands of one process; no text of libvirt's has it.
const MARK: &str = "terrace-next-answer-5d1f";

/// How it is called.
#[derive(Debug, Clone)]
pub(crate) struct Virsh {
    /// The hypervisor; virsh's own default if none.
    pub uri: Option<String>,
    /// A locked file that processes with orders hold as well: who has the lock knows that no order of another life is under way.
    pub lock: Option<Arc<File>>,
}

impl Virsh {
    /// Answers to commands, in order; that of one that fails is empty. Nothing is changed by any: the connection is for reading only.
    ///
    /// # Errors
    /// Why there is none: no program, no connection, no end.
    pub(crate) fn ask(&self, commands: &[String]) -> Result<Vec<String>, String> {
        let mark = format!("; echo -- {MARK}; ");
        let mut command = self.command(&["-r"]);
        command.arg("--").arg(commands.join(&mark));
        let said = run(command)?;
        let answers: Vec<String> = said.out.split(MARK).map(String::from).collect();
        match answers.len() == commands.len() {
            true => Ok(answers),
            false => Err(said.error("virsh said less than was asked")),
        }
    }

    /// Carries out one command, which may change something; what it said.
    ///
    /// # Errors
    /// It was refused, or was not answered and may be carried out yet.
    pub(crate) fn order(&self, words: &[&str]) -> Result<String, Refusal> {
        let mut command = self.command(&[]);
        command.args(words);
        if let Some(lock) = self.lock.as_ref().and_then(|l| l.try_clone().ok()) {
            command.stdin(Stdio::from(lock)); // it reads nothing
        }
        let said = run(command).map_err(Refusal::Silent)?;
        match said.success {
            true => Ok(said.out),
            false => Err(Refusal::Said(said.error("virsh did not say why"))),
        }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        command.arg("-q").args(more);
        if let Some(uri) = &self.uri {
            command.args(["-c", uri]);
        }
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Why a command was not carried out.
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

/// What a process said.
struct Said {
    out: String,
    errors: String,
    success: bool,
}

impl Said {
    /// The first line of its errors.
    fn error(&self, otherwise: &str) -> String {
        let mut lines = self.errors.lines().filter(|l| !l.trim().is_empty());
        let why = lines.next().unwrap_or(otherwise);
        why.trim_start_matches("error: ").to_owned()
    }
}

fn run(mut command: Command) -> Result<Said, String> {
    let child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no program virsh: install libvirt's client".to_owned()
        }
        _ => format!("virsh cannot be started: {e}"),
    })?;
    read_all(child)
}

/// What it wrote on its output and its error output.
fn read_all(mut child: Child) -> Result<Said, String> {
    let (say, heard) = channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|p| Box::new(p) as _),
        child.stderr.take().map(|p| Box::new(p) as _),
    ];
    for (which, pipe) in pipes.into_iter().enumerate() {
        let (pipe, say) = (pipe.expect("it is piped"), say.clone());
        std::thread::spawn(move || {
            let mut bytes = vec![];
            let read = pipe.take(ANSWER_MAX + 1).read_to_end(&mut bytes);
            let _ = say.send((which, read.map(|_| bytes)));
        });
    }
    let mut texts = [String::new(), String::new()];
    for _ in 0..2 {
        let why = match heard.recv_timeout(PATIENCE) {
            Ok((which, Ok(bytes))) if bytes.len() as u64 <= ANSWER_MAX => {
                texts[which] = String::from_utf8_lossy(&bytes).into_owned();
                continue;
            }
            Ok((_, Ok(_))) => format!("virsh said more than {ANSWER_MAX} bytes"),
            Ok((_, Err(e))) => format!("virsh cannot be read: {e}"),
            Err(RecvTimeoutError::Timeout) => {
                format!("virsh has not answered for {} s", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => "virsh cannot be read".into(),
        };
        let _ = child.kill();
        let _ = child.wait();
        return Err(why);
    }
    let ended = child
        .wait()
        .map_err(|e| format!("virsh cannot be waited for: {e}"))?;
    let [out, errors] = texts;
    Ok(Said {
        out,
        errors,
        success: ended.success(),
    })
}
