//! The program `virsh`, which talks to libvirt: one process for all that is asked at one moment.
//!
//! A process, and not libvirt's C library: it links nothing, has the version that the host's libvirt has, cannot bring the agent down or hang it, is
//! tried by hand word by word, and is what operators know. It costs some milliseconds per look, which is once a window.

use std::io::Read;
use std::process::{Child, Command, Stdio};
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
}

impl Virsh {
    /// Answers to commands, in order; that of one that fails is empty. Nothing is changed by any: the connection is for reading only.
    ///
    /// # Errors
    /// Why there is none: no program, no connection, no end.
    pub(crate) fn ask(&self, commands: &[String]) -> Result<Vec<String>, String> {
        let mark = format!("; echo -- {MARK}; ");
        let mut command = Command::new("virsh");
        command.args(["-q", "-r"]);
        if let Some(uri) = &self.uri {
            command.args(["-c", uri]);
        }
        command
            .arg("--")
            .arg(commands.join(&mark))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                "there is no program virsh: install libvirt's client".to_owned()
            }
            _ => format!("virsh cannot be started: {e}"),
        })?;
        let (out, errors) = read_all(child)?;
        let answers: Vec<String> = out.split(MARK).map(String::from).collect();
        if answers.len() != commands.len() {
            let why = errors.lines().find(|l| !l.trim().is_empty());
            let why = why.unwrap_or("virsh said less than was asked");
            return Err(why.trim_start_matches("error: ").to_owned());
        }
        Ok(answers)
    }
}

/// What it wrote on its output and its error output.
fn read_all(mut child: Child) -> Result<(String, String), String> {
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
    let _ = child.wait();
    let [out, errors] = texts;
    Ok((out, errors))
}
