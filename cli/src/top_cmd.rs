//! `terrace top`: periodic display of the active volumes.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::Client;
use manager::view::{TierView, VolumeView};
use report::live::{TopOrder, in_order, top};
use serde::Serialize;
use units::Nanos;

use crate::asking::ControllerArgs;
use crate::live::{Form, Go, Stop};

/// Shortest time between two refreshes: protects the controller.
const INTERVAL_MIN: Nanos = Nanos::from_millis(200);

/// `terrace top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Number of refreshes; until Ctrl-C by default
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time between two refreshes, at least 200ms
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_interval)]
    interval: Nanos,
    /// Order of the volumes
    #[arg(long, value_enum, default_value = "p99")]
    sort: Sort,
    #[command(flatten)]
    asking: ControllerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Those with the highest 99th percentile of latency
    P99,
    /// Those with the most requests
    Iops,
    /// Those with the most bytes
    Mibps,
    /// By name
    Name,
}

fn parse_interval(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(interval) if interval < INTERVAL_MIN => Err(format!("must be at least {INTERVAL_MIN}")),
        Ok(interval) => Ok(interval),
        Err(e) => Err(e.to_string()),
    }
}

#[derive(Serialize)]
struct Look {
    tiers: Vec<TierView>,
    volumes: Vec<VolumeView>,
}

/// Runs `terrace top`.
pub fn run(args: &TopArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    // If the controller does not reply, the error appears on the normal screen.
    let mut look = look(&mut client, args.sort)?;
    let stop = Stop::listen()?;
    let mut screen = match args.asking.output.form() {
        Form::Table if io::stdout().is_terminal() => Some(Screen::open()?),
        Form::Table | Form::Json => None,
    };
    let mut looks = 0;
    loop {
        match &mut screen {
            Some(screen) => screen.draw(&look)?,
            None => args.asking.output.print_next("terrace.top/1", &look, |l| {
                let gap = if looks == 0 { "" } else { "\n" };
                format!("{gap}{}", top(&l.tiers, &l.volumes, None))
            })?,
        }
        looks += 1;
        let last = args.count.is_some_and(|count| looks >= count);
        if last || stop.sleep(Duration::from_nanos(args.interval.0)) == Go::Stop {
            break;
        }
        look = self::look(&mut client, args.sort)?;
    }
    // The last state remains readable on the normal screen.
    if let Some(screen) = screen {
        drop(screen);
        write!(io::stdout(), "{}", top(&look.tiers, &look.volumes, None))?;
    }
    Ok(())
}

fn look(client: &mut Client, sort: Sort) -> anyhow::Result<Look> {
    let tiers = client.tiers()?;
    let mut volumes = client.volumes()?;
    let order = match sort {
        Sort::P99 => TopOrder::P99,
        Sort::Iops => TopOrder::Iops,
        Sort::Mibps => TopOrder::Mibps,
        Sort::Name => TopOrder::Name,
    };
    in_order(&mut volumes, order);
    Ok(Look { tiers, volumes })
}

/// Opens the alternate screen, without cursor and without wrapping of lines.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Restores the normal screen.
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Terminal with the alternate screen. Dropping it restores the normal screen.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        let screen = Self;
        write!(io::stdout(), "{OPEN}")?;
        Ok(screen)
    }

    /// Overwrites the screen line by line, which avoids flicker.
    fn draw(&mut self, look: &Look) -> io::Result<()> {
        let lines = terminal_size::terminal_size().map(|(_, height)| usize::from(height.0));
        // The cursor is in the line below the last one.
        let text = top(
            &look.tiers,
            &look.volumes,
            lines.map(|l| l.saturating_sub(1)),
        );
        let mut out = io::stdout().lock();
        write!(out, "{HOME}")?;
        for line in text.lines() {
            writeln!(out, "{line}{CLEAR_LINE}")?;
        }
        write!(out, "{CLEAR_BELOW}")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        // An error cannot be reported here.
        let _ = write!(out, "{CLOSE}");
        let _ = out.flush();
    }
}
