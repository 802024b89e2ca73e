//! Policy and service classes: configuration tables, and their resolution to ids.

use std::collections::BTreeMap;

use model::{
    Affinity, AffinityKind, Budget, Epochs, Gates, Headroom, MAX_SLOWDOWN, NO_CLASS, Objective,
    Pin, Policy, SloClass, SloStatistic,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, ClassId, Nanos, TierId, VolumeId};

use crate::unknown::find;
use crate::{ConfigFault, Text, ValueError};

/// Largest weight of a class. Scores are compared in steps of 1e-9 and must not overflow.
const WEIGHT_MAX: f64 = 1e6;
/// Shortest monitor epoch: a shorter one has too few requests for a measurement.
const MONITOR_EPOCH_MIN: Nanos = Nanos::from_millis(100);

/// Service class: a weight and, optionally, a latency objective.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Unique name of the class.
    pub name: String,
    /// Weight of the class in scores, above 0: violations of a class with weight 2 count twice as much as with
    /// weight 1. Default: 1.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Latency objective: the statistic of a volume's latency must not exceed this time. Without it, the class has
    /// no objective.
    pub latency: Option<Nanos>,
    /// Statistic of the latency that the objective limits: mean, p95 or p99. Default: p99.
    #[serde(default = "default_statistic")]
    pub statistic: SloStatistic,
    /// Largest mean latency that moves may cause for a volume of a class without an objective, as a multiple of the
    /// predicted mean latency with all volumes at their original places: a number from 1, or `"none"` for no limit.
    /// The original place is the last one that an operator, a pin or the initial placement chose. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_slowdown: Option<MaxSlowdown>,
}

/// Value of `max_slowdown`: a factor, or `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MaxSlowdown {
    /// Multiple of the mean latency at the original place.
    Factor(f64),
    /// No limit.
    Unlimited(Unlimited),
}

impl MaxSlowdown {
    /// Returns the key of a class; `None` if the class has an objective, and hence no limit of slowdown.
    pub fn of(class: &SloClass) -> Option<Self> {
        let limit = class
            .max_slowdown
            .map_or(Self::Unlimited(Unlimited::None), Self::Factor);
        class.target.is_none().then_some(limit)
    }
}

/// The word for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unlimited {
    /// No limit.
    None,
}

fn default_weight() -> f64 {
    1.0
}
fn default_statistic() -> SloStatistic {
    SloStatistic::P99
}

/// Decision intervals, limits, gates and placement rules of the operator. A key that is left out has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Interval at which measurements are collected for decisions, at least 100 ms. Default: 1 minute.
    pub monitor_epoch: Option<Nanos>,
    /// Interval at which moves are planned: a multiple of `monitor_epoch`, at least twice as long. Default: 15
    /// minutes.
    pub migration_epoch: Option<Nanos>,
    /// Share of a tier's IOPS that placement may plan to use, above 0 and up to 1. Default: 0.8.
    pub headroom_performance: Option<f64>,
    /// Share of a tier's bandwidth that placement may plan to use, above 0 and up to 1. Default: 0.8.
    pub headroom_bandwidth: Option<f64>,
    /// Share of a tier's space that is used without a price, above 0 and up to 1. The rest is a reserve for later moves. The
    /// reserve does not limit whole volumes, but the strategy `terrace` has a price for its use. Strategies of extents fill the
    /// first tier up to this share. Default: 0.9.
    pub headroom_space: Option<f64>,
    /// Largest number of moves in a migration epoch; 0 moves nothing. Default: 64.
    pub moves_per_epoch: Option<u32>,
    /// Largest amount of data moved in a migration epoch. Default: no limit.
    pub bytes_per_epoch: Option<Bytes>,
    /// Largest number of moves that copy at the same time. Default: 4.
    pub concurrent_moves: Option<u32>,
    /// Largest number of simultaneous moves that read from or write to one device. Default: 1.
    pub concurrent_moves_per_device: Option<u32>,
    /// Largest copy rate of one move. Default: 200 MiB/s.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// Largest share of the unused capability of source and target that a move may take, above 0 and up to 1.
    /// Default: 0.25.
    pub copy_share: Option<f64>,
    /// Pins: each volume in this table stays on the named tier, as in `{ volume = "tier" }`. Default: none.
    pub pins: BTreeMap<String, String>,
    /// Rules for volumes that must share a tier or must not share a device. Default: none.
    pub affinity: Vec<AffinityConfig>,
    /// Cordoned tiers: they accept no new data and keep their present data. Default: none.
    pub cordon: Vec<String>,
    /// Tiers to drain: they accept no new data, and each of their volumes moves to the nearest tier with room.
    /// Default: none.
    pub drain: Vec<String>,
    /// Space use of a device, as a share above 0 and up to 1, above which its least used volumes move to lower
    /// tiers. Default: no limit.
    pub space_high: Option<f64>,
    /// Live only: largest ratio of the total size of all volumes to the space of the array, at least 1. Creation of
    /// further volumes is refused. Default: 2.
    pub overcommit_max: Option<f64>,
    /// Number of consecutive migration epochs in which the strategy must choose the same tier for a volume before
    /// it moves; 1 moves it at once. Default: 1; live: 2.
    pub hold: Option<u32>,
    /// Time after the end of a volume's move in which strategies do not move it again. Default: 0; live: 1 hour.
    pub cooldown: Option<Nanos>,
    /// Smallest predicted reduction of a volume's mean latency for which it moves, as a share from 0 to 1. Default:
    /// 0; live: 0.05.
    pub margin: Option<f64>,
    /// Mean latency below which a volume is fast enough: moves for latency leave it where it is. Default: 0, which
    /// applies to no volume.
    pub threshold: Option<Nanos>,
    /// Volumes whose requests are never delayed for calibration. Default: none.
    pub no_injection: Vec<String>,
}

