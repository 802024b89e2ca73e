//! Search for a plan: violations of each placement in the epochs of the history, and bundles of moves towards the best
//! placement that are worth their price.
//!
//! ```text
//!  gain  = (violation per second here − there, surges by their chance) × (the horizon − until the copies are done)
//!  price = violation caused by the copies + their bytes + the reserve of space that is in use afterwards
//!  made if gain > price, and either staying has cost as much as the price and the gain is not only a burst, or the
//!  expected cost of surges exceeds the price and the budget for moves in advance suffices;
//!  of these bundles, the one with the most gain − price per second of copying first
//! ```

use units::{Bytes, DeviceId, Nanos, VolumeId};

use super::TerraceConfig;
use super::crowd::Costs;
use super::exposed::OfDevice;
use super::forecast::{DevicePrediction, Forecast};
use super::harm::{BaselineHarm, Harm};
use super::history::History;
use super::learned::{LearnedValues, Pace};
use super::placement::Placement;
use super::rates::{Part, Rates};
use super::residuals::Cell;
use super::seen::MoveCache;
use super::view::{View, kept_under};
use super::ways::Goal;
use crate::Context;
use crate::ledger::{above_limit, reserve, room};
use crate::rate::{copy_bandwidth, extents_bandwidth};

/// Largest number of bundles of one plan.
const BUNDLES_MAX: usize = 12;

/// Share of the mean gain from which a bundle helps in an epoch.
const HELPED: f64 = 0.25;
/// Smallest number of epochs in which the absence of a bundle caused violations.
pub(super) const EPOCHS_MIN: usize = 3;

/// Move of a unit to a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UnitMove {
    pub volume: usize,
    pub to: DeviceId,
}

impl UnitMove {
    pub(super) fn to(volume: usize, device: usize) -> Self {
        let to = DeviceId::from_index(device);
        Self { volume, to }
    }
}

/// Time of a move of a bundle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MoveTime {
    /// Seconds that the copy takes at the planned rate.
    pub planned_s: f64,
    /// Condition that slows the copy down.
    pub pace: Pace,
    /// Beginning and end of the copy, seconds from now.
    begins_s: f64,
    ends_s: f64,
}

impl MoveTime {
    /// Returns the beginning of the first copy, seconds from now.
    pub(super) fn first(timed: &[Self]) -> f64 {
        timed.iter().map(|t| t.begins_s).fold(f64::MAX, f64::min)
    }

    fn last(timed: &[Self]) -> f64 {
        timed.iter().map(|t| t.ends_s).fold(0.0, f64::max)
    }
}

/// Moves that only make sense together, with their value. The first one is the purpose; the others make room for it.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub moves: Vec<UnitMove>,
    /// Time of each move.
    pub timed: Vec<MoveTime>,
    /// Forecast benefit over the horizon, weighted seconds.
    pub gain: f64,
    /// Cost of copies to guests, their bytes, and the reserve of space that is in use afterwards.
    pub price: f64,
    /// Violation that staying has cost.
    pub regret: f64,
    /// True if the move is made in advance, before any violation.
    pub ahead: bool,
}

impl Offer {
    /// Returns gain minus price per second of copying.
    pub(super) fn worth(&self, rates: &Rates) -> f64 {
        let seconds = MoveTime::last(&self.timed) - MoveTime::first(&self.timed);
        (self.gain - self.price) / (seconds + rates.copy_s)
    }
}

/// Prediction for a volume after its move.
#[derive(Debug, Clone)]
pub(super) struct MovePrediction {
    /// Mean latency and its bounds, microseconds.
    pub us: f64,
    pub range_us: (f64, f64),
    /// Cell of similar predictions.
    pub cell: Cell,
}

/// An offer that is part of the plan.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub offer: Offer,
    /// Prediction for each move; `None` for a volume without load.
    pub after: Vec<Option<MovePrediction>>,
    /// True if an earlier plan decided it.
    pub decided: bool,
    /// True if the first volume leaves for the sake of others.
    pub relieves: bool,
}

/// Reason why a bundle is not made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BundleRejection {
    /// No violation is avoided.
    Nothing,
    /// Violations are avoided in too small a share of the epochs ...
    Burst,
    /// ... or in too few epochs since the load is known.
    Early { epochs: usize },
    /// The copies would end after the horizon for which loads are assumed constant.
    TooLate { done_s: f64 },
    /// The gain does not exceed the price.
    Price { gain: f64, price: f64 },
    /// Staying has not cost enough yet.
    Regret { realised: f64, needed: f64 },
    /// Another volume would be harmed.
    Harm(Harm),
}

