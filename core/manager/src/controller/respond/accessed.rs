//! Hot zones of a live host's volumes, from the counters of extents in reports ([`crate::wire::ExtentAccess`]), window by window,
//! of volumes that could have an appliance. An extent larger than a zone is counted equally in all of its zones.

use std::collections::BTreeMap;

use slo::WorkloadId;
use slo::zones::{Zone, ZoneWindows};
use units::{Bytes, Nanos};

use super::live::LiveState;
use crate::wire::{ExtentAccess, WindowReport};

/// Accesses by zone, of the volumes whose counters are requested.
#[derive(Debug, Default)]
pub(super) struct ZoneAccesses {
    volumes: BTreeMap<WorkloadId, ZoneWindows>,
}

impl ZoneAccesses {
    /// Returns the hot zones of `ago` windows ago.
    pub(super) fn zones(&self, workload: WorkloadId, ago: usize) -> Vec<Zone> {
        let of = self.volumes.get(&workload);
        of.map_or(vec![], |of| of.zones(ago))
    }

    /// Forgets a removed volume: another one may get its number.
    pub(super) fn forget(&mut self, workload: WorkloadId) {
        self.volumes.remove(&workload);
    }
}

/// Adds the extent counters of a report.
pub(super) fn follow(live: &mut LiveState, report: &WindowReport) {
    let (zone, numbers) = (live.config.workflow.warm.zone, &live.numbers);
    let volumes = &mut live.known.accessed.volumes;
    for v in &report.volumes {
        let access = v.mirror.as_ref().and_then(|m| m.access.as_ref());
        if let (Some(w), Some(access)) = (numbers.get(&v.name), access) {
            count(volumes.entry(*w).or_default(), access, zone);
        }
    }
    let lasting = Nanos(report.window_ns);
    volumes.values_mut().for_each(|of| of.end_sample(lasting));
}

fn count(into: &mut ZoneWindows, access: &ExtentAccess, zone: Bytes) {
    let (zone, extent) = (zone.0.max(1), access.extent_bytes);
    let touched = [&access.reads, &access.writes];
    for (number, accesses) in touched.into_iter().flat_map(|heat| heat.touched()) {
        let accesses = u64::from(*accesses);
        let begin = u64::from(*number) * extent;
        let zones = begin / zone..(begin + extent).div_ceil(zone);
        let count = zones.end - zones.start;
        // The remainder is counted in the first zones.
        for (i, z) in zones.enumerate() {
            let more = u64::from((i as u64) < accesses % count);
            into.add(z, accesses / count + more);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{ExtentHeat, ExtentPlaces};

    use super::*;

    #[test]
    fn extents_are_counted_in_their_zones() {
        let access = |extent_bytes, reads: &str, writes: &str| ExtentAccess {
            extent_bytes,
            places: ExtentPlaces::default(),
            reads: ExtentHeat::try_from(reads.to_string()).unwrap(),
            writes: ExtentHeat::try_from(writes.to_string()).unwrap(),
        };
        let of = |access: ExtentAccess| {
            let mut zones = ZoneWindows::default();
            count(&mut zones, &access, Bytes(100));
            (0..15).for_each(|_| zones.end_sample(Nanos::from_secs(10)));
            let zones = zones.zones(0).into_iter();
            zones
                .map(|z| (z.number, (z.share * 100.0).round()))
                .collect::<Vec<_>>()
        };
        // Four to a zone: 0 to 3 are in zone 0. Extents 1 and 6 are read, 7 is written.
        assert_eq!(of(access(25, "1:30,4:10", "7:60")), [(1, 70.0), (0, 30.0)]);
        // Two zones in an extent.
        assert_eq!(
            of(access(200, "1:61", "0:39")),
            [(2, 31.0), (3, 30.0), (0, 20.0), (1, 19.0)]
        );
        assert_eq!(of(access(200, "", "")), []);
    }
}
