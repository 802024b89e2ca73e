//! Memory and flash of this host that are lent to the arrays of others: processes of `terrace cache-node` that this one starts, watches and ends. Which, is said by
//! [`manager::agent`].
//!
//! Each has a pipe as its standard input whose other end is here, and ends when that does: so none outlives this process, however it ends. One that does not end
//! when it is told to is killed. Where it listens it says on its standard output; what it says on its standard error goes to that of this process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::LendListen;
use manager::agent::LendAction;
use manager::wire::{LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow};
use tracing::{info, warn};
use units::Bytes;

/// One that has not said by then where it listens will not.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// One that was told to end and has not by then is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// So long this process waits, when it ends, for those that it has killed.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// What one that has ended said last is waited for so long, if it is not there yet.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// Flash that cannot be lent is looked at again after this time.
const FLASH_LOOK: Duration = Duration::from_secs(60);

/// Bytes of what one says of itself that are kept.
const WORDS_MAX: usize = 400;

/// A line of what one says, at most.
const LINE_MAX: u64 = 16 << 10;

/// What a host lends, and how.
#[derive(Debug, Clone)]
pub struct LendSettings {
    /// How much memory in all.
    pub memory: Bytes,
    /// How much flash in all, and the directory on it, an absolute path; nothing if there is none.
    pub flash: Option<(Bytes, PathBuf)>,
    /// Where processes listen; a directory of sockets is an absolute path.
    pub listen: LendListen,
    /// The directory of their certificates, where hosts that use them have to speak TLS.
    pub tls_certificates: Option<PathBuf>,
    /// The directory in which those hosts have theirs.
    pub client_certificates: Option<PathBuf>,
    /// The program, which has a command `cache-node`.
    pub program: PathBuf,
}

impl LendSettings {
    /// As they were configured; paths are taken from `base`.
    ///
    /// # Errors
    /// The key, and why it cannot be.
    pub fn new(
        words: &config::LendConfig,
        base: &Path,
        program: PathBuf,
    ) -> Result<Self, (&'static str, String)> {
        let absolute = |path: &str, key: &'static str| {
            std::path::absolute(base.join(path)).map_err(|e| (key, format!("{path:?}: {e}")))
        };
        let listen = match words.check()? {
            LendListen::Unix(dir) => {
                let dir = absolute(&dir, "listen")?;
                let text = dir.to_str().map(str::to_owned);
                let why = || ("listen", format!("{}: no UTF-8", dir.display()));
                LendListen::Unix(text.ok_or_else(why)?)
            }
            tcp => tcp,
        };
        let own = words.tls_certificates.as_deref();
        let own = own.map(|d| absolute(d, "tls_certificates")).transpose()?;
        let flash = match (words.flash, &words.flash_dir) {
            (Some(size), Some(dir)) => Some((size, absolute(dir, "flash_dir")?)),
            _ => None,
        };
        let theirs = words.client_certificates.as_ref().map(PathBuf::from);
        Ok(Self {
            memory: words.memory.unwrap_or_default(),
            flash,
            listen,
            client_certificates: theirs.or_else(|| own.clone()),
            tls_certificates: own,
            program,
        })
    }
}

/// Whether files without a name can be made there, and the file system is so large: else it would be known when it is needed.
fn check_flash(dir: &Path, size: Bytes) -> Result<(), String> {
    drop(datapath::device::nameless_file(dir, config::LEND_MIN)?);
    let shown = dir.display();
    let of = rustix::fs::statvfs(dir).map_err(|e| format!("{shown}: {e}"))?;
    let kept_for_root = of.f_bfree.saturating_sub(of.f_bavail);
    let blocks = of.f_blocks.saturating_sub(kept_for_root);
    let all = Bytes(blocks.saturating_mul(of.f_frsize));
    match all >= size {
        true => Ok(()),
        false => Err(format!(
            "{shown} is on a file system of {all}, not of {size}"
        )),
    }
}

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
pub(crate) struct Lender {
    settings: LendSettings,
    times: Times,
    nodes: BTreeMap<u64, Node>,
    /// What of its flash can be lent: all, or nothing for now.
    flash: Bytes,
    flash_looked: Option<Instant>,
    /// What an operator should know that was not told yet.
    warnings: Vec<String>,
}

