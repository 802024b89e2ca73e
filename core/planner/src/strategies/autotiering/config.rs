//! Parameters of AutoTiering: two forms, and a switch for each difference between them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::ledger::StayCheck;
use crate::{ConfigError, ScoreWeights};

/// Default values of the switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As in the paper.
    Literal,
    /// With corrections of the paper.
    #[default]
    Corrected,
}

macro_rules! switch {
    ($(#[$doc:meta])* $name:ident { $(#[$l:meta])* literal $literal:ident, $(#[$c:meta])* corrected $corrected:ident $(, $(#[$o:meta])* $other:ident)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $(#[$l])* $literal,
            $(#[$c])* $corrected,
            $($(#[$o])* $other,)*
        }

        impl $name {
            fn of(form: Form) -> Self {
                match form {
                    Form::Literal => Self::$literal,
                    Form::Corrected => Self::$corrected,
                }
            }
        }
    };
}

/// Tiers on which a volume is predicted. Alg. 1 l. 23–24 iterates over the tier's own volumes; literally, there is no
/// prediction for other tiers, so both forms use all tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// All volumes on all tiers.
    AllTiers,
    /// Literal reading: only the present tier. No volume ever moves.
    OwnTier,
}

switch!(
    /// Meaning of a prediction of zero or less (Alg. 1 l. 26–29).
    LatencyFloor {
        /// No IOPS: the most sensitive volume loses the tier that it needs most.
        literal Zero,
        /// At least a share of the tier's bare latency.
        corrected Clamp
    }
);
switch!(
    /// Confidence in a prediction (Alg. 1 l. 13–19).
    Confidence {
        /// 1 − mean CV; 0.05 from CV 1. It is below 0.05 between CV 0.95 and 1.
        literal Variation,
        /// 1 − relative standard error of the line at the target tier: the error grows with the distance of the
        /// extrapolation.
        corrected Extrapolation,
        /// 1 − mean CV, at least 0.05.
        FlooredVariation
    }
);
switch!(
    /// Separate lines for reads and writes.
    Directions {
        /// One line over all requests.
        literal Joint,
        /// One per direction, mixed by the share of reads.
        corrected Separate
    }
);
switch!(
    /// Latency of a tier.
    TierLatency {
        /// Latency of an idle device.
        literal Bare,
        /// Latency at the present load of the device (on a target: with this volume added).
        corrected Loaded
    }
);
switch!(
    /// Starting point of a prediction by an injected line (Alg. 1 l. 35).
    Intercept {
        /// Intercept of the line: the latency during the session, under the load of its few seconds.
        literal Session,
        /// Latency measured now; the line gives the slope only.
        corrected Present
    }
);
switch!(
    /// Number of requests in flight with which IOPS are computed from latency (Alg. 1 l. 27).
    Concurrency {
        /// One: IOPS = 1e6 / latency.
        literal One,
        /// As many as measured (Little's law). For a load that does not react, at most the offered rate.
        corrected Little
    }
);
switch!(
    /// Treatment of a volume whose prediction exceeds a tier's caps (Alg. 2 l. 4–11).
    OverDemand {
        /// Rejected, even by the best tier.
        literal Refuse,
        /// The demand is limited to the caps.
        corrected Cap
    }
);
switch!(
    /// Unit of the migration cost, and choices that are charged (Alg. 2 l. 16–18).
    MoveCost {
        /// Seconds; staying is charged as much as moving.
        literal Seconds,
        /// Migration epochs; staying is free.
        corrected Epochs,
        /// Seconds, of moves only: Eq. 1 calls g a cost of migrating, although the listing charges every tier.
        SecondsOfMoves
    }
);
switch!(
    /// Aged history (Eq. 7).
    History {
        /// Last score, penalties and −1 marks included.
        literal Recursion,
        /// Exponential average of the match alone.
        corrected Ewma
    }
);
switch!(
    /// Tiers on which the use of space counts for a volume (the S term of Eq. 6).
    SpaceTerm {
        /// Every tier whose specialty has a weight for space: a large volume is attracted to a small tier.
        literal Everywhere,
        /// The last tier, the capacity tier, only.
        corrected CapacityTier
    }
);
switch!(
    /// Order in which volumes get their tier (Alg. 2 l. 19–25).
    Assignment {
        /// Tier by tier, high end first, in order of score: each tier is filled with all volumes that fit, including volumes
        /// with a higher score on another tier.
        literal TierMajor,
        /// Volume by volume, first the one that loses most without its best tier.
        corrected Regret
    }
);
switch!(
    /// Planning of more IOPS or bandwidth for a tier than its share (Eq. 5).
    Overload {
        /// Forbidden.
        literal Forbid,
        /// Allowed at a price. Demand above the share is unserved, and all volumes on the tier lose alike; the price is the
        /// average value of a share to them. Closed loops fill any tier, so a limit would freeze them.
        corrected Price
    }
);
switch!(
    /// Check of a tier's IOPS and bandwidth for a volume that is already on the tier (Alg. 2, `tierHasCapacityForVM`). Only
    /// for the assignment `tier-major`.
    StayingVolumes {
        /// Checked: every tier is filled from empty, and volumes leave an overloaded one.
        literal Checked,
        /// Exempt: a volume that stays adds no demand. Closed loops fill any tier.
        corrected Exempt
    }
);
switch!(
    /// Windows without injection between the others.
    Controls {
        /// None.
        literal Without,
        /// One before and after each; a window whose neighbours differ by more than a quarter is dropped.
        corrected Interleaved
    }
);

switch!(
    /// Source of a volume's sensitivity.
    SensitivitySource {
        /// Injected latency only: volumes that must not be delayed stay uncalibrated.
        literal Injected,
        /// Injected latency; natural variation for volumes that must not be delayed and if injection gave no line.
        corrected InjectedElsePassive,
        /// Natural variation only: no volume is ever delayed.
        Passive
    }
);

impl StayingVolumes {
    pub(crate) fn of_ledger(self) -> StayCheck {
        match self {
            Self::Checked => StayCheck::Checked,
            Self::Exempt => StayCheck::Exempt,
        }
    }
}

/// Parameters of a calibration session (TSSCS).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CalibrationConfig {
    /// Distinct injected latencies, zero included, evenly spaced up to the latency of the slowest tier.
    pub levels: u32,
    /// Windows per level.
    pub windows: u32,
    /// Length of a window.
    pub window: Nanos,
    /// Smallest number of requests in a valid window.
    pub min_ios: u32,
    /// Smallest number of requests for a volume with a lower rate: its windows are longer instead.
    pub min_ios_low_rate: u32,
    /// Largest length of a window.
    pub window_max: Nanos,
    /// Smallest value of the largest injected latency.
    pub inject_min: Nanos,
    /// Largest value of the largest injected latency.
    pub inject_max: Nanos,
    /// Ratio of neighbouring control windows above 1 from which the window between them is dropped.
    pub steadiness: f64,
    /// Frequency of a volume's calibration.
    pub every: CalibrationEpoch,
}

/// Frequency of a volume's calibration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CalibrationEpoch {
    /// Once per migration epoch, with the volumes spread over its monitor epochs: lines are needed only for migration
    /// decisions.
    #[default]
    Migration,
    /// All volumes in every monitor epoch, as in Alg. 1. A longer session continues until its end.
    Monitor,
}

