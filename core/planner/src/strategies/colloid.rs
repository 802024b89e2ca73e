//! Colloid: tiering by loaded latency (Vuppalapati and Agarwal, *Tiered Memory Management: Access Latency is the Key!*,
//! SOSP 2024; in the form of the authors' code for MEMTIS).

use std::collections::{BTreeMap, BTreeSet};

use model::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos, TierId};

use crate::loaded::{Averages, Pair, copy_price, utilization};
use crate::movable::{MovableUnit, Movables, MoveSelection, MoveUnit, UnitRequests};
use crate::{ConfigError, Context, Draft, Granularity, Strategy};

/// Shifts requests between two tiers until these have the same latency under their load.
///
/// ```text
///  L_f, L_s   latency of the tiers, p = share of requests on the fast one
///  |L_f − L_s| ≤ delta · L_f          balanced: nothing moves
///  else       lo or hi = p            the balance lies between the watermarks lo and hi
///             hi − lo < epsilon       the load has changed: the side that is too near is reopened
///             Δ = |(lo + hi)/2 − p|   requests to shift, in hottest-for-coldest exchanges of at most Δ
/// ```
///
/// Permitted actions: moves and exchanges between two tiers, within Δ and `limit` bytes per second. Of more than two tiers,
/// each migration epoch uses the pair with the largest and the smallest latency. A quantum is a migration epoch.
///
/// Mode: extents, if the engine can move extents; otherwise whole volumes. A volume with a larger share than Δ could never
/// move. So the pair of volumes whose exchange is nearest to Δ is chosen, if it lowers the predicted difference in latency.
///
/// When not to use it: if objectives differ, because it knows neither classes nor objectives, and slows one tier down to
/// speed the other up; if moves are expensive, because it has no price for them (`gate` adds one that is not in the paper);
/// or with more than two busy tiers, because a tier between the extremes is neither relieved nor used.
pub struct Colloid {
    config: ColloidConfig,
}

/// Parameters of `colloid`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColloidConfig {
    /// Unit of moves.
    pub unit: MoveUnit,
    /// Difference in latency, as a share of the fast tier's, up to which tiers count as balanced; 0 to 1, exclusive.
    pub delta: f64,
    /// Distance of the watermarks below which one of them is reopened, as a share of requests; above 0, at most 0.5.
    pub epsilon: f64,
    /// Weight of a sample of one second in the averages of load and latency; above 0, at most 1.
    pub ewma: f64,
    /// Largest number of bytes moved per second of a migration epoch.
    pub limit: BytesPerSec,
    /// True to move at most as many bytes as the requests to shift transfer in a migration epoch.
    pub dynamic_limit: bool,
    /// True to shift only if `Σ rate · ΔL · H` is at least the waiting that copies add. H is the time for which the same tier
    /// has been the slower one. Not part of the paper.
    pub gate: bool,
}

impl Default for ColloidConfig {
    fn default() -> Self {
        Self {
            unit: MoveUnit::Extents,
            delta: 0.05,
            epsilon: 0.01,
            ewma: 1.0 / 16.0,
            // 50 pages of 2 MiB in a quantum of 500 ms.
            limit: BytesPerSec(200 << 20),
            dynamic_limit: true,
            gate: false,
        }
    }
}

/// Shares of requests on the fast tier between which the balance lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Watermarks {
    low: f64,
    high: f64,
}

impl Default for Watermarks {
    fn default() -> Self {
        let (low, high) = (0.0, 1.0);
        Self { low, high }
    }
}

impl Watermarks {
    /// Returns the share of requests that the fast tier should have; `None` if the tiers are balanced.
    fn target(
        &mut self,
        p: f64,
        fast_us: f64,
        slow_us: f64,
        config: &ColloidConfig,
    ) -> Option<f64> {
        if (fast_us - slow_us).abs() <= config.delta * fast_us {
            return None;
        }
        let more = fast_us < slow_us;
        if more {
            self.low = p;
            if self.high <= self.low {
                self.high = 1.0;
            }
        } else {
            self.high = p;
            if self.low >= self.high {
                self.low = 0.0;
            }
        }
        if self.high - self.low < config.epsilon {
            match more {
                true => self.high = 1.0,
                false => self.low = 0.0,
            }
        }
        Some((self.low + self.high) / 2.0)
    }
}

