//! Peaks that an operator announces: `[[response.peaks]]`.

use config::find;
use config::scenario::{PeakConfig, PeakRecord, ResponseConfig};
use slo::curve::Curve;
use slo::load::{Cost, Resource};
use slo::seasonal::SlotRecord;
use slo::zones::Zone;
use slo::{Habit, KnownPeak, WorkloadId};
use units::Nanos;

use super::link_names;
use crate::build::VolumeModel;
use crate::{ScenarioError, ScenarioFile};

impl ScenarioFile {
    /// Rejects invalid peaks. `devices` are the array's devices by name.
    pub(crate) fn check_peaks(
        &self,
        volumes: &[VolumeModel],
        devices: &[&str],
    ) -> Result<(), ScenarioError> {
        let response = self.scenario.response.iter();
        for (i, peak) in response.flat_map(|r| &r.peaks).enumerate() {
            let fault = |key: &str, why: String| {
                let at = format!("response.peaks[{i}].{key}");
                Err(self.fault(&at, why))
            };
            let names = volumes.iter().map(|v| v.name.as_str());
            if let Err(why) = find(&peak.volume, names) {
                return fault("volume", why.to_string());
            }
            if peak.lead > peak.at {
                let why = format!(
                    "a lead of {} before {} starts before the run",
                    peak.lead, peak.at
                );
                return fault("lead", why);
            }
            if let Some(iops) = peak.iops.filter(|r| !(r.0 > 0.0 && r.0.is_finite())) {
                return fault("iops", format!("{iops} is not above 0"));
            }
            let Some(recorded) = &peak.recorded else {
                continue;
            };
            if let Some((key, why)) = recorded.fault() {
                return fault(&format!("recorded.{key}"), why);
            }
            let servers = self.scenario.hosts.iter();
            let links: Vec<String> = servers
                .filter(|(_, host)| host.link.is_some())
                .flat_map(|(name, _)| link_names(name))
                .collect();
            for name in recorded.costs.keys() {
                let links = links.iter().map(String::as_str);
                if let Err(why) = find(name, devices.iter().copied().chain(links)) {
                    return fault("recorded.costs", why.to_string());
                }
            }
        }
        Ok(())
    }
}

/// Returns the announced peaks for the responder.
pub(super) fn known_peaks<'a>(
    config: &'a ResponseConfig,
    volumes: &'a [VolumeModel],
    resources: &'a [Resource],
) -> impl Iterator<Item = KnownPeak> + 'a {
    let known = move |peak: &PeakConfig| KnownPeak {
        workload: workload(volumes, &peak.volume),
        at: peak.at,
        act_at: Nanos(peak.at.0 - peak.lead.0),
        rate_per_s: peak.iops.map_or(0.0, |r| r.0),
        warm: peak.zones,
        recorded: peak.recorded.as_ref().map(|r| recorded(r, resources)),
    };
    config.peaks.iter().map(known)
}

fn workload(volumes: &[VolumeModel], name: &str) -> WorkloadId {
    let volume = volumes.iter().position(|v| v.name == name);
    WorkloadId(volume.expect("checked with the scenario") as u16)
}

fn recorded(record: &PeakRecord, resources: &[Resource]) -> SlotRecord {
    let zone = |(number, share): &(u64, f64)| Zone {
        number: *number,
        share: *share,
    };
    let cost = |resource: &Resource| {
        let of = record.costs.get(&resource.name);
        of.map_or(Cost::default(), |(read, write)| Cost {
            read_s: read.as_secs_f64(),
            write_s: write.as_secs_f64(),
        })
    };
    SlotRecord {
        zones: record.heavy.iter().map(zone).collect(),
        curve: Some(Curve::new(record.misses.clone())),
        rate_max_per_s: record.iops.0,
        habit: Some(Habit {
            write_share: record.write_share,
            read_bytes: record.read_size.as_f64(),
            costs: resources.iter().map(cost).collect(),
        }),
    }
}
