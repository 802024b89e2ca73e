//! Tables of the document.

use report::{Block, Cell, Tone, number as numbers, words};
use sim::SensitivityRow;

use super::number;
use crate::Interval;
use crate::autotiering::figures::{MovedIntervals, Row};
use crate::autotiering::outcome::{NoopComparison, Outcome};
use crate::claim::Value;
use crate::page::value;

/// Formats an interval as its mean ± half of its width.
fn pm(interval: Option<Interval>, times: f64, digits: usize) -> Cell {
    let text = interval.map(|i| {
        let (mean, half) = (i.mean * times, i.half() * times);
        format!("{} ± {}", number(mean, digits), number(half, digits))
    });
    text.unwrap_or_else(|| "-".into()).into()
}

pub(super) fn beside_noop(outcome: &Outcome) -> Block {
    let columns = vec![
        words("workloads"),
        words("strategy"),
        numbers("IOPS", ""),
        numbers("over noop", ""),
        numbers("latency over noop", ""),
        numbers("moved", "GiB"),
    ];
    let of = |v: &Option<Value>| v.map_or_else(|| "-".into(), |v| value(&v));
    let row = |b: &NoopComparison| -> Vec<Cell> {
        let low = b.iops_over_noop.map(|v| v.ends());
        let tone = match low {
            Some((low, _)) if low > 1.0 => Tone::Good,
            Some((_, high)) if high < 1.0 => Tone::Bad,
            _ => Tone::Plain,
        };
        let text = of(&b.iops_over_noop);
        vec![
            b.scene.name().into(),
            b.strategy.into(),
            of(&b.iops).into(),
            Cell { text, tone },
            of(&b.latency_over_noop).into(),
            of(&b.gib_moved).into(),
        ]
    };
    Block::Table(columns, outcome.beside_noop.iter().map(row).collect())
}

pub(super) fn regressions(outcome: &Outcome) -> Block {
    let columns = vec![
        words("volume"),
        words("on"),
        numbers("m", ""),
        numbers("b", "µs"),
        numbers("CV", "%"),
        words("tier"),
        numbers("bare", "µs"),
        numbers("predicted", "µs"),
        numbers("measured", "µs"),
        numbers("error", "%"),
    ];
    let rows = outcome.figures.fig2.iter().flat_map(|r| {
        r.tiers.iter().enumerate().map(|(i, t)| {
            let mut row: Vec<Cell> = match i {
                0 => vec![
                    r.volume.clone().into(),
                    r.tier.clone().into(),
                    number(r.m, 3).into(),
                    number(r.b_us, 1).into(),
                    number(100.0 * r.variation, 2).into(),
                ],
                _ => (0..5).map(|_| "".into()).collect(),
            };
            row.extend([
                t.tier.clone().into(),
                number(t.bare_us, 1).into(),
                number(t.predicted_us, 1).into(),
                number(t.measured_us, 1).into(),
                format!("{:+.1}", 100.0 * t.error).into(),
            ]);
            row
        })
    });
    Block::Table(columns, rows.collect())
}

pub(super) fn rows(rows: &[Row], tiers: bool) -> Block {
    let mut columns = vec![
        words("direction"),
        words("strategy"),
        numbers("IOPS", "K/s"),
        numbers("bandwidth", "MiB/s"),
        numbers("latency", "µs"),
        numbers("IOPS", "over noop"),
        numbers("bandwidth", "over noop"),
        numbers("latency", "over noop"),
    ];
    if tiers {
        columns.insert(0, words("tier"));
    }
    let mut before = ("", "");
    let rows = rows.iter().map(|r| {
        let group = if before.0 == r.group { "" } else { r.group };
        let same = before == (r.group, r.direction);
        let direction = if same { "" } else { r.direction };
        before = (r.group, r.direction);
        let mut cells: Vec<Cell> = vec![
            direction.into(),
            r.strategy.into(),
            pm(r.iops, 1e-3, 1),
            pm(r.mib_per_s, 1.0, 0),
            pm(r.latency_mean_us, 1.0, 0),
            pm(r.iops_over_noop, 1.0, 3),
            pm(r.mib_per_s_over_noop, 1.0, 3),
            pm(r.latency_over_noop, 1.0, 3),
        ];
        if tiers {
            cells.insert(0, group.into());
        }
        cells
    });
    let rows = rows.collect();
    Block::Table(columns, rows)
}

