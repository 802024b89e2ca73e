//! Common parts of the commands of the live data path: arguments for array and output, limits, and handling of signals.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::{Args, ValueEnum};
use datapath::control_server::{ControlAnswer, ControlRequest, VolumeInfo};
use datapath::{AcceptLoss, Reach};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use units::Iops;

/// Which array.
#[derive(Debug, Args)]
pub struct ArrayArg {
    /// Directory of the array
    #[arg(
        long,
        value_name = "DIR",
        env = "TERRACE_ARRAY",
        default_value = "terrace-array"
    )]
    pub array: PathBuf,
}

/// What may be lost.
#[derive(Debug, Args)]
pub struct AcceptLossArg {
    /// Start despite a loss, and accept it: `map` if no copy of the map is usable, or the name of a device that is
    /// missing or damaged. The error message names the word and describes the loss
    #[arg(long = "accept-loss", value_name = "WHAT")]
    accept: Vec<String>,
    /// Take over remote tiers that their last server did not release. Waits up to six seconds for
    /// heartbeats; a server that still runs keeps its tiers
    #[arg(long)]
    force_remote: bool,
}

impl AcceptLossArg {
    /// Converts the arguments to the type of the data path.
    pub fn words(&self) -> AcceptLoss {
        let remote = self.force_remote.then(|| AcceptLoss::REMOTE.to_owned());
        AcceptLoss(self.accept.iter().cloned().chain(remote).collect())
    }

    pub fn names(&self, what: &str) -> bool {
        self.accept.iter().any(|a| a == what)
    }
}

impl ArrayArg {
    /// Sends a request to the server of the array, or executes it on an array that is not served.
    pub fn ask(&self, ask: ControlRequest) -> anyhow::Result<ControlAnswer> {
        self.ask_accepting(ask, &AcceptLoss::default())
    }

    /// Sends several requests, one after the other.
    pub fn ask_each<const N: usize>(
        &self,
        asks: [ControlRequest; N],
    ) -> anyhow::Result<[ControlAnswer; N]> {
        self.ask_each_accepting(asks, &AcceptLoss::default())
    }

    fn ask_accepting(
        &self,
        ask: ControlRequest,
        accept: &AcceptLoss,
    ) -> anyhow::Result<ControlAnswer> {
        let [answer] = self.ask_each_accepting([ask], accept)?;
        Ok(answer)
    }

    fn ask_each_accepting<const N: usize>(
        &self,
        asks: [ControlRequest; N],
        accept: &AcceptLoss,
    ) -> anyhow::Result<[ControlAnswer; N]> {
        let reach = Reach::find_accepting(&self.array, accept).map_err(explained)?;
        let asked = asks.into_iter().map(|ask| reach.ask(ask));
        let answer: datapath::Result<Vec<ControlAnswer>> = asked.collect();
        let answer = answer.map_err(|why| anyhow!(why))?;
        if let Some(why) = reach.not_believed() {
            message(&format!(
                "warning: the shown state of the array may be out of date: {why}"
            ));
        }
        Ok(answer.try_into().expect("an answer to each"))
    }

    /// Sends a request for an action and prints the reply.
    pub fn order(&self, ask: ControlRequest) -> anyhow::Result<()> {
        said(&self.ask(ask)?);
        Ok(())
    }

    /// Sends a request as [`ArrayArg::order`] does, and accepts the given losses.
    pub fn order_accepting(
        &self,
        ask: ControlRequest,
        accept: &AcceptLossArg,
    ) -> anyhow::Result<()> {
        said(&self.ask_accepting(ask, &accept.words())?);
        Ok(())
    }

    /// Requests the state of one volume.
    pub fn show(&self, volume: &str) -> anyhow::Result<VolumeInfo> {
        one(self.ask(show(volume))?)
    }
}

/// Returns the request for the state of one volume.
pub fn show(volume: &str) -> ControlRequest {
    ControlRequest::Show {
        volume: volume.into(),
    }
}

/// Returns the only volume of a reply.
pub fn one(answer: ControlAnswer) -> anyhow::Result<VolumeInfo> {
    match answer {
        ControlAnswer::Volumes { mut volumes } if volumes.len() == 1 => Ok(volumes.remove(0)),
        _ => Err(unexpected()),
    }
}

