//! Assignment of tiers to volumes (paper 0, Alg. 2 l. 19–25, and Eq. 1–5 for one epoch).

use std::collections::BTreeMap;

use model::{AffinityKind, Effect, Facts, Reason, Rejection, Verdict};
use units::{TierId, VolumeId};

use super::config::{Assignment, Overload, Scope};
use super::score::TierScore;
use super::{AutoTiering, AutoTieringState, describe};
use crate::assign::{self, Place, Placement, Problem, Shares, quantized};
use crate::ledger::Demand;
use crate::{AssignmentTaken, Context, Draft, Ledger, Wish};

/// Objective of the assignment, for reports.
const OBJECTIVE: &str = "sum of this strategy's scores (Eq. 6 and 7, its own predictions)";

/// Assignment problem of one epoch, and the volumes of its rows.
struct Instance {
    problem: Problem,
    /// Volumes of each item: one volume, or a group that a rule binds to one tier.
    members: Vec<Vec<VolumeId>>,
}

/// Treatment of volumes that must share a tier and are on several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitGroupPolicy {
    /// All volumes of the group get one tier.
    Join,
    /// Each volume stays in place.
    Leave,
}

impl AutoTiering {
    pub(super) fn assign(
        &self,
        context: &Context<'_>,
        scored: &[Option<Vec<TierScore>>],
        state: &AutoTieringState,
        draft: &mut Draft,
    ) {
        let facts = context.facts;
        let mut ledger = Ledger::new(context);
        let mut wishes: Vec<Wish> = (0..scored.len())
            .map(|i| Wish::stay(context, VolumeId::from_index(i)))
            .collect();
        for (wish, scores) in wishes.iter_mut().zip(scored) {
            let directions = self.switches.directions;
            describe(facts, wish, scores.as_deref(), state, directions);
            // Volumes with unknown load may not be idle, and moving volumes count at their targets. Both keep their place
            // and space, before other volumes are placed.
            match scores {
                None => {
                    let space = facts.volumes[wish.volume.index()].size;
                    ledger.assign(wish.volume, wish.tier, &Demand::space_only(space));
                }
                Some(scores) if moving(facts, wish.volume) => {
                    ledger.assign(wish.volume, wish.tier, &scores[wish.tier.index()].demand);
                }
                Some(_) => {}
            }
        }
        let mut instance =
            self.instance(facts, scored, &ledger, &mut wishes, SplitGroupPolicy::Join);
        let placement = match self.switches.assignment {
            Assignment::TierMajor => {
                self.assign_by_tier(facts, scored, &mut ledger, &mut wishes);
                let tier = |m: &Vec<VolumeId>| wishes[m[0].index()].tier;
                instance
                    .problem
                    .placement_of(instance.members.iter().map(tier).collect())
            }
            Assignment::Regret => {
                let placement = assign::solve(&instance.problem).unwrap_or_else(|| {
                    // No tier has room for all volumes of a group that must be united.
                    instance =
                        self.instance(facts, scored, &ledger, &mut wishes, SplitGroupPolicy::Leave);
                    assign::solve(&instance.problem).expect("everything may stay where it is")
                });
                self.take(facts, scored, &instance, &placement, &mut wishes);
                placement
            }
        };
        draft.assignment = Some(AssignmentTaken {
            objective: OBJECTIVE,
            problem: instance.problem,
            placement,
        });
        // Volumes left over keep their place (not specified in the paper; Eq. 2 requires a place for every volume).
        draft.wishes = wishes;
    }

