//! Outcome as a document.

use report::{Block, Cell, Document, Tone, number, words};
use slo::Decision;
use slo::interference::Edge;
use slo::ladder::{Remedy, RemedyKind};

use super::charts;
use super::outcome::Outcome;
use super::over_seeds::OverSeeds;
use super::variants::Variant;
use crate::claim::Value;
use crate::page::{numbers, scorecard, section, value};

const REACTIVE: [Variant; 5] = [
    Variant::CoLocated,
    Variant::Reactive,
    Variant::ReactiveWarm,
    Variant::Ladder,
    Variant::Compressing,
];
const PROACTIVE: [Variant; 4] = [
    Variant::CoLocated,
    Variant::Proactive,
    Variant::ProactiveWarm,
    Variant::Seasonal,
];

/// Returns the outcome as a document of tables and charts.
pub fn document(outcome: &Outcome) -> Document {
    let alone = |workload: &str, own: Variant, rest: &[Variant]| {
        let mut all = vec![own];
        all.extend(rest);
        charts::fig5(outcome, "IOPS", workload, &all)
    };
    let fig5 = |rest: &[Variant]| {
        Block::Charts(vec![
            alone("USR-1", Variant::Usr1Alone, rest),
            alone("FIO", Variant::FioAlone, rest),
        ])
    };
    let mut sections = scorecard(&outcome.scorecard);
    sections.extend([
        section("variants", "Variants", vec![variants(outcome)]),
        section("fig1", "Fig. 1: peak over mean", vec![fig1(outcome)]),
        section(
            "fig5a",
            "Fig. 5(a): reactive, fast fill, first seed",
            vec![fig5(&REACTIVE)],
        ),
        section(
            "fig5b",
            "Fig. 5(b): proactive, fast fill, first seed",
            vec![fig5(&PROACTIVE)],
        ),
        section(
            "fig6",
            "Fig. 6: interference",
            vec![fig6(outcome), charts::fig6(outcome)],
        ),
        section(
            "fig7",
            "Fig. 7: miss-ratio curves",
            vec![fig7(outcome), charts::fig7(outcome)],
        ),
    ]);
    if let Some(decision) = &outcome.decision {
        sections.push(section("decision", "The reactive decision", {
            vec![solutions(outcome, decision), ladder(&decision.remedies)]
        }));
    }
    if let Some(decision) = &outcome.ladder {
        let text = "The same decision with all remedies allowed, and the reason why each cheaper remedy was not taken.";
        sections.push(section("ladder", "All remedies", {
            vec![Block::Text(text.into()), ladder(&decision.remedies)]
        }));
    }
    if !outcome.recorded.is_empty() {
        sections.push(section(
            "recorded",
            "Recorded volumes",
            vec![recorded(outcome)],
        ));
    }
    sections.push(section(
        "events",
        "Events, fast fill, first seed",
        vec![events(outcome)],
    ));
    sections.push(section(
        "assumptions",
        "Unpublished details and assumptions",
        vec![Block::List(outcome.assumptions.clone())],
    ));
    sections.push(numbers(&outcome.scorecard.claims));
    Document {
        title: "Dynamite (paper 3), Sec. 7, repeated".into(),
        facts: vec![
            ("seeds".into(), seeds(outcome)),
            (
                "requests".into(),
                format!("{:.0} million", outcome.requests as f64 / 1e6),
            ),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

/// Formats a number with a suitable number of digits.
fn plain(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.2}")
    }
}

fn seeds(outcome: &Outcome) -> String {
    let all: Vec<String> = outcome.setup.seeds.iter().map(u64::to_string).collect();
    all.join(", ")
}

fn over(v: Option<Value>) -> String {
    v.map_or("-".into(), |v| value(&v))
}

fn variants(outcome: &Outcome) -> Block {
    let columns = vec![
        words("variant"),
        words("fill"),
        number("USR-1 peak", "IOPS"),
        number("FIO peak", "IOPS"),
        number("USR-1 p99", "ms"),
        number("FIO p99", "ms"),
        number("USR-1 violation", "min"),
        number("FIO violation", "min"),
        number("of both in the peak", "min"),
        number("peak done", "min"),
        number("cache", "GiB"),
        number("ordered", "min"),
        number("effective", "min"),
        number("gone", "min"),
    ];
    let row = |s: &OverSeeds| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![s.variant.name().into(), s.reading.name().into()];
        let numbers = [
            s.usr1_peak,
            s.fio_peak,
            s.usr1_p99_ms,
            s.fio_p99_ms,
            s.usr1_violation_min,
            s.fio_violation_min,
            s.violation_peak_min,
            s.peak_done_min,
            s.cache_gib,
            s.ordered_min,
            s.effective_min,
            s.gone_min,
        ];
        cells.extend(numbers.map(|n| Cell::from(over(n))));
        cells
    };
    Block::Table(columns, outcome.over_seeds.iter().map(row).collect())
}

fn fig1(outcome: &Outcome) -> Block {
    let fig1 = &outcome.figures.fig1;
    let published = fig1.published.iter();
    let published = published.map(|(n, r)| (format!("{n} (published, hours of a week)"), *r));
    let ours = fig1
        .ours
        .iter()
        .map(|(n, r)| (format!("{n} (twelfths of the recording)"), *r));
    let rows = published
        .chain(ours)
        .map(|(name, ratio)| vec![name.into(), plain(ratio).into()]);
    Block::Table(
        vec![words("load"), number("peak over mean", "")],
        rows.collect(),
    )
}