/// Time from which the same tier of a pair has been the slower one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Regret {
    slower: String,
    pair: String,
    since: Nanos,
}

/// State between decisions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ColloidState {
    /// Requests since the last migration epoch.
    since: UnitRequests,
    counted_from: Nanos,
    averages: Averages,
    /// Watermarks by pair of tiers.
    watermarks: BTreeMap<String, Watermarks>,
    regret: Option<Regret>,
}

impl Strategy for Colloid {
    type Config = ColloidConfig;
    type State = ColloidState;
    const NAME: &'static str = "colloid";
    const SUMMARY: &'static str = "same latency under load on two tiers (SOSP 2024)";
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new(config: ColloidConfig) -> Result<Self, ConfigError> {
        let bad = |key: &str, why: &str| Err(ConfigError::new(Self::NAME, key, why));
        if !(config.delta > 0.0 && config.delta < 1.0) {
            return bad("delta", "must be between 0 and 1, exclusive");
        }
        if !(config.epsilon > 0.0 && config.epsilon <= 0.5) {
            return bad("epsilon", "must be above 0 and at most 0.5");
        }
        if !(config.ewma > 0.0 && config.ewma <= 1.0) {
            return bad("ewma", "must be above 0 and at most 1");
        }
        if config.limit.0 == 0 {
            return bad("limit", "must be above 0 bytes per second");
        }
        Ok(Self { config })
    }

    fn plan(&self, context: &Context<'_>, state: &ColloidState, draft: &mut Draft) -> ColloidState {
        let facts = context.facts;
        let mut state = state.clone();
        state.averages.observe(context, self.config.ewma);
        let units = Movables::new(context, self.config.unit);
        if state.since.is_new() {
            // The first facts have the requests of one monitor epoch.
            state.counted_from = facts.at.saturating_sub(context.policy.epochs.monitor);
        }
        let _ = state.since.observe(&units);
        if facts.placement_due {
            let note = self.balance(context, &units, &mut state, draft);
            draft.notes.push(note);
            state.since.reset();
            state.counted_from = facts.at;
        }
        state
    }
}

impl Colloid {
    /// Shifts requests within the pair of tiers. Returns a note for the report.
    fn balance(
        &self,
        context: &Context<'_>,
        units: &Movables,
        state: &mut ColloidState,
        draft: &mut Draft,
    ) -> String {
        let facts = context.facts;
        let Some(pair) = Pair::extremes(context, &state.averages) else {
            state.regret = None;
            units.stay(context, draft);
            return "no two tiers take data, or none has requests".into();
        };
        let name = |t: TierId| facts.topology.tier(t).name.clone();
        let (fast, slow) = (name(pair.fast), name(pair.slow));
        let rate = |t| state.averages.load(facts, t).rate;
        let total = rate(pair.fast) + rate(pair.slow);
        let p = rate(pair.fast) / total;
        let latencies = format!(
            "{fast} {:.0} us, {slow} {:.0} us, {:.3} of requests on {fast}",
            pair.fast_us, pair.slow_us, p
        );
        let key = pair.key(facts);
        let marks = state.watermarks.entry(key.clone()).or_default();
        let Some(target) = marks.target(p, pair.fast_us, pair.slow_us, &self.config) else {
            state.regret = None;
            units.stay(context, draft);
            return format!("{latencies}: balanced");
        };
        let (slower, quicker) = pair.slower_and_quicker();
        state.remember_regret(&key, &name(slower), facts.at);
        let shift = (target - p).abs();
        let job = Shift {
            slower,
            quicker,
            share: shift,
            limit: self.limit(context, state, &pair, shift * total),
        };
        let to = match units.are_extents() {
            true => exchange_extents(context, units, &state.since, &job),
            false => exchange_volumes(context, units, state, &pair, &job),
        };
        let reason = balances_latency(
            (&name(slower), pair.fast_us.max(pair.slow_us)),
            (&name(quicker), pair.fast_us.min(pair.slow_us)),
            shift,
        );
        let counted = facts.at.saturating_sub(state.counted_from);
        let per_s = 1.0 / counted.as_secs_f64().max(1e-9);
        let text = format!("{latencies}, {target:.3} wanted");
        let mut chosen = MoveSelection {
            to,
            reason: &reason,
            gives_way: slower,
            per_s,
        };
        let mut outcome = format!("{} to move", chosen.to.len());
        if self.config.gate && !chosen.to.is_empty() {
            let gain_us = (pair.fast_us - pair.slow_us).abs();
            if let Some(why) = not_worth_its_copies(context, units, state, &chosen, &job, gain_us) {
                chosen.to.clear();
                outcome = why;
            }
        }
        units.wish(context, &chosen, |no| state.since.count(no), draft);
        format!("{text}: {outcome}")
    }

