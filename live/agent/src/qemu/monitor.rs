//! Session with a QEMU monitor: its socket with time limits, around [`qmp::Session`].

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use qmp::{CommandError, Message, QmpError, Session, Version};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde_json::Value;
use vmhost::builds::BuildId;

use crate::error::{AgentError, Result, file_error, in_context, system_error};
use crate::life::Life;
use crate::moves::Refusal;
use crate::program;

/// Longest wait for the greeting. A client without one is not served.
const GREETING: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shortens a text from the peer, which may have any length.
fn short(text: &str) -> String {
    const CHARACTERS: usize = 300;
    text.chars().take(CHARACTERS).collect()
}

/// Reason for a missing session.
#[derive(Debug)]
pub(crate) enum MissingSession {
    /// No process listens.
    Nobody,
    /// It cannot be determined whether QEMU runs.
    Unknown(AgentError),
}

/// Session with QEMU.
pub(crate) struct Monitor {
    stream: UnixStream,
    session: Session,
    /// Version of QEMU.
    pub version: Version,
    /// Build-id of its program; `None` if it cannot be read from here.
    pub build_id: Option<BuildId>,
    /// Life of its process; `None` if the process is not visible from here.
    pub life: Option<Life>,
    /// Its user and group.
    pub owner: (u32, u32),
    /// Command line of the process; empty if it cannot be read.
    pub command_line: Vec<String>,
}

impl Monitor {
    /// Connects and negotiates.
    pub(crate) fn open(path: &Path) -> Result<Self, MissingSession> {
        let said = |e: AgentError| MissingSession::Unknown(in_context(path.display())(e));
        const TAKEN: &str = "QEMU sends no greeting: it serves one client at a time, and another client uses this socket; give Terrace its own socket (a second -qmp)";
        let taken = || said(AgentError::InUse(TAKEN.into()));
        let failed = |e: Errno| MissingSession::Unknown(file_error("", path)(e));
        let socket = socket(path).map_err(|e| match e {
            Errno::CONNREFUSED | Errno::NOENT => MissingSession::Nobody,
            // The queue of waiting clients is full.
            Errno::AGAIN => taken(),
            e => failed(e),
        })?;
        let peer = sockopt::socket_peercred(&socket).map_err(failed)?;
        let pid = peer.pid.as_raw_pid();
        let stream = UnixStream::from(socket);
        let mut monitor = Self {
            stream,
            session: Session::default(),
            version: Version::default(),
            build_id: program::of(pid).ok().as_ref().and_then(program::build_id),
            life: Life::of(pid),
            owner: (peer.uid.as_raw(), peer.gid.as_raw()),
            command_line: command_line(pid),
        };
        let until = Instant::now() + GREETING;
        loop {
            match monitor.session.poll() {
                Ok(Some(Message::Ready(version))) => {
                    monitor.version = version;
                    return Ok(monitor);
                }
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(e) => return Err(said(misunderstood(&e))),
            }
            match monitor.exchange(until) {
                Ok(()) => {}
                Err(MonitorError::Late) => return Err(taken()),
                Err(MonitorError::Closed(why)) => return Err(said(why)),
            }
        }
    }

