//! `terrace`: keeps latency objectives with few moves, from measurements. Classes and objectives are its only settings.
//!
//! ```text
//!  every monitor epoch:    loads by volume ─▶ history (since its load last changed)      latencies, use of devices ─▶ model of devices
//!  every migration epoch:  for each epoch of the history: violations with every volume on its present and on other devices
//!                          ─▶ best placement found by local search
//!                          ─▶ bundles towards it (a move, or an exchange), best per second of copying first
//!                          ─▶ made if forecast benefit > cost, and realised regret ≥ cost or the budget for moves in advance suffices
//! ```
//!
//! The value of a placement is the violation that it would have avoided in the epochs of the history. So volumes that are
//! busy at the same time compete, and alternating volumes do not. A burst counts by its frequency. The benefit counts from
//! the end of the copies. The price of a bundle is the violation that its copies cause, plus a price for their bytes.
//! *Regret* is the violation that staying has cost in the same epochs, compared with the bundle's placement. It must reach
//! the price, so such moves never cost more than twice as much as the best waiting time would have (the argument of ski
//! rental; Karlin et al., Algorithmica 1988). A budget pays for moves in advance, for loads that may come but never did: all
//! prices ≤ all regret + that budget.
//!
//! When not to use it: for volumes without objectives, because lower latency has almost no value for them.

mod crowd;
mod day;
mod exposed;
mod floor;
mod forecast;
mod harm;
mod history;
mod latency;
mod learned;
mod patterns;
mod place;
mod placement;
mod predicted;
mod rates;
mod reasons;
mod residuals;
mod search;
mod seen;
mod target;
#[cfg(test)]
mod tests;
mod touched;
mod view;
mod ways;

use std::collections::{BTreeMap, BTreeSet};

use model::{Effect, Prediction, Reason, Rejection, ScoreParts, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{DeviceId, VolumeId};

use crate::{ConfigError, Context, DeviceOption, Draft, Granularity, PlaceRequest, Strategy, Wish};

use history::{History, Order};
use learned::{DeviceNow, LearnedValues};
use rates::{Part, Rates};
use reasons::Reasons;
use search::{Bundle, Offer, Search, UnitMove};
use touched::PartRequests;
use view::{View, is_rest, kept_under};

/// Strategy `terrace`; the module comment describes it.
pub struct Terrace {
    config: TerraceConfig,
}

/// Parameters of `terrace`. No operator needs them: classes and objectives are the whole input.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TerraceConfig {
    /// Weights and limits, for ablations that show the effect of each.
    pub rates: Rates,
    /// Parts of the strategy that are switched off, for ablations.
    pub without: Vec<Part>,
}

impl TerraceConfig {
    fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// Returns the name and the parameters of each variant that an ablation compares with the default.
    pub fn variants() -> Vec<(String, serde_json::Value)> {
        rates::variants()
    }
}

/// State between decisions, by name: ids are valid for one inventory only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TerraceState {
    /// Histories of volumes. The rest of a volume has one only after a move.
    volumes: BTreeMap<String, History>,
    /// Requests to extents, by volume.
    touched: BTreeMap<String, PartRequests>,
    /// Learnt corrections of the device models.
    learned: LearnedValues,
    /// Bundles of earlier plans, as volumes and devices, until all of their moves have begun.
    decided: Vec<Vec<(String, String)>>,
    /// Remaining budget for moves in advance, weighted seconds; `None` before the first plan.
    ahead_left: Option<f64>,
    /// Total cost of moves so far.
    account: Account,
}

/// Total cost of moves so far, weighted seconds: their prices at the time of the decision, and the regret or budget that
/// paid for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Account {
    /// Prices of bundles made for regret, times γ, and the regret spent on them.
    paid: f64,
    regret: f64,
    /// Prices of bundles made in advance, and the budget granted for them.
    advanced: f64,
    granted: f64,
}

impl Account {
    /// Returns true if the gate's bound holds: all prices are at most all regret over γ plus the granted budget.
    fn holds(&self) -> bool {
        let at_most = |spent: f64, had: f64| spent <= had * (1.0 + 1e-9) + 1e-6;
        at_most(self.paid, self.regret) && at_most(self.advanced, self.granted)
    }

