//! From "which tier" to "which device, when": what holds for every strategy's wishes.
//!
//! Each move needs space on its target until its switch, beside the source. Moves are arranged by value per byte; one
//! that only fits once others have left names those in `after`. Space is accounted so that the order of starting among
//! moves without `after` does not matter: what they need is free now.

use model::{
    AffinityKind, Facts, Move, MoveCost, Outcome, Policy, Reason, Rejection, TierOption, Verdict,
    VolumeReport,
};
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};

use crate::{Context, Ledger, Wish};

/// A copy is never planned slower than this: below it, a move would outlast any forecast.
const COPY_BANDWIDTH_MIN: BytesPerSec = BytesPerSec(1_000_000);

/// Space per device in the course of the plan.
#[derive(Clone)]
struct Space {
    /// Free now, less everything that moves in.
    now: i128,
    /// The same, plus everything that moves out.
    later: i128,
    /// Positions of moves that leave this device.
    leaving: Vec<u32>,
    /// Expected share of the device's time in use.
    utilization: f64,
}

pub(crate) struct Arranged {
    pub(crate) moves: Vec<Move>,
    pub(crate) volumes: Vec<VolumeReport>,
}

pub(crate) fn arrange(context: &Context<'_>, wishes: Vec<Wish>) -> Arranged {
    let facts = context.facts;
    let mut arranger = Arranger::new(context);
    let mut rejected: Vec<Option<Rejection>> = vec![None; wishes.len()];
    let bundles = arranger.bundles(context, &wishes, &mut rejected);

    // A move may fit only after a later one has been accepted, so go round until a pass accepts nothing.
    let mut waiting = bundles;
    loop {
        let before = waiting.len();
        waiting.retain(|bundle| match arranger.accept(bundle, &wishes) {
            Ok(()) => false,
            Err(by) => {
                for i in bundle {
                    rejected[*i] = Some(by.clone());
                }
                true
            }
        });
        if waiting.len() == before {
            break;
        }
    }

    let accepted: Vec<(VolumeId, usize)> = arranger
        .moves
        .iter()
        .enumerate()
        .map(|(i, m)| (m.volume, i))
        .collect();
    let volumes = wishes
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
    Arranged {
        moves: arranger.moves,
        volumes,
    }
}