/// Returns the error for an unexpected reply. The server probably has another version.
pub fn unexpected() -> anyhow::Error {
    anyhow!("unexpected reply of the server: use the version of terrace that serves the array")
}

/// Converts an error of the data path, with its causes.
pub fn explained(error: impl std::error::Error) -> anyhow::Error {
    anyhow!(datapath::explain(&error))
}

/// Checks that the worker of a volume is not stalled, for a command that follows the state of the volume.
///
/// # Errors
/// If the worker is stalled.
pub fn responds(info: &VolumeInfo) -> anyhow::Result<()> {
    ensure!(
        !info.stalled,
        "the worker of volume {:?} does not respond: restart the server if it does not recover",
        info.name
    );
    Ok(())
}

/// Combines the result of a command with that of the stop of its server. If both failed, this prints the error of the stop.
pub fn stopped_after<T, S>(
    done: anyhow::Result<T>,
    stopped: Result<S, impl std::error::Error>,
) -> anyhow::Result<T> {
    match (done, stopped.map_err(explained)) {
        (done, Ok(_)) => done,
        (Ok(_), Err(why)) => Err(why),
        (Err(first), Err(why)) => {
            message(&format!("error: {why}"));
            Err(first)
        }
    }
}

/// Prints the message of a completed action to standard error.
pub fn said(answer: &ControlAnswer) {
    if let ControlAnswer::Done { message: text } = answer {
        message(text);
    }
}

/// Prints a message to standard error. Errors are ignored: a message that cannot be printed must not stop the command.
pub fn message(text: &str) {
    let _ = writeln!(io::stderr(), "{}", report::printable(text));
}

/// Reports wrong usage that clap cannot detect, and returns the exit code.
pub fn wrong_usage(text: &str) -> ExitCode {
    message(&format!("error: {text}"));
    ExitCode::from(2)
}

/// Form of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For programs; the layout names its version
    Json,
}

/// `-o`
#[derive(Debug, Args)]
pub struct OutputArg {
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Form,
}

#[derive(Serialize)]
struct VersionedDocument<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

impl OutputArg {
    pub fn form(&self) -> Form {
        self.output
    }

    /// Prints a value as JSON, or as the text that `text` makes from it.
    pub fn print<T: Serialize>(
        &self,
        schema: &'static str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.put(schema, value, text, serde_json::to_string_pretty)
    }

    /// Prints one value of a sequence: as a line of JSON, or as the text that `text` makes from it.
    pub fn print_next<T: Serialize>(
        &self,
        schema: &'static str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.put(schema, value, text, serde_json::to_string)
    }

    fn put<'a, T: Serialize>(
        &self,
        schema: &'static str,
        value: &'a T,
        text: impl FnOnce(&T) -> String,
        json: impl FnOnce(&VersionedDocument<'a, T>) -> serde_json::Result<String>,
    ) -> anyhow::Result<()> {
        put(match self.output {
            Form::Table => text(value),
            Form::Json => {
                json(&VersionedDocument { schema, value }).context("cannot write JSON")? + "\n"
            }
        })
    }
}

fn put(text: String) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Parses requests per second, as a plain number or with a unit.
pub fn parse_iops(text: &str) -> Result<Iops, String> {
    match text.trim().parse::<u64>() {
        Ok(number) => Ok(Iops(number as f64)),
        Err(_) => text
            .parse()
            .map_err(|e: <Iops as std::str::FromStr>::Err| e.to_string()),
    }
}

/// Returns the absolute path, which is also valid in processes with another working directory.
pub fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
}

/// True after a stop order of the user or the system.
static TO_END: AtomicBool = AtomicBool::new(false);

/// Returns true after a stop order of the user or the system. Always false if no [`Stop`] listens.
pub fn is_to_end() -> bool {
    TO_END.load(Ordering::Relaxed)
}

/// Time limit for the stop of a server. At the limit it reports the step that hangs and exits. The limit is below `TimeoutStopSec=` of its
/// systemd units (60 s), after which systemd kills it without a report.
pub const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(55);

