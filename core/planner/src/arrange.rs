//! Arrangement of the wishes of every strategy: from "which tier" to "which device, when".
//!
//! Each move needs space on its target until its switch, in addition to its source. Moves are arranged by value per byte. A
//! move that fits only after others have left names those in `after`. The start order of moves without `after` is free: the
//! space that they need is free now.

mod extents;
mod room;

use model::{
    AffinityKind, Cost, Effect, ExtentOutcome, Facts, Goal, Move, Outcome, Policy, Rejection,
    Terms, VolumeReport,
};
use units::{Bytes, DeviceId, TierId, VolumeId};

use crate::evacuate::relieve;
use crate::extents::layout::stays_whole;
use crate::footprint::Footprint;
use crate::rate::{copy_bandwidth, extents_bandwidth};
use crate::rows::report_row;
use crate::{Context, ExtentWish, Ledger, Wish};

/// Space per device in the course of the plan.
#[derive(Clone)]
struct Space {
    /// Free now, minus all bytes that move in.
    now: i128,
    /// `now` plus all bytes that move out.
    later: i128,
    /// Positions of moves that leave this device.
    leaving: Vec<u32>,
    /// Expected share of the device's time in use.
    utilization: f64,
}

pub(crate) struct Arrangement {
    pub(crate) moves: Vec<Move>,
    pub(crate) volumes: Vec<VolumeReport>,
}

/// Wishes that may become moves.
pub(crate) struct PendingWishes {
    /// All wishes.
    pub(crate) wishes: Vec<Wish>,
    /// Last rejection of each wish.
    pub(crate) rejected: Vec<Option<Rejection>>,
    /// Positions of the wishes that may still become moves. Volumes bound to one tier form one bundle.
    pub(crate) bundles: Vec<Vec<usize>>,
}

impl PendingWishes {
    /// Returns the goal of a bundle: the first goal of its wishes.
    fn goal(&self, bundle: &[usize]) -> Goal {
        let goals = bundle.iter().map(|i| self.wishes[*i].goal);
        goals.min().unwrap_or_default()
    }
}

/// Arranges moves of whole volumes first, then moves of extents.
pub(crate) fn arrange(
    context: &Context<'_>,
    wishes: Vec<Wish>,
    extent_wishes: &[ExtentWish],
) -> Arrangement {
    let facts = context.facts;
    let mut arranger = Arranger::new(context);
    let mut pending = arranger.bundles(wishes);
    if facts.placement_due && context.policy.space_high.is_some() {
        // The final fill level of a device is known only after all moves of a higher rank than space have their places.
        arranger.pass(&mut pending, |goal| goal < Goal::Space);
        relieve(context, &mut arranger, &mut pending);
    }
    // A move may fit only after a later one has been accepted, so passes repeat until one accepts nothing.
    while arranger.pass(&mut pending, |_| true) {}
    let of_wishes = arranger.moves.len();
    let of_extents = extents::place(&mut arranger, extent_wishes);

    let PendingWishes {
        wishes, rejected, ..
    } = pending;
    let accepted = arranger.moves[..of_wishes].iter().enumerate();
    let accepted: Vec<(VolumeId, usize)> = accepted.map(|(i, m)| (m.volume, i)).collect();
    let mut volumes = wishes
        .into_iter()
        .zip(rejected)
        .map(|(wish, by)| {
            let taken = accepted
                .iter()
                .find(|a| a.0 == wish.volume)
                .map(|a| &arranger.moves[a.1]);
            report_row(facts, wish, by, taken)
        })
        .collect();
    report_extents(facts, of_extents, &mut volumes);
    Arrangement {
        moves: arranger.moves,
        volumes,
    }
}

/// Adds the outcomes of extents to the rows of their volumes.
fn report_extents(
    facts: &Facts,
    of_extents: Vec<(VolumeId, ExtentOutcome)>,
    volumes: &mut Vec<VolumeReport>,
) {
    for (volume, outcome) in of_extents {
        let v = &facts.volumes[volume.index()];
        // Outcomes of one volume are consecutive, so its row is the last one or one of the earlier decision.
        let found = volumes.iter_mut().rev().find(|r| r.volume == v.name);
        match found {
            Some(row) => row.extents.push(outcome),
            None => volumes.push(VolumeReport {
                volume: v.name.clone(),
                tier: facts
                    .topology
                    .tier(facts.topology.tier_of(v.device))
                    .name
                    .clone(),
                outcome: Outcome::Stay,
                options: vec![],
                evidence: Default::default(),
                notes: vec![],
                extents: vec![outcome],
            }),
        }
    }
}

pub(crate) struct Arranger<'a> {
    facts: &'a Facts,
    policy: &'a Policy,
    ledger: Ledger<'a>,
    footprint: Footprint,
    space: Vec<Space>,
    moves: Vec<Move>,
    bytes: Bytes,
}

