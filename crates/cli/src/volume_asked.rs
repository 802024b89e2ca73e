//! `terrace volume pin` and `history`: what a controller knows and does about a volume.

use anyhow::bail;
use clap::Args;
use manager::store::HistoryPoint;
use report::live;
use serde::Serialize;
use units::Nanos;

use crate::asking::{Asking, time};

/// `terrace volume pin`
#[derive(Debug, Args)]
pub struct Pin {
    /// The volume; HOST/VOLUME where several hosts have one of that name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// The tier
    #[arg(value_name = "TIER", required_unless_present = "none")]
    tier: Option<String>,
    /// On no tier in particular, whatever the configuration says
    #[arg(long, conflicts_with = "tier")]
    none: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Runs `terrace volume pin`.
pub fn pin(args: &Pin) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    args.asking
        .done(&client.pin(&args.volume, args.tier.as_deref())?)
}

/// `terrace volume history`
#[derive(Debug, Args)]
pub struct History {
    /// The volume; HOST/VOLUME where several hosts have one of that name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// So much of it, up to now
    #[arg(long, value_name = "TIME", default_value = "1h")]
    last: Nanos,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Serialize)]
struct Points {
    volume: String,
    points: Vec<HistoryPoint>,
}

/// Runs `terrace volume history`.
pub fn history(args: &History) -> anyhow::Result<()> {
    if args.last == Nanos::ZERO {
        bail!("--last 0s is no time");
    }
    let mut client = args.asking.client()?;
    let points = client.history(&args.volume, args.last)?;
    let now = time(&mut client)?;
    let volume = args.volume.clone();
    let text = |p: &Points| live::history(&p.points, now);
    let output = &args.asking.output;
    output.print("terrace.volume.history/1", &Points { volume, points }, text)
}
