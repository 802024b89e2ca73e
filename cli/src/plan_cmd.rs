//! `terrace plan`, `diff`, `apply` and `reject`: plans of a controller, and their approval.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use client::Client;
use manager::question::Choice;
use manager::view::{MoveState, PlanView, PlannedMove};
use report::live::{self, PlanDetail};
use serde::Serialize;
use units::counted;

use crate::asking::{ControllerArgs, time};
use crate::live::{message, wrong_usage};

/// The host, where there are several.
#[derive(Debug, Args)]
struct HostArg {
    /// The host; optional with one host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// `terrace plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Number of the plan; the current plan by default
    #[arg(value_name = "PLAN")]
    plan: Option<u64>,
    /// Also show the reasons of moves, rejected moves with their filter, and notes
    #[arg(long)]
    explain: bool,
    /// Print the commands that carry out the plan by hand, for libvirt or the platform of the virtual machine
    #[arg(long, conflicts_with = "explain")]
    commands: bool,
    #[command(flatten)]
    host: HostArg,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// Runs `terrace plan`.
pub fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let host = args.host.host.as_deref();
    let plan = match args.plan {
        Some(generation) => client.plan_of(generation, host)?,
        None => client.plan(host)?,
    };
    if args.commands {
        let commands = Commands::of(&plan);
        let text = |c: &Commands<'_>| c.lines();
        return args
            .asking
            .output
            .print("terrace.plan.commands/1", &commands, text);
    }
    let now = time(&mut client)?;
    let detail = match args.explain {
        true => PlanDetail::Reasons,
        false => PlanDetail::Moves,
    };
    let text = |p: &PlanView| live::plan(p, now, detail);
    args.asking.output.print("terrace.plan/1", &plan, text)
}

/// Commands that carry out a plan by hand.
#[derive(Serialize)]
struct Commands<'a> {
    host: &'a str,
    plan: u64,
    moves: Vec<CommandOf<'a>>,
}

/// Command that carries out a move by hand.
#[derive(Serialize)]
struct CommandOf<'a> {
    position: u32,
    volume: &'a str,
    from: &'a str,
    to: &'a str,
    reason: &'a str,
    /// Reason that the agent does not carry out the move; `None` if it does.
    by_hand: Option<&'a str>,
    /// Command; `None` if no command moves the volume without loss.
    command: Option<&'a str>,
    /// Reason for the missing command, if known.
    no_command: Option<&'a str>,
}

impl<'a> Commands<'a> {
    fn of(plan: &'a PlanView) -> Self {
        let moves = plan.moves.iter().map(|m| CommandOf {
            position: m.position,
            volume: &m.volume,
            from: &m.from_tier,
            to: &m.to_tier,
            reason: &m.reason,
            by_hand: m.by_hand.as_deref(),
            command: m.command.as_deref(),
            no_command: m.no_command.as_deref(),
        });
        Self {
            host: &plan.host,
            plan: plan.generation,
            moves: moves.collect(),
        }
    }

    /// Formats a shell script, in which all lines except commands are comments.
    fn lines(&self) -> String {
        let mut out = format!(
            "# plan {} of {}: {}; run them in the order of `terrace plan`\n",
            self.plan,
            report::printable(self.host),
            counted(self.moves.len(), "move")
        );
        for m in &self.moves {
            let words = [m.volume, m.from, m.to, m.reason].map(report::printable);
            let [volume, from, to, reason] = words;
            out += &format!("\n# {} {volume}: {from} to {to}: {reason}\n", m.position);
            if let Some(why) = m.by_hand {
                out += &format!("# without Terrace, as {}\n", report::printable(why));
            }
            match m.command {
                Some(command) if !command.contains(units::is_hidden) => {
                    out += &format!("{command}\n");
                }
                _ => {
                    let why = m.no_command.unwrap_or("no command is known");
                    out += &format!("# no command: {}\n", report::printable(why));
                }
            }
        }
        out
    }
}

/// `terrace diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Number of the plan
    #[arg(value_name = "PLAN")]
    plan: u64,
    /// Number of a second plan: list the moves that are in only one of the two
    #[arg(value_name = "OTHER")]
    other: Option<u64>,
    #[command(flatten)]
    host: HostArg,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// Moves of a plan; in a comparison of two plans, the moves of only this one.
#[derive(Serialize)]
struct Moves<'a> {
    host: &'a str,
    plan: u64,
    moves: Vec<&'a PlannedMove>,
}

impl<'a> Moves<'a> {
    fn new(plan: &'a PlanView, moves: Vec<&'a PlannedMove>) -> Self {
        Self {
            host: &plan.host,
            plan: plan.generation,
            moves,
        }
    }
}

#[derive(Serialize)]
struct Difference<'a> {
    #[serde(flatten)]
    first: Moves<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Moves<'a>>,
}

/// Runs `terrace diff`.
pub fn diff(args: &DiffArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let host = args.host.host.as_deref();
    let plan = client.plan_of(args.plan, host)?;
    let output = &args.asking.output;
    let schema = "terrace.plan.diff/1";
    let Some(other) = args.other else {
        let first = Moves::new(&plan, plan.moves.iter().collect());
        let all = Difference { first, other: None };
        return output.print(schema, &all, |_| live::diff(&plan));
    };
    let other = client.plan_of(other, host)?;
    let only = live::only_in_one(&plan, &other);
    let both = Difference {
        first: Moves::new(&plan, only.first),
        other: Some(Moves::new(&other, only.second)),
    };
    output.print(schema, &both, |_| live::diff_plans(&plan, &other))
}