struct Arranger<'a> {
    facts: &'a Facts,
    policy: &'a Policy,
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
            space,
            moves: vec![],
            bytes: Bytes::ZERO,
        }
    }

    /// Wishes that are moves, most valuable first; volumes bound to one tier go together.
    fn bundles(
        &self,
        context: &Context<'_>,
        wishes: &[Wish],
        rejected: &mut [Option<Rejection>],
    ) -> Vec<Vec<usize>> {
        let facts = self.facts;
        let ledger = Ledger::new(context);
        let mut movers: Vec<usize> = Vec::new();
        for (i, wish) in wishes.iter().enumerate() {
            if wish.tier == ledger.tier_now(wish.volume) {
                continue;
            }
            match ledger.permits(wish.volume, wish.tier) {
                Ok(()) => movers.push(i),
                Err(by) => rejected[i] = Some(by),
            }
        }
        // Quantized, so that rounding in the last bit cannot change the order.
        let value = |i: &usize| {
            let wish = &wishes[*i];
            let per_gib = wish.value
                / (facts.volumes[wish.volume.index()].size.as_f64() / (1u64 << 30) as f64);
            (per_gib.clamp(-1e6, 1e6) * 1e9).round() as i64
        };
        movers.sort_by_key(|i| (std::cmp::Reverse(value(i)), wishes[*i].volume));
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
        bundles
    }

    /// Takes all moves of a bundle or none.
    fn accept(&mut self, bundle: &[usize], wishes: &[Wish]) -> Result<(), Rejection> {
        let (space, moves, bytes) = (self.space.clone(), self.moves.len(), self.bytes);
        let first = &wishes[bundle[0]];
        let apart_before = self.tiers_of_group(first.volume).len();
        let mut all = || {
            bundle
                .iter()
                .try_for_each(|i| self.accept_one(&wishes[*i]))?;
            // Volumes that belong on one tier come together, or at least closer; no move takes them further apart.
            let tiers = self.tiers_of_group(first.volume);
            match tiers.iter().find(|(tier, _)| *tier != first.tier) {
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
            self.moves.truncate(moves);
            self.bytes = bytes;
        })
    }

    /// Tiers that the volumes bound to one tier with `volume` will be on, each with one of them.
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

    fn accept_one(&mut self, wish: &Wish) -> Result<(), Rejection> {
        let volume = &self.facts.volumes[wish.volume.index()];
        let budget = &self.policy.budget;
        if self.moves.len() >= budget.moves_per_epoch as usize {
            return Err(Rejection::Budget {
                limit: format!("{} moves", budget.moves_per_epoch),
            });
        }
        if let Some(most) = budget
            .bytes_per_epoch
            .filter(|most| self.bytes + volume.size > *most)
        {
            return Err(Rejection::Budget {
                limit: format!("{most} to move"),
            });
        }
        let to = self.choose_device(wish)?;
        let size = i128::from(volume.size.0);
        let target = &self.space[to.index()];
        let after = if target.now >= size {
            vec![]
        } else {
            target.leaving.clone()
        };
        let bandwidth = copy_bandwidth(self.facts, self.policy, wish.volume, to);
        let position = self.moves.len() as u32;
        self.moves.push(Move {
            volume: wish.volume,
            from: volume.device,
            to,
            size: volume.size,
            after,
            bandwidth,
            reason: wish.reason.clone(),
            effect: wish.effect,
            cost: MoveCost {
                bytes: volume.size,
                duration: bandwidth.time_for(volume.size),
            },
        });
        self.bytes += volume.size;
        let target = &mut self.space[to.index()];
        target.now -= size;
        target.later -= size;
        target.utilization += wish.device_share;
        let source = &mut self.space[volume.device.index()];
        source.later += size;
        source.leaving.push(position);
        Ok(())
    }

    /// The device of the tier with room, least load, most free space.
    fn choose_device(&self, wish: &Wish) -> Result<DeviceId, Rejection> {
        let need = self.facts.volumes[wish.volume.index()].size;
        let devices = &self.facts.topology.tier(wish.tier).devices;
        let mut apart = None;
        let best = devices
            .iter()
            .filter(|d| self.space[d.index()].later >= i128::from(need.0))
            .filter(|d| match self.meets_on(wish.volume, **d) {
                None => true,
                Some(other) => {
                    apart = Some(other);
                    false
                }
            })
            .min_by_key(|d| {
                let s = &self.space[d.index()];
                let must_wait = s.now < i128::from(need.0);
                (
                    (s.utilization * 1e3).round() as i64,
                    must_wait,
                    std::cmp::Reverse(s.later),
                    **d,
                )
            });
        if let Some(device) = best {
            return Ok(*device);
        }
        if let Some(other) = apart {
            let with = self.facts.volumes[other.index()].name.clone();
            return Err(Rejection::Affinity {
                with,
                rule: "different-devices".into(),
            });
        }
        let most = devices
            .iter()
            .map(|d| self.space[d.index()].later.max(0))
            .max()
            .unwrap_or(0);
        let most_free = Bytes(u64::try_from(most).unwrap_or(u64::MAX));
        let empty = devices.iter().any(|d| {
            let facts = &self.facts.devices[d.index()];
            let capacity = self.facts.topology.device(*d).spec.capacity;
            capacity
                .saturating_sub(facts.used)
                .saturating_sub(facts.reserved)
                >= need
        });
        // It would fit into what is free now, but other moves of this plan take that.
        Err(if empty {
            Rejection::TransientSpace { need, most_free }
        } else {
            Rejection::NoDevice { need, most_free }
        })
    }

    /// A volume that must not share a device with `volume` and will be on `device`.
    fn meets_on(&self, volume: VolumeId, device: DeviceId) -> Option<VolumeId> {
        let rules = self
            .policy
            .affinity
            .iter()
            .filter(|r| r.kind == AffinityKind::DifferentDevices);
        rules
            .filter(|r| r.volumes.contains(&volume))
            .flat_map(|r| r.volumes.iter().copied())
            .find(|other| *other != volume && self.final_device(*other) == device)
    }

    fn final_device(&self, volume: VolumeId) -> DeviceId {
        let planned = self.moves.iter().find(|m| m.volume == volume).map(|m| m.to);
        let running = self
            .facts
            .moves
            .iter()
            .find(|m| m.volume == volume)
            .map(|m| m.to);
        planned
            .or(running)
            .unwrap_or_else(|| self.facts.volumes[volume.index()].device)
    }
}

