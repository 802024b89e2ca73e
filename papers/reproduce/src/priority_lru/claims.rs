//! Claims of paper 2 about its evaluation, measured in one reading.

use super::job::Variant;
use super::published::{CUSTOMERS, GROUPS, LRU_MS, PRIORITY_GAIN, QOS_GAIN, REGULAR_MS};
use super::view::{OfSeed, View};
use crate::claim::{ClaimFinding, Measure, Rule, Value, measure, said};

const HIGH: usize = 0;
const TOTAL: usize = 3;
/// Indexes of customers.
const ALL: [usize; 4] = [0, 1, 2, 3];
const WITH_GAINS: [usize; 3] = [0, 1, 3];

/// Evaluates all claims. The first `warmup` hours are not measured.
pub(super) fn claims(view: &View<'_>, warmup: u32) -> Vec<ClaimFinding> {
    use Rule::{Above, Between};
    let improved = |columns: [Variant; 2], customers: &[usize], groups: &[usize], rule: Rule| {
        let printed = match columns {
            Variant::FIRST => &PRIORITY_GAIN,
            _ => &QOS_GAIN,
        };
        let mut measures: Vec<Measure> = Vec::new();
        for c in customers {
            for g in groups {
                let name = format!("{}, {}: improvement", CUSTOMERS[*c], GROUPS[*g]);
                let ours = view.improvement(CUSTOMERS[*c], columns, *g);
                measures.push(measure(name, ours, rule).printed(printed[*c][*g]));
            }
        }
        measures
    };
    let (first, second) = (Variant::FIRST, Variant::SECOND);
    let one = |name: &str, ours: Option<Value>, rule: Rule| vec![measure(name, ours, rule)];
    let ratio =
        |s: &OfSeed<'_>| Some(s.ms(Variant::QosLru, TOTAL)? / s.ms(Variant::Regular, TOTAL)?);
    let back_end = Value::of_ratios(&view.seeds(CUSTOMERS[0]), ratio).map(|v| v.map(|r| r - 1.0));
    let back_end_published = LRU_MS[0][TOTAL] / REGULAR_MS[0][TOTAL] - 1.0;
    let two = CUSTOMERS[1];
    let cached = |s: &OfSeed<'_>, v: Variant| s.group(v, HIGH)?.cached_share;
    let more_cached = view.over(two, |s| {
        Some(cached(s, Variant::QosPriorityLru)? - cached(s, Variant::QosLru)?)
    });
    let ssd = |s: &OfSeed<'_>, v: Variant| s.group(v, HIGH)?.device_share.first().copied()?;
    let more_ssd = view.over(two, |s| {
        Some(ssd(s, Variant::QosPriorityLru)? - ssd(s, Variant::Regular)?)
    });
    vec![
        said(
            "high-group",
            "Table I",
            "Priority-LRU lowers the high group's response time at every customer (8 to 42 %)",
        )
        .found(improved(first, &ALL, &[HIGH], Above(0.0))),
        said(
            "all-groups",
            "Table I, Sec. IV",
            "At customers 1 and 2 every group gains, including the low group",
        )
        .found(improved(first, &[0, 1], &[0, 1, 2], Above(0.0))),
        said(
            "totals",
            "Table I",
            "The whole array gains at customers 1, 2 and 4",
        )
        .found(improved(first, &WITH_GAINS, &[TOTAL], Above(0.0))),
        said("most-at-1", "Table I", "Customer 1 gains most").found(most_at_1(view)),
        said(
            "nothing-at-3",
            "Table I, Sec. IV",
            "Customer 3 has almost no gain: newly seen I/Os fill the devices' queues, so the cache hardly matters",
        )
        .found(improved(first, &[2], &[TOTAL], Between(-0.02, 0.02))),
        said(
            "integrated",
            "Table II",
            "Cache and back end with classes beat the regular system at customers 1, 2 and 4 (22 to 73 % in total)",
        )
        .found(improved(second, &WITH_GAINS, &[TOTAL], Above(0.1))),
        said(
            "integrated-high",
            "Table II",
            "The high group gains at every customer (9 to 92 %)",
        )
        .found(improved(second, &ALL, &[HIGH], Above(0.0))),
        said(
            "back-end-alone",
            "Tables I and II, Sec. V",
            "At customer 1 the QoS back end alone is worse than the regular system (4.06 against 3.87 ms)",
        )
        .printed(back_end_published)
        .found(vec![
            measure("change of the total", back_end, Above(0.0)).printed(back_end_published),
        ]),
        said(
            "more-in-cache",
            "Fig. 2 (a), customer 2",
            "The cache serves more of the high group's I/Os (up to 10 points by hour)",
        )
        .found(one("share, all hours, more", more_cached, Above(0.0))),
        said(
            "more-on-ssd",
            "Fig. 5, customer 2",
            "18 to 76 points more of the high group's I/Os are served by the SSD than in the regular system",
        )
        .found(one("share, all hours, more", more_ssd, Above(0.1))),
        said(
            "under-target",
            "Sec. V, customer 2",
            "The integrated system keeps the high group within 2 ms for the whole period (but for hours 11 and 13)",
        )
        .found(one(
            "share of hours",
            view.over(two, |s| hours_within(s, warmup)),
            Above(0.9),
        )),
    ]
}

/// Measures the total gain of customer 1 minus that of each other customer, per seed.
fn most_at_1(view: &View<'_>) -> Vec<Measure> {
    let [before, after] = Variant::FIRST;
    let gain = |s: &OfSeed<'_>| Some(1.0 - s.ms(after, TOTAL)? / s.ms(before, TOTAL)?);
    let others = CUSTOMERS[1..].iter().map(|other| {
        let seeds = view.seeds(CUSTOMERS[0]).into_iter();
        let pairs: Vec<_> = seeds.zip(view.seeds(other)).collect();
        let more = Value::over(&pairs, |(one, other)| Some(gain(one)? - gain(other)?));
        measure(
            format!("improvement of {} minus that of {other}", CUSTOMERS[0]),
            more,
            Rule::Above(0.0),
        )
    });
    others.collect()
}

/// Returns the share of the measured hours in which the mean of the high group is within its target, 0..=1.
fn hours_within(seed: &OfSeed<'_>, warmup: u32) -> Option<f64> {
    const TARGET_MS: f64 = 2.0;
    let hours = &seed.result(Variant::QosPriorityLru)?.hours;
    let counted = hours.iter().filter(|h| h.hour >= warmup);
    let means: Vec<f64> = counted
        .filter_map(|h| seed.mean.of(&h.classes[HIGH]))
        .collect();
    let within = means.iter().filter(|ms| **ms <= TARGET_MS).count();
    (!means.is_empty()).then(|| within as f64 / means.len() as f64)
}
