//! What every placement would have missed in the epochs of the history, and the bundles of moves that are worth their price.

use algo::{normal_cdf, objective::excess};
use model::Facts;
use units::{DeviceId, TierId};

use super::history::{EPOCHS, History, Sample};
use super::learned::{Learned, occupancy, plain_mean_us};
use super::rates::RATES;
use crate::Context;
use crate::rate::copy_bandwidth;

/// Bundles of one plan.
const BUNDLES_MAX: usize = 12;
/// Volumes of a device that are tried to make room with.
const EVICTED_MAX: usize = 24;
/// A cost below which a volume is no reason to look for anything.
const COST_MIN: f64 = 0.02;
/// A volume that carries this share of what the array is asked for is a cause for others when its load changes.
const CAUSE_SHARE: f64 = 0.05;

/// One move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moved {
    pub volume: usize,
    pub to: DeviceId,
}

/// Moves that only make sense together: the first is what they are for.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub moves: Vec<Moved>,
    /// Forecast benefit over the horizon, weighted seconds.
    pub gain: f64,
    /// What copies take from guests, and their bytes.
    pub price: f64,
    /// What staying has cost.
    pub regret: f64,
    pub bytes_gib: f64,
    /// The first leaves for the sake of others.
    pub relieves: bool,
}

/// What a bundle has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Staying has to have cost as much as the move would.
    Regret,
    /// It has been decided before.
    Decided,
}

/// A volume on a tier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    pub mean_us: f64,
    pub cost: f64,
}

