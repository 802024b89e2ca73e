//! What paper 2 says about its evaluation, and what becomes of it here.

use serde::Serialize;

use super::job::Variant;
use super::outcome::{Row, Table};
use super::published::CUSTOMERS;
use crate::autotiering::Verdict;

/// What a number has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// Above this.
    Above(f64),
    /// Between these.
    Within(f64, f64),
}

/// One number of a claim.
#[derive(Debug, Clone, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: String,
    /// As printed, where it is.
    pub published: Option<f64>,
    /// What it has to be.
    pub expected: Expected,
    /// What it is here; none where there were no requests.
    pub ours: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
}

/// One claim.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// In words.
    pub says: &'static str,
    /// Agrees where all numbers do, disagrees where none does, otherwise undecided.
    pub verdict: Verdict,
    /// The numbers.
    pub measures: Vec<Measure>,
}

fn measure(
    name: impl Into<String>,
    published: Option<f64>,
    ours: Option<f64>,
    expected: Expected,
) -> Measure {
    let keeps = ours.map(|x| match expected {
        Expected::Above(than) => x > than,
        Expected::Within(low, high) => x >= low && x <= high,
    });
    let verdict = match keeps {
        Some(true) => Verdict::Agrees,
        Some(false) => Verdict::Disagrees,
        None => Verdict::Undecided,
    };
    Measure {
        name: name.into(),
        published,
        expected,
        ours,
        verdict,
    }
}

fn claim(
    id: &'static str,
    source: &'static str,
    says: &'static str,
    measures: Vec<Measure>,
) -> Claim {
    let count = |v: Verdict| measures.iter().filter(|m| m.verdict == v).count();
    let verdict = if count(Verdict::Agrees) == measures.len() {
        Verdict::Agrees
    } else if count(Verdict::Disagrees) == measures.len() {
        Verdict::Disagrees
    } else {
        Verdict::Undecided
    };
    Claim {
        id,
        source,
        says,
        verdict,
        measures,
    }
}

/// Improvements of a table in a group of some customers.
fn improved(table: &Table, customers: &[&str], group: &str, expected: Expected) -> Vec<Measure> {
    let wanted = |r: &&Row| customers.contains(&r.customer) && r.group == group;
    let of = |r: &Row| {
        let name = format!("{}, {group}: improvement", r.customer);
        measure(name, Some(r.published_improvement), r.improvement, expected)
    };
    table.rows.iter().filter(wanted).map(of).collect()
}

/// Numbers that claims need beside the tables.
pub(super) struct Beside {
    /// Change of the total from the regular system to QoS and LRU at customer 1, over the regular one.
    pub(super) back_end_alone: Option<f64>,
    /// Change of the share of requests satisfied in cache by Priority-LRU, high group, customer 2.
    pub(super) cached_gain: Option<f64>,
    /// Change of the SSD's share of what reaches devices, high group, customer 2, regular to QoS.
    pub(super) ssd_gain: Option<f64>,
    /// Share of the hours that count in which the high group of customer 2 is within its target.
    pub(super) hours_within: Option<f64>,
}

