//! The outcome to read.

use report::{Block, Cell, Column, Document, Tone, number, words};

use super::charts;
use super::claims::{Claim, Expected};
use super::job::{JobResult, Variant};
use super::outcome::{Outcome, Table, group};
use super::published::{CUSTOMERS, GROUPS, HOURS};
use crate::page::{section, verdict_cell};

/// As a document of tables and charts.
pub fn document(outcome: &Outcome) -> Document {
    let two = CUSTOMERS[1];
    let of_tables = |text: &str, table: &Table| vec![Block::Text(text.into()), rows(table)];
    let sections = vec![
        section("scorecard", "Scorecard", scorecard(outcome)),
        section("table1", "Table I: LRU and Priority-LRU", of_tables("Both with the QoS back end. Means over requests, ms.", &outcome.table_1)),
        section("table2", "Table II: the regular system and the integrated one", of_tables("Back end without classes and LRU, against both with classes.", &outcome.table_2)),
        section("methods", "All ways to manage cache and back end", vec![
            Block::Text("p95 and p99 are over all requests of a customer. Within target: volume-hours whose mean response time is within the class's target.".into()),
            methods(outcome, &CUSTOMERS),
            Block::Text(why_not(outcome)),
        ]),
        section("fig1", "Figs. 1 and 3: response times by hour, customer 2", vec![charts::responses(outcome, two, &[Variant::QosLru, Variant::QosPriorityLru, Variant::Regular])]),
        section("fig2", "Fig. 2: I/Os satisfied in the cache, customer 2", vec![charts::cached(outcome, two, Variant::FIRST)]),
        section("fig4", "Figs. 4 and 5: the regular system and the integrated one, customer 2", vec![
            charts::cached(outcome, two, Variant::SECOND),
            charts::devices(outcome, two, Variant::SECOND),
        ]),
        section("hours", "Single hours of customer 2", vec![
            Block::Text("What the text of the paper says of single hours. Ours are other hours of another customer: they show of what order such hours are, no more.".into()),
            hours(outcome),
        ]),
        section("customer3", "Where there is little to gain: customer 3", vec![
            charts::responses(outcome, CUSTOMERS[2], &Variant::FIRST),
            charts::cached(outcome, CUSTOMERS[2], Variant::FIRST),
        ]),
        section("flash", "A modern all-flash array", vec![
            Block::Text("Customer 2's volumes on TLC and QLC drives; targets 0.15, 0.3 and 0.6 ms.".into()),
            methods(outcome, &["all-flash"]),
            Block::Text("What this did to the flash. Redundancy and copies of exchanges are written too; years are those until the blocks of the most worn drive have had their cycles, at this rate (the day is compressed to 24 minutes: divide drive writes by real days, not by these).".into()),
            wear(outcome),
            charts::responses(outcome, "all-flash", &[Variant::QosLru, Variant::QosPriorityLru]),
        ]),
        section("assumptions", "What is not published, and what was assumed", vec![Block::List(outcome.assumptions.clone())]),
    ];
    Document {
        title: "Priority-LRU and QoS-aware exchanges (paper 2), repeated".into(),
        facts: vec![
            ("customers made of".into(), outcome.setup.sources.clone()),
            (
                "hours".into(),
                format!(
                    "{}, of which the first two do not count",
                    outcome.setup.hours
                ),
            ),
            (
                "requests".into(),
                format!("{:.2} billion", outcome.requests as f64 / 1e9),
            ),
            ("seed".into(), outcome.setup.seed.to_string()),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn scorecard(outcome: &Outcome) -> Vec<Block> {
    let columns = vec![
        words("claim"),
        words("where"),
        words("published"),
        words("verdict"),
        words("ours"),
    ];
    let row = |c: &Claim| -> Vec<Cell> {
        let verdict = verdict_cell(c.verdict, "");
        vec![
            c.id.into(),
            c.source.into(),
            c.says.into(),
            verdict,
            found(c).into(),
        ]
    };
    vec![
        Block::Text("Agrees: all numbers of a claim do. Disagrees: none does. Undecided: some do. One seed: a number that is close to its limit may fall on the other side with another.".into()),
        Block::Table(columns, outcome.scorecard.iter().map(row).collect()),
    ]
}

/// The numbers of a claim in one line: how many agree, and each.
fn found(claim: &Claim) -> String {
    let each = claim.measures.iter().map(|m| {
        let limit = match m.expected {
            Expected::Above(x) => format!("> {}", percent(x)),
            Expected::Within(low, high) => format!("{} to {}", percent(low), percent(high)),
        };
        let ours = m.ours.map_or("–".into(), percent);
        let published = m
            .published
            .map_or(String::new(), |p| format!(", published {}", percent(p)));
        format!("{}: {ours} % ({limit}{published})", m.name)
    });
    each.collect::<Vec<_>>().join("; ")
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
        let ms = |i: usize| {
            r.ours_ms
                .map_or("–".to_string(), |ms| format!("{:.2}", ms[i]))
        };
        let tone = match r.improvement {
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
                text: r.improvement.map_or("–".into(), percent),
                tone,
            },
        ]
    });
    Block::Table(columns, rows.collect())
}