struct Node {
    bytes: u64,
    store: NodeStore,
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

/// A process with what it says.
struct Process {
    child: Child,
    heard: Heard,
    /// Its socket, which is left behind where it is killed.
    socket: Option<PathBuf>,
}

/// What a process says.
struct Heard {
    /// Where it listens.
    said: Receiver<Result<String, String>>,
    /// The last line of its standard error.
    last: Arc<Mutex<String>>,
    /// Nobody is heard any more when that has ended.
    errors: Receiver<()>,
}

impl Process {
    /// What became of it, in words: it has ended.
    fn epitaph(&mut self, status: ExitStatus) -> String {
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

    fn remove_socket(&self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Lender {
    pub(crate) fn new(settings: LendSettings) -> Self {
        if let LendListen::Unix(dir) = &settings.listen {
            remove_left_behind(Path::new(dir));
        }
        Self {
            settings,
            times: Times::default(),
            nodes: BTreeMap::new(),
            flash: Bytes::ZERO,
            flash_looked: None,
            warnings: vec![],
        }
    }

    /// Looks once in a while whether flash can be lent, as long as it cannot: nothing else waits for that.
    fn look_at_flash(&mut self) {
        let Some((size, dir)) = &self.settings.flash else {
            return;
        };
        let looked = self.flash_looked;
        if self.flash > Bytes::ZERO || looked.is_some_and(|at| at.elapsed() < FLASH_LOOK) {
            return;
        }
        self.flash_looked = Some(Instant::now());
        match check_flash(dir, *size) {
            Ok(()) => self.flash = *size,
            // Said once.
            Err(why) if looked.is_none() => {
                warn!(why, "flash is not lent");
                self.warnings.push(format!("flash is not lent: {why}"));
            }
            Err(_) => {}
        }
    }

    /// What there is now.
    pub(crate) fn look(&mut self) -> LendWindow {
        self.look_at_flash();
        let (times, settings) = (self.times, &self.settings);
        for (id, node) in &mut self.nodes {
            if let Some(why) = node.look(times, settings) {
                let store = node.store.word();
                warn!(id, store, why, "what was lent is gone");
                let size = Bytes(node.bytes).words();
                self.warnings.push(format!("lent {store} of {size}: {why}"));
            }
        }
        // One that was to end has.
        let there = |n: &Node| n.process.is_some() || matches!(n.state, State::Failed { .. });
        self.nodes.retain(|_, n| there(n));
        let nodes = self.nodes.iter().map(|(id, node)| NodeWindow {
            id: *id,
            bytes: node.bytes,
            store: node.store,
            state: match &node.state {
                State::Starting => NodeState::Starting,
                State::Ready { at } => NodeState::Ready { at: at.clone() },
                State::Ending { .. } => NodeState::Ending,
                State::Failed { why } => NodeState::Failed { why: why.clone() },
            },
        });
        LendWindow {
            memory_bytes: self.settings.memory.0,
            flash_bytes: self.flash.0,
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

    fn start(&mut self, NodeOrder { id, bytes, store }: NodeOrder) {
        if self.nodes.contains_key(&id) {
            return;
        }
        let (state, process, port) = match self.spawn(id, bytes, store) {
            Ok((process, port)) => {
                let pid = process.child.id();
                info!(id, bytes, store = store.word(), pid, "it is being lent");
                (State::Starting, Some(process), port)
            }
            Err(why) => {
                let store = store.word();
                warn!(id, store, why, "it is not lent");
                let size = Bytes(bytes).words();
                self.warnings.push(format!("lent {store} of {size}: {why}"));
                (State::Failed { why }, None, None)
            }
        };
        let node = Node {
            bytes,
            store,
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
        info!(id, store = node.store.word(), "it is not lent any more");
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
                made.map_err(|e| format!("cannot make {dir}: {e}"))?;
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

    fn spawn(
        &self,
        id: u64,
        bytes: u64,
        store: NodeStore,
    ) -> Result<(Process, Option<u16>), String> {
        let (listen, socket, port) = self.place(id)?;
        let mut command = Command::new(&self.settings.program);
        command.arg("cache-node");
        let size = Bytes(bytes).to_string();
        match (store, &self.settings.flash) {
            (NodeStore::Memory, _) => command.args(["--memory", &size]),
            (NodeStore::Flash, Some((_, dir))) => {
                command.arg("--flash").arg(dir).args(["--size", &size])
            }
            (NodeStore::Flash, None) => return Err("no flash is lent".into()),
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
            format!("{program} cannot be started: {e}")
        })?;
        let heard = match listen_to(&mut child) {
            Ok(heard) => heard,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no thread for its process: {e}"));
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

/// Ends all that there are. What has been killed and is not gone is the system's.
impl Drop for Lender {
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
            Err(e) => Some(format!("its process cannot be waited for: {e}")),
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
                warn!(pid, "a process that lent does not end: it is killed");
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

/// Threads that read what a process says until it has ended.
fn listen_to(child: &mut Child) -> std::io::Result<Heard> {
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
        .ok_or_else(|| "it says something else than where it listens".into())
}

/// What the hosts that use it connect to.
fn reached(uri: &str, settings: &LendSettings) -> Result<String, String> {
    let mut uri: nbd::Uri = uri
        .parse()
        .map_err(|e| format!("it says that it listens at {uri}: {e}"))?;
    if let Some(tls) = &mut uri.tls {
        tls.certificates.clone_from(&settings.client_certificates);
    }
    Ok(uri.to_string())
}

/// A port that nobody listens on. Somebody may before it is used: then its process ends, and says so.
fn free_port(address: IpAddr, (first, last): (u16, u16), used: &[u16]) -> Result<u16, String> {
    let mut ports = first..=last;
    let free = |port: &u16| !used.contains(port) && TcpListener::bind((address, *port)).is_ok();
    ports
        .find(free)
        .ok_or_else(|| format!("no port of {address} from {first} to {last} is free"))
}

/// Removes sockets of processes that were killed, and whose agent was before it could.
fn remove_left_behind(dir: &Path) {
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
fn shortened(mut text: String) -> String {
    if text.len() > WORDS_MAX {
        let end = (0..=WORDS_MAX).rev().find(|n| text.is_char_boundary(*n));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says where it listens, and ends with its input, as a node does.
    const GOOD: &str = r#"echo '{"schema":"terrace.export/1","export":"","uri":"nbds://192.0.2.7:10810/"}'; cat >/dev/null"#;

    struct Bench {
        lender: Lender,
        _dir: tempfile::TempDir,
    }

    /// A lender whose nodes are this script of a shell.
    fn bench(script: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("node");
        // Another process writes it: one that another test starts meanwhile would have it open for writing, too, and then it cannot be run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(&program).arg(script);
        assert!(shell.status().unwrap().success());
        let mut lender = Lender::new(LendSettings {
            memory: Bytes::mib(64),
            flash: None,
            listen: LendListen::Unix(dir.path().join("sockets").to_str().unwrap().into()),
            tls_certificates: None,
            client_certificates: Some("/etc/terrace/tls".into()),
            program,
        });
        lender.times = Times {
            begins: Duration::from_secs(5),
            ends: Duration::from_millis(200),
        };
        Bench { lender, _dir: dir }
    }

    impl Bench {
        fn start(&mut self, id: u64) {
            self.start_of(id, NodeStore::Memory);
        }

        fn start_of(&mut self, id: u64, store: NodeStore) {
            let bytes = Bytes::mib(1).0;
            let order = NodeOrder { id, bytes, store };
            self.lender.carry_out(LendAction::Start(order));
        }

        fn state(&mut self, id: u64) -> Option<NodeState> {
            let there = self.lender.look().nodes;
            there.into_iter().find(|n| n.id == id).map(|n| n.state)
        }

        /// Looks until it is so.
        fn until(&mut self, id: u64, is: impl Fn(Option<&NodeState>) -> bool) -> Option<NodeState> {
            let until = Instant::now() + Duration::from_secs(30);
            loop {
                let state = self.state(id);
                if is(state.as_ref()) {
                    return state;
                }
                assert!(Instant::now() < until, "{state:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }

        fn until_failed(&mut self, id: u64) -> String {
            let failed = |s: Option<&NodeState>| matches!(s, Some(NodeState::Failed { .. }));
            match self.until(id, failed) {
                Some(NodeState::Failed { why }) => why,
                other => panic!("{other:?}"),
            }
        }

        fn pid(&self, id: u64) -> u32 {
            self.lender.nodes[&id].process.as_ref().unwrap().child.id()
        }
    }

    fn is_ready(state: Option<&NodeState>) -> bool {
        matches!(state, Some(NodeState::Ready { .. }))
    }

    #[test]
    fn one_is_started_says_where_it_is_and_ends_when_it_is_told() {
        let mut bench = bench(GOOD);
        bench.start(5);
        let ready = bench.until(5, is_ready);
        // With the certificates of whoever uses it.
        let at = "nbds://192.0.2.7:10810/?tls-certificates=/etc/terrace/tls".into();
        assert_eq!(ready, Some(NodeState::Ready { at }));
        let pid = bench.pid(5);
        bench.lender.carry_out(LendAction::End { id: 5 });
        assert_eq!(bench.until(5, |s| s.is_none()), None);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(bench.lender.warnings().is_empty());
    }

    #[test]
    fn flash_that_cannot_be_lent_now_is_said_once_and_looked_at_again() {
        let mut bench = bench(GOOD);
        let dir = bench._dir.path().join("flash");
        bench.lender.settings.flash = Some((Bytes::mib(2), dir.clone()));
        for _ in 0..3 {
            assert_eq!(bench.lender.look().flash_bytes, 0);
        }
        let said = bench.lender.warnings();
        assert!(
            said.len() == 1 && said[0].contains("cannot make a file in"),
            "{said:?}"
        );
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(bench.lender.look().flash_bytes, 0, "not yet");
        bench.lender.flash_looked = Some(Instant::now() - FLASH_LOOK);
        assert_eq!(bench.lender.look().flash_bytes, Bytes::mib(2).0);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        let why = check_flash(&dir, Bytes(1 << 60)).unwrap_err();
        assert!(why.contains("is on a file system of"), "{why}");
    }

    /// What the process is asked for, it says as the reason for which it ends.
    #[test]
    fn each_store_is_asked_for_by_its_options() {
        let mut bench = bench(r#"echo "$*" >&2; exit 1"#);
        bench.lender.settings.flash = Some((Bytes::mib(256), "/mnt/flash".into()));
        for (store, asked) in [
            (NodeStore::Memory, "cache-node --memory 1 MiB --listen"),
            (
                NodeStore::Flash,
                "cache-node --flash /mnt/flash --size 1 MiB --listen",
            ),
        ] {
            bench.start_of(5, store);
            let why = bench.until_failed(5);
            assert!(why.contains(asked), "{why}");
            let there = bench.lender.look();
            assert_eq!(there.memory_bytes, 64 << 20);
            assert_eq!(there.nodes[0].store, store);
            bench.lender.carry_out(LendAction::End { id: 5 });
        }
        bench.lender.settings.flash = None;
        bench.start_of(5, NodeStore::Flash);
        assert_eq!(bench.until_failed(5), "no flash is lent");
    }

    #[test]
    fn one_that_is_killed_has_failed_until_nobody_orders_it() {
        let mut bench = bench(GOOD);
        bench.start(5);
        bench.until(5, is_ready);
        let process = bench.lender.nodes.get_mut(&5).unwrap().process.as_mut();
        process.unwrap().child.kill().unwrap();
        let why = bench.until_failed(5);
        assert!(why.contains("signal: 9"), "{why}");
        assert_eq!(bench.lender.warnings().len(), 1);
        // It is not started again by itself.
        bench.start(5);
        assert!(matches!(bench.state(5), Some(NodeState::Failed { .. })));
        bench.lender.carry_out(LendAction::End { id: 5 });
        assert_eq!(bench.state(5), None);
    }

    #[test]
    fn one_that_cannot_be_started_or_ends_at_once_has_failed_with_what_it_said() {
        let mut bench = bench("echo 'there is no memory' >&2; exit 3");
        bench.start(5);
        let why = bench.until_failed(5);
        assert!(why.contains("exit status: 3"), "{why}");
        assert!(why.contains("there is no memory"), "{why}");
        bench.lender.settings.program = "/nonexistent/terrace".into();
        bench.start(6);
        let why = bench.until_failed(6);
        assert!(
            why.contains("/nonexistent/terrace cannot be started"),
            "{why}"
        );
    }

    #[test]
    fn one_that_hangs_before_it_listens_or_lies_about_where_is_killed() {
        let mut silent = bench("exec sleep 1000");
        silent.lender.times.begins = Duration::from_millis(100);
        silent.start(5);
        let why = silent.until_failed(5);
        assert!(why.contains("it has not listened within"), "{why}");
        for (said, part) in [
            ("ready", "something else"),
            (r#"{"uri":"http://example/"}"#, "is not a scheme"),
            (r#"{"export":""}"#, "something else"),
        ] {
            let mut liar = bench(&format!("echo '{said}'; exec sleep 1000"));
            liar.start(5);
            let why = liar.until_failed(5);
            assert!(why.contains(part), "{said}: {why}");
        }
    }

    #[test]
    fn one_that_does_not_end_is_killed_and_has_its_memory_until_then() {
        let script = GOOD.replace("cat >/dev/null", "exec sleep 1000");
        let mut bench = bench(&script);
        bench.start(5);
        bench.until(5, is_ready);
        let pid = bench.pid(5);
        bench.lender.carry_out(LendAction::End { id: 5 });
        assert_eq!(bench.state(5), Some(NodeState::Ending));
        bench.until(5, |s| s.is_none());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn all_end_with_whoever_started_them() {
        let mut bench = bench(GOOD);
        for id in [5, 6, 7] {
            bench.start(id);
            bench.until(id, is_ready);
        }
        let pids = [5, 6, 7].map(|id| bench.pid(id));
        drop(bench);
        for pid in pids {
            assert!(!Path::new(&format!("/proc/{pid}")).exists());
        }
    }

    #[test]
    fn sockets_that_were_left_behind_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["7.sock", "other.sock"] {
            drop(std::os::unix::net::UnixListener::bind(path(name)).unwrap());
        }
        let _serving = std::os::unix::net::UnixListener::bind(path("8.sock")).unwrap();
        std::fs::write(path("9"), "").unwrap();
        remove_left_behind(dir.path());
        let there = ["7.sock", "8.sock", "other.sock", "9"].map(|name| path(name).exists());
        assert_eq!(there, [false, true, true, true]);
    }

    #[test]
    fn ports_are_of_the_range_and_free() {
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let taken = TcpListener::bind((local, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let why = free_port(local, (port, port), &[]).unwrap_err();
        assert!(why.contains("is free"), "{why}");
        drop(taken);
        assert_eq!(free_port(local, (port, port), &[]), Ok(port));
        assert!(free_port(local, (port, port), &[port]).is_err());
    }
}