    /// Returns the bytes that may be moved to shift `shifted_per_s` requests per second.
    fn limit(
        &self,
        context: &Context<'_>,
        state: &ColloidState,
        pair: &Pair,
        shifted_per_s: f64,
    ) -> f64 {
        let quantum_s = context.policy.epochs.migration.as_secs_f64();
        let fixed = self.config.limit.as_f64() * quantum_s;
        if !self.config.dynamic_limit {
            return fixed;
        }
        let load = |t| state.averages.load(context.facts, t);
        let (fast, slow) = (load(pair.fast), load(pair.slow));
        let per_request = (fast.bytes_per_s + slow.bytes_per_s) / (fast.rate + slow.rate);
        fixed.min(shifted_per_s * per_request * quantum_s)
    }
}

impl ColloidState {
    fn remember_regret(&mut self, pair: &str, slower: &str, at: Nanos) {
        let same = |r: &&Regret| r.pair == pair && r.slower == slower;
        let since = self.regret.as_ref().filter(same).map_or(at, |r| r.since);
        self.regret = Some(Regret {
            slower: slower.into(),
            pair: pair.into(),
            since,
        });
    }
}

/// Requests to shift.
struct Shift {
    /// The tier with the larger latency, which requests leave.
    slower: TierId,
    quicker: TierId,
    /// Δ: share of the pair's requests.
    share: f64,
    /// Largest number of bytes moved. One exchange is always allowed, even if it exceeds the limit.
    limit: f64,
}

