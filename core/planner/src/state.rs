//! How a typed strategy is used through one pointer, and what is remembered between decisions.

use std::any::Any;

use model::Epochs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::gates::Holds;
use crate::{ConfigError, Context, DeviceOption, Draft, Granularity, PlaceRequest, Strategy};

/// Marks the form in which states are stored.
const STATE_SCHEMA: &str = "terrace.planner.state/1";

/// What is remembered from one decision to the next: the state of a strategy of any kind, and how long it has wanted what.
pub struct StrategyState {
    own: Box<dyn AnyState>,
    pub(crate) holds: Holds,
}

/// A state in a store.
#[derive(Serialize, Deserialize)]
struct StoredState {
    schema: String,
    own: serde_json::Value,
    holds: Holds,
}

trait AnyState: Send {
    fn as_any(&self) -> &dyn Any;
    fn boxed_clone(&self) -> Box<dyn AnyState>;
    fn to_json(&self) -> serde_json::Value;
}

impl<S: Serialize + Clone + Send + 'static> AnyState for S {
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
        Self {
            own: self.own.boxed_clone(),
            holds: self.holds.clone(),
        }
    }
}

impl StrategyState {
    fn new<S: Serialize + Clone + Send + 'static>(own: S, holds: Holds) -> Self {
        let own = Box::new(own);
        Self { own, holds }
    }

    /// State of a strategy that implements [`AnyStrategy`] itself, such as one in another language, before its first decision.
    pub fn initial<S: Serialize + Clone + Send + 'static>(own: S) -> Self {
        Self::new(own, Holds::new())
    }

    /// Returns the strategy's own part; `None` if it is of another type.
    pub fn own<S: 'static>(&self) -> Option<&S> {
        (*self.own).as_any().downcast_ref()
    }

    /// Returns the state after a decision: a new own part, and the rest as it is.
    #[must_use]
    pub fn followed_by<S: Serialize + Clone + Send + 'static>(&self, own: S) -> Self {
        Self::new(own, self.holds.clone())
    }

    /// Reads the state of a strategy whose own part is an `S` back from a store.
    ///
    /// # Errors
    /// A value of another form.
    pub fn from_json<S>(value: serde_json::Value) -> Result<Self, serde_json::Error>
    where
        S: Serialize + DeserializeOwned + Clone + Send + 'static,
    {
        let (own, holds) = if value.get("schema").is_some_and(|s| s == STATE_SCHEMA) {
            let stored: StoredState = serde_json::from_value(value)?;
            (stored.own, stored.holds)
        } else {
            (value, Holds::new()) // from before anything else was remembered
        };
        Ok(Self::new(serde_json::from_value::<S>(own)?, holds))
    }

    /// For a store.
    pub fn to_json(&self) -> serde_json::Value {
        let stored = StoredState {
            schema: STATE_SCHEMA.into(),
            own: self.own.to_json(),
            holds: self.holds.clone(),
        };
        serde_json::to_value(stored).expect("states are plain data")
    }
}

/// Reason for which a strategy outside this program made no decision.
pub type StrategyFailure = Box<dyn std::error::Error + Send + Sync>;

/// A strategy of any kind.
pub trait AnyStrategy: Send {
    /// Its name.
    fn name(&self) -> &str;
    /// Names the array of the next decision, for a strategy outside this program that handles failures by array.
    fn next_array(&self, _: &str) {}
    /// What it places.
    fn granularity(&self) -> Granularity;
    /// Whether it can work with these decision intervals and, where they are known, with tiers of these names.
    fn suits(&self, epochs: &Epochs, tiers: Option<&[String]>) -> Result<(), ConfigError>;
    /// The state of one that has seen nothing.
    fn initial_state(&self) -> StrategyState;
    /// The state read back from a store.
    fn state_from_json(&self, value: serde_json::Value)
    -> Result<StrategyState, serde_json::Error>;
    /// Makes one decision; the state must be this strategy's own.
    ///
    /// # Errors
    /// A strategy outside this program that fails; native ones never do.
    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> Result<StrategyState, StrategyFailure>;
    /// What a volume that does not exist yet would be on every device, where the strategy has a model; the state must be this strategy's own.
    fn place(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        request: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>>;
}

/// The strategy's own part of a state.
fn own<T: Strategy>(state: &StrategyState) -> &T::State {
    state.own().expect("a state of this strategy")
}

impl<T: Strategy> AnyStrategy for T {
    fn name(&self) -> &str {
        T::NAME
    }

    fn granularity(&self) -> Granularity {
        T::GRANULARITY
    }

    fn suits(&self, epochs: &Epochs, tiers: Option<&[String]>) -> Result<(), ConfigError> {
        Strategy::suits(self, epochs, tiers)
    }

    fn initial_state(&self) -> StrategyState {
        StrategyState::initial(T::State::default())
    }

    fn state_from_json(
        &self,
        value: serde_json::Value,
    ) -> Result<StrategyState, serde_json::Error> {
        StrategyState::from_json::<T::State>(value)
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> Result<StrategyState, StrategyFailure> {
        let next = Strategy::plan(self, context, own::<T>(state), draft);
        Ok(state.followed_by(next))
    }

    fn place(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        request: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        Strategy::place(self, context, own::<T>(state), request)
    }
}
