//! Remedies for violations in a simulation: `[response]`.

use ::cache::WriteMode;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{AheadConfig, ResponderConfig, WarmForecast};
use units::{Bytes, BytesPerSec, Iops, Nanos};

/// Remedies for violations, evaluated every window: throttles, cache shares, over-provisioning shares, mirrors,
/// caching appliances and moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// Remedies that may be used. Of several sufficient ones, `workflow.choice` decides. Default: all.
    #[serde(default = "default_remedies")]
    pub remedies: Vec<RemedyKind>,
    /// Guaranteed rate of each volume of a class, by class: requests per second that a volume gets on demand. It
    /// applies with or without a latency objective.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub iops_min: BTreeMap<String, Iops>,
    /// Behaviour of caching appliances. They need `[hosts]`.
    #[serde(default)]
    pub appliance: ApplianceConfig,
    /// Failures of caching appliances. Default: none.
    #[serde(default)]
    pub failures: ApplianceFailures,
    /// Early remedies for peaks that recur with a season. Without this table there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadConfig>,
    /// Peaks that operators know of. Remedies are applied before they start. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<PeakConfig>,
    /// Parameters of the workflow: detection, interference analysis, sizing, warm-up, prices, release of remedies.
    #[serde(default)]
    pub workflow: ResponderConfig,
}

/// Behaviour of caching appliances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceConfig {
    /// Time from the order until the appliance runs. Default: 59 seconds.
    pub create: Nanos,
    /// Time until requests go through the appliance, or directly to the array again. Default: 1 second.
    pub reroute: Nanos,
    /// Time to destroy the appliance. Default: 10 seconds.
    pub destroy: Nanos,
    /// CPU time of each request, which limits the appliance's rate. Default: 10 microseconds.
    pub per_request: Nanos,
    /// Additional response time of a hit. Default: 20 microseconds.
    pub hit: Nanos,
    /// Size of an SSD behind the appliance's memory that holds all cached data. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssd: Option<Bytes>,
    /// Additional response time of a hit that is only on the SSD. Default: 120 microseconds.
    pub ssd_hit: Nanos,
    /// Compression or deduplication of cached data. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionConfig>,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages. Default: 8 KiB.
    pub page: Bytes,
    /// Handling of writes: `write-around` or `write-through`. Default: write-around.
    pub writes: WriteMode,
    /// Largest rate at which the cache is filled. Default: no limit but the array's.
    pub fill_max: Option<BytesPerSec>,
    /// Number of concurrent reads of a warm-up. Default: 8.
    pub warm_outstanding: u32,
    /// Size of each read of a warm-up, a multiple of the page and at most 64 MiB. Default: one page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_read: Option<Bytes>,
}

/// Peak that an operator knows of, such as the end of a month. Remedies are applied once before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeakConfig {
    /// Volume that has the peak.
    pub volume: String,
    /// Time in the run at which the peak starts.
    pub at: Nanos,
    /// Time before the peak at which remedies are applied. Default: 15 minutes.
    #[serde(default = "default_lead")]
    pub lead: Nanos,
    /// Expected requests per second. The guaranteed or recorded rate counts if it is higher. If all three are
    /// missing, the current rate counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Iops>,
    /// Preloading of the zones with many accesses: "read" or "leave". Default: read.
    #[serde(default = "default_zones")]
    pub zones: WarmForecast,
    /// Recorded load of an earlier peak. Left out, the peak is expected to be more of the load at the time of the
    /// decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<PeakRecord>,
}

/// Recorded load of a peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeakRecord {
    /// Highest rate over two minutes, requests per second.
    pub iops: Iops,
    /// Share of writes in the requests, 0 to 1.
    pub write_share: f64,
    /// Mean size of a read.
    pub read_size: Bytes,
    /// Miss ratios of the reads: pairs of cache size and ratio from 0 to 1.
    pub misses: Vec<(Bytes, f64)>,
    /// Zones with many accesses (`workflow.warm.zone` long), the most accessed first: pairs of zone number and
    /// share of the accesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heavy: Vec<(u64, f64)>,
    /// Time of a read and of a write on each device or link, by name. Links are named "link of HOST, from the
    /// array" and "link of HOST, to the array".
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, (Nanos, Nanos)>,
}

fn default_lead() -> Nanos {
    AheadConfig::default().lead
}

fn default_zones() -> WarmForecast {
    WarmForecast::Read
}

impl PeakRecord {
    /// Returns the first invalid key and the reason, if any.
    pub fn fault(&self) -> Option<(String, String)> {
        let share = |s: f64| (0.0..=1.0).contains(&s);
        let no_share =
            |key: String, s: f64| Some((key, format!("must be a share from 0 to 1, not {s}")));
        if !share(self.write_share) {
            return no_share("write_share".into(), self.write_share);
        }
        if !(self.iops.0 >= 0.0 && self.iops.0.is_finite()) {
            return Some((
                "iops".into(),
                format!("{} is not a rate of 0 or more", self.iops),
            ));
        }
        if self.misses.is_empty() {
            let why = "must have at least one entry: the benefit of a cache is unknown without it";
            return Some(("misses".into(), why.into()));
        }
        let ratios = self.misses.iter().map(|m| m.1).enumerate();
        let shares = self.heavy.iter().map(|h| h.1).enumerate();
        let ratios = ratios.map(|(i, r)| (format!("misses[{i}]"), r));
        let mut all = ratios.chain(shares.map(|(i, s)| (format!("heavy[{i}]"), s)));
        all.find(|(_, s)| !share(*s))
            .and_then(|(key, s)| no_share(key, s))
    }
}

