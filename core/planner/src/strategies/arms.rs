//! ARMS: adaptive and robust memory tiering (arXiv 2508.04417, 2025; in the form of the authors' `arms_kernel`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, TierId};

use crate::extents::layout::fast_tier;
use crate::loaded::{Averages, CopyPrice, Pair, TierLoad, copy_price};
use crate::movable::{MovableUnit, Movables, MoveSelection, MoveUnit, UnitRequests};
use crate::{ConfigError, Context, Draft, Granularity, Strategy};

/// Promotes the units with the highest scores to the fast tier if their expected gain in latency pays for the copies.
///
/// ```text
///  w_s, w_l   averages of requests per migration epoch: short and long memory
///  score      β·w_s + (1 − β)·w_l; β is `history`, or `recency` after a change of load
///  hot_age    migration epochs in a row among the units that fit on the fast tier
///  promote    hot_age ≥ 2, score did not fall since
///  in place of the coldest unit that does not fit, while
///             min(w_s, w_l) of the hot one ≥ max(w_s, w_l) of the cold one
///             (score_hot − score_cold) · hot_age · ΔL ≥ 1.5 · (c_promote + c_demote)
/// ```
///
/// The first failed check ends the epoch. With free room there is no cold unit and no c_demote. ΔL is the difference of the
/// tiers' latencies under load. A change of load is found by a cumulative sum over the bytes per second of the tiers below the
/// first.
///
/// Permitted actions: moves and exchanges between two tiers, as many as have time for their copies in one migration epoch,
/// one after the other. Of more than two tiers, each epoch uses the pair with the largest and the smallest latency. The
/// higher one in the order of tiers is the fast one.
///
/// Mode: extents, if the engine can move extents, else whole volumes. Volumes are ranked by score per byte, and a promotion
/// demotes as many volumes as it needs room for.
///
/// Adapted: an interval is a migration epoch, an access is a request, and the fast tier's size counts in bytes. The cost c of a
/// copy is the waiting that it adds to guests' requests instead of the processor's time. Its floor is the copy's own device time.
///
/// When not to use it: if objectives differ, because it knows neither classes nor objectives; for an overloaded fast tier,
/// because ΔL is then negative and no unit is demoted; or for bursts shorter than two migration epochs.
pub struct Arms {
    config: ArmsConfig,
}

/// Parameters of `arms`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArmsConfig {
    /// Unit of moves.
    pub unit: MoveUnit,
    /// Weight of a migration epoch in the short average; above 0, at most 1.
    pub short: f64,
    /// Weight of a migration epoch in the long average; at most `short`.
    pub long: f64,
    /// Share of the short average in a score, 0 to 1.
    pub history: f64,
    /// Share of the short average in a score after a change of load, 0 to 1.
    pub recency: f64,
    /// Weight of a write relative to a read; 0 to 100.
    pub write_weight: f64,
    /// Smallest ratio of gain to cost for a promotion; 0 or more.
    pub cost_factor: f64,
    /// Number of consecutive migration epochs in which a unit must be hot before its promotion; 1 or more.
    pub hot_age: u32,
    /// Load of the lower tiers below which changes are ignored, as a share of their read bandwidth; 0 to 1.
    pub busy: f64,
    /// Weight of a sample of one second in the averages of load and latency; above 0, at most 1.
    pub ewma: f64,
}

impl Default for ArmsConfig {
    fn default() -> Self {
        Self {
            unit: MoveUnit::Extents,
            short: 0.667,
            long: 0.095,
            history: 0.4,
            recency: 0.731,
            write_weight: 1.0,
            cost_factor: 1.5,
            hot_age: 2,
            busy: 0.03,
            ewma: 0.1,
        }
    }
}

/// Detector of a rise of the load of the lower tiers (Page and Hinkley). It limits the time in which scores favour recent
/// requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct ChangeDetector {
    /// Mean and variance of the bytes per second; none before the first sample.
    seen: Option<(f64, f64)>,
    cusum: f64,
    /// Samples since the last change, while scores favour recent requests.
    recent: Option<u32>,
}

