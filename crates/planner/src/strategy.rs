//! What a strategy is, and what it hands over.

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
    /// The device of that tier, where the strategy has one in mind; another of the tier's where that one has no room.
    pub device: Option<DeviceId>,
    /// Where that of it is which is placed; its target, while it is being moved.
    pub here: DeviceId,
    /// What of it is to move, all of it on `here`; none is the whole volume.
    pub extents: Option<ExtentRanges>,
    /// What a move there is for.
    pub goal: Goal,
    /// Why, if that is another tier.
    pub reason: Reason,
    /// What is expected of a move there.
    pub effect: Effect,
    /// Moves with a higher value per byte come first.
    pub value: f64,
    /// Whether a move there is for those who stay on the device that it leaves: then nobody has to come for it to make sense.
    pub relieves: bool,
    /// Whether a move there is only for somebody who comes to the tier that it leaves.
    pub makes_room: bool,
    /// Share of one target device's time that its load is expected to take, to spread load over a tier's devices.
    pub device_share: f64,
    /// Every tier as an option, for the report.
    pub options: Vec<TierOption>,
    /// What the decision rests on, for the report.
    pub evidence: BTreeMap<String, f64>,
    /// What no number says, for the report.
    pub notes: Vec<String>,
    /// What keeps it from becoming a move; strategies leave that to [`crate::decide`].
    pub refused: Option<Rejection>,
    /// All tiers that will do, in order, for a volume that has to leave; empty where only `tier` will.
    pub elsewhere: Vec<TierId>,
}

impl Wish {
    /// Whether it is for another place than where it is: another tier, or another device of its own.
    pub(crate) fn moves(&self, facts: &Facts) -> bool {
        let elsewhere = self.device.is_some_and(|d| d != self.here);
        self.tier != facts.topology.tier_of(self.here) || elsewhere
    }

    /// A wish for all of the volume, wherever its extents are.
    pub(crate) fn whole(&mut self, facts: &Facts) {
        self.here = device_now(facts, self.volume);
        self.extents = None;
    }

    /// To stay, with nothing known about any tier.
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

/// What a strategy wants for extents of one volume.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtentWish {
    /// The volume.
    pub volume: VolumeId,
    /// The extents. Those that are on the first of the tiers already stay, and those that were never written.
    pub extents: ExtentRanges,
    /// Tiers that will do, in order; the first is where they should be.
    pub tiers: Vec<TierId>,
    /// What a move there is for.
    pub goal: Goal,
    /// Why.
    pub reason: ExtentReason,
    /// Requests of those of the extents that had any, rising: what goes first when not everything can.
    pub heat: Vec<(u32, u32)>,
    /// How full they may make the tiers that they go to.
    pub space: SpaceLimit,
    /// What keeps them where they are.
    pub refused: Option<Rejection>,
}

/// How full extents may make a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpaceLimit {
    /// Up to the share that extents are planned with (`headroom_space`).
    #[default]
    Planned,
    /// All of its space, or up to the operator's limit `space_high`.
    Physical,
}

impl ExtentWish {
    /// Why, for all of them together.
    pub fn reason(&self) -> Reason {
        let requests = self.heat.iter().map(|h| u64::from(h.1)).sum();
        self.reason.of(requests)
    }
}

/// What a strategy places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Volumes as a whole.
    Volume,
    /// Extents of volumes: facts have to say where they are, and how hot.
    Extent,
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
    /// Of extents; no extent is in two.
    pub extent_wishes: Vec<ExtentWish>,
    /// What is to be done besides moves: those come of wishes.
    pub actions: Vec<Action>,
    /// Notes for the report.
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

/// A way to place volumes. One file and one line in the registry make a new one.
///
/// A strategy receives, it never fetches; it keeps nothing in `self` between calls; its work is bounded by the number of
/// volumes and tiers, never by time. It is called once per monitor epoch, and places data only when
/// `facts.placement_due`.
pub trait Strategy: Sized + Send + 'static {
    /// Its parameters.
    type Config: Serialize + DeserializeOwned + Default + JsonSchema;
    /// Everything it remembers.
    type State: Serialize + DeserializeOwned + Default + Clone + Send + 'static;
    /// Its name in scenarios and reports.
    const NAME: &'static str;
    /// One line for lists.
    const SUMMARY: &'static str;
    /// What it places.
    const GRANULARITY: Granularity = Granularity::Volume;

    /// With these parameters, if they make sense.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// Whether it can work with these decision intervals and, where they are known, with tiers of these names.
    fn suits(&self, _epochs: &Epochs, _tiers: Option<&[String]>) -> Result<(), ConfigError> {
        Ok(())
    }

    /// One decision.
    fn plan(&self, context: &Context<'_>, state: &Self::State, draft: &mut Draft) -> Self::State;

    /// What a volume that does not exist yet would be on every device, where the strategy has a model to say so by; devices of which it says
    /// nothing may be left out. Rules and space are no concern of it: [`crate::place`] knows them.
    fn place(
        &self,
        _context: &Context<'_>,
        _state: &Self::State,
        _request: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        None
    }
}
