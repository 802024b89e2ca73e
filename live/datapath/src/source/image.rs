//! Images with a format, read through a QEMU server (`qemu-nbd`).

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use units::DeviceId;

use super::check::{not_started, said_by};
use crate::client::Client;
use crate::error::{DatapathError, Result};

const PROGRAM: &str = "qemu-nbd";

/// Prefix of socket names.
const SOCKETS: &str = "source-";

/// Time limit until the server responds.
const START_TIME: Duration = Duration::from_secs(8);

/// Limit of simultaneous connections: one of each worker, those of checks, and the one that keeps the server running.
const CONNECTIONS: u32 = 256;

/// Removes sockets of servers that no living process has started. The caller has exclusive use of the directory.
pub(super) fn clear_sockets(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(SOCKETS) && name.ends_with(".sock") {
            let _ = std::fs::remove_file(entry.path()); // a leftover is harmless
        }
    }
}

/// Starts a server that exports an image read-only. It ends when the returned client and all other clients have
/// disconnected.
pub(super) fn serve(
    path: &Path,
    format: &str,
    dir: &Path,
    device: DeviceId,
) -> Result<(Client, nbd::Uri)> {
    // The previous server may not have ended yet, and removes its socket when it does.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let start = STARTED.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    // qemu-nbd refuses a relative path.
    let found = std::path::absolute(dir);
    let dir = found.map_err(DatapathError::system("find", &dir.display()))?;
    let socket = dir.join(format!("{SOCKETS}{}-{pid}-{start}.sock", device.0));
    crate::control::fits(&socket).map_err(DatapathError::failed)?;
    let child = Command::new(PROGRAM)
        .arg("--read-only")
        .arg(format!("--shared={CONNECTIONS}"))
        .arg(format!("--format={format}"))
        .arg("--socket")
        .arg(&socket)
        .arg("--")
        .arg(path)
        // Ctrl-C in a terminal is for this process only: reads in flight still need the server.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| not_started(PROGRAM, format, e))?;
    let uri = nbd::Uri {
        address: nbd::Address::Unix(socket.clone()),
        export: String::new(),
        tls: None,
    };
    let answered = wait_for(&mut child, &uri, &socket, path);
    match answered {
        Ok(client) => {
            // The server ends by itself. A thread waits for the end and reads its messages until then.
            let reaper = std::thread::Builder::new().name("terrace-source".into());
            let _ = reaper.spawn(move || child.wait_with_output());
            Ok((client, uri))
        }
        Err(why) => {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(&socket); // the socket may not exist yet
            Err(why)
        }
    }
}

fn wait_for(child: &mut Child, uri: &nbd::Uri, socket: &Path, path: &Path) -> Result<Client> {
    let until = Instant::now() + START_TIME;
    loop {
        if let Ok(Some(_)) = child.try_wait() {
            let mut said = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
            }
            return Err(DatapathError::Program(format!(
                "{}: {PROGRAM} says: {}",
                path.display(),
                said_by(&said)
            )));
        }
        if socket.exists()
            && let Ok(client) = Client::connect(uri)
        {
            return Ok(client);
        }
        if Instant::now() > until {
            return Err(DatapathError::Late(format!(
                "{}: {PROGRAM} does not answer within {} s",
                path.display(),
                START_TIME.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