impl ChangeDetector {
    const MEAN_WEIGHT: f64 = 0.1;
    const VARIANCE_WEIGHT: f64 = 0.2;
    /// Drift, in standard deviations.
    const DRIFT: f64 = 0.5;
    const THRESHOLD: f64 = 6.0;
    /// Smallest number of samples during which recency is favoured.
    const RECENCY_MIN: u32 = 20;

    /// Adds a sample. As in the authors' code, mean and deviation include it. The state keeps the variance; its root is the
    /// deviation.
    fn observe(&mut self, x: f64, busy: f64) {
        let (mut mean, mut variance) = self.seen.unwrap_or((x, 0.0));
        mean += Self::MEAN_WEIGHT * (x - mean);
        variance += Self::VARIANCE_WEIGHT * ((x - mean) * (x - mean) - variance);
        self.seen = Some((mean, variance));
        let sd = variance.max(0.0).sqrt();
        self.cusum = (self.cusum + x - mean - Self::DRIFT * sd).max(0.0);
        if self.cusum > Self::THRESHOLD * sd {
            self.cusum = 0.0;
            if x > busy {
                self.recent.get_or_insert(0);
            }
        } else if let Some(samples) = &mut self.recent {
            *samples += 1;
            if *samples >= Self::RECENCY_MIN && self.cusum == 0.0 {
                self.recent = None;
            }
        }
    }
}

/// Averages and age of a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Heat {
    /// Averages of requests per migration epoch.
    short: f32,
    long: f32,
    score: f32,
    /// Consecutive migration epochs among the hottest.
    age: u32,
    /// True if the unit may be promoted; false again when it leaves the hottest.
    ready: bool,
}

impl Heat {
    fn observe(&mut self, requests: f64, bias: f64, config: &ArmsConfig) -> f32 {
        let before = self.score;
        let toward = |w: f32, alpha: f64| (f64::from(w) + alpha * (requests - f64::from(w))) as f32;
        self.short = toward(self.short, config.short);
        self.long = toward(self.long, config.long);
        self.score = (bias * f64::from(self.short) + (1.0 - bias) * f64::from(self.long)) as f32;
        before
    }

    /// Counts one more epoch among the hottest; `before` is the previous score.
    fn hot(&mut self, before: f32, config: &ArmsConfig) {
        if self.score <= 0.0 {
            return;
        }
        self.age = self.age.saturating_add(1);
        self.ready |= self.age >= config.hot_age && self.score >= before;
    }

    fn cool(&mut self) {
        (self.age, self.ready) = (0, false);
    }

    fn least(&self) -> f32 {
        self.short.min(self.long)
    }

    fn most(&self) -> f32 {
        self.short.max(self.long)
    }
}

/// Cost of a copy, microseconds per MiB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct CopyCost {
    up: f64,
    down: f64,
}

impl CopyCost {
    /// Weight of the newest price.
    const WEIGHT: f64 = 2.0 / 21.0;
    /// Divisor of costs after an epoch without moves.
    const DECAY: f64 = 1.5;

    /// Updates costs after an epoch; `went` has whether units were promoted and demoted.
    fn learn(&mut self, went: [bool; 2], prices: &Prices) {
        let floors = [prices.up.device_us, prices.down.device_us];
        let now = [prices.up.wait_us, prices.down.wait_us];
        let idle = went == [false, false];
        for (i, cost) in [&mut self.up, &mut self.down].into_iter().enumerate() {
            if went[i] {
                *cost += Self::WEIGHT * (now[i] - *cost);
            } else if idle {
                *cost /= Self::DECAY;
            }
            *cost = cost.max(floors[i]);
        }
    }
}

/// Prices of copying a MiB between the two tiers.
struct Prices {
    up: CopyPrice,
    down: CopyPrice,
}

impl Prices {
    /// Returns the initial costs.
    fn cost(&self) -> CopyCost {
        CopyCost {
            up: self.up.wait_us.max(self.up.device_us),
            down: self.down.wait_us.max(self.down.device_us),
        }
    }
}