/// Exchanges of an extent i of the slower tier for an extent j of the other one, or for free space, with the largest
/// p_i − p_j ≤ Δ, until Δ or the limit is used up.
fn exchange_extents(
    context: &Context<'_>,
    units: &Movables,
    since: &UnitRequests,
    job: &Shift,
) -> BTreeMap<u32, TierId> {
    let on = |tier: TierId| {
        let there = move |(_, m): &(u32, &MovableUnit)| !m.stays && m.tier == Some(tier);
        units.numbered().filter(there).map(|(no, _)| no)
    };
    // Extents by requests: equal ones are exchanged together.
    let mut hot: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut cold: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (tier, by_requests) in [(job.slower, &mut hot), (job.quicker, &mut cold)] {
        for no in on(tier) {
            let level = by_requests.entry(u64::from(since.count(no))).or_default();
            level.push(no);
        }
    }
    hot.remove(&0);
    // The lowest number moves first.
    hot.values_mut().for_each(|level| level.reverse());
    cold.values_mut().for_each(|level| level.reverse());
    let of_pair = |m: &MovableUnit| m.tier == Some(job.slower) || m.tier == Some(job.quicker);
    let counted = units.numbered().filter(|(_, m)| of_pair(m));
    let all: u64 = counted.map(|(no, _)| u64::from(since.count(no))).sum();
    let extent = units.all.first().map_or(1, |m| m.bytes.0.max(1));
    // Rounding must not lose a request.
    let mut delta = (job.share * all as f64 + 1e-6) as u64;
    let mut room = units.room(context, job.quicker).0 / extent;
    let mut moves_left = ((job.limit / extent as f64) as u64).max(2);
    let mut to = BTreeMap::new();
    while let Some((i, j)) = best_exchange(&hot, &cold, room > 0, delta) {
        let moves = if j.is_some() { 2 } else { 1 };
        let difference = i - j.unwrap_or(0);
        let partners = match j {
            Some(j) => cold[&j].len() as u64,
            None => room,
        };
        let times = (hot[&i].len() as u64)
            .min(partners)
            .min(delta / difference)
            .min(moves_left / moves);
        if times == 0 {
            break;
        }
        for no in take(&mut hot, i, times) {
            to.insert(no, job.quicker);
        }
        match j {
            Some(j) => {
                let makes_room = take(&mut cold, j, times);
                to.extend(makes_room.into_iter().map(|no| (no, job.slower)));
            }
            None => room -= times,
        }
        delta -= times * difference;
        moves_left -= times * moves;
    }
    to
}

/// Requests of the extents of the best exchange: the largest difference that is not above `delta`. Free space has no requests,
/// and is preferred to an idle extent.
fn best_exchange(
    hot: &BTreeMap<u64, Vec<u32>>,
    cold: &BTreeMap<u64, Vec<u32>>,
    room: bool,
    delta: u64,
) -> Option<(u64, Option<u64>)> {
    let mut best: Option<(u64, u64, Option<u64>)> = None;
    for i in hot.keys().rev() {
        if best.is_some_and(|b| b.0 >= *i) {
            break; // cooler ones differ by less
        }
        let partner = match room && *i <= delta {
            true => Some(None),
            // The coldest extent whose difference is within `delta`.
            false => cold
                .range(i.saturating_sub(delta)..*i)
                .next()
                .map(|j| Some(*j.0)),
        };
        let Some(j) = partner else { continue };
        let difference = i - j.unwrap_or(0);
        if best.is_none_or(|b| difference > b.0) {
            best = Some((difference, *i, j));
        }
    }
    best.map(|(_, i, j)| (i, j))
}

/// Removes `count` units of a level, and the level if it becomes empty.
fn take(levels: &mut BTreeMap<u64, Vec<u32>>, level: u64, count: u64) -> Vec<u32> {
    let numbers = levels.get_mut(&level).expect("a level that was found");
    let taken = numbers.split_off(numbers.len() - count as usize);
    if numbers.is_empty() {
        levels.remove(&level);
    }
    taken
}