/// Weights of one tier; missing weights are those of all tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TierWeights {
    /// wetP of Eq. 6.
    pub performance: Option<f64>,
    /// wetB of Eq. 6.
    pub bandwidth: Option<f64>,
    /// wetS of Eq. 6.
    pub space: Option<f64>,
    /// wetMig of Eq. 7, for moves to this tier.
    pub migration: Option<f64>,
}

impl Default for CalibrationConfig {
    fn default() -> Self {
        Self {
            levels: 5,
            windows: 5,
            window: Nanos::from_secs(1),
            min_ios: 100,
            min_ios_low_rate: 30,
            window_max: Nanos::from_secs(60),
            inject_min: Nanos::from_micros(100),
            inject_max: Nanos::from_millis(2),
            steadiness: 0.25,
            every: CalibrationEpoch::default(),
        }
    }
}

/// Parameters of AutoTiering. The paper publishes no values of weights; the defaults are ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AutoTieringConfig {
    /// Defaults of the switches that are not given.
    pub form: Form,
    /// Tiers on which a volume is predicted; default `all-tiers`.
    pub scope: Option<Scope>,
    /// Predictions of zero or less.
    pub latency_floor: Option<LatencyFloor>,
    /// Computation of confidence.
    pub confidence: Option<Confidence>,
    /// Lines per direction.
    pub directions: Option<Directions>,
    /// Idle or loaded tier latency.
    pub tier_latency: Option<TierLatency>,
    /// Starting point of predictions.
    pub intercept: Option<Intercept>,
    /// Requests in flight.
    pub concurrency: Option<Concurrency>,
    /// Demand above the caps.
    pub over_demand: Option<OverDemand>,
    /// Unit of the migration cost.
    pub move_cost: Option<MoveCost>,
    /// Aged history.
    pub history: Option<History>,
    /// Control windows.
    pub controls: Option<Controls>,
    /// Tiers on which space counts.
    pub space_term: Option<SpaceTerm>,
    /// Order of assignment.
    pub assignment: Option<Assignment>,
    /// Treatment of demand above a tier's share of IOPS or bandwidth; `price` needs the assignment `regret`.
    pub overload: Option<Overload>,
    /// Capacity check of volumes that stay; for the assignment `tier-major`.
    pub staying: Option<StayingVolumes>,
    /// Source of sensitivity.
    pub sensitivity: Option<SensitivitySource>,
    /// agingFactor of Eq. 7, 0..1.
    pub aging: f64,
    /// wetP of Eq. 6.
    pub weight_performance: f64,
    /// wetB of Eq. 6.
    pub weight_bandwidth: f64,
    /// wetS of Eq. 6.
    pub weight_space: f64,
    /// wetMig of Eq. 7: score per migration epoch that a move takes. In the `seconds` unit it is divided by the length of a
    /// migration epoch, so both units weigh a move equally.
    pub weight_migration: f64,
    /// Weights of single tiers, by name: the paper has weights for each tier.
    pub tier_weights: BTreeMap<String, TierWeights>,
    /// Number of migration epochs over which the cost of a move is spread: its match is scored per epoch, but its benefit
    /// lasts as long as the load. Default 1 in the literal form (the paper charges all of it to one epoch), 2 in the
    /// corrected form.
    pub payback_epochs: Option<u32>,
    /// Smallest value of a clamped prediction, as a share of the tier's bare latency.
    pub latency_floor_share: f64,
    /// Confidence in a prediction for a volume without a line, 0..=1. Slope 1 is assumed, which is right for guests that
    /// wait for their requests. The default is the paper's smallest confidence. A live manager uses 0.5, because volumes
    /// that violate their objective are not delayed for calibration.
    pub prior_confidence: f64,
    /// Parameters of calibration sessions.
    pub calibration: CalibrationConfig,
}

