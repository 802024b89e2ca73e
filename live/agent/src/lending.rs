//! Memory and flash of this host that are lent to arrays of other hosts. The agent starts, watches and ends a process
//! of `terrace cache-node` for each lent part. [`manager::agent`] decides which parts are lent.
//!
//! Each process ends when its standard input ends. That input is a pipe from this process, so no process outlives it,
//! however it ends. A process that does not end in time is killed. It announces its address on its standard output. Its
//! standard error is copied to that of this process.

mod flash;
mod process;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use config::LendListen;
use manager::agent::LendAction;
use manager::wire::{LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow};
use tracing::{info, warn};
use units::Bytes;

use crate::error::{AgentError, Result, file_error, system_error};
use flash::Flash;
use process::{Process, free_port, listen_to, reached, remove_left_behind, shortened};
pub use settings::LendSettings;

/// Time limit for a process to announce its address. A process that exceeds it has failed.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// Time limit for the end of a process. A process that exceeds it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for killed processes when this process ends.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// Time limits for processes.
#[derive(Debug, Clone, Copy)]
struct Times {
    begins: Duration,
    ends: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            begins: BEGINS_WITHIN,
            ends: ENDS_WITHIN,
        }
    }
}

/// Processes that lend memory and flash of this host, by the number of their order.
pub(crate) struct Donor {
    settings: LendSettings,
    times: Times,
    nodes: BTreeMap<u64, Node>,
    flash: Flash,
    /// Warnings for the operator that were not returned yet.
    warnings: Vec<String>,
}

struct Node {
    order: NodeOrder,
    /// Port of the process, if it is from the configured range.
    port: Option<u16>,
    since: Instant,
    state: State,
    /// Process; `None` if it could not be started, or has ended.
    process: Option<Process>,
}

#[derive(Debug, PartialEq)]
enum State {
    Starting,
    Ready {
        at: String,
    },
    /// The process was ordered to end, or killed. With a reason in `failed` it has failed; without one it is not needed
    /// any more.
    Ending {
        killed: bool,
        failed: Option<String>,
    },
    Failed {
        why: String,
    },
}

impl Donor {
    pub(crate) fn new(settings: LendSettings) -> Self {
        if let LendListen::Unix(dir) = &settings.listen {
            remove_left_behind(Path::new(dir));
        }
        Self {
            settings,
            times: Times::default(),
            nodes: BTreeMap::new(),
            flash: Flash::default(),
            warnings: vec![],
        }
    }

    /// Returns the present state of all processes.
    pub(crate) fn look(&mut self) -> LendWindow {
        let (flash, missing) = match &self.settings.flash {
            Some((size, dir)) => self.flash.look(*size, dir),
            None => (Bytes::ZERO, None),
        };
        if let Some(why) = missing {
            warn!(why, "this host does not lend flash");
            self.warnings
                .push(format!("this host does not lend flash: {why}"));
        }
        let (times, settings) = (self.times, &self.settings);
        for (id, node) in &mut self.nodes {
            if let Some(why) = node.look(times, settings) {
                warn!(id, why, "the lent memory or flash was lost");
                self.warnings.push(lost(&node.order, &why));
            }
        }
        // Forget processes that have ended on order.
        let there = |n: &Node| n.process.is_some() || matches!(n.state, State::Failed { .. });
        self.nodes.retain(|_, n| there(n));
        let nodes = self.nodes.iter().map(|(id, node)| NodeWindow {
            id: *id,
            bytes: node.order.bytes,
            store: node.order.store,
            state: match &node.state {
                State::Starting => NodeState::Starting,
                State::Ready { at } => NodeState::Ready { at: at.clone() },
                State::Ending { .. } => NodeState::Ending,
                State::Failed { why } => NodeState::Failed { why: why.clone() },
            },
        });
        LendWindow {
            memory_bytes: self.settings.memory.0,
            flash_bytes: flash.0,
            nodes: nodes.collect(),
        }
    }

    /// Returns warnings for the operator that were not returned before.
    pub(crate) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    pub(crate) fn carry_out(&mut self, action: LendAction) {
        match action {
            LendAction::Start(order) => self.start(order),
            LendAction::End { id } => self.end(id),
        }
    }

    fn start(&mut self, order: NodeOrder) {
        let NodeOrder { id, bytes, store } = order;
        if self.nodes.contains_key(&id) {
            return;
        }
        let (state, process, port) = match self.spawn(&order) {
            Ok((process, port)) => {
                let pid = process.child.id();
                info!(id, bytes, store = store.word(), pid, "lending started");
                (State::Starting, Some(process), port)
            }
            Err(why) => {
                let why = why.to_string();
                warn!(id, why, "cannot lend");
                self.warnings.push(lost(&order, &why));
                (State::Failed { why }, None, None)
            }
        };
        let node = Node {
            order,
            port,
            since: Instant::now(),
            state,
            process,
        };
        self.nodes.insert(id, node);
    }

    fn end(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        info!(id, store = node.order.store.word(), "lending ended");
        node.end();
        if node.process.is_none() {
            self.nodes.remove(&id);
        }
    }

