//! The trait [`Strategy`] and its results.

use std::collections::BTreeMap;

use model::{
    Action, Effect, Epochs, ExtentRanges, Facts, Goal, Policy, Reason, Rejection, TierOption,
    Verdict,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use units::{DeviceId, TierId, VolumeId};

use crate::assign::{Placement, Problem};
use crate::extents::ExtentReason;
use crate::ledger::device_now;
use crate::place::{DeviceOption, PlaceRequest};

/// Inputs of a strategy.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Observed facts.
    pub facts: &'a Facts,
    /// Policy of the operator.
    pub policy: &'a Policy,
    /// Seed for random choices; derived from the run's seed and the epoch.
    pub seed: u64,
}

/// Wish of a strategy for one volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The volume.
    pub volume: VolumeId,
    /// Wanted tier; the current tier to stay.
    pub tier: TierId,
    /// Wanted device of that tier, if the strategy names one. Another device of the tier is used if that one has no room.
    pub device: Option<DeviceId>,
    /// Present device of the moving data; its target, while it is being moved.
    pub here: DeviceId,
    /// Extents to move, all of them on `here`; `None` for the whole volume.
    pub extents: Option<ExtentRanges>,
    /// Goal of the move.
    pub goal: Goal,
    /// Reason for the move, if the tier is another one.
    pub reason: Reason,
    /// Predicted effect of the move.
    pub effect: Effect,
    /// Moves with a higher value per byte come first.
    pub value: f64,
    /// True if the move helps volumes that stay on the source device. It then makes sense without a volume that takes its
    /// place.
    pub relieves: bool,
    /// True if the move only makes room for a volume that comes to the source tier.
    pub makes_room: bool,
    /// Expected share of one target device's time that the load takes, to spread load over a tier's devices.
    pub device_share: f64,
    /// All tiers as options, for the report.
    pub options: Vec<TierOption>,
    /// Numbers behind the decision, for the report.
    pub evidence: BTreeMap<String, f64>,
    /// Notes without numbers, for the report.
    pub notes: Vec<String>,
    /// Rejection that keeps the wish from becoming a move. Strategies leave it to [`crate::decide`].
    pub refused: Option<Rejection>,
    /// All acceptable tiers, in order, for a volume that must leave; empty if only `tier` is acceptable.
    pub elsewhere: Vec<TierId>,
}

impl Wish {
    /// Returns true if the wish is for another tier or another device.
    pub(crate) fn moves(&self, facts: &Facts) -> bool {
        let elsewhere = self.device.is_some_and(|d| d != self.here);
        self.tier != facts.topology.tier_of(self.here) || elsewhere
    }

    /// Changes the wish to the whole volume, wherever its extents are.
    pub(crate) fn whole(&mut self, facts: &Facts) {
        self.here = device_now(facts, self.volume);
        self.extents = None;
    }

    /// Returns a wish to stay, without knowledge of any tier.
    pub fn stay(context: &Context<'_>, volume: VolumeId) -> Self {
        let facts = context.facts;
        let here = device_now(facts, volume);
        Self {
            volume,
            tier: facts.topology.tier_of(here),
            device: None,
            here,
            extents: None,
            goal: Goal::Latency,
            reason: Reason::pinned(),
            effect: Effect::default(),
            value: 0.0,
            relieves: false,
            makes_room: false,
            device_share: 0.0,
            options: facts
                .topology
                .tiers
                .iter()
                .map(|t| plain_option(&t.name))
                .collect(),
            evidence: BTreeMap::new(),
            notes: vec![],
            refused: None,
            elsewhere: vec![],
        }
    }
}

fn plain_option(tier: &str) -> TierOption {
    TierOption {
        tier: tier.into(),
        score: None,
        parts: None,
        predicted: None,
        move_s: None,
        verdict: Verdict::NotNeeded,
    }
}

