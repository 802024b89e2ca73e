//! Explanations in the report: predicted violations of a volume on every tier, and reasons why a violating volume stays.
//!
//! For every tier with less violation, a reason is a limit with its numbers or a volume, computed by the functions that
//! decide. Without such a tier, the reason is the limit of the volume. This module makes no decisions. It does not explain
//! exchanges: for a tier without room, the reason is the missing room.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::{Bounded, Rejection, SloClass, SloStatistic, Verdict, ViolatedParts};
use units::{Bytes, DeviceId, Nanos, TierId, VolumeId};

use super::crowd::Crowd;
use super::forecast::DevicePrediction;
use super::harm::Harm;
use super::latency::DeviceLoad;
use super::search::{Bundle, BundleRejection, EPOCHS_MIN, Gate, MoveTime, Search, UnitMove};
use crate::{Ledger, Wish};

/// Smallest reduction of violation that is reported, as a share of the class weight.
const LESS_MIN: f64 = 0.02;
/// Note on a volume that violated its objective in the last epoch and is predicted to meet it without a move.
const KEEPS: &str =
    "violated its objective in the last epoch; expected to meet it on its current device";
/// Number of volumes of a device that are examined for the largest additional violation by a newcomer ...
const TOUCHY_MAX: usize = 8;
/// ... chosen by their additional violation if this much more of the device's time were in use.
const TOUCHY_BY: f64 = 0.2;

/// Returns the parts of a volume's cost with their predictions. The bounds are the predictions times `low` and `high`.
pub(super) fn violated_parts(
    class: &SloClass,
    beside: Option<&DevicePrediction>,
    (low, high): (f64, f64),
    others: f64,
) -> ViolatedParts {
    let cost = beside.map(|b| b.cost).unwrap_or_default();
    let bounded = |value: f64| Bounded {
        value,
        low: value * low,
        high: value * high,
    };
    let statistic_us = |b: &DevicePrediction, of: SloStatistic| {
        b.latency.mean_us * libm::exp(b.latency.ratio_ln(of) + b.of_stat_ln)
    };
    let aimed = beside.zip(class.target);
    ViolatedParts {
        class_weight: class.weight,
        violated: class.weight * cost.violated,
        excess: class.weight * cost.excess,
        faster: class.weight * cost.faster,
        latency: cost.free,
        others,
        statistic: class.target.map(|t| t.statistic),
        target_us: class.target.map(|t| t.latency.as_micros_f64()),
        statistic_us: aimed.map(|(b, t)| bounded(statistic_us(b, t.statistic))),
        mean_us: beside.map(|b| bounded(b.latency.mean_us)),
    }
}

pub(super) fn seconds(s: f64) -> Nanos {
    Nanos((s.max(0.0) * 1e9) as u64)
}

fn micros(us: f64) -> String {
    Nanos::from_micros_f64(us).words()
}

/// Device as a place for a volume, and the violation of its objective there.
type Place = (usize, f64);

/// Returns true if the rejection is only temporary. The reported reason is then the rest time of a resting volume.
fn passes_in_time(by: &Rejection) -> bool {
    matches!(
        by,
        Rejection::Regret { .. } | Rejection::Burst { .. } | Rejection::Outranked { .. }
    )
}

/// Reasons for rejections, after the bundles of the plan.
pub(super) struct Reasons<'s, 'a> {
    search: &'s Search<'a>,
    ledger: Ledger<'a>,
    /// Computed state by device.
    crowds: RefCell<BTreeMap<usize, Rc<DeviceContext>>>,
}

/// State of a device that does not depend on the volume.
struct DeviceContext {
    /// Load by pattern.
    now: Vec<DeviceLoad>,
    /// Volumes with the largest additional violation if the device were used more.
    touchy: Vec<usize>,
    /// Demanded share of its time; `most` is the volume with the largest demand, and its share.
    share: f64,
    most: Option<(usize, f64)>,
}

