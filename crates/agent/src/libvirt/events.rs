//! What libvirt tells by itself: domains that something happened to are read anew at the next look, whatever is known of them.
//!
//! A process of virsh listens. It ends by itself after a while, so none is left behind where an agent was killed; what happened between two of
//! them is seen when a domain's time is over.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::virsh::Virsh;

/// A process listens for so long.
const LISTENS_S: &str = "60";
/// One that cannot listen is tried again after this time.
const AGAIN: Duration = Duration::from_secs(10);
/// Events that are kept between two looks; after more of them everything is read anew.
const EVENTS_MAX: usize = 1000;
/// Bytes of an event that are read.
const LINE_MAX: u64 = 4096;

/// Listens, and is asked at each look.
#[derive(Default)]
pub(super) struct Events {
    listener: Option<(Child, Receiver<String>)>,
    tried: Option<Instant>,
}

impl Events {
    /// Names of domains that something happened to since the look before; none where nobody knows to which. Listens from now on, if it did not.
    pub(super) fn happened(&mut self, virsh: &Virsh) -> Option<Vec<String>> {
        let (mut names, mut count) = (Some(vec![]), 0);
        while let Some((_, lines)) = &self.listener {
            match lines.try_recv() {
                // At its end it says how many there were.
                Ok(line) if !line.starts_with("event '") => {}
                Ok(line) => {
                    count += 1;
                    match (domain_of(&line), &mut names) {
                        (Some(name), Some(names)) => names.push(name.to_owned()),
                        _ => names = None,
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.end(),
            }
        }
        if self.listener.is_none() && self.tried.is_none_or(|at| at.elapsed() >= AGAIN) {
            self.tried = Some(Instant::now());
            self.listener = listen(virsh);
        }
        names.filter(|_| count < EVENTS_MAX)
    }

    /// Listens no more.
    pub(super) fn end(&mut self) {
        if let Some((mut child, _)) = self.listener.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.end();
    }
}

/// None where virsh cannot be started, or does not know how: looks go on without.
fn listen(virsh: &Virsh) -> Option<(Child, Receiver<String>)> {
    let mut command = virsh.command(&["-r"]);
    command.args(["event", "--all", "--loop", "--timeout", LISTENS_S]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut out = BufReader::new(child.stdout.take()?);
    let (say, heard) = sync_channel(EVENTS_MAX);
    std::thread::spawn(move || {
        loop {
            let mut line = vec![];
            match (&mut out).take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            // One too many is enough to know that there were too many.
            if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = say.try_send(line) {
                return;
            }
        }
    });
    Some((child, heard))
}

/// The domain of a line like `event 'lifecycle' for domain 'web': Started Booted`; of an older virsh without quotes.
fn domain_of(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_end().split_once(" for domain ")?;
    let name = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split_once("':")?.0,
        None => rest.split_once(':')?.0,
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_domain() {
        for (line, name) in [
            (
                "event 'lifecycle' for domain 'web': Started Booted\n",
                Some("web"),
            ),
            (
                "event 'block-job' for domain 'a:b c': Block Copy for /x completed",
                Some("a:b c"),
            ),
            ("event 'lifecycle' for domain web: Stopped", Some("web")),
            ("events received: 3", None),
            ("event 'x' for domain '': y", None),
            ("", None),
        ] {
            assert_eq!(domain_of(line), name, "{line}");
        }
    }
}
