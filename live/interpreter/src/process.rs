//! Pair of processes of one strategy, and the protocol with them.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use planner::hosted::WantedMove;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::Deserialize;
use serde_json::Value;

use crate::error::InterpreterError;

/// Longest reply. Protects memory from a strategy that writes without end.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Hash seeds of the processes. An order of a set that reaches a decision differs between them.
const HASH_SEEDS: [&str; 2] = ["1", "2"];

/// Longest time of a start under a live controller.
const START_MAX: Duration = Duration::from_secs(60);

/// Longest time from the end of a process's output to its own end.
const END_MAX: Duration = Duration::from_secs(1);

/// Name of the threads for processes.
pub(crate) const THREAD: &str = "strategy";

/// Limits of the processes of a live controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time of a decision.
    pub decision: Duration,
    /// Most address space of each process, bytes.
    pub memory: u64,
}

/// First line of a process.
#[derive(Debug, Clone, Deserialize)]
pub struct ReadyLine {
    /// Version of the package.
    pub version: String,
    /// True if the strategy also decides in epochs without placement.
    pub every_epoch: bool,
    /// Hash of everything that the strategy is made of.
    pub source: String,
}

/// Line of a process.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    /// The strategy is loaded.
    Ready(ReadyLine),
    /// Reply to a request.
    Decided {
        number: u64,
        moves: Vec<WantedMove>,
        state: Value,
    },
    /// Exception.
    Failed { error: String, traceback: String },
}

/// Process of a strategy, in a process group of its own. A thread starts it, writes requests and reads replies, so a process that does neither
/// blocks no caller. The thread lives as long as the process, because the process is killed with it (`_serve.py`).
struct Process {
    program: String,
    child: Child,
    /// Standard input and output of the process.
    stream: UnixStream,
    requests: Option<Sender<Arc<[u8]>>>,
    replies: Receiver<Vec<u8>>,
    ready: Option<ReadyLine>,
}

impl Process {
    fn start(
        program: &OsStr,
        name: &Path,
        hash_seed: &str,
        memory: Option<u64>,
    ) -> Result<Self, InterpreterError> {
        let mut command = Command::new(program);
        command.args(["-m", "terrace", "strategy"]).arg(name);
        if let Some(memory) = memory {
            command.arg("--memory").arg(memory.to_string());
        }
        command.env("PYTHONHASHSEED", hash_seed);
        command.process_group(0);
        let program = program.to_string_lossy().into_owned();
        let failed = |source| InterpreterError::Start {
            program: program.clone(),
            source,
        };
        let stream = connect(&mut command).map_err(failed)?;
        let own = stream.try_clone().map_err(failed)?;
        let (to_thread, requests) = mpsc::channel();
        let (from_thread, replies) = mpsc::channel();
        let (to_caller, spawned) = mpsc::channel();
        let named = std::thread::Builder::new().name(THREAD.into());
        let thread = named.spawn(move || {
            let _ = to_caller.send(command.spawn());
            // Only the process has the other end of the stream now.
            drop(command);
            converse(&own, &requests, from_thread);
            // The process may still end by itself.
            while requests.recv().is_ok() {}
        });
        thread.map_err(failed)?;
        let child = spawned.recv().expect("the thread sends the process");
        let child = child.map_err(failed)?;
        Ok(Self {
            program,
            child,
            stream,
            requests: Some(to_thread),
            replies,
            ready: None,
        })
    }

    /// Next line, as a reply.
    fn reply(
        &mut self,
        limits: Option<Limits>,
        deadline: Option<Instant>,
    ) -> Result<Reply, InterpreterError> {
        let received = match (limits, deadline) {
            (Some(limits), Some(deadline)) => {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.replies.recv_timeout(left) {
                    Err(RecvTimeoutError::Timeout) => {
                        return Err(InterpreterError::Late {
                            limit: limits.decision,
                        });
                    }
                    received => received.ok(),
                }
            }
            _ => self.replies.recv().ok(),
        };
        let line = received.ok_or_else(|| InterpreterError::Ended {
            status: self.end(END_MAX),
        })?;
        let invalid = |e: serde_json::Error| InterpreterError::Invalid { why: e.to_string() };
        match serde_json::from_slice(&line).map_err(invalid)? {
            Reply::Failed { error, traceback } => {
                Err(InterpreterError::Raised { error, traceback })
            }
            reply => Ok(reply),
        }
    }