impl<'s, 'a> Reasons<'s, 'a> {
    pub(super) fn new(search: &'s Search<'a>) -> Self {
        Self {
            search,
            ledger: Ledger::new(search.context),
            crowds: RefCell::default(),
        }
    }

    /// Adds reasons to the wishes of all violating volumes that stay.
    pub(super) fn say(&self, wishes: &mut [Wish]) {
        let facts = self.search.context.facts;
        let mut moving = vec![false; facts.volumes.len()];
        for m in &facts.moves {
            moving[self.search.view.volume(m.volume.index())] = true;
        }
        for wish in wishes {
            let v = wish.volume.index();
            if !moving[v] && !wish.moves(facts) {
                self.say_of(v, wish);
            }
        }
    }

    fn say_of(&self, v: usize, wish: &mut Wish) {
        let facts = self.search.context.facts;
        let volume = &facts.volumes[v];
        let target = self.search.forecast.class(v).target;
        let (Some(target), Some(_)) = (target, volume.measured) else {
            return;
        };
        let cost = self.search.own_cost(v, volume.device.index());
        let target_us = target.latency.as_micros_f64();
        let measured_us = self.measured_us(v);
        let measured = measured_us.is_some_and(|us| us > target_us);
        if cost.sum() <= 0.5 * cost.weight && !measured {
            return;
        }
        let here = cost.of_objective();
        let statistic = target.statistic.name();
        let evidence = &mut wish.evidence;
        evidence.insert(format!("objective_{statistic}_us"), target_us);
        let measured = measured_us.map(|us| (format!("latency_{statistic}_us"), us));
        evidence.extend(measured);
        let own_tier = facts.topology.tier_of(volume.device);
        let mut nowhere = true;
        for (tier, option) in facts.topology.tier_ids().zip(&mut wish.options) {
            let better = self.better(v, tier, here);
            let Some(by) = self.against(v, tier, here, &better) else {
                continue;
            };
            nowhere = false;
            match tier == own_tier {
                true => {
                    let note = format!("another device of its tier would be better, but: {by}");
                    wish.notes.push(note);
                }
                false => option.verdict = Verdict::Rejected { by },
            }
        }
        if nowhere {
            wish.notes.push(match cost.sum() > 0.5 * cost.weight {
                true => self.limit(v),
                false => KEEPS.to_owned(),
            });
        }
    }

    /// Returns the objective's statistic in the last epoch.
    fn measured_us(&self, v: usize) -> Option<f64> {
        let epoch = self.search.context.facts.epoch;
        self.search.histories[v].newest_of(epoch)?.stat_us
    }

    /// Returns devices of a tier with less violation of the volume's objective than here, the best first: among the least
    /// used devices, and the least used one with room.
    fn better(&self, v: usize, tier: TierId, here: f64) -> Vec<Place> {
        let search = self.search;
        let own = search.context.facts.volumes[v].device.index();
        let most = here - LESS_MIN * search.forecast.class(v).weight;
        let mut better: Vec<Place> = vec![];
        let least_used = search.least_used(tier).iter().copied();
        for d in least_used.chain(self.roomy(v, tier)) {
            if d != own && better.iter().all(|(other, _)| *other != d) {
                better.push((d, search.own_cost(v, d).of_objective()));
            }
        }
        better.retain(|(_, there)| *there < most);
        better.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        better
    }

    /// Returns the least used other device of a tier with room for a volume.
    fn roomy(&self, v: usize, tier: TierId) -> Option<usize> {
        let search = self.search;
        let (size, own) = (
            search.forecast.size(v),
            search.context.facts.volumes[v].device,
        );
        let devices = self.ledger.devices(tier).iter().filter(|d| **d != own);
        let with_room = devices
            .map(|d| d.index())
            .filter(|d| search.at.free[*d] >= size);
        let used = |d: &usize| search.at.on[*d].mean.share;
        with_room.min_by(|a, b| used(a).total_cmp(&used(b)))
    }

