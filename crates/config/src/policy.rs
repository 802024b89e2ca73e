//! The policy and the service classes: the words, and what they stand for.

use std::collections::BTreeMap;

use model::{
    Affinity, AffinityKind, Budget, Epochs, Gates, Headroom, NO_CLASS, Objective, Pin, Policy,
    SloClass, SloStatistic,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, ClassId, Nanos, TierId, VolumeId};

use crate::unknown::find;
use crate::{ConfigFault, Text};

/// Weight of a class. Scores are compared in steps of 1e-9 and must stay far from overflow.
const WEIGHT_MAX: f64 = 1e6;
/// A shorter epoch has too few requests to measure anything.
const MONITOR_EPOCH_MIN: Nanos = Nanos::from_millis(100);

/// A service class.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Unique name.
    pub name: String,
    /// Weight in scores.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Latency that must not be exceeded.
    pub latency: Option<Nanos>,
    /// Statistic of the latency that the objective is about.
    #[serde(default = "default_statistic")]
    pub statistic: SloStatistic,
}

fn default_weight() -> f64 {
    1.0
}
fn default_statistic() -> SloStatistic {
    SloStatistic::P99
}

/// What the operator wants.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// How often facts are gathered.
    pub monitor_epoch: Option<Nanos>,
    /// How often data may be moved; a multiple of the monitor epoch.
    pub migration_epoch: Option<Nanos>,
    /// Share of a tier's IOPS that placement may plan with, 0..=1.
    pub headroom_performance: Option<f64>,
    /// Share of a tier's bandwidth.
    pub headroom_bandwidth: Option<f64>,
    /// Share of a tier's space, 0..=1. The rest is a reserve for later moves: not a limit for whole volumes, but `terrace` has a
    /// price for it. Strategies of extents fill the first tier up to this share.
    pub headroom_space: Option<f64>,
    /// Moves per migration epoch.
    pub moves_per_epoch: Option<u32>,
    /// Bytes moved per migration epoch.
    pub bytes_per_epoch: Option<Bytes>,
    /// Copies at once.
    pub concurrent_moves: Option<u32>,
    /// Copies at once that touch one device.
    pub concurrent_moves_per_device: Option<u32>,
    /// Rate of one copy.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// Share of what source and target have left that a copy may take, 0..=1.
    pub copy_share: Option<f64>,
    /// Volumes that must be on a tier: `{ volume = "tier" }`.
    pub pins: BTreeMap<String, String>,
    /// Volumes that belong together or apart.
    pub affinity: Vec<AffinityConfig>,
    /// Tiers that take no new data.
    pub cordon: Vec<String>,
    /// Tiers to empty: they take no new data, and every volume on them moves to the nearest tier with room.
    pub drain: Vec<String>,
    /// Share of a device's space, 0..=1, above which its least used volumes move down; no limit if left out.
    pub space_high: Option<f64>,
    /// Live only: sizes of volumes may come to so many times the space of an array, at least 1; more volumes are refused.
    pub overcommit_max: Option<f64>,
    /// Migration epochs in a row in which a strategy must want a volume on the same tier before it moves; 1 is at once.
    pub hold: Option<u32>,
    /// Time since the end of a volume's last move before a strategy may move it again.
    pub cooldown: Option<Nanos>,
    /// Share by which a volume's mean latency must be predicted to fall, 0..=1; smaller gains are left alone.
    pub margin: Option<f64>,
    /// Volumes with a lower mean latency are left alone by moves that are to make them faster.
    pub threshold: Option<Nanos>,
    /// Volumes whose requests must not be delayed for calibration.
    pub no_injection: Vec<String>,
}

impl PolicyConfig {
    /// The decision intervals; not checked.
    pub fn epochs(&self) -> Epochs {
        let usual = Epochs::default();
        Epochs {
            monitor: self.monitor_epoch.unwrap_or(usual.monitor),
            migration: self.migration_epoch.unwrap_or(usual.migration),
        }
    }
}

/// An affinity rule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityConfig {
    /// Which kind.
    pub kind: AffinityKind,
    /// The volumes.
    pub volumes: Vec<String>,
}

/// What to do about volumes that are named and are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownVolumes {
    /// They are a fault.
    Refuse,
    /// Their rules wait until they are there.
    Skip,
}

/// A policy whose names are ids.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedPolicy {
    /// The policy.
    pub policy: Policy,
    /// Volumes that it names and that are not there, each once, by name; none with [`UnknownVolumes::Refuse`].
    pub unknown: Vec<String>,
}

/// The service classes that are described at the key `classes`.
///
/// # Errors
/// Names that are given twice, and weights that make no sense.
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
            let why = format!("{} is not above 0, up to {WEIGHT_MAX}", c.weight);
            return Err(text.fault(&format!("classes[{i}].weight"), why));
        }
        let target = c.latency.map(|latency| Objective {
            statistic: c.statistic,
            latency,
        });
        classes.push(SloClass {
            name: c.name.clone(),
            weight: c.weight,
            target,
        });
    }
    Ok(classes)
}

/// The class of a volume that names one, or none. A volume without a class is of none, never of the first: [`SloClass::none`], which is
/// added to the classes when the first volume is of it, unless it is described among them under its name.
///
/// # Errors
/// A name that is not among them.
pub fn class_of(classes: &mut Vec<SloClass>, name: Option<&str>) -> Result<ClassId, String> {
    let name = name.unwrap_or(NO_CLASS);
    if name == NO_CLASS && classes.iter().all(|c| c.name != NO_CLASS) {
        classes.push(SloClass::none());
    }
    find(name, classes.iter().map(|c| c.name.as_str())).map(ClassId::from_index)
}

/// The policy at the key `at`, for an array of these tiers and volumes (names in the order of their ids).
///
/// # Errors
/// Values that make no sense, tiers that there are not, and volumes that there are not unless they are skipped.
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
        let why = format!("{ratio} is not a ratio of at least 1");
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
    fn fault(&self, key: &str, why: impl Into<String>) -> ConfigFault {
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
                "{migration} is not a multiple, above once, of the monitor epoch of {monitor}"
            );
            return Err(self.fault("migration_epoch", why));
        }
        Ok(())
    }

    fn share(&self, key: &str, value: Option<f64>, default: f64) -> Result<f64, ConfigFault> {
        match value.unwrap_or(default) {
            v if v > 0.0 && v <= 1.0 => Ok(v),
            v => Err(self.fault(key, format!("{v} is not a share above 0, up to 1"))),
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
            return Err(self.fault("hold", "must be at least 1, which is at once"));
        }
        if !(0.0..=1.0).contains(&gates.margin) {
            let why = format!("{} is not a share, 0 to 1", gates.margin);
            return Err(self.fault("margin", why));
        }
        Ok(gates)
    }

    /// What names tiers and volumes.
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
            // One volume alone is bound to nothing.
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

    /// `None` for one that is not there and is skipped.
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
