//! Programs that are asked: what they say, and for how long they are waited for.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// One that has not answered by then does not.
const PATIENCE: Duration = Duration::from_secs(15);
/// Most bytes of an answer: a host with a thousand domains has some megabytes.
const ANSWER_MAX: u64 = 64 << 20;

/// What a process said.
pub(crate) struct Said {
    pub out: String,
    pub errors: String,
    pub success: bool,
}

impl Said {
    /// The lines of its errors, in one.
    pub(crate) fn error(&self, otherwise: &str) -> String {
        datapath::reason(&self.errors).unwrap_or_else(|| otherwise.to_owned())
    }
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or has not ended in time: it is killed then.
pub(crate) fn run(mut command: Command, name: &str) -> Result<Said, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let package = match name {
                "lvs" | "vgs" | "lvcreate" | "lvrename" | "lvremove" => "lvm2",
                "zfs" => "the tools of ZFS",
                _ => "the client of libvirt and the tools of QEMU",
            };
            format!("the program {name} is not installed: install {package}")
        }
        _ => format!("cannot start {name}: {e}"),
    })?;
    read_all(child, name)
}

/// What it wrote on its output and its error output.
fn read_all(mut child: Child, name: &str) -> Result<Said, String> {
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
            Ok((_, Ok(_))) => format!("the output of {name} is longer than {ANSWER_MAX} bytes"),
            Ok((_, Err(e))) => format!("cannot read the output of {name}: {e}"),
            Err(RecvTimeoutError::Timeout) => {
                format!("{name} has not answered for {} s", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => format!("{name} cannot be read"),
        };
        let _ = child.kill();
        let _ = child.wait();
        return Err(why);
    }
    let ended = child
        .wait()
        .map_err(|e| format!("cannot wait for {name}: {e}"))?;
    let [out, errors] = texts;
    Ok(Said {
        out,
        errors,
        success: ended.success(),
    })
}
