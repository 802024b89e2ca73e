//! `terrace sim replay`: replays the recorded inputs of a live controller and compares the plans.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use manager::recording::{self, RepeatedPlan, Replay};
use units::Nanos;

use crate::file_kind::{FileKind, with_kind};
use crate::live::Form;

/// `terrace sim replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recording of a controller with `record` in its configuration
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Form,
}

/// Runs `terrace sim replay`. The exit status is 1 if a plan differs from the recorded one.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let recording = FileKind::Output("terrace.recording/1".into());
    replay(args).map_err(|e| with_kind(&args.recording, &[recording], e))
}

fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let name = args.recording.display();
    let file = File::open(&args.recording).with_context(|| format!("cannot read {name}"))?;
    let mut replay = Replay::default();
    let mut plans = Vec::new();
    let mut lines = BufReader::new(file).lines().enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        let after = |(_, next): &(usize, io::Result<String>)| {
            next.as_ref().is_ok_and(|n| recording::begins(n))
        };
        match replay.line(&line) {
            Ok(made) => plans.extend(made),
            // The controller was killed during a write. The next one starts a new record.
            Err(why) if lines.peek().is_some_and(after) => {
                writeln!(io::stderr(), "{name}:{}: cut off: {why}", i + 1)?;
            }
            Err(why) => bail!("{name}:{}: {why}", i + 1),
        }
    }
    let mut out = io::stdout().lock();
    match args.output {
        Form::Json => writeln!(out, "{}", serde_json::to_string_pretty(&plans)?)?,
        Form::Table => table(&mut out, &plans)?,
    }
    out.flush()?;
    let all = plans.iter().all(|p| p.same) && replay.surplus() == 0;
    Ok(match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn table(out: &mut impl Write, plans: &[RepeatedPlan]) -> io::Result<()> {
    use report::{number, table, words};
    let columns = [
        number("plan", ""),
        words("host"),
        words("at"),
        number("moves", ""),
        words("made again"),
    ];
    let rows = plans.iter().map(|p| {
        let same = if p.same { "the same" } else { "ANOTHER ONE" };
        vec![
            p.generation.to_string(),
            p.host.clone(),
            Nanos(p.at_ns).words(),
            p.moves.to_string(),
            same.into(),
        ]
    });
    write!(out, "{}", table(&columns, rows.collect()))?;
    let same = plans.iter().filter(|p| p.same).count();
    writeln!(out, "\n{same} of {} plans are the same", plans.len())
}