/// Returns true if a promotion is worth its cost. Scores are requests per migration epoch, ΔL and costs microseconds.
fn worth_it(
    hot: f32,
    cold: f32,
    hot_age: u32,
    gain_us: f64,
    cost_us: f64,
    config: &ArmsConfig,
) -> bool {
    f64::from(hot - cold) * f64::from(hot_age) * gain_us >= config.cost_factor * cost_us
}

/// State between decisions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ArmsState {
    /// Requests since the last migration epoch.
    since: UnitRequests,
    heat: Vec<Heat>,
    averages: Averages,
    change: ChangeDetector,
    cost: Option<CopyCost>,
}

impl Strategy for Arms {
    type Config = ArmsConfig;
    type State = ArmsState;
    const NAME: &'static str = "arms";
    const SUMMARY: &'static str =
        "short and long averages of requests, gain in latency over cost of copies (2025)";
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new(config: ArmsConfig) -> Result<Self, ConfigError> {
        let bad = |key: &str, why: &str| Err(ConfigError::new(Self::NAME, key, why));
        let weight = |w: f64| w > 0.0 && w <= 1.0;
        let share = |s: f64| (0.0..=1.0).contains(&s);
        for (key, value) in [("short", config.short), ("long", config.long)] {
            if !weight(value) {
                return bad(key, "must be above 0 and at most 1");
            }
        }
        if config.long > config.short {
            return bad("long", "must be at most `short`");
        }
        for (key, value) in [
            ("history", config.history),
            ("recency", config.recency),
            ("busy", config.busy),
        ] {
            if !share(value) {
                return bad(key, "must be between 0 and 1");
            }
        }
        if !(0.0..=100.0).contains(&config.write_weight) {
            return bad("write_weight", "must be between 0 and 100");
        }
        if !(config.cost_factor >= 0.0 && config.cost_factor.is_finite()) {
            return bad("cost_factor", "must be 0 or more");
        }
        if config.hot_age == 0 {
            return bad("hot_age", "must be 1 or more");
        }
        if !weight(config.ewma) {
            return bad("ewma", "must be above 0 and at most 1");
        }
        Ok(Self { config })
    }

    fn plan(&self, context: &Context<'_>, state: &ArmsState, draft: &mut Draft) -> ArmsState {
        let facts = context.facts;
        let mut state = state.clone();
        let loads = state.averages.observe(context, self.config.ewma);
        self.look_for_change(context, &loads, &mut state.change);
        let units = Movables::new(context, self.config.unit);
        if let Some(from) = state.since.observe(&units) {
            state.heat = crate::extents::renumbered(&state.heat, &from);
        }
        if facts.placement_due {
            let note = self.promote(context, &units, &mut state, draft);
            draft.notes.push(note);
            state.since.reset();
        }
        state
    }
}

/// Promotion of a unit to the fast tier, and the units that it demotes.
struct Promotion {
    hot: u32,
    cold: Vec<u32>,
}

impl Arms {
    fn look_for_change(
        &self,
        context: &Context<'_>,
        loads: &[TierLoad],
        change: &mut ChangeDetector,
    ) {
        let facts = context.facts;
        let Some(first) = fast_tier(facts, context.policy) else {
            return;
        };
        let lower = || facts.topology.tier_ids().filter(|t| *t > first);
        let bytes_per_s: f64 = lower().map(|t| loads[t.index()].bytes_per_s).sum();
        let bandwidth = |t| facts.topology.sum(t, |s| s.read_bandwidth.as_f64());
        let most: f64 = lower().map(bandwidth).sum();
        change.observe(bytes_per_s, self.config.busy * most);
    }

    /// Returns the weight of a unit's requests in scores.
    fn weight(&self, context: &Context<'_>, unit: &MovableUnit) -> f64 {
        let measured = &context.facts.volumes[unit.volume.index()].measured;
        let reads = measured.as_ref().map_or(1.0, |m| match m.ios() {
            0 => 1.0,
            _ => m.read_share(),
        });
        reads + self.config.write_weight * (1.0 - reads)
    }