    /// Ends all processes and waits for their end.
    pub(crate) fn end_all(&mut self) {
        self.nodes.values_mut().for_each(Node::end);
        let until = Instant::now() + self.times.ends + KILLED_WITHIN;
        while Instant::now() < until {
            self.look();
            if self.nodes.values().all(|n| n.process.is_none()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the address for the process of this number, its socket if the address is one, and its port if it is from
    /// a range.
    fn place(&self, id: u64) -> Result<(String, Option<PathBuf>, Option<u16>)> {
        match &self.settings.listen {
            LendListen::Unix(dir) => {
                let mut builder = std::fs::DirBuilder::new();
                let made = builder.recursive(true).mode(0o700).create(dir);
                made.map_err(file_error("cannot create", dir))?;
                let socket = Path::new(dir).join(format!("{id}.sock"));
                Ok((format!("unix:{}", socket.display()), Some(socket), None))
            }
            LendListen::Tcp { address, ports } => {
                // A process that was just started may not listen yet.
                let used: Vec<u16> = self.nodes.values().filter_map(|n| n.port).collect();
                let port = ports.map(|range| free_port(*address, range, &used));
                let port = port.transpose()?;
                let at = SocketAddr::new(*address, port.unwrap_or(0));
                Ok((format!("tcp:{at}"), None, port))
            }
        }
    }

    fn spawn(&self, order: &NodeOrder) -> Result<(Process, Option<u16>)> {
        let NodeOrder { id, bytes, store } = *order;
        let (listen, socket, port) = self.place(id)?;
        let mut command = Command::new(&self.settings.program);
        command.arg("cache-node");
        let size = Bytes(bytes).to_string();
        match (store, &self.settings.flash) {
            (NodeStore::Memory, _) => command.args(["--memory", &size]),
            (NodeStore::Flash, Some((_, dir))) => {
                command.arg("--flash").arg(dir).args(["--size", &size])
            }
            (NodeStore::Flash, None) => {
                return Err(AgentError::Unsupported("this host lends no flash".into()));
            }
        };
        command
            .args(["--listen", &listen])
            // A client that reaches another process at this address finds no export of this name.
            .args(["--name", &format!("lent-{id}")])
            .args(["--output", "json", "--until-input-ends"]);
        if let Some(dir) = &self.settings.tls_certificates {
            command.arg("--tls-certificates").arg(dir);
        }
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = &self.settings.program;
        let mut child = command
            .spawn()
            .map_err(file_error("cannot start", program))?;
        let heard = match listen_to(&mut child) {
            Ok(heard) => heard,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(system_error("cannot start a thread for its process")(e));
            }
        };
        let process = Process {
            child,
            heard,
            socket,
        };
        Ok((process, port))
    }
}

/// Warning for the operator about an order that failed.
fn lost(of: &NodeOrder, why: &str) -> String {
    format!(
        "lent {} of {}: {why}",
        of.store.word(),
        Bytes(of.bytes).words()
    )
}

/// Ends all processes. A killed process that does not disappear in time is left to the system.
impl Drop for Donor {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Node {
    /// Updates the state from the process. Returns the reason if the process has just failed.
    fn look(&mut self, times: Times, settings: &LendSettings) -> Option<String> {
        let process = self.process.as_mut()?;
        let gone = match process.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(process.epitaph(status)),
            Err(e) => Some(format!("cannot wait for its process: {e}")),
        };
        if let Some(epitaph) = gone {
            process.remove_socket();
            self.process = None;
            let why = match std::mem::replace(&mut self.state, State::Starting) {
                State::Ending { failed, .. } => failed?,
                _ => epitaph,
            };
            let why = shortened(why);
            self.state = State::Failed { why: why.clone() };
            return Some(why);
        }
        let waited = self.since.elapsed();
        match &mut self.state {
            State::Starting => {
                let failed = match process.heard.said.try_recv() {
                    Ok(Ok(uri)) => match reached(&uri, settings) {
                        Ok(at) => {
                            self.state = State::Ready { at };
                            return None;
                        }
                        Err(why) => why.to_string(),
                    },
                    Ok(Err(why)) => why.to_string(),
                    Err(_) if waited < times.begins => return None,
                    Err(_) => format!("it has not listened within {:?}", times.begins),
                };
                let _ = process.child.kill();
                self.state = State::Ending {
                    killed: true,
                    failed: Some(failed),
                };
            }
            State::Ending { killed, .. } if !*killed && waited > times.ends => {
                *killed = true;
                let pid = process.child.id();
                warn!(pid, "killing a cache node that does not end");
                let _ = process.child.kill();
            }
            State::Ready { .. } | State::Ending { .. } | State::Failed { .. } => {}
        }
        None
    }

    /// Ends the process, which is no longer needed.
    fn end(&mut self) {
        match &mut self.state {
            State::Ending { failed, .. } => *failed = None,
            State::Failed { .. } => {}
            State::Starting | State::Ready { .. } => {
                if let Some(process) = &mut self.process {
                    // The end of its input makes the process end.
                    drop(process.child.stdin.take());
                }
                self.since = Instant::now();
                self.state = State::Ending {
                    killed: false,
                    failed: None,
                };
            }
        }
    }
}
