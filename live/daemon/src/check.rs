//! Checks of a configuration: the faults of a start, found without starting anything.
//!
//! Each part is checked with the function that starts it, or by reading its files. Resources in use by the daemon of
//! this same configuration, according to its socket, are no fault.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use controller::{StartError, TcpSettings};
use datapath::{ReachError, control, explain};
use manager::settings::Settings;
use manager::store::StoreError;
use store::SqliteStore;

use crate::array::{credentials, listens};
use crate::error::DaemonError;
use crate::served_here;
use crate::words::{Words, host_of, lend_of, tcp};

/// Bytes written to a directory to check for space: more than a small commit of a store needs.
const PROBE_BYTES: usize = 128 << 10;

/// Fault that a start would find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The array does not exist yet. The configuration is valid, but a start would be refused.
    NoArray(String),
    /// No volume would be served.
    NotServed(String),
    /// Volumes would be served, but a part of the controller would not run.
    Degraded(String),
}

/// Finds the faults for which `terrace serve` would refuse this configuration, or run without a
/// part of the controller. Does not open the map of the array.
pub fn check(settings: &Settings, base: &Path) -> Vec<Finding> {
    let mut found = of_array(settings, base);
    let of_controller = of_controller(settings, base).into_iter();
    found.extend(of_controller.map(Finding::Degraded));
    found
}

/// Asks the platform of this host's virtual machines, such as a cluster, whether it can be used. Returns lines for the
/// operator.
///
/// # Errors
/// [`DaemonError::Configuration`] with file and line, if it would not work.
pub fn check_platform(settings: &Settings, base: &Path) -> Result<Vec<String>, DaemonError> {
    let checked = crate::words::check_platform(&settings.words, base);
    checked.map_err(|why| DaemonError::Configuration(with_line(settings, &why)))
}

fn of_array(settings: &Settings, base: &Path) -> Vec<Finding> {
    let Some(words) = served_here(settings) else {
        return vec![];
    };
    let dir = base.join(&words.dir);
    let at = |key: &str, why: String| settings.text().fault(key, why).to_string();
    let mut found = vec![];
    let is_served = UnixStream::connect(dir.join(control::CONTROL_SOCKET)).is_ok();
    if !is_served && !datapath::has_map(&dir) {
        let missing = ReachError::Missing { dir: dir.clone() };
        found.push(Finding::NoArray(at("array.dir", missing.to_string())));
    }
    if let Err(why) = listens(words, &dir) {
        found.push(Finding::NotServed(at("array.listen", explain(&why))));
    }
    if let Err(why) = credentials(words, base) {
        found.push(Finding::NotServed(with_line(settings, &why)));
    }
    found
}

/// Finds the faults of the controller's parts, with file and line if a key causes them.
pub(crate) fn of_controller(settings: &Settings, base: &Path) -> Vec<String> {
    let (words, of) = (&settings.words, Words::of(settings, base));
    let at = |key: &str, why: &dyn std::error::Error| {
        settings.text().fault(key, explain(why)).to_string()
    };
    let is_running = UnixStream::connect(&of.socket).is_ok();
    let mut found = vec![];
    let hosts = [host_of(words, base).err(), lend_of(words, base).err()];
    found.extend(hosts.iter().flatten().map(|why| with_line(settings, why)));
    match tcp(&words.controller, base) {
        Err(why) => found.push(with_line(settings, &why)),
        Ok(None) => {}
        Ok(Some(tcp)) => match tcp.check() {
            Err(StartError::PortTaken(_)) if is_running => {}
            Err(why) => found.push(at(key_of(&why, &tcp), &why)),
            Ok(()) => {}
        },
    }
    match controller::check_socket(&of.socket) {
        Err(StartError::SocketInUse(_)) if is_running => {}
        Err(why) => found.push(at("controller.socket", &why)),
        Ok(()) => {}
    }
    // A service manager creates directories below /run when it starts the program.
    let of_socket = of.socket.parent().unwrap_or(base);
    if !of_socket.exists() && of_socket != of.state && !of_socket.starts_with("/run") {
        let missing = DaemonError::Directory {
            dir: of_socket.into(),
            source: ErrorKind::NotFound.into(),
        };
        found.push(at("controller.socket", &missing));
    }
    if let Err(why) = can_be_written(&of.state) {
        found.push(at("controller.state", &why));
    }
    match SqliteStore::examine(&of.store) {
        Err(StoreError::InUse { .. }) if is_running => {}
        Err(why) => found.push(at("controller.state", &why)),
        Ok(()) => {}
    }
    if let Some(file) = words.controller.record.as_ref().map(|f| base.join(f))
        && let Err(why) = can_be_written(file.parent().unwrap_or(base))
    {
        found.push(at("controller.record", &why));
    }
    found
}

fn with_line(settings: &Settings, error: &DaemonError) -> String {
    match error {
        DaemonError::Config { key, why } => settings.text().fault(key, why).to_string(),
        other => explain(other),
    }
}

fn key_of(error: &StartError, tcp: &TcpSettings) -> &'static str {
    match error {
        StartError::PortTaken(_) | StartError::Tcp { .. } => "controller.listen",
        StartError::Tokens { .. } => "controller.tokens",
        StartError::Secret(why) if why.path() == tcp.tokens => "controller.tokens",
        _ => "controller.certificate",
    }
}

/// Checks that files can be created in a directory and have space. If the directory does not exist, checks that its
/// nearest existing parent permits its creation.
fn can_be_written(dir: &Path) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::Directory {
        dir: dir.into(),
        source,
    };
    let name = format!(".terrace-{}", std::process::id());
    match std::fs::metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let Some(above) = dir.ancestors().find(|d| d.exists()) else {
                return Ok(());
            };
            let probe = above.join(name);
            let made = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
            return made.map_err(failed);
        }
        found => found.map_err(failed)?,
    };
    let probe = dir.join(name);
    let made = std::fs::write(&probe, vec![0; PROBE_BYTES]);
    let removed = std::fs::remove_file(&probe);
    made.and(removed).map_err(failed)
}
