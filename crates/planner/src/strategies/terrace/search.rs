//! What every placement would have missed in the epochs of the history, and the bundles of moves that are worth their price.
//!
//! ```text
//!  gain  = (missed per second here − there) × (how long the load is taken to stay − until the copies are done)
//!  price = what the copies take from guests + their bytes
//!  made if gain > price, staying has cost as much as the price, and no burst is all there is;
//!  of those, the one with the most gain − price per second of copying first
//! ```

use model::Facts;
use units::{DeviceId, TierId, VolumeId};

use super::history::{EPOCHS, History};
use super::latency::{Busy, FULL, Latency, Load, Use};
use super::learned::Learned;
use super::patterns::Patterns;
use super::rates::RATES;
use crate::Context;
use crate::rate::copy_bandwidth;

/// Bundles of one plan.
const BUNDLES_MAX: usize = 12;
/// Volumes of a device that are tried to make room with.
const EVICTED_MAX: usize = 12;
/// Moves that are looked at closely for one bundle, of those that promise most; and of those, ones that room is made for.
const LOOKED_AT_MAX: usize = 64;
const PAIRS_MAX: usize = 12;
/// Volumes that leave a full device together, and the use that it, and those that take them, are brought to.
const WAY_OUT_MAX: usize = 6;
const UNLOADED: f64 = 0.8;
/// Devices that one who makes room is tried on.
const ELSEWHERE_MAX: usize = 2;
/// A cost of a device's volumes below which nothing is looked for, and harm to others below which nobody has to go for it.
const COST_MIN: f64 = 0.02;
/// How far what is measured of a volume may be from the model where it is: a factor.
const HERE_MAX: f64 = 5.0;

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
    /// When its first copy can begin, and when all are done: seconds from now.
    pub begins_s: f64,
    pub ends_s: f64,
    /// Of each move: seconds at the planned rate, and whether somebody on its devices misses an objective.
    pub copies: Vec<(f64, bool)>,
    /// Of each move: mean latency that is expected after it, microseconds.
    pub after_us: Vec<Option<f64>>,
    /// The first leaves for the sake of others.
    pub relieves: bool,
}

impl Bundle {
    fn worth(&self) -> f64 {
        (self.gain - self.price) / (self.ends_s - self.begins_s + RATES.copy_s)
    }
}