pub(super) fn distributions(outcome: &Outcome) -> Block {
    let columns = vec![
        words("strategy"),
        numbers("> 100 K", "% of windows"),
        numbers("> 125 K", "%"),
        numbers("> 1,200 MB/s", "%"),
        numbers("> IDT's p90", "%, IOPS"),
        numbers("> 1.25 x IDT's p90", "%, IOPS"),
        numbers("> IDT's p90", "%, MiB/s"),
    ];
    let mut rows: Vec<Vec<Cell>> = outcome
        .figures
        .fig5
        .iter()
        .map(|d| {
            vec![
                d.strategy.into(),
                pm(d.share_above_100k_iops, 100.0, 0),
                pm(d.share_above_125k_iops, 100.0, 0),
                pm(d.share_above_1200_mb_per_s, 100.0, 0),
                pm(d.share_above_idt_p90_iops, 100.0, 0),
                pm(d.share_above_idt_p90_iops_x1_25, 100.0, 0),
                pm(d.share_above_idt_p90_mib_per_s, 100.0, 0),
            ]
        })
        .collect();
    for row in [
        ["published: IDT", "10", "", "about 10", "10", "", "about 10"],
        [
            "published: EDT",
            "almost 0",
            "",
            "about 10",
            "almost 0",
            "",
            "about 10",
        ],
        [
            "published: AutoTiering",
            "majority",
            "half",
            "> 50",
            "majority",
            "half",
            "> 50",
        ],
    ] {
        rows.push(row.map(Cell::from).into());
    }
    Block::Table(columns, rows)
}

pub(super) fn migrations(outcome: &Outcome) -> Block {
    let columns = vec![
        words("strategy"),
        numbers("moved", "GiB"),
        numbers("VMs", "distinct"),
        numbers("volumes", "distinct"),
        numbers("moved", "of most"),
        numbers("VMs", "of most"),
        numbers("after warm-up", "GiB"),
        numbers("after warm-up", "VMs"),
    ];
    let rows = outcome.figures.fig7.iter().map(|m| {
        let MovedIntervals {
            gib, vms, volumes, ..
        } = m.all;
        vec![
            m.strategy.into(),
            pm(gib, 1.0, 1),
            pm(vms, 1.0, 1),
            pm(volumes, 1.0, 1),
            number(m.all.gib_normalized, 2).into(),
            number(m.all.vms_normalized, 2).into(),
            pm(m.after_warmup.gib, 1.0, 1),
            pm(m.after_warmup.vms, 1.0, 1),
        ]
    });
    Block::Table(columns, rows.collect())
}

pub(super) fn passive(rows: &[SensitivityRow]) -> Block {
    let columns = vec![
        words("case"),
        numbers("seed", ""),
        numbers("m", "injected, steady"),
        numbers("m", "injected"),
        numbers("m", "passive"),
        words("tier"),
        numbers("measured", "µs"),
        numbers("injected", "error, %"),
        numbers("passive", "error, %"),
        numbers("uncalibrated", "error, %"),
    ];
    let maybe = |v: Option<f64>| -> Cell { v.map_or("-".into(), |v| number(v, 2)).into() };
    let error = |v: Option<f64>| -> Cell {
        v.map_or("-".into(), |v| format!("{:+.0}", 100.0 * v))
            .into()
    };
    let rows = rows.iter().flat_map(|r| {
        r.tiers.iter().enumerate().map(move |(i, t)| {
            let mut row: Vec<Cell> = match i {
                0 => vec![
                    r.case.clone().into(),
                    r.seed.to_string().into(),
                    maybe(r.m_injected_steady),
                    maybe(r.m_injected),
                    maybe(r.m_passive),
                ],
                _ => (0..5).map(|_| "".into()).collect(),
            };
            row.extend([
                t.tier.clone().into(),
                number(t.measured_us, 0).into(),
                error(Some(t.injected)),
                error(t.passive),
                error(Some(t.uncalibrated)),
            ]);
            row
        })
    });
    Block::Table(columns, rows.collect())
}