fn fig6(outcome: &Outcome) -> Block {
    const NAMES: [&str; 3] = ["USR-1", "FIO", "SYS"];
    let fig6 = &outcome.figures.fig6;
    let row = |p: &slo::interference::Pair| -> Vec<Cell> {
        let found = match p.edge {
            Edge::Joined => "interfere",
            Edge::Apart => "do not interfere",
        };
        vec![
            format!("{} and {}", NAMES[p.a], NAMES[p.b]).into(),
            format!("{:.2}", p.strength).into(),
            format!("{:.4}", p.p).into(),
            found.into(),
            format!("{} and {}", fig6.set[p.a] + 1, fig6.set[p.b] + 1).into(),
        ]
    };
    let columns = vec![
        words("pair"),
        number("strength", ""),
        number("p", ""),
        words("result"),
        words("sets"),
    ];
    Block::Table(columns, fig6.pairs.iter().map(row).collect())
}

fn fig7(outcome: &Outcome) -> Block {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for curve in &outcome.figures.fig7 {
        for gib in [1u64, 2, 3, 4, 8, 16] {
            let at = |p: &&(units::Bytes, f64, f64)| p.0 == units::Bytes::gib(gib);
            let Some(point) = curve.points.iter().find(at) else {
                continue;
            };
            rows.push(vec![
                curve.workload.into(),
                plain(curve.at_min).into(),
                gib.to_string().into(),
                format!("{:.3}", point.1).into(),
                format!("{:.3}", point.2).into(),
            ]);
        }
    }
    let columns = vec![
        words("workload"),
        number("at", "min"),
        number("cache", "GiB"),
        number("estimated", ""),
        number("simulated", ""),
    ];
    Block::Table(columns, rows)
}

fn solutions(outcome: &Outcome, decision: &Decision) -> Block {
    let name = |w: usize| outcome_name(outcome, w);
    let row = |s: &slo::solutions::Solution| -> Vec<Cell> {
        let busy = s
            .prediction
            .uses
            .iter()
            .map(|u| format!("{:.0}", 100.0 * u));
        let verdict = match &s.prediction.fails {
            None => Cell {
                text: "sufficient".into(),
                tone: Tone::Good,
            },
            Some(why) => Cell::from(why.as_str()),
        };
        vec![
            name(s.workload.index()).into(),
            s.size.to_string().into(),
            format!("{:.2}", s.miss_ratio).into(),
            busy.collect::<Vec<_>>().join(" / ").into(),
            verdict,
        ]
    };
    let columns = vec![
        words("workload"),
        words("cache"),
        number("miss ratio", ""),
        number("busy: disks / SYS's own / link from / to the array", "%"),
        words("verdict"),
    ];
    Block::Table(columns, decision.solutions.iter().map(row).collect())
}

fn outcome_name(_: &Outcome, w: usize) -> &'static str {
    ["USR-1", "FIO", "SYS"].get(w).copied().unwrap_or("?")
}

fn ladder(remedies: &[Remedy]) -> Block {
    let row = |r: &Remedy| -> Vec<Cell> {
        let kind = serde_kind(r);
        let verdict = match &r.refused {
            None => Cell {
                text: "sufficient".into(),
                tone: Tone::Good,
            },
            Some(why) => Cell::from(why.as_str()),
        };
        vec![
            kind.into(),
            plain(r.price.effect_after.as_secs_f64()).into(),
            r.price.memory.to_string().into(),
            plain(r.price.lost_per_s).into(),
            verdict,
        ]
    };
    let columns = vec![
        words("remedy"),
        number("effective after", "s"),
        words("memory"),
        number("cost for others", "/s"),
        words("verdict"),
    ];
    // The experiment's array has one kind of disk, so no data can have a second copy elsewhere.
    let asked = remedies.iter().filter(|r| r.kind != RemedyKind::Mirror);
    Block::Table(columns, asked.map(row).collect())
}

fn serde_kind(remedy: &Remedy) -> &'static str {
    use RemedyKind as K;
    match remedy.kind {
        K::Throttle => "throttle of a neighbour",
        K::MemoryShare => "memory share",
        K::OpsShare => "over-provisioning share",
        K::Mirror => "mirror",
        K::Appliance => "appliance",
        K::Move => "move",
    }
}

fn recorded(outcome: &Outcome) -> Block {
    let row = |r: &super::recorded::RecordedRow| -> Vec<Cell> {
        let pair = |p: (Value, Value)| format!("{} + {}", value(&p.0), value(&p.1));
        vec![
            r.name.clone().into(),
            r.requests.to_string().into(),
            format!("{:.1}", r.stretched).into(),
            plain(r.peak_over_mean).into(),
            format!("{:.0}", 100.0 * r.write_share).into(),
            pair(r.violation_min).into(),
            pair(r.answered_min).into(),
            r.first_decision.clone().into(),
        ]
    };
    let columns = vec![
        words("volume"),
        number("requests", ""),
        number("stretched", "x"),
        number("peak over mean", ""),
        number("writes", "%"),
        number("violation, own + neighbour's", "min"),
        number("remedied", "min"),
        words("first remedy"),
    ];
    Block::Table(columns, outcome.recorded.iter().map(row).collect())
}

fn events(outcome: &Outcome) -> Block {
    let rows = outcome.variants.iter().flat_map(|s| {
        s.events.iter().map(|(minute, what)| {
            vec![
                s.variant.name().into(),
                format!("{minute:.1}").into(),
                what.clone().into(),
            ]
        })
    });
    let columns = vec![words("variant"), number("at", "min"), words("what")];
    Block::Table(columns, rows.collect())
}
