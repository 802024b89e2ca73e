//! A QEMU's monitor at the edge: its socket with time limits, around [`qmp::Session`].

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use qmp::{CommandError, Message, Session, Version};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde_json::Value;
use vmhost::builds::BuildId;

use crate::life::Life;
use crate::moves::Refusal;
use crate::program;

/// Who connects is greeted by then, or is not served.
const GREETING: Duration = Duration::from_secs(2);
/// An answer that has not come by then does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a peer says, who may say anything.
pub(super) fn short(text: &str) -> String {
    const CHARACTERS: usize = 300;
    text.chars().take(CHARACTERS).collect()
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum Missing {
    /// Nobody listens.
    Nobody,
    /// Nobody can say whether it runs.
    Unknown(String),
}

/// A session.
pub(crate) struct Monitor {
    stream: UnixStream,
    session: Session,
    /// What QEMU it is.
    pub version: Version,
    /// Build-id of its program; none where that cannot be read from here.
    pub build_id: Option<BuildId>,
    /// Its process; none where it cannot be seen from here.
    pub life: Option<Life>,
    /// Its user and group.
    pub owner: (u32, u32),
    /// What it was started with; empty where that cannot be read.
    pub command_line: Vec<String>,
}

impl Monitor {
    /// Connects, and negotiates.
    pub(crate) fn open(path: &Path) -> Result<Self, Missing> {
        let said = |why: &str| Missing::Unknown(format!("{}: {why}", path.display()));
        const TAKEN: &str = "QEMU sends no greeting: it serves one client at a time, and another client uses this socket; give Terrace its own socket (a second -qmp)";
        let socket = socket(path).map_err(|e| match e {
            Errno::CONNREFUSED | Errno::NOENT => Missing::Nobody,
            // As many wait for their turn as may.
            Errno::AGAIN => said(TAKEN),
            e => said(&e.to_string()),
        })?;
        let peer = sockopt::socket_peercred(&socket).map_err(|e| said(&e.to_string()))?;
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
                Err(e) => return Err(said(&e.to_string())),
            }
            match monitor.exchange(until) {
                Ok(()) => {}
                Err(Broken::Late) => return Err(said(TAKEN)),
                Err(Broken::Closed(why)) => return Err(said(&why)),
            }
        }
    }

    /// Answers to commands, in order.
    ///
    /// # Errors
    /// There is no answer to one, or it is not understood: this session is over.
    pub(super) fn ask(
        &mut self,
        commands: &[(&'static str, Option<Value>)],
    ) -> Result<Vec<Result<Value, CommandError>>, String> {
        let mut ids = vec![];
        for (name, arguments) in commands {
            let id = self.session.command(name, arguments.clone());
            ids.push(id.map_err(|e| e.to_string())?);
        }
        let mut answers: Vec<Option<Result<Value, CommandError>>> = vec![None; ids.len()];
        let until = Instant::now() + PATIENCE;
        while let Some(missing) = answers.iter().position(Option::is_none) {
            match self.session.poll().map_err(|e| e.to_string())? {
                Some(Message::Answer { id, result, .. }) => {
                    if let Some(at) = ids.iter().position(|i| *i == id) {
                        answers[at] = Some(result);
                    }
                }
                Some(Message::Event(_) | Message::Ready(_)) => {}
                None => self.exchange(until).map_err(|broken| match broken {
                    Broken::Late => format!(
                        "QEMU has not answered {} for {} s",
                        commands[missing].0,
                        PATIENCE.as_secs()
                    ),
                    Broken::Closed(why) => why,
                })?,
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Carries out one command.
    ///
    /// # Errors
    /// It was refused, or was not answered; in the second case this session is over.
    pub(crate) fn order(&mut self, name: &'static str, arguments: Value) -> Result<Value, Refusal> {
        let answers = self.ask(&[(name, Some(arguments))]);
        let mut answers = answers.map_err(Refusal::Silent)?;
        match answers.pop() {
            Some(Ok(value)) => Ok(value),
            Some(Err(e)) => Err(Refusal::Said(format!("{name}: {}", short(&e.desc)))),
            None => Err(Refusal::Silent(format!("{name}: no answer"))),
        }
    }

    /// Says what is to be said, and hears something.
    fn exchange(&mut self, until: Instant) -> Result<(), Broken> {
        let closed = |why: &str| Broken::Closed(format!("the session with QEMU ended: {why}"));
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Broken::Late,
            _ => closed(&e.to_string()),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Broken::Late);
        }
        self.stream.set_write_timeout(Some(left)).map_err(failed)?;
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let output = self.session.output();
        self.stream.write_all(&output).map_err(failed)?;
        let mut bytes = [0; 65536];
        let n = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(closed("QEMU closed the connection")),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => 0,
            Err(e) => return Err(failed(e)),
        };
        self.session.feed(&bytes[..n]);
        Ok(())
    }
}

enum Broken {
    Late,
    Closed(String),
}

/// A socket that is connected: a connection that would have to wait is none.
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
            Missing::Nobody => Some("nobody".into()),
            Missing::Unknown(why) => Some(why),
        }
    }

    #[test]
    fn who_does_not_run_is_told_from_who_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.qmp");
        assert_eq!(fault(&path).unwrap(), "nobody");
        let listener = UnixListener::bind(&path).unwrap();
        // It has another client.
        let why = fault(&path).unwrap();
        assert!(why.contains("another client uses this socket"), "{why}");
        let speaks = std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate().skip(1).take(2) {
                let mut stream = stream.unwrap();
                // The first has gone by then; one gets no greeting of QEMU's, and one gets nothing more than that.
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
        // Its listener is gone, and its file is there.
        assert_eq!(fault(&path).unwrap(), "nobody");
    }

    #[test]
    fn a_process_goes_on_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let life = Life::of(child.id().cast_signed()).unwrap();
        assert!(life.goes_on());
        child.kill().unwrap();
        let until = Instant::now() + PATIENCE;
        // Not waited for yet.
        while life.goes_on() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!life.goes_on());
    }
}