/// Wish of a strategy for extents of one volume.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtentWish {
    /// The volume.
    pub volume: VolumeId,
    /// Extents to move. Extents already on the first of the tiers stay, and so do extents that were never written.
    pub extents: ExtentRanges,
    /// Acceptable tiers, in order; the first is the wanted one.
    pub tiers: Vec<TierId>,
    /// Goal of the moves.
    pub goal: Goal,
    /// Reason for the moves.
    pub reason: ExtentReason,
    /// Requests of the extents that had any, in rising order: the hottest go first if not all can.
    pub heat: Vec<(u32, u32)>,
    /// Space limit of the target tiers.
    pub space: SpaceLimit,
    /// Rejection that keeps the extents in place.
    pub refused: Option<Rejection>,
}

/// Limit of the space use of a tier by extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpaceLimit {
    /// Up to the share of space for planned extents (`headroom_space`).
    #[default]
    Planned,
    /// All space, or up to the operator's limit `space_high`.
    Physical,
}

impl ExtentWish {
    /// Returns the reason for all extents together.
    pub fn reason(&self) -> Reason {
        let requests = self.heat.iter().map(|h| u64::from(h.1)).sum();
        self.reason.of(requests)
    }
}

/// Kind of unit that a strategy places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Whole volumes.
    Volume,
    /// Extents of volumes: facts must have their places and their heat.
    Extent,
}

/// Assignment problem of a strategy and its solution, for comparison with the best possible.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentTaken {
    /// Objective, in words.
    pub objective: &'static str,
    /// Instance.
    pub problem: Problem,
    /// Choice of the strategy.
    pub placement: Placement,
}

/// Output of a strategy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// At most one per volume; volumes without a wish stay.
    pub wishes: Vec<Wish>,
    /// Wishes for extents; no extent is in two wishes.
    pub extent_wishes: Vec<ExtentWish>,
    /// Actions other than moves, which result from wishes.
    pub actions: Vec<Action>,
    /// Notes for the report.
    pub notes: Vec<String>,
    /// Assignment problem behind the wishes, if the strategy solves one.
    pub assignment: Option<AssignmentTaken>,
}

/// Invalid configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("strategies.{strategy}.{key}: {why}")]
pub struct ConfigError {
    /// Name of the strategy.
    pub strategy: String,
    /// Key of the invalid parameter, or empty.
    pub key: String,
    /// Reason why it is invalid.
    pub why: String,
}

impl ConfigError {
    pub(crate) fn new(
        strategy: impl Into<String>,
        key: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        let (strategy, key, why) = (strategy.into(), key.into(), why.into());
        Self { strategy, key, why }
    }
}

/// Method that places volumes. A new one needs one file and one line in the registry.
///
/// A strategy receives all inputs and fetches none. It keeps nothing in `self` between calls. Its work is bounded by the
/// number of volumes and tiers, never by time. It is called once per monitor epoch, and places data only if
/// `facts.placement_due`.
pub trait Strategy: Sized + Send + 'static {
    /// Parameters of the strategy.
    type Config: Serialize + DeserializeOwned + Default + JsonSchema;
    /// State between decisions.
    type State: Serialize + DeserializeOwned + Default + Clone + Send + 'static;
    /// Name in scenarios and reports.
    const NAME: &'static str;
    /// Summary in one line, for lists.
    const SUMMARY: &'static str;
    /// Kind of unit that it places.
    const GRANULARITY: Granularity = Granularity::Volume;

    /// Creates the strategy with these parameters.
    ///
    /// # Errors
    /// Returns the key of an invalid parameter and the reason.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// Checks that the strategy can work with these decision intervals and, if known, with tiers of these names.
    fn suits(&self, _epochs: &Epochs, _tiers: Option<&[String]>) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Makes one decision.
    fn plan(&self, context: &Context<'_>, state: &Self::State, draft: &mut Draft) -> Self::State;

    /// Returns predictions for a volume that does not exist yet on each device; `None` if the strategy has no model. Devices
    /// without a prediction may be left out. [`crate::place`] checks rules and space.
    fn place(
        &self,
        _context: &Context<'_>,
        _state: &Self::State,
        _request: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        None
    }
}
