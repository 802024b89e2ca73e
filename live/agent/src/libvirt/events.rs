//! Events of libvirt: a domain with an event is read again at the next look, however recent its data is.
//!
//! A process of virsh listens for events. It ends by itself after a while, so no process remains after an agent was
//! killed. Changes between the end of one process and the start of the next are noticed when the data of a domain
//! expires.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::virsh::Virsh;

/// Seconds for which a process listens.
const LISTENS_S: &str = "60";
/// Time until the next attempt after a process could not listen.
const AGAIN: Duration = Duration::from_secs(10);
/// Largest number of events between two looks. After more events, all domains are read again.
const EVENTS_MAX: usize = 1000;
/// Largest number of bytes of an event that are read.
const LINE_MAX: u64 = 4096;

/// Listener for events, read at each look.
#[derive(Default)]
pub(super) struct Events {
    listener: Option<(Child, Receiver<String>)>,
    tried: Option<Instant>,
}

impl Events {
    /// Returns the names of domains with events since the last look; `None` if the names are unknown. Starts to listen
    /// if necessary.
    pub(super) fn happened(&mut self, virsh: &Virsh) -> Option<Vec<String>> {
        let (mut names, mut count) = (Some(vec![]), 0);
        while let Some((_, lines)) = &self.listener {
            match lines.try_recv() {
                // virsh prints the number of events at its end.
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

    /// Stops to listen.
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

/// Starts virsh; `None` if it cannot be started or does not support events. Looks then work without events.
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
            // One event beyond the limit is enough to detect that events were lost.
            if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = say.try_send(line) {
                return;
            }
        }
    });
    Some((child, heard))
}

/// Returns the domain in a line like `event 'lifecycle' for domain 'web': Started Booted`. Older versions of virsh
/// print no quotes.
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
    fn libvirt_event_names_its_domain() {
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