impl PolicyConfig {
    /// Returns the decision intervals, unchecked.
    pub fn epochs(&self) -> Epochs {
        let usual = Epochs::default();
        Epochs {
            monitor: self.monitor_epoch.unwrap_or(usual.monitor),
            migration: self.migration_epoch.unwrap_or(usual.migration),
        }
    }
}

/// Affinity rule: volumes that must share a tier, or must not share a device.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityConfig {
    /// Kind of the rule: `same-tier` or `different-devices`.
    pub kind: AffinityKind,
    /// Names of the volumes, at least two.
    pub volumes: Vec<String>,
}

/// Treatment of rules that name volumes that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownVolumes {
    /// The configuration is rejected.
    Refuse,
    /// The rules take effect when the volumes exist.
    Skip,
}

/// Policy with ids in place of names.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedPolicy {
    /// The policy.
    pub policy: Policy,
    /// Names of volumes that do not exist, sorted; empty with [`UnknownVolumes::Refuse`].
    pub unknown: Vec<String>,
}

/// Returns the service classes of the key `classes`.
///
/// # Errors
/// Duplicate names, invalid weights and invalid limits of slowdown.
pub fn resolve_classes(
    text: &Text,
    configured: &[ClassConfig],
) -> Result<Vec<SloClass>, ConfigFault> {
    let mut classes = Vec::new();
    for (i, c) in configured.iter().enumerate() {
        if configured[..i].iter().any(|o| o.name == c.name) {
            let why = format!("class \"{}\" is listed twice", c.name);
            return Err(text.fault(&format!("classes[{i}].name"), why));
        }
        if !(c.weight > 0.0 && c.weight <= WEIGHT_MAX) {
            let why = format!(
                "{} is not a weight above 0 and up to {WEIGHT_MAX}",
                c.weight
            );
            return Err(text.fault(&format!("classes[{i}].weight"), why));
        }
        let target = c.latency.map(|latency| Objective {
            statistic: c.statistic,
            latency,
        });
        let fault = |why: &str| text.fault(&format!("classes[{i}].max_slowdown"), why);
        let max_slowdown = max_slowdown(c, fault)?;
        classes.push(SloClass {
            name: c.name.clone(),
            weight: c.weight,
            target,
            max_slowdown,
        });
    }
    Ok(classes)
}

fn max_slowdown(
    class: &ClassConfig,
    fault: impl Fn(&str) -> ConfigFault,
) -> Result<Option<f64>, ConfigFault> {
    match class.max_slowdown {
        Some(_) if class.latency.is_some() => Err(fault(
            "a class with a latency objective has no max_slowdown: remove one of them",
        )),
        Some(MaxSlowdown::Factor(factor)) if !(1.0..=1e6).contains(&factor) => Err(fault(
            &format!("{factor} is not a factor from 1 to 1000000 or \"none\""),
        )),
        Some(MaxSlowdown::Factor(factor)) => Ok(Some(factor)),
        Some(MaxSlowdown::Unlimited(_)) => Ok(None),
        None => Ok(class.latency.is_none().then_some(MAX_SLOWDOWN)),
    }
}

