//! What every placement would have missed in the epochs of the history, and the bundles of moves towards the best one that are worth their price.
//!
//! ```text
//!  gain  = (missed per second here − there, surges by their chance) × (the horizon − until the copies are done)
//!  price = what the copies take from guests + their bytes + the reserve of space that is in use afterwards
//!  made if gain > price, and either staying has cost as much as the price, and no burst is all there is, or what surges would
//!  cost is more than the price, and there is that much left for moves in advance;
//!  of those, the one with the most gain − price per second of copying first
//! ```

use units::{Bytes, DeviceId, Nanos, VolumeId};

use super::TerraceConfig;
use super::crowd::Costs;
use super::exposed::OfDevice;
use super::forecast::{Beside, Forecast};
use super::harm::{Before, Harm};
use super::history::History;
use super::learned::{Learned, Pace};
use super::placement::Placement;
use super::rates::{Part, Rates};
use super::residuals::Cell;
use super::seen::Seen;
use super::view::{View, kept_under};
use super::ways::Goal;
use crate::Context;
use crate::ledger::{above_limit, reserve, room};
use crate::rate::{copy_bandwidth, extents_bandwidth};

/// Bundles of one plan.
const BUNDLES_MAX: usize = 12;

/// Share of the mean gain from which an epoch is one that a bundle helps.
const HELPED: f64 = 0.25;
/// Epochs in which a bundle has to have been missed.
pub(super) const EPOCHS_MIN: usize = 3;

/// One move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moved {
    pub volume: usize,
    pub to: DeviceId,
}

impl Moved {
    pub(super) fn to(volume: usize, device: usize) -> Self {
        let to = DeviceId::from_index(device);
        Self { volume, to }
    }
}

/// When a move of a bundle is made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timed {
    /// Seconds that it takes at the planned rate.
    pub planned_s: f64,
    /// What holds it up.
    pub pace: Pace,
    /// Seconds from now.
    begins_s: f64,
    ends_s: f64,
}

impl Timed {
    /// When the first begins and the last ends, seconds from now.
    pub(super) fn first(timed: &[Self]) -> f64 {
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
    /// Cost of copies to guests, their bytes, and the reserve of space that is in use afterwards.
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

/// What is expected of a volume after its move.
#[derive(Debug, Clone)]
pub(super) struct After {
    /// Mean latency and its bounds, microseconds.
    pub us: f64,
    pub range_us: (f64, f64),
    /// Which predictions are like this one.
    pub cell: Cell,
}

/// An offer that is part of the plan.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub offer: Offer,
    /// Prediction for each move; `None` for a volume without load.
    pub after: Vec<Option<After>>,
    /// Whether it was decided by an earlier plan.
    pub decided: bool,
    /// The first leaves for the sake of others.
    pub relieves: bool,
}

/// Why a bundle is not made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Refused {
    /// Nothing less would be missed.
    Nothing,
    /// In too small a share of the epochs something less would be missed ...
    Burst,
    /// ... or in so few since it is known of.
    Early { epochs: usize },
    /// Its copies would be done when loads are not taken to stay as they are any more.
    TooLate { done_s: f64 },
    /// It is not worth its price.
    Price { gain: f64, price: f64 },
    /// Staying has not cost as much yet as is needed.
    Regret { realised: f64, needed: f64 },
    /// It would harm another volume.
    Harm(Harm),
}

/// What a bundle has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Staying has to have cost as much as the move would.
    Regret,
    /// It has been decided before.
    Decided,
}

/// Migration epochs within which a move back is a return.
const RETURN_EPOCHS: f64 = 20.0;

/// The time from which a place that a volume left is remembered.
pub(super) fn returns_since(context: &Context<'_>) -> Nanos {
    let epochs = RETURN_EPOCHS * context.policy.epochs.migration.0 as f64;
    context.facts.at.saturating_sub(Nanos(epochs as u64))
}

