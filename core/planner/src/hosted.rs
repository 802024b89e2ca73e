//! Strategies outside this program: the layout of requests and decisions, and moves by names that become wishes.
//!
//! ```text
//!  Context, state ─▶ Decider (an object in Python, or another process) ─▶ moves by names, state' ─▶ wishes
//! ```
//!
//! The planner treats these wishes like those of a native strategy: pins, rules and gates apply, `arrange` chooses devices and order, and
//! `lint` checks the plan.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::{Epochs, Facts, Goal, Policy, Reason};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use units::{DeviceId, TierId, VolumeId};

use crate::{
    AnyStrategy, ConfigError, Context, DeviceOption, Draft, Granularity, PlaceRequest,
    StrategyFailure, StrategyState, Wish,
};

/// Separator of file and class in the name of a strategy in Python, with the ending of the file.
const PYTHON: &str = ".py:";

/// Most bytes of a reason. Protects the store and the views, which have the reason of each move.
const REASON_BYTES_MAX: usize = 1 << 10;

/// Returns true for the name of a strategy in a Python file, `FILE.py:CLASS`.
pub fn is_python(name: &str) -> bool {
    name.contains(PYTHON)
}

/// Everything that a decision depends on, for a strategy in another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRequest<'a> {
    /// Number of the request, which its reply repeats.
    pub number: u64,
    /// Observations.
    pub facts: Cow<'a, Facts>,
    /// Rules of the operator.
    pub policy: Cow<'a, Policy>,
    /// Source of random numbers.
    pub seed: u64,
    /// State of the strategy: null at first.
    pub state: Cow<'a, Value>,
}

/// Move that a strategy wants, by names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WantedMove {
    /// Volume to move.
    pub volume: String,
    /// Tier to move it to.
    pub tier: String,
    /// Device of that tier; any device if omitted.
    #[serde(default)]
    pub device: Option<String>,
    /// Moves with a higher value per byte come first; 1 if omitted.
    #[serde(default)]
    pub value: Option<f64>,
    /// Predicted mean latency on the target, microseconds.
    #[serde(default)]
    pub latency_us: Option<f64>,
    /// Reason in words.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Move that names something that does not exist, or that is not permitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongMove {
    /// Moves in an epoch that does not place data.
    #[error("moves outside a migration epoch; look at facts.placement_due")]
    NotDue,
    /// Fault of one move.
    #[error("move {index}: {fault}")]
    Move {
        /// Position of the move, from 0.
        index: usize,
        /// Fault.
        fault: MoveFault,
    },
}

/// Fault of one move.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MoveFault {
    /// The volume does not exist.
    #[error("unknown volume \"{0}\"")]
    UnknownVolume(String),
    /// The tier does not exist.
    #[error("unknown tier \"{name}\"; known: {known}")]
    UnknownTier {
        /// Name in the move.
        name: String,
        /// Names of all tiers.
        known: String,
    },
    /// The tier has no such device.
    #[error("tier \"{tier}\" has no device \"{name}\"")]
    UnknownDevice {
        /// Tier of the move.
        tier: String,
        /// Name in the move.
        name: String,
    },
    /// A number is infinite or not a number.
    #[error("{0} is not a finite number")]
    NotFinite(&'static str),
    /// An earlier move has the same volume.
    #[error("volume \"{0}\" is moved twice")]
    Repeated(String),
    /// The reason is too long.
    #[error("the reason has {bytes} bytes, at most {max} are permitted; shorten it", max = REASON_BYTES_MAX)]
    LongReason {
        /// Length of the reason.
        bytes: usize,
    },
}