impl Default for ApplianceConfig {
    /// Returns the times of the reproduction of Dynamite, with current values for CPU and memory.
    fn default() -> Self {
        Self {
            create: Nanos::from_secs(59),
            reroute: Nanos::from_secs(1),
            destroy: Nanos::from_secs(10),
            per_request: Nanos::from_micros(10),
            hit: Nanos::from_micros(20),
            ssd: None,
            ssd_hit: Nanos::from_micros(120),
            reduction: None,
            page: Bytes(8 << 10),
            writes: WriteMode::WriteAround,
            fill_max: None,
            warm_outstanding: 8,
            warm_read: None,
        }
    }
}

/// Compression or deduplication in a caching appliance, modelled by one ratio for all data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReductionConfig {
    /// Bytes of data per byte of memory or SSD, 1 to 100.
    pub ratio: f64,
    /// CPU time for each 4 KiB that is read through the appliance: for reduction after a miss, for restoration on a
    /// hit.
    pub per_page: Nanos,
}

/// Unit of `per_page`, bytes.
const REDUCTION_PAGE: u64 = 4096;

impl ReductionConfig {
    /// Returns the reason why the ratio is invalid, if it is.
    pub fn fault(&self) -> Option<String> {
        let can = (1.0..=100.0).contains(&self.ratio);
        (!can).then(|| format!("the ratio must be from 1 to 100, not {}", self.ratio))
    }

    /// Returns the amount of data that fits into some space.
    pub fn holds(&self, space: Bytes) -> Bytes {
        Bytes((space.0 as f64 * self.ratio) as u64)
    }

    /// Returns the CPU time that a read of this size takes for reduction, nanoseconds.
    pub fn read_ns(&self, bytes: u64) -> u64 {
        self.per_page.0 * bytes.div_ceil(REDUCTION_PAGE)
    }
}

/// Largest read of a warm-up.
const WARM_READ_MAX: Bytes = Bytes::mib(64);

impl ApplianceConfig {
    /// Returns the number of pages of each read of a warm-up.
    pub fn warm_pages(&self) -> u32 {
        let read = self.warm_read.unwrap_or(self.page);
        (read.0 / self.page.0.max(1)).max(1) as u32
    }

    /// Returns the reason why the size of warm-up reads is invalid, if it is.
    pub fn warm_read_fault(&self) -> Option<String> {
        let read = self.warm_read?;
        let whole = read >= self.page && read.0.is_multiple_of(self.page.0.max(1));
        if !whole {
            return Some(format!(
                "{read} is not a multiple of the page size, {}",
                self.page
            ));
        }
        (read > WARM_READ_MAX).then(|| format!("{read} is more than {WARM_READ_MAX}"))
    }

    /// Returns the amount of data that fits into some space.
    pub fn holds(&self, space: Bytes) -> Bytes {
        self.reduction.map_or(space, |r| r.holds(space))
    }

    /// Returns the CPU time of a request that reads this many bytes, nanoseconds.
    pub fn request_ns(&self, read_bytes: u64) -> u64 {
        let reduced = self.reduction.map_or(0, |r| r.read_ns(read_bytes));
        self.per_request.0 + reduced
    }
}

/// Failures of caching appliances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceFailures {
    /// Numbers of the creations that fail, counted from 0. Each fails after its full time.
    pub creations: Vec<u32>,
    /// Numbers of the re-routings that are reported as failed although they take place, counted from 0.
    pub reroutings: Vec<u32>,
    /// Times at which the servers of all appliances are lost.
    pub hosts_lost: Vec<Nanos>,
    /// Time until which no appliance can be destroyed. Default: none.
    pub destroying_until: Option<Nanos>,
}

fn default_remedies() -> Vec<RemedyKind> {
    ResponseConfig::default_remedies()
}

impl ResponseConfig {
    /// Returns all kinds of remedies.
    pub fn default_remedies() -> Vec<RemedyKind> {
        RemedyKind::ALL.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_increases_capacity_and_request_time() {
        let reduction = ReductionConfig {
            ratio: 2.5,
            per_page: Nanos(3000),
        };
        let appliance = ApplianceConfig {
            per_request: Nanos(100),
            reduction: Some(reduction),
            ..ApplianceConfig::default()
        };
        assert_eq!(appliance.holds(Bytes(1000)), Bytes(2500));
        assert_eq!(appliance.request_ns(60 << 10), 45_100);
        assert_eq!(appliance.request_ns(1), 3100);
        assert_eq!(appliance.request_ns(0), 100, "a write is not reduced");
        let plain = ApplianceConfig {
            reduction: None,
            ..appliance
        };
        assert_eq!(
            (plain.holds(Bytes(7)), plain.request_ns(9000)),
            (Bytes(7), 100)
        );
        assert_eq!(reduction.fault(), None);
        for ratio in [0.5, 200.0, f64::NAN] {
            assert!(ReductionConfig { ratio, ..reduction }.fault().is_some());
        }
    }
}
