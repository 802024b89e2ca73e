//! Conditions for the removal of an appliance. The paper has three conditions without numbers (sec. 5.3); the numbers are
//! ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Conditions for the removal of a caching appliance. A sample is a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RemovalConfig {
    /// Smallest useful hit ratio, as a share of the predicted one. Default: 0.5.
    pub hits_min: f64,
    /// Number of consecutive samples below `hits_min` after which the appliance is removed. Default: 60.
    pub useless_samples: u32,
    /// Share of each resource that must stay unused without the appliance, so that it counts as unneeded. Default:
    /// 0.2.
    pub margin: f64,
    /// Number of consecutive samples in which the array needs no appliance after which it is removed. Default: 180.
    pub spare_samples: u32,
    /// Rate of the workload, as a share of its guaranteed rate, below which the load counts as low. Default: 0.25.
    pub low_load: f64,
    /// Number of consecutive samples with low load after which the appliance is removed. Default: 180.
    pub low_samples: u32,
}

impl Default for RemovalConfig {
    fn default() -> Self {
        Self {
            hits_min: 0.5,
            useless_samples: 60,
            margin: 0.2,
            spare_samples: 180,
            low_load: 0.25,
            low_samples: 180,
        }
    }
}

/// Reason for the removal of an appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalReason {
    /// Low load of the workload.
    LowLoad,
    /// All objectives are met without the appliance, with a margin.
    NotNeeded,
    /// A low hit ratio.
    Ineffective,
}

/// Facts about an appliance from one sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RemovalFacts {
    /// Hit ratio; `None` without reads.
    pub hits: Option<f64>,
    /// Predicted hit ratio.
    pub hits_predicted: f64,
    /// Rate of the workload relative to its guaranteed rate; `None` without one.
    pub load: Option<f64>,
    /// Largest use of a resource without the appliance; above 1 if objectives would be violated. `None` while the cost of
    /// the reads that the appliance serves is unknown.
    pub use_without: Option<f64>,
    /// Use limit of the backend, 0..=1.
    pub use_max: f64,
}

/// Counters of consecutive samples in which each condition holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalWatch {
    low: u32,
    spare: u32,
    useless: u32,
}

impl RemovalWatch {
    /// Processes a sample and returns a reason once its condition has held for long enough.
    pub fn tell(&mut self, config: &RemovalConfig, facts: &RemovalFacts) -> Option<RemovalReason> {
        let count = |counter: &mut u32, holds: bool| {
            *counter = if holds { *counter + 1 } else { 0 };
            *counter
        };
        let low = facts.load.is_some_and(|l| l < config.low_load);
        let enough = facts.use_max * (1.0 - config.margin);
        let spare = facts.use_without.is_some_and(|u| u <= enough);
        // Without reads the hit ratio is unknown.
        let hits = |h: f64| h < config.hits_min * facts.hits_predicted;
        let useless = facts.hits.is_some_and(hits);
        let low = count(&mut self.low, low);
        let spare = count(&mut self.spare, spare);
        let useless = count(&mut self.useless, useless);
        if useless >= config.useless_samples {
            Some(RemovalReason::Ineffective)
        } else if low >= config.low_samples {
            Some(RemovalReason::LowLoad)
        } else if spare >= config.spare_samples {
            Some(RemovalReason::NotNeeded)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> RemovalFacts {
        RemovalFacts {
            hits: Some(0.8),
            hits_predicted: 0.85,
            load: Some(1.1),
            use_without: Some(0.9),
            use_max: 0.8,
        }
    }

    fn after(facts: RemovalFacts, n: usize) -> Option<RemovalReason> {
        let mut watch = RemovalWatch::default();
        (0..n)
            .filter_map(|_| watch.tell(&RemovalConfig::default(), &facts))
            .next()
    }

    #[test]
    fn removal_conditions_require_their_duration() {
        assert_eq!(after(good(), 1000), None);
        let useless = RemovalFacts {
            hits: Some(0.3),
            ..good()
        };
        assert_eq!(after(useless, 59), None);
        assert_eq!(after(useless, 60), Some(RemovalReason::Ineffective));
        let low = RemovalFacts {
            load: Some(0.1),
            ..good()
        };
        assert_eq!(after(low, 179), None);
        assert_eq!(after(low, 180), Some(RemovalReason::LowLoad));
        let spare = RemovalFacts {
            use_without: Some(0.63),
            ..good()
        };
        assert_eq!(after(spare, 180), Some(RemovalReason::NotNeeded));
        let unknown = RemovalFacts {
            use_without: None,
            ..good()
        };
        assert_eq!(after(unknown, 1000), None);
        let no_reads = RemovalFacts {
            hits: None,
            ..good()
        };
        assert_eq!(after(no_reads, 1000), None);
    }

    #[test]
    fn interrupted_removal_condition_restarts_its_duration() {
        let mut watch = RemovalWatch::default();
        let config = RemovalConfig::default();
        let useless = RemovalFacts {
            hits: Some(0.1),
            ..good()
        };
        for _ in 0..10 {
            for _ in 0..59 {
                assert_eq!(watch.tell(&config, &useless), None);
            }
            assert_eq!(watch.tell(&config, &good()), None);
        }
    }
}