/// The search for one plan.
pub(super) struct Search<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) view: &'a View<'a>,
    pub(super) histories: &'a [&'a History],
    pub(super) learned: &'a Learned,
    pub(super) config: &'a TerraceConfig,
    pub(super) forecast: Forecast<'a>,
    /// Where every volume is by now, in this plan.
    pub(super) at: Placement,
    /// The volumes of each device that are taken to miss an objective there.
    missing: Vec<Vec<usize>>,
    /// Whether more is asked of a device than it can do.
    full: Vec<bool>,
    /// Seconds until a device has no copy to make any more.
    copying_s: Vec<f64>,
    /// Free bytes by device as things are, without what copies under way will leave.
    free_now: Vec<i128>,
    /// Free bytes by device below which the reserve is in use, or more of it than before this plan.
    pub(super) reserve: Vec<i128>,
    /// Volumes that take no further part.
    pub(super) done: Vec<bool>,
    /// What is left for moves in advance, weighted seconds.
    pub(super) ahead_left: f64,
    /// Bundles that are left to the next plan.
    pub(super) later: Vec<Bundle>,
    /// The least used devices of each tier.
    pub(super) least_used: Vec<Vec<usize>>,
    /// Harm of volumes before the plan.
    pub(super) before: Before,
    /// Volumes that moves may harm, by device.
    pub(super) exposures: Vec<OfDevice>,
    /// What was computed for this plan so far, as long as the devices that it is of are not touched.
    pub(super) seen: Seen<Offer>,
}

/// Steps towards a placement, by what they are worth per second of copying.
struct Towards<'s, 'a> {
    search: &'s Search<'a>,
    /// None is wherever it is worth most.
    target: Option<&'s [usize]>,
}

impl Towards<'_, '_> {
    fn offer(&self, moves: &[Moved]) -> Option<Offer> {
        let search = self.search;
        let judged = || search.judged(moves.to_vec(), Gate::Regret);
        let offer = search.seen.worth(&search.at, moves, judged);
        // What there is for moves in advance only becomes less.
        offer.filter(|o| !o.ahead || o.price <= search.ahead_left)
    }
}

impl Goal for Towards<'_, '_> {
    fn reach(&self, v: usize) -> Vec<usize> {
        let Some(target) = self.target else {
            return self.search.reach(&self.search.at, v);
        };
        let goes = target[v] != self.search.at.of[v];
        goes.then_some(target[v]).into_iter().collect()
    }

    fn most(&self, v: usize, relief: f64) -> f64 {
        match self.target.map(|target| target[v]) {
            Some(to) if to == self.search.at.of[v] => 0.0,
            Some(to) => self.at_most(&[Moved::to(v, to)], relief),
            None => relief * self.search.horizon_s() / self.search.config.rates.copy_s.max(1e-9),
        }
    }

    fn at_most(&self, moves: &[Moved], less: f64) -> f64 {
        let search = self.search;
        let planned = moves.iter().map(|m| search.planned_s(m.volume, m.to));
        let seconds = planned.fold(0.0, f64::max) / search.learned.fastest();
        let bytes: f64 = moves.iter().map(|m| search.bytes_price(m.volume)).sum();
        (less * search.horizon_s() - bytes) / (seconds + search.config.rates.copy_s)
    }