    /// Adds a decided bundle.
    fn spend(&mut self, rates: &Rates, offer: &Offer) {
        match offer.ahead {
            true => self.advanced += offer.price,
            false => {
                self.paid += rates.regret * offer.price;
                self.regret += offer.regret;
            }
        }
    }
}

/// Returns the volumes in the order of the names of their histories.
fn by_name(facts: &model::Facts) -> Vec<usize> {
    let mut order: Vec<usize> = (0..facts.volumes.len()).collect();
    order.sort_by_cached_key(|i| kept_under(&facts.volumes[*i].name));
    order
}

impl TerraceState {
    /// Returns the state after the last epoch for the present volumes, and the devices' condition in that epoch.
    fn absorbed(
        &self,
        view: &View<'_>,
        touched: BTreeMap<String, PartRequests>,
    ) -> (Self, Vec<DeviceNow>) {
        let facts: &model::Facts = &view.facts;
        let (mut learned, mut now) = self.learned.absorbed(facts);
        let order = by_name(facts);
        let before = self.known(facts, &order, &mut now);
        // In the order of volumes: the learnt values depend on it.
        let mut volumes: Vec<Option<History>> = Vec::with_capacity(facts.volumes.len());
        for (v, before) in facts.volumes.iter().zip(before) {
            let mut history = before.map_or_else(History::default, History::continued);
            if !is_rest(&v.name) {
                history.absorb(facts, v, &now[v.device.index()], &mut learned);
            }
            volumes.push(Some(history));
        }
        let mut named: Vec<(String, History)> = Vec::with_capacity(volumes.len());
        for i in order {
            let name = kept_under(&facts.volumes[i].name);
            // All pieces of a rest have one name.
            if named.last().is_none_or(|(last, _)| last != name) {
                named.extend(volumes[i].take().map(|history| (name.into(), history)));
            }
        }
        let next = Self {
            volumes: named.into_iter().collect(),
            touched,
            learned,
            decided: self.decided.clone(),
            ahead_left: self.ahead_left,
            account: self.account,
        };
        (next, now)
    }

    /// Returns the history of each volume, in one pass over the names of both. Marks devices as disturbed that volumes have
    /// left since the last epoch, by a move or for good: measurements taken next to those volumes no longer describe them.
    fn known(
        &self,
        facts: &model::Facts,
        order: &[usize],
        now: &mut [DeviceNow],
    ) -> Vec<Option<&History>> {
        let mut known = vec![None; facts.volumes.len()];
        let mut left: BTreeSet<&str> = BTreeSet::new();
        let mut order = order.iter().copied().peekable();
        for (name, history) in &self.volumes {
            let name_of = |i: usize| kept_under(&facts.volumes[i].name);
            while order.next_if(|i| name_of(*i) < name.as_str()).is_some() {}
            let mut stays = false;
            while let Some(i) = order.next_if(|i| name_of(*i) == name) {
                known[i] = Some(history);
                let device = facts.volumes[i].device;
                stays |= facts.topology.device(device).name == history.device();
            }
            if !stays && !is_rest(name) {
                left.insert(history.device());
            }
        }
        let devices = facts.topology.devices.iter().zip(now);
        for (_, now) in devices.filter(|(d, _)| left.contains(d.name.as_str())) {
            now.disturbed = true;
        }
        known
    }

    /// Returns the history of each volume. All volumes must have one.
    fn histories(&self, facts: &model::Facts) -> Vec<&History> {
        facts
            .volumes
            .iter()
            .map(|v| &self.volumes[kept_under(&v.name)])
            .collect()
    }
}

impl Strategy for Terrace {
    type Config = TerraceConfig;
    type State = TerraceState;
    const NAME: &'static str = "terrace";
    const SUMMARY: &'static str =
        "meets objectives: compares forecast violations and regret with the price of moves";
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new(config: TerraceConfig) -> Result<Self, ConfigError> {
        match config.rates.fault() {
            Some((key, why)) => Err(ConfigError::new(Self::NAME, key, why)),
            None => Ok(Self { config }),
        }
    }

