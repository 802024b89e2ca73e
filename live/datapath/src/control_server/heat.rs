//! Heat of one volume's extents: their access counters and places.

use model::{ExtentHeat, ExtentPlaces};
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId};
use volume::VolumeMap;

use super::{ControlAnswer, ControlServer, Result};
use crate::heat::{Heat, HeatSince};

/// Cursor of a caller: its next request returns the extents that were accessed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatCursor {
    /// Start of the counters, in nanoseconds of the server's monotonic clock.
    pub since_ns: u64,
    /// Last turn that the caller has seen.
    pub turn: u32,
}

/// Places and access counters of a volume's extents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatSample {
    pub volume: String,
    /// Size of an extent.
    pub extent: Bytes,
    /// Number of extents.
    pub extents: u32,
    /// Names of the devices that hold extents.
    pub devices: Vec<String>,
    /// Places of the extents; a device is an index in `devices`.
    pub places: ExtentPlaces,
    /// Counters; none if the volume is not served or not measured, or has too many extents.
    pub heat: Option<HeatCounts>,
}

/// Counters of the extents that were accessed since the cursor of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatCounts {
    /// Cursor for the next request. If its start differs from that of the last one, `touched` has all accesses since the
    /// new start.
    pub cursor: HeatCursor,
    /// Number of reads since the start, by extent.
    pub reads: ExtentHeat,
    /// Number of writes since the start, by extent.
    pub writes: ExtentHeat,
}

impl HeatCounts {
    /// Returns extents in ascending order, each with its reads and writes since the start.
    pub fn touched(&self) -> Vec<(u32, u32, u32)> {
        let (mut reads, mut writes) = (
            self.reads.touched().iter().peekable(),
            self.writes.touched().iter().peekable(),
        );
        let mut touched = vec![];
        loop {
            let next = [reads.peek(), writes.peek()];
            let Some(extent) = next.into_iter().flatten().map(|t| t.0).min() else {
                return touched;
            };
            let read = reads.next_if(|t| t.0 == extent).map_or(0, |t| t.1);
            let written = writes.next_if(|t| t.0 == extent).map_or(0, |t| t.1);
            touched.push((extent, read, written));
        }
    }
}

impl From<HeatSince> for HeatCounts {
    fn from(mut seen: HeatSince) -> Self {
        seen.touched.sort_unstable_by_key(|t| t.0);
        let of = |counter: fn(&Heat) -> u32| {
            let all = seen.touched.iter().map(|(e, heat)| (*e, counter(heat)));
            ExtentHeat::of(all.filter(|t| t.1 > 0).collect())
        };
        Self {
            cursor: HeatCursor {
                since_ns: seen.since_ns,
                turn: seen.turn,
            },
            reads: of(|h| h.reads),
            writes: of(|h| h.writes),
        }
    }
}

/// Returns the places of a map's extents. An extent that is not imported yet has no place on a tier.
fn places(map: &VolumeMap) -> ExtentPlaces {
    let here = |e| map.location(e).filter(|_| !map.is_at_source(e));
    ExtentPlaces::of((0..map.extents()).map(|e| here(e).map(|l| l.device)))
}

impl ControlServer {
    pub(super) fn heat(&self, name: &str, since: Option<HeatCursor>) -> Result<ControlAnswer> {
        let record = self.volume(name)?;
        let id = record.id;
        let since = since.map(|s| (s.since_ns, s.turn));
        let asked = self.ask_stages(id, move |v| {
            Ok((places(v.map), v.stages.measure.heat(since)))
        });
        let (held, heat) = match asked {
            Ok((held, heat)) => (held, heat.map(HeatCounts::from)),
            Err(_) => {
                let (size, source) = (record.size, record.source.as_ref().map(|s| s.device));
                let held = self.with_keeper(move |keeper| -> Result<ExtentPlaces> {
                    let at = keeper.map.places(id)?;
                    let extent = keeper.map.extent();
                    Ok(places(&VolumeMap::from_source(size, extent, at, source)))
                })??;
                (held, None)
            }
        };
        let volume = record.name;
        self.with_keeper(move |keeper| {
            let runs = held.runs();
            let mut devices: Vec<DeviceId> = runs.iter().filter_map(|r| r.1).collect();
            devices.sort_unstable();
            devices.dedup();
            let place = |d: DeviceId| {
                let found = devices.binary_search(&d).expect("it is one of them");
                DeviceId::from_index(found)
            };
            let runs = runs.iter().map(|(n, d)| (*n, d.map(place)));
            ControlAnswer::Heat(HeatSample {
                volume,
                extent: keeper.map.extent(),
                extents: held.count(),
                devices: devices
                    .iter()
                    .map(|d| keeper.records[d].name.clone())
                    .collect(),
                places: ExtentPlaces::of_runs(runs),
                heat,
            })
        })
    }
}
