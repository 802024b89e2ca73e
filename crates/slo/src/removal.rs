//! When is an appliance in place no longer worth what it takes? (The paper names three conditions and leaves the numbers open,
//! sec. 5.3; these are ours.)

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

/// Why an appliance goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalReason {
    /// Its workload has been quiet.
    LowLoad,
    /// The backend keeps all promises without it, with a margin.
    NotNeeded,
    /// It hits too seldom.
    Ineffective,
}

/// What a sample says about it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RemovalFacts {
    /// Its share of hits; `None` without reads.
    pub hits: Option<f64>,
    /// The share that was predicted.
    pub hits_predicted: f64,
    /// The workload's rate over its promise; `None` without a promise.
    pub load: Option<f64>,
    /// Greatest use of a resource if it were gone; above 1 where promises would not be kept. `None` while it is not known what
    /// the reads cost that it answers.
    pub use_without: Option<f64>,
    /// Use up to which the backend is taken to be quick.
    pub use_max: f64,
}

/// Counts how long each condition has been true without a break.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalWatch {
    low: u32,
    spare: u32,
    useless: u32,
}

impl RemovalWatch {
    /// Takes a sample in; a reason once a condition has been true for long enough.
    pub fn tell(&mut self, config: &RemovalConfig, facts: &RemovalFacts) -> Option<RemovalReason> {
        let count = |counter: &mut u32, holds: bool| {
            *counter = if holds { *counter + 1 } else { 0 };
            *counter
        };
        let low = facts.load.is_some_and(|l| l < config.low_load);
        let enough = facts.use_max * (1.0 - config.margin);
        let spare = facts.use_without.is_some_and(|u| u <= enough);
        // Without reads nothing is known of its use.
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
    fn each_condition_needs_its_time() {
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
    fn a_break_begins_anew() {
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
