//! One array under one way to manage it.

use std::sync::Arc;

use serde::Serialize;
use sim::cached::{BackEndMode, CacheMode, CachedArray, CachedResult, run_cached};

/// A way to manage cache and back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

    fn modes(self) -> (CacheMode, BackEndMode) {
        match self {
            Self::Regular => (CacheMode::Lru, BackEndMode::Regular),
            Self::QosLru => (CacheMode::Lru, BackEndMode::Qos),
            Self::QosHrLru => (CacheMode::HrLru, BackEndMode::Qos),
            Self::QosPriorityLru => (CacheMode::PriorityLru, BackEndMode::Qos),
            Self::QosPriorityLruCorrected => (CacheMode::PriorityLruCorrected, BackEndMode::Qos),
        }
    }
}

/// One run.
#[derive(Debug, Clone)]
pub struct Job {
    /// The customer, or the array.
    pub customer: &'static str,
    /// How it is managed.
    pub variant: Variant,
    array: Arc<CachedArray>,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct JobResult {
    /// The customer, or the array.
    pub customer: &'static str,
    /// How it was managed.
    pub variant: Variant,
    /// Names of the kinds of devices.
    pub kinds: Vec<String>,
    /// The numbers.
    pub result: CachedResult,
}

impl Job {
    pub(super) fn new(customer: &'static str, variant: Variant, array: &Arc<CachedArray>) -> Self {
        Self {
            customer,
            variant,
            array: Arc::clone(array),
        }
    }

    /// Hours that it simulates.
    pub fn hours(&self) -> u32 {
        self.array.hours
    }

    /// Runs it; `progress` hears the hours that are done.
    pub fn run(&self, progress: &mut dyn FnMut(u32)) -> JobResult {
        let (cache, back_end) = self.variant.modes();
        JobResult {
            customer: self.customer,
            variant: self.variant,
            kinds: self.array.kinds.iter().map(|k| k.name.clone()).collect(),
            result: run_cached(&self.array, cache, back_end, progress)
                .expect("the cache of a customer has both parts"),
        }
    }
}
