//! Step 9: warm-up of an appliance. It reads whole hot zones in advance, densest first, at a share of the backend's unused
//! capacity. It reads nothing if the hot set has just changed.
//!
//! The paper's own reactive warm-up was harmful, because the peak used other data than the time before it (sec. 7.2). Hence
//! the present hot zones are compared with those of ten minutes ago. If fewer than half are common, or the earlier ones are
//! unknown, nothing is read.
//!
//! When not to use: for a hot set that changes all the time, even if each set is cacheable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::zones::{Zone, likeness};

/// Warm-up of an appliance: zones that are read in advance, and the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WarmConfig {
    /// Size of a zone, at least 1 MiB. Default: 64 MiB.
    pub zone: Bytes,
    /// Share of the array's spare requests that a warm-up may use, 0 to 1. Default: 0.2. With null, which TOML
    /// cannot express, there is no limit.
    pub spare_share: Option<f64>,
    /// Smallest share of hot zones that were hot before, 0 to 1; below it nothing is read. With 0, hot zones are
    /// always read. Default: 0.5.
    pub likeness_min: f64,
    /// Lowest rate of a warm-up, requests per second, so that it ends. Default: 10.
    pub rate_min_per_s: f64,
    /// Hot zones that are read after a violation. Default: latest.
    pub zones: WarmZones,
}

/// Hot zones that an appliance reads after a violation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarmZones {
    /// Hot zones of the last minutes.
    #[default]
    Latest,
    /// Hot zones of ten minutes earlier, before the violation, as in the paper's reactive warm-up; for comparison.
    BeforeViolation,
}

impl Default for WarmConfig {
    fn default() -> Self {
        Self {
            zone: Bytes::mib(64),
            spare_share: Some(0.2),
            likeness_min: 0.5,
            rate_min_per_s: 10.0,
            zones: WarmZones::default(),
        }
    }
}

/// Plan of a warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "warm", rename_all = "kebab-case")]
pub enum Warm {
    /// Nothing: the workload's own reads fill the cache.
    Cold { why: String },
    /// These zones are read, in this order.
    Zones {
        /// Numbers of the zones.
        zones: Vec<u64>,
        /// Size of a zone.
        zone: Bytes,
        /// Reads per second; `None` without a limit.
        rate_per_s: Option<f64>,
    },
}

impl Warm {
    /// Returns a description for messages.
    pub fn in_words(&self) -> String {
        match self {
            Warm::Cold { why } => format!("cold: {why}"),
            Warm::Zones {
                zones, rate_per_s, ..
            } => {
                let n = zones.len();
                match rate_per_s {
                    Some(rate) => format!("warm-up of {n} zones at {rate:.0}/s"),
                    None => format!("warm-up of {n} zones without a rate limit"),
                }
            }
        }
    }
}

/// Plans the warm-up of a cache of `cache` bytes. `now` has the present hot zones, `before` those of the minutes before, and
/// `spare_per_s` is the unused capacity of the backend, reads per second.
pub fn plan(
    config: &WarmConfig,
    now: &[Zone],
    before: &[Zone],
    cache: Bytes,
    spare_per_s: f64,
) -> Warm {
    let cold = |why: String| Warm::Cold { why };
    if now.is_empty() {
        return cold("no zone has many accesses".into());
    }
    if before.is_empty() && config.likeness_min > 0.0 {
        return cold("the earlier hot zones are unknown".into());
    }
    let alike = likeness(now, before);
    if alike < config.likeness_min {
        let (alike, min) = (100.0 * alike, 100.0 * config.likeness_min);
        return cold(format!(
            "only {alike:.0} % of the hot zones were hot before, less than {min:.0} %"
        ));
    }
    // More zones than fit would evict those read first, which are the densest.
    let fits = (cache.0 / config.zone.0.max(1)).max(1) as usize;
    let rate = config
        .spare_share
        .map(|share| (share * spare_per_s).max(config.rate_min_per_s));
    Warm::Zones {
        zones: now.iter().take(fits).map(|z| z.number).collect(),
        zone: config.zone,
        rate_per_s: rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(numbers: std::ops::Range<u64>) -> Vec<Zone> {
        let zone = |n| Zone {
            number: n,
            share: 0.5 / (n + 1) as f64,
        };
        numbers.map(zone).collect()
    }

    #[test]
    fn changed_working_set_is_not_warmed_up() {
        let config = WarmConfig::default();
        let plan_of =
            |now: &[Zone], before: &[Zone]| plan(&config, now, before, Bytes::gib(3), 1000.0);
        assert!(matches!(
            plan_of(&zones(0..10), &zones(8..18)),
            Warm::Cold { .. }
        ));
        let why = |now: &[Zone], before: &[Zone]| match plan_of(now, before) {
            Warm::Cold { why } => why,
            Warm::Zones { .. } => panic!("left alone"),
        };
        assert_eq!(why(&[], &[]), "no zone has many accesses");
        // Unknown zones are not the same as zones without similarity.
        assert_eq!(why(&zones(0..10), &[]), "the earlier hot zones are unknown");
        let Warm::Zones {
            zones: read,
            rate_per_s,
            ..
        } = plan_of(&zones(0..60), &zones(5..60))
        else {
            panic!("zones that stayed are read");
        };
        assert_eq!(
            read,
            (0..48).collect::<Vec<_>>(),
            "3 GiB are 48 zones, densest first"
        );
        assert_eq!(rate_per_s, Some(200.0));
    }

    #[test]
    fn published_warm_up_reads_all_zones_at_full_rate() {
        let config = WarmConfig {
            spare_share: None,
            likeness_min: 0.0,
            ..WarmConfig::default()
        };
        let warm = plan(&config, &zones(0..4), &zones(10..14), Bytes::gib(3), 0.0);
        assert!(matches!(
            warm,
            Warm::Zones {
                rate_per_s: None,
                ..
            }
        ));
    }
}
