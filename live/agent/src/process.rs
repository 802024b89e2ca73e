//! Short runs of external programs, with a time limit and a limit of their output.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::error::{AgentError, Result, in_context, system_error};

/// Longest wait for the end of a program's output.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest number of bytes of output. A host with a thousand domains produces some megabytes.
const ANSWER_MAX: u64 = 64 << 20;

/// Output and result of a program.
pub(crate) struct ProgramOutput {
    pub out: String,
    pub errors: String,
    pub success: bool,
}

impl ProgramOutput {
    /// Returns the error output as one line, or `otherwise` if it is empty.
    pub(crate) fn error(&self, otherwise: &str) -> String {
        datapath::reason(&self.errors).unwrap_or_else(|| otherwise.to_owned())
    }

    /// Returns the standard output of a program that succeeded.
    ///
    /// # Errors
    /// [`AgentError::Refused`] in the context of the program's name: it failed.
    pub(crate) fn text(self, name: &str) -> Result<String> {
        match self.success {
            true => Ok(self.out),
            false => Err(in_context(name)(AgentError::Refused(
                self.error("no reason given"),
            ))),
        }
    }
}

/// Runs a program until it ends.
///
/// # Errors
/// The program cannot be started or read, or exceeds a limit and is killed.
pub(crate) fn run(mut command: Command, name: &str) -> Result<ProgramOutput> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let package = match name {
                "lvs" | "vgs" | "lvcreate" | "lvrename" | "lvremove" => "lvm2",
                "zfs" => "the tools of ZFS",
                _ => "the client of libvirt and the tools of QEMU",
            };
            AgentError::Unsupported(format!(
                "the program {name} is not installed: install {package}"
            ))
        }
        _ => system_error(format_args!("cannot start {name}"))(e),
    })?;
    read_all(child, name)
}

/// Reads the standard output and the standard error until both end.
fn read_all(mut child: Child, name: &str) -> Result<ProgramOutput> {
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
            Ok((_, Ok(_))) => AgentError::Silent(format!(
                "the output of {name} is longer than {ANSWER_MAX} bytes"
            )),
            Ok((_, Err(e))) => system_error(format_args!("cannot read the output of {name}"))(e),
            Err(RecvTimeoutError::Timeout) => AgentError::Silent(format!(
                "{name} has not answered for {} s",
                PATIENCE.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => {
                AgentError::Silent(format!("{name} cannot be read"))
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        return Err(why);
    }
    let ended = child
        .wait()
        .map_err(system_error(format_args!("cannot wait for {name}")))?;
    let [out, errors] = texts;
    Ok(ProgramOutput {
        out,
        errors,
        success: ended.success(),
    })
}