/// Time limit for the stop of agents and cache nodes, whose systemd units have 15 s.
pub const AGENT_ENDS_WITHIN: Duration = Duration::from_secs(13);

/// Time limit for the last message of a process. It protects the exit from a full pipe at standard error.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Timer that exits the process if it does not end by itself in time. It does not need the main thread, which may hang.
#[derive(Clone)]
struct Backstop {
    limit: Duration,
    step: Arc<Mutex<&'static str>>,
    begun: Arc<AtomicBool>,
}

impl Backstop {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            step: Arc::new(Mutex::new("starting")),
            begun: Arc::default(),
        }
    }

    /// Starts the timer. Later calls have no effect.
    fn begin(&self, exit: impl FnOnce(&str) + Send + 'static) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (limit, step) = (self.limit, self.step.clone());
        let wait = move || {
            std::thread::sleep(limit);
            let step = *step.lock().unwrap_or_else(PoisonError::into_inner);
            exit(&format!(
                "still {step} {} s after the stop order: this process exits now. Acknowledged writes are safe, and the next start treats an array as after a crash",
                limit.as_secs()
            ));
        };
        let thread = std::thread::Builder::new().name("terrace-backstop".into());
        // Without a thread, the service manager kills the process later.
        let _ = thread.spawn(wait);
    }
}

fn exit_saying(why: &str) {
    let (said, over) = channel();
    let why = format!("error: {why}");
    std::thread::spawn(move || {
        message(&why);
        let _ = said.send(());
    });
    let _ = over.recv_timeout(LAST_WORDS);
    std::process::exit(1);
}

/// Receiver of the stop order of the user or the system.
pub struct Stop {
    ordered: Receiver<()>,
    backstop: Option<Backstop>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Continue.
    On,
    /// Stop: a stop order arrived.
    Stop,
}

impl Stop {
    /// Starts to listen. From then on a signal is a stop order, and does not end the process directly.
    pub fn listen() -> anyhow::Result<Self> {
        Self::listen_by(None).map(|(stop, _)| stop)
    }

    /// Starts to listen as [`Stop::listen`] does, with a time limit for the end of the process after the signal. At the limit the process
    /// exits with an error that names the step of [`Stop::doing`].
    pub fn listen_within(limit: Duration) -> anyhow::Result<Self> {
        Self::listen_by(Some(Backstop::new(limit))).map(|(stop, _)| stop)
    }

    /// Starts to listen as [`Stop::listen_within`] does. The end of standard input is also a stop order: the parent process closed it, or has
    /// ended.
    pub fn listen_with_input(limit: Duration) -> anyhow::Result<Self> {
        let (stop, order) = Self::listen_by(Some(Backstop::new(limit)))?;
        std::thread::Builder::new()
            .name("terrace-input".into())
            .spawn(move || {
                // The content of the input is ignored. A read error counts as its end.
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                order();
            })
            .context("cannot wait for the end of the input")?;
        Ok(stop)
    }

    /// Starts to listen. Also returns the function that orders the stop.
    fn listen_by(
        backstop: Option<Backstop>,
    ) -> anyhow::Result<(Self, impl Fn() + Clone + Send + 'static)> {
        let (sender, ordered) = channel();
        let armed = backstop.clone();
        let order = move || {
            TO_END.store(true, Ordering::Relaxed);
            if let Some(backstop) = &armed {
                backstop.begin(exit_saying);
            }
            let _ = sender.send(()); // fails only if the process ends anyway
        };
        ctrlc::set_handler(order.clone()).context("cannot wait for signals to end")?;
        Ok((Self { ordered, backstop }, order))
    }

    /// Sets the name of the current step, for the error that reports a hang.
    pub fn doing(&self, step: &'static str) {
        if let Some(backstop) = &self.backstop {
            *backstop.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
        }
    }

    /// Waits for `time`, or until a stop order. Returns whether the command continues.
    pub fn sleep(&self, time: Duration) -> Go {
        match self.ordered.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Go::On,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Go::Stop,
        }
    }
}