impl Default for AutoTieringConfig {
    fn default() -> Self {
        Self {
            form: Form::default(),
            scope: None,
            latency_floor: None,
            confidence: None,
            directions: None,
            tier_latency: None,
            intercept: None,
            concurrency: None,
            over_demand: None,
            move_cost: None,
            history: None,
            controls: None,
            space_term: None,
            assignment: None,
            overload: None,
            staying: None,
            sensitivity: None,
            aging: 0.5,
            weight_performance: 1.0,
            weight_bandwidth: 1.0,
            weight_space: 1.0,
            weight_migration: 0.2,
            tier_weights: BTreeMap::new(),
            payback_epochs: None,
            latency_floor_share: 0.5,
            prior_confidence: 0.05,
            calibration: CalibrationConfig::default(),
        }
    }
}

/// Values of all switches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switches {
    pub(crate) scope: Scope,
    pub(crate) latency_floor: LatencyFloor,
    pub(crate) confidence: Confidence,
    pub(crate) directions: Directions,
    pub(crate) tier_latency: TierLatency,
    pub(crate) intercept: Intercept,
    pub(crate) concurrency: Concurrency,
    pub(crate) over_demand: OverDemand,
    pub(crate) move_cost: MoveCost,
    pub(crate) history: History,
    pub(crate) controls: Controls,
    pub(crate) space_term: SpaceTerm,
    pub(crate) assignment: Assignment,
    pub(crate) overload: Overload,
    pub(crate) staying: StayingVolumes,
    pub(crate) sensitivity: SensitivitySource,
}

