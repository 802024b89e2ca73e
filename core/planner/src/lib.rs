//! Decides where data lives: a pure function of facts, policy and state.
//!
//! ```text
//!  Facts ─┐            ┌─ wishes: volume → tier, with scores ─┐                     ┌─▶ Plan   ─▶ lint ─▶ executor
//!  Policy ┼─▶ Strategy ┤  calibration sessions                ├─▶ arrange (devices, │
//!  State ─┘            └─ State'                              ┘   order, budgets) ──┴─▶ Report (why, and why not)
//! ```
//!
//! A [`Strategy`] only says which tier suits which volume. What holds for every strategy is done once, here: the
//! constraints ([`Ledger`]), the goals that outrank a strategy's (to empty a tier, to keep rules, to keep devices from
//! filling up), the gates that a strategy's wishes have to pass, the choice of a device, the order of moves and the space
//! they need meanwhile ([`decide`]), and the check of the result ([`lint`]). Where a volume that does not exist yet would do best is asked apart
//! ([`place`]). Nothing in this crate keeps anything between
//! decisions, reads a clock or draws a random number that is not derived from the seed it is given.

#![warn(missing_docs)]

mod arrange;
pub mod assign;
mod decide;
mod evacuate;
pub mod exchange;
pub mod extents;
mod footprint;
mod gates;
pub mod horizon;
pub mod hosted;
mod ledger;
mod lint;
mod loaded;
pub mod mirrors;
mod movable;
mod objective;
mod place;
mod rate;
mod registry;
mod rows;
mod rules;
mod state;
pub mod strategies;
mod strategy;

pub use decide::{Decision, PlanError, decide};
pub use hosted::HostedStrategy;
pub use ledger::{Demand, Ledger, StayCheck};
pub use lint::{LintError, lint};
pub use objective::ScoreWeights;
pub use place::{
    DeviceOption, GuessedLoad, GuessedOf, KnownLoad, PlaceAdvice, PlaceCost, PlaceRequest,
    PlaceVerdict, TierAdvice, guess_load, place,
};
pub use rate::copy_bandwidth;
pub use registry::{
    BuildError, DEFAULT_STRATEGY, Entry, NOOP, REGISTRY, UnknownStrategy, build, find,
};
pub use state::{AnyStrategy, StrategyFailure, StrategyState};
pub use strategy::{
    AssignmentTaken, ConfigError, Context, Draft, ExtentWish, Granularity, SpaceLimit, Strategy,
    Wish,
};
