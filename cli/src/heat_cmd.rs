//! `terrace volume heat`: hottest extents of a volume, and the share of requests of the hottest ones.

use anyhow::bail;
use clap::Args;
use datapath::control_server::{ControlAnswer, ControlRequest, HeatCursor, HeatSample};
use report::{number, table, words};
use serde::Serialize;
use units::{Bytes, DeviceId};

use crate::live::{OutputArg, unexpected};
use crate::volume_cmd::VolumeSelector;

/// Shares of the extents, hottest first, for which the share of requests is shown, percent.
const SHARES_PERCENT: [u32; 5] = [1, 5, 10, 20, 30];

/// `terrace volume heat`
#[derive(Debug, Args)]
pub struct Heat {
    #[command(flatten)]
    which: VolumeSelector,
    /// Extents to list
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    #[command(flatten)]
    output: OutputArg,
}

/// Output. Requests are reads and writes since the start of counting. A request to several extents counts in each of them.
#[derive(Debug, Serialize)]
struct VolumeHeat {
    volume: String,
    extent: Bytes,
    extents: u32,
    /// Number of extents with requests.
    touched: u32,
    requests: u64,
    /// Start of counting.
    cursor: HeatCursor,
    /// Share of requests by share of all extents of the volume, hottest first, at least one extent.
    locality: Vec<Locality>,
    /// Extents and requests by device, holes last.
    places: Vec<Place>,
    hottest: Vec<HotExtent>,
}