/// Chooses whole volumes: the pair, or the single volume, whose difference in share is nearest to Δ, as long as that reduces
/// the difference of the tiers' predicted latencies.
fn exchange_volumes(
    context: &Context<'_>,
    units: &Movables,
    state: &ColloidState,
    pair: &Pair,
    job: &Shift,
) -> BTreeMap<u32, TierId> {
    let of_pair = |m: &MovableUnit| m.tier == Some(pair.fast) || m.tier == Some(pair.slow);
    let share = |no: u32| f64::from(state.since.count(no));
    let counted = units.numbered().filter(|(_, m)| of_pair(m));
    let all: f64 = counted.map(|(no, _)| share(no)).sum();
    let on = |tier: TierId| {
        let there = move |(_, m): &(u32, &MovableUnit)| !m.stays && m.tier == Some(tier);
        let mut list: Vec<(u64, u32)> = units
            .numbered()
            .filter(there)
            .map(|(no, _)| (u64::from(state.since.count(no)), no))
            .collect();
        list.sort_unstable();
        list
    };
    let (hot, mut cold) = (on(job.slower), on(job.quicker));
    let mut hot: BTreeSet<(u64, u32)> = hot.into_iter().filter(|h| h.0 > 0).collect();
    let mut to = BTreeMap::new();
    let mut delta = job.share * all;
    let (mut shifted, mut bytes) = (0.0, 0.0);
    let mut room = units.room(context, job.quicker).0 as f64;
    for _ in 0..context.policy.budget.moves_per_epoch {
        let mut best: Option<(u64, (u64, u32), Option<usize>)> = None;
        for i in &hot {
            let wanted = i.0 as f64 - delta;
            let size = units.all[i.1 as usize].bytes.as_f64();
            let at = cold.partition_point(|j| (j.0 as f64) < wanted);
            let near = [at.checked_sub(1), Some(at)];
            let near = near.into_iter().flatten().filter(|j| *j < cold.len());
            let alone = (size <= room).then_some(None);
            for j in near.map(Some).chain(alone) {
                let less = j.map_or(0, |j| cold[j].0);
                if less >= i.0 {
                    continue;
                }
                let off = ((i.0 - less) as f64 - delta).abs().round() as u64;
                if best.is_none_or(|b| off < b.0) {
                    best = Some((off, *i, j));
                }
            }
        }
        let Some((_, i, j)) = best else { break };
        let less = j.map_or(0, |j| cold[j].0);
        let difference = (i.0 - less) as f64;
        let size = |no: u32| units.all[no as usize].bytes.as_f64();
        let copied = size(i.1) + j.map_or(0.0, |j| size(cold[j].1));
        let before = predicted_gap(context, state, pair, job, shifted / all);
        let after = predicted_gap(context, state, pair, job, (shifted + difference) / all);
        // One exchange is always allowed.
        let over = bytes > 0.0 && bytes + copied > job.limit;
        if after >= before || over {
            break;
        }
        hot.remove(&i);
        to.insert(i.1, job.quicker);
        room -= size(i.1);
        if let Some(j) = j {
            let (_, gone) = cold.remove(j);
            to.insert(gone, job.slower);
            room += size(gone);
        }
        shifted += difference;
        bytes += copied;
        delta -= difference;
        if delta <= 0.0 {
            break;
        }
    }
    to
}

/// Returns the difference of the tiers' latencies, microseconds, after this share of the pair's requests has left the slower
/// tier. Latency grows as 1/(1 − ρ) from the measured value, and ρ with the load; beyond an almost full device, in
/// proportion to the load.
fn predicted_gap(
    context: &Context<'_>,
    state: &ColloidState,
    pair: &Pair,
    job: &Shift,
    share: f64,
) -> f64 {
    const FULL: f64 = 0.98;
    let facts = context.facts;
    let rate = |t: TierId| state.averages.load(facts, t).rate;
    let shifted = share * (rate(pair.fast) + rate(pair.slow));
    let latency = |t: TierId| {
        let now = utilization(facts, t).min(FULL);
        let change = if t == job.slower { -shifted } else { shifted };
        let most = facts.topology.sum(t, |s| s.max_iops(0.5, 4096.0, 4096.0));
        let per_request = if rate(t) > 0.0 && now > 0.0 {
            now / rate(t)
        } else {
            1.0 / most
        };
        let then = (now + change * per_request).max(0.0);
        let beyond = (then - FULL).max(0.0) / (1.0 - FULL);
        let growth = (1.0 + beyond) / (1.0 - then.min(FULL));
        state.averages.latency_us(facts, t) * (1.0 - now) * growth
    };
    (latency(pair.fast) - latency(pair.slow)).abs()
}

