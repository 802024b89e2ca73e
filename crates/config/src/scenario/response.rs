//! What is done when an objective breaks: `[response]`.

use ::cache::WriteMode;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{AheadConfig, ResponderConfig, WarmForecast};
use units::{Bytes, BytesPerSec, Iops, Nanos};

/// Answers to broken objectives, window by window: who is held back, who gets a part of the cache or the spare flash, who gets a
/// caching appliance, and what moves to another device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// What may be done; of those that would do, the cheapest is (`workflow.choice`).
    #[serde(default = "default_remedies")]
    pub remedies: Vec<RemedyKind>,
    /// Requests per second that each volume of a class gets if it asks for as many, by class: beside the class's latency, or without
    /// one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub iops_min: BTreeMap<String, Iops>,
    /// How caching appliances behave; they need `[hosts]`.
    #[serde(default)]
    pub appliance: ApplianceConfig,
    /// What goes wrong with them.
    #[serde(default)]
    pub failures: ApplianceFailures,
    /// Peaks that come again with a season are acted on before they begin; none are if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadConfig>,
    /// Peaks that are known beforehand, and acted on before they begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<PeakConfig>,
    /// How answers are found: detection, interference, what can be cached, sizes, warm-up, removal.
    #[serde(default)]
    pub workflow: ResponderConfig,
}

/// How caching appliances behave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceConfig {
    /// From order to being up.
    pub create: Nanos,
    /// Until requests go through it, or back.
    pub reroute: Nanos,
    /// Until it is gone.
    pub destroy: Nanos,
    /// Time of its processors that each request takes: a bound on its rate.
    pub per_request: Nanos,
    /// Response time of a hit, on top.
    pub hit: Nanos,
    /// An SSD behind its memory, on which everything is that it keeps; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssd: Option<Bytes>,
    /// Response time of a hit on the SSD, on top.
    pub ssd_hit: Nanos,
    /// It keeps data compressed or deduplicated; as it is if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionConfig>,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages.
    pub page: Bytes,
    /// What it does with writes: `write-around` or `write-through`.
    pub writes: WriteMode,
    /// Most that it takes in, a second; none is as fast as the array reads.
    pub fill_max: Option<BytesPerSec>,
    /// Reads of a warm-up that are outstanding at once.
    pub warm_outstanding: u32,
    /// Bytes of such a read, whole pages; a page if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_read: Option<Bytes>,
}

/// A peak that an operator knows of: the end of a month, a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeakConfig {
    /// Whose.
    pub volume: String,
    /// When it begins.
    pub at: Nanos,
    /// So long before it is acted on.
    #[serde(default = "default_lead")]
    pub lead: Nanos,
    /// Requests per second that it will ask for. At least as many as it was promised or `recorded` says, or as now where neither says anything, are
    /// expected anyhow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Iops>,
    /// Whether its heavily accessed zones are read in advance: "read" or "leave".
    #[serde(default = "default_zones")]
    pub zones: WarmForecast,
    /// What an earlier one was like. If left out, it is taken to be more of what the volume does when the peak is acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<PeakRecord>,
}

/// What was recorded of a peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeakRecord {
    /// The most requests per second that it had for two minutes.
    pub iops: Iops,
    /// Share of requests that write.
    pub write_share: f64,
    /// Mean size of a read.
    pub read_size: Bytes,
    /// Miss ratios of its reads, by the size of a cache.
    pub misses: Vec<(Bytes, f64)>,
    /// Heavily accessed zones (`workflow.warm.zone` long), the heaviest first: number and share of the accesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heavy: Vec<(u64, f64)>,
    /// Time that a read and a write took of devices and links, by name: "link of HOST, from the array" and "link of HOST, to the array".
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
    /// The key of what cannot have been recorded, and why; none if all can.
    pub fn fault(&self) -> Option<(String, String)> {
        let share = |s: f64| (0.0..=1.0).contains(&s);
        let no_share = |key: String, s: f64| Some((key, format!("{s} is not from 0 to 1")));
        if !share(self.write_share) {
            return no_share("write_share".into(), self.write_share);
        }
        if !(self.iops.0 >= 0.0 && self.iops.0.is_finite()) {
            return Some(("iops".into(), format!("{} is not 0 or more", self.iops)));
        }
        if self.misses.is_empty() {
            let why = "without miss ratios nothing can be said of a cache";
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
    /// Times of the reproduction of Dynamite but for processor and memory, which are of today.
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

/// What reduction gains and what it costs. One ratio for all data: a model of neither's content.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReductionConfig {
    /// Bytes of data for each byte of memory or SSD: 1 to 100.
    pub ratio: f64,
    /// Time of its processors for each 4 KiB that is read through it: reduced when it is kept, restored when it is found.
    pub per_page: Nanos,
}

/// Unit of time for reduction.
const REDUCTION_PAGE: u64 = 4096;

impl ReductionConfig {
    /// Why it cannot be; none if it can.
    pub fn fault(&self) -> Option<String> {
        let can = (1.0..=100.0).contains(&self.ratio);
        (!can).then(|| format!("a ratio is from 1 to 100, not {}", self.ratio))
    }

    /// Data that is kept in some space.
    pub fn holds(&self, space: Bytes) -> Bytes {
        Bytes((space.0 as f64 * self.ratio) as u64)
    }

    /// Time of the processors that a read of some bytes takes, on top of that of any request, nanoseconds.
    pub fn read_ns(&self, bytes: u64) -> u64 {
        self.per_page.0 * bytes.div_ceil(REDUCTION_PAGE)
    }
}

/// The largest read of a warm-up.
const WARM_READ_MAX: Bytes = Bytes::mib(64);

impl ApplianceConfig {
    /// Pages that a warm-up reads at once.
    pub fn warm_pages(&self) -> u32 {
        let read = self.warm_read.unwrap_or(self.page);
        (read.0 / self.page.0.max(1)).max(1) as u32
    }

    /// Why the reads of a warm-up cannot be like this; none if they can.
    pub fn warm_read_fault(&self) -> Option<String> {
        let read = self.warm_read?;
        let whole = read >= self.page && read.0.is_multiple_of(self.page.0.max(1));
        if !whole {
            return Some(format!("{read} is no whole pages of {}", self.page));
        }
        (read > WARM_READ_MAX).then(|| format!("{read} is more than {WARM_READ_MAX}"))
    }

    /// Data that it keeps in some space.
    pub fn holds(&self, space: Bytes) -> Bytes {
        self.reduction.map_or(space, |r| r.holds(space))
    }

    /// Time of its processors that a request takes, of which so many bytes are read, nanoseconds.
    pub fn request_ns(&self, read_bytes: u64) -> u64 {
        let reduced = self.reduction.map_or(0, |r| r.read_ns(read_bytes));
        self.per_request.0 + reduced
    }
}

/// What goes wrong with appliances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceFailures {
    /// Creations that fail after their time, counted from 0.
    pub creations: Vec<u32>,
    /// Re-routings that are said to have failed and may have taken place, counted from 0.
    pub reroutings: Vec<u32>,
    /// Times at which the hosts of all appliances are lost.
    pub hosts_lost: Vec<Nanos>,
    /// Until then no appliance can be destroyed.
    pub destroying_until: Option<Nanos>,
}

fn default_remedies() -> Vec<RemedyKind> {
    ResponseConfig::default_remedies()
}

impl ResponseConfig {
    /// All that there are.
    pub fn default_remedies() -> Vec<RemedyKind> {
        RemedyKind::ALL.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_holds_more_and_costs_time() {
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