    /// Waits for the first line, unless it was read before.
    fn ready(
        &mut self,
        limits: Option<Limits>,
        deadline: Option<Instant>,
    ) -> Result<ReadyLine, InterpreterError> {
        if let Some(ready) = &self.ready {
            return Ok(ready.clone());
        }
        let program = self.program.clone();
        match self.reply(limits, deadline) {
            Ok(Reply::Ready(ready)) if ready.version == env!("CARGO_PKG_VERSION") => {
                Ok(self.ready.insert(ready).clone())
            }
            Ok(Reply::Ready(ReadyLine { version, .. })) => Err(InterpreterError::Version {
                program,
                package: version,
            }),
            Err(InterpreterError::Ended { status }) => {
                Err(InterpreterError::NotInstalled { program, status })
            }
            Ok(_) => Err(InterpreterError::Invalid {
                why: "a decision before the first request".into(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Stops the process, unless it ends by itself within that time, and the processes that it has started. Returns the way in which it ended.
    fn end(&mut self, patience: Duration) -> String {
        let until = Instant::now() + patience;
        let pid = Pid::from_child(&self.child);
        // The ended process keeps its number, and so that of the group, until its status is taken.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(pid), ended), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let status = self.child.wait();
        // Ends the thread, even if a process outside the group has the other end of the stream.
        self.requests = None;
        let _ = self.stream.shutdown(Shutdown::Both);
        status.map_or_else(|e| e.to_string(), |s| s.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.requests.is_some() {
            self.end(Duration::ZERO);
        }
    }
}

/// Makes a stream the standard input and output of a process. Returns the other end.
fn connect(command: &mut Command) -> io::Result<UnixStream> {
    let (own, other) = UnixStream::pair()?;
    command.stdin(OwnedFd::from(other.try_clone()?));
    command.stdout(OwnedFd::from(other));
    Ok(own)
}

/// Reads the first line; then writes each request and reads its reply, until either end is closed.
fn converse(mut stream: &UnixStream, requests: &Receiver<Arc<[u8]>>, replies: Sender<Vec<u8>>) {
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut lines).take(REPLY_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line);
        // The start of a longer line is sent, and refused as invalid.
        if read.is_err() || line.is_empty() || replies.send(line).is_err() {
            return;
        }
        let Ok(request) = requests.recv() else {
            return;
        };
        if stream.write_all(&request).is_err() {
            return;
        }
    }
}

/// Two processes of one strategy.
pub struct Pair {
    processes: [Process; 2],
    limits: Option<Limits>,
    started: Instant,
    /// Number of the last request.
    number: u64,
}

impl Pair {
    /// Starts both processes, and waits for neither. `name` is `FILE.py:CLASS`.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(
        program: &OsStr,
        name: &Path,
        limits: Option<Limits>,
    ) -> Result<Self, InterpreterError> {
        let memory = limits.map(|l| l.memory);
        let [first, second] = HASH_SEEDS.map(|seed| Process::start(program, name, seed, memory));
        Ok(Self {
            processes: [first?, second?],
            limits,
            started: Instant::now(),
            number: 0,
        })
    }

    /// Number of the next request.
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Time at which a decision that begins now is late.
    pub fn deadline(&self) -> Option<Instant> {
        self.limits.map(|l| Instant::now() + l.decision)
    }

    /// Waits until the strategy is loaded, and describes it; `None` if it still starts at the deadline.
    ///
    /// # Errors
    /// A package that is missing, a file that cannot be loaded, a start that takes longer than [`START_MAX`].
    pub fn ready(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<ReadyLine>, InterpreterError> {
        let [first, second] = &mut self.processes;
        let second = second.ready(self.limits, deadline);
        match second.and_then(|_| first.ready(self.limits, deadline)) {
            Ok(ready) => Ok(Some(ready)),
            Err(InterpreterError::Late { .. }) if self.started.elapsed() < START_MAX => Ok(None),
            Err(InterpreterError::Late { .. }) => Err(InterpreterError::Late { limit: START_MAX }),
            Err(error) => Err(error),
        }
    }

    /// Sends a request, one line with the last [`Pair::next_number`], to both processes. Returns their decision at the time `at_s` of the facts.
    ///
    /// # Errors
    /// A process that fails or is late; different decisions.
    pub fn decide(
        &mut self,
        request: Vec<u8>,
        at_s: f64,
        deadline: Option<Instant>,
    ) -> Result<(Vec<WantedMove>, Value), InterpreterError> {
        let request: Arc<[u8]> = request.into();
        for process in &self.processes {
            let requests = process.requests.as_ref();
            // A thread that has ended left its reason in the replies.
            let _ = requests.map(|r| r.send(Arc::clone(&request)));
        }
        let (limits, expected) = (self.limits, self.number);
        let mut decided = |i: usize| match self.processes[i].reply(limits, deadline)? {
            Reply::Decided {
                number,
                moves,
                state,
            } if number == expected => Ok((moves, state)),
            Reply::Decided { number, .. } => {
                Err(InterpreterError::OtherRequest { number, expected })
            }
            _ => Err(InterpreterError::Invalid {
                why: "not a decision".into(),
            }),
        };
        let (first, second) = (decided(0)?, decided(1)?);
        let different = |part| Err(InterpreterError::NotDeterministic { at_s, part });
        match (first.0 == second.0, first.1 == second.1) {
            (true, true) => Ok(first),
            (false, _) => different("moves"),
            (true, false) => different("states"),
        }
    }
}
