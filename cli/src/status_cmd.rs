//! `terrace status`, `pause`, `resume`, `reload` and `mode`: state of a controller, and the extent of its automation.

use std::collections::BTreeMap;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use client::ClientError;
use datapath::explain;
use model::Goal;
use model::Mode;
use report::live;
use serde::Serialize;

use crate::asking::ControllerArgs;

/// `terrace status`
pub fn status(asking: &ControllerArgs) -> anyhow::Result<()> {
    let status = asking.client()?.status().map_err(|why| match why {
        ClientError::Nobody { .. } => anyhow!(
            "{}; if an array is served without its controller, `terrace array status` shows that",
            explain(&why)
        ),
        other => other.into(),
    })?;
    let text = |s: &_| live::status(s);
    asking.output.print("terrace.status/1", &status, text)
}

/// `terrace pause`
pub fn pause(asking: &ControllerArgs) -> anyhow::Result<()> {
    asking.done(&asking.client()?.pause()?)
}

/// `terrace resume`
pub fn resume(asking: &ControllerArgs) -> anyhow::Result<()> {
    asking.done(&asking.client()?.resume()?)
}

/// `terrace reload`
pub fn reload(asking: &ControllerArgs) -> anyhow::Result<()> {
    asking.done(&asking.client()?.reload()?)
}

/// `terrace mode`
#[derive(Debug, Args)]
pub struct ModeArgs {
    /// The goal of moves; without it, the command shows all modes
    #[arg(value_name = "GOAL", requires = "mode")]
    goal: Option<GoalName>,
    /// Which moves need no approval
    #[arg(value_name = "MODE")]
    mode: Option<ModeName>,
    #[command(flatten)]
    asking: ControllerArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GoalName {
    /// Emptying tiers
    Drain,
    /// Pins and affinity
    Rules,
    /// Devices that are nearly full
    Space,
    /// Moves that the strategy proposes
    Latency,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeName {
    /// No moves are planned for this goal
    Off,
    /// Moves wait for approval
    Recommend,
    /// Moves that make their volume faster are carried out, others wait for approval
    Partial,
    /// Moves are carried out
    Auto,
}

#[derive(Serialize)]
struct Modes {
    modes: BTreeMap<Goal, Mode>,
}

/// Runs `terrace mode`.
pub fn mode(args: &ModeArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let (Some(goal), Some(mode)) = (args.goal, args.mode) else {
        let modes = client.status()?.modes;
        let text = |m: &Modes| live::modes(&m.modes);
        let output = &args.asking.output;
        return output.print("terrace.mode.list/1", &Modes { modes }, text);
    };
    let goal = match goal {
        GoalName::Drain => Goal::Drain,
        GoalName::Rules => Goal::Rules,
        GoalName::Space => Goal::Space,
        GoalName::Latency => Goal::Latency,
    };
    let mode = match mode {
        ModeName::Off => Mode::Off,
        ModeName::Recommend => Mode::Recommend,
        ModeName::Partial => Mode::Partial,
        ModeName::Auto => Mode::Auto,
    };
    args.asking.done(&client.set_mode(goal, mode)?)
}