    fn worth(&self, moves: &[Moved]) -> Option<f64> {
        let offer = self.offer(moves)?;
        Some(offer.worth(&self.search.config.rates))
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        view: &'a View<'a>,
        histories: &'a [&'a History],
        learned: &'a Learned,
        config: &'a TerraceConfig,
        ahead_left: f64,
    ) -> Self {
        let Context { facts, policy, .. } = *context;
        let devices = facts.topology.devices.len();
        let mut place: Vec<usize> = facts.volumes.iter().map(|v| v.device.index()).collect();
        let mut done: Vec<bool> = facts.volumes.iter().map(|v| v.measured.is_none()).collect();
        let moving = view.moves().filter(|(m, _)| m.extents.is_none());
        for (m, _) in moving.clone() {
            let v = m.volume.index();
            place[v] = m.to.index(); // where it will be
        }
        // Also of what is not in these facts, such as the move of a part of a volume that was pinned since.
        for m in &view.real.moves {
            let v = m.volume.index();
            done[v] = true;
            view.others(v).for_each(|other| done[other] = true);
        }
        let left = |d: usize| room(facts, policy, DeviceId::from_index(d));
        let mut free: Vec<i128> = (0..devices).map(left).collect();
        let free_now = free.clone();
        for (m, size) in moving.clone() {
            // What is still to be copied has left when the copy ends, which whoever comes has to wait for.
            let coming = facts.devices[m.to.index()].reserved;
            free[m.from.index()] += i128::from(size.min(coming).0);
        }
        // A device above the operator's limit stays there: volumes may change places.
        free.iter_mut().for_each(|free| *free = (*free).max(0));
        // The part of the reserve that is in use before the plan costs nothing.
        let kept = |(d, free): (usize, &i128)| {
            let d = DeviceId::from_index(d);
            (reserve(facts, policy, d) - above_limit(facts, policy, d)).clamp(0, *free)
        };
        let reserve = free.iter().enumerate().map(kept).collect();
        let forecast = Forecast::new(facts, histories, learned, config);
        let at = Placement::new(&forecast, place, free);
        let mut search = Self {
            context,
            view,
            histories,
            learned,
            config,
            forecast,
            at,
            ahead_left,
            missing: vec![vec![]; devices],
            full: vec![false; devices],
            later: vec![],
            least_used: vec![],
            copying_s: vec![0.0; devices],
            free_now,
            reserve,
            done,
            before: vec![],
            exposures: std::iter::repeat_with(OfDevice::default)
                .take(devices)
                .collect(),
            seen: Seen::new(facts.volumes.len(), devices),
        };
        search.before = search.harm_before();
        for (m, _) in moving {
            let v = m.volume.index();
            let left = learned.left_s(kept_under(&facts.volumes[v].name), facts.at);
            let left = left.unwrap_or_else(|| search.planned_s(v, m.to));
            for d in [m.from.index(), m.to.index()] {
                search.copying_s[d] = search.copying_s[d].max(left);
            }
        }
        (0..devices).for_each(|d| search.look_at(d));
        search
    }

    /// Keeps who misses an objective on a device, and whether it is full, as things are by now in this plan.
    fn look_at(&mut self, d: usize) {
        let forecast = &self.forecast;
        let p = forecast.newest();
        let volumes = &self.at.on[d].volumes;
        let busy = forecast.busy(d, p, volumes, 0.0);
        let missing = |v: &usize| {
            let class = forecast.class(*v);
            class.target.is_some() && forecast.cost(*v, d, p, &busy).0 > 0.5 * class.weight
        };
        self.full[d] = busy.full();
        self.missing[d] = volumes.iter().copied().filter(missing).collect();
    }

    /// Mean over the epochs, with surges by their chance.
    pub(super) fn mean(&self, costs: &Costs) -> f64 {
        self.mixed(self.forecast.patterns.mean(&costs.patterns), costs.surge)
    }

    /// What is known, and what surges would be by their chance.
    pub(super) fn mixed(&self, known: f64, surge: f64) -> f64 {
        (1.0 - self.config.rates.surge) * known + self.config.rates.surge * surge
    }

    /// Seconds that a copy takes at the planned rate.
    pub(super) fn planned_s(&self, v: usize, to: DeviceId) -> f64 {
        let Context { facts, policy, .. } = *self.context;
        let rate = match self.view.extents(v) {
            Some(_) => extents_bandwidth(facts, policy, facts.volumes[v].device, to),
            None => copy_bandwidth(facts, policy, VolumeId::from_index(v), to),
        };
        rate.time_for(facts.volumes[v].size).as_secs_f64()
    }

    /// Seconds that it takes as fast as copies have been, as things are by now in this plan.
    pub(super) fn copies_s(&self, v: usize, d: usize) -> f64 {
        let pace = self.pace(v, self.at.of[v], d);
        self.planned_s(v, DeviceId::from_index(d)) / self.learned.speed(pace)
    }

    /// Seconds for which loads are taken to stay as they are.
    pub(super) fn horizon_s(&self) -> f64 {
        let migration_s = self.context.policy.epochs.migration.as_secs_f64();
        self.config.rates.horizon_epochs * migration_s
    }

    /// Bundles that are worth their price, in the order in which they are to be made; each volume is in one at most.
    pub(super) fn bundles(&mut self, begun: &[Vec<Moved>]) -> Vec<Bundle> {
        let mut taken = vec![];
        // What was decided and has not begun yet goes on, if it still pays.
        for moves in begun {
            let open = |m: &Moved| {
                let (v, to) = (m.volume, m.to.index());
                !self.done[v] && self.at.of[v] != to && self.permitted(v, to)
            };
            let mut left: Vec<Moved> = moves.iter().copied().filter(open).collect();
            let first = left.first().filter(|m| !self.view.is_rest(m.volume));
            let fits = |m: &Moved| self.at.free[m.to.index()] >= self.forecast.size(m.volume);
            match first.map(fits) {
                // Pieces of a rest are others by now: those that made room have gone, if there is room.
                Some(true) => left.retain(|m| !self.view.is_rest(m.volume)),
                Some(false) => {}
                None => continue, // what they were to make room for has begun, or is not wanted any more
            }
            if left.is_empty() || !self.at.room_for(&self.forecast, &left) {
                continue;
            }
            let offer = self.judged(left, Gate::Decided);
            taken.extend(offer.map(|o| self.take(o, true)));
        }
        let target = self.config.has(Part::Target).then(|| self.target());
        while taken.len() < BUNDLES_MAX {
            let towards = Towards {
                search: self,
                target: target.as_deref(),
            };
            let moves = self.step(&self.at, &self.seen, &towards);
            let Some(offer) = moves.and_then(|m| towards.offer(&m)) else {
                break;
            };
            taken.push(self.take(offer, false));
        }
        self.look_for_least_used();
        // What cannot begin before the next plan is that one's to decide.
        let epoch_s = self.context.policy.epochs.migration.as_secs_f64();
        let (now, later): (Vec<Bundle>, Vec<Bundle>) = taken
            .into_iter()
            .partition(|b| Timed::first(&b.offer.timed) < epoch_s && !self.waits_in_vain(&b.offer));
        let unspent = later.iter().filter(|b| b.offer.ahead);
        self.ahead_left += unspent.map(|b| b.offer.price).sum::<f64>();
        self.later = later;
        now
    }

    /// Whether a move would wait for room that a copy under way leaves though another device of its tier has it now: then it would go there.
    fn waits_in_vain(&self, offer: &Offer) -> bool {
        let facts = self.context.facts;
        let leaves = |d: usize| facts.moves.iter().any(|m| m.from.index() == d);
        offer.moves.iter().any(|m| {
            let (size, to) = (self.forecast.size(m.volume), m.to.index());
            let tier = facts.topology.tier(facts.topology.tier_of(m.to));
            let roomy = |d: &DeviceId| d.index() != to && self.free_now[d.index()] >= size;
            leaves(to) && self.free_now[to] < size && tier.devices.iter().any(roomy)
        })
    }

    /// Makes an offer part of the plan; one that an earlier plan decided is `decided`.
    fn take(&mut self, offer: Offer, decided: bool) -> Bundle {
        let p = self.forecast.newest();
        let on = |v: usize, d: usize, volumes: &[usize]| {
            let busy = self.forecast.busy(d, p, volumes, 0.0);
            self.forecast.beside(v, d, p, &busy)
        };
        let cost = |b: &Option<Beside>| b.map_or(0.0, |b| b.cost.sum());
        let after = |m: &Moved| {
            let d = m.to.index();
            let [leave, come] = self.at.exchanged(d, &offer.moves);
            let stay = self.at.on[d].volumes.iter().filter(|v| !leave.contains(v));
            let there: Vec<usize> = stay.chain(&come).copied().collect();
            on(m.volume, d, &there)
        };
        let v = offer.moves[0].volume;
        let from = self.at.of[v];
        let here = cost(&on(v, from, &self.at.on[from].volumes));
        let after: Vec<Option<Beside>> = offer.moves.iter().map(after).collect();
        let there = cost(&after[0]);
        let expected = |(m, b): (&Moved, &Option<Beside>)| {
            let (us, rho) = b.map(|b| (b.latency.mean_us, b.rho))?;
            let cell = self.cell(m.volume, m.to.index(), us, rho);
            let (low, high) = self.learned.factors(&cell);
            Some(After {
                us,
                range_us: (us * low, us * high),
                cell,
            })
            .filter(|after| after.us > 0.0)
        };
        let bundle = Bundle {
            after: offer.moves.iter().zip(&after).map(expected).collect(),
            decided,
            relieves: after.len() == 1 && there >= here,
            offer,
        };
        let moves = &bundle.offer.moves;
        if bundle.offer.ahead {
            self.ahead_left -= bundle.offer.price;
        }
        for (m, t) in moves.iter().zip(&bundle.offer.timed) {
            for d in [self.at.of[m.volume], m.to.index()] {
                self.copying_s[d] = self.copying_s[d].max(t.ends_s);
            }
            self.done[m.volume] = true;
            // One move of a volume at a time.
            let others = self.view.others(m.volume);
            others.for_each(|other| self.done[other] = true);
        }
        let touched = self.at.make(&self.forecast, moves);
        self.seen.forget(&touched, &self.at);
        touched.into_iter().for_each(|d| self.look_at(d));
        bundle
    }

    /// When each move is made. What makes room goes first where there is none; a device makes one copy at a time.
    fn timed(&self, moves: &[Moved]) -> Vec<Timed> {
        let mut until = self.copying_s.clone();
        let mut timed = vec![Timed::default(); moves.len()];
        let fits = self.at.free[moves[0].to.index()] >= self.forecast.size(moves[0].volume);
        let order: Vec<usize> = match fits {
            true => (0..moves.len()).collect(),
            false => (0..moves.len()).rev().collect(),
        };
        for i in order {
            let m = &moves[i];
            let (from, to) = (self.at.of[m.volume], m.to.index());
            let planned_s = self.planned_s(m.volume, m.to);
            let pace = self.pace(m.volume, from, to);
            let begins = until[from].max(until[to]);
            let ends = begins + planned_s / self.learned.speed(pace);
            (until[from], until[to]) = (ends, ends);
            timed[i] = Timed {
                planned_s,
                pace,
                begins_s: begins,
                ends_s: ends,
            };
        }
        timed
    }

    /// What holds up a copy of a volume.
    fn pace(&self, v: usize, from: usize, to: usize) -> Pace {
        let misses = |d: usize| self.missing[d].iter().any(|u| *u != v);
        match () {
            () if self.full[from] || self.full[to] => Pace::Full,
            () if misses(from) || misses(to) => Pace::Strained,
            () => Pace::Calm,
        }
    }

    /// What the volumes would miss less per second with these moves made, by pattern; and if any of them surged.
    pub(super) fn gains(&self, at: &Placement, moves: &[Moved]) -> (Vec<f64>, f64) {
        let mut gains = vec![0.0; self.forecast.patterns.len()];
        let mut surge = 0.0;
        for d in at.touched(moves) {
            let now = &at.on[d].now;
            let after = at.after(&self.forecast, d, moves);
            surge += now.surge - after.surge;
            let pairs = now.patterns.iter().zip(&after.patterns);
            for (gain, (before, after)) in gains.iter_mut().zip(pairs) {
                *gain += before - after;
            }
        }
        (gains, surge)
    }

    /// What they come to per second, mean over the epochs; and whether that is a burst: it is over before a copy is done, and comes to nothing.
    pub(super) fn known(&self, gains: &[f64]) -> (f64, bool) {
        let patterns = &self.forecast.patterns;
        let rate = patterns.mean(gains);
        let burst = rate > 0.0 && self.helped(gains) < self.config.rates.epochs_helped;
        (if burst { 0.0 } else { rate }, burst)
    }

    /// Share of the epochs in which they help.
    pub(super) fn helped(&self, gains: &[f64]) -> f64 {
        let patterns = &self.forecast.patterns;
        let rate = patterns.mean(gains);
        let shares = patterns.share.iter().zip(gains);
        let helped = shares.filter(|(_, g)| **g > HELPED * rate).map(|(s, _)| s);
        helped.sum()
    }

    /// What a volume's bytes cost.
    pub(super) fn bytes_price(&self, v: usize) -> f64 {
        let size = self.context.facts.volumes[v].size;
        match self.view.extents(v) {
            Some(_) => self.part_price(size),
            None => self.config.rates.gib * size.as_gib_f64(),
        }
    }

    /// What the bytes of a part of a volume cost: a move is not made for less than a GiB's would be because little has to move.
    pub(super) fn part_price(&self, size: Bytes) -> f64 {
        self.config.rates.gib * size.as_gib_f64().max(1.0)
    }

    /// Price of the reserve that these moves take from a placement in the end; negative where they give some back.
    pub(super) fn reserve_price(&self, at: &Placement, moves: &[Moved]) -> f64 {
        let in_use = |d: usize, free: i128| (self.reserve[d] - free).max(0);
        let more =
            |d: usize| in_use(d, at.free_after(&self.forecast, d, moves)) - in_use(d, at.free[d]);
        let bytes: i128 = at.touched(moves).into_iter().map(more).sum();
        self.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64
    }

    /// Price of the reserve that so many more bytes on a device take, per second of the horizon.
    pub(super) fn reserve_rate(&self, d: usize, size: Bytes) -> f64 {
        let free = self.at.free[d];
        let in_use = |free: i128| (self.reserve[d] - free).max(0);
        let bytes = in_use(free - i128::from(size.0)) - in_use(free);
        self.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64 / self.horizon_s().max(1.0)
    }

    /// What a copy that takes so long costs: what it takes from guests, and its bytes.
    pub(super) fn copy_price(&self, m: &Moved, seconds: f64) -> f64 {
        let facts = self.context.facts;
        let (from, to) = (self.at.of[m.volume], m.to.index());
        let rate = facts.volumes[m.volume].size.as_f64() / seconds.max(1e-3);
        let read = rate / facts.topology.devices[from].spec.read_bandwidth.as_f64();
        let written = rate / facts.topology.devices[to].spec.write_bandwidth.as_f64();
        let patterns = &self.forecast.patterns;
        let suffer = |d: usize, more: f64| {
            let with = self.at.on[d].changed(&self.forecast, d, &[], &[], more);
            patterns.mean(&with.patterns) - patterns.mean(&self.at.on[d].now.patterns)
        };
        let suffered = suffer(from, read) + suffer(to, written);
        seconds * suffered.max(0.0) + self.bytes_price(m.volume)
    }

    /// What a bundle is worth; none if it is not worth its price, or if staying has not cost as much yet and what there is for moves in advance is
    /// less.
    pub(super) fn judged(&self, moves: Vec<Moved>, gate: Gate) -> Option<Offer> {
        self.weighed(moves, gate).ok()
    }

    /// The same, or why it is not made.
    pub(super) fn weighed(&self, moves: Vec<Moved>, gate: Gate) -> Result<Offer, Refused> {
        let policy = self.context.policy;
        let patterns = &self.forecast.patterns;
        let (gains, surge) = self.gains(&self.at, &moves);
        let (known_rate, burst) = self.known(&gains);
        if self.mixed(known_rate, surge) <= 0.0 {
            return Err(if burst {
                Refused::Burst
            } else {
                Refused::Nothing
            });
        }
        let monitor_s = policy.epochs.monitor.as_secs_f64();
        let timed = self.timed(&moves);
        let left_s = (self.horizon_s() - Timed::last(&timed)).max(0.0);
        let known_gain = known_rate * left_s;
        let ahead_gain = surge * left_s;
        let gain = self.mixed(known_gain, ahead_gain);
        if gain <= 0.0 {
            let done_s = Timed::last(&timed);
            return Err(Refused::TooLate { done_s });
        }
        let each = moves.iter().zip(&timed);
        let copies: f64 = each
            .map(|(m, t)| self.copy_price(m, t.ends_s - t.begins_s))
            .sum();
        // A bundle that gives reserve back is not paid for it: space alone is no reason to move.
        let price = copies + self.reserve_price(&self.at, &moves).max(0.0);
        // What was realised: only epochs that are known to have been so, and that no move was made for before.
        let loaded = moves.iter().filter(|m| !self.view.is_rest(m.volume));
        let epochs = loaded.map(|m| self.regretted(m.volume)).min().unwrap_or(0);
        let newest = patterns.of.iter().rev().take(epochs).map(|p| gains[*p]);
        let realised = newest.clone().sum::<f64>() * monitor_s;
        // What a burst has cost says nothing of what comes, and of few epochs it is not known whether they are one.
        let violated = newest.filter(|gain| *gain > HELPED * known_rate).count();
        // Whoever goes back may go there again: that needs more.
        let returns = moves.iter().any(|m| self.returns(m));
        let times = if returns {
            self.config.rates.returned.max(1.0)
        } else {
            1.0
        };
        let needed = times * self.config.rates.regret * price;
        let paid = !burst && violated >= EPOCHS_MIN && realised >= needed;
        let regretted = gate == Gate::Decided || paid;
        // What has not been missed yet may be worth a move in advance, within what there is for that.
        let ahead = !regretted
            && !returns
            && self.mixed(known_gain.min(0.0), ahead_gain) > price
            && price <= self.ahead_left;
        if gain <= price || !(regretted || ahead) {
            return Err(match () {
                () if burst => Refused::Burst,
                () if gain <= price => Refused::Price { gain, price },
                () if violated < EPOCHS_MIN => Refused::Early { epochs: violated },
                () => Refused::Regret { realised, needed },
            });
        }
        if let Some(harm) = self.harms(&self.at, &moves) {
            return Err(Refused::Harm(harm));
        }
        Ok(Offer {
            moves,
            timed,
            gain,
            price,
            regret: realised,
            ahead,
        })
    }

    /// Whether a move ends on a tier, or within its tier on a device, that the volume has left not long ago.
    fn returns(&self, m: &Moved) -> bool {
        let topology = &self.context.facts.topology;
        let device = |name: &str| topology.devices.iter().find(|d| d.name == name);
        let (from, to) = (
            &topology.devices[self.at.of[m.volume]],
            topology.device(m.to),
        );
        let mut left = self.histories[m.volume].left(returns_since(self.context));
        left.any(|name| match from.tier == to.tier {
            true => name == to.name,
            false => device(name).is_some_and(|d| d.tier == to.tier),
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

    /// Share of a device's time that a volume takes.
    pub(super) fn use_of(&self, v: usize, d: DeviceId) -> f64 {
        let p = self.forecast.newest();
        self.forecast.use_at(v, d.index(), p).share
    }
}