    /// Updates scores and ages, and promotes units for which it pays. Returns a note for the report.
    fn promote(
        &self,
        context: &Context<'_>,
        units: &Movables,
        state: &mut ArmsState,
        draft: &mut Draft,
    ) -> String {
        let facts = context.facts;
        let bias = match state.change.recent {
            Some(_) => self.config.recency,
            None => self.config.history,
        };
        let mut before = vec![0.0; units.all.len()];
        for (no, unit) in units.numbered() {
            let heat = &mut state.heat[no as usize];
            before[no as usize] = heat.score;
            // Unknown requests do not change scores.
            if unit.requests.is_some() {
                let requests = f64::from(state.since.count(no)) * self.weight(context, unit);
                heat.observe(requests, bias, &self.config);
            }
        }
        let Some(pair) = Pair::extremes(context, &state.averages) else {
            units.stay(context, draft);
            return "no two tiers take data, or none has requests".into();
        };
        let name = |t: TierId| facts.topology.tier(t).name.as_str();
        let (fast, slow) = (name(pair.fast), name(pair.slow));
        let ranked = ranked(units, &state.heat, &pair);
        let fits = fitting(context, units, &ranked, &pair);
        let (hottest, rest) = ranked.split_at(fits);
        // Units of other tiers keep their age: the next epoch may have another pair.
        for no in hottest {
            state.heat[*no as usize].hot(before[*no as usize], &self.config);
        }
        for no in rest {
            state.heat[*no as usize].cool();
        }
        let mib = |from, to| copy_price(context, &state.averages, from, to, Bytes::mib(1));
        let prices = Prices {
            up: mib(pair.slow, pair.fast),
            down: mib(pair.fast, pair.slow),
        };
        let cost = *state.cost.get_or_insert_with(|| prices.cost());
        let gain_us = pair.slow_us - pair.fast_us;
        let promotions =
            self.promotions(context, units, state, (hottest, rest), &pair, &prices, cost);
        let mut to: BTreeMap<u32, TierId> = BTreeMap::new();
        for promotion in &promotions {
            to.insert(promotion.hot, pair.fast);
            to.extend(promotion.cold.iter().map(|no| (*no, pair.slow)));
        }
        let went_down = promotions.iter().any(|p| !p.cold.is_empty());
        let cost = state.cost.as_mut().expect("it was just set");
        cost.learn([!promotions.is_empty(), went_down], &prices);
        let reason = worth_promoting(fast, slow, gain_us);
        let epoch_s = context.policy.epochs.migration.as_secs_f64();
        let chosen = MoveSelection {
            to,
            reason: &reason,
            gives_way: pair.slow,
            per_s: 1.0 / epoch_s.max(1e-9),
        };
        units.wish(context, &chosen, |no| state.since.count(no), draft);
        let favours = match state.change.recent {
            Some(_) => "recent requests",
            None => "history",
        };
        format!(
            "{fast} {:.0} us, {slow} {:.0} us; {fits} of {} fit on {fast}; scores favour {favours}; {} to be promoted",
            pair.fast_us,
            pair.slow_us,
            ranked.len(),
            promotions.len()
        )
    }

