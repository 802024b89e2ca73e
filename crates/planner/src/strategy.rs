//! What a strategy is, and how the typed form is used through one pointer.

use std::any::Any;
use std::collections::BTreeMap;

use model::{CalibrationRun, Effect, Facts, Policy, Reason, TierOption, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use units::{TierId, VolumeId};

use crate::assign::{Placement, Problem};
use crate::ledger::tier_now;

/// What a strategy may look at.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// What was observed.
    pub facts: &'a Facts,
    /// What the operator wants.
    pub policy: &'a Policy,
    /// For choices that are to be random; derived from the run's seed and the epoch.
    pub seed: u64,
}

/// What a strategy wants for one volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The volume.
    pub volume: VolumeId,
    /// Where it should be; its current tier to stay.
    pub tier: TierId,
    /// Why, if that is another tier.
    pub reason: Reason,
    /// What is expected of a move there.
    pub effect: Effect,
    /// Moves with a higher value per byte come first.
    pub value: f64,
    /// Share of one target device's time that its load is expected to take, to spread load over a tier's devices.
    pub device_share: f64,
    /// Every tier as an option, for the report.
    pub options: Vec<TierOption>,
    /// What the decision rests on, for the report.
    pub evidence: BTreeMap<String, f64>,
}

impl Wish {
    /// To stay, with nothing known about any tier.
    pub fn stay(context: &Context<'_>, volume: VolumeId) -> Self {
        let facts = context.facts;
        Self {
            volume,
            tier: tier_now(facts, volume),
            reason: Reason::Pinned,
            effect: Effect::default(),
            value: 0.0,
            device_share: 0.0,
            options: facts
                .topology
                .tiers
                .iter()
                .map(|t| plain_option(&t.name))
                .collect(),
            evidence: BTreeMap::new(),
        }
    }
}

fn plain_option(tier: &str) -> TierOption {
    TierOption {
        tier: tier.into(),
        score: None,
        predicted: None,
        move_s: None,
        verdict: Verdict::NotNeeded,
    }
}

/// An assignment problem that a strategy met and what it made of it, so that it can be held against the best possible.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentTaken {
    /// What is maximized, in words.
    pub objective: &'static str,
    /// The instance.
    pub problem: Problem,
    /// What the strategy chose.
    pub placement: Placement,
}

/// What a strategy hands over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// At most one per volume; volumes without a wish stay.
    pub wishes: Vec<Wish>,
    /// Calibration sessions to start.
    pub calibrations: Vec<CalibrationRun>,
    /// Remarks for the report.
    pub notes: Vec<String>,
    /// The assignment problem behind the wishes, where the strategy solves one.
    pub assignment: Option<AssignmentTaken>,
}

/// A configuration that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("strategies.{strategy}.{key}: {why}")]
pub struct ConfigError {
    /// The strategy.
    pub strategy: String,
    /// The key, or empty.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

/// A way to place volumes. One file and one line in the registry make a new one.
///
/// A strategy receives, it never fetches; it keeps nothing in `self` between calls; its work is bounded by the number of
/// volumes and tiers, never by time. It is called once per monitor epoch, and places data only when
/// `facts.placement_due`.
pub trait Strategy: Sized + 'static {
    /// Its parameters.
    type Config: Serialize + DeserializeOwned + Default + JsonSchema;
    /// Everything it remembers.
    type State: Serialize + DeserializeOwned + Default + Clone + 'static;
    /// Its name in scenarios and reports.
    const NAME: &'static str;
    /// One line for lists.
    const SUMMARY: &'static str;

    /// With these parameters, if they make sense.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// One decision.
    fn plan(&self, context: &Context<'_>, state: &Self::State, draft: &mut Draft) -> Self::State;
}

/// The state of any strategy.
pub struct StrategyState(Box<dyn AnyState>);

trait AnyState {
    fn as_any(&self) -> &dyn Any;
    fn boxed_clone(&self) -> Box<dyn AnyState>;
    fn to_json(&self) -> serde_json::Value;
}

impl<S: Serialize + Clone + 'static> AnyState for S {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }
    fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("strategy states are plain data")
    }
}

impl Clone for StrategyState {
    fn clone(&self) -> Self {
        Self(self.0.boxed_clone())
    }
}

impl StrategyState {
    /// For a store.
    pub fn to_json(&self) -> serde_json::Value {
        self.0.to_json()
    }
}

/// A strategy of any kind.
pub trait AnyStrategy {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The state of one that has seen nothing.
    fn initial_state(&self) -> StrategyState;
    /// The state read back from a store.
    fn state_from_json(&self, value: serde_json::Value)
    -> Result<StrategyState, serde_json::Error>;
    /// One decision; the state must be this strategy's own.
    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> StrategyState;
}

impl<T: Strategy> AnyStrategy for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn initial_state(&self) -> StrategyState {
        StrategyState(Box::new(T::State::default()))
    }

    fn state_from_json(
        &self,
        value: serde_json::Value,
    ) -> Result<StrategyState, serde_json::Error> {
        Ok(StrategyState(Box::new(serde_json::from_value::<T::State>(
            value,
        )?)))
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> StrategyState {
        let own: &T::State = (*state.0)
            .as_any()
            .downcast_ref()
            .expect("a state of this strategy");
        StrategyState(Box::new(Strategy::plan(self, context, own, draft)))
    }
}