/// Returns the class with this name, or the class of volumes without a class.
///
/// Volumes without a class belong to [`SloClass::none`], never to the first class. It is added to `classes` at its
/// first use, unless the configuration describes a class of its name.
///
/// # Errors
/// [`ValueError::UnknownName`].
pub fn class_of(classes: &mut Vec<SloClass>, name: Option<&str>) -> Result<ClassId, ValueError> {
    let name = name.unwrap_or(NO_CLASS);
    if name == NO_CLASS && classes.iter().all(|c| c.name != NO_CLASS) {
        classes.push(SloClass::none());
    }
    find(name, classes.iter().map(|c| c.name.as_str())).map(ClassId::from_index)
}

/// Returns the policy at the key `at`, for an array with these tiers and volumes (names in the order of their ids).
///
/// # Errors
/// Invalid values, unknown tiers and, unless they are skipped, unknown volumes.
pub fn resolve_policy(
    text: &Text,
    at: &str,
    config: &PolicyConfig,
    tiers: &[&str],
    volumes: &[&str],
    unknown: UnknownVolumes,
) -> Result<ResolvedPolicy, ConfigFault> {
    let mut resolver = Resolver {
        text,
        at,
        tiers,
        volumes,
        on_unknown: unknown,
        unknown: vec![],
    };
    let mut policy = Policy {
        headroom: resolver.headroom(config)?,
        budget: resolver.budget(config)?,
        gates: resolver.gates(config)?,
        ..Policy::default()
    };
    resolver.epochs(config, &mut policy)?;
    if config.space_high.is_some() {
        policy.space_high = Some(resolver.share("space_high", config.space_high, 1.0)?);
    }
    if let Some(ratio) = config.overcommit_max
        && !(1.0..f64::INFINITY).contains(&ratio)
    {
        let why = format!("{ratio} is not a ratio of 1 or more");
        return Err(resolver.fault("overcommit_max", why));
    }
    resolver.rules(config, &mut policy)?;
    let mut unknown = resolver.unknown;
    unknown.sort();
    unknown.dedup();
    Ok(ResolvedPolicy { policy, unknown })
}

struct Resolver<'a> {
    text: &'a Text,
    at: &'a str,
    tiers: &'a [&'a str],
    volumes: &'a [&'a str],
    on_unknown: UnknownVolumes,
    unknown: Vec<String>,
}