impl AutoTieringConfig {
    pub(crate) fn payback(&self) -> f64 {
        let default = match self.form {
            Form::Literal => 1,
            Form::Corrected => 2,
        };
        f64::from(self.payback_epochs.unwrap_or(default))
    }

    pub(crate) fn switches(&self) -> Switches {
        let form = self.form;
        Switches {
            scope: self.scope.unwrap_or(Scope::AllTiers),
            latency_floor: self.latency_floor.unwrap_or(LatencyFloor::of(form)),
            confidence: self.confidence.unwrap_or(Confidence::of(form)),
            directions: self.directions.unwrap_or(Directions::of(form)),
            tier_latency: self.tier_latency.unwrap_or(TierLatency::of(form)),
            intercept: self.intercept.unwrap_or(Intercept::of(form)),
            concurrency: self.concurrency.unwrap_or(Concurrency::of(form)),
            over_demand: self.over_demand.unwrap_or(OverDemand::of(form)),
            move_cost: self.move_cost.unwrap_or(MoveCost::of(form)),
            history: self.history.unwrap_or(History::of(form)),
            controls: self.controls.unwrap_or(Controls::of(form)),
            space_term: self.space_term.unwrap_or(SpaceTerm::of(form)),
            assignment: self.assignment.unwrap_or(Assignment::of(form)),
            overload: self.overload.unwrap_or(Overload::of(form)),
            staying: self.staying.unwrap_or(StayingVolumes::of(form)),
            sensitivity: self.sensitivity.unwrap_or(SensitivitySource::of(form)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, why: &str| Err(ConfigError::new("autotiering", key, why));
        if !(0.0..1.0).contains(&self.aging) {
            return bad("aging", "must be at least 0 and below 1");
        }
        if let Some((key, why)) = ScoreWeights::new(self).fault() {
            return bad(&key, why);
        }
        if self
            .payback_epochs
            .is_some_and(|n| !(1..=1_000).contains(&n))
        {
            return bad("payback_epochs", "must be 1 to 1,000");
        }
        if !(self.latency_floor_share > 0.0 && self.latency_floor_share <= 1.0) {
            return bad("latency_floor_share", "must be above 0 and at most 1");
        }
        if !(self.prior_confidence > 0.0 && self.prior_confidence <= 1.0) {
            return bad("prior_confidence", "must be above 0 and at most 1");
        }
        let c = &self.calibration;
        if !(2..=32).contains(&c.levels) {
            return bad(
                "calibration.levels",
                "must be 2 to 32: a line needs two points",
            );
        }
        if !(1..=64).contains(&c.windows) {
            return bad("calibration.windows", "must be 1 to 64");
        }
        if c.window == Nanos::ZERO || c.window_max < c.window {
            return bad(
                "calibration.window",
                "must be positive and at most calibration.window_max",
            );
        }
        if c.inject_min > c.inject_max {
            return bad(
                "calibration.inject_min",
                "must be at most calibration.inject_max",
            );
        }
        if c.steadiness.is_nan() || c.steadiness <= 0.0 {
            return bad("calibration.steadiness", "must be positive");
        }
        Ok(())
    }
}
