//! `terrace volume mirror`: second copies of the most-read extents on another tier. The server of the volume keeps them.

use std::cmp::Reverse;

use anyhow::{anyhow, bail};
use clap::Args;
use datapath::control_server::{ControlAnswer, ControlRequest, HeatSample};
use model::ExtentRanges;
use units::BytesPerSec;

use crate::live::unexpected;
use crate::volume_cmd::VolumeSelector;

/// Smallest share of reads in the requests of an extent for `--hottest`: a write costs two writes, one per copy.
const READ_SHARE_MIN: f64 = 0.9;

/// `terrace volume mirror`
#[derive(Debug, Args)]
pub struct Mirror {
    #[command(flatten)]
    which: VolumeSelector,
    /// The tier of the mirror
    #[arg(long, value_name = "TIER", required_unless_present = "stop")]
    to: Option<String>,
    /// Only these extents, such as "0-99,200"; all allocated extents without this option and --hottest
    #[arg(long, value_name = "RANGES", conflicts_with = "hottest")]
    extents: Option<ExtentRanges>,
    /// The N most-read extents among those with at least 90 % reads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    hottest: Option<u32>,
    /// Highest rate of the copy
    #[arg(long, value_name = "RATE", default_value = "200 MiB/s")]
    bandwidth: BytesPerSec,
    /// Delete the mirror
    #[arg(long, conflicts_with_all = ["to", "extents", "hottest", "bandwidth"])]
    stop: bool,
}

/// Runs `terrace volume mirror`.
pub fn run(what: &Mirror) -> anyhow::Result<()> {
    let volume = what.which.volume.clone();
    if what.stop {
        return what.which.array.order(ControlRequest::StopMirror {
            volume,
            lent_only: false,
        });
    }
    let extents = match what.hottest {
        None => what.extents.clone(),
        Some(most) => {
            let ask = ControlRequest::Heat {
                volume: volume.clone(),
                since: None,
            };
            let ControlAnswer::Heat(sample) = what.which.array.ask(ask)? else {
                return Err(unexpected());
            };
            Some(hottest(&sample, most)?)
        }
    };
    what.which.array.order(ControlRequest::Mirror {
        volume,
        to: what
            .to
            .clone()
            .ok_or_else(|| anyhow!("--tier is missing: name the tier of the mirror"))?,
        device: None,
        bandwidth: what.bandwidth,
        extents,
        lasting: None,
    })
}

/// Returns the most-read extents among those with few writes.
fn hottest(sample: &HeatSample, most: u32) -> anyhow::Result<ExtentRanges> {
    let Some(counts) = &sample.heat else {
        bail!(
            "volume {:?} has no heat counts: it is not served, or not measured (`terrace volume set --measure on`)",
            sample.volume
        );
    };
    let mut read: Vec<(u32, u32, u32)> = counts.touched();
    read.retain(|(_, reads, writes)| {
        let all = f64::from(*reads) + f64::from(*writes);
        *reads > 0 && f64::from(*reads) >= READ_SHARE_MIN * all
    });
    if read.is_empty() {
        bail!(
            "volume {:?} has no read-mostly extent since its measurement started",
            sample.volume
        );
    }
    read.sort_by_key(|t| (Reverse(t.1), t.0));
    let mut extents: Vec<u32> = read.iter().take(most as usize).map(|t| t.0).collect();
    extents.sort_unstable();
    Ok(ExtentRanges::from_sorted(extents))
}

#[cfg(test)]
mod tests {
    use datapath::control_server::{HeatCounts, HeatCursor};
    use model::{ExtentHeat, ExtentPlaces};
    use units::Bytes;

    use super::*;

    #[test]
    fn hottest_extents_are_read_often_and_rarely_written() {
        let heat = |touched: &[(u32, u32)]| ExtentHeat::of(touched.to_vec());
        let sample = HeatSample {
            volume: "db".into(),
            extent: Bytes::mib(1),
            extents: 10,
            devices: vec![],
            places: ExtentPlaces::default(),
            heat: Some(HeatCounts {
                cursor: HeatCursor {
                    since_ns: 0,
                    turn: 0,
                },
                reads: heat(&[(0, 100), (3, 500), (4, 90), (7, 1_000)]),
                writes: heat(&[(3, 10), (4, 11), (7, 900), (9, 5)]),
            }),
        };
        let of = |most| hottest(&sample, most).unwrap().to_string();
        assert_eq!(of(1), "3");
        assert_eq!(of(9), "0,3");
    }
}