/// Returns wishes for all volumes: the moves that a strategy wants, and to stay for all others.
///
/// # Errors
/// Unknown names, numbers that are not finite, a reason that is too long, two moves of one volume, moves in an epoch without placement.
pub fn wishes(context: &Context<'_>, moves: &[WantedMove]) -> Result<Vec<Wish>, WrongMove> {
    if !moves.is_empty() && !context.facts.placement_due {
        return Err(WrongMove::NotDue);
    }
    let volumes = (0..context.facts.volumes.len()).map(VolumeId::from_index);
    let mut wishes: Vec<Wish> = volumes.map(|v| Wish::stay(context, v)).collect();
    let mut seen = BTreeSet::new();
    for (index, wanted) in moves.iter().enumerate() {
        let wrong = |fault| WrongMove::Move { index, fault };
        let (volume, tier, device) = places(context.facts, wanted).map_err(wrong)?;
        for (key, number) in [("value", wanted.value), ("latency_us", wanted.latency_us)] {
            if number.is_some_and(|n| !n.is_finite()) {
                return Err(wrong(MoveFault::NotFinite(key)));
            }
        }
        if !seen.insert(volume) {
            return Err(wrong(MoveFault::Repeated(wanted.volume.clone())));
        }
        let wish = &mut wishes[volume.index()];
        (wish.tier, wish.device) = (tier, device);
        wish.goal = Goal::Latency;
        wish.value = wanted.value.unwrap_or(1.0);
        let reason = wanted.reason.as_deref();
        let reason = reason.unwrap_or("wanted by the strategy");
        if reason.len() > REASON_BYTES_MAX {
            let bytes = reason.len();
            return Err(wrong(MoveFault::LongReason { bytes }));
        }
        wish.reason = Reason::new("python", units::shown(reason).into_owned());
        if wanted.latency_us.is_some() {
            let measured = context.facts.volumes[volume.index()].measured;
            wish.effect.latency_before_us = measured.and_then(|m| m.latency_mean_us());
            wish.effect.latency_after_us = wanted.latency_us;
        }
    }
    Ok(wishes)
}

/// Returns the ids of the volume, the tier and the device of a move.
fn places(
    facts: &Facts,
    wanted: &WantedMove,
) -> Result<(VolumeId, TierId, Option<DeviceId>), MoveFault> {
    let volume = facts.volumes.iter().position(|v| v.name == wanted.volume);
    let volume = volume.ok_or_else(|| MoveFault::UnknownVolume(wanted.volume.clone()))?;
    let tiers = &facts.topology.tiers;
    let tier = tiers.iter().position(|t| t.name == wanted.tier);
    let tier = tier.map(TierId::from_index).ok_or_else(|| {
        let known: Vec<&str> = tiers.iter().map(|t| t.name.as_str()).collect();
        let known = known.join(", ");
        let name = wanted.tier.clone();
        MoveFault::UnknownTier { name, known }
    })?;
    let device = wanted.device.as_ref().map(|name| {
        let mut devices = facts.topology.devices.iter();
        let found = devices.position(|d| d.name == *name && d.tier == tier);
        let missing = || MoveFault::UnknownDevice {
            tier: wanted.tier.clone(),
            name: name.clone(),
        };
        found.map(DeviceId::from_index).ok_or_else(missing)
    });
    Ok((VolumeId::from_index(volume), tier, device.transpose()?))
}

/// Decision of a strategy outside this program.
#[derive(Debug, Clone, PartialEq)]
pub struct HostedDecision {
    /// Wishes for all volumes; not used in an epoch without placement.
    pub wishes: Vec<Wish>,
    /// State for the next decision.
    pub state: Value,
}

/// Access to a strategy outside this program.
pub trait Decider: Send {
    /// Returns the name in plans and reports.
    fn name(&self) -> &str;

    /// Names the array of the next decision.
    fn next_array(&self, _: &str) {}

    /// Returns the decision of an epoch; `None` if the strategy does not decide in it.
    ///
    /// # Errors
    /// A strategy that fails, or returns an invalid decision.
    fn decide(
        &self,
        context: &Context<'_>,
        state: &Value,
    ) -> Result<Option<HostedDecision>, StrategyFailure>;
}

/// Strategy outside this program. It places whole volumes.
pub struct HostedStrategy<D>(pub D);

impl<D: Decider> AnyStrategy for HostedStrategy<D> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn next_array(&self, name: &str) {
        self.0.next_array(name);
    }

    fn granularity(&self) -> Granularity {
        Granularity::Volume
    }

    fn suits(&self, _: &Epochs, _: Option<&[String]>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn initial_state(&self) -> StrategyState {
        StrategyState::initial(Value::Null)
    }

    fn state_from_json(&self, value: Value) -> Result<StrategyState, serde_json::Error> {
        StrategyState::from_json::<Value>(value)
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &StrategyState,
        draft: &mut Draft,
    ) -> Result<StrategyState, StrategyFailure> {
        let own = state.own::<Value>().expect("a state of this strategy");
        let Some(decided) = self.0.decide(context, own)? else {
            return Ok(state.clone());
        };
        draft.wishes = decided.wishes;
        Ok(state.followed_by(decided.state))
    }

    fn place(
        &self,
        _: &Context<'_>,
        _: &StrategyState,
        _: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        None
    }
}
