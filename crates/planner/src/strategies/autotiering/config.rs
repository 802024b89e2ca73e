//! Parameters of AutoTiering: two forms, and a switch for each difference between them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::ledger::Staying;
use crate::{ConfigError, ScoreWeights};

/// Which set of switches is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As the paper says.
    Literal,
    /// With its faults mended.
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

/// Which tiers a volume is predicted on (Alg. 1 l. 23–24 iterates over the tier's own volumes; taken by the letter,
/// nothing is predicted anywhere else, so both forms use all tiers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Every volume on every tier.
    AllTiers,
    /// By the letter: only where the volume is. Nothing ever moves.
    OwnTier,
}

switch!(
    /// What a prediction of zero or less means (Alg. 1 l. 26–29).
    LatencyFloor {
        /// No IOPS at all: the most sensitive volume loses the tier that it needs most.
        literal Zero,
        /// At least a share of the tier's bare latency.
        corrected Clamp
    }
);
switch!(
    /// How sure a prediction is (Alg. 1 l. 13–19).
    Confidence {
        /// 1 − mean CV; 0.05 from CV 1 on. Falls below 0.05 between CV 0.95 and 1.
        literal Variation,
        /// 1 − relative standard error of the line at the target tier: grows with the distance of the extrapolation.
        corrected Extrapolation,
        /// 1 − mean CV, never below 0.05.
        FlooredVariation
    }
);
switch!(
    /// Whether reads and writes have lines of their own.
    Directions {
        /// One line over all requests.
        literal Joint,
        /// One per direction, mixed by the share of reads.
        corrected Separate
    }
);
switch!(
    /// What a tier's latency is.
    TierLatency {
        /// On an idle device.
        literal Bare,
        /// At the load that the device has (and, on a target, would have with this volume).
        corrected Loaded
    }
);
switch!(
    /// From which latency a prediction by an injected line sets out (Alg. 1 l. 35).
    Intercept {
        /// The line's own: what was measured during the session, under the load of its few seconds.
        literal Session,
        /// What is measured now; the line gives the slope.
        corrected Present
    }
);
switch!(
    /// How many requests a volume keeps in flight when IOPS are computed from latency (Alg. 1 l. 27).
    Concurrency {
        /// One: IOPS = 1e6 / latency.
        literal One,
        /// As many as measured (Little's law), and no more than are offered where the load does not react.
        corrected Little
    }
);
switch!(
    /// What happens to a volume that is predicted to exceed a tier's caps (Alg. 2 l. 4–11).
    OverDemand {
        /// Refused, even by the best tier.
        literal Refuse,
        /// Its demand is what the caps allow.
        corrected Cap
    }
);
switch!(
    /// Unit and occasion of the migration cost (Alg. 2 l. 16–18).
    MoveCost {
        /// Seconds; staying is charged like moving.
        literal Seconds,
        /// Migration epochs; staying is free.
        corrected Epochs,
        /// Seconds, of moves only: Eq. 1 calls g a cost of migrating, though the listing charges every tier.
        SecondsOfMoves
    }
);
switch!(
    /// What the aged history is (Eq. 7).
    History {
        /// The last score, penalties and −1 marks included.
        literal Recursion,
        /// Exponential average of the match alone.
        corrected Ewma
    }
);
switch!(
    /// On which tiers taking up space counts for a volume (the S term of Eq. 6).
    SpaceTerm {
        /// Wherever the tier's specialty has a weight for space: a big volume is drawn to a small tier.
        literal Everywhere,
        /// On the last tier, the capacity tier, only.
        corrected CapacityTier
    }
);
switch!(
    /// In which order volumes get their tier (Alg. 2 l. 19–25).
    Assignment {
        /// Tier by tier, high end first, in order of score: a tier is packed with whatever fits, also with volumes
        /// that score higher elsewhere.
        literal TierMajor,
        /// Volume by volume, first the one that loses most if it does not get its best tier.
        corrected Regret
    }
);
switch!(
    /// What it means to plan more IOPS or bandwidth for a tier than its share (Eq. 5).
    Overload {
        /// It is forbidden.
        literal Forbid,
        /// What is over the share is not delivered, and taken from all who are there: it costs what a volume's match is
        /// worth there on average. Loads that wait for their answers fill any tier, so that a limit would freeze them.
        corrected Price
    }
);
switch!(
    /// Check of a tier's IOPS and bandwidth for a volume that is already on the tier (Alg. 2, `tierHasCapacityForVM`). Only for the
    /// assignment `tier-major`.
    StayingVolumes {
        /// They are: every tier is filled from empty, and an overloaded one is relieved.
        literal Checked,
        /// They are not: a volume that stays asks for nothing new. Closed loops fill any tier.
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
    /// Where the sensitivity of a volume comes from.
    SensitivitySource {
        /// Injected latency only: volumes that must not be delayed stay uncalibrated.
        literal Injected,
        /// Injected latency; natural variation for volumes that must not be delayed and where injection gave no line.
        corrected InjectedElsePassive,
        /// Natural variation only: nothing is ever delayed.
        Passive
    }
);

impl StayingVolumes {
    pub(crate) fn of_ledger(self) -> Staying {
        match self {
            Self::Checked => Staying::Checked,
            Self::Exempt => Staying::Exempt,
        }
    }
}

/// A calibration session (TSSCS).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CalibrationConfig {
    /// Distinct injected latencies, zero included, evenly spaced up to the latency of the slowest tier.
    pub levels: u32,
    /// Windows per level.
    pub windows: u32,
    /// Length of a window.
    pub window: Nanos,
    /// Requests that a window needs to count.
    pub min_ios: u32,
    /// The same for a volume whose rate gives fewer in one window: its windows are made longer instead.
    pub min_ios_low_rate: u32,
    /// Windows are never longer.
    pub window_max: Nanos,
    /// The largest injected latency is at least this.
    pub inject_min: Nanos,
    /// The largest injected latency is at most this.
    pub inject_max: Nanos,
    /// Difference of neighbouring control windows that drops the window between, as a ratio.
    pub steadiness: f64,
    /// How often each volume is calibrated.
    pub every: CalibrationEpoch,
}

