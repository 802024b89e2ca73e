//! A process that lends: what it says, where it listens, what becomes of it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::settings::LendSettings;

/// What one that has ended said last is waited for so long, if it is not there yet.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// Bytes of what one says of itself that are kept.
const WORDS_MAX: usize = 400;

/// A line of what one says, at most.
const LINE_MAX: u64 = 16 << 10;

/// A process with what it says.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) heard: Heard,
    /// Its socket, which is left behind where it is killed.
    pub(super) socket: Option<PathBuf>,
}

/// What a process says.
pub(super) struct Heard {
    /// Where it listens.
    pub(super) said: Receiver<Result<String, String>>,
    /// The last line of its standard error.
    last: Arc<Mutex<String>>,
    /// Nobody is heard any more when that has ended.
    errors: Receiver<()>,
}

impl Process {
    /// What became of it, in words: it has ended.
    pub(super) fn epitaph(&mut self, status: ExitStatus) -> String {
        // One that it has started itself may have its pipes still.
        drop(self.child.stdin.take());
        let _ = self.heard.errors.recv_timeout(LAST_WORDS_WITHIN);
        let last = self.heard.last.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner);
        match last.is_empty() {
            true => format!("its process has ended: {status}"),
            false => format!("its process has ended: {status}: {last}"),
        }
    }

    pub(super) fn remove_socket(&self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Threads that read what a process says until it has ended.
pub(super) fn listen_to(child: &mut Child) -> std::io::Result<Heard> {
    let (say, said) = channel();
    let out = child.stdout.take().expect("it is piped");
    let thread = || std::thread::Builder::new().name("terrace-lent".into());
    thread().spawn(move || {
        let mut out = BufReader::new(out);
        let mut line = String::new();
        let read = out.by_ref().take(LINE_MAX).read_line(&mut line);
        if read.is_ok_and(|n| n > 0) {
            let _ = say.send(announced(&line));
        }
        // It must not wait for whoever reads.
        let _ = std::io::copy(&mut out, &mut std::io::sink());
    })?;
    let errors = child.stderr.take().expect("it is piped");
    let last = Arc::new(Mutex::new(String::new()));
    let (end, ended) = channel::<()>();
    let heard = last.clone();
    thread().spawn(move || {
        let _end = end;
        let mut errors = BufReader::new(errors);
        loop {
            let mut line = vec![];
            match errors.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let _ = std::io::stderr().write_all(&line);
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty() {
                *heard.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
        }
    })?;
    Ok(Heard {
        said,
        last,
        errors: ended,
    })
}

/// The URI that a process has announced.
fn announced(line: &str) -> Result<String, String> {
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let uri = value.as_ref().and_then(|v| v["uri"].as_str());
    uri.map(str::to_owned)
        .ok_or_else(|| "its output is not its address".into())
}

/// What the hosts that use it connect to.
pub(super) fn reached(uri: &str, settings: &LendSettings) -> Result<String, String> {
    let mut uri: nbd::Uri = uri
        .parse()
        .map_err(|e| format!("it reports the address {uri}: {e}"))?;
    if let Some(tls) = &mut uri.tls {
        tls.certificates.clone_from(&settings.client_certificates);
    }
    Ok(uri.to_string())
}

/// A port that nobody listens on. Somebody may before it is used: then its process ends, and says so.
pub(super) fn free_port(
    address: IpAddr,
    (first, last): (u16, u16),
    used: &[u16],
) -> Result<u16, String> {
    let mut ports = first..=last;
    let free = |port: &u16| !used.contains(port) && TcpListener::bind((address, *port)).is_ok();
    ports
        .find(free)
        .ok_or_else(|| format!("no port of {address} from {first} to {last} is free"))
}

/// Removes sockets of processes that were killed, and whose agent was before it could.
pub(super) fn remove_left_behind(dir: &Path) {
    // Where it cannot be read there is nothing, or nothing will be lent, which is said then.
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.file_name().and_then(|n| n.to_str());
        let number = name.and_then(|n| n.strip_suffix(".sock"));
        if number.is_none_or(|n| n.parse::<u64>().is_err()) {
            continue;
        }
        let refused = |e: std::io::Error| e.kind() == ErrorKind::ConnectionRefused;
        if UnixStream::connect(&path).is_err_and(refused) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// As much of what is said as is kept.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > WORDS_MAX {
        let end = (0..=WORDS_MAX).rev().find(|n| text.is_char_boundary(*n));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