    /// Returns the reason why a volume does not move to a tier, on which these devices have less violation; `None` without
    /// devices.
    fn against(&self, v: usize, tier: TierId, here: f64, better: &[Place]) -> Option<Rejection> {
        let search = self.search;
        let facts = search.context.facts;
        let id = VolumeId::from_index(v);
        if let Some(by) = self.left_to_the_next_plan(v, tier) {
            return by;
        }
        if better.is_empty() {
            return None;
        }
        if let Err(by) = self.ledger.permits(id, tier) {
            return Some(by);
        }
        let resting = !better.iter().any(|(d, _)| search.may(v, *d));
        let size = search.forecast.size(v);
        let fits = |(d, _): &&Place| search.at.free[*d] >= size && (resting || search.may(v, *d));
        if let Some((d, _)) = better.iter().find(fits) {
            let by = self.weighed(v, *d);
            let left = search.rests(v).filter(|_| resting && passes_in_time(&by));
            return Some(left.map_or(by, |left| Rejection::Cooldown { left }));
        }
        Some(match self.roomy(v, tier) {
            Some(d) => Rejection::NoGain {
                here,
                there: search.own_cost(v, d).of_objective(),
            },
            None => Rejection::NoDevice {
                need: facts.volumes[v].size,
                most_free: self.most_free(v, tier),
            },
        })
    }

    /// Returns the largest free space on one device of a tier.
    fn most_free(&self, v: usize, tier: TierId) -> Bytes {
        let own = self.search.context.facts.volumes[v].device;
        let devices = self.ledger.devices(tier).iter().filter(|d| **d != own);
        let free = devices.map(|d| self.search.at.free[d.index()]).max();
        Bytes(u64::try_from(free.unwrap_or(0)).unwrap_or(0))
    }

    /// Returns the reason of a volume whose move cannot begin before the next plan: the condition that it waits for on its
    /// target tier, and none for other tiers.
    fn left_to_the_next_plan(&self, v: usize, tier: TierId) -> Option<Option<Rejection>> {
        let search = self.search;
        let facts = search.context.facts;
        let of = |b: &&Bundle| b.offer.moves.iter().any(|m| m.volume == v);
        let bundle = search.later.iter().find(of)?;
        let to = bundle.offer.moves.iter().find(|m| m.volume == v)?.to;
        if facts.topology.tier_of(to) != tier {
            return Some(None);
        }
        let begins_s = MoveTime::first(&bundle.offer.timed);
        let epoch_s = search.context.policy.epochs.migration.as_secs_f64();
        Some(Some(match begins_s < epoch_s {
            false => Rejection::CopiesFirst {
                left: seconds(begins_s),
            },
            // The room there will only be freed by a copy under way.
            true => Rejection::TransientSpace {
                need: facts.volumes[v].size,
                most_free: Bytes(u64::try_from(self.ledger.free(to)).unwrap_or(0)),
            },
        }))
    }

    /// Returns the reason why a permitted move with room is not made.
    fn weighed(&self, v: usize, d: usize) -> Rejection {
        let search = self.search;
        let moves = [UnitMove::to(v, d)];
        match search.weighed(moves.to_vec(), Gate::Regret) {
            Ok(offer) => Rejection::Outranked {
                gain_s: offer.gain,
                price_s: offer.price,
            },
            Err(BundleRejection::Nothing) => self.nothing(v, d),
            Err(BundleRejection::Burst) => {
                let helped = search.helped(&search.gains(&search.at, &moves).0);
                self.burst(helped)
            }
            Err(BundleRejection::Early { epochs }) => Rejection::Burst {
                epochs: epochs as u32,
                needed: EPOCHS_MIN as u32,
            },
            Err(BundleRejection::TooLate { done_s }) => Rejection::TooLate {
                done: seconds(done_s),
                horizon: seconds(search.horizon_s()),
            },
            Err(BundleRejection::Price { gain, price }) => Rejection::Price {
                gain_s: gain,
                price_s: price,
            },
            Err(BundleRejection::Regret { realised, needed }) => Rejection::Regret {
                regret_s: realised,
                price_s: needed,
            },
            Err(BundleRejection::Harm(harm)) => self.harm(harm),
        }
    }