    /// Returns promotions, the hottest first, until one does not pay or the epoch is full.
    #[expect(clippy::too_many_arguments, reason = "one decision's parts")]
    fn promotions(
        &self,
        context: &Context<'_>,
        units: &Movables,
        state: &ArmsState,
        (hottest, rest): (&[u32], &[u32]),
        pair: &Pair,
        prices: &Prices,
        cost: CopyCost,
    ) -> Vec<Promotion> {
        let gain_us = pair.slow_us - pair.fast_us;
        let on = |no: &u32, tier: TierId| units.all[*no as usize].tier == Some(tier);
        let may_go = |no: &u32| !units.all[*no as usize].stays;
        let heat = |no: u32| &state.heat[no as usize];
        let mib = |no: u32| units.all[no as usize].bytes.as_f64() / (1 << 20) as f64;
        let mut coldest = rest
            .iter()
            .rev()
            .filter(|no| on(no, pair.fast) && may_go(no))
            .copied();
        let mut room = units.room(context, pair.fast).as_f64();
        let mut left_s = context.policy.epochs.migration.as_secs_f64();
        let mut promotions = Vec::new();
        for hot in hottest.iter().filter(|no| on(no, pair.slow) && may_go(no)) {
            if !heat(*hot).ready {
                continue;
            }
            let need = units.all[*hot as usize].bytes.as_f64();
            let (mut cost_us, mut copy_s) = (cost.up * mib(*hot), prices.up.copy_s * mib(*hot));
            let (mut cold, mut freed, mut cold_score) = (Vec::new(), 0.0, 0.0);
            while room + freed < need {
                let Some(victim) = coldest.next() else {
                    return promotions;
                };
                if heat(*hot).least() < heat(victim).most() {
                    return promotions;
                }
                freed += units.all[victim as usize].bytes.as_f64();
                cold_score += heat(victim).score;
                cost_us += cost.down * mib(victim);
                copy_s += prices.down.copy_s * mib(victim);
                cold.push(victim);
            }
            let Heat { score, age, .. } = *heat(*hot);
            if copy_s > left_s || !worth_it(score, cold_score, age, gain_us, cost_us, &self.config)
            {
                return promotions;
            }
            room += freed - need;
            left_s -= copy_s;
            promotions.push(Promotion { hot: *hot, cold });
        }
        promotions
    }
}

/// Returns the units of the two tiers, the highest score per byte first. Of equal units, those on the fast tier come first,
/// so they stay.
fn ranked(units: &Movables, heat: &[Heat], pair: &Pair) -> Vec<u32> {
    let mut ranked: Vec<(Reverse<u64>, bool, u32)> = Vec::new();
    for (no, unit) in units.numbered() {
        let Some(tier) = unit.tier.filter(|t| *t == pair.fast || *t == pair.slow) else {
            continue;
        };
        let density = f64::from(heat[no as usize].score) / unit.bytes.as_gib_f64().max(1e-9);
        // Quantized, so rounding in the last bit cannot change the order.
        ranked.push((
            Reverse((density * 1e3).round() as u64),
            tier != pair.fast,
            no,
        ));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|r| r.2).collect()
}

/// Returns the number of ranked units that fit on the fast tier: into the space that units use there now, and its free
/// space.
fn fitting(context: &Context<'_>, units: &Movables, ranked: &[u32], pair: &Pair) -> usize {
    let bytes = |no: &u32| units.all[*no as usize].bytes;
    let there = |no: &&u32| units.all[**no as usize].tier == Some(pair.fast);
    let taken: Bytes = ranked.iter().filter(there).map(bytes).sum();
    let mut left = taken + units.room(context, pair.fast);
    let fits = |no: &&u32| {
        let all = bytes(no);
        let fit = all <= left;
        left = left.saturating_sub(all);
        fit
    };
    ranked.iter().take_while(fits).count()
}