/// Signal with a description of its effect.
pub type SignalSpec = (Signal, &'static str);

/// Signal to read the configuration again.
pub const HANGUP: SignalSpec = (Signal::SIGHUP, "which reads the configuration anew");

/// Receiver of a signal.
pub struct SignalReceiver(Receiver<()>);

impl SignalReceiver {
    /// Blocks these signals and starts to listen for them: from then on they do not end the process. Call it once, before any thread starts,
    /// because threads inherit the blocked signals.
    pub fn listen<const N: usize>(wanted: [SignalSpec; N]) -> anyhow::Result<[Self; N]> {
        let mut signals = SigSet::empty();
        wanted.iter().for_each(|w| signals.add(w.0));
        let blocked = signals.thread_block();
        blocked.context("cannot wait for signals")?;
        let each = wanted.map(|(signal, what_for)| {
            let mut signals = SigSet::empty();
            signals.add(signal);
            let (sender, receiver) = channel();
            std::thread::Builder::new()
                .name("terrace-signal".into())
                .spawn(move || while signals.wait().is_ok() && sender.send(()).is_ok() {})
                .with_context(|| format!("cannot wait for {signal}, {what_for}"))?;
            Ok(Self(receiver))
        });
        let each: Result<Vec<Self>, anyhow::Error> = each.into_iter().collect();
        Ok(each?
            .try_into()
            .unwrap_or_else(|_| unreachable!("one for each")))
    }

    /// Returns true if the signal arrived since the last call.
    pub fn came(&self) -> bool {
        self.0.try_iter().count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn backstop_names_the_hanging_step_and_exits_once() {
        let backstop = Backstop::new(Duration::from_millis(50));
        let stop = Stop {
            ordered: channel().1,
            backstop: Some(backstop.clone()),
        };
        let (exited, exits) = channel();
        for _ in 0..2 {
            let exited = exited.clone();
            backstop.begin(move |why| exited.send(why.to_owned()).unwrap());
            stop.doing("stopping the array");
        }
        drop(exited);
        let why = exits.recv_timeout(PATIENCE).unwrap();
        assert!(why.contains("still stopping the array 0 s after"), "{why}");
        let more = exits.recv_timeout(PATIENCE);
        assert_eq!(more, Err(RecvTimeoutError::Disconnected), "it exits once");
    }

    /// Environment variable of the process that the test below starts, which runs the same test.
    const HANGS: &str = "TERRACE_TEST_HANGS";

    #[test]
    fn process_whose_main_thread_hangs_exits_with_an_error() {
        if std::env::var_os(HANGS).is_some() {
            let stop = Stop::listen_within(Duration::from_millis(50)).unwrap();
            stop.doing("waiting in a test");
            nix::sys::signal::raise(Signal::SIGTERM).unwrap();
            std::thread::sleep(PATIENCE);
            return;
        }
        let name = "live::tests::process_whose_main_thread_hangs_exits_with_an_error";
        let hanging = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(HANGS, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&hanging.stderr);
        assert_eq!(hanging.status.code(), Some(1), "{said}");
        assert!(said.contains("still waiting in a test 0 s after"), "{said}");
    }

    #[test]
    fn limits_of_a_stop_are_below_those_of_the_systemd_units() {
        let seconds = |unit: &str| -> u64 {
            let line = unit.lines().find_map(|l| l.strip_prefix("TimeoutStopSec="));
            line.unwrap().strip_suffix('s').unwrap().parse().unwrap()
        };
        let server = [
            include_str!("../../packaging/systemd/terrace.service"),
            include_str!("../../packaging/systemd/terrace-export.service"),
        ];
        let agent = [
            include_str!("../../packaging/systemd/terrace-agent.service"),
            include_str!("../../packaging/systemd/terrace-cache-node.service"),
        ];
        for unit in server {
            assert!(SERVER_ENDS_WITHIN + LAST_WORDS < Duration::from_secs(seconds(unit)));
        }
        for unit in agent {
            assert!(AGENT_ENDS_WITHIN + LAST_WORDS < Duration::from_secs(seconds(unit)));
        }
        // The server reports a hang before the backstop exits the process.
        assert!(datapath::STOP_WITHIN < SERVER_ENDS_WITHIN);
    }
}