impl Resolver<'_> {
    fn fault(&self, key: &str, why: impl ToString) -> ConfigFault {
        self.text.fault(&format!("{}.{key}", self.at), why)
    }

    fn epochs(&self, p: &PolicyConfig, policy: &mut Policy) -> Result<(), ConfigFault> {
        policy.epochs = p.epochs();
        let Epochs { monitor, migration } = policy.epochs;
        if monitor < MONITOR_EPOCH_MIN {
            let why = format!("must be at least {MONITOR_EPOCH_MIN}");
            return Err(self.fault("monitor_epoch", why));
        }
        if !migration.0.is_multiple_of(monitor.0) || migration <= monitor {
            let why = format!(
                "{migration} is not a multiple of the monitor epoch ({monitor}), at least twice as long"
            );
            return Err(self.fault("migration_epoch", why));
        }
        Ok(())
    }

    fn share(&self, key: &str, value: Option<f64>, default: f64) -> Result<f64, ConfigFault> {
        match value.unwrap_or(default) {
            v if v > 0.0 && v <= 1.0 => Ok(v),
            v => Err(self.fault(key, format!("must be a share above 0 and up to 1, not {v}"))),
        }
    }

    fn headroom(&self, p: &PolicyConfig) -> Result<Headroom, ConfigFault> {
        let usual = Headroom::default();
        let performance = p.headroom_performance;
        Ok(Headroom {
            performance: self.share("headroom_performance", performance, usual.performance)?,
            bandwidth: self.share("headroom_bandwidth", p.headroom_bandwidth, usual.bandwidth)?,
            space: self.share("headroom_space", p.headroom_space, usual.space)?,
        })
    }

    fn budget(&self, p: &PolicyConfig) -> Result<Budget, ConfigFault> {
        let usual = Budget::default();
        let per_device = p.concurrent_moves_per_device;
        let budget = Budget {
            moves_per_epoch: p.moves_per_epoch.unwrap_or(usual.moves_per_epoch),
            bytes_per_epoch: p.bytes_per_epoch.or(usual.bytes_per_epoch),
            concurrent: p.concurrent_moves.unwrap_or(usual.concurrent),
            concurrent_per_device: per_device.unwrap_or(usual.concurrent_per_device),
            copy_bandwidth: p.copy_bandwidth.unwrap_or(usual.copy_bandwidth),
            copy_share: self.share("copy_share", p.copy_share, usual.copy_share)?,
        };
        let none = "must be above 0; to move nothing, use moves_per_epoch = 0";
        if budget.copy_bandwidth.0 == 0 {
            return Err(self.fault("copy_bandwidth", none));
        }
        if budget.concurrent == 0 || budget.concurrent_per_device == 0 {
            return Err(self.fault("concurrent_moves", none));
        }
        Ok(budget)
    }

    fn gates(&self, p: &PolicyConfig) -> Result<Gates, ConfigFault> {
        let usual = Gates::default();
        let gates = Gates {
            hold: p.hold.unwrap_or(usual.hold),
            cooldown: p.cooldown.unwrap_or(usual.cooldown),
            margin: p.margin.unwrap_or(usual.margin),
            threshold: p.threshold.unwrap_or(usual.threshold),
        };
        if gates.hold == 0 {
            return Err(self.fault("hold", "must be at least 1; 1 moves at once"));
        }
        if !(0.0..=1.0).contains(&gates.margin) {
            let why = format!("must be a share from 0 to 1, not {}", gates.margin);
            return Err(self.fault("margin", why));
        }
        Ok(gates)
    }

    /// Resolves rules that name tiers and volumes.
    fn rules(&mut self, p: &PolicyConfig, policy: &mut Policy) -> Result<(), ConfigFault> {
        for (v, t) in &p.pins {
            let tier = self.tier("pins", t)?;
            let volume = self.volume("pins", v)?;
            policy
                .pins
                .extend(volume.map(|volume| Pin { volume, tier }));
        }
        for (i, rule) in p.affinity.iter().enumerate() {
            let key = format!("affinity[{i}].volumes");
            let mut names = rule.volumes.clone();
            names.sort();
            names.dedup();
            if names.len() < 2 || names.len() < rule.volumes.len() {
                let why = "needs at least two different volumes, each named once";
                return Err(self.fault(&key, why));
            }
            let mut volumes = Vec::new();
            for name in &rule.volumes {
                volumes.extend(self.volume(&key, name)?);
            }
            volumes.sort();
            // A rule with one volume has no effect.
            if volumes.len() >= 2 {
                policy.affinity.push(Affinity {
                    kind: rule.kind,
                    volumes,
                });
            }
        }
        for name in &p.no_injection {
            let volume = self.volume("no_injection", name)?;
            policy.no_injection.extend(volume);
        }
        for name in &p.cordon {
            policy.cordoned.push(self.tier("cordon", name)?);
        }
        for name in &p.drain {
            policy.draining.push(self.tier("drain", name)?);
        }
        Ok(())
    }

    fn tier(&self, key: &str, name: &str) -> Result<TierId, ConfigFault> {
        find(name, self.tiers.iter().copied())
            .map(TierId::from_index)
            .map_err(|why| self.fault(key, format!("tier: {why}")))
    }

    /// Returns the id of a volume, or `None` if it does not exist and is skipped.
    fn volume(&mut self, key: &str, name: &str) -> Result<Option<VolumeId>, ConfigFault> {
        match (find(name, self.volumes.iter().copied()), self.on_unknown) {
            (Ok(i), _) => Ok(Some(VolumeId::from_index(i))),
            (Err(_), UnknownVolumes::Skip) => {
                self.unknown.push(name.into());
                Ok(None)
            }
            (Err(why), UnknownVolumes::Refuse) => Err(self.fault(key, format!("volume: {why}"))),
        }
    }
}

#[cfg(test)]
mod tests;