/// How often each volume is calibrated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CalibrationEpoch {
    /// Once per migration epoch, the volumes spread over its monitor epochs: a line is needed only where something is decided.
    #[default]
    Migration,
    /// All volumes in every monitor epoch, as Alg. 1 says; a session that is longer than that goes on until it is over.
    Monitor,
}

/// Weights of one tier; what is left out is as for all tiers.
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

/// Parameters. The paper publishes no value of any weight; the defaults are ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AutoTieringConfig {
    /// Which switches apply where none is given.
    pub form: Form,
    /// Tiers that a volume is predicted on; default `all-tiers`.
    pub scope: Option<Scope>,
    /// Predictions of zero or less.
    pub latency_floor: Option<LatencyFloor>,
    /// How confidence is computed.
    pub confidence: Option<Confidence>,
    /// Lines per direction.
    pub directions: Option<Directions>,
    /// Idle or loaded tier latency.
    pub tier_latency: Option<TierLatency>,
    /// Where predictions set out.
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
    /// Where space counts.
    pub space_term: Option<SpaceTerm>,
    /// Order of assignment.
    pub assignment: Option<Assignment>,
    /// More than a tier's share of IOPS or bandwidth; `price` needs the assignment `regret`.
    pub overload: Option<Overload>,
    /// Capacity check of volumes that stay; for the assignment `tier-major`.
    pub staying: Option<StayingVolumes>,
    /// Where sensitivity comes from.
    pub sensitivity: Option<SensitivitySource>,
    /// agingFactor of Eq. 7, 0..1.
    pub aging: f64,
    /// wetP of Eq. 6.
    pub weight_performance: f64,
    /// wetB of Eq. 6.
    pub weight_bandwidth: f64,
    /// wetS of Eq. 6.
    pub weight_space: f64,
    /// wetMig of Eq. 7: score per migration epoch that a move takes. In the `seconds` unit it is divided by the length
    /// of a migration epoch, so that both units weigh a move alike.
    pub weight_migration: f64,
    /// Weights of single tiers, by name: the paper has a set of them for each tier.
    pub tier_weights: BTreeMap<String, TierWeights>,
    /// Migration epochs over which the cost of a move is spread: its match is scored per epoch, but its benefit lasts for
    /// as long as the load does. Default 1 in the literal form (the paper charges all of it to one epoch), 2 in the corrected
    /// one.
    pub payback_epochs: Option<u32>,
    /// A clamped prediction is at least this share of the tier's bare latency.
    pub latency_floor_share: f64,
    /// Confidence in a prediction for a volume without a line, 0..=1: slope 1 is assumed, which is right for guests that
    /// wait for their answers. The default is the least that the paper gives to any prediction; a live manager has 0.5, since
    /// volumes that miss their objective are not delayed to learn from them.
    pub prior_confidence: f64,
    /// Calibration sessions.
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

/// All switches, settled.
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