/// When a move of a bundle is made.
#[derive(Debug, Clone, Copy, Default)]
struct Timed {
    /// Seconds that it takes at the planned rate.
    planned_s: f64,
    /// Whether somebody on its devices misses an objective: then it goes slower.
    strained: bool,
    /// Seconds from now.
    begins_s: f64,
    ends_s: f64,
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

/// A volume in the epochs of one pattern.
#[derive(Debug, Clone, Copy, Default)]
struct Typical {
    /// What it asks for.
    load: Load,
    /// Mean and the objective's statistic where it is, microseconds; none where nothing was measured without a copy beside it.
    here: Option<(f64, f64)>,
    /// Measured over modelled where it is, of both.
    differs_here: Option<(f64, f64)>,
    /// Whether its device is full there.
    full_here: bool,
}

/// The search for one plan.
pub(super) struct Search<'a> {
    context: &'a Context<'a>,
    histories: &'a [&'a History],
    pub(super) learned: &'a Learned,
    /// Measured over modelled latency, by device.
    pub(super) slower: Vec<f64>,
    /// Spread of predictions elsewhere.
    pub(super) sigma_there: f64,
    /// Epochs of the history.
    patterns: Patterns,
    /// By volume and pattern.
    typical: Vec<Typical>,
    /// What a volume takes of a device, by volume, device, pattern.
    uses: Vec<Use>,
    /// Where every volume is by now, in this plan.
    place: Vec<usize>,
    /// The volumes of each device, rising, and what they cost there, by pattern: kept as `place` changes.
    pub(super) on: Vec<Vec<usize>>,
    now: Vec<Vec<f64>>,
    /// Those of them that are taken to miss an objective there.
    missing: Vec<Vec<usize>>,
    /// Free space by device, in this plan.
    free: Vec<i128>,
    /// Seconds until a device has no copy to make any more.
    copying_s: Vec<f64>,
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
        let devices = facts.topology.devices.len();
        let last = facts.epoch;
        let first = (last + 1).saturating_sub(EPOCHS as u64);
        // What came before a change is taken to have been as after it: only what goes on is asked for.
        let sample = |h: &'a History, e: u64| {
            let own = h.samples.iter().find(|s| s.epoch == e);
            own.or(h.samples.first())
        };
        let loads: Vec<Vec<f64>> = (first..=last)
            .map(|e| {
                let asked = |h: &&'a History| sample(h, e).map_or(0.0, |s| h.hidden(s) * s.total());
                histories.iter().map(asked).collect()
            })
            .collect();
        let patterns = Patterns::of(&loads);
        let mut typical = Vec::with_capacity(histories.len() * patterns.len());
        for h in histories {
            for p in 0..patterns.len() {
                let of_pattern = || {
                    let all = (first..=last).zip(&patterns.of);
                    all.filter(|(_, of)| **of == p)
                        .filter_map(|(e, _)| sample(h, e))
                };
                typical.push(Typical::of(h, of_pattern));
            }
        }
        let mut place: Vec<usize> = facts.volumes.iter().map(|v| v.device.index()).collect();
        let mut copying_s = vec![0.0; devices];
        let mut moving = vec![false; place.len()];
        for m in facts.moves.iter().filter(|m| m.extents.is_none()) {
            let v = m.volume.index();
            moving[v] = true;
            place[v] = m.to.index(); // where it will be
            let planned = || {
                let rate = copy_bandwidth(facts, context.policy, m.volume, m.to);
                rate.time_for(facts.volumes[v].size).as_secs_f64()
            };
            let left = learned.left_s(&facts.volumes[v].name, facts.at);
            let left = left.unwrap_or_else(planned);
            for d in [m.from, m.to] {
                copying_s[d.index()] = f64::max(copying_s[d.index()], left);
            }
        }
        let factors: Vec<f64> = (0..devices).map(|d| learned.usage(facts, d)).collect();
        let mut uses = Vec::with_capacity(place.len() * devices * patterns.len());
        for (v, history) in histories.iter().enumerate() {
            let own = &typical[v * patterns.len()..][..patterns.len()];
            for (device, factor) in facts.topology.devices.iter().zip(&factors) {
                uses.extend(
                    own.iter()
                        .map(|t| Use::of(&device.spec, &t.load, history.depth(), *factor)),
                );
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
                let free = capacity as i128 - i128::from(now.used.0) - i128::from(now.reserved.0);
                // What is fuller than it should be stays so: volumes may change places there.
                free.max(0)
            })
            .collect();
        let done = (0..place.len())
            .map(|v| facts.volumes[v].measured.is_none() || moving[v])
            .collect();
        let mut search = Self {
            context,
            histories,
            learned,
            slower: (0..devices).map(|d| learned.latency(facts, d)).collect(),
            sigma_there: learned.sigma(),
            patterns,
            typical,
            uses,
            place,
            on,
            now: vec![vec![]; devices],
            missing: vec![vec![]; devices],
            free,
            copying_s,
            done,
        };
        search.look_here();
        (0..devices).for_each(|d| search.look_at(d));
        search
    }

    /// How volumes differ from what the model says of them where they are now.
    fn look_here(&mut self) {
        let facts = self.facts();
        let mut here = vec![vec![]; self.on.len()];
        for (v, volume) in facts.volumes.iter().enumerate() {
            here[volume.device.index()].push(v);
        }
        for (d, volumes) in here.iter().enumerate() {
            for p in 0..self.patterns.len() {
                let busy = self.busy(d, p, volumes, 0.0);
                for v in volumes {
                    let t = &self.typical[v * self.patterns.len() + p];
                    let model = Latency::of(&facts.topology.devices[d].spec, &t.load, &busy);
                    let statistic = self.statistic(*v);
                    let differs = t.here.filter(|_| model.mean_us > 0.0).map(|(mean, stat)| {
                        let modelled = model.mean_us * self.slower[d];
                        let limit = |x: f64| x.clamp(1.0 / HERE_MAX, HERE_MAX);
                        let of_mean = limit(mean / modelled);
                        (
                            of_mean,
                            limit(stat / (modelled * of_mean * model.ratio(statistic))),
                        )
                    });
                    let t = &mut self.typical[v * self.patterns.len() + p];
                    t.differs_here = differs;
                    t.full_here = busy.full();
                }
            }
        }
    }

    /// Keeps what the volumes of a device cost there, as they are by now in this plan.
    fn look_at(&mut self, d: usize) {
        self.now[d] = self.device_cost(d, &self.on[d], 0.0);
        let p = self.newest();
        let busy = self.busy(d, p, &self.on[d], 0.0);
        let missing = |v: &usize| {
            let class = &self.facts().classes[self.facts().volumes[*v].class.index()];
            class.target.is_some() && self.cost(*v, d, p, &busy).0 > 0.5 * class.weight
        };
        self.missing[d] = self.on[d].iter().copied().filter(missing).collect();
    }

    /// The pattern of the newest epoch.
    pub(super) fn newest(&self) -> usize {
        self.patterns.of.last().copied().unwrap_or(0)
    }

    pub(super) fn facts(&self) -> &'a Facts {
        self.context.facts
    }

    fn statistic(&self, v: usize) -> model::SloStatistic {
        let class = &self.facts().classes[self.facts().volumes[v].class.index()];
        class
            .target
            .map_or(model::SloStatistic::Mean, |t| t.statistic)
    }

    pub(super) fn use_at(&self, v: usize, d: usize, p: usize) -> Use {
        self.uses[(v * self.on.len() + d) * self.patterns.len() + p]
    }

    /// How busy a device is in a pattern with these volumes on it, and so much more to do.
    fn busy(&self, d: usize, p: usize, volumes: &[usize], more: f64) -> Busy {
        Busy::of(volumes.iter().map(|v| self.use_at(*v, d, p)), more)
    }

    /// What a volume would miss on a device that is so busy, per second, and its mean latency.
    pub(super) fn cost(&self, v: usize, d: usize, p: usize, busy: &Busy) -> (f64, f64) {
        let facts = self.facts();
        let t = &self.typical[v * self.patterns.len() + p];
        let total = t.load.total();
        if total <= 0.0 {
            return (0.0, 0.0);
        }
        let volume = &facts.volumes[v];
        let class = &facts.classes[volume.class.index()];
        let model = Latency::of(&facts.topology.devices[d].spec, &t.load, busy);
        // What is measured where it is says how it differs there, as long as it is the same kind of there: waiting or not.
        let same = volume.device.index() == d && t.full_here == busy.full();
        let (of_mean, of_stat, sigma) = match t.differs_here.filter(|_| same) {
            Some((mean, stat)) => (mean, stat, RATES.sigma_here),
            None if busy.full() => (1.0, 1.0, self.sigma_there),
            None => {
                let (mean, stat) = self.histories[v].differs();
                (libm::sqrt(mean), libm::sqrt(stat), self.sigma_there)
            }
        };
        let mean_us = model.mean_us * self.slower[d] * of_mean;
        let statistic = class
            .target
            .map_or(0.0, |t| mean_us * model.ratio(t.statistic) * of_stat);
        (RATES.cost(class, mean_us, statistic, sigma, total), mean_us)
    }

    /// Costs of all volumes on a device by pattern, with these on it and so much more to do.
    fn device_cost(&self, d: usize, volumes: &[usize], more: f64) -> Vec<f64> {
        (0..self.patterns.len())
            .map(|p| {
                let busy = self.busy(d, p, volumes, more);
                volumes.iter().map(|v| self.cost(*v, d, p, &busy).0).sum()
            })
            .collect()
    }

    /// Bundles that are worth their price, in the order in which they are to be made; each volume is in one at most.
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
            let Some(bundle) = self.best() else { break };
            self.take(&bundle);
            taken.push(bundle);
        }
        // What cannot begin before the next plan is that one's to decide.
        let epoch_s = self.context.policy.epochs.migration.as_secs_f64();
        taken.retain(|b| b.begins_s < epoch_s);
        taken
    }

    /// The bundle that is worth most per second of copying, of those that promise most at first sight.
    fn best(&self) -> Option<Bundle> {
        let mut promising: Vec<(f64, Moved)> = vec![];
        for from in 0..self.on.len() {
            if self.patterns.mean(&self.now[from]) < COST_MIN {
                continue;
            }
            for v in self.on[from].iter().copied().filter(|v| !self.done[*v]) {
                let without: Vec<usize> =
                    self.on[from].iter().copied().filter(|u| *u != v).collect();
                let left = self.patterns.mean(&self.device_cost(from, &without, 0.0));
                let most = self.patterns.mean(&self.now[from]) - left;
                if most < COST_MIN {
                    continue;
                }
                for to in (0..self.on.len()).filter(|to| *to != from && self.may(v, *to)) {
                    let promise = most - self.own_cost(v, to);
                    if promise > COST_MIN {
                        let to = DeviceId::from_index(to);
                        let seconds = self.planned_s(v, to) + RATES.copy_s;
                        promising.push((promise / seconds, Moved { volume: v, to }));
                    }
                }
            }
        }
        promising.sort_by(|a, b| {
            let of = |m: &Moved| (m.volume, m.to);
            b.0.total_cmp(&a.0).then_with(|| of(&a.1).cmp(&of(&b.1)))
        });
        let mut best: Option<Bundle> = None;
        for d in 0..self.on.len() {
            // One of them by itself would change little: each prefix of a way out is looked at as a whole.
            let out = self.way_out(d);
            for n in 2..=out.len() {
                if let Some(b) = self.judged(out[..n].to_vec(), Gate::Regret)
                    && best.as_ref().is_none_or(|a| b.worth() > a.worth())
                {
                    best = Some(b);
                }
            }
        }
        let mut pairs = 0;
        for (_, first) in promising.into_iter().take(LOOKED_AT_MAX) {
            let mut offer = |moves: Vec<Moved>| {
                if let Some(b) = self.judged(moves, Gate::Regret)
                    && best.as_ref().is_none_or(|a| b.worth() > a.worth())
                {
                    best = Some(b);
                }
            };
            let (v, to) = (first.volume, first.to.index());
            if self.free[to] >= self.size(v) {
                offer(vec![first]);
                if !self.crowded(v, to) {
                    continue;
                }
            }
            if pairs < PAIRS_MAX {
                pairs += 1;
                for second in self.makes_room(first) {
                    offer(vec![first, second]);
                }
            }
        }
        best
    }

    /// Moves that bring a device which is asked for more than it can do back below its caps: of those that take most of it for their bytes, to where
    /// they do least harm; where there is no room they change places with one that takes little.
    fn way_out(&self, d: usize) -> Vec<Moved> {
        let p = self.newest();
        let share = |v: usize, d: usize| self.use_at(v, d, p).share;
        let mut used: Vec<f64> = (0..self.on.len())
            .map(|d| self.on[d].iter().map(|v| share(*v, d)).sum())
            .collect();
        let mut way = vec![];
        if used[d] < FULL {
            return way;
        }
        let mut free = self.free.clone();
        let mut hot: Vec<usize> = self.on[d]
            .iter()
            .copied()
            .filter(|v| !self.done[*v])
            .collect();
        let per_byte = |v: &usize| share(*v, d) / self.size(*v).max(1) as f64;
        hot.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)).then(a.cmp(b)));
        let mut cold_taken = vec![];
        for u in hot.into_iter().take(WAY_OUT_MAX) {
            if used[d] < UNLOADED {
                break;
            }
            let mut best: Option<(f64, usize, Option<usize>)> = None;
            for to in (0..self.on.len()).filter(|to| *to != d && self.may(u, *to)) {
                if used[to] + share(u, to) > UNLOADED {
                    continue;
                }
                let room = free[to] >= self.size(u);
                let takes_its_place = |w: &&usize| {
                    !self.done[**w]
                        && !cold_taken.contains(*w)
                        && share(**w, d) < 0.3 * share(u, d)
                        && free[to] + self.size(**w) >= self.size(u)
                        && free[d] + self.size(u) >= self.size(**w)
                        && self.may(**w, d)
                };
                let weight = |w: &usize| {
                    let facts = self.facts();
                    facts.classes[facts.volumes[*w].class.index()].weight
                };
                let by = |a: &&usize, b: &&usize| {
                    weight(a)
                        .total_cmp(&weight(b))
                        .then_with(|| share(**a, d).total_cmp(&share(**b, d)))
                        .then(a.cmp(b))
                };
                let cold = match room {
                    true => None,
                    false => self.on[to]
                        .iter()
                        .filter(takes_its_place)
                        .min_by(by)
                        .copied(),
                };
                if !room && cold.is_none() {
                    continue;
                }
                let harm = self.own_cost(u, to) + cold.map_or(0.0, |w| weight(&w));
                if best.is_none_or(|(least, ..)| harm < least) {
                    best = Some((harm, to, cold));
                }
            }
            let Some((_, to, cold)) = best else { continue };
            let mut step = |v: usize, from: usize, to: usize| {
                free[from] += self.size(v);
                free[to] -= self.size(v);
                used[from] -= share(v, from);
                used[to] += share(v, to);
                let to = DeviceId::from_index(to);
                way.push(Moved { volume: v, to });
            };
            step(u, d, to);
            if let Some(w) = cold {
                step(w, to, d);
                cold_taken.push(w);
            }
        }
        way
    }

    /// What a volume would cost by itself on a device beside those that are there.
    fn own_cost(&self, v: usize, d: usize) -> f64 {
        let of = |p: usize| {
            let with = self.on[d].iter().copied().chain([v]);
            let busy = Busy::of(with.map(|u| self.use_at(u, d, p)), 0.0);
            self.cost(v, d, p, &busy).0
        };
        let costs: Vec<f64> = (0..self.patterns.len()).map(of).collect();
        self.patterns.mean(&costs)
    }

    /// Seconds that a copy takes at the planned rate.
    fn planned_s(&self, v: usize, to: DeviceId) -> f64 {
        let Context { facts, policy, .. } = *self.context;
        let rate = copy_bandwidth(facts, policy, VolumeId::from_index(v), to);
        rate.time_for(facts.volumes[v].size).as_secs_f64()
    }

    fn size(&self, v: usize) -> i128 {
        i128::from(self.facts().volumes[v].size.0)
    }

    /// Whether those on a device, or the volume itself, would miss something if it came.
    fn crowded(&self, v: usize, to: usize) -> bool {
        let mut with = self.on[to].clone();
        with.push(v);
        let after = self.patterns.mean(&self.device_cost(to, &with, 0.0));
        after - self.patterns.mean(&self.now[to]) > COST_MIN
    }

    fn take(&mut self, bundle: &Bundle) {
        let touched = self.touched(&bundle.moves);
        let (_, ends) = self.timed(&bundle.moves);
        self.copying_s = ends;
        for m in &bundle.moves {
            let size = self.size(m.volume);
            let (from, to) = (self.place[m.volume], m.to.index());
            self.free[from] += size;
            self.free[to] -= size;
            self.place[m.volume] = to;
            self.done[m.volume] = true;
            self.on[from].retain(|v| *v != m.volume);
            let at = self.on[to].partition_point(|v| *v < m.volume);
            self.on[to].insert(at, m.volume);
        }
        touched.into_iter().for_each(|d| self.look_at(d));
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
            free[self.place[m.volume]] += self.size(m.volume);
            free[m.to.index()] -= self.size(m.volume);
        }
        moves.iter().all(|m| free[m.to.index()] >= 0)
    }

    /// Moves that make room for one: of volumes of little weight on its target, wherever there is room for them.
    fn makes_room(&self, first: Moved) -> Vec<Moved> {
        let facts = self.facts();
        let (v, to) = (first.volume, first.to.index());
        let (from, size) = (self.place[v], self.size(v));
        let stays = |u: &usize| !self.done[*u] && self.free[to] + self.size(*u) >= size;
        let mut others: Vec<usize> = self.on[to].iter().copied().filter(stays).collect();
        let weight = |u: &usize| facts.classes[facts.volumes[*u].class.index()].weight;
        others.sort_by(|a, b| {
            let by_size = || self.size(*a).cmp(&self.size(*b));
            weight(a)
                .total_cmp(&weight(b))
                .then_with(by_size)
                .then(a.cmp(b))
        });
        let mut found = vec![];
        for u in others.into_iter().take(EVICTED_MAX) {
            let mut elsewhere: Vec<(f64, usize)> = (0..self.free.len())
                .filter(|d| *d != to && self.may(u, *d))
                .filter(|other| {
                    let left = self.free[*other] + if *other == from { size } else { 0 };
                    // One of the two has to find room before the other has left.
                    let begins = self.free[to] >= size || self.free[*other] >= self.size(u);
                    left >= self.size(u) && begins
                })
                .map(|other| (self.own_cost(u, other), other))
                .collect();
            elsewhere.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let there = elsewhere.into_iter().take(ELSEWHERE_MAX);
            found.extend(there.map(|(_, other)| Moved {
                volume: u,
                to: DeviceId::from_index(other),
            }));
        }
        found
    }

    /// Whether a volume may go to a device: rules, and rest after its last move.
    fn may(&self, v: usize, d: usize) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let device = &facts.topology.devices[d];
        if policy.takes_no_data(device.tier) {
            return false;
        }
        let rest = policy.epochs.migration.0.saturating_mul(RATES.rest_epochs);
        match self.histories[v].sent() {
            Some((at, from)) if facts.at.saturating_sub(at).0 < rest => {
                device.name != from && self.changed_since(v, at.0)
            }
            _ => true,
        }
    }

    /// Whether its load has changed since.
    fn changed_since(&self, v: usize, at_ns: u64) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let monitor = policy.epochs.monitor.0.max(1);
        let ago = (facts.at.0 - at_ns) / monitor;
        let since = facts.epoch.saturating_sub(ago);
        self.histories[v].changed().is_some_and(|c| c > since)
    }

    /// When each move is made; and until when devices copy if all are made. What
    /// makes room goes first where there is none; a device makes one copy at a time.
    fn timed(&self, moves: &[Moved]) -> (Vec<Timed>, Vec<f64>) {
        let mut until = self.copying_s.clone();
        let mut timed = vec![Timed::default(); moves.len()];
        let fits = self.free[moves[0].to.index()] >= self.size(moves[0].volume);
        let order: Vec<usize> = match fits {
            true => (0..moves.len()).collect(),
            false => (0..moves.len()).rev().collect(),
        };
        for i in order {
            let m = &moves[i];
            let (from, to) = (self.place[m.volume], m.to.index());
            let planned_s = self.planned_s(m.volume, m.to);
            let strained = self.strained(from, m.volume) || self.strained(to, m.volume);
            let begins = until[from].max(until[to]);
            let ends = begins + planned_s / self.learned.speed(strained);
            (until[from], until[to]) = (ends, ends);
            timed[i] = Timed {
                planned_s,
                strained,
                begins_s: begins,
                ends_s: ends,
            };
        }
        (timed, until)
    }

    /// Whether somebody but the volume itself is taken to miss an objective on a device.
    fn strained(&self, d: usize, but: usize) -> bool {
        self.missing[d].iter().any(|v| *v != but)
    }

    /// What a bundle is worth; none if it is not worth its price, or staying has not cost as much yet.
    fn judged(&self, moves: Vec<Moved>, gate: Gate) -> Option<Bundle> {
        let Context { facts, policy, .. } = *self.context;
        let (on, now) = (&self.on, &self.now);
        let mut gains = vec![0.0; self.patterns.len()];
        for d in &self.touched(&moves) {
            let stays = |v: &usize| moves.iter().all(|m| m.volume != *v);
            let mut volumes: Vec<usize> = on[*d].iter().copied().filter(stays).collect();
            let comes = moves.iter().filter(|m| m.to.index() == *d);
            volumes.extend(comes.map(|m| m.volume));
            let after = self.device_cost(*d, &volumes, 0.0);
            for ((gain, before), after) in gains.iter_mut().zip(&now[*d]).zip(after) {
                *gain += before - after;
            }
        }
        let rate = self.patterns.mean(&gains);
        if rate <= 0.0 {
            return None;
        }
        let shares = self.patterns.share.iter().zip(&gains);
        let helped: f64 = shares
            .filter(|(_, g)| **g > 0.25 * rate)
            .map(|(s, _)| s)
            .sum();
        if helped < RATES.epochs_helped {
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
        let (timed, _) = self.timed(&moves);
        let begins_s = timed.iter().map(|t| t.begins_s).fold(f64::MAX, f64::min);
        let ends_s = timed.iter().map(|t| t.ends_s).fold(0.0, f64::max);
        let gain = rate * (lasting.min(RATES.horizon_epochs * migration_s) - ends_s);
        if gain <= 0.0 {
            return None;
        }
        let mut price = 0.0;
        for (m, t) in moves.iter().zip(&timed) {
            let (from, to) = (self.place[m.volume], m.to.index());
            let bytes = facts.volumes[m.volume].size.as_f64();
            let seconds = t.ends_s - t.begins_s;
            let rate = bytes / seconds.max(1e-3);
            let read = rate / facts.topology.devices[from].spec.read_bandwidth.as_f64();
            let written = rate / facts.topology.devices[to].spec.write_bandwidth.as_f64();
            let suffer = |d: usize, more: f64| {
                self.patterns.mean(&self.device_cost(d, &on[d], more)) - self.patterns.mean(&now[d])
            };
            let suffered = suffer(from, read) + suffer(to, written);
            price += seconds * suffered.max(0.0);
            price += bytes / (1u64 << 30) as f64 * RATES.gib;
        }
        // What was realised: only epochs that are known to have been so, and that no move was made for before.
        let known = moves
            .iter()
            .map(|m| self.regretted(m.volume))
            .min()
            .unwrap_or(0);
        let newest = self.patterns.of.iter().rev().take(known);
        let realised = newest.map(|p| gains[*p]).sum::<f64>() * monitor_s;
        let regretted = gate == Gate::Decided || realised >= RATES.regret * price;
        if gain <= price || !regretted {
            return None;
        }
        let first = &moves[0];
        let to = first.to.index();
        let p = self.newest();
        let from = self.place[first.volume];
        let mut there = on[to].clone();
        there.push(first.volume);
        let own_before = self
            .cost(first.volume, from, p, &self.busy(from, p, &on[from], 0.0))
            .0;
        let own_after = self
            .cost(first.volume, to, p, &self.busy(to, p, &there, 0.0))
            .0;
        let after_us = moves
            .iter()
            .map(|m| {
                let d = m.to.index();
                let stays = |v: &usize| moves.iter().all(|m| m.volume != *v);
                let mut volumes: Vec<usize> = on[d].iter().copied().filter(stays).collect();
                let comes = moves.iter().filter(|m| m.to.index() == d);
                volumes.extend(comes.map(|m| m.volume));
                let us = self.cost(m.volume, d, p, &self.busy(d, p, &volumes, 0.0)).1;
                (us > 0.0).then_some(us)
            })
            .collect();
        Some(Bundle {
            relieves: own_after >= own_before && moves.len() == 1,
            gain,
            price,
            regret: realised,
            begins_s,
            ends_s,
            copies: timed.iter().map(|t| (t.planned_s, t.strained)).collect(),
            after_us,
            moves,
        })
    }

    /// Epochs of a volume's history that may be regretted: since its load changed, or it was last moved.
    fn regretted(&self, v: usize) -> usize {
        let Context { facts, policy, .. } = *self.context;
        let own = self.histories[v].samples.len();
        let since = match self.histories[v].sent() {
            Some((at, _)) => {
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
        let p = self.newest();
        let of = |d: &DeviceId| {
            let d = d.index();
            let mut volumes = self.on[d].clone();
            if self.place[v] != d {
                volumes.push(v);
            }
            let (cost, mean_us) = self.cost(v, d, p, &self.busy(d, p, &volumes, 0.0));
            Predicted { mean_us, cost }
        };
        let devices = &facts.topology.tier(tier).devices;
        let all = devices.iter().map(of);
        all.min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// Share of a device's time that a volume takes.
    pub(super) fn use_of(&self, v: usize, d: DeviceId) -> f64 {
        let p = self.newest();
        self.use_at(v, d.index(), p).share
    }
}

impl Typical {
    /// Of a volume's samples in a pattern.
    fn of<'s, I>(history: &History, samples: impl Fn() -> I) -> Self
    where
        I: Iterator<Item = &'s super::history::Sample>,
    {
        let mut typical = Self::default();
        let (mut n, mut bytes) = (0.0, [0.0; 2]);
        for s in samples() {
            n += 1.0;
            let hidden = history.hidden(s);
            for (d, of_direction) in bytes.iter_mut().enumerate() {
                let asked = hidden * s.iops[d];
                typical.load.iops[d] += asked;
                *of_direction += asked * s.bytes[d];
            }
        }
        if n == 0.0 {
            return typical;
        }
        for (d, bytes) in bytes.into_iter().enumerate() {
            let asked = typical.load.iops[d];
            typical.load.bytes[d] = if asked > 0.0 { bytes / asked } else { 4096.0 };
            typical.load.iops[d] = asked / n;
        }
        let (mut mean, mut stat, mut known) = (0.0, 0.0, 0.0);
        for s in samples().filter(|s| !s.disturbed) {
            if let (Some(m), Some(of)) = (s.mean_us, s.stat_us) {
                (mean, stat, known) = (mean + m, stat + of, known + 1.0);
            }
        }
        typical.here = (known > 0.0).then(|| (mean / known, stat / known));
        typical
    }
}
