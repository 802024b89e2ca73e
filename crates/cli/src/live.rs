//! What the commands of the live data path share: which array, forms of output, limits, and the signal to end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, anyhow};
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
    /// Go on with what is there, and accept what is lost with it: `map`, where no copy of the map can be believed, or the name of a
    /// device that is not taken by itself; the error message says which, and what that means
    #[arg(long = "accept-loss", value_name = "WHAT")]
    accept: Vec<String>,
}

impl AcceptLossArg {
    /// As the data path takes it.
    pub fn words(&self) -> AcceptLoss {
        AcceptLoss(self.accept.iter().cloned().collect())
    }

    pub fn names(&self, what: &str) -> bool {
        self.accept.iter().any(|a| a == what)
    }
}

impl ArrayArg {
    /// Asks the array, or its server.
    pub fn ask(&self, ask: ControlRequest) -> anyhow::Result<ControlAnswer> {
        self.ask_accepting(ask, &AcceptLoss::default())
    }

    /// Asks several things, one after the other.
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
        let answer: Result<Vec<ControlAnswer>, String> = asked.collect();
        let answer = answer.map_err(|why| anyhow!(why))?;
        if let Some(why) = reach.not_believed() {
            message(&format!(
                "warning: this may not be the last state of the array: {why}"
            ));
        }
        Ok(answer.try_into().expect("an answer to each"))
    }

    /// Asks for something to be done, and says that it was.
    pub fn order(&self, ask: ControlRequest) -> anyhow::Result<()> {
        said(&self.ask(ask)?);
        Ok(())
    }

    /// [`ArrayArg::order`], and accepts what may be lost with it.
    pub fn order_accepting(
        &self,
        ask: ControlRequest,
        accept: &AcceptLossArg,
    ) -> anyhow::Result<()> {
        said(&self.ask_accepting(ask, &accept.words())?);
        Ok(())
    }

    /// One volume.
    pub fn show(&self, volume: &str) -> anyhow::Result<VolumeInfo> {
        one(self.ask(show(volume))?)
    }
}

/// The question after one volume.
pub fn show(volume: &str) -> ControlRequest {
    ControlRequest::Show {
        volume: volume.into(),
    }
}

/// The only volume of an answer.
pub fn one(answer: ControlAnswer) -> anyhow::Result<VolumeInfo> {
    match answer {
        ControlAnswer::Volumes { mut volumes } if volumes.len() == 1 => Ok(volumes.remove(0)),
        _ => Err(unexpected()),
    }
}

/// A server of another version, most likely.
pub fn unexpected() -> anyhow::Error {
    anyhow!(
        "the server answered something else: use the same version of terrace as the one that serves"
    )
}

/// An error of the data path, with its causes.
pub fn explained(error: impl std::error::Error) -> anyhow::Error {
    anyhow!(datapath::explain(&error))
}

/// Tells a person what was done.
pub fn said(answer: &ControlAnswer) {
    if let ControlAnswer::Done { message: text } = answer {
        message(text);
    }
}

/// To standard error. A message that cannot be shown is no reason to stop.
pub fn message(text: &str) {
    let _ = writeln!(io::stderr(), "{}", report::printable(text));
}

/// Wrong usage that clap cannot see: says so, and gives the exit code.
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
struct Versioned<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

impl OutputArg {
    pub fn form(&self) -> Form {
        self.output
    }

    /// Prints a value as JSON, or as the text that is made of it.
    pub fn print<T: Serialize>(
        &self,
        schema: &'static str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.put(schema, value, text, serde_json::to_string_pretty)
    }

    /// Prints one of many values that come over time: as a line of JSON, or as the text that is made of it.
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
        json: impl FnOnce(&Versioned<'a, T>) -> serde_json::Result<String>,
    ) -> anyhow::Result<()> {
        put(match self.output {
            Form::Table => text(value),
            Form::Json => json(&Versioned { schema, value }).context("cannot write JSON")? + "\n",
        })
    }
}

fn put(text: String) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Requests per second, as a plain number or with their unit.
pub fn parse_iops(text: &str) -> Result<Iops, String> {
    match text.trim().parse::<u64>() {
        Ok(number) => Ok(Iops(number as f64)),
        Err(_) => text
            .parse()
            .map_err(|e: <Iops as std::str::FromStr>::Err| e.to_string()),
    }
}

/// A path that another process understands too.
pub fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
}

/// Whether the user, or the system, wants this process to end.
static TO_END: AtomicBool = AtomicBool::new(false);

/// Whether the user, or the system, wants this process to end, where a [`Stop`] listens.
pub fn is_to_end() -> bool {
    TO_END.load(Ordering::Relaxed)
}

/// ControlAnswer when the user, or the system, wants this process to end.
pub struct Stop(Receiver<()>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Yes.
    On,
    /// No.
    Stop,
}

impl Stop {
    /// From now on, a signal does not end the process by itself.
    pub fn listen() -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        Self::listen_by(sender)?;
        Ok(Self(receiver))
    }

    /// Likewise, and the end of standard input is to end it too: whoever started this process wants that, or has gone.
    pub fn listen_with_input() -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        Self::listen_by(sender.clone())?;
        std::thread::Builder::new()
            .name("terrace-input".into())
            .spawn(move || {
                // What it says means nothing; an error is an end, too.
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                TO_END.store(true, Ordering::Relaxed);
                let _ = sender.send(());
            })
            .context("cannot wait for the end of the input")?;
        Ok(Self(receiver))
    }

    fn listen_by(sender: Sender<()>) -> anyhow::Result<()> {
        // Nobody listens any more when this ends anyway.
        ctrlc::set_handler(move || {
            TO_END.store(true, Ordering::Relaxed);
            let _ = sender.send(());
        })
        .context("cannot wait for signals to end")
    }

    /// Waits; whether to go on then.
    pub fn sleep(&self, time: Duration) -> Go {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Go::On,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Go::Stop,
        }
    }
}

/// A signal by which the system asks for something, and what that is.
pub type Wanted = (Signal, &'static str);

/// The configuration is to be read anew.
pub const HANGUP: Wanted = (Signal::SIGHUP, "which reads the configuration anew");

/// ControlAnswer of a signal.
pub struct Signalled(Receiver<()>);

impl Signalled {
    /// From now on these signals do not end the process. To be called once, before threads begin: they inherit that.
    pub fn listen<const N: usize>(wanted: [Wanted; N]) -> anyhow::Result<[Self; N]> {
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

    /// Whether it came since this was last asked.
    pub fn came(&self) -> bool {
        self.0.try_iter().count() > 0
    }
}
