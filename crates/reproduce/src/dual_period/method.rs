//! What is compared: the paper's existing and proposed method, ours, comparators and a bound.

use planner::extents::{
    AdaptivePeriod, AdaptivePeriodConfig, AgedFrequency, Clairvoyant, ClairvoyantConfig,
    DualPeriod, DualPeriodConfig, ExtentPolicy, Foresight, MovingAverages, Period, PeriodConfig,
    Recurrence,
};
use serde::{Deserialize, Serialize};
use sim::counting::{Cell, CellSpec, PolicyCell};
use units::Nanos;

/// Measurement periods of the existing method, hours (published).
pub(crate) const PERIODS: [u8; 5] = [1, 3, 6, 12, 24];
/// Shares C of the proposed method, percent (published).
pub(crate) const SHARES: [u8; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

/// A method with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The existing method with L hours.
    Existing(u8),
    /// The proposed method with C percent, 1 h and 24 h.
    Proposed(u8),
    /// `adaptive-period` with its defaults.
    Adaptive,
    /// The same, not looking at the time of day.
    AdaptiveWithoutRecurrence,
    /// `moving-averages` with its defaults.
    MovingAverages,
    /// `aged-frequency` with its defaults.
    AgedFrequency,
    /// Knows the next hour; hits at any price.
    ClairvoyantHits,
    /// Knows the next hour; moves that pay within it.
    ClairvoyantNet,
}

impl Method {
    /// All of the comparison.
    pub fn all() -> Vec<Self> {
        let existing = PERIODS.map(Self::Existing);
        let proposed = SHARES.map(Self::Proposed);
        let others = [
            Self::Adaptive,
            Self::AdaptiveWithoutRecurrence,
            Self::MovingAverages,
            Self::AgedFrequency,
            Self::ClairvoyantHits,
            Self::ClairvoyantNet,
        ];
        existing.into_iter().chain(proposed).chain(others).collect()
    }

    /// Methods of the paper only: the existing and the proposed one.
    pub fn published() -> Vec<Self> {
        Self::all().into_iter().filter(|m| m.is_fixed()).collect()
    }

    /// Whether it is one of the paper's, with fixed parameters.
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::Existing(_) | Self::Proposed(_))
    }

    /// As printed.
    pub fn name(self) -> String {
        match self {
            Self::Existing(hours) => format!("L = {hours} h"),
            Self::Proposed(share) => format!("C = {share} %"),
            Self::Adaptive => "adaptive".into(),
            Self::AdaptiveWithoutRecurrence => "adaptive, no recurrence".into(),
            Self::MovingAverages => "moving averages".into(),
            Self::AgedFrequency => "aged frequency".into(),
            Self::ClairvoyantHits => "clairvoyant".into(),
            Self::ClairvoyantNet => "clairvoyant, net".into(),
        }
    }

    /// A cell that evaluates it.
    pub(crate) fn cell(self, spec: CellSpec) -> Box<dyn Cell> {
        let hours = |h: u8| Nanos::from_secs(u64::from(h) * 3600);
        match self {
            Self::Existing(period) => cell::<Period>(
                &PeriodConfig {
                    period: hours(period),
                    ..PeriodConfig::default()
                },
                spec,
            ),
            Self::Proposed(share) => cell::<DualPeriod>(
                &DualPeriodConfig {
                    share: f64::from(share) / 100.0,
                    ..DualPeriodConfig::default()
                },
                spec,
            ),
            Self::Adaptive => cell::<AdaptivePeriod>(&AdaptivePeriodConfig::default(), spec),
            Self::AdaptiveWithoutRecurrence => cell::<AdaptivePeriod>(
                &AdaptivePeriodConfig {
                    recurrence: Recurrence::Ignored,
                    ..AdaptivePeriodConfig::default()
                },
                spec,
            ),
            Self::MovingAverages => cell::<MovingAverages>(&Default::default(), spec),
            Self::AgedFrequency => cell::<AgedFrequency>(&Default::default(), spec),
            Self::ClairvoyantHits => cell::<Clairvoyant>(&ClairvoyantConfig::default(), spec),
            Self::ClairvoyantNet => cell::<Clairvoyant>(
                &ClairvoyantConfig {
                    foresight: Foresight::Net,
                },
                spec,
            ),
        }
    }
}

fn cell<P: ExtentPolicy>(config: &P::Config, spec: CellSpec) -> Box<dyn Cell> {
    let policy = P::new(config).expect("parameters of the comparison make sense");
    Box::new(PolicyCell::new(policy, spec))
}
