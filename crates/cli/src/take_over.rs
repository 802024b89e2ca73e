//! A server that takes over from another one, and the end of the one that was taken over from.

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

use crate::live::{Signalled, Wanted, is_to_end, message};
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
    /// Whether it is given.
    pub fn wanted(&self) -> bool {
        self.take_over
    }

    /// Whether it could be said where things are. Guests who were taken over are served all the same: whoever reads it may have ended with the
    /// process before.
    ///
    /// # Errors
    /// Why not, at any other start.
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

/// Ends this process once another one has the array: at once, whatever else goes on here, and without putting anything in order, as what is here
/// is the other one's.
///
/// # Errors
/// When there can be no thread that waits for that.
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

/// Likewise, if that is so: where this process ends anyway.
pub fn end_if_handed(handover: &Handover, notifier: &Notifier) {
    static ONCE: Mutex<()> = Mutex::new(());
    let code = match handover {
        Handover::None | Handover::UnderWay | Handover::Ending => return,
        Handover::To(_) => 0,
        Handover::Failed(_) => 1,
    };
    // Held until the end.
    let _once = ONCE.lock();
    match handover {
        Handover::To(pid) => {
            notifier.main_pid(*pid);
            // The order to end came to this process and was for the service.
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
    let _ = io::stdout().flush(); // nobody may read it any more
    std::process::exit(code);
}

/// The word that a successor is started with.
const WORD: &str = "--take-over";

/// What a process that takes over is not given.
const ACCEPT: &str = "--accept-loss";

/// A successor is to be started.
pub const SUCCESSOR: Wanted = (Signal::SIGUSR2, "which starts a successor");

/// Starts, when SIGUSR2 comes, the program that is now where this one was started from, with the same arguments, to take over. As a child of
/// this process it is in its service, whose main process it becomes.
pub struct Successor {
    wanted: Signalled,
    child: Option<Child>,
}

impl Successor {
    /// One that is started when this is told.
    pub fn new(wanted: Signalled) -> Self {
        Self {
            wanted,
            child: None,
        }
    }

    /// Starts one, if that is asked for; to be called often.
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
        // The watchdog is for whichever is the main process.
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

/// The arguments of a successor: those of this process, without what was for its start from the files of the array, and [`WORD`], which is an
/// option and so before what is no option any more.
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

/// Where this program was started from: what is there now.
fn program(first: Option<OsString>) -> PathBuf {
    let named = first.map(PathBuf::from);
    let path = named.filter(|p| p.components().count() > 1);
    let running = || std::env::current_exe().unwrap_or_else(|_| "terrace".into());
    // One that was replaced is called so.
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
    fn a_successor_is_given_what_is_not_for_this_start_alone() {
        let given =
            "serve --accept-loss map --config a --accept-loss=dev --take-over --accept-losses";
        let kept = successors(given.split(' ').map(OsString::from));
        let word = "--take-over";
        assert_eq!(kept, ["serve", "--config", "a", "--accept-losses", word]);
        let kept = successors(["export", "--", "-a"].into_iter().map(OsString::from));
        assert_eq!(kept, ["export", word, "--", "-a"]);
    }
}