impl<'a> Arranger<'a> {
    fn new(context: &Context<'a>) -> Self {
        let Context { facts, policy, .. } = *context;
        let space = facts
            .devices
            .iter()
            .zip(&facts.topology.devices)
            .map(|(now, device)| {
                let free =
                    device.spec.capacity.0 as i128 - now.used.0 as i128 - now.reserved.0 as i128;
                Space {
                    now: free,
                    later: free,
                    leaving: vec![],
                    utilization: now.utilization,
                }
            })
            .collect();
        Self {
            facts,
            policy,
            ledger: Ledger::new(context),
            footprint: Footprint::new(facts),
            space,
            moves: vec![],
            bytes: Bytes::ZERO,
        }
    }

    /// Sorts wishes that are moves by value, highest first. Volumes bound to one tier form one bundle.
    fn bundles(&self, wishes: Vec<Wish>) -> PendingWishes {
        let facts = self.facts;
        let mut rejected: Vec<Option<Rejection>> =
            wishes.iter().map(|w| w.refused.clone()).collect();
        let mut movers: Vec<usize> = Vec::new();
        for (i, wish) in wishes.iter().enumerate() {
            if wish.refused.is_some() || !wish.moves(facts) {
                continue;
            }
            match self.permits(wish, wish.tier) {
                Ok(()) => movers.push(i),
                Err(by) => rejected[i] = Some(by),
            }
        }
        // Quantized, so that rounding in the last bit cannot change the order.
        let value = |i: &usize| {
            let wish = &wishes[*i];
            let per_gib = wish.value / facts.volumes[wish.volume.index()].taken().as_gib_f64();
            (per_gib.clamp(-1e6, 1e6) * 1e9).round() as i64
        };
        // Drains come before all other moves. Pins have higher values than all other wishes.
        let drains = |i: &usize| wishes[*i].goal == Goal::Drain;
        movers.sort_by_cached_key(|i| {
            let first = std::cmp::Reverse((drains(i), value(i)));
            (first, wishes[*i].volume)
        });
        let mut bundles: Vec<Vec<usize>> = Vec::new();
        for i in movers {
            let bound = |a: VolumeId, b: VolumeId| {
                self.policy.affinity.iter().any(|r| {
                    r.kind == AffinityKind::SameTier
                        && r.volumes.contains(&a)
                        && r.volumes.contains(&b)
                })
            };
            let with = bundles
                .iter_mut()
                .find(|b| b.iter().any(|j| bound(wishes[*j].volume, wishes[i].volume)));
            match with {
                Some(bundle) => bundle.push(i),
                None => bundles.push(vec![i]),
            }
        }
        PendingWishes {
            wishes,
            rejected,
            bundles,
        }
    }

    /// Tries each bundle with a wanted goal once, in order. Returns true if one was accepted.
    fn pass(&mut self, pending: &mut PendingWishes, wanted: impl Fn(Goal) -> bool) -> bool {
        let mut accepted = false;
        for mut bundle in std::mem::take(&mut pending.bundles) {
            if wanted(pending.goal(&bundle)) {
                match self.accept(&bundle, &pending.wishes) {
                    Ok(rest) => {
                        accepted = true;
                        bundle = rest;
                    }
                    Err(by) => {
                        for i in &bundle {
                            pending.rejected[*i] = Some(by.clone());
                        }
                    }
                }
            }
            if !bundle.is_empty() {
                pending.bundles.push(bundle);
            }
        }
        accepted
    }

    /// Accepts all moves of a bundle, or none. If some wishes of the bundle have several possible tiers, all of those go to
    /// the first tier with room, and the rest of the bundle is returned.
    pub(crate) fn accept(
        &mut self,
        bundle: &[usize],
        wishes: &[Wish],
    ) -> Result<Vec<usize>, Rejection> {
        let whole: Vec<(&Wish, TierId)> = bundle
            .iter()
            .map(|i| (&wishes[*i], wishes[*i].tier))
            .collect();
        let Err(by) = self.accept_all(&whole) else {
            return Ok(vec![]);
        };
        let (leaving, rest): (Vec<usize>, Vec<usize>) = bundle
            .iter()
            .partition(|i| !wishes[**i].elsewhere.is_empty());
        let tiers = leaving.first().map(|i| &wishes[*i].elsewhere);
        for tier in tiers.into_iter().flatten() {
            let there: Vec<(&Wish, TierId)> =
                leaving.iter().map(|i| (&wishes[*i], *tier)).collect();
            if self.accept_all(&there).is_ok() {
                return Ok(rest);
            }
        }
        Err(by)
    }

    /// Accepts all of these moves or none.
    fn accept_all(&mut self, moves: &[(&Wish, TierId)]) -> Result<(), Rejection> {
        let (space, taken, bytes) = (self.space.clone(), self.moves.len(), self.bytes);
        let (first, to) = moves[0];
        let apart_before = self.tiers_of_group(first.volume).len();
        let mut all = || {
            moves
                .iter()
                .try_for_each(|(wish, tier)| self.accept_one(wish, *tier))?;
            // A bundle must reduce the number of tiers of its group, or unite the group on one tier.
            let tiers = self.tiers_of_group(first.volume);
            match tiers.iter().find(|(tier, _)| *tier != to) {
                Some((_, other)) if tiers.len() >= apart_before => {
                    let with = self.facts.volumes[other.index()].name.clone();
                    Err(Rejection::Affinity {
                        with,
                        rule: "same-tier".into(),
                    })
                }
                _ => Ok(()),
            }
        };
        all().inspect_err(|_| {
            self.space = space;
            self.moves.truncate(taken);
            self.bytes = bytes;
        })
    }