/// Returns gain and cost in words, if a shift at the time when the tiers began to differ would have gained less than the
/// cost of its copies.
fn not_worth_its_copies(
    context: &Context<'_>,
    units: &Movables,
    state: &ColloidState,
    chosen: &MoveSelection<'_>,
    job: &Shift,
    gain_us: f64,
) -> Option<String> {
    let since = state.regret.as_ref().map_or(context.facts.at, |r| r.since);
    let lasted_s = context.facts.at.saturating_sub(since).as_secs_f64();
    let (mut rate, mut price_us) = (0.0, 0.0);
    for (from, to, sign) in [
        (job.slower, job.quicker, 1.0),
        (job.quicker, job.slower, -1.0),
    ] {
        let those = chosen.to.iter().filter(|(_, tier)| **tier == to);
        let mut bytes = Bytes::ZERO;
        for (no, _) in those {
            bytes += units.all[*no as usize].bytes;
            rate += sign * f64::from(state.since.count(*no)) * chosen.per_s;
        }
        price_us += copy_price(context, &state.averages, from, to, bytes).wait_us;
    }
    let gained_us = rate * gain_us * lasted_s;
    if gained_us >= price_us {
        return None;
    }
    Some(format!(
        "not worth its copies: {:.3} s of waiting avoided in the last {lasted_s:.0} s, copies add {:.3} s",
        gained_us / 1e6,
        price_us / 1e6
    ))
}

/// Reason of a shift: from the tier with the larger latency under load to the other one; with names, latencies, and the
/// share of the pair's requests.
fn balances_latency(slower: (&str, f64), quicker: (&str, f64), share: f64) -> Reason {
    let text = format!(
        "balances latency under load: {} {:.0} us, {} {:.0} us; {:.1} % of their requests are to go to {}",
        slower.0,
        slower.1,
        quicker.0,
        quicker.1,
        100.0 * share,
        quicker.0
    );
    Reason::new("balances-latency", text)
        .with("slower", slower.0)
        .with("slower_us", slower.1)
        .with("quicker", quicker.0)
        .with("quicker_us", quicker.1)
        .with("share", share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of the published example: a fast tier of 80 us and a slow one of 120 us, each at 0.9 of its capability with
    /// all of the load.
    fn latencies(fast_us: f64, p: f64) -> (f64, f64) {
        (fast_us / (1.0 - 0.9 * p), 120.0 / (1.0 - 0.9 * (1.0 - p)))
    }

    #[test]
    fn watermarks_find_the_published_balance_again_after_a_change() {
        let config = ColloidConfig::default();
        let mut marks = Watermarks::default();
        let mut p = 0.95_f64;
        let mut run = |fast_us: f64| {
            let mut visited = vec![];
            for _ in 0..20 {
                visited.push((p * 1e4).round() / 1e4);
                let (fast, slow) = latencies(fast_us, p);
                match marks.target(p, fast, slow, &config) {
                    Some(target) => p = target,
                    None => break,
                }
            }
            visited
        };
        assert_eq!(run(80.0), [0.95, 0.475, 0.7125, 0.5938, 0.6531, 0.6234]);
        let after = [0.6234, 0.6086, 0.6012, 0.3006, 0.4509, 0.3757, 0.4133];
        assert_eq!(run(160.0), after);
    }

    fn levels(counts: &[u64]) -> BTreeMap<u64, Vec<u32>> {
        let mut levels: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (no, count) in (0..).zip(counts) {
            levels.entry(*count).or_default().push(no);
        }
        levels
    }

    #[test]
    fn best_exchange_has_the_largest_difference_within_delta() {
        let (hot, cold) = (levels(&[100, 60, 7]), levels(&[55, 30, 0]));
        // 100 − 0 is too much; 100 − 30 = 70 is the largest possible difference.
        let best = |room, delta| best_exchange(&hot, &cold, room, delta);
        assert_eq!(best(false, 75), Some((100, Some(30))));
        // 60 − 0 = 60 against 100 − 55 = 45.
        assert_eq!(best(false, 60), Some((60, Some(0))));
        assert_eq!(best(true, 60), Some((60, None)));
        // 100 − 55 is too much, 60 − 55 = 5 against 7 − 0.
        assert_eq!(best(false, 8), Some((7, Some(0))));
        assert_eq!(best(true, 4), None);
    }
}
