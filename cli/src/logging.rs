//! Logs of servers: lines on standard error, for people and for the journal.
//!
//! ```text
//!   2026-07-31T12:00:00.000000Z warning: device I/O error device=slow-0 op=write errno=EIO volume=mail      a terminal, a file
//!   <4>device I/O error device=slow-0 op=write errno=EIO volume=mail                                        under systemd
//! ```
//!
//! systemd sets `JOURNAL_STREAM`, adds the time itself, and reads the priority from `<4>`. A separate thread writes the lines, because
//! standard error may be a pipe without a reader, and requests of guests must not wait for it. Lines that do not fit into the queue are
//! counted and lost.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Largest number of queued lines. It bounds memory while standard error is blocked.
const LINES_MAX: usize = 1024;

/// Longest time that the end of the program waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How much a server says.
#[derive(Debug, Clone, Copy, Args)]
pub struct LogArg {
    /// Level of messages on standard error
    #[arg(
        long = "log",
        value_name = "LEVEL",
        env = "TERRACE_LOG",
        default_value = "info"
    )]
    level: LogLevel,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogLevel {
    /// Nothing
    Off,
    /// Failures that end a part of the server
    Error,
    /// Errors and problems
    Warn,
    /// Also completed actions
    Info,
    /// Also details for developers
    Debug,
}

impl LogArg {
    /// Starts to write events as lines.
    pub fn begin(self) -> LogGuard {
        let max = match self.level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        let (lines, incoming) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let thread = std::thread::Builder::new().name("terrace-log".into());
        // If no thread can be started, the process fails anyway.
        let _ = thread.spawn(move || write_lines(&incoming, &counted));
        let lines = Lines { lines, lost };
        let journal = std::env::var_os("JOURNAL_STREAM").is_some();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(max)
            .log_internal_errors(false)
            .event_format(Form { journal })
            .with_writer(lines.clone())
            .finish();
        // An error means that a subscriber is already set. This is the only one.
        let _ = tracing::subscriber::set_global_default(subscriber);
        LogGuard(lines)
    }
}

/// Guard that waits for the last lines on drop.
pub struct LogGuard(Lines);

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, over) = sync_channel(1);
        if self.0.lines.try_send(Line::Last(done)).is_ok() {
            let _ = over.recv_timeout(LAST_LINES);
        }
    }
}

enum Line {
    Text(Vec<u8>),
    /// Marker: the thread replies when all lines before it are written.
    Last(SyncSender<()>),
}

/// Queue to the thread that writes.
#[derive(Clone)]
struct Lines {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl io::Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Line::Text(line.into())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(lines: &Receiver<Line>, lost: &AtomicU64) {
    // A line that cannot be written must not end the process.
    for line in lines {
        match line {
            Line::Text(text) => drop(io::stderr().write_all(&text)),
            Line::Last(done) => drop(done.send(())),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(io::stderr(), "warning: {lost} lines were not written");
        }
    }
}

/// Format of a line.
struct Form {
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (priority, word) = match *event.metadata().level() {
            Level::ERROR => (3, "error"),
            Level::WARN => (4, "warning"),
            Level::INFO => (6, "note"),
            Level::DEBUG | Level::TRACE => (7, "debug"),
        };
        if self.journal {
            write!(to, "<{priority}>")?;
        } else {
            SystemTime.format_time(&mut to)?;
            write!(to, " {word}: ")?;
        }
        let mut said = EventText::default();
        event.record(&mut said);
        // Names come from other parties: escapes prevent that one event looks like two lines.
        writeln!(to, "{}", report::printable(&(said.message + &said.fields)))
    }
}

/// Text of an event.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl EventText {
    fn add(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
            return;
        }
        let plain = |c: char| !c.is_whitespace() && c != '"' && c != '=';
        let quoted = value.is_empty() || !value.chars().all(plain);
        let _ = match quoted {
            true => write!(self.fields, " {}={value:?}", field.name()),
            false => write!(self.fields, " {}={value}", field.name()),
        };
    }
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line that is written for an event.
    fn written(journal: bool, event: impl FnOnce()) -> String {
        let (lines, incoming) = sync_channel(LINES_MAX);
        let lost = Arc::default();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Form { journal })
            .with_writer(Lines { lines, lost })
            .finish();
        tracing::subscriber::with_default(subscriber, event);
        let texts = incoming.try_iter().map(|line| match line {
            Line::Text(text) => String::from_utf8(text).unwrap(),
            Line::Last(_) => String::new(),
        });
        texts.collect()
    }

    #[test]
    fn journal_log_lines_have_priorities_and_no_time() {
        let said = written(true, || {
            tracing::warn!(device = "slow-0", errno = "EIO", "device I/O error");
            tracing::info!(job = 7, why = "no \"room\"\nat all", "given up");
            tracing::debug!("not shown");
        });
        let expected = "<4>device I/O error device=slow-0 errno=EIO\n<6>given up job=7 why=\"no \\\"room\\\"\\nat all\"\n";
        assert_eq!(said, expected);
    }

    #[test]
    fn terminal_log_lines_have_time_and_level() {
        let said = written(false, || tracing::error!("it\u{1b}[2J ended"));
        let (time, rest) = said.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.len() == "2026-07-31T12:00:00.000000Z".len());
        assert_eq!(rest, "error: it\u{fffd}[2J ended\n");
    }

    #[test]
    fn log_writer_with_full_queue_drops_lines_and_does_not_block() {
        let (lines, incoming) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let lines = Lines {
            lines,
            lost: lost.clone(),
        };
        for _ in 0..5 {
            (&lines).write_all(b"line\n").unwrap();
        }
        assert_eq!(lost.load(Ordering::Relaxed), 4);
        drop(incoming);
        (&lines).write_all(b"line\n").unwrap();
    }
}