    /// Returns the rejection with the harmed volume and the harm.
    fn harm(&self, harm: Harm) -> Rejection {
        let search = self.search;
        let of = search.view.volume(harm.volume);
        let volume = search.view.real.volumes[of].name.clone();
        match search.forecast.class(harm.volume).target {
            Some(_) => Rejection::ViolatesOther {
                volume,
                chance: harm.after,
            },
            None => Rejection::SlowsOther {
                volume,
                factor: harm.after,
                most: harm.limit,
            },
        }
    }

    /// Returns the rejection of a move that would have helped in this share of the epochs only.
    fn burst(&self, helped: f64) -> Rejection {
        let epochs = self.search.forecast.patterns.of.len() as f64;
        let needed = (self.search.config.rates.epochs_helped * epochs).ceil();
        Rejection::Burst {
            epochs: (helped * epochs).round() as u32,
            needed: (needed as u32).max(EPOCHS_MIN as u32),
        }
    }

    /// Returns the reason of a move without a total reduction of violation.
    fn nothing(&self, v: usize, d: usize) -> Rejection {
        let search = self.search;
        let patterns = &search.forecast.patterns;
        let gains = search.gains(&search.at, &[UnitMove::to(v, d)]).0;
        let rate = patterns.mean(&gains);
        let more = |p: usize| search.at.on[d].more_for_others(&search.forecast, d, p, v);
        let others = patterns.mean(&(0..patterns.len()).map(more).collect::<Vec<_>>());
        let price = || Rejection::Price {
            gain_s: 0.0,
            price_s: search.copy_price(&UnitMove::to(v, d), search.copies_s(v, d)),
        };
        if rate > 0.0 {
            // Surges would cost more there than the known gain.
            return price();
        }
        let own = search.context.facts.volumes[v].device.index();
        let [here, there] = [own, d].map(|d| self.mean_cost(v, d));
        if there >= here {
            return Rejection::NoGain { here, there };
        }
        match self.who_misses_most(v, d) {
            Some((u, most)) => Rejection::Neighbours {
                volume: search.context.facts.volumes[u].name.clone(),
                most,
                others,
                gain: (rate + others).max(0.0),
            },
            None => price(),
        }
    }

    /// Returns the cost of a volume itself on a device, mean over the epochs.
    fn mean_cost(&self, v: usize, d: usize) -> f64 {
        let search = self.search;
        let forecast = &search.forecast;
        let cost = |p: usize| {
            let busy = search.at.on[d].busy_with(forecast, d, p, v);
            forecast.patterns.share[p] * forecast.cost(v, d, p, &busy).0
        };
        (0..forecast.patterns.len()).map(cost).sum()
    }

