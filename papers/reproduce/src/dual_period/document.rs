//! Outcome as a document.

use report::{Block, Cell, Column, Document, Tone, number, words};

use super::charts;
use super::choice::CONSTRUCTIONS;
use super::figures::Improvement;
use super::method::Method;
use super::outcome::Outcome;
use super::sensitivity::Row;
use super::setup::FAST_SHARES;
use crate::claim::Value;
use crate::page::{numbers, scorecard, section, value};

/// Returns the outcome as a document of tables and charts.
pub fn document(outcome: &Outcome) -> Document {
    let setup = &outcome.setup;
    let seeds: Vec<String> = setup.seeds.iter().map(u64::to_string).collect();
    let mut sections = scorecard(&outcome.scorecard);
    sections.extend([
        section("standings", "All methods over all conditions", standings(outcome)),
        section("fig3", "Fig. 3: locality", vec![charts::fig3(outcome), generated(outcome)]),
        section("fig4", "Figs. 4 and 5: condition A, performance and movement", {
            let note = "Whiskers are 95 % intervals over seeds. L = 24 h is 100 %.";
            vec![Block::Text(note.into()), charts::fig4(outcome), charts::fig5(outcome), on_a(outcome)]
        }),
        section("fig6", "Figs. 6 and 7: condition A, against the best existing method", vec![charts::fig6_and_7(outcome), stand_ins(outcome)]),
        section("fig8", "Figs. 8 and 9: the synthetic conditions", {
            let mut blocks = Vec::new();
            for construction in CONSTRUCTIONS {
                for share in [30, 10] {
                    let of = |i: &&Improvement| i.construction == construction && i.fast_share_percent == share;
                    let rows = outcome.figures.fig8_and_9.iter().filter(of);
                    blocks.push(charts::fig8_and_9(outcome, construction, share));
                    blocks.push(Block::Text(format!("Construction: {}. Fast tier {share} %. Totals are in units of the slow tier's performance.", construction.name())));
                    blocks.push(improvements(rows));
                }
            }
            blocks
        }),
        section("movement-io", "Sensitivity: size of a movement I/O", vec![
            Block::Text("Condition A, fast tier 30 %, first seed. Methods that weigh costs know the size.".into()),
            variants("size", &outcome.sensitivity.movement_io),
        ]),
        section("recurring", "Sensitivity: recurring share", vec![
            Block::Text("Condition A, fast tier 30 %, first seed. The stable part has the remaining share.".into()),
            variants("load", &outcome.sensitivity.recurring),
        ]),
        section("construction", "Sensitivity: independent jitter", vec![
            Block::Text("Fast tier 30 %, first seed.".into()),
            variants("load", &outcome.sensitivity.construction),
        ]),
    ]);
    if let Some(found) = &outcome.queueing {
        let alike: u32 = found.orders.iter().map(|o| o.pairs_alike).sum();
        let pairs: u32 = found.orders.iter().map(|o| o.pairs).sum();
        let best = found
            .orders
            .iter()
            .filter(|o| o.by_counting.first() == o.by_latency.first());
        let text = format!(
            "Counting and mean latency put {alike} of {pairs} pairs of methods in the same order, and name the same best method in {} of {} cases.",
            best.count(),
            found.orders.len()
        );
        sections.push(section(
            "queueing",
            "With devices, queues and competing copies",
            vec![
                Block::Text(text),
                queueing(&found.cells),
                orders(&found.orders),
                Block::List(found.assumptions.clone()),
            ],
        ));
    }
    sections.push(section(
        "assumptions",
        "Unpublished details and assumptions",
        vec![Block::List(outcome.assumptions.clone())],
    ));
    sections.push(numbers(&outcome.scorecard.claims));
    Document {
        title: "Dual-period tier control (paper 1), Sec. 4, repeated".into(),
        facts: vec![
            ("seeds".into(), seeds.join(", ")),
            (
                "days".into(),
                format!("{}; the first two are not measured", setup.days),
            ),
            (
                "measured requests".into(),
                format!("{:.1} billion", outcome.requests as f64 / 1e9),
            ),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

/// Properties of each generated synthetic condition, compared with the published ones.
fn generated(outcome: &Outcome) -> Block {
    let mut columns = vec![words("condition"), words("built")];
    columns.extend(["10 %", "20 %", "30 %"].map(|x| number(x, "% of I/Os, all days")));
    columns.extend(["10 %", "20 %", "30 %"].map(|x| number(x, "% of I/Os, one day")));
    let rows = outcome.figures.fig3.iter().flat_map(|l| {
        l.generated.iter().map(|g| {
            let mut row: Vec<Cell> =
                vec![l.condition.to_string().into(), g.construction.name().into()];
            row.extend(
                g.all_days
                    .iter()
                    .chain(&g.one_day)
                    .map(|v| Cell::from(percent(v))),
            );
            row
        })
    });
    Block::Table(columns, rows.collect())
}

fn percent(v: &Value) -> String {
    value(&v.map(|x| 100.0 * x))
}

/// Cell of a gain with half of its interval, coloured if the interval is on one side of zero.
fn gain_over(v: &Value) -> Cell {
    let (low, high) = v.ends();
    let tone = match () {
        () if low > 0.005 => Tone::Good,
        () if high < -0.005 => Tone::Bad,
        () => Tone::Plain,
    };
    let half = v
        .interval
        .map_or(String::new(), |i| format!(" ± {:.1}", 100.0 * i.half()));
    Cell {
        text: format!("{:+.1}{half}", 100.0 * v.mean),
        tone,
    }
}

/// Cell of a gain with its sign and a colour.
fn gain(v: f64) -> Cell {
    Cell {
        text: format!("{:+.1}", 100.0 * v),
        tone: match v {
            v if v > 0.005 => Tone::Good,
            v if v < -0.005 => Tone::Bad,
            _ => Tone::Plain,
        },
    }
}

fn standings(outcome: &Outcome) -> Vec<Block> {
    let columns = vec![
        words("B to G are built"),
        words("method"),
        number("over L = 24 h", "%"),
        number("over best C", "%"),
        number("over best of the 14", "%"),
        number("beats best C", "cells"),
        number("beats best of the 14", "cells"),
        number("worst", "%"),
        words("where"),
    ];
    let rows = outcome.standings.iter().map(|s| {
        vec![
            s.construction.name().into(),
            s.method.clone().into(),
            gain(s.over_24h - 1.0),
            gain(s.over_best_proposed - 1.0),
            gain(s.over_best_fixed - 1.0),
            format!("{} of {}", s.beats_best_proposed, s.cells).into(),
            format!("{} of {}", s.beats_best_fixed, s.cells).into(),
            gain(s.worst.0 - 1.0),
            s.worst.1.clone().into(),
        ]
    });
    vec![
        Block::Text("Total performance, first seed, geometric means over 31 conditions and six sizes of the fast tier. The best of the 14 is the best of the paper's five L and nine C, chosen for each cell in hindsight, which no method can do. The clairvoyant methods know the next hour; neither bounds total performance.".into()),
        Block::Table(columns, rows.collect()),
    ]
}

fn on_a(outcome: &Outcome) -> Block {
    const TOTAL: &str = "% of L = 24 h";
    let columns = vec![
        words("method"),
        number("total, 5 %", TOTAL),
        number("total, 10 %", TOTAL),
        number("total, 15 %", TOTAL),
        number("total, 20 %", TOTAL),
        number("total, 25 %", TOTAL),
        number("total, 30 %", TOTAL),
        number("M, 20 %", "%"),
        number("M, 30 %", "%"),
        number("P·(1 − M), 30 %", TOTAL),
        number("published", "30 %"),
    ];
    let rows = Method::all().into_iter().map(|method| {
        let at = |share: u8| {
            let rows = &outcome.figures.fig4_to_7;
            let found = rows
                .iter()
                .find(|r| r.fast_share_percent == share && r.method == method);
            found.expect("every method is there")
        };
        let mut row: Vec<Cell> = vec![method.name().into()];
        row.extend(FAST_SHARES.map(|s| Cell::from(percent(&at(s).total_over_24h))));
        row.extend([20, 30].map(|s| Cell::from(percent(&at(s).movement))));
        row.push(percent(&at(30).total_subtracted_over_24h).into());
        let published = match (at(30).total_over_24h_published, at(30).movement_published) {
            (Some(total), Some(m)) => format!("{:.0} %, M {:.2} %", 100.0 * total, 100.0 * m),
            _ => "-".into(),
        };
        row.push(published.into());
        row
    });
    Block::Table(columns, rows.collect())
}

fn stand_ins(outcome: &Outcome) -> Block {
    let columns = vec![
        words("stand-in"),
        number("fast tier", "%"),
        number("L = 1 h over L = 24 h", "%"),
        number("M, L = 1 h", "%"),
        number("best proposed over best existing", "%"),
        number("adaptive over best of both", "%"),
    ];
    let rows = outcome.figures.other_stand_ins.iter().map(|h| {
        vec![
            h.condition.clone().into(),
            h.fast_share_percent.to_string().into(),
            percent(&h.l1_over_l24).into(),
            percent(&h.movement_l1).into(),
            gain_over(&h.proposed_gain),
            gain_over(&h.adaptive_gain),
        ]
    });
    Block::Table(columns, rows.collect())
}

fn improvements<'a>(rows: impl Iterator<Item = &'a Improvement>) -> Block {
    let columns: Vec<Column> = vec![
        words("condition"),
        number("best existing", "P_Low"),
        words("L"),
        number("best proposed", "P_Low"),
        words("C"),
        number("proposed, storage", "%"),
        number("proposed, total", "%"),
        number("C = 20 %, total", "%"),
        number("adaptive", "P_Low"),
        number("adaptive over best of both", "%"),
        number("without recurrence", "%"),
        number("moving averages", "%"),
        number("aged frequency", "%"),
        number("clairvoyant, net", "%"),
    ];
    let rows = rows.map(|i| {
        vec![
            i.condition.clone().into(),
            value(&i.best_existing.1).into(),
            i.best_existing.0.clone().into(),
            value(&i.best_proposed.1).into(),
            i.best_proposed.0.clone().into(),
            gain_over(&i.storage_gain),
            gain_over(&i.total_gain),
            gain_over(&i.total_gain_c20),
            value(&i.adaptive.0).into(),
            gain_over(&i.adaptive.1),
            gain_over(&i.adaptive_without_recurrence.1),
            gain_over(&i.moving_averages.1),
            gain_over(&i.aged_frequency.1),
            gain_over(&i.clairvoyant_net.1),
        ]
    });
    Block::Table(columns, rows.collect())
}

fn variants(what: &'static str, rows: &[Row]) -> Block {
    let columns = vec![
        words(what),
        number("best existing", "P_Low"),
        words("L"),
        number("best proposed", "P_Low"),
        words("C"),
        number("proposed over existing", "%"),
        number("adaptive", "P_Low"),
        number("adaptive over best of both", "%"),
        number("without recurrence", "P_Low"),
        number("moving averages", "P_Low"),
        number("M, L = 1 h", "%"),
    ];
    let row = |r: &Row| -> Vec<Cell> {
        vec![
            r.name.clone().into(),
            format!("{:.2}", r.existing.1).into(),
            r.existing.0.clone().into(),
            format!("{:.2}", r.proposed.1).into(),
            r.proposed.0.clone().into(),
            gain(r.proposed_gain),
            format!("{:.2}", r.adaptive).into(),
            gain(r.adaptive_gain),
            format!("{:.2}", r.adaptive_without_recurrence).into(),
            format!("{:.2}", r.moving_averages).into(),
            format!("{:.1}", 100.0 * r.movement_1h).into(),
        ]
    };
    Block::Table(columns, rows.iter().map(row).collect())
}

fn queueing(cells: &[super::QueueingCell]) -> Block {
    let columns = vec![
        words("condition"),
        number("fast tier", "%"),
        words("method"),
        number("IOPS", "/s"),
        number("fast hits", "%"),
        number("mean latency", "µs"),
        number("p99", "µs"),
        number("moved", "GiB"),
        number("total, by counting", "P_Low"),
    ];
    let row = |c: &super::QueueingCell| -> Vec<Cell> {
        vec![
            c.condition.clone().into(),
            c.fast_share_percent.to_string().into(),
            c.method.clone().into(),
            format!("{:.0}", c.iops).into(),
            format!("{:.1}", 100.0 * c.fast_hits).into(),
            format!("{:.0}", c.latency_mean_us).into(),
            format!("{:.0}", c.latency_p99_us).into(),
            format!("{:.1}", c.bytes_moved as f64 / (1u64 << 30) as f64).into(),
            format!("{:.2}", c.total_by_counting).into(),
        ]
    };
    Block::Table(columns, cells.iter().map(row).collect())
}

fn orders(orders: &[super::Orders]) -> Block {
    let columns = vec![
        words("condition"),
        number("fast tier", "%"),
        words("best first, by counting"),
        words("best first, by mean latency"),
        words("pairs alike"),
    ];
    let row = |o: &super::Orders| -> Vec<Cell> {
        vec![
            o.condition.clone().into(),
            o.fast_share_percent.to_string().into(),
            o.by_counting.join(", ").into(),
            o.by_latency.join(", ").into(),
            format!("{} of {}", o.pairs_alike, o.pairs).into(),
        ]
    };
    Block::Table(columns, orders.iter().map(row).collect())
}