/// The search for one plan.
pub(super) struct Search<'a> {
    context: &'a Context<'a>,
    histories: &'a [&'a History],
    /// Measured over modelled latency, by device.
    slower: Vec<f64>,
    /// Spread of predictions elsewhere.
    sigma_there: f64,
    /// Epochs of the history.
    epochs: usize,
    /// By volume and epoch: its load; none before it is known.
    samples: Vec<Vec<Option<Sample>>>,
    /// Share of a device's time that a volume takes, by volume, device, epoch.
    usage: Vec<f64>,
    /// Where every volume is by now, in this plan.
    place: Vec<usize>,
    /// The volumes of each device, rising, and what they cost there, by epoch: kept as `place` changes.
    on: Vec<Vec<usize>>,
    now: Vec<Vec<f64>>,
    /// Free space by device, in this plan.
    free: Vec<i128>,
    /// Volumes that take no further part.
    done: Vec<bool>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        histories: &'a [&'a History],
        learned: &'a Learned,
    ) -> Self {
        let facts = context.facts;
        let last = facts.epoch;
        let first = (last + 1).saturating_sub(EPOCHS as u64);
        let epochs: Vec<u64> = (first..=last).collect();
        let samples: Vec<Vec<Option<Sample>>> = histories
            .iter()
            .map(|h| {
                // What came before a change is taken to have been as after it: only what goes on is asked for.
                let oldest = h.samples.first().copied();
                let at = |e: &u64| {
                    let own = h.samples.iter().find(|s| s.epoch == *e).copied();
                    own.or(oldest)
                };
                epochs.iter().map(at).collect()
            })
            .collect();
        let mut place: Vec<usize> = facts.volumes.iter().map(|v| v.device.index()).collect();
        for m in facts.moves.iter().filter(|m| m.extents.is_none()) {
            place[m.volume.index()] = m.to.index(); // where it will be
        }
        let devices = facts.topology.devices.len();
        let factors: Vec<f64> = (0..devices).map(|d| learned.usage(facts, d)).collect();
        let mut usage = Vec::with_capacity(facts.volumes.len() * devices * epochs.len());
        for (history, of_volume) in histories.iter().zip(&samples) {
            for (device, factor) in facts.topology.devices.iter().zip(&factors) {
                usage.extend(of_volume.iter().map(|s| {
                    let asked = s.map(|s| history.hidden(&s) * occupancy(&device.spec, &s));
                    factor * asked.unwrap_or(0.0)
                }));
            }
        }
        let mut on = vec![vec![]; devices];
        for (v, d) in place.iter().enumerate() {
            on[*d].push(v);
        }
        let free = facts
            .devices
            .iter()
            .zip(&facts.topology.devices)
            .map(|(now, d)| {
                let capacity = d.spec.capacity.as_f64() * context.policy.headroom.space.min(1.0);
                capacity as i128 - i128::from(now.used.0) - i128::from(now.reserved.0)
            })
            .collect();
        let moving = |v: usize| facts.moves.iter().any(|m| m.volume.index() == v);
        let done = (0..facts.volumes.len())
            .map(|v| facts.volumes[v].measured.is_none() || moving(v))
            .collect();
        let mut search = Self {
            context,
            histories,
            slower: (0..devices).map(|d| learned.latency(facts, d)).collect(),
            sigma_there: learned.sigma(),
            epochs: epochs.len(),
            samples,
            usage,
            place,
            on,
            now: vec![],
            free,
            done,
        };
        let cost = |d: usize| search.device_cost(d, &search.on[d], 0.0);
        search.now = (0..devices).map(cost).collect();
        search
    }

    fn facts(&self) -> &'a Facts {
        self.context.facts
    }

    fn usage(&self, v: usize, d: usize, e: usize) -> f64 {
        let devices = self.facts().topology.devices.len();
        self.usage[(v * devices + d) * self.epochs + e]
    }

    /// What a volume would miss on a device that is so busy, per second, and its mean latency.
    fn cost(&self, v: usize, d: usize, e: usize, (rho, in_flight): (f64, f64)) -> (f64, f64) {
        let facts = self.facts();
        let Some(sample) = self.samples[v][e].filter(|s| s.total() > 0.0) else {
            return (0.0, 0.0);
        };
        let volume = &facts.volumes[v];
        let here = volume.device.index() == d;
        let class = &facts.classes[volume.class.index()];
        let spec = &facts.topology.devices[d].spec;
        let modelled = plain_mean_us(spec, &sample, rho, in_flight) * self.slower[d];
        let carried = match here {
            true => sample.residual,
            false => libm::sqrt(sample.residual),
        };
        let mean_us = modelled * carried;
        let Some(target) = class.target else {
            let counts = (sample.total() / RATES.free_iops).min(1.0);
            let cost = RATES.free * class.weight * counts * libm::log((mean_us / 10.0).max(1.0));
            return (cost, mean_us);
        };
        let usual = self.histories[v].ratio(target.statistic, spec.jitter_sigma);
        let ratio = match (here, sample.stat_us, sample.mean_us) {
            (true, Some(stat), Some(mean)) if mean > 0.0 => stat / mean,
            _ => usual,
        };
        let used = mean_us * ratio / target.latency.as_micros_f64();
        let sigma = match here {
            true => RATES.sigma_here,
            false => self.sigma_there,
        };
        let missed = normal_cdf(libm::log(used.max(1e-6)) / sigma);
        let excess = excess(used);
        let cost = missed + RATES.excess * excess + RATES.faster * used.min(1.0);
        (class.weight * cost, mean_us)
    }

    /// Costs of all volumes on a device by epoch, with these on it and so much more to do.
    fn device_cost(&self, d: usize, volumes: &[usize], more: f64) -> Vec<f64> {
        (0..self.epochs)
            .map(|e| {
                let (rho, in_flight) = self.load(d, e, volumes);
                let load = (rho + more, in_flight);
                volumes.iter().map(|v| self.cost(*v, d, e, load).0).sum()
            })
            .collect()
    }

    /// Use of a device in an epoch with these volumes on it, and the requests that they would have in flight if it were full.
    fn load(&self, d: usize, e: usize, volumes: &[usize]) -> (f64, f64) {
        let busy = volumes.iter().filter(|v| self.usage(**v, d, e) > 0.0);
        let in_flight = busy.map(|v| self.histories[*v].depth()).sum();
        let rho = volumes.iter().map(|v| self.usage(*v, d, e)).sum();
        (rho, in_flight)
    }

    /// Bundles that are worth their price, most valuable first; each volume is in one at most.
    pub(super) fn bundles(&mut self, begun: &[Vec<Moved>]) -> Vec<Bundle> {
        let mut taken = vec![];
        // What was decided and has not begun yet goes on, if it still pays.
        for moves in begun {
            let free = |m: &Moved| !self.done[m.volume] && self.place[m.volume] != m.to.index();
            let left: Vec<Moved> = moves.iter().copied().filter(free).collect();
            if left.is_empty() || !self.room_for(&left) {
                continue;
            }
            if let Some(bundle) = self.judged(left, Gate::Decided) {
                self.take(&bundle);
                taken.push(bundle);
            }
        }
        while taken.len() < BUNDLES_MAX {
            let mut best: Option<Bundle> = None;
            for v in 0..self.place.len() {
                if self.done[v] {
                    continue;
                }
                let from = self.place[v];
                if mean(&self.now[from]) < COST_MIN {
                    continue;
                }
                for to in 0..self.on.len() {
                    if to == from {
                        continue;
                    }
                    for moves in self.ways(v, to) {
                        let better = best.as_ref().map_or(0.0, |b| b.gain - b.price);
                        if let Some(bundle) = self.judged(moves, Gate::Regret)
                            && bundle.gain - bundle.price > better
                        {
                            best = Some(bundle);
                        }
                    }
                }
            }
            let Some(bundle) = best else { break };
            self.take(&bundle);
            taken.push(bundle);
        }
        taken
    }

    fn take(&mut self, bundle: &Bundle) {
        let touched = self.touched(&bundle.moves);
        for m in &bundle.moves {
            let size = i128::from(self.facts().volumes[m.volume].size.0);
            let (from, to) = (self.place[m.volume], m.to.index());
            self.free[from] += size;
            self.free[to] -= size;
            self.place[m.volume] = to;
            self.done[m.volume] = true;
            self.on[from].retain(|v| *v != m.volume);
            let at = self.on[to].partition_point(|v| *v < m.volume);
            self.on[to].insert(at, m.volume);
        }
        for d in touched {
            self.now[d] = self.device_cost(d, &self.on[d], 0.0);
        }
    }

    /// The devices that moves leave and come to.
    fn touched(&self, moves: &[Moved]) -> Vec<usize> {
        let mut touched: Vec<usize> = moves
            .iter()
            .flat_map(|m| [self.place[m.volume], m.to.index()])
            .collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Whether all of them have room when all of them are made.
    fn room_for(&self, moves: &[Moved]) -> bool {
        let mut free = self.free.clone();
        for m in moves {
            let size = i128::from(self.facts().volumes[m.volume].size.0);
            free[self.place[m.volume]] += size;
            free[m.to.index()] -= size;
        }
        moves.iter().all(|m| free[m.to.index()] >= 0)
    }

    /// Ways to bring a volume to a device: by itself, or with one that makes room and goes wherever there is room for it.
    fn ways(&self, v: usize, to: usize) -> Vec<Vec<Moved>> {
        let facts = self.facts();
        if !self.may(v, to) {
            return vec![];
        }
        let size = |v: usize| i128::from(facts.volumes[v].size.0);
        let first = Moved {
            volume: v,
            to: DeviceId::from_index(to),
        };
        let mut ways = vec![];
        if self.free[to] >= size(v) {
            ways.push(vec![first]);
        }
        let from = self.place[v];
        let stays = |u: &usize| !self.done[*u];
        let mut others: Vec<usize> = self.on[to].iter().copied().filter(stays).collect();
        let weight = |u: &usize| facts.classes[facts.volumes[*u].class.index()].weight;
        others.sort_by(|a, b| weight(a).total_cmp(&weight(b)).then(a.cmp(b)));
        for u in others.into_iter().take(EVICTED_MAX) {
            if self.free[to] + size(u) < size(v) {
                continue;
            }
            for other in 0..self.free.len() {
                if other == to || !self.may(u, other) {
                    continue;
                }
                let left = self.free[other] + if other == from { size(v) } else { 0 };
                // One of the two has to find room before the other has left.
                let begins = self.free[to] >= size(v) || self.free[other] >= size(u);
                if left >= size(u) && begins {
                    let second = Moved {
                        volume: u,
                        to: DeviceId::from_index(other),
                    };
                    ways.push(vec![first, second]);
                }
            }
        }
        ways
    }

    /// Whether a volume may go to a device: rules, and rest after its last move.
    fn may(&self, v: usize, d: usize) -> bool {
        let Context { facts, policy, .. } = *self.context;
        if policy.takes_no_data(facts.topology.devices[d].tier) {
            return false;
        }
        let rest = policy.epochs.migration.0.saturating_mul(RATES.rest_epochs);
        match self.histories[v].sent_at() {
            Some(at) if facts.at.saturating_sub(at).0 < rest => self.changed_since(v, at.0),
            _ => true,
        }
    }

    /// Whether its load, or one that counts, has changed since.
    fn changed_since(&self, v: usize, at_ns: u64) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let monitor = policy.epochs.monitor.0.max(1);
        let ago = (facts.at.0 - at_ns) / monitor;
        let since = facts.epoch.saturating_sub(ago);
        let newest = |u: usize| self.samples[u].last().copied().flatten();
        let total: f64 = (0..self.place.len())
            .filter_map(newest)
            .map(|s| s.total())
            .sum();
        (0..self.place.len()).any(|u| {
            let counts = u == v || newest(u).is_some_and(|s| s.total() >= CAUSE_SHARE * total);
            counts && self.histories[u].changed().is_some_and(|c| c > since)
        })
    }

    /// What a bundle is worth; none if it is not worth its price, or staying has not cost as much yet.
    fn judged(&self, moves: Vec<Moved>, gate: Gate) -> Option<Bundle> {
        let Context { facts, policy, .. } = *self.context;
        let (on, now) = (&self.on, &self.now);
        let mut gains = vec![0.0; self.epochs];
        for d in &self.touched(&moves) {
            let stays = |v: &usize| moves.iter().all(|m| m.volume != *v);
            let mut volumes: Vec<usize> = on[*d].iter().copied().filter(stays).collect();
            volumes.extend(
                moves
                    .iter()
                    .filter(|m| m.to.index() == *d)
                    .map(|m| m.volume),
            );
            let after = self.device_cost(*d, &volumes, 0.0);
            for ((gain, before), after) in gains.iter_mut().zip(&now[*d]).zip(after) {
                *gain += before - after;
            }
        }
        let rate = mean(&gains);
        if rate <= 0.0 {
            return None;
        }
        let helped = gains.iter().filter(|g| **g > 0.25 * rate).count() as f64;
        if helped < RATES.epochs_helped * gains.len() as f64 {
            return None; // a burst
        }
        let monitor_s = policy.epochs.monitor.as_secs_f64();
        let migration_s = policy.epochs.migration.as_secs_f64();
        let steady = moves
            .iter()
            .map(|m| self.histories[m.volume].steady_epochs(facts.epoch))
            .min()
            .unwrap_or(u64::MAX);
        let lasting = (steady as f64 * monitor_s * RATES.lasting).max(migration_s);
        let gain = rate * lasting.min(RATES.horizon_epochs * migration_s);
        let (mut price, mut bytes_gib) = (0.0, 0.0);
        for m in &moves {
            let (from, to) = (self.place[m.volume], m.to.index());
            let size = facts.volumes[m.volume].size;
            let volume = units::VolumeId::from_index(m.volume);
            let bandwidth = copy_bandwidth(facts, policy, volume, m.to);
            let seconds = bandwidth.time_for(size).as_secs_f64();
            let read =
                bandwidth.as_f64() / facts.topology.devices[from].spec.read_bandwidth.as_f64();
            let written =
                bandwidth.as_f64() / facts.topology.devices[to].spec.write_bandwidth.as_f64();
            let suffer =
                |d: usize, more: f64| mean(&self.device_cost(d, &on[d], more)) - mean(&now[d]);
            let suffered = suffer(from, read) + suffer(to, written);
            price += seconds * suffered.max(0.0);
            bytes_gib += size.as_f64() / (1u64 << 30) as f64;
        }
        price += bytes_gib * RATES.gib;
        // What was realised: only epochs that are known to have been so, and that no move was made for before.
        let known = moves
            .iter()
            .map(|m| self.regretted(m.volume))
            .min()
            .unwrap_or(0);
        let realised = gains.iter().rev().take(known).sum::<f64>() * monitor_s;
        let regretted = gate == Gate::Decided || realised >= RATES.regret * price;
        if gain <= price || !regretted {
            return None;
        }
        let first = &moves[0];
        let after: Vec<usize> = on[first.to.index()]
            .iter()
            .copied()
            .chain([first.volume])
            .collect();
        let e = self.epochs - 1;
        let from = self.place[first.volume];
        let own_before = self
            .cost(first.volume, from, e, self.load(from, e, &on[from]))
            .0;
        let to = first.to.index();
        let own_after = self.cost(first.volume, to, e, self.load(to, e, &after)).0;
        Some(Bundle {
            relieves: own_after >= own_before && moves.len() == 1,
            moves,
            gain,
            price,
            regret: realised,
            bytes_gib,
        })
    }

    /// Epochs of a volume's history that may be regretted: since its load changed, or it was last moved.
    fn regretted(&self, v: usize) -> usize {
        let Context { facts, policy, .. } = *self.context;
        let own = self.histories[v].samples.len();
        let since = match self.histories[v].sent_at() {
            Some(at) => {
                let epochs = facts.at.saturating_sub(at).0 / policy.epochs.monitor.0.max(1);
                usize::try_from(epochs).unwrap_or(usize::MAX)
            }
            None => usize::MAX,
        };
        own.min(since)
    }

    /// A volume on the best device of a tier, everything else as it is in this plan.
    pub(super) fn predicted(&self, v: usize, tier: TierId) -> Option<Predicted> {
        let facts = self.facts();
        facts.volumes[v].measured?;
        let e = self.epochs.checked_sub(1)?;
        let of = |d: &DeviceId| {
            let d = d.index();
            let mut volumes = self.on[d].clone();
            if self.place[v] != d {
                volumes.push(v);
            }
            let (cost, mean_us) = self.cost(v, d, e, self.load(d, e, &volumes));
            Predicted { mean_us, cost }
        };
        let devices = &facts.topology.tier(tier).devices;
        let all = devices.iter().map(of);
        all.min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// Mean latency of a volume where this plan has it.
    pub(super) fn after(&self, v: usize, to: DeviceId) -> Option<f64> {
        let e = self.epochs.checked_sub(1)?;
        let d = to.index();
        let mean_us = self.cost(v, d, e, self.load(d, e, &self.on[d])).1;
        (mean_us > 0.0).then_some(mean_us)
    }

    /// Share of a device's time that a volume takes.
    pub(super) fn use_of(&self, v: usize, d: DeviceId) -> f64 {
        self.usage(v, d.index(), self.epochs - 1)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
