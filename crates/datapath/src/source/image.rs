//! Images that have a format: QEMU's own server reads them.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use units::DeviceId;

use super::check::{not_started, said_by};
use crate::client::Client;
use crate::text::explain;

const PROGRAM: &str = "qemu-nbd";

/// What the names of its sockets begin with.
const SOCKETS: &str = "source-";

/// How long it may take until it answers.
const START_TIME: Duration = Duration::from_secs(8);

/// Connections that it takes at a time: one of each worker, those that look, and the one that keeps it.
const CONNECTIONS: u32 = 256;

/// Removes sockets of servers that no living process has started; the directory is this process's alone.
pub(super) fn clear_sockets(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(SOCKETS) && name.ends_with(".sock") {
            let _ = std::fs::remove_file(entry.path()); // it is only in the way
        }
    }
}

/// Starts a server that exports an image, for reading only. It ends when the client that comes with it, and all others, are gone.
pub(super) fn serve(
    path: &Path,
    format: &str,
    dir: &Path,
    device: DeviceId,
) -> Result<(Client, nbd::Uri), String> {
    // The server before this one may not have ended yet, and takes its socket with it when it does.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let start = STARTED.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    // qemu-nbd refuses a relative path.
    let dir =
        std::path::absolute(dir).map_err(|e| format!("cannot find {}: {e}", dir.display()))?;
    let socket = dir.join(format!("{SOCKETS}{}-{pid}-{start}.sock", device.0));
    crate::control::fits(&socket).map_err(|e| explain(&e))?;
    let child = Command::new(PROGRAM)
        .arg("--read-only")
        .arg(format!("--shared={CONNECTIONS}"))
        .arg(format!("--format={format}"))
        .arg("--socket")
        .arg(&socket)
        .arg("--")
        .arg(path)
        // A terminal's Ctrl-C is this process's: what is under way still reads from there.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| not_started(PROGRAM, format, &e))?;
    let uri = nbd::Uri {
        address: nbd::Address::Unix(socket.clone()),
        export: String::new(),
        tls: None,
    };
    let answered = wait_for(&mut child, &uri, &socket, path);
    match answered {
        Ok(client) => {
            // It ends by itself; somebody has to hear of that, and to read what it says until then.
            let reaper = std::thread::Builder::new().name("terrace-source".into());
            let _ = reaper.spawn(move || child.wait_with_output());
            Ok((client, uri))
        }
        Err(why) => {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(&socket); // it may not have come so far
            Err(why)
        }
    }
}

fn wait_for(
    child: &mut Child,
    uri: &nbd::Uri,
    socket: &Path,
    path: &Path,
) -> Result<Client, String> {
    let until = Instant::now() + START_TIME;
    loop {
        if let Ok(Some(_)) = child.try_wait() {
            let mut said = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
            }
            return Err(format!(
                "{}: {PROGRAM} says: {}",
                path.display(),
                said_by(&said)
            ));
        }
        if socket.exists()
            && let Ok(client) = Client::connect(uri)
        {
            return Ok(client);
        }
        if Instant::now() > until {
            return Err(format!(
                "{}: {PROGRAM} does not answer within {} s",
                path.display(),
                START_TIME.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