/// Condition that a bundle must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Staying must have cost as much as the move would.
    Regret,
    /// An earlier plan decided the bundle.
    Decided,
}

/// Migration epochs within which a move back counts as a return.
const RETURN_EPOCHS: f64 = 20.0;

/// Returns the time since which the places that volumes left are remembered.
pub(super) fn returns_since(context: &Context<'_>) -> Nanos {
    let epochs = RETURN_EPOCHS * context.policy.epochs.migration.0 as f64;
    context.facts.at.saturating_sub(Nanos(epochs as u64))
}

/// The search for one plan.
pub(super) struct Search<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) view: &'a View<'a>,
    pub(super) histories: &'a [&'a History],
    pub(super) learned: &'a LearnedValues,
    pub(super) config: &'a TerraceConfig,
    pub(super) forecast: Forecast<'a>,
    /// Device of every volume after the bundles chosen so far.
    pub(super) at: Placement,
    /// Volumes of each device that violate an objective by prediction.
    missing: Vec<Vec<usize>>,
    /// True if the demand of a device exceeds its capability.
    full: Vec<bool>,
    /// Seconds until a device has made all of its copies.
    copying_s: Vec<f64>,
    /// Free bytes by device now, without the space that running copies will free.
    free_now: Vec<i128>,
    /// Free bytes by device below which the reserve is in use, or more of the reserve than before this plan.
    pub(super) reserve: Vec<i128>,
    /// Volumes that are excluded from further steps.
    pub(super) done: Vec<bool>,
    /// Remaining budget for moves in advance, weighted seconds.
    pub(super) ahead_left: f64,
    /// Bundles left to the next plan.
    pub(super) later: Vec<Bundle>,
    /// The least used devices of each tier.
    pub(super) least_used: Vec<Vec<usize>>,
    /// Harm of volumes before the plan.
    pub(super) before: BaselineHarm,
    /// Volumes that moves may harm, by device.
    pub(super) exposures: Vec<OfDevice>,
    /// Results computed for this plan so far, valid until their devices are changed.
    pub(super) seen: MoveCache<Offer>,
}

/// Steps towards a placement, compared by value per second of copying.
struct TargetSteps<'s, 'a> {
    search: &'s Search<'a>,
    /// Target device of each volume; `None` for the device with the highest value.
    target: Option<&'s [usize]>,
}

impl TargetSteps<'_, '_> {
    fn offer(&self, moves: &[UnitMove]) -> Option<Offer> {
        let search = self.search;
        let judged = || search.judged(moves.to_vec(), Gate::Regret);
        let offer = search.seen.worth(&search.at, moves, judged);
        // The budget for moves in advance only shrinks.
        offer.filter(|o| !o.ahead || o.price <= search.ahead_left)
    }
}