    fn plan(&self, context: &Context<'_>, state: &TerraceState, draft: &mut Draft) -> TerraceState {
        let (view, touched) = self.view(context, state);
        let (mut next, _) = state.absorbed(&view, touched);
        if !context.facts.placement_due {
            return next;
        }
        let volumes = context.facts.volumes.len();
        let context = &Context {
            facts: &view.facts,
            ..*context
        };
        let facts = context.facts;
        let histories = next.histories(facts);
        let ahead = self.ahead(context, state.ahead_left);
        let config = &self.config;
        let mut search = Search::new(context, &view, &histories, &next.learned, config, ahead);
        let bundles = search.bundles(&known(facts, &state.decided));
        let mut wishes: Vec<Wish> = (0..volumes)
            .map(|i| stay(context, &search, VolumeId::from_index(i)))
            .collect();
        let named = |m: &UnitMove| {
            let device = facts.topology.device(m.to).name.clone();
            (facts.volumes[m.volume].name.clone(), device)
        };
        let decided = bundles
            .iter()
            .map(|b| b.offer.moves.iter().map(named).collect())
            .collect();
        for (rank, bundle) in bundles.iter().enumerate() {
            wish(context, &search, (bundle, rank), &mut wishes);
        }
        let followed = follow(context, &mut search, &mut wishes);
        Reasons::new(&search).say(&mut wishes);
        let ahead_left = search.ahead_left;
        next.decided = decided;
        next.ahead_left = Some(ahead_left);
        let had = state.ahead_left.filter(|_| state.account.granted > 0.0);
        next.account.granted += ahead - had.unwrap_or(0.0);
        let fresh = bundles.iter().filter(|b| !b.decided);
        fresh.for_each(|b| next.account.spend(&self.config.rates, &b.offer));
        next.account.advanced += followed.iter().map(|f| f.price).sum::<f64>();
        if !next.account.holds() {
            let account = next.account;
            debug_assert!(
                false,
                "the cost of moves exceeds their account: {account:?}"
            );
            let why = "internal fault: the cost of moves exceeds the regret and the grants";
            draft.notes.push(format!("{why}, {account:?}"));
        }
        let remembered = search::returns_since(context);
        for bundle in &bundles {
            let each = bundle.offer.moves.iter().zip(&bundle.offer.timed);
            for (i, (m, t)) in each.enumerate() {
                let volume = &facts.volumes[m.volume];
                let to = &facts.topology.device(m.to).name;
                let from = &facts.topology.device(volume.device).name;
                let after = bundle.after[i].as_ref().filter(|_| !view.is_rest(m.volume));
                let predicted = after.map(|after| (after.us, after.cell.clone()));
                let name = kept_under(&volume.name);
                let history = next.volumes.get_mut(name);
                let history = history.expect("inserted before");
                let order = Order {
                    at: facts.at,
                    from,
                    to,
                    predicted,
                    makes_room: i > 0,
                };
                history.planned(order, remembered);
                next.learned.asked_for(name, to, t.planned_s, t.pace);
            }
        }
        for f in &followed {
            let name = &facts.volumes[f.volume].name;
            let [from, to] = [f.from, f.to].map(|d| &facts.topology.device(d).name);
            if let Some(history) = next.volumes.get_mut(name) {
                let order = Order {
                    at: facts.at,
                    from,
                    to,
                    predicted: None,
                    makes_room: false,
                };
                history.planned(order, remembered);
            }
        }
        draft.wishes = wishes;
        next
    }

    fn place(
        &self,
        context: &Context<'_>,
        state: &TerraceState,
        request: &PlaceRequest,
    ) -> Option<Vec<DeviceOption>> {
        // Includes an epoch that no decision has used yet.
        let (view, touched) = self.view(context, state);
        let (known, now) = state.absorbed(&view, touched);
        let context = &Context {
            facts: &view.facts,
            ..*context
        };
        let histories = known.histories(context.facts);
        let (learned, config) = (&known.learned, &self.config);
        let search = Search::new(context, &view, &histories, learned, config, 0.0);
        Some(place::options(&search, &now, request))
    }
}

