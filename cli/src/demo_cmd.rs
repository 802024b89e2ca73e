//! `terrace demo`: demonstration of the complete live manager in a few minutes.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use demo::{DemoEvent, DemoResult, DemoSettings, ViolationResult};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use manager::view::EventKind;
use serde::Serialize;

use crate::live::{Form, Go, OutputArg, Stop, explained, message};

/// Strategies that `--compare` runs in addition to the chosen one.
const RIVALS: [&str; 2] = ["static", "idt"];

/// Interval of plain lines without a terminal, seconds.
const LINE_EVERY_S: u64 = 10;

/// `terrace demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Length of the load
    #[arg(long, value_name = "N", default_value = "160", value_parser = clap::value_parser!(u64).range(40..=3600))]
    seconds: u64,
    /// The strategy
    #[arg(long, value_name = "STRATEGY", default_value = planner::DEFAULT_STRATEGY)]
    strategy: String,
    /// Also run the same load under static and idt, one after the other
    #[arg(long)]
    compare: bool,
    /// Demonstrate the response to an objective that a neighbour violates, instead of placement (one minute is enough)
    #[arg(long, conflicts_with_all = ["strategy", "compare"])]
    violation: bool,
    /// Seed of the guests
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    output: OutputArg,
}

/// Results by strategy.
#[derive(Serialize)]
struct Runs<'a> {
    runs: Vec<report::DemoTable<'a>>,
}