impl Goal for TargetSteps<'_, '_> {
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
            Some(to) => self.at_most(&[UnitMove::to(v, to)], relief),
            None => relief * self.search.horizon_s() / self.search.config.rates.copy_s.max(1e-9),
        }
    }

    fn at_most(&self, moves: &[UnitMove], less: f64) -> f64 {
        let search = self.search;
        let planned = moves.iter().map(|m| search.planned_s(m.volume, m.to));
        let seconds = planned.fold(0.0, f64::max) / search.learned.fastest();
        let bytes: f64 = moves.iter().map(|m| search.bytes_price(m.volume)).sum();
        (less * search.horizon_s() - bytes) / (seconds + search.config.rates.copy_s)
    }

    fn worth(&self, moves: &[UnitMove]) -> Option<f64> {
        let offer = self.offer(moves)?;
        Some(offer.worth(&self.search.config.rates))
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        view: &'a View<'a>,
        histories: &'a [&'a History],
        learned: &'a LearnedValues,
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
            place[v] = m.to.index(); // its future device
        }
        // Includes moves that are not in these facts, such as the move of extents of a volume that was pinned since.
        for m in &view.real.moves {
            let v = m.volume.index();
            done[v] = true;
            view.others(v).for_each(|other| done[other] = true);
        }
        let left = |d: usize| room(facts, policy, DeviceId::from_index(d));
        let mut free: Vec<i128> = (0..devices).map(left).collect();
        let free_now = free.clone();
        for (m, size) in moving.clone() {
            // The bytes still to be copied are freed when the copy ends; volumes that need the space must wait for that.
            let coming = facts.devices[m.to.index()].reserved;
            free[m.from.index()] += i128::from(size.min(coming).0);
        }
        // A device above the operator's limit counts as full: exchanges remain possible.
        free.iter_mut().for_each(|free| *free = (*free).max(0));
        // The part of the reserve that is already in use costs nothing.
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
            seen: MoveCache::new(facts.volumes.len(), devices),
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

    /// Records the violating volumes of a device and whether it is full, after the bundles chosen so far.
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

    /// Returns the mean over the epochs, with surges by their probability.
    pub(super) fn mean(&self, costs: &Costs) -> f64 {
        self.mixed(self.forecast.patterns.mean(&costs.patterns), costs.surge)
    }

    /// Returns the mean of the known value and the value of surges, by their probability.
    pub(super) fn mixed(&self, known: f64, surge: f64) -> f64 {
        (1.0 - self.config.rates.surge) * known + self.config.rates.surge * surge
    }

    /// Returns the seconds that a copy takes at the planned rate.
    pub(super) fn planned_s(&self, v: usize, to: DeviceId) -> f64 {
        let Context { facts, policy, .. } = *self.context;
        let rate = match self.view.extents(v) {
            Some(_) => extents_bandwidth(facts, policy, facts.volumes[v].device, to),
            None => copy_bandwidth(facts, policy, VolumeId::from_index(v), to),
        };
        rate.time_for(facts.volumes[v].size).as_secs_f64()
    }

    /// Returns the seconds that a copy takes at the learnt speed of copies, after the bundles chosen so far.
    pub(super) fn copies_s(&self, v: usize, d: usize) -> f64 {
        let pace = self.pace(v, self.at.of[v], d);
        self.planned_s(v, DeviceId::from_index(d)) / self.learned.speed(pace)
    }

    /// Returns the seconds for which loads are assumed constant.
    pub(super) fn horizon_s(&self) -> f64 {
        let migration_s = self.context.policy.epochs.migration.as_secs_f64();
        self.config.rates.horizon_epochs * migration_s
    }

    /// Returns the bundles that are worth their price, in order; each volume is in one bundle at most.
    pub(super) fn bundles(&mut self, begun: &[Vec<UnitMove>]) -> Vec<Bundle> {
        let mut taken = vec![];
        // Bundles of earlier plans that have not begun continue, if they still pay.
        for moves in begun {
            let open = |m: &UnitMove| {
                let (v, to) = (m.volume, m.to.index());
                !self.done[v] && self.at.of[v] != to && self.permitted(v, to)
            };
            let mut left: Vec<UnitMove> = moves.iter().copied().filter(open).collect();
            let first = left.first().filter(|m| !self.view.is_rest(m.volume));
            let fits = |m: &UnitMove| self.at.free[m.to.index()] >= self.forecast.size(m.volume);
            match first.map(fits) {
                // The pieces of a rest have changed. If there is room now, those that made room have left.
                Some(true) => left.retain(|m| !self.view.is_rest(m.volume)),
                Some(false) => {}
                None => continue, // the move that needed the room has begun or was dropped
            }
            if left.is_empty() || !self.at.room_for(&self.forecast, &left) {
                continue;
            }
            let offer = self.judged(left, Gate::Decided);
            taken.extend(offer.map(|o| self.take(o, true)));
        }
        let target = self.config.has(Part::Target).then(|| self.target());
        while taken.len() < BUNDLES_MAX {
            let towards = TargetSteps {
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
        // Moves that cannot begin before the next plan are left to it.
        let epoch_s = self.context.policy.epochs.migration.as_secs_f64();
        let (now, later): (Vec<Bundle>, Vec<Bundle>) = taken.into_iter().partition(|b| {
            MoveTime::first(&b.offer.timed) < epoch_s && !self.waits_in_vain(&b.offer)
        });
        let unspent = later.iter().filter(|b| b.offer.ahead);
        self.ahead_left += unspent.map(|b| b.offer.price).sum::<f64>();
        self.later = later;
        now
    }

    /// Returns true if a move would wait for room from a running copy although another device of its tier has room now. The
    /// next plan would choose that device.
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

    /// Adds an offer to the plan; with `decided`, an earlier plan chose it.
    fn take(&mut self, offer: Offer, decided: bool) -> Bundle {
        let p = self.forecast.newest();
        let on = |v: usize, d: usize, volumes: &[usize]| {
            let busy = self.forecast.busy(d, p, volumes, 0.0);
            self.forecast.beside(v, d, p, &busy)
        };
        let cost = |b: &Option<DevicePrediction>| b.map_or(0.0, |b| b.cost.sum());
        let after = |m: &UnitMove| {
            let d = m.to.index();
            let [leave, come] = self.at.exchanged(d, &offer.moves);
            let stay = self.at.on[d].volumes.iter().filter(|v| !leave.contains(v));
            let there: Vec<usize> = stay.chain(&come).copied().collect();
            on(m.volume, d, &there)
        };
        let v = offer.moves[0].volume;
        let from = self.at.of[v];
        let here = cost(&on(v, from, &self.at.on[from].volumes));
        let after: Vec<Option<DevicePrediction>> = offer.moves.iter().map(after).collect();
        let there = cost(&after[0]);
        let expected = |(m, b): (&UnitMove, &Option<DevicePrediction>)| {
            let (us, rho) = b.map(|b| (b.latency.mean_us, b.rho))?;
            let cell = self.cell(m.volume, m.to.index(), us, rho);
            let (low, high) = self.learned.factors(&cell);
            Some(MovePrediction {
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
            // A volume has one move at a time.
            let others = self.view.others(m.volume);
            others.for_each(|other| self.done[other] = true);
        }
        let touched = self.at.make(&self.forecast, moves);
        self.seen.forget(&touched, &self.at);
        touched.into_iter().for_each(|d| self.look_at(d));
        bundle
    }

    /// Returns the time of each move. Moves that make room come first if there is none. A device makes one copy at a time.
    fn timed(&self, moves: &[UnitMove]) -> Vec<MoveTime> {
        let mut until = self.copying_s.clone();
        let mut timed = vec![MoveTime::default(); moves.len()];
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
            timed[i] = MoveTime {
                planned_s,
                pace,
                begins_s: begins,
                ends_s: ends,
            };
        }
        timed
    }

    /// Returns the condition that slows a copy of a volume down.
    fn pace(&self, v: usize, from: usize, to: usize) -> Pace {
        let misses = |d: usize| self.missing[d].iter().any(|u| *u != v);
        match () {
            () if self.full[from] || self.full[to] => Pace::Full,
            () if misses(from) || misses(to) => Pace::Strained,
            () => Pace::Calm,
        }
    }

    /// Returns the reduction of violations per second by these moves, by pattern, and the reduction in case of surges.
    pub(super) fn gains(&self, at: &Placement, moves: &[UnitMove]) -> (Vec<f64>, f64) {
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

    /// Returns the mean gain per second over the epochs, and whether it is a burst. A burst is over before a copy ends, so
    /// its gain is 0.
    pub(super) fn known(&self, gains: &[f64]) -> (f64, bool) {
        let patterns = &self.forecast.patterns;
        let rate = patterns.mean(gains);
        let burst = rate > 0.0 && self.helped(gains) < self.config.rates.epochs_helped;
        (if burst { 0.0 } else { rate }, burst)
    }

    /// Returns the share of the epochs in which the gains help.
    pub(super) fn helped(&self, gains: &[f64]) -> f64 {
        let patterns = &self.forecast.patterns;
        let rate = patterns.mean(gains);
        let shares = patterns.share.iter().zip(gains);
        let helped = shares.filter(|(_, g)| **g > HELPED * rate).map(|(s, _)| s);
        helped.sum()
    }

    /// Returns the price of a volume's bytes.
    pub(super) fn bytes_price(&self, v: usize) -> f64 {
        let size = self.context.facts.volumes[v].size;
        match self.view.extents(v) {
            Some(_) => self.part_price(size),
            None => self.config.rates.gib * size.as_gib_f64(),
        }
    }

    /// Returns the price of the bytes of a part of a volume, at least that of one GiB: small size alone does not justify a
    /// move.
    pub(super) fn part_price(&self, size: Bytes) -> f64 {
        self.config.rates.gib * size.as_gib_f64().max(1.0)
    }

    /// Returns the price of the reserve that these moves take from a placement in the end; negative if they free some.
    pub(super) fn reserve_price(&self, at: &Placement, moves: &[UnitMove]) -> f64 {
        let in_use = |d: usize, free: i128| (self.reserve[d] - free).max(0);
        let more =
            |d: usize| in_use(d, at.free_after(&self.forecast, d, moves)) - in_use(d, at.free[d]);
        let bytes: i128 = at.touched(moves).into_iter().map(more).sum();
        self.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64
    }

    /// Returns the price of the reserve that `size` more bytes on a device take, per second of the horizon.
    pub(super) fn reserve_rate(&self, d: usize, size: Bytes) -> f64 {
        let free = self.at.free[d];
        let in_use = |free: i128| (self.reserve[d] - free).max(0);
        let bytes = in_use(free - i128::from(size.0)) - in_use(free);
        self.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64 / self.horizon_s().max(1.0)
    }

    /// Returns the cost of a copy of this duration: the violation that it causes, and its bytes.
    pub(super) fn copy_price(&self, m: &UnitMove, seconds: f64) -> f64 {
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

    /// Returns the value of a bundle; `None` if its gain does not exceed its price, or if neither regret nor the budget for
    /// moves in advance pays for it.
    pub(super) fn judged(&self, moves: Vec<UnitMove>, gate: Gate) -> Option<Offer> {
        self.weighed(moves, gate).ok()
    }

    /// Returns the value of a bundle.
    ///
    /// # Errors
    /// Returns the reason why it is not made.
    pub(super) fn weighed(
        &self,
        moves: Vec<UnitMove>,
        gate: Gate,
    ) -> Result<Offer, BundleRejection> {
        let policy = self.context.policy;
        let patterns = &self.forecast.patterns;
        let (gains, surge) = self.gains(&self.at, &moves);
        let (known_rate, burst) = self.known(&gains);
        if self.mixed(known_rate, surge) <= 0.0 {
            return Err(if burst {
                BundleRejection::Burst
            } else {
                BundleRejection::Nothing
            });
        }
        let monitor_s = policy.epochs.monitor.as_secs_f64();
        let timed = self.timed(&moves);
        let left_s = (self.horizon_s() - MoveTime::last(&timed)).max(0.0);
        let known_gain = known_rate * left_s;
        let ahead_gain = surge * left_s;
        let gain = self.mixed(known_gain, ahead_gain);
        if gain <= 0.0 {
            let done_s = MoveTime::last(&timed);
            return Err(BundleRejection::TooLate { done_s });
        }
        let each = moves.iter().zip(&timed);
        let copies: f64 = each
            .map(|(m, t)| self.copy_price(m, t.ends_s - t.begins_s))
            .sum();
        // A bundle that frees reserve gets no credit for that: space alone is no reason to move.
        let price = copies + self.reserve_price(&self.at, &moves).max(0.0);
        // Realised regret: only known epochs count, and none for which an earlier move was made.
        let loaded = moves.iter().filter(|m| !self.view.is_rest(m.volume));
        let epochs = loaded.map(|m| self.regretted(m.volume)).min().unwrap_or(0);
        let newest = patterns.of.iter().rev().take(epochs).map(|p| gains[*p]);
        let realised = newest.clone().sum::<f64>() * monitor_s;
        // The cost of a burst does not predict the future, and few epochs cannot show whether a gain is a burst.
        let violated = newest.filter(|gain| *gain > HELPED * known_rate).count();
        // A volume that returns may move back again, so its regret must be larger.
        let returns = moves.iter().any(|m| self.returns(m));
        let times = if returns {
            self.config.rates.returned.max(1.0)
        } else {
            1.0
        };
        let needed = times * self.config.rates.regret * price;
        let paid = !burst && violated >= EPOCHS_MIN && realised >= needed;
        let regretted = gate == Gate::Decided || paid;
        // Without violations so far, a move in advance may be worth its price, within the budget.
        let ahead = !regretted
            && !returns
            && self.mixed(known_gain.min(0.0), ahead_gain) > price
            && price <= self.ahead_left;
        if gain <= price || !(regretted || ahead) {
            return Err(match () {
                () if burst => BundleRejection::Burst,
                () if gain <= price => BundleRejection::Price { gain, price },
                () if violated < EPOCHS_MIN => BundleRejection::Early { epochs: violated },
                () => BundleRejection::Regret { realised, needed },
            });
        }
        if let Some(harm) = self.harms(&self.at, &moves) {
            return Err(BundleRejection::Harm(harm));
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

    /// Returns true if a move ends on a tier, or within its tier on a device, that the volume has left recently.
    fn returns(&self, m: &UnitMove) -> bool {
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

    /// Returns the number of epochs of a volume's history that count as regret: since its last change of load or its last
    /// move.
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

    /// Returns the share of a device's time that a volume takes.
    pub(super) fn use_of(&self, v: usize, d: DeviceId) -> f64 {
        let p = self.forecast.newest();
        self.forecast.use_at(v, d.index(), p).share
    }
}
