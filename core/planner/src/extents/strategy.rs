//! Strategy of an extent policy: converts facts by volume for the policy, and its choice to wishes.
//!
//! `arrange` chooses devices and order of moves, and applies budgets. The last choice of the policy stays the target until
//! its next decision. So moves that a budget or a full device prevented are requested again.

use algo::HeatCounters;
use model::{ExtentRanges, Goal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, TierId};

use super::layout::{Layout, PlacedVolume, View};
use super::{ExtentPolicy, ExtentReason, FastSet, Heat, PolicyNote, Terms};
use crate::{ConfigError, Context, Draft, ExtentWish, Granularity, SpaceLimit, Strategy};

/// Strategy of an [`ExtentPolicy`].
///
/// Volumes that are pinned, or bound to others by a rule, stay whole. So do volumes whose extents have another size than
/// those of the first volume. The extents of a volume stay in place while it is being moved, or while its heat is unknown.
/// The policy counts no requests for an interval of unknown heat.
pub struct Extents<P: ExtentPolicy> {
    fresh: P,
    /// Parameters as text: a state with other parameters is discarded.
    config: String,
}

/// State of [`Extents`]; empty before the first decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "P: Serialize", deserialize = "P: DeserializeOwned"))]
pub struct ExtentState<P> {
    kept: Option<StoredState<P>>,
}