    /// Sends commands. Returns their answers in order.
    ///
    /// # Errors
    /// An answer is missing or not understood. The session must be closed.
    pub(super) fn ask(
        &mut self,
        commands: &[(&'static str, Option<Value>)],
    ) -> Result<Vec<Result<Value, CommandError>>> {
        let mut ids = vec![];
        for (name, arguments) in commands {
            let id = self.session.command(name, arguments.clone());
            ids.push(id.map_err(|e| misunderstood(&e))?);
        }
        let mut answers: Vec<Option<Result<Value, CommandError>>> = vec![None; ids.len()];
        let until = Instant::now() + PATIENCE;
        while let Some(missing) = answers.iter().position(Option::is_none) {
            match self.session.poll().map_err(|e| misunderstood(&e))? {
                Some(Message::Answer { id, result, .. }) => {
                    if let Some(at) = ids.iter().position(|i| *i == id) {
                        answers[at] = Some(result);
                    }
                }
                Some(Message::Event(_) | Message::Ready(_)) => {}
                None => self.exchange(until).map_err(|broken| match broken {
                    MonitorError::Late => AgentError::Silent(format!(
                        "QEMU has not answered {} for {} s",
                        commands[missing].0,
                        PATIENCE.as_secs()
                    )),
                    MonitorError::Closed(why) => why,
                })?,
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Carries out one command.
    ///
    /// # Errors
    /// The command was refused or not answered. In the second case the session must be closed.
    pub(crate) fn order(&mut self, name: &'static str, arguments: Value) -> Result<Value, Refusal> {
        let answers = self.ask(&[(name, Some(arguments))]);
        let mut answers = answers.map_err(Refusal::Silent)?;
        match answers.pop() {
            Some(Ok(value)) => Ok(value),
            Some(Err(e)) => Err(Refusal::Said(refused(name, &e))),
            None => Err(Refusal::Silent(AgentError::Silent(format!(
                "{name}: no answer"
            )))),
        }
    }

    /// Sends the pending output and reads once.
    fn exchange(&mut self, until: Instant) -> Result<(), MonitorError> {
        const ENDED: &str = "the session with QEMU ended";
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => MonitorError::Late,
            _ => MonitorError::Closed(system_error(ENDED)(e)),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(MonitorError::Late);
        }
        self.stream.set_write_timeout(Some(left)).map_err(failed)?;
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let output = self.session.output();
        self.stream.write_all(&output).map_err(failed)?;
        let mut bytes = [0; 65536];
        let n = match self.stream.read(&mut bytes) {
            Ok(0) => {
                let why = format!("{ENDED}: QEMU closed the connection");
                return Err(MonitorError::Closed(AgentError::Silent(why)));
            }
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => 0,
            Err(e) => return Err(failed(e)),
        };
        self.session.feed(&bytes[..n]);
        Ok(())
    }
}

enum MonitorError {
    Late,
    Closed(AgentError),
}

/// Returns the error for a command that QEMU refused.
pub(super) fn refused(command: &str, error: &CommandError) -> AgentError {
    AgentError::Refused(format!("{command}: {}", short(&error.desc)))
}

/// Returns the error for a session that cannot continue.
fn misunderstood(error: &QmpError) -> AgentError {
    AgentError::Silent(error.to_string())
}

/// Connects a socket without waiting; a full queue is an error.
fn socket(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|b| *b == 0);
    words
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn fault(path: &Path) -> Option<String> {
        match Monitor::open(path).err()? {
            MissingSession::Nobody => Some("nobody".into()),
            MissingSession::Unknown(why) => Some(why.to_string()),
        }
    }

    #[test]
    fn ended_qemu_is_distinguished_from_unresponsive_qemu() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.qmp");
        assert_eq!(fault(&path).unwrap(), "nobody");
        let listener = UnixListener::bind(&path).unwrap();
        // The socket has another client.
        let why = fault(&path).unwrap();
        assert!(why.contains("another client uses this socket"), "{why}");
        let speaks = std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate().skip(1).take(2) {
                let mut stream = stream.unwrap();
                // By then the first client has disconnected. One of the next two gets a greeting that is not QEMU's.
                // The other gets QEMU's greeting and nothing more.
                match n {
                    1 => stream.write_all(b"SSH-2.0\r\n").unwrap(),
                    _ => stream
                        .write_all(b"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 22}}}}\r\n")
                        .unwrap(),
                }
            }
        });
        let why = fault(&path).unwrap();
        assert!(why.contains("no JSON"), "{why}");
        let why = fault(&path).unwrap();
        assert!(why.contains("the session with QEMU ended"), "{why}");
        speaks.join().unwrap();
        // The listener has ended, and its file still exists.
        assert_eq!(fault(&path).unwrap(), "nobody");
    }

    #[test]
    fn process_is_alive_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let life = Life::of(child.id().cast_signed()).unwrap();
        assert!(life.goes_on());
        child.kill().unwrap();
        let until = Instant::now() + PATIENCE;
        // The parent has not waited for the process yet.
        while life.goes_on() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!life.goes_on());
    }
}
