//! Outcome as a document of tables and charts.

use report::{Block, Cell, Column, Document, Tone, number, words};

use super::charts;
use super::job::{ArrayKind, Load, Run, Variant};
use super::outcome::{Outcome, Table, Tables};
use super::published::{CUSTOMERS, GROUPS, HOURS};
use super::view::group;
use crate::claim::Value;
use crate::page::{numbers, scorecard, section, value};

const DISKS: ArrayKind = ArrayKind::Disks;

/// Makes the document from the outcome.
pub fn document(outcome: &Outcome) -> Document {
    let two = CUSTOMERS[1];
    let in_each = |text: &str, of: fn(&Tables) -> &Table| {
        let mut blocks = vec![Block::Text(text.into())];
        for tables in &outcome.tables {
            blocks.push(Block::Text(format!("Reading: {}.", tables.reading)));
            blocks.push(rows(of(tables)));
        }
        blocks
    };
    let load = outcome.setup.loads[0];
    let figures = Figures { outcome, load };
    let mut sections = scorecard(&outcome.scorecard);
    sections.extend([
        section("table1", "Table I: LRU and Priority-LRU", in_each("Both with the QoS back end. Mean response times, ms.", |t| &t.table_1)),
        section("table2", "Table II: the regular and the integrated system", in_each("LRU with a back end without classes, against cache and back end with classes.", |t| &t.table_2)),
        section("loads", "Response times of the classes", vec![
            Block::Text("Mean response times of the first hours under LRU with the QoS back end, ms: published, as drawn, and with the matched load. Distance: root mean square of the logarithms of ours over published.".into()),
            matchings(outcome),
        ]),
        section("methods", "All combinations of cache and back end", vec![
            Block::Text("First seed. p50, p95 and p99 are over all requests of a customer. Within target: volume-hours whose mean response time is within the class's target.".into()),
            methods(outcome, DISKS, &CUSTOMERS),
            Block::Text(why_not(&figures)),
        ]),
        section("fig1", "Figs. 1 and 3: response times by hour, customer 2", vec![charts::responses(&figures, DISKS, two, &[Variant::QosLru, Variant::QosPriorityLru, Variant::Regular])]),
        section("fig2", "Fig. 2: I/Os served by the cache, customer 2", vec![charts::cached(&figures, two, Variant::FIRST)]),
        section("fig4", "Figs. 4 and 5: the regular and the integrated system, customer 2", vec![
            charts::cached(&figures, two, Variant::SECOND),
            charts::devices(&figures, two, Variant::SECOND),
        ]),
        section("hours", "Single hours of customer 2", vec![
            Block::Text("Values of single hours in the text of the paper. Ours are other hours of another customer, so they only show the order of magnitude.".into()),
            hours(&figures),
        ]),
        section("customer3", "Little gain: customer 3", vec![
            charts::responses(&figures, DISKS, CUSTOMERS[2], &Variant::FIRST),
            charts::cached(&figures, CUSTOMERS[2], Variant::FIRST),
        ]),
        section("flash", "A modern all-flash array", vec![
            Block::Text("Customer 2's volumes as drawn on TLC and QLC drives, first seed; targets 0.15, 0.3 and 0.6 ms.".into()),
            methods(outcome, ArrayKind::Flash, &[two]),
            Block::Text("Wear of the flash in the measured hours, including the copies of exchanges. Years: time until the blocks of the most worn drive reach their cycles at this rate (the day is compressed to 24 minutes: divide drive writes by real days, not by these).".into()),
            wear(outcome),
            charts::responses(&Figures { load: Load::AsDrawn, ..figures }, ArrayKind::Flash, two, &Variant::FIRST),
        ]),
        section("assumptions", "Unpublished details and assumptions", vec![Block::List(outcome.assumptions.clone())]),
        numbers(&outcome.scorecard.claims),
    ]);
    let seeds: Vec<String> = outcome.setup.seeds.iter().map(u64::to_string).collect();
    let scale = outcome.setup.scale;
    Document {
        title: "Priority-LRU and QoS-aware exchanges (paper 2), repeated".into(),
        facts: vec![
            ("sources of customers".into(), outcome.setup.sources.clone()),
            (
                "hours".into(),
                format!(
                    "{} of {} s; the first two are not measured",
                    scale.hours, scale.hour_s
                ),
            ),
            (
                "requests".into(),
                format!("{:.2} billion", outcome.requests as f64 / 1e9),
            ),
            ("seeds".into(), seeds.join(", ")),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

/// Runs that the figures show: those of the first seed with one load.
#[derive(Clone, Copy)]
pub(super) struct Figures<'a> {
    outcome: &'a Outcome,
    load: Load,
}

impl<'a> Figures<'a> {
    /// Returns a run, and the names of the kinds of devices.
    pub(super) fn run(
        &self,
        array: ArrayKind,
        customer: &str,
        variant: Variant,
    ) -> Option<(&'a Run, &'a [String])> {
        let job = self.outcome.first(array, customer, self.load)?;
        let run = job.runs.iter().find(|r| r.variant == variant)?;
        Some((run, &job.kinds))
    }
}

fn matchings(outcome: &Outcome) -> Block {
    const CLASSES: &str = "high / medium / low, ms";
    let columns = vec![
        words("customer"),
        number("seed", ""),
        number("published", CLASSES),
        number("as drawn", CLASSES),
        number("matched", CLASSES),
        number("load", "high / medium / low, times as drawn"),
        number("distance", "as drawn"),
        number("distance", "matched"),
    ];
    let three = |values: [Option<f64>; 3]| {
        values
            .map(|v| v.map_or("–".into(), |v| format!("{v:.2}")))
            .join(" / ")
    };
    let of = |r: &super::job::JobResult| {
        let m = r.matching.as_ref()?;
        Some(vec![
            Cell::from(r.customer.as_str()),
            r.seed.to_string().into(),
            three(m.published_ms.map(Some)).into(),
            three(m.drawn_ms).into(),
            three(m.reached_ms).into(),
            three(m.factors.map(Some)).into(),
            format!("{:.2}", m.distance[0]).into(),
            format!("{:.2}", m.distance[1]).into(),
        ])
    };
    Block::Table(columns, outcome.runs.iter().filter_map(of).collect())
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn percent_of(v: Value) -> String {
    value(&v.map(|x| 100.0 * x))
}

fn rows(table: &Table) -> Block {
    let [a, b] = table.columns.map(Variant::name);
    let columns = vec![
        words("customer"),
        words("group"),
        number(a, "published ms"),
        number(b, "published ms"),
        number("better by", "published %"),
        number(a, "ours ms"),
        number(b, "ours ms"),
        number("better by", "ours %"),
    ];
    let rows = table.rows.iter().map(|r| -> Vec<Cell> {
        let ms = |i: usize| r.ours_ms[i].map_or("–".to_string(), |v| value(&v));
        let tone = match r.improvement.map(|v| v.mean) {
            Some(x) if x * r.published_improvement > 0.0 => Tone::Good,
            Some(_) if r.published_improvement.abs() > 0.01 => Tone::Bad,
            _ => Tone::Plain,
        };
        vec![
            r.customer.into(),
            r.group.into(),
            format!("{:.2}", r.published_ms[0]).into(),
            format!("{:.2}", r.published_ms[1]).into(),
            percent(r.published_improvement).into(),
            ms(0).into(),
            ms(1).into(),
            Cell {
                text: r.improvement.map_or("–".into(), percent_of),
                tone,
            },
        ]
    });
    Block::Table(columns, rows.collect())
}

fn methods(outcome: &Outcome, array: ArrayKind, customers: &[&str]) -> Block {
    let mut columns: Vec<Column> = vec![words("customer"), words("load"), words("managed by")];
    columns.extend(GROUPS.map(|g| number(g, "mean ms")));
    columns.extend([
        number("requests", "M"),
        number("without the slowest", "mean ms"),
        number("p50", "ms"),
        number("p95", "ms"),
        number("p99", "ms"),
        number("in cache", "%"),
        number("within target", "% high"),
        number("within target", "% medium"),
        number("within target", "% low"),
    ]);
    let jobs = customers.iter().flat_map(|c| {
        let loads = outcome.setup.loads.iter().copied();
        let loads = loads.filter(|l| array == DISKS || *l == Load::AsDrawn);
        loads.filter_map(|load| outcome.first(array, c, load))
    });
    let runs = jobs.flat_map(|job| job.runs.iter().map(move |run| (job, run)));
    let ms = |x: Option<f64>| x.map_or("–".to_string(), |x| format!("{x:.2}"));
    let row = |(job, run): (&super::job::JobResult, &Run)| -> Vec<Cell> {
        let mut row: Vec<Cell> = vec![
            job.customer.as_str().into(),
            job.load.name().into(),
            run.variant.name().into(),
        ];
        row.extend((0..4).map(|g| Cell::from(ms(group(&run.result, g).response_mean_ms))));
        let total = &run.result.total;
        row.push(format!("{:.1}", total.requests as f64 / 1e6).into());
        row.push(ms(total.response_trimmed_ms).into());
        row.push(ms(total.response_p50_ms).into());
        row.push(ms(total.response_p95_ms).into());
        row.push(ms(total.response_p99_ms).into());
        row.push(total.cached_share.map_or("–".into(), percent).into());
        let within = run.result.within_target.iter();
        row.extend(within.map(|w| Cell::from(w.map_or("–".into(), percent))));
        row
    };
    Block::Table(columns, runs.map(row).collect())
}

fn wear(outcome: &Outcome) -> Block {
    let columns = vec![
        words("managed by"),
        words("drives"),
        number("written", "GiB"),
        number("by class", "% high"),
        number("by class", "% medium"),
        number("by class", "% low"),
        number("by copies", "%"),
        number("write amplification", ""),
        number("drive writes", ""),
        number("years", ""),
    ];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let job = outcome.first(ArrayKind::Flash, CUSTOMERS[1], Load::AsDrawn);
    for run in job.into_iter().flat_map(|j| &j.runs) {
        for w in &run.result.wear {
            let gib = w.host_bytes as f64 / f64::from(1 << 30);
            let mut row: Vec<Cell> = vec![
                run.variant.name().into(),
                w.kind.clone().into(),
                format!("{gib:.0}").into(),
            ];
            row.extend(w.written_share.iter().map(|s| Cell::from(percent(*s))));
            let copies = 1.0 - w.written_share.iter().sum::<f64>();
            let or_dash = |x: Option<f64>| x.map_or("–".to_string(), |x| format!("{x:.2}"));
            row.push(percent(copies).into());
            row.push(or_dash(w.waf).into());
            row.push(format!("{:.3}", w.drive_writes).into());
            row.push(or_dash(w.years).into());
            rows.push(row);
        }
    }
    Block::Table(columns, rows)
}

/// Returns text about the effect of Priority-LRU at customer 3, with an explanation if the numbers show that it cancels the gain of HR-LRU.
fn why_not(figures: &Figures<'_>) -> String {
    let run = |v| figures.run(DISKS, CUSTOMERS[2], v).map(|(r, _)| &r.result);
    let shares = [Variant::QosLru, Variant::QosHrLru, Variant::QosPriorityLru]
        .map(|v| run(v).and_then(|r| r.total.cached_share));
    let last = run(Variant::QosPriorityLru).and_then(|r| r.hours.last()?.priorities.clone());
    let ([Some(lru), Some(hr), Some(priority)], Some(priorities)) = (shares, last) else {
        return "LRU, HR-LRU and Priority-LRU were not all run with this load.".into();
    };
    let each: Vec<String> = priorities.iter().map(|p| format!("{p:+.0}")).collect();
    let mut text = format!(
        "Customer 3 scans. The cache serves {} % of its requests under LRU, {} % under HR-LRU and {} % under Priority-LRU, whose priorities at the end average {} % (high, medium, low).",
        percent(lru),
        percent(hr),
        percent(priority),
        each.join(", ")
    );
    if hr > priority && priorities.iter().any(|p| *p > 10.0) {
        text += " High priorities insert pages that are read once near the top of the cache, where HR-LRU does not insert them, which cancels the gain of HR-LRU on scans.";
    }
    text + " In the paper, queues of first accesses at the devices hide the effect of the cache."
}

/// Compares published values of single hours of customer 2 with the same hours of ours. Both the hours and the customer differ, so only the
/// order of magnitude can be compared.
fn hours(figures: &Figures<'_>) -> Block {
    let columns = vec![
        number("hour", ""),
        words("group"),
        words("managed by"),
        number("published", "ms"),
        number("ours", "ms"),
    ];
    let rows = HOURS
        .iter()
        .map(|(hour, group, variant, published)| -> Vec<Cell> {
            let run = figures.run(DISKS, CUSTOMERS[1], *variant);
            let found = run.and_then(|(r, _)| r.result.hours.get(*hour as usize));
            let ours = found.and_then(|h| h.classes[*group].response_mean_ms);
            vec![
                hour.to_string().into(),
                GROUPS[*group].into(),
                variant.name().into(),
                format!("{published:.2}").into(),
                ours.map_or("–".to_string(), |ms| format!("{ms:.2}")).into(),
            ]
        });
    Block::Table(columns, rows.collect())
}
