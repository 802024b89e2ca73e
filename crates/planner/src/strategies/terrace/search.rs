//! What every placement would have missed in the epochs of the history, and the bundles of moves that are worth their price.
//!
//! ```text
//!  gain  = (missed per second here − there, surges by their chance) × (the horizon − until the copies are done)
//!  price = what the copies take from guests + their bytes
//!  made if gain > price, and either staying has cost as much as the price, and no burst is all there is, or what surges would
//!  cost is more than the price, and there is that much left for moves in advance;
//!  of those, the one with the most gain − price per second of copying first
//! ```

use units::{DeviceId, TierId, VolumeId};

use super::TerraceConfig;
use super::crowd::{Costs, Crowd};
use super::forecast::Forecast;
use super::history::History;
use super::learned::Learned;
use super::rates::Rates;
use super::seen::Seen;
use crate::Context;
use crate::ledger::plannable;
use crate::rate::copy_bandwidth;

/// Bundles of one plan.
const BUNDLES_MAX: usize = 12;

/// One move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moved {
    pub volume: usize,
    pub to: DeviceId,
}

/// When a move of a bundle is made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timed {
    /// Seconds that it takes at the planned rate.
    pub planned_s: f64,
    /// Whether somebody on its devices misses an objective: then it goes slower.
    pub strained: bool,
    /// Seconds from now.
    begins_s: f64,
    ends_s: f64,
}

impl Timed {
    /// When the first begins and the last ends, seconds from now.
    fn first(timed: &[Self]) -> f64 {
        timed.iter().map(|t| t.begins_s).fold(f64::MAX, f64::min)
    }

    fn last(timed: &[Self]) -> f64 {
        timed.iter().map(|t| t.ends_s).fold(0.0, f64::max)
    }
}

/// Moves that only make sense together, the first is what they are for; and what they are worth.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub moves: Vec<Moved>,
    /// Of each.
    pub timed: Vec<Timed>,
    /// Forecast benefit over the horizon, weighted seconds.
    pub gain: f64,
    /// What copies take from guests, and their bytes.
    pub price: f64,
    /// What staying has cost.
    pub regret: f64,
    /// Whether it is made in advance of what it is for.
    pub ahead: bool,
}

impl Offer {
    /// Per second of copying.
    pub(super) fn worth(&self, rates: &Rates) -> f64 {
        let seconds = Timed::last(&self.timed) - Timed::first(&self.timed);
        (self.gain - self.price) / (seconds + rates.copy_s)
    }
}

/// An offer that is part of the plan.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub offer: Offer,
    /// Of each move: mean latency that is expected after it, microseconds.
    pub after_us: Vec<Option<f64>>,
    /// The first leaves for the sake of others.
    pub relieves: bool,
}

/// What a bundle has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Staying has to have cost as much as the move would.
    Regret,
    /// It has been decided before.
    Decided,
}

