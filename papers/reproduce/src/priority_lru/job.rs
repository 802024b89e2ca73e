//! Runs of a customer's array with one seed and one load, under all variants of cache and back end.

use std::sync::Arc;

use super::array::{ArrayError, BackEndMode, CacheMode};
use super::arrays::Scale;
use super::customer::{Customer, Sources};
use super::matching::{MatchResult, matched};
use super::result::ArrayResult;
use serde::{Deserialize, Serialize};

/// Combination of a cache policy and a back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Exchanges without service classes, LRU: table II's "regular system".
    Regular,
    /// Exchanges with service classes, LRU: table I's "LRU".
    QosLru,
    /// Exchanges with service classes, HR-LRU.
    QosHrLru,
    /// Exchanges with service classes, Priority-LRU as printed: both tables' last column.
    QosPriorityLru,
    /// Exchanges with service classes, Priority-LRU with ageing and hit ratios that count only after enough accesses.
    QosPriorityLruCorrected,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 5] = [
        Self::Regular,
        Self::QosLru,
        Self::QosHrLru,
        Self::QosPriorityLru,
        Self::QosPriorityLruCorrected,
    ];
    /// The columns of table I.
    pub(super) const FIRST: [Self; 2] = [Self::QosLru, Self::QosPriorityLru];
    /// The columns of table II.
    pub(super) const SECOND: [Self; 2] = [Self::Regular, Self::QosPriorityLru];

    /// Returns the name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regular => "regular + LRU",
            Self::QosLru => "QoS + LRU",
            Self::QosHrLru => "QoS + HR-LRU",
            Self::QosPriorityLru => "QoS + Priority-LRU",
            Self::QosPriorityLruCorrected => "QoS + Priority-LRU, corrected",
        }
    }

    pub(super) fn modes(self) -> (CacheMode, BackEndMode) {
        match self {
            Self::Regular => (CacheMode::Lru, BackEndMode::Regular),
            Self::QosLru => (CacheMode::Lru, BackEndMode::Qos),
            Self::QosHrLru => (CacheMode::HrLru, BackEndMode::Qos),
            Self::QosPriorityLru => (CacheMode::PriorityLru, BackEndMode::Qos),
            Self::QosPriorityLruCorrected => (CacheMode::PriorityLruCorrected, BackEndMode::Qos),
        }
    }
}

/// Method that sets the load of a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Rates as drawn, scaled to a given utilization of the slowest devices in the busiest half hour.
    AsDrawn,
    /// Rates scaled per class to mean response times near the published ones of the customer.
    Matched,
}

impl Load {
    /// Both methods.
    pub const ALL: [Self; 2] = [Self::AsDrawn, Self::Matched];

    /// Returns the name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsDrawn => "as drawn",
            Self::Matched => "matched",
        }
    }

    /// Returns the variants to run with the load. The matched load is only for the tables of the paper.
    fn variants(self) -> &'static [Variant] {
        match self {
            Self::AsDrawn => &Variant::ALL,
            Self::Matched => &[Variant::Regular, Variant::QosLru, Variant::QosPriorityLru],
        }
    }
}

/// Simulated array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrayKind {
    /// Array of the paper: SSD, FC and SATA.
    Disks,
    /// Modern array: TLC and QLC drives.
    Flash,
}

/// One array with one load. Its result depends only on the serialized fields.
#[derive(Debug, Clone, Serialize)]
pub struct Job {
    pub(super) seed: u64,
    pub(super) array: ArrayKind,
    pub(super) customer: Customer,
    pub(super) load: Load,
    pub(super) scale: Scale,
    /// Hash of all recordings and intensities.
    pub(super) fingerprint: u64,
    #[serde(skip)]
    pub(super) made_of: Arc<Sources>,
}

/// Result of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobResult {
    /// Seed of the job.
    pub seed: u64,
    /// Simulated array.
    pub array: ArrayKind,
    /// Name of the customer.
    pub customer: String,
    /// Method that set the load.
    pub load: Load,
    /// Names of the kinds of devices.
    pub kinds: Vec<String>,
    /// Result of the search for a matched load.
    pub matching: Option<MatchResult>,
    /// Runs of all variants.
    pub runs: Vec<Run>,
}

/// Run of one variant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Variant of the run.
    pub variant: Variant,
    /// Measurements of the run.
    pub result: ArrayResult,
}

impl Job {
    /// Runs the job.
    ///
    /// # Errors
    /// If the array cannot be simulated.
    pub fn run(&self) -> Result<JobResult, ArrayError> {
        let drawn = self.array()?;
        let (array, matching) = match self.load {
            Load::AsDrawn => (drawn, None),
            Load::Matched => {
                let published = self.customer.published_lru_ms();
                let (array, matching) = matched(drawn, published, self.scale.match_runs)?;
                (array, Some(matching))
            }
        };
        let run = |variant: &Variant| {
            let (cache, back_end) = variant.modes();
            Ok(Run {
                variant: *variant,
                result: array.run(cache, back_end)?,
            })
        };
        let runs = self.load.variants().iter().map(run);
        Ok(JobResult {
            seed: self.seed,
            array: self.array,
            customer: self.customer.name.into(),
            load: self.load,
            kinds: array.kinds.iter().map(|k| k.name.into()).collect(),
            matching,
            runs: runs.collect::<Result<_, ArrayError>>()?,
        })
    }
}