    /// Returns the volume of a device with the largest additional violation by a newcomer, and that violation, mean over the
    /// epochs.
    fn who_misses_most(&self, v: usize, d: usize) -> Option<(usize, f64)> {
        let forecast = &self.search.forecast;
        let crowd = &self.search.at.on[d];
        let known = self.crowded(d);
        let then = |(p, now): (usize, &DeviceLoad)| (*now, crowd.busy_with(forecast, d, p, v));
        let busy: Vec<(DeviceLoad, DeviceLoad)> = known.now.iter().enumerate().map(then).collect();
        let each = known.touchy.iter().map(|u| (*u, self.rises(*u, d, &busy)));
        each.max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, most)| *most > 0.0)
    }

    fn crowded(&self, d: usize) -> Rc<DeviceContext> {
        let mut crowds = self.crowds.borrow_mut();
        let known = crowds.entry(d);
        Rc::clone(known.or_insert_with(|| Rc::new(self.look_at(d))))
    }

    fn look_at(&self, d: usize) -> DeviceContext {
        let search = self.search;
        let forecast = &search.forecast;
        let volumes = &search.at.on[d].volumes;
        let busy = |p: usize| [0.0, TOUCHY_BY].map(|by| forecast.busy(d, p, volumes, by));
        let patterns = 0..forecast.patterns.len();
        let busy: Vec<(DeviceLoad, DeviceLoad)> = patterns.map(busy).map(|[a, b]| (a, b)).collect();
        let rise = |u: &usize| (self.rises(*u, d, &busy), *u);
        let mut rises: Vec<(f64, usize)> = volumes.iter().map(rise).collect();
        rises.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rises.truncate(TOUCHY_MAX);
        let share = |u: &usize| (*u, search.use_of(*u, DeviceId::from_index(d)));
        let shares = || volumes.iter().map(share);
        DeviceContext {
            now: busy.iter().map(|(now, _)| *now).collect(),
            touchy: rises.into_iter().map(|(_, u)| u).collect(),
            share: shares().map(|(_, share)| share).sum(),
            most: shares()
                .filter(|(u, _)| !search.view.is_rest(*u))
                .max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    /// Returns the additional violation of a volume if its device becomes busier. `busy` has the loads before and after by
    /// pattern; the result is the mean over the epochs.
    fn rises(&self, u: usize, d: usize, busy: &[(DeviceLoad, DeviceLoad)]) -> f64 {
        let forecast = &self.search.forecast;
        let more = |(p, (now, then)): (usize, &(DeviceLoad, DeviceLoad))| {
            let cost = |busy: &DeviceLoad| forecast.cost(u, d, p, busy).0;
            forecast.patterns.share[p] * (cost(then) - cost(now))
        };
        busy.iter().enumerate().map(more).sum()
    }

    /// Describes the limit of a volume for which no device is better.
    fn limit(&self, v: usize) -> String {
        let search = self.search;
        let facts = search.context.facts;
        let tiers = facts.topology.tier_ids();
        let least = tiers.filter_map(|t| Some((t, *search.least_used(t).first()?)));
        let alone = least.map(|(t, d)| (t, self.alone(v, d)));
        let best = alone.max_by(|a, b| a.1.score().total_cmp(&b.1.score()));
        match best {
            Some((tier, parts)) if parts.own() > 0.5 * parts.class_weight => {
                let statistic = parts.statistic.map_or("", |s| s.name());
                let predicted_us = parts.statistic_us.map_or(0.0, |b| b.value);
                format!(
                    "no device meets its objective: alone on {}, the best tier for it, its {statistic} would be {}; its objective is {}",
                    facts.topology.tier(tier).name,
                    micros(predicted_us),
                    micros(parts.target_us.unwrap_or(0.0))
                )
            }
            _ => self.no_better(v),
        }
    }

    /// Returns the violation of a volume alone on a device.
    fn alone(&self, v: usize, d: usize) -> ViolatedParts {
        let forecast = &self.search.forecast;
        let p = forecast.newest();
        let busy = Crowd::default().busy_with(forecast, d, p, v);
        let beside = forecast.beside(v, d, p, &busy);
        violated_parts(forecast.class(v), beside.as_ref(), (1.0, 1.0), 0.0)
    }

    /// Describes the load of the current device of a volume for which no device is better.
    fn no_better(&self, v: usize) -> String {
        let facts = self.search.context.facts;
        let d = facts.volumes[v].device;
        let known = self.crowded(d.index());
        let of = match known.most {
            Some((u, share)) if u == v => format!("most by itself ({:.0} %)", 100.0 * share),
            Some((u, share)) => {
                let name = &facts.volumes[u].name;
                format!("most by {name} ({:.0} %)", 100.0 * share)
            }
            None => "by no volume".into(),
        };
        format!(
            "no device would be better at its present load; the current device, {}, has a load of {:.0} %, {of}",
            facts.topology.device(d).name,
            100.0 * known.share
        )
    }
}