    /// Returns the generalized assignment problem of this epoch. Records places that a filter rejects in the report.
    fn instance(
        &self,
        facts: &Facts,
        scored: &[Option<Vec<TierScore>>],
        ledger: &Ledger<'_>,
        wishes: &mut [Wish],
        apart: SplitGroupPolicy,
    ) -> Instance {
        let tiers = || facts.topology.tier_ids();
        let capacity: Vec<Shares> = tiers().map(|t| ledger.left(t)).collect();
        let mut problem = Problem::new(capacity);
        let mut members: Vec<Vec<VolumeId>> = Vec::new();
        for group in self.groups(facts, scored, ledger) {
            let mut places: Vec<Option<Place>> = Vec::with_capacity(facts.topology.tiers.len());
            for tier in tiers() {
                let mut sum = Some(Place {
                    score: 0.0,
                    uses: [0.0; assign::RESOURCES],
                });
                for volume in &group {
                    let wish = &mut wishes[volume.index()];
                    let option = &scored[volume.index()].as_ref().expect("scored")[tier.index()];
                    let refused = match &option.infeasible {
                        _ if tier == wish.tier && group.len() == 1 => None,
                        Some(by) => Some(by.clone()),
                        None if self.switches.scope == Scope::OwnTier && tier != wish.tier => {
                            Some(Rejection::NotConsidered)
                        }
                        None => ledger.permits(*volume, tier).err(),
                    };
                    match (refused, &mut sum) {
                        (None, Some(place)) => {
                            let uses = shares(facts, tier, option);
                            place.score += option.score;
                            place.uses.iter_mut().zip(uses).for_each(|(a, b)| *a += b);
                        }
                        (Some(by), _) => {
                            wish.options[tier.index()].verdict = Verdict::Rejected { by };
                            sum = None;
                        }
                        (None, None) => {}
                    }
                }
                places.push(sum);
            }
            let homes: Vec<TierId> = group.iter().map(|v| wishes[v.index()].tier).collect();
            let home = homes
                .iter()
                .all(|h| h == &homes[0] && places[h.index()].is_some())
                .then(|| homes[0]);
            if home.is_some() || apart == SplitGroupPolicy::Join {
                problem.add(home, &places);
                members.push(group);
                continue;
            }
            for (volume, home) in group.into_iter().zip(homes) {
                let option = &scored[volume.index()].as_ref().expect("scored")[home.index()];
                let mut places = vec![None; facts.topology.tiers.len()];
                places[home.index()] = Some(Place {
                    score: option.score,
                    uses: shares(facts, home, option),
                });
                problem.add(Some(home), &places);
                members.push(vec![volume]);
            }
        }
        if self.switches.overload == Overload::Price {
            price_overload(&mut problem, scored, &members);
        }
        problem.admit_present();
        Instance { problem, members }
    }

    /// Returns the volumes to be placed. Volumes that a rule binds to one tier form one group. Volumes bound to a volume
    /// with a settled place are single: the filters allow them its tier, or to stay.
    fn groups(
        &self,
        facts: &Facts,
        scored: &[Option<Vec<TierScore>>],
        ledger: &Ledger<'_>,
    ) -> Vec<Vec<VolumeId>> {
        let free = |v: VolumeId| scored[v.index()].is_some() && ledger.assigned(v).is_none();
        let mut first: Vec<usize> = (0..facts.volumes.len()).collect();
        let rules = ledger.affinity().iter();
        // The tier-major order handles rules itself.
        let joins = self.switches.assignment == Assignment::Regret;
        for rule in rules.filter(|r| joins && r.kind == AffinityKind::SameTier) {
            if !rule.volumes.iter().all(|v| free(*v)) {
                continue;
            }
            let roots: Vec<usize> = rule.volumes.iter().map(|v| first[v.index()]).collect();
            let least = roots.iter().copied().min().expect("rules name volumes");
            for f in &mut first {
                if roots.contains(f) {
                    *f = least;
                }
            }
        }
        let mut groups: BTreeMap<usize, Vec<VolumeId>> = BTreeMap::new();
        for volume in (0..facts.volumes.len()).map(VolumeId::from_index) {
            if free(volume) {
                groups
                    .entry(first[volume.index()])
                    .or_default()
                    .push(volume);
            }
        }
        groups.into_values().collect()
    }