    /// Returns the future tiers of the volumes bound to one tier with `volume`, each with one of these volumes.
    fn tiers_of_group(&self, volume: VolumeId) -> Vec<(TierId, VolumeId)> {
        let rules = self
            .policy
            .affinity
            .iter()
            .filter(|r| r.kind == AffinityKind::SameTier);
        let members = rules
            .filter(|r| r.volumes.contains(&volume))
            .flat_map(|r| r.volumes.iter().copied());
        let mut tiers: Vec<(TierId, VolumeId)> = members
            .map(|m| (self.facts.topology.tier_of(self.final_device(m)), m))
            .collect();
        tiers.sort();
        tiers.dedup_by_key(|t| t.0);
        tiers
    }

    /// Checks the rules alone for the subject of a wish: a volume or extents.
    fn permits(&self, wish: &Wish, tier: TierId) -> Result<(), Rejection> {
        match &wish.extents {
            None => self.ledger.permits(wish.volume, tier),
            Some(_) => match stays_whole(self.policy, wish.volume) {
                Some(why) => Err(Rejection::StaysWhole { why: why.into() }),
                None => self
                    .ledger
                    .permits_part(wish.volume, tier, self.bytes_of(wish)),
            },
        }
    }

    /// Returns the bytes that a wish covers, wherever they are.
    fn bytes_of(&self, wish: &Wish) -> Bytes {
        let volume = &self.facts.volumes[wish.volume.index()];
        let part = wish.extents.as_ref().zip(volume.extents.as_ref());
        let of_part = part.and_then(|(ranges, of)| ranges.bytes(volume.size, of.extent));
        of_part.unwrap_or_else(|| volume.taken())
    }

    /// Returns the bytes that the wish would copy to a device.
    fn brought_by(&self, wish: &Wish, device: DeviceId) -> Bytes {
        match wish.extents {
            Some(_) => self.bytes_of(wish),
            None => self.footprint.elsewhere(wish.volume, device),
        }
    }

    /// Returns the first moves off a device that free enough space for `bytes` more bytes; none if these fit now.
    fn waits_for(&self, device: DeviceId, bytes: i128) -> Vec<u32> {
        let space = &self.space[device.index()];
        let mut missing = bytes - space.now;
        let mut after = Vec::new();
        for position in &space.leaving {
            if missing <= 0 {
                break;
            }
            let m = &self.moves[*position as usize];
            missing -= i128::from(self.footprint.leaving(m, device).0);
            after.push(*position);
        }
        after
    }

    fn accept_one(&mut self, wish: &Wish, tier: TierId) -> Result<(), Rejection> {
        self.permits(wish, tier)?;
        let volume = &self.facts.volumes[wish.volume.index()];
        let moved = self.bytes_of(wish);
        let budget = &self.policy.budget;
        if self.moves.len() >= budget.moves_per_epoch as usize {
            return Err(Rejection::Budget {
                limit: format!("{} moves", budget.moves_per_epoch),
            });
        }
        if let Some(most) = budget
            .bytes_per_epoch
            .filter(|most| self.bytes + moved > *most)
        {
            return Err(Rejection::Budget {
                limit: format!("{most} to move"),
            });
        }
        let to = self.choose_device(wish, tier)?;
        let size = i128::from(self.brought_by(wish, to).0);
        let target = &self.space[to.index()];
        let after = if target.now >= size {
            vec![]
        } else {
            target.leaving.clone()
        };
        let (facts, policy) = (self.facts, self.policy);
        let (from, bandwidth) = match wish.extents {
            Some(_) => (wish.here, extents_bandwidth(facts, policy, wish.here, to)),
            None => (
                volume.device,
                copy_bandwidth(facts, policy, wish.volume, to),
            ),
        };
        let position = self.moves.len() as u32;
        self.moves.push(Move {
            volume: wish.volume,
            from,
            to,
            extents: wish.extents.clone(),
            size: moved,
            after,
            bandwidth,
            terms: Terms {
                goal: wish.goal,
                reason: wish.reason.clone(),
                effect: if tier == wish.tier {
                    wish.effect
                } else {
                    Effect::default() // no prediction for this tier
                },
                cost: Cost {
                    bytes: moved,
                    duration: bandwidth.time_for(moved),
                },
            },
        });
        self.bytes += moved;
        let target = &mut self.space[to.index()];
        target.now -= size;
        target.later -= size;
        target.utilization += wish.device_share;
        let part = wish.extents.as_ref().map(|_| [(from, moved)]);
        let held = match &part {
            Some(part) => &part[..],
            None => self.footprint.held(wish.volume),
        };
        for (device, bytes) in held {
            if *device != to {
                let source = &mut self.space[device.index()];
                source.later += i128::from(bytes.0);
                source.leaving.push(position);
            }
        }
        Ok(())
    }
}
