//! `terrace place`: recommendation of a tier for a new volume, and its use by `terrace volume create`.

use anyhow::{Context, bail};
use clap::Args;
use manager::question::PlaceQuestion;
use manager::view::PlaceView;
use report::live;
use units::Bytes;

use crate::asking::{ControllerArg, ControllerArgs, time};
use crate::live::message;

/// `terrace place`
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Size of the volume, such as 100G or "100 GiB"
    #[arg(long, value_name = "SIZE")]
    size: Bytes,
    /// Service class of the volume
    #[arg(long, value_name = "CLASS")]
    class: String,
    #[command(flatten)]
    expected: ExpectedLoadArgs,
    #[command(flatten)]
    asking: ControllerArgs,
}

/// What a new volume is expected to be like.
#[derive(Debug, Args)]
pub struct ExpectedLoadArgs {
    /// An existing volume with a similar load; by default estimated from the volumes of the class
    #[arg(long, value_name = "VOLUME")]
    like: Option<String>,
    /// The host; optional with one host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// What `terrace volume create` asks a controller for a tier with.
#[derive(Debug, Args)]
pub struct AdviceArgs {
    #[command(flatten)]
    expected: ExpectedLoadArgs,
    #[command(flatten)]
    controller: ControllerArg,
}

impl ExpectedLoadArgs {
    fn of(&self, size: Bytes, class: Option<&str>) -> PlaceQuestion {
        PlaceQuestion {
            size,
            class: class.map(str::to_owned),
            like: self.like.clone(),
            host: self.host.clone(),
        }
    }
}

/// Runs `terrace place`.
pub fn place(args: &PlaceArgs) -> anyhow::Result<()> {
    let mut client = args.asking.client()?;
    let place = client.place(&args.expected.of(args.size, Some(&args.class)))?;
    let now = time(&mut client)?;
    let text = |p: &PlaceView| live::place(p, now);
    args.asking.output.print("terrace.place/1", &place, text)
}

impl AdviceArgs {
    /// Returns the tier that the controller recommends for a volume. Prints the tier, the reason and the address of the controller.
    ///
    /// # Errors
    /// If no controller replies, or if it recommends no tier. The message has advice.
    pub fn tier(&self, volume: &str, size: Bytes, class: Option<&str>) -> anyhow::Result<String> {
        let (address, _) = self.controller.address()?;
        let asked = self.controller.client_at(address.clone());
        let asked = asked.and_then(|mut c| Ok(c.place(&self.expected.of(size, class))?));
        let place = asked.with_context(|| {
            format!(
                "give --tier: no controller is available to recommend a tier for volume {volume:?}"
            )
        })?;
        let PlaceView {
            host,
            tier,
            reason,
            why_not,
            notes,
            ..
        } = place;
        let Some(tier) = tier else {
            let why = why_not.unwrap_or_default();
            bail!(
                "give --tier: the controller on {address} recommends no tier for volume {volume:?} ({why}); `terrace place` gives details"
            );
        };
        let why = reason.map_or(String::new(), |r| format!(": {r}"));
        message(&format!(
            "tier {tier}, recommended by the controller on {address} for {host}{why}"
        ));
        for note in notes {
            message(&format!("note: {note}"));
        }
        Ok(tier)
    }
}