/// All of them, judged.
pub(super) fn claims(first: &Table, second: &Table, beside: &Beside) -> Vec<Claim> {
    use Expected::{Above, Within};
    let [one, two, three, four] = CUSTOMERS;
    let mut groups_of_two: Vec<Measure> = Vec::new();
    for group in ["high", "medium", "low"] {
        groups_of_two.extend(improved(first, &[one, two], group, Above(0.0)));
    }
    let mut biggest = Vec::new();
    let total = |customer: &str| {
        let row = first
            .rows
            .iter()
            .find(|r| r.customer == customer && r.group == "total");
        row.and_then(|r| r.improvement)
    };
    for other in [two, three, four] {
        let over = total(one).zip(total(other)).map(|(a, b)| a - b);
        biggest.push(measure(
            format!("{one} over {other}"),
            None,
            over,
            Above(0.0),
        ));
    }
    vec![
        claim(
            "high-group",
            "Table I",
            "Priority-LRU lowers the high group's response time at every customer (8 to 42 %)",
            improved(first, &CUSTOMERS, "high", Above(0.0)),
        ),
        claim(
            "all-groups",
            "Table I, Sec. IV",
            "At customers 1 and 2 every group gains, the low one too",
            groups_of_two,
        ),
        claim(
            "totals",
            "Table I",
            "The whole array gains at customers 1, 2 and 4",
            improved(first, &[one, two, four], "total", Above(0.0)),
        ),
        claim("most-at-1", "Table I", "Customer 1 gains most", biggest),
        claim(
            "nothing-at-3",
            "Table I, Sec. IV",
            "Customer 3 gains next to nothing: newly seen I/Os fill the devices' queues, the cache hardly matters",
            improved(first, &[three], "total", Within(-0.02, 0.02)),
        ),
        claim(
            "integrated",
            "Table II",
            "Cache and back end with classes beat the regular system at customers 1, 2 and 4 (22 to 73 % in total)",
            improved(second, &[one, two, four], "total", Above(0.1)),
        ),
        claim(
            "integrated-high",
            "Table II",
            "The high group gains at every customer (9 to 92 %)",
            improved(second, &CUSTOMERS, "high", Above(0.0)),
        ),
        claim(
            "back-end-alone",
            "Tables I and II, Sec. V",
            "At customer 1 the QoS back end alone is worse than the regular system (4.06 against 3.87 ms)",
            vec![measure(
                "change of the total",
                Some(4.06 / 3.87 - 1.0),
                beside.back_end_alone,
                Above(0.0),
            )],
        ),
        claim(
            "more-in-cache",
            "Fig. 2 (a), customer 2",
            "More of the high group's I/Os are satisfied in the cache (up to 10 points by hour)",
            vec![measure(
                "points, all hours",
                None,
                beside.cached_gain,
                Above(0.0),
            )],
        ),
        claim(
            "more-on-ssd",
            "Fig. 5, customer 2",
            "18 to 76 points more of the high group's I/Os are served by the SSD than in the regular system",
            vec![measure(
                "points, all hours",
                None,
                beside.ssd_gain,
                Above(0.1),
            )],
        ),
        claim(
            "under-target",
            "Sec. V, customer 2",
            "The integrated system keeps the high group within 2 ms for the whole period (but for hours 11 and 13)",
            vec![measure(
                "share of hours",
                None,
                beside.hours_within,
                Above(0.9),
            )],
        ),
    ]
}

impl Variant {
    /// The columns of table I.
    pub(super) const FIRST: [Self; 2] = [Self::QosLru, Self::QosPriorityLru];
    /// The columns of table II.
    pub(super) const SECOND: [Self; 2] = [Self::Regular, Self::QosPriorityLru];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_all_of_its_numbers_and_both_sides_of_a_limit() {
        use Expected::{Above, Within};
        let of = |ours, expected| measure("", None, ours, expected).verdict;
        assert_eq!(of(Some(0.01), Above(0.0)), Verdict::Agrees);
        assert_eq!(of(Some(0.0), Above(0.0)), Verdict::Disagrees);
        assert_eq!(of(None, Above(0.0)), Verdict::Undecided);
        for (ours, verdict) in [
            (-0.4, Verdict::Disagrees),
            (-0.02, Verdict::Agrees),
            (0.02, Verdict::Agrees),
            (0.24, Verdict::Disagrees),
        ] {
            assert_eq!(of(Some(ours), Within(-0.02, 0.02)), verdict, "{ours}");
        }
        let together = |values: &[f64]| {
            let all = values
                .iter()
                .map(|v| measure("", None, Some(*v), Above(0.0)));
            claim("", "", "", all.collect()).verdict
        };
        assert_eq!(together(&[1.0, 2.0]), Verdict::Agrees);
        assert_eq!(together(&[1.0, -2.0]), Verdict::Undecided);
        assert_eq!(together(&[-1.0, -2.0]), Verdict::Disagrees);
    }
}