    /// Turns a placement into wishes. Records why each better tier was not chosen.
    fn take(
        &self,
        facts: &Facts,
        scored: &[Option<Vec<TierScore>>],
        instance: &Instance,
        placement: &Placement,
        wishes: &mut [Wish],
    ) {
        let problem = &instance.problem;
        let left = problem.left(&placement.tiers);
        let mut gains: Vec<(i64, usize)> = placement
            .tiers
            .iter()
            .enumerate()
            .filter_map(|(item, tier)| {
                let home = problem.home(item)?;
                Some((
                    problem.score(item, *tier)? - problem.score(item, home)?,
                    item,
                ))
            })
            .collect();
        gains.sort_by_key(|(gain, item)| (std::cmp::Reverse(*gain), *item));
        let mut rank_of = vec![0; problem.len()];
        for (rank, (_, item)) in gains.into_iter().enumerate() {
            rank_of[item] = rank as u32 + 1;
        }
        for (item, tier) in placement.tiers.iter().enumerate() {
            for volume in &instance.members[item] {
                let scores = scored[volume.index()].as_ref().expect("scored");
                let wish = &mut wishes[volume.index()];
                for other in facts.topology.tier_ids() {
                    let verdict = &mut wish.options[other.index()].verdict;
                    if other != *tier
                        && *verdict == Verdict::NotNeeded
                        && scores[other.index()].score > scores[tier.index()].score
                        && let Some(by) = lacking(facts, other, scores, &left[other.index()])
                    {
                        *verdict = Verdict::Rejected { by };
                    }
                }
                self.wish_for(facts, wish, scores, *tier, rank_of[item]);
            }
        }
    }

    /// Paper 0's triggerMigration (Alg. 2 l. 19–25), with the reset that it leaves out.
    fn assign_by_tier(
        &self,
        facts: &Facts,
        scored: &[Option<Vec<TierScore>>],
        ledger: &mut Ledger<'_>,
        wishes: &mut [Wish],
    ) {
        for tier in facts.topology.tier_ids() {
            let mut order: Vec<(i64, VolumeId)> = measured(scored)
                .filter(|(v, _)| ledger.assigned(*v).is_none())
                .map(|(v, s)| (quantized(s[tier.index()].score), v))
                .collect();
            order.sort_by_key(|(score, v)| (std::cmp::Reverse(*score), *v));
            for (rank, (_, volume)) in order.into_iter().enumerate() {
                let scores = scored[volume.index()].as_ref().expect("filtered");
                match self.admits(ledger, wishes, volume, tier, scores) {
                    Ok(()) => {
                        ledger.assign(volume, tier, &scores[tier.index()].demand);
                        let wish = &mut wishes[volume.index()];
                        self.wish_for(facts, wish, scores, tier, rank as u32 + 1);
                    }
                    Err(by) => {
                        wishes[volume.index()].options[tier.index()].verdict =
                            Verdict::Rejected { by }
                    }
                }
            }
        }
    }

    fn admits(
        &self,
        ledger: &Ledger<'_>,
        wishes: &[Wish],
        volume: VolumeId,
        tier: TierId,
        scores: &[TierScore],
    ) -> Result<(), Rejection> {
        let option = &scores[tier.index()];
        match &option.infeasible {
            Some(by) => Err(by.clone()),
            None if self.switches.scope == Scope::OwnTier
                && tier != wishes[volume.index()].tier =>
            {
                Err(Rejection::NotConsidered)
            }
            None => ledger.admits(
                volume,
                tier,
                &option.demand,
                self.switches.staying.of_ledger(),
            ),
        }
    }

    fn wish_for(
        &self,
        facts: &Facts,
        wish: &mut Wish,
        scores: &[TierScore],
        tier: TierId,
        rank: u32,
    ) {
        let here = wish.tier;
        if tier == here {
            return;
        }
        let (from, to) = (&scores[here.index()], &scores[tier.index()]);
        let measured = facts.volumes[wish.volume.index()]
            .measured
            .expect("scored volumes are measured");
        wish.tier = tier;
        let tier_major = self.switches.assignment == Assignment::TierMajor;
        wish.reason = if tier_major && (tier < here || to.score > from.score) {
            ranked_by_score(rank, to.score, from.score)
        } else if to.score > from.score {
            better_match(rank, to.score, from.score)
        } else {
            displaced(to.score, from.score)
        };
        wish.effect = Effect {
            latency_before_us: measured.latency_mean_us(),
            latency_after_us: Some(to.prediction.latency_us),
            latency_after_range_us: None,
            iops_before: Some(measured.iops()),
            iops_after: Some(to.prediction.iops),
        };
        wish.value = to.score - from.score;
        let devices = facts.topology.tier(tier).devices.len() as f64;
        wish.device_share = to.demand.iops / to.demand.iops_max * devices;
    }
}