fn methods(outcome: &Outcome, customers: &[&str]) -> Block {
    let mut columns: Vec<Column> = vec![words("customer"), words("managed by")];
    columns.extend(GROUPS.map(|g| number(g, "mean ms")));
    columns.extend([
        number("requests", "M"),
        number("p95", "ms"),
        number("p99", "ms"),
        number("in cache", "%"),
        number("within target", "% high"),
        number("within target", "% medium"),
        number("within target", "% low"),
    ]);
    let runs = customers
        .iter()
        .flat_map(|c| Variant::ALL.map(|v| outcome.run(c, v)))
        .flatten();
    let ms = |x: Option<f64>| x.map_or("–".to_string(), |x| format!("{x:.2}"));
    let row = |run: &JobResult| -> Vec<Cell> {
        let mut row: Vec<Cell> = vec![run.customer.into(), run.variant.name().into()];
        row.extend((0..4).map(|g| Cell::from(ms(group(run, g).response_mean_ms))));
        let total = &run.result.total;
        row.push(format!("{:.1}", total.requests as f64 / 1e6).into());
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
    for variant in Variant::ALL {
        let run = outcome.run("all-flash", variant);
        for w in run.into_iter().flat_map(|r| &r.result.wear) {
            let gib = w.host_bytes as f64 / f64::from(1 << 30);
            let mut row: Vec<Cell> = vec![
                variant.name().into(),
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

/// What Priority-LRU does at customer 3, in numbers, and what they mean if they do.
fn why_not(outcome: &Outcome) -> String {
    let run = |v| outcome.run(CUSTOMERS[2], v).map(|r| &r.result);
    let shares = [Variant::QosLru, Variant::QosHrLru, Variant::QosPriorityLru]
        .map(|v| run(v).and_then(|r| r.total.cached_share));
    let last = run(Variant::QosPriorityLru).and_then(|r| r.hours.last()?.priorities.clone());
    let ([Some(lru), Some(hr), Some(priority)], Some(priorities)) = (shares, last) else {
        return "Customer 3 was not run.".into();
    };
    let each: Vec<String> = priorities.iter().map(|p| format!("{p:+.0}")).collect();
    let mut text = format!(
        "Customer 3 scans. {} % of its requests are satisfied in the cache under LRU, {} % under HR-LRU, {} % under Priority-LRU, whose priorities are {} % on average at the end (high, medium, low).",
        percent(lru),
        percent(hr),
        percent(priority),
        each.join(", ")
    );
    if hr > priority && priorities.iter().any(|p| *p > 10.0) {
        text += " Priorities that are high lift what is read once to places near the top, where HR-LRU keeps it out: what it gains against scans is lost again.";
    }
    text + " In the paper queues at the devices, filled by what was never seen before, hide what a cache can do."
}

/// What the paper says of single hours of customer 2, and the same hours of ours, which are other hours of another customer.
fn hours(outcome: &Outcome) -> Block {
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
            let run = outcome.run(CUSTOMERS[1], *variant);
            let found = run.and_then(|r| r.result.hours.get(*hour as usize));
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
