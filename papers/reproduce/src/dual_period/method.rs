//! Compared methods: the paper's existing and proposed ones, the adaptive one of this project, others, and a bound.

use planner::extents::{
    AdaptivePeriod, AdaptivePeriodConfig, AgedFrequency, Clairvoyant, ClairvoyantConfig,
    DualPeriod, DualPeriodConfig, ExtentPolicy, Foresight, MovingAverages, Period, PeriodConfig,
    Recurrence,
};
use serde::{Deserialize, Serialize};
use sim::counting::{Cell, CellSpec, PolicyCell};
use units::Nanos;

/// Measurement periods of the existing method in hours (published).
pub(crate) const PERIODS: [u8; 5] = [1, 3, 6, 12, 24];
/// Shares C of the proposed method in percent (published).
pub(crate) const SHARES: [u8; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

/// Method with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Existing method with L hours.
    Existing(u8),
    /// Proposed method with C percent, 1 h and 24 h.
    Proposed(u8),
    /// `adaptive-period` with its defaults.
    Adaptive,
    /// Adaptive method without regard to the time of day.
    AdaptiveWithoutRecurrence,
    /// `moving-averages` with its defaults.
    MovingAverages,
    /// `aged-frequency` with its defaults.
    AgedFrequency,
    /// Knows the next hour; maximizes hits at any cost.
    ClairvoyantHits,
    /// Knows the next hour; makes only moves that pay within it.
    ClairvoyantNet,
}

impl Method {
    /// Returns all methods of the comparison.
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

    /// Returns the paper's methods: the existing and the proposed one.
    pub fn published() -> Vec<Self> {
        Self::all().into_iter().filter(|m| m.is_fixed()).collect()
    }

    /// Returns true for the paper's methods, whose parameters are fixed.
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::Existing(_) | Self::Proposed(_))
    }

    /// Returns the printed name.
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

    /// Creates a cell that evaluates the method.
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