/// Reason of a promotion: the expected gain by the lower latency of the fast tier exceeds the cost of the copies.
fn worth_promoting(fast: &str, slow: &str, gain_us: f64) -> Reason {
    let text = format!(
        "a request takes {gain_us:.0} us less on {fast} than on {slow}; the hottest data goes to {fast} where that pays for the copies"
    );
    Reason::new("worth-promoting", text)
        .with("fast", fast)
        .with("slow", slow)
        .with("gain_us", gain_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_load_is_detected_in_the_ninth_sample() {
        let mut detector = ChangeDetector::default();
        for _ in 0..5 {
            detector.observe(1.0, 0.3);
        }
        assert_eq!(detector.seen, Some((1.0, 0.0)));
        assert_eq!((detector.cusum, detector.recent), (0.0, None));
        // Cumulative sums of a step from 1 to 2, computed independently of this code.
        let sums = [
            0.6988, 1.2534, 1.7018, 2.0672, 2.3661, 2.6109, 2.8114, 2.9754,
        ];
        for sum in sums {
            detector.observe(2.0, 0.3);
            assert!((detector.cusum - sum).abs() < 1e-4, "{}", detector.cusum);
            assert_eq!(detector.recent, None);
        }
        // 3.1092 is above 6 · 0.5072.
        detector.observe(2.0, 0.3);
        assert_eq!((detector.cusum, detector.recent), (0.0, Some(0)));
    }

    #[test]
    fn recency_lasts_twenty_samples_and_until_the_sum_is_zero() {
        let mut detector = ChangeDetector {
            seen: Some((2.0, 0.01)),
            cusum: 0.0,
            recent: Some(0),
        };
        for _ in 0..19 {
            detector.observe(2.0, 0.3);
            assert!(detector.recent.is_some());
        }
        detector.observe(2.0, 0.3);
        assert_eq!(detector.recent, None);
        let mut detector = ChangeDetector {
            seen: Some((2.0, 1.0)),
            cusum: 3.0,
            recent: Some(25),
        };
        detector.observe(2.0, 0.3);
        assert!(detector.cusum > 0.0 && detector.recent == Some(26));
    }

    #[test]
    fn change_of_a_lightly_loaded_tier_is_ignored() {
        let mut detector = ChangeDetector::default();
        for _ in 0..5 {
            detector.observe(0.1, 0.3);
        }
        for _ in 0..20 {
            detector.observe(0.2, 0.3);
        }
        assert_eq!(detector.recent, None);
    }

    #[test]
    fn averages_and_scores_match_published_values() {
        let config = ArmsConfig::default();
        let mut heat = Heat::default();
        assert_eq!(heat.observe(100.0, config.history, &config), 0.0);
        let near = |a: f32, b: f32| assert!((a - b).abs() < 1e-3, "{a} {b}");
        near(heat.short, 66.7);
        near(heat.long, 9.5);
        near(heat.score, 0.4 * 66.7 + 0.6 * 9.5);
        heat.observe(100.0, config.recency, &config);
        near(heat.short, 88.911);
        near(heat.long, 18.0975);
        near(heat.score, 0.731 * 88.911 + 0.269 * 18.0975);
    }

    #[test]
    fn unit_is_ready_in_its_second_hot_epoch_with_a_stable_score() {
        let config = ArmsConfig::default();
        let mut heat = Heat {
            score: 5.0,
            ..Heat::default()
        };
        heat.hot(0.0, &config);
        assert_eq!((heat.age, heat.ready), (1, false));
        heat.hot(6.0, &config);
        assert_eq!((heat.age, heat.ready), (2, false));
        heat.hot(5.0, &config);
        assert_eq!((heat.age, heat.ready), (3, true));
        heat.cool();
        assert_eq!((heat.age, heat.ready), (0, false));
        heat.score = 0.0;
        heat.hot(0.0, &config);
        assert_eq!(heat.age, 0, "idle units fit, but are not hot");
    }

    #[test]
    fn promotion_must_gain_one_and_a_half_times_its_cost() {
        let config = ArmsConfig::default();
        // 40 requests more in each of 3 epochs, 100 us less each: 12,000 us for copies of 8,000 us.
        assert!(worth_it(50.0, 10.0, 3, 100.0, 8_000.0, &config));
        assert!(!worth_it(50.0, 10.0, 3, 100.0, 8_001.0, &config));
        assert!(!worth_it(50.0, 10.0, 2, 100.0, 8_000.0, &config));
        assert!(worth_it(50.0, 0.0, 3, 100.0, 10_000.0, &config));
        assert!(!worth_it(50.0, 0.0, 3, -100.0, 1.0, &config));
    }

    #[test]
    fn copy_costs_follow_copies_and_decay_to_their_floor() {
        let price = |wait_us, device_us| CopyPrice {
            wait_us,
            device_us,
            copy_s: 0.1,
        };
        let prices = Prices {
            up: price(310.0, 40.0),
            down: price(100.0, 40.0),
        };
        let mut cost = CopyCost {
            up: 100.0,
            down: 100.0,
        };
        cost.learn([true, false], &prices);
        assert!((cost.up - 120.0).abs() < 1e-9 && cost.down == 100.0);
        cost.learn([false, false], &prices);
        assert!((cost.up - 80.0).abs() < 1e-9);
        for _ in 0..5 {
            cost.learn([false, false], &prices);
        }
        assert_eq!((cost.up, cost.down), (40.0, 40.0));
    }
}