impl Terrace {
    /// Returns the view of the volumes to place, and the requests to extents so far.
    fn view<'a>(
        &self,
        context: &Context<'a>,
        state: &TerraceState,
    ) -> (View<'a>, BTreeMap<String, PartRequests>) {
        match self.config.has(Part::Extents) {
            true => View::new(context, &state.touched),
            false => (View::whole(context.facts), BTreeMap::new()),
        }
    }

    /// Returns the budget for moves in advance at this plan, from the rest of the last plan.
    fn ahead(&self, context: &Context<'_>, left: Option<f64>) -> f64 {
        let facts = context.facts;
        let classes = facts
            .volumes
            .iter()
            .map(|v| &facts.classes[v.class.index()]);
        let weight: f64 = classes
            .filter(|c| c.target.is_some())
            .map(|c| c.weight)
            .sum();
        let most = self.config.rates.advance_s * weight;
        let epoch_s = context.policy.epochs.migration.as_secs_f64();
        match left {
            Some(left) => (left + self.config.rates.advance_share * weight * epoch_s).min(most),
            None => most,
        }
    }
}

/// Returns a wish to stay, with a prediction for every tier.
fn stay(context: &Context<'_>, search: &Search<'_>, id: VolumeId) -> Wish {
    let facts = context.facts;
    let mut wish = Wish::stay(context, id);
    let measured = facts.volumes[id.index()].measured;
    for (t, option) in facts.topology.tier_ids().zip(&mut wish.options) {
        let predicted = search.predicted(id.index(), t);
        option.score = predicted.map(|parts| parts.score());
        option.parts = predicted.map(ScoreParts::Violated);
        option.predicted = predicted.zip(measured).map(|(parts, m)| Prediction {
            latency_us: parts.mean_us.map_or(0.0, |us| us.value),
            iops: m.iops(),
            mib_per_s: m.bytes_per_s() / (1u64 << 20) as f64,
        });
        if predicted.is_none() && t != wish.tier {
            let by = Rejection::NoMeasurement;
            option.verdict = Verdict::Rejected { by };
        }
    }
    if let Some(m) = measured {
        wish.evidence.insert("iops".into(), m.iops());
        if let Some(us) = m.latency_mean_us() {
            wish.evidence.insert("latency_mean_us".into(), us);
        }
    }
    wish
}

/// Turns the moves of a bundle into wishes.
fn wish(
    context: &Context<'_>,
    search: &Search<'_>,
    (bundle, rank): (&Bundle, usize),
    wishes: &mut [Wish],
) {
    let facts = context.facts;
    for (i, (m, after)) in bundle.offer.moves.iter().zip(&bundle.after).enumerate() {
        let v = &facts.volumes[m.volume];
        let of = search.view.volume(m.volume);
        let wish = &mut wishes[of];
        wish.tier = facts.topology.tier_of(m.to);
        wish.device = Some(m.to);
        wish.here = v.device;
        wish.extents = search.view.extents(m.volume).cloned();
        // Moves follow the order of bundles, whatever their size.
        let size = search.view.real.volumes[of].taken();
        wish.value = (1000.0 - rank as f64) * size.as_gib_f64();
        wish.makes_room = i > 0;
        wish.device_share = search.use_of(m.volume, m.to);
        wish.relieves = bundle.relieves;
        wish.reason = reason(bundle, m.volume, search);
        if search.view.is_rest(m.volume) {
            continue; // the move has no effect on latency
        }
        let before = v.measured.and_then(|m| m.latency_mean_us());
        wish.effect = Effect {
            latency_before_us: before,
            latency_after_us: after.as_ref().map(|after| after.us),
            latency_after_range_us: after.as_ref().map(|after| after.range_us),
            iops_before: v.measured.map(|m| m.iops()),
            iops_after: v.measured.map(|m| m.iops()),
        };
    }
}

/// Extents in use that follow to the main part of their volume.
struct FollowMove {
    volume: usize,
    from: DeviceId,
    to: DeviceId,
    price: f64,
}

