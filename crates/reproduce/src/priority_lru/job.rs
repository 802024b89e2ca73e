//! A customer's array with one seed and one load, under every way to manage it.

use std::sync::Arc;

use super::array::{ArrayError, BackEndMode, CacheMode};
use super::arrays::Scale;
use super::customer::{Customer, Sources};
use super::matching::{Matching, matched};
use super::result::ArrayResult;
use serde::{Deserialize, Serialize};

/// A way to manage cache and back end.
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
    /// The same with age-out and ratios that need enough accesses.
    QosPriorityLruCorrected,
}

impl Variant {
    /// All of them.
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

    /// As printed.
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

/// How busy a customer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// As drawn, scaled so that the busiest half hour keeps the slowest devices busy for a share of its time.
    AsDrawn,
    /// Scaled class by class until mean response times are near those that the paper prints for the customer.
    Matched,
}

impl Load {
    /// Both.
    pub const ALL: [Self; 2] = [Self::AsDrawn, Self::Matched];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsDrawn => "as drawn",
            Self::Matched => "matched",
        }
    }

    /// What is run with it: the matched load is for the paper's tables.
    fn variants(self) -> &'static [Variant] {
        match self {
            Self::AsDrawn => &Variant::ALL,
            Self::Matched => &[Variant::Regular, Variant::QosLru, Variant::QosPriorityLru],
        }
    }
}

/// Which array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrayKind {
    /// The paper's: SSD, FC and SATA.
    Disks,
    /// A modern one: TLC and QLC drives.
    Flash,
}

/// One array with one load. What it gives depends on what is serialized and on nothing else.
#[derive(Debug, Clone, Serialize)]
pub struct Job {
    pub(super) seed: u64,
    pub(super) array: ArrayKind,
    pub(super) customer: Customer,
    pub(super) load: Load,
    pub(super) scale: Scale,
    /// Of all recordings and intensities.
    pub(super) fingerprint: u64,
    #[serde(skip)]
    pub(super) made_of: Arc<Sources>,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobResult {
    /// Its seed.
    pub seed: u64,
    /// Which array.
    pub array: ArrayKind,
    /// The customer.
    pub customer: String,
    /// How busy it was.
    pub load: Load,
    /// Names of the kinds of devices.
    pub kinds: Vec<String>,
    /// What came of matching its load.
    pub matching: Option<Matching>,
    /// Every way to manage it.
    pub runs: Vec<Run>,
}

/// One way to manage an array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Which.
    pub variant: Variant,
    /// The numbers.
    pub result: ArrayResult,
}

impl Job {
    /// Runs it.
    ///
    /// # Errors
    /// When the array cannot be simulated.
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