impl<P> Default for ExtentState<P> {
    fn default() -> Self {
        Self { kept: None }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredState<P> {
    config: String,
    layout: Layout,
    terms: Terms,
    policy: P,
    /// Extents that should be on the fast tier; `None` before the policy's first decision.
    target: Option<FastSet>,
    /// Requests of the current interval. The policy receives them at its end; budgets use them to choose the hottest.
    since: HeatCounters,
    counted_from: Nanos,
}

impl<P: ExtentPolicy> Strategy for Extents<P> {
    type Config = P::Config;
    type State = ExtentState<P>;
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new(config: P::Config) -> Result<Self, ConfigError> {
        let fresh = P::new(&config)?;
        let config = serde_json::to_string(&config).expect("parameters are plain data");
        Ok(Self { fresh, config })
    }

    /// Rejects periods that end between placements: they would end late.
    fn suits(&self, epochs: &model::Epochs, _: Option<&[String]>) -> Result<(), ConfigError> {
        let periods = self.fresh.periods();
        let shortest = periods.iter().map(|p| p.1).min().unwrap_or(Nanos(1));
        for (key, period) in &periods {
            // The policy receives heat at each end of the shortest period.
            if !period.0.is_multiple_of(shortest.0.max(1)) {
                return Err(ConfigError::new(
                    P::NAME,
                    *key,
                    format!("{period} must be a multiple of the shortest period, {shortest}"),
                ));
            }
        }
        for (key, period) in self.fresh.periods() {
            if !period.0.is_multiple_of(epochs.migration.0.max(1)) {
                return Err(ConfigError::new(
                    P::NAME,
                    key,
                    format!(
                        "{period} must be a multiple of the migration epoch of {}: data is placed only when an epoch ends",
                        epochs.migration
                    ),
                ));
            }
        }
        Ok(())
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &ExtentState<P>,
        draft: &mut Draft,
    ) -> ExtentState<P> {
        let facts = context.facts;
        let Some(view) = View::new(context) else {
            if facts.placement_due {
                draft
                    .notes
                    .push("no moves: extents on two tiers that accept data are required".into());
            }
            return state.clone();
        };
        let mut kept = self.carried_over(context, &view, state);
        for (no, ios) in view.heat(facts) {
            kept.since.add(no, ios);
        }
        if facts.placement_due {
            let interval_ends = self.interval_ends(&kept, facts.at);
            if interval_ends {
                let touched: Vec<(u32, u32)> = kept.since.ordered().collect();
                let touched = &touched[..];
                kept.policy.observe(facts.at, &Heat { touched });
            }
            let now = view.fast_now(facts);
            let capacity = view.capacity(context);
            let mut wanted = now.clone();
            let policy_note = kept.policy.decide(facts.at, capacity, &mut wanted);
            if policy_note.ended.is_some() {
                kept.target = Some(wanted);
            }
            let target = kept.target.as_ref();
            draft
                .notes
                .push(note(&view, target, &now, capacity, &policy_note));
            if let Some(target) = &kept.target {
                wish(context, &view, &kept, &now, target, draft);
            }
            if interval_ends {
                kept.since.reset();
                kept.counted_from = facts.at;
            }
        }
        ExtentState { kept: Some(kept) }
    }
}

impl<P: ExtentPolicy> Extents<P> {
    /// Returns true if an interval of heat ends: the shortest of the policy's periods, or the time between two decisions.
    fn interval_ends(&self, kept: &StoredState<P>, at: Nanos) -> bool {
        let periods = self.fresh.periods();
        let shortest = periods.iter().map(|p| p.1.0).min();
        shortest.is_none_or(|length| at.0 / length > kept.counted_from.0 / length)
    }

    /// Returns the state for the present extents.
    fn carried_over(
        &self,
        context: &Context<'_>,
        view: &View,
        state: &ExtentState<P>,
    ) -> StoredState<P> {
        let facts = context.facts;
        let (layout, terms) = (view.layout(facts), terms(context, view));
        let before = state.kept.as_ref().filter(|k| k.config == self.config);
        let mut kept = before.cloned().unwrap_or_else(|| {
            let mut policy = self.fresh.clone();
            policy.agree(&terms);
            StoredState {
                config: self.config.clone(),
                layout: Layout::default(),
                terms,
                policy,
                target: None,
                since: HeatCounters::default(),
                // The first facts have the heat of one monitor epoch.
                counted_from: facts.at.saturating_sub(context.policy.epochs.monitor),
            }
        });
        if kept.terms != terms {
            kept.policy.agree(&terms);
            kept.terms = terms;
        }
        if kept.layout != layout {
            let from = layout.numbers_in(&kept.layout);
            kept.policy.renumber(&from);
            kept.since = kept.since.renumbered(&from);
            kept.target = kept.target.map(|t| t.renumbered(&from));
            kept.layout = layout;
        }
        kept
    }
}

/// Returns the cost of moving an extent on this array. A copy lasts as long as its bytes keep the slow side busy. So an I/O
/// of a move is the amount that the slow side copies in the time of a guest's request (8 KiB, half of them reads, as in
/// paper 1). The ratio of speeds is of whole tiers, as in the paper.
fn terms(context: &Context<'_>, view: &View) -> Terms {
    const REQUEST: f64 = 8192.0;
    let topology = &context.facts.topology;
    let iops = |tier| topology.sum(tier, |s| s.max_iops(0.5, REQUEST, REQUEST));
    let slow = topology.tier_ids().skip(view.fast.index() + 1);
    let (mut slow_iops, mut slow_bytes) = (0.0, 0.0);
    for tier in slow {
        slow_iops += iops(tier);
        slow_bytes += topology.sum(tier, |s| {
            2.0 / (1.0 / s.read_bandwidth.as_f64() + 1.0 / s.write_bandwidth.as_f64())
        });
    }
    Terms {
        extent: view.extent,
        movement_io: Bytes((slow_bytes / slow_iops).clamp(REQUEST, view.extent.as_f64()) as u64),
        // Quantized, so the last bit of a sum cannot change a decision.
        speed_ratio: (iops(view.fast) / slow_iops * 1e6).round() / 1e6,
    }
}

/// Adds wishes for the difference between the policy's target and the present state, by volume.
fn wish<P: ExtentPolicy>(
    context: &Context<'_>,
    view: &View,
    kept: &StoredState<P>,
    now: &FastSet,
    target: &FastSet,
    draft: &mut Draft,
) {
    let period = context.facts.at.saturating_sub(kept.counted_from);
    let mut up = target.difference(now).peekable();
    let mut down = now.difference(target).peekable();
    for placed in &view.volumes {
        let end = placed.first + placed.count;
        let mut add = |numbers: Vec<u32>, tiers: Vec<TierId>, reason: ExtentReason| {
            if numbers.is_empty() {
                return;
            }
            let own = |no: u32| no - placed.first;
            let ios = |no: &u32| (own(*no), kept.since.count(*no));
            let heat: Vec<(u32, u32)> = numbers.iter().map(ios).filter(|h| h.1 > 0).collect();
            draft.extent_wishes.push(ExtentWish {
                volume: placed.volume,
                extents: ExtentRanges::from_sorted(numbers.into_iter().map(own)),
                tiers,
                goal: Goal::Latency,
                reason,
                heat,
                space: SpaceLimit::Planned,
                refused: placed.frozen.clone(),
            });
        };
        let leaving = std::iter::from_fn(|| down.next_if(|no| *no < end)).collect();
        add(
            leaving,
            below(context, view, placed),
            ExtentReason::Cool { period },
        );
        let coming = std::iter::from_fn(|| up.next_if(|no| *no < end)).collect();
        add(coming, vec![view.fast], ExtentReason::Hot { period });
    }
}

/// Returns the tiers for extents that leave the fast tier: first the tier with most of their volume, then the others from
/// the top.
fn below(context: &Context<'_>, view: &View, placed: &PlacedVolume) -> Vec<TierId> {
    let topology = &context.facts.topology;
    if view.fast.index() + 2 == topology.tiers.len() {
        return vec![TierId::from_index(view.fast.index() + 1)];
    }
    let held = context.facts.volumes[placed.volume.index()].held();
    let on = |tier: TierId| {
        let there = held.iter().filter(|h| topology.tier_of(h.0) == tier);
        there.map(|h| h.1).sum::<Bytes>()
    };
    let mut tiers: Vec<TierId> = topology.tier_ids().skip(view.fast.index() + 1).collect();
    let most = tiers
        .iter()
        .copied()
        .max_by_key(|t| (on(*t), std::cmp::Reverse(*t)));
    tiers.sort_by_key(|t| (Some(*t) != most, *t));
    tiers
}

/// Describes the decision.
fn note(
    view: &View,
    target: Option<&FastSet>,
    now: &FastSet,
    capacity: u32,
    policy_note: &PolicyNote,
) -> String {
    use std::fmt::Write as _;

    let mut text = match policy_note.ended {
        Some(period) => format!("a period of {period} ended"),
        None => "no period ended".into(),
    };
    if let Some(share) = policy_note.share {
        let _ = write!(
            text,
            ", {:.0} % of the fast tier follow the short period",
            share * 100.0
        );
    }
    if let Some(price) = policy_note.price {
        let _ = write!(text, ", threshold {price:.1} requests per interval");
    }
    let there = now.count();
    let _ = match target {
        Some(target) => write!(
            text,
            "; the fast tier holds {} of at most {capacity} extents: {} stay, {} move in",
            there,
            there - now.difference_count(target),
            target.difference_count(now),
        ),
        None => write!(
            text,
            "; the fast tier holds {there} of at most {capacity} extents"
        ),
    };
    for (why, volumes) in &view.left_out {
        let _ = write!(text, "; {volumes} volumes are not split: {why}");
    }
    text
}
