//! `terrace events` and `terrace outcomes`: past events, and results of moves.

use std::time::Duration;

use clap::Args;
use manager::view::{EventView, OutcomeView};
use report::live;
use serde::Serialize;

use crate::asking::{ControllerArgs, time};
use crate::live::{Go, Stop};

/// Interval of requests for new events.
const LOOK: Duration = Duration::from_secs(1);

/// `terrace events`
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Print new events until Ctrl-C; with -o json, one line per event
    #[arg(long)]
    follow: bool,
    /// Number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_limit)]
    limit: usize,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// Largest number of rows in a reply of a controller.
const LIMIT_MAX: usize = 1000;

/// Parses a number of rows, up to the limit of a controller.
pub fn parse_limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!("is a number from 1 to {LIMIT_MAX}")),
    }
}

#[derive(Serialize)]
struct Events {
    events: Vec<EventView>,
}

/// Runs `terrace events`.
pub fn events(args: &EventsArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let output = &args.asking.output;
    let line = |e: &EventView| live::event_line(e) + "\n";
    let mut events = client.events(None, Some(args.limit))?;
    if !args.follow {
        let text = |e: &Events| match e.events.is_empty() {
            true => "no events\n".into(),
            false => e.events.iter().map(line).collect(),
        };
        return output.print("terrace.event.list/1", &Events { events }, text);
    }
    let stop = Stop::listen()?;
    let mut last = 0;
    loop {
        for event in &events {
            output.print_next("terrace.event/1", event, line)?;
            last = last.max(event.id);
        }
        // A non-empty reply may be followed by further events at once.
        let wait = match events.is_empty() {
            true => LOOK,
            false => Duration::ZERO,
        };
        if stop.sleep(wait) == Go::Stop {
            return Ok(());
        }
        events = client.events(Some(last), None)?;
    }
}

/// `terrace outcomes`
#[derive(Debug, Args)]
pub struct OutcomesArgs {
    /// Number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_limit)]
    limit: usize,
    #[command(flatten)]
    asking: ControllerArgs,
}

#[derive(Serialize)]
struct Outcomes {
    outcomes: Vec<OutcomeView>,
}

/// Runs `terrace outcomes`.
pub fn outcomes(args: &OutcomesArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let outcomes = client.outcomes(Some(args.limit))?;
    let now = time(&mut client)?;
    let text = |o: &Outcomes| live::outcomes(&o.outcomes, now);
    let output = &args.asking.output;
    output.print("terrace.outcome.list/1", &Outcomes { outcomes }, text)
}