/// The search for one plan.
pub(super) struct Search<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) histories: &'a [&'a History],
    learned: &'a Learned,
    pub(super) config: &'a TerraceConfig,
    pub(super) forecast: Forecast<'a>,
    /// Where every volume is by now, in this plan.
    pub(super) place: Vec<usize>,
    /// The volumes of each device: kept as `place` changes.
    pub(super) on: Vec<Crowd>,
    /// Those of them that are taken to miss an objective there.
    missing: Vec<Vec<usize>>,
    /// Free space by device, in this plan.
    pub(super) free: Vec<i128>,
    /// Seconds until a device has no copy to make any more.
    copying_s: Vec<f64>,
    /// Volumes that take no further part.
    pub(super) done: Vec<bool>,
    /// What is left for moves in advance, weighted seconds.
    pub(super) ahead_left: f64,
    /// What was computed for this plan so far, as long as the devices that it is of are not touched.
    pub(super) seen: Seen,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        histories: &'a [&'a History],
        learned: &'a Learned,
        config: &'a TerraceConfig,
        ahead_left: f64,
    ) -> Self {
        let Context { facts, policy, .. } = *context;
        let devices = facts.topology.devices.len();
        let mut place: Vec<usize> = facts.volumes.iter().map(|v| v.device.index()).collect();
        let mut done: Vec<bool> = facts.volumes.iter().map(|v| v.measured.is_none()).collect();
        let moving = facts.moves.iter().filter(|m| m.extents.is_none());
        for m in moving.clone() {
            place[m.volume.index()] = m.to.index(); // where it will be
            done[m.volume.index()] = true;
        }
        let mut on = vec![vec![]; devices];
        for (v, d) in place.iter().enumerate() {
            on[*d].push(v);
        }
        // What is fuller than it should be stays so: volumes may change places there.
        let free = |d: usize| plannable(facts, policy, DeviceId::from_index(d)).max(0);
        let mut search = Self {
            context,
            histories,
            learned,
            config,
            forecast: Forecast::new(facts, histories, learned, config),
            place,
            on: vec![],
            ahead_left,
            missing: vec![vec![]; devices],
            free: (0..devices).map(free).collect(),
            copying_s: vec![0.0; devices],
            done,
            seen: Seen::new(facts.volumes.len(), devices),
        };
        for m in moving {
            let v = m.volume.index();
            let left = learned.left_s(&facts.volumes[v].name, facts.at);
            let left = left.unwrap_or_else(|| search.planned_s(v, m.to));
            for d in [m.from.index(), m.to.index()] {
                search.copying_s[d] = search.copying_s[d].max(left);
            }
        }
        let crowds = on.into_iter().enumerate();
        search.on = crowds
            .map(|(d, volumes)| Crowd::of(&search.forecast, d, volumes))
            .collect();
        (0..devices).for_each(|d| search.look_at(d));
        search
    }

    /// Keeps who misses an objective on a device, as things are by now in this plan.
    fn look_at(&mut self, d: usize) {
        let forecast = &self.forecast;
        let p = forecast.newest();
        let volumes = &self.on[d].volumes;
        let busy = forecast.busy(d, p, volumes, 0.0);
        let missing = |v: &usize| {
            let class = forecast.class(*v);
            class.target.is_some() && forecast.cost(*v, d, p, &busy).0 > 0.5 * class.weight
        };
        self.missing[d] = volumes.iter().copied().filter(missing).collect();
    }

    /// What the volumes of a device cost there per second, mean over the epochs, surges among them.
    pub(super) fn now_mean(&self, d: usize) -> f64 {
        self.mean(&self.on[d].now)
    }

    /// Mean over the epochs, with surges by their chance.
    pub(super) fn mean(&self, costs: &Costs) -> f64 {
        self.mixed(self.forecast.patterns.mean(&costs.patterns), costs.surge)
    }

    /// What is known, and what surges would be by their chance.
    fn mixed(&self, known: f64, surge: f64) -> f64 {
        (1.0 - self.config.rates.surge) * known + self.config.rates.surge * surge
    }

    /// The volumes that leave a device and those that come to it when these moves are made.
    fn exchanged(&self, d: usize, moves: &[Moved]) -> [Vec<usize>; 2] {
        let leave = moves.iter().filter(|m| self.place[m.volume] == d);
        let come = moves.iter().filter(|m| m.to.index() == d);
        [
            leave.map(|m| m.volume).collect(),
            come.map(|m| m.volume).collect(),
        ]
    }

    /// What the volumes of a device cost when these moves are made.
    pub(super) fn after(&self, d: usize, moves: &[Moved]) -> Costs {
        let [leave, come] = self.exchanged(d, moves);
        self.on[d].changed(&self.forecast, d, &leave, &come, 0.0)
    }

    /// Seconds that a copy takes at the planned rate.
    pub(super) fn planned_s(&self, v: usize, to: DeviceId) -> f64 {
        let Context { facts, policy, .. } = *self.context;
        let rate = copy_bandwidth(facts, policy, VolumeId::from_index(v), to);
        rate.time_for(facts.volumes[v].size).as_secs_f64()
    }

    pub(super) fn size(&self, v: usize) -> i128 {
        i128::from(self.context.facts.volumes[v].size.0)
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
            let offer = self.judged(left, Gate::Decided);
            taken.extend(offer.map(|o| self.take(o)));
        }
        while taken.len() < BUNDLES_MAX {
            let Some(offer) = self.best() else { break };
            taken.push(self.take(offer));
        }
        // What cannot begin before the next plan is that one's to decide.
        let epoch_s = self.context.policy.epochs.migration.as_secs_f64();
        let (now, later): (Vec<Bundle>, Vec<Bundle>) = taken
            .into_iter()
            .partition(|b| Timed::first(&b.offer.timed) < epoch_s);
        let unspent = later.iter().filter(|b| b.offer.ahead);
        self.ahead_left += unspent.map(|b| b.offer.price).sum::<f64>();
        now
    }

    /// Makes an offer part of the plan.
    fn take(&mut self, offer: Offer) -> Bundle {
        let p = self.forecast.newest();
        let on = |v: usize, d: usize, volumes: &[usize]| {
            let busy = self.forecast.busy(d, p, volumes, 0.0);
            self.forecast.cost(v, d, p, &busy)
        };
        let after = |m: &Moved| {
            let d = m.to.index();
            let [leave, come] = self.exchanged(d, &offer.moves);
            let stay = self.on[d].volumes.iter().filter(|v| !leave.contains(v));
            let there: Vec<usize> = stay.chain(&come).copied().collect();
            on(m.volume, d, &there)
        };
        let after_us = |m: &Moved| Some(after(m).1).filter(|us| *us > 0.0);
        let relieves = match offer.moves.as_slice() {
            [only] => {
                let from = self.place[only.volume];
                after(only).0 >= on(only.volume, from, &self.on[from].volumes).0
            }
            _ => false,
        };
        let bundle = Bundle {
            after_us: offer.moves.iter().map(after_us).collect(),
            relieves,
            offer,
        };
        let moves = &bundle.offer.moves;
        let touched = self.touched(moves);
        if bundle.offer.ahead {
            self.ahead_left -= bundle.offer.price;
        }
        for (m, t) in moves.iter().zip(&bundle.offer.timed) {
            let size = self.size(m.volume);
            let (from, to) = (self.place[m.volume], m.to.index());
            for d in [from, to] {
                self.copying_s[d] = self.copying_s[d].max(t.ends_s);
            }
            self.free[from] += size;
            self.free[to] -= size;
            self.place[m.volume] = to;
            self.done[m.volume] = true;
            self.on[from].volumes.retain(|v| *v != m.volume);
            let there = &mut self.on[to].volumes;
            let at = there.partition_point(|v| *v < m.volume);
            there.insert(at, m.volume);
        }
        self.seen.forget(&touched, &self.on);
        for d in touched {
            let volumes = std::mem::take(&mut self.on[d].volumes);
            self.on[d] = Crowd::of(&self.forecast, d, volumes);
            self.look_at(d);
        }
        bundle
    }

    /// The devices that moves leave and come to.
    pub(super) fn touched(&self, moves: &[Moved]) -> Vec<usize> {
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

    /// When each move is made. What makes room goes first where there is none; a device makes one copy at a time.
    fn timed(&self, moves: &[Moved]) -> Vec<Timed> {
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
        timed
    }

    /// Whether somebody but the volume itself is taken to miss an objective on a device.
    fn strained(&self, d: usize, but: usize) -> bool {
        self.missing[d].iter().any(|v| *v != but)
    }

    /// What a bundle is worth; none if it is not worth its price, or if staying has not cost as much yet and what there is for moves in advance is
    /// less.
    pub(super) fn judged(&self, moves: Vec<Moved>, gate: Gate) -> Option<Offer> {
        let Context { facts, policy, .. } = *self.context;
        let patterns = &self.forecast.patterns;
        let mut gains = vec![0.0; patterns.len()];
        let mut surge = 0.0;
        for d in &self.touched(&moves) {
            let now = &self.on[*d].now;
            let after = self.after(*d, &moves);
            surge += now.surge - after.surge;
            let pairs = now.patterns.iter().zip(&after.patterns);
            for (gain, (before, after)) in gains.iter_mut().zip(pairs) {
                *gain += before - after;
            }
        }
        let rate = patterns.mean(&gains);
        if self.mixed(rate, surge) <= 0.0 {
            return None;
        }
        let shares = patterns.share.iter().zip(&gains);
        let helped: f64 = shares
            .filter(|(_, g)| **g > 0.25 * rate)
            .map(|(s, _)| s)
            .sum();
        // A burst is over before a copy is done.
        let burst = rate > 0.0 && helped < self.config.rates.epochs_helped;
        let known_rate = if burst { 0.0 } else { rate };
        let monitor_s = policy.epochs.monitor.as_secs_f64();
        let migration_s = policy.epochs.migration.as_secs_f64();
        let timed = self.timed(&moves);
        let ends_s = Timed::last(&timed);
        let horizon = self.config.rates.horizon_epochs * migration_s;
        let left_s = (horizon - ends_s).max(0.0);
        let known_gain = known_rate * left_s;
        let ahead_gain = surge * left_s;
        let gain = self.mixed(known_gain, ahead_gain);
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
                let with = self.on[d].changed(&self.forecast, d, &[], &[], more);
                patterns.mean(&with.patterns) - patterns.mean(&self.on[d].now.patterns)
            };
            let suffered = suffer(from, read) + suffer(to, written);
            price += seconds * suffered.max(0.0);
            price += bytes / (1u64 << 30) as f64 * self.config.rates.gib;
        }
        // What was realised: only epochs that are known to have been so, and that no move was made for before.
        let epochs = moves
            .iter()
            .map(|m| self.regretted(m.volume))
            .min()
            .unwrap_or(0);
        let newest = patterns.of.iter().rev().take(epochs);
        let realised = newest.map(|p| gains[*p]).sum::<f64>() * monitor_s;
        // What a burst has cost says nothing of what comes.
        let paid = !burst && realised >= self.config.rates.regret * price;
        let regretted = gate == Gate::Decided || paid;
        // What has not been missed yet may be worth a move in advance, within what there is for that.
        let ahead = !regretted
            && self.mixed(known_gain.min(0.0), ahead_gain) > price
            && price <= self.ahead_left;
        if gain <= price || !(regretted || ahead) {
            return None;
        }
        Some(Offer {
            moves,
            timed,
            gain,
            price,
            regret: realised,
            ahead,
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

    /// Mean latency, microseconds, and cost of a volume on the best device of a tier, everything else as it is in this plan.
    pub(super) fn predicted(&self, v: usize, tier: TierId) -> Option<(f64, f64)> {
        let facts = self.context.facts;
        facts.volumes[v].measured?;
        let p = self.forecast.newest();
        let of = |d: &DeviceId| {
            let d = d.index();
            let busy = self.on[d].busy_with(&self.forecast, d, p, v);
            let (cost, mean_us) = self.forecast.cost(v, d, p, &busy);
            (mean_us, cost)
        };
        let devices = &facts.topology.tier(tier).devices;
        devices.iter().map(of).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Share of a device's time that a volume takes.
    pub(super) fn use_of(&self, v: usize, d: DeviceId) -> f64 {
        let p = self.forecast.newest();
        self.forecast.use_at(v, d.index(), p).share
    }
}
