//! Memory and flash of this host that are lent to the arrays of others: processes of `terrace cache-node` that this one starts, watches and ends. Which, is said by
//! [`manager::agent`].
//!
//! Each has a pipe as its standard input whose other end is here, and ends when that does: so none outlives this process, however it ends. One that does not end
//! when it is told to is killed. Where it listens it says on its standard output; what it says on its standard error goes to that of this process.

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

use flash::Flash;
use process::{Process, free_port, listen_to, reached, remove_left_behind, shortened};
pub use settings::LendSettings;

/// One that has not said by then where it listens will not.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// One that was told to end and has not by then is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// So long this process waits, when it ends, for those that it has killed.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// How long processes may take.
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

/// Those that were ordered, by number.
pub(crate) struct Donor {
    settings: LendSettings,
    times: Times,
    nodes: BTreeMap<u64, Node>,
    flash: Flash,
    /// What an operator should know that was not told yet.
    warnings: Vec<String>,
}

struct Node {
    order: NodeOrder,
    /// Where it listens, if that is one of a range.
    port: Option<u16>,
    since: Instant,
    state: State,
    /// None where it could not be started, or has ended.
    process: Option<Process>,
}

#[derive(Debug, PartialEq)]
enum State {
    Starting,
    Ready {
        at: String,
    },
    /// Told to end, or killed; it has failed then if there is a reason, else nobody wants it.
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

    /// What there is now.
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
        // One that was to end has.
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

    /// What an operator should know that was not told yet.
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

    /// Ends all, and waits until they have.
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

    /// Where a process of that number is to listen, its socket if that is one, and its port if that is of a range.
    fn place(&self, id: u64) -> Result<(String, Option<PathBuf>, Option<u16>), String> {
        match &self.settings.listen {
            LendListen::Unix(dir) => {
                let mut builder = std::fs::DirBuilder::new();
                let made = builder.recursive(true).mode(0o700).create(dir);
                made.map_err(|e| format!("cannot create {dir}: {e}"))?;
                let socket = Path::new(dir).join(format!("{id}.sock"));
                Ok((format!("unix:{}", socket.display()), Some(socket), None))
            }
            LendListen::Tcp { address, ports } => {
                // One that was just started may not listen yet.
                let used: Vec<u16> = self.nodes.values().filter_map(|n| n.port).collect();
                let port = ports.map(|range| free_port(*address, range, &used));
                let port = port.transpose()?;
                let at = SocketAddr::new(*address, port.unwrap_or(0));
                Ok((format!("tcp:{at}"), None, port))
            }
        }
    }

    fn spawn(&self, order: &NodeOrder) -> Result<(Process, Option<u16>), String> {
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
            (NodeStore::Flash, None) => return Err("this host lends no flash".into()),
        };
        command
            .args(["--listen", &listen])
            // Whoever connects somewhere else, or to another one at the same place, finds no such export.
            .args(["--name", &format!("lent-{id}")])
            .args(["--output", "json", "--until-input-ends"]);
        if let Some(dir) = &self.settings.tls_certificates {
            command.arg("--tls-certificates").arg(dir);
        }
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| {
            let program = self.settings.program.display();
            format!("cannot start {program}: {e}")
        })?;
        let heard = match listen_to(&mut child) {
            Ok(heard) => heard,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("cannot start a thread for its process: {e}"));
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

/// What an operator is told of an order that came to nothing.
fn lost(of: &NodeOrder, why: &str) -> String {
    format!(
        "lent {} of {}: {why}",
        of.store.word(),
        Bytes(of.bytes).words()
    )
}

/// Ends all that there are. What has been killed and is not gone is the system's.
impl Drop for Donor {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Node {
    /// Takes in what became of it; why it has failed, if it just has.
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
                        Err(why) => why,
                    },
                    Ok(Err(why)) => why,
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

    /// It is to end, and is wanted no more.
    fn end(&mut self) {
        match &mut self.state {
            State::Ending { failed, .. } => *failed = None,
            State::Failed { .. } => {}
            State::Starting | State::Ready { .. } => {
                if let Some(process) = &mut self.process {
                    // The end of its input.
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