/// Returns the volumes with scores.
fn measured(
    scored: &[Option<Vec<TierScore>>],
) -> impl Iterator<Item = (VolumeId, &Vec<TierScore>)> {
    scored
        .iter()
        .enumerate()
        .filter_map(|(i, s)| Some((VolumeId::from_index(i), s.as_ref()?)))
}

/// Returns the resource use of a volume on a tier.
fn shares(facts: &Facts, tier: TierId, option: &TierScore) -> Shares {
    option.demand.shares(facts.topology.capacity(tier))
}

/// Prices overload. Demand above a tier's share is unserved, and all volumes on the tier lose alike, so it costs the average
/// value of a share to them. If a resource has no value at all, its limit is hard.
fn price_overload(
    problem: &mut Problem,
    scored: &[Option<Vec<TierScore>>],
    members: &[Vec<VolumeId>],
) {
    for tier in (0..problem.tiers()).map(TierId::from_index) {
        let mut prices = [f64::INFINITY; assign::RESOURCES];
        for (k, price) in prices.iter_mut().enumerate().take(2) {
            let (mut worth, mut used) = (0.0, 0.0);
            for (item, group) in members.iter().enumerate() {
                let share = problem.uses(item, tier)[k] / group.len() as f64;
                for volume in group {
                    let option = &scored[volume.index()].as_ref().expect("scored")[tier.index()];
                    worth += share * option.worth[k];
                    used += share;
                }
            }
            if worth > 0.0 {
                *price = worth / used;
            }
        }
        problem.price_overload(tier, prices);
    }
}

/// Reason of a volume that was assigned in order of score; rank 1 has the highest score.
fn ranked_by_score(rank: u32, score: f64, score_here: f64) -> Reason {
    let text = format!(
        "rank {rank} by score on the target (score {score:.4}, current tier {score_here:.4})"
    );
    scores(Reason::new("ranked-by-score", text), score, score_here).with("rank", rank)
}

/// Reason of a volume whose score is higher on the target; rank 1 has the largest gain.
fn better_match(rank: u32, score: f64, score_here: f64) -> Reason {
    let text = format!(
        "matches the target better (score {score:.4}, current tier {score_here:.4}); rank {rank} by gain"
    );
    scores(Reason::new("better-match", text), score, score_here).with("rank", rank)
}

/// Reason of a volume whose current tier is filled by volumes with higher scores.
fn displaced(score: f64, score_here: f64) -> Reason {
    let text = format!(
        "displaced by volumes with higher scores (score on the target {score:.4}, current tier {score_here:.4})"
    );
    scores(Reason::new("displaced", text), score, score_here)
}

fn scores(reason: Reason, score: f64, score_here: f64) -> Reason {
    reason.with("score", score).with("score_here", score_here)
}

fn moving(facts: &Facts, volume: VolumeId) -> bool {
    facts.moves.iter().any(|m| m.volume == volume)
}

/// Returns the resource of which a tier has too little left for a volume, if any.
fn lacking(facts: &Facts, tier: TierId, scores: &[TierScore], left: &Shares) -> Option<Rejection> {
    let demand = &scores[tier.index()].demand;
    let space_max = facts.topology.capacity(tier).as_f64();
    let needs = [
        ("iops", demand.iops, demand.iops_max),
        ("bandwidth", demand.bytes_per_s, demand.bytes_per_s_max),
        ("space", demand.space.as_f64(), space_max),
    ];
    needs
        .into_iter()
        .zip(left)
        .find(|((_, need, most), left)| *need > most * *left)
        .map(|((resource, need, most), left)| Rejection::Headroom {
            resource: resource.into(),
            need,
            left: (most * left).max(0.0),
        })
}