/// Which moves of which plan.
#[derive(Debug, Args)]
struct ChoiceArgs {
    /// Number of the plan
    #[arg(value_name = "PLAN")]
    plan: u64,
    /// Only this move of the plan, by its number in the plan; repeatable
    #[arg(long, value_name = "MOVE", value_delimiter = ',')]
    only: Vec<u32>,
    #[command(flatten)]
    host: HostArg,
    #[command(flatten)]
    asking: ControllerArgs,
}

impl ChoiceArgs {
    fn choice(&self) -> Choice {
        Choice {
            host: self.host.host.clone(),
            generation: self.plan,
            moves: (!self.only.is_empty()).then(|| self.only.clone()),
        }
    }
}

/// `terrace reject`
#[derive(Debug, Args)]
pub struct RejectArgs {
    #[command(flatten)]
    which: ChoiceArgs,
}

/// Runs `terrace reject`.
pub fn reject(args: &RejectArgs) -> anyhow::Result<()> {
    let asking = &args.which.asking;
    asking.done(&asking.client()?.reject(&args.which.choice())?)
}

/// `terrace apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    which: ChoiceArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Runs `terrace apply`.
pub fn apply(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let which = &args.which;
    if !args.yes && !io::stdin().is_terminal() {
        return Ok(wrong_usage(&format!(
            "confirmation of plan {} needs a terminal: add --yes",
            which.plan
        )));
    }
    let mut client = which.asking.client()?;
    let plan = client.plan_of(which.plan, which.host.host.as_deref())?;
    let open = open_moves(&plan, &which.only)?;
    if !open.is_empty() {
        show(&mut client, &plan, &open)?;
        if !args.yes && !agreed()? {
            message("no move was approved");
            return Ok(ExitCode::FAILURE);
        }
    }
    // If no move waits for approval, the reply of the controller has the reason.
    which.asking.done(&client.apply(&which.choice())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the chosen moves that wait for approval.
fn open_moves<'a>(plan: &'a PlanView, only: &[u32]) -> anyhow::Result<Vec<&'a PlannedMove>> {
    let there = |position: &u32| plan.moves.iter().any(|m| m.position == *position);
    if let Some(unknown) = only.iter().find(|p| !there(p)) {
        bail!(
            "plan {} has {} moves, numbered from 0, and no move {unknown}",
            plan.generation,
            plan.moves.len()
        );
    }
    let chosen = |m: &&PlannedMove| only.is_empty() || only.contains(&m.position);
    let open = |m: &&PlannedMove| matches!(m.state, MoveState::Proposed { .. });
    Ok(plan.moves.iter().filter(chosen).filter(open).collect())
}

/// Prints the moves to approve. They go to standard error, because they are not the output of the command.
fn show(client: &mut Client, plan: &PlanView, moves: &[&PlannedMove]) -> anyhow::Result<()> {
    let text = live::to_apply(plan, moves, time(client)?);
    write!(io::stderr(), "{text}")?;
    Ok(())
}

fn agreed() -> anyhow::Result<bool> {
    let mut err = io::stderr();
    write!(err, "carry them out? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|e| anyhow!(e).context("cannot read the answer"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use manager::view::PlanState;
    use model::Goal;

    use super::*;

    fn plan(states: &[MoveState]) -> PlanView {
        let moves = states.iter().enumerate().map(|(i, state)| PlannedMove {
            by_hand: None,
            command: None,
            no_command: None,
            doubt: None,
            position: i as u32,
            job: None,
            volume: format!("v{i}"),
            from_tier: "slow".into(),
            to_tier: "fast".into(),
            from: "slow".into(),
            to: "fast".into(),
            extents: None,
            goal: Goal::Latency,
            reason: String::new(),
            bytes: 0,
            duration_ns: 0,
            before_us: None,
            after_us: None,
            after_range_us: None,
            after_moves: vec![],
            scored: vec![],
            state: state.clone(),
        });
        PlanView {
            host: "alpha".into(),
            generation: 7,
            parent: 6,
            at_ns: 0,
            strategy: "idt".into(),
            state: PlanState::Current,
            moves: moves.collect(),
            held: vec![],
            staying: 0,
            notes: vec![],
        }
    }

    #[test]
    fn script_has_a_command_or_a_comment_with_the_reason_per_move() {
        let mut plan = plan(&[MoveState::Done, MoveState::Done, MoveState::Done]);
        plan.moves[0].command = Some("virsh blockcopy 'a'".into());
        plan.moves[1].no_command = Some("its image has 3 bitmaps\nrm -rf /".into());
        let text = Commands::of(&plan).lines();
        let code = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        assert_eq!(code.collect::<Vec<_>>(), ["virsh blockcopy 'a'"]);
        assert!(
            text.contains("# no command: its image has 3 bitmaps"),
            "{text}"
        );
        assert!(text.contains("# no command: no command is known"), "{text}");
    }

    #[test]
    fn only_open_moves_are_selected() {
        let proposed = MoveState::Proposed { why: "x".into() };
        let plan = plan(&[proposed.clone(), MoveState::Running, proposed]);
        let positions = |only: &[u32]| -> Vec<u32> {
            let open = open_moves(&plan, only).unwrap();
            open.iter().map(|m| m.position).collect()
        };
        assert_eq!(positions(&[]), [0, 2]);
        assert_eq!(positions(&[2, 1]), [2]);
        assert!(positions(&[1]).is_empty());
        assert_eq!(
            open_moves(&plan, &[0, 3]).unwrap_err().to_string(),
            "plan 7 has 3 moves, numbered from 0, and no move 3"
        );
    }
}