/// Runs `terrace demo`.
pub fn run(what: &Demo) -> anyhow::Result<ExitCode> {
    if what.violation {
        return violation(what);
    }
    let mut strategies = vec![what.strategy.as_str()];
    if what.compare {
        strategies.extend(RIVALS.iter().filter(|r| **r != what.strategy));
    }
    for strategy in &strategies {
        planner::find(strategy)?;
    }
    let stop = Stop::listen()?;
    let mut results = Vec::new();
    for strategy in strategies {
        let result = one(what, strategy, &stop)?;
        if what.output.form() == Form::Table {
            let mut out = io::stdout().lock();
            write!(out, "{}", report::demo(&shown(&result)))?;
            out.flush()?;
        }
        results.push(result);
    }
    let runs = results.iter().map(shown).collect();
    what.output.print("terrace.demo/1", &Runs { runs }, |all| {
        match all.runs.len() {
            1 => String::new(), // already printed
            _ => report::demo_compared(&all.runs),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn violation(what: &Demo) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen()?;
    let screen = RefCell::new(Screen::new(what.seconds, "violation"));
    let mut on = |event: DemoEvent<'_>| screen.borrow_mut().show(&event);
    let go_on = || stop.sleep(Duration::ZERO) == Go::On;
    let result = demo::violation(what.seconds, what.seed, &mut on, &go_on).map_err(explained);
    screen.borrow().bar.finish_and_clear();
    let result = result?;
    what.output
        .print("terrace.demo.violation/1", &result, violated)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats the result of a violation.
fn violated(result: &ViolationResult) -> String {
    let mut lines = vec![
        "time is scaled: windows of 1 s instead of 10 s; a violation is 5 of 6 windows above the objective instead of 43 of 44".to_owned(),
        format!("mean latency of volume orders as its guest measures it; the objective is {:.0} ms", result.objective_ms),
    ];
    for s in result.stretches() {
        let ms = s.latency_ms.map_or("–".into(), |ms| format!("{ms:.1} ms"));
        lines.push(format!(
            "  {:>4} s to {:>4} s  {ms:>10}  {}",
            s.from_s, s.to_s, s.name
        ));
    }
    for r in &result.responses {
        lines.push(format!("{}: {}", r.state.name(), r.action));
        lines.push(format!("  {}", r.evidence.join("; ")));
        if let Some(prediction) = &r.prediction {
            lines.push(format!("  predicted: {prediction}"));
        }
        if let Some(price) = &r.price {
            lines.push(format!("  price: {price}"));
        }
    }
    let second = |s: Option<u64>| s.map_or("never".into(), |s| format!("after {s} s"));
    lines.push(format!(
        "objective kept {}, remedy removed {}",
        second(result.held_s),
        second(result.let_go_s)
    ));
    lines.join("\n") + "\n"
}

fn one(what: &Demo, strategy: &str, stop: &Stop) -> anyhow::Result<DemoResult> {
    let settings = DemoSettings {
        seconds: what.seconds,
        strategy: strategy.into(),
        seed: what.seed,
    };
    let screen = RefCell::new(Screen::new(what.seconds, strategy));
    let mut on = |event: DemoEvent<'_>| screen.borrow_mut().show(&event);
    let go_on = || stop.sleep(Duration::ZERO) == Go::On;
    let result = demo::run(settings, &mut on, &go_on).map_err(explained);
    screen.borrow().bar.finish_and_clear();
    result
}

fn shown(result: &DemoResult) -> report::DemoTable<'_> {
    report::DemoTable {
        strategy: &result.strategy,
        seconds: result.seconds,
        epochs: result.epochs,
        adapts: result.adapts,
        stretches: demo::Stretch::ALL.map(demo::Stretch::name),
        classes: result
            .classes
            .iter()
            .map(|c| report::DemoClass {
                class: c.class,
                stretches: &c.stretches,
                violated_s: c.violated_s,
                adapted: adapted(&c.adapted),
                ios: c.ios,
                errors: c.errors,
                mean_us: c.mean_us,
                p99_us: c.p99_us,
            })
            .collect(),
        moves: result.jobs.len(),
        jobs: &result.jobs,
        outcomes: &result.outcomes,
        calibrations: result.calibrations,
    }
}

fn adapted(of: &demo::SteadyWindows) -> report::DemoAdapted<'_> {
    report::DemoAdapted {
        windows: of.windows,
        violated: of.violated_all(),
        violated_share: of.share(),
        control_share: of.control_share(),
        above_control: of.above_control(),
        volumes: of.violated.iter().copied().collect(),
    }
}

/// Progress: a bar on a terminal, else lines.
struct Screen {
    bar: ProgressBar,
    terminal: bool,
    strategy: String,
}

impl Screen {
    fn new(seconds: u64, strategy: &str) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} s  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            terminal,
            strategy: strategy.into(),
        }
    }

    fn line(&self, text: &str) {
        if self.terminal {
            self.bar.suspend(|| message(text));
        } else {
            message(text);
        }
    }

    fn show(&self, event: &DemoEvent<'_>) {
        match event {
            DemoEvent::Preparing(what) => {
                self.line(&format!("{}: preparing {what}", self.strategy))
            }
            DemoEvent::Ready {
                page,
                fingerprint,
                socket,
            } => {
                self.line(&format!("page {page}"));
                self.line(&format!("     (self-signed certificate: {fingerprint})"));
                self.line(&format!(
                    "CLI  export TERRACE_CONTROLLER=unix:{}",
                    socket.display()
                ));
            }
            DemoEvent::Changed => self.line("the loads of the guests change now"),
            DemoEvent::Event(event) => {
                let worth = matches!(
                    event.kind,
                    EventKind::Plan | EventKind::Job | EventKind::Trust | EventKind::Response
                );
                if worth {
                    self.line(&format!("  {}", event.text));
                }
            }
            DemoEvent::Second { passed, status } => {
                let text = format!(
                    "volumes that violate their objective: {} of {}; jobs: {}",
                    status.slo_violated, status.volumes, status.jobs
                );
                if self.terminal {
                    self.bar.set_position(*passed);
                    self.bar.set_message(text);
                } else if passed.is_multiple_of(LINE_EVERY_S) {
                    message(&format!("{passed} s: {text}"));
                }
            }
        }
    }
}
