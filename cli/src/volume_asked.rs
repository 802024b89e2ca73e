//! `terrace volume pin`, `throttle` and `history`: requests to a controller about a volume.

use anyhow::bail;
use clap::Args;
use manager::store::HistoryPoint;
use manager::wire::Throttle;
use report::live;
use serde::Serialize;
use units::{BytesPerSec, Nanos};

use crate::asking::{ControllerArgs, time};

/// `terrace volume pin`
#[derive(Debug, Args)]
pub struct Pin {
    /// The volume; HOST/VOLUME if several hosts have a volume of this name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// The tier
    #[arg(value_name = "TIER", required_unless_present = "none")]
    tier: Option<String>,
    /// Remove the pin, also one in the configuration
    #[arg(long, conflicts_with = "tier")]
    none: bool,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// Runs `terrace volume pin`.
pub fn pin(args: &Pin) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    args.asking
        .done(&client.pin(&args.volume, args.tier.as_deref())?)
}

/// `terrace volume throttle`
#[derive(Debug, Args)]
pub struct ThrottleArgs {
    /// The volume; HOST/VOLUME if several hosts have a volume of this name
    #[arg(value_name = "VOLUME")]
    volume: String,
    #[command(flatten)]
    limits: ThrottleLimits,
    /// Duration, at most seven days; then the earlier limits apply again
    #[arg(long = "for", value_name = "TIME", required_unless_present = "none")]
    lasting: Option<Nanos>,
    /// Remove the limit
    #[arg(long, conflicts_with_all = ["iops", "bandwidth", "lasting"])]
    none: bool,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// One at least.
#[derive(Debug, Args)]
#[group(multiple = true)]
struct ThrottleLimits {
    /// Requests per second, at least 20
    #[arg(long, value_name = "IOPS")]
    iops: Option<u64>,
    /// Bytes per second, such as `20 MB/s`, at least 2 MiB/s
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BytesPerSec>,
}

/// Runs `terrace volume throttle`.
pub fn throttle(args: &ThrottleArgs) -> anyhow::Result<()> {
    let ThrottleLimits { iops, bandwidth } = args.limits;
    let to = match args.lasting.filter(|_| !args.none) {
        None => None,
        Some(_) if iops.is_none() && bandwidth.is_none() => {
            bail!("give a limit: --iops, --bandwidth, or both")
        }
        Some(lasting) => Some(Throttle {
            iops,
            bandwidth_bytes_per_s: bandwidth.map(|b| b.0),
            lasting_ns: lasting.0,
        }),
    };
    let mut client = args.asking.client()?;
    args.asking.done(&client.throttle(&args.volume, to)?)
}

/// `terrace volume history`
#[derive(Debug, Args)]
pub struct History {
    /// The volume; HOST/VOLUME if several hosts have a volume of this name
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Length of the history, up to now
    #[arg(long, value_name = "TIME", default_value = "1h")]
    last: Nanos,
    #[command(flatten)]
    asking: ControllerArgs,
}

#[derive(Serialize)]
struct Points {
    volume: String,
    points: Vec<HistoryPoint>,
}

/// Runs `terrace volume history`.
pub fn history(args: &History) -> anyhow::Result<()> {
    if args.last == Nanos::ZERO {
        bail!("--last must be above 0");
    }
    let mut client = args.asking.client()?;
    let points = client.history(&args.volume, args.last)?;
    let now = time(&mut client)?;
    let volume = args.volume.clone();
    let text = |p: &Points| live::history(&p.points, now);
    let output = &args.asking.output;
    output.print("terrace.volume.history/1", &Points { volume, points }, text)
}
