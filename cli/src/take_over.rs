//! Take-over of an array by a new server process, and the end of the old process.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;

use clap::Args;
use datapath::Handover;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracing::{info, warn};

use crate::live::{SignalReceiver, SignalSpec, is_to_end, message};
use crate::notify::Notifier;

/// `--take-over`
#[derive(Debug, Args)]
pub struct TakeOverArg {
    /// Take the array over from its running server, with the connections of its guests, who see one short pause. If that
    /// server refuses, it continues, and this process ends with the reason
    #[arg(long, conflicts_with = "accept")]
    take_over: bool,
}

impl TakeOverArg {
    /// Returns true if the option is given.
    pub fn wanted(&self) -> bool {
        self.take_over
    }

    /// Handles the result of printing the addresses. After a take-over an error is only logged, because guests are served anyway and the
    /// reader of the output may have ended with the old process.
    ///
    /// # Errors
    /// The error of printing, at any other start.
    pub fn said(&self, said: anyhow::Result<()>) -> anyhow::Result<()> {
        said.or_else(|why| match self.take_over {
            true => {
                warn!(%why, "cannot print the addresses of the server");
                Ok(())
            }
            false => Err(why),
        })
    }
}

/// Ends this process as soon as another process has the array. It ends at once and without cleanup, because the other process owns all
/// state.
///
/// # Errors
/// If the thread that waits for the handover cannot be started.
pub fn end_when_handed(
    lost: impl FnOnce() -> Handover + Send + 'static,
    notifier: &Notifier,
) -> io::Result<()> {
    let notifier = notifier.another()?;
    std::thread::Builder::new()
        .name("terrace-handed".into())
        .spawn(move || end_if_handed(&lost(), &notifier))?;
    Ok(())
}

/// Ends this process in the same way if the array was handed over or if the handover failed; else returns.
pub fn end_if_handed(handover: &Handover, notifier: &Notifier) {
    static ONCE: Mutex<()> = Mutex::new(());
    let code = match handover {
        Handover::None | Handover::UnderWay | Handover::Ending => return,
        Handover::To(_) => 0,
        Handover::Failed(_) => 1,
    };
    // Held until the process ends, so only one thread reports the handover.
    let _once = ONCE.lock();
    match handover {
        Handover::To(pid) => {
            notifier.main_pid(*pid);
            // A stop order to this process was meant for the service, so it is forwarded.
            if is_to_end()
                && let Ok(pid) = i32::try_from(*pid)
            {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM); // it may have ended
            }
            message(&format!("process {pid} serves the array now"));
        }
        Handover::Failed(why) => message(&format!("error: {why}")),
        _ => {}
    }
    let _ = io::stdout().flush(); // the reader may have ended
    std::process::exit(code);
}

/// Option of a successor.
const WORD: &str = "--take-over";

/// Option that a successor does not receive.
const ACCEPT: &str = "--accept-loss";

/// Signal to start a successor.
pub const SUCCESSOR: SignalSpec = (Signal::SIGUSR2, "which starts a successor");

/// Starter of a successor. On SIGUSR2 it starts the program that is now at the path of this one, with the same arguments and
/// `--take-over`. As a child of this process the successor belongs to the same systemd service, and becomes its main process.
pub struct Successor {
    wanted: SignalReceiver,
    child: Option<Child>,
}

impl Successor {
    /// Makes a starter that reacts to the signal `wanted`.
    pub fn new(wanted: SignalReceiver) -> Self {
        Self {
            wanted,
            child: None,
        }
    }

    /// Starts a successor if the signal arrived. Call it at short intervals.
    pub fn look(&mut self) {
        if let Some(child) = &mut self.child
            && let Ok(Some(ended)) = child.try_wait()
        {
            warn!(%ended, "the successor has ended, and this process continues");
            self.child = None;
        }
        if !self.wanted.came() {
            return;
        }
        if self.child.is_some() {
            return warn!("a successor is already taking over");
        }
        let mut args = std::env::args_os();
        let program = program(args.next());
        let args = successors(args);
        let mut command = Command::new(&program);
        // Without this variable, the watchdog applies to the successor when it becomes the main process.
        command.args(args).env_remove("WATCHDOG_PID");
        match command.spawn() {
            Ok(child) => {
                info!(pid = child.id(), program = %program.display(), "started a successor");
                self.child = Some(child);
            }
            Err(why) => warn!(%why, program = %program.display(), "cannot start a successor"),
        }
    }
}

/// Returns the arguments of a successor: those of this process without [`ACCEPT`], which is only for a start from the files of the array,
/// and with [`WORD`] at the end of the options, before `--`.
fn successors(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut kept, mut value) = (vec![], false);
    for arg in args {
        let accepts = arg == ACCEPT;
        let one = arg.to_str().and_then(|a| a.strip_prefix(ACCEPT));
        let with_value = one.is_some_and(|rest| rest.starts_with('='));
        if !std::mem::replace(&mut value, accepts) && !accepts && !with_value && arg != WORD {
            kept.push(arg);
        }
    }
    let options = kept.iter().position(|a| a == "--").unwrap_or(kept.len());
    kept.insert(options, WORD.into());
    kept
}

/// Returns the path from which this program was started. A newer program may be there now.
fn program(first: Option<OsString>) -> PathBuf {
    let named = first.map(PathBuf::from);
    let path = named.filter(|p| p.components().count() > 1);
    let running = || std::env::current_exe().unwrap_or_else(|_| "terrace".into());
    // Linux adds this suffix to the path of a program that was replaced.
    let there = |path: PathBuf| match path.to_str().and_then(|p| p.strip_suffix(" (deleted)")) {
        Some(before) => before.into(),
        None => path,
    };
    path.unwrap_or_else(|| there(running()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_arguments_omit_one_time_consents() {
        let given =
            "serve --accept-loss map --config a --accept-loss=dev --take-over --accept-losses";
        let kept = successors(given.split(' ').map(OsString::from));
        let word = "--take-over";
        assert_eq!(kept, ["serve", "--config", "a", "--accept-losses", word]);
        let kept = successors(["export", "--", "-a"].into_iter().map(OsString::from));
        assert_eq!(kept, ["export", word, "--", "-a"]);
    }
}