/// Rate that a copy is planned with: the budget's, or less where source and target have less to spare.
pub(crate) fn copy_bandwidth(
    facts: &Facts,
    policy: &Policy,
    volume: VolumeId,
    to: DeviceId,
) -> BytesPerSec {
    let budget = &policy.budget;
    let spare = spare_bandwidth(facts, volume, to) * budget.copy_share;
    // The floor is for busy devices, not against the operator.
    let rate = (spare as u64).max(COPY_BANDWIDTH_MIN.0);
    BytesPerSec(rate.min(budget.copy_bandwidth.0))
}

/// μ of paper 0 (Alg. 2 l. 17), bytes per second: the smaller of what the source has left to read, the volume's own reads
/// added back since its own copy may use them, and what the target has left to write.
pub(crate) fn spare_bandwidth(facts: &Facts, volume: VolumeId, to: DeviceId) -> f64 {
    let v = &facts.volumes[volume.index()];
    let own_read = v
        .measured
        .map_or(0.0, |m| m.reads.bytes as f64 / m.window.as_secs_f64());
    let from = &facts.topology.device(v.device).spec;
    let target = &facts.topology.device(to).spec;
    let read_left =
        (from.read_bandwidth.as_f64() - facts.devices[v.device.index()].read_bytes_per_s).max(0.0)
            + own_read;
    let write_left =
        (target.write_bandwidth.as_f64() - facts.devices[to.index()].write_bytes_per_s).max(0.0);
    read_left.min(write_left)
}

fn report_row(
    facts: &Facts,
    wish: Wish,
    by: Option<Rejection>,
    taken: Option<&Move>,
) -> VolumeReport {
    let name = |t: TierId| facts.topology.tier(t).name.clone();
    let volume = &facts.volumes[wish.volume.index()];
    let here = facts.topology.tier_of(volume.device);
    let mut options = wish.options;
    let mut set = |tier: TierId, verdict: Verdict| {
        let wanted = name(tier);
        match options.iter_mut().find(|o| o.tier == wanted) {
            Some(option) => option.verdict = verdict,
            None => options.push(TierOption {
                tier: wanted,
                score: None,
                predicted: None,
                move_s: None,
                verdict,
            }),
        }
    };
    let outcome = match (taken, by) {
        (Some(m), _) => {
            set(wish.tier, Verdict::Chosen);
            Outcome::Move {
                to: name(wish.tier),
                reason: m.reason.to_string(),
            }
        }
        (None, Some(by)) => {
            set(wish.tier, Verdict::Rejected { by: by.clone() });
            set(here, Verdict::Chosen);
            Outcome::Held {
                wanted: name(wish.tier),
                by,
            }
        }
        (None, None) => {
            set(here, Verdict::Chosen);
            Outcome::Stay
        }
    };
    VolumeReport {
        volume: volume.name.clone(),
        tier: name(here),
        outcome,
        options,
        evidence: wish.evidence,
    }
}

/// The wish of an operator's pin, which no strategy has to repeat.
pub(crate) fn pin_wish(facts: &Facts, volume: VolumeId, tier: TierId) -> Wish {
    let size = facts.volumes[volume.index()].size;
    Wish {
        volume,
        tier,
        reason: Reason::Pinned,
        effect: model::Effect::default(),
        // Rules come before latency, whatever the size.
        value: 1e6 * (size.as_f64() / (1u64 << 30) as f64).max(1.0),
        device_share: 0.0,
        options: vec![],
        evidence: Default::default(),
    }
}