/// Moves extents in use to the device of the volume's main part, if they get too many requests on their present device and
/// the violation there is larger. An earlier decision placed the main part. Extents in use on a better device stay there.
/// These moves have no regret of their own, so the budget for moves in advance pays for them.
fn follow(context: &Context<'_>, search: &mut Search<'_>, wishes: &mut [Wish]) -> Vec<FollowMove> {
    let facts = context.facts;
    let view = search.view;
    let mut free: Vec<i128> = search.at.free.clone();
    let mut followed = vec![];
    for (v, wish) in wishes.iter_mut().enumerate() {
        let volume = &facts.volumes[v];
        let Some(strays) = view.strays(v).filter(|_| !search.done[v]) else {
            continue;
        };
        let class = &facts.classes[volume.class.index()];
        let (to, bytes) = (volume.device, i128::from(strays.bytes.0));
        let room = &mut free[to.index()];
        let [here, there] = [strays.on, to].map(|d| search.own_cost(v, d.index()).sum());
        let price = search.part_price(strays.bytes);
        if !touched::too_much(strays.share, class.target)
            || (here - there) * search.horizon_s() <= price
            || price > search.ahead_left
            || *room < bytes
            || !search.permitted(v, to.index())
            || search.rests(v).is_some()
        {
            continue;
        }
        *room -= bytes;
        search.ahead_left -= price;
        followed.push(FollowMove {
            volume: v,
            from: strays.on,
            to,
            price,
        });
        wish.here = strays.on;
        wish.extents = Some(strays.extents.clone());
        (wish.tier, wish.device) = (facts.topology.tier_of(to), Some(to));
        let text = format!(
            "joins the rest of the volume: {:.1} % of its requests go to this part ({})",
            100.0 * strays.share,
            strays.bytes
        );
        wish.reason = Reason::new("follows", text).with("share", strays.share);
    }
    followed
}

/// Returns the reason of a volume's move in a bundle.
fn reason(bundle: &Bundle, volume: usize, search: &Search<'_>) -> Reason {
    let view = search.view;
    let facts: &model::Facts = &view.facts;
    let offer = &bundle.offer;
    let first = offer.moves[0].volume;
    let (kind, what_for) = match (first != volume, bundle.relieves) {
        (true, _) => (
            "makes-room",
            format!("makes room for {}; both are ", facts.volumes[first].name),
        ),
        (false, true) => ("relieves", "relieves other volumes on its device: ".into()),
        (false, false) => ("keeps-objective", String::new()),
    };
    let kind = if offer.ahead { "in-advance" } else { kind };
    let Offer {
        gain,
        price,
        regret,
        ..
    } = *offer;
    let horizon = reasons::seconds(search.horizon_s()).words();
    let staying = match offer.ahead {
        true => "in advance of loads that may return".to_owned(),
        false => format!("staying has cost {regret:.1} s"),
    };
    let size = facts.volumes[volume].size;
    let part = match (view.extents(volume), view.is_rest(volume)) {
        (None, _) => String::new(),
        (_, true) => format!("; moves the {size} with little load"),
        (_, false) => format!("; moves the {size} that carry the load"),
    };
    let text = format!(
        "{what_for}expected to avoid {gain:.1} s of SLO violation (class-weighted) in the next {horizon}; cost of the copy {price:.1} s; {staying}{part}"
    );
    Reason::new(kind, text)
        .with("gain_s", model::ReasonValue::Number(gain))
        .with("price_s", model::ReasonValue::Number(price))
        .with("regret_s", model::ReasonValue::Number(regret))
}

/// Returns the bundles by ids, without bundles that name a missing volume or device.
fn known(facts: &model::Facts, decided: &[Vec<(String, String)>]) -> Vec<Vec<UnitMove>> {
    let of = |(volume, device): &(String, String)| {
        let volume = facts.volumes.iter().position(|v| v.name == *volume)?;
        let to = facts
            .topology
            .devices
            .iter()
            .position(|d| d.name == *device)?;
        let to = units::DeviceId::from_index(to);
        Some(UnitMove { volume, to })
    };
    let of_bundle = |b: &Vec<(String, String)>| b.iter().map(of).collect();
    decided.iter().filter_map(of_bundle).collect()
}