#[derive(Debug, Serialize)]
struct Locality {
    extents_percent: u32,
    extents: u32,
    requests: u64,
    /// Share of requests, 0..=1; `None` without requests.
    requests_share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Place {
    /// Device; `None` for holes.
    device: Option<String>,
    extents: u32,
    requests: u64,
    requests_share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct HotExtent {
    extent: u32,
    device: Option<String>,
    reads: u32,
    writes: u32,
    requests_share: Option<f64>,
}

/// Runs `terrace volume heat`.
pub fn run(heat: &Heat) -> anyhow::Result<()> {
    let volume = heat.which.volume.clone();
    let ask = ControlRequest::Heat {
        volume,
        since: None,
    };
    let ControlAnswer::Heat(sample) = heat.which.array.ask(ask)? else {
        return Err(unexpected());
    };
    let shown = of(&sample, heat.top)?;
    heat.output.print("terrace.volume.heat/1", &shown, text)
}

fn of(sample: &HeatSample, top: usize) -> anyhow::Result<VolumeHeat> {
    let Some(counts) = &sample.heat else {
        bail!(
            "volume {:?} has no heat counts: it is not served, or not measured (`terrace volume set --measure on`), or has more than {} extents",
            sample.volume,
            datapath::heat::HEAT_EXTENTS_MAX
        );
    };
    let requests_of = |t: &(u32, u32, u32)| u64::from(t.1) + u64::from(t.2);
    let touched = counts.touched();
    let requests: u64 = touched.iter().map(requests_of).sum();
    let share = |part: u64| (requests > 0).then(|| part as f64 / requests as f64);
    let mut hottest = touched.clone();
    hottest.sort_by_key(|t| (std::cmp::Reverse(requests_of(t)), t.0));
    let locality = SHARES_PERCENT.iter().map(|percent| {
        let extents = (u64::from(sample.extents) * u64::from(*percent)).div_ceil(100) as u32;
        let part = hottest.iter().take(extents as usize);
        let part = part.map(requests_of).sum();
        Locality {
            extents_percent: *percent,
            extents,
            requests: part,
            requests_share: share(part),
        }
    });
    let name = |device: Option<DeviceId>| device.map(|d| sample.devices[d.index()].clone());
    // End of each run (the first extent after it), with the device of the run.
    let mut end = 0;
    let runs = sample.places.runs();
    let ends: Vec<(u32, Option<DeviceId>)> = runs
        .iter()
        .map(|(count, device)| {
            end += count;
            (end, *device)
        })
        .collect();
    let device_of = |extent: u32| ends[ends.partition_point(|e| e.0 <= extent)].1;
    let devices = (0..sample.devices.len()).map(|d| Some(DeviceId::from_index(d)));
    let places = devices.chain([None]).map(|device| {
        let here = touched.iter().filter(|t| device_of(t.0) == device);
        let requests = here.map(requests_of).sum();
        let runs = runs.iter().filter(|r| r.1 == device);
        Place {
            device: name(device),
            extents: runs.map(|r| r.0).sum(),
            requests,
            requests_share: share(requests),
        }
    });
    Ok(VolumeHeat {
        volume: sample.volume.clone(),
        extent: sample.extent,
        extents: sample.extents,
        touched: touched.len() as u32,
        requests,
        cursor: counts.cursor,
        locality: locality.collect(),
        places: places.filter(|p| p.extents > 0).collect(),
        hottest: hottest
            .iter()
            .take(top)
            .map(|t| HotExtent {
                extent: t.0,
                device: name(device_of(t.0)),
                reads: t.1,
                writes: t.2,
                requests_share: share(requests_of(t)),
            })
            .collect(),
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.1}", s * 100.0))
}

fn text(heat: &VolumeHeat) -> String {
    let hole = || "hole".to_owned();
    let mut out = format!(
        "volume           {}\nextents          {} of {}, {} touched\nrequests         {}\n",
        heat.volume, heat.extents, heat.extent, heat.touched, heat.requests
    );
    let columns = [
        number("hottest extents", "%"),
        number("extents", ""),
        number("requests", "%"),
    ];
    let rows = heat.locality.iter().map(|l| {
        vec![
            l.extents_percent.to_string(),
            l.extents.to_string(),
            percent(l.requests_share),
        ]
    });
    out += &format!("\n{}", table(&columns, rows.collect()));
    let columns = [
        words("device"),
        number("extents", ""),
        number("requests", "%"),
    ];
    let rows = heat.places.iter().map(|p| {
        vec![
            p.device.clone().unwrap_or_else(hole),
            p.extents.to_string(),
            percent(p.requests_share),
        ]
    });
    out += &format!("\n{}", table(&columns, rows.collect()));
    if !heat.hottest.is_empty() {
        let columns = [
            number("hot extent", ""),
            words("device"),
            number("reads", ""),
            number("writes", ""),
            number("requests", "%"),
        ];
        let rows = heat.hottest.iter().map(|h| {
            vec![
                h.extent.to_string(),
                h.device.clone().unwrap_or_else(hole),
                h.reads.to_string(),
                h.writes.to_string(),
                percent(h.requests_share),
            ]
        });
        out += &format!("\n{}", table(&columns, rows.collect()));
    }
    out
}

#[cfg(test)]
mod tests {
    use datapath::control_server::HeatCounts;
    use model::ExtentHeat;

    use super::*;

    #[test]
    fn heat_output_shows_share_and_location_of_hot_extents() {
        let sample = HeatSample {
            volume: "v".into(),
            extent: Bytes::mib(1),
            extents: 100,
            devices: vec!["fast-1".into(), "slow-1".into()],
            places: "10x1,5x0,5x-,80x1".to_string().try_into().unwrap(),
            heat: Some(HeatCounts {
                cursor: HeatCursor {
                    since_ns: 3,
                    turn: 1,
                },
                reads: ExtentHeat::of(vec![(0, 10), (12, 50), (17, 5)]),
                writes: ExtentHeat::of(vec![(12, 20), (99, 15)]),
            }),
        };
        let shown = of(&sample, 2).unwrap();
        let shares: Vec<f64> = shown
            .locality
            .iter()
            .map(|l| l.requests_share.unwrap())
            .collect();
        assert_eq!(shares, [0.7, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!((shown.requests, shown.touched), (100, 4));
        let places: Vec<_> = shown
            .places
            .iter()
            .map(|p| (p.device.as_deref(), p.extents, p.requests))
            .collect();
        let expected = [
            (Some("fast-1"), 5, 70),
            (Some("slow-1"), 90, 25),
            (None, 5, 5),
        ];
        assert_eq!(places, expected);
        let hot: Vec<_> = shown
            .hottest
            .iter()
            .map(|h| (h.extent, h.device.as_deref()))
            .collect();
        assert_eq!(hot, [(12, Some("fast-1")), (99, Some("slow-1"))]);
        assert!(text(&shown).contains("hole"));
        let unknown = HeatSample {
            heat: None,
            ..sample
        };
        assert!(
            of(&unknown, 2)
                .unwrap_err()
                .to_string()
                .contains("has no heat counts")
        );
    }
}
