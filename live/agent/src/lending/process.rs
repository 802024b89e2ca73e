//! Process that lends: its announced address, its error output, its end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::settings::LendSettings;
use crate::error::{AgentError, Result};

/// Time limit for the last error output of a process that has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// Largest number of bytes of error output that are kept.
const WORDS_MAX: usize = 400;

/// Largest length of a line of output.
const LINE_MAX: u64 = 16 << 10;

/// Process with its output.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) heard: ProcessOutput,
    /// Unix socket of the process. A killed process does not remove it.
    pub(super) socket: Option<PathBuf>,
}

/// Output of a process.
pub(super) struct ProcessOutput {
    /// Address that the process announced.
    pub(super) said: Receiver<Result<String>>,
    /// The last line of its standard error.
    last: Arc<Mutex<String>>,
    /// Disconnected at the end of the standard error.
    errors: Receiver<()>,
}

impl Process {
    /// Returns the reason of its end as text. The process has ended.
    pub(super) fn epitaph(&mut self, status: ExitStatus) -> String {
        // A child of the process may still have its pipes open.
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

/// Starts threads that read the output of a process until it ends.
pub(super) fn listen_to(child: &mut Child) -> std::io::Result<ProcessOutput> {
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
        // Discard the rest, because the process blocks if nobody reads it.
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
    Ok(ProcessOutput {
        said,
        last,
        errors: ended,
    })
}

/// Returns the URI that a process has announced.
fn announced(line: &str) -> Result<String> {
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let uri = value.as_ref().and_then(|v| v["uri"].as_str());
    uri.map(str::to_owned)
        .ok_or_else(|| AgentError::Unknown("its output is not its address".into()))
}

/// Returns the URI with which other hosts connect to the process.
pub(super) fn reached(uri: &str, settings: &LendSettings) -> Result<String> {
    let mut uri: nbd::Uri = uri
        .parse()
        .map_err(|e| AgentError::Unknown(format!("it reports the address {uri}: {e}")))?;
    if let Some(tls) = &mut uri.tls {
        tls.certificates.clone_from(&settings.client_certificates);
    }
    Ok(uri.to_string())
}

/// Returns an unused port of a range. Another program may take it before the process does. The process then ends with
/// an error.
pub(super) fn free_port(address: IpAddr, (first, last): (u16, u16), used: &[u16]) -> Result<u16> {
    let mut ports = first..=last;
    let free = |port: &u16| !used.contains(port) && TcpListener::bind((address, *port)).is_ok();
    ports.find(free).ok_or_else(|| {
        AgentError::InUse(format!(
            "no port of {address} from {first} to {last} is free"
        ))
    })
}

/// Removes sockets of processes that were killed, and whose agent was killed before it could remove them.
pub(super) fn remove_left_behind(dir: &Path) {
    // An unreadable directory has no sockets to remove, or the next attempt to lend reports the error.
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

/// Shortens a text to the length that is kept.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > WORDS_MAX {
        let end = (0..=WORDS_MAX).rev().find(|n| text.is_char_boundary(*n));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
