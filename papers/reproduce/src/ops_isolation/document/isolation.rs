//! Sharing and service: all combinations, then the effect of each choice.

use report::{Block, Cell, Section, Tone, number, words};

use super::charts::matrix;
use super::{list, percents};
use crate::claim::Value;
use crate::ops_isolation::cells::MIXES;
use crate::ops_isolation::effects::{Change, Effect, NOTEWORTHY};
use crate::ops_isolation::figures::{Figures, Row};
use crate::ops_isolation::mode::{Mode, ServiceMode, SharingMode};
use crate::page::{section, value};

pub(super) fn sections(figures: &Figures) -> Vec<Section> {
    let rows = figures.of("isolation");
    vec![
        section("isolation", "Sharing and service: all combinations", vec![
            Block::Text("One simulated unit, OPS 5 %, one request at a time. Numbers are errors of proportionality, means of |relative bandwidth / relative weight − 1|; 0 is perfect. A row compares services for one kind of sharing, a column kinds of sharing for one service. Bars above 1 are cut in the charts, not in the table.".into()),
            Block::Charts(MIXES.map(|mix| matrix(&rows, mix)).into()),
            errors(&rows),
        ]),
        section("isolation-alone", "Effect of isolation alone", vec![
            Block::Text("Every kind of sharing against one pool with the same service, loads and seeds. First the error of proportionality (below 0: nearer to the weights), then the requests per second of all virtual machines together.".into()),
            by_sharing(&figures.effects, "error", error_change),
            by_sharing(&figures.effects, "IOPS, %", iops_change),
        ]),
        section("service-alone", "Effect of service alone", vec![
            Block::Text("Every service against first come, first served with the same kind of sharing.".into()),
            by_service(&figures.effects, "error", error_change),
            by_service(&figures.effects, "IOPS, %", iops_change),
        ]),
        section("isolation-rows", "All combinations in full", vec![details(&rows)]),
    ]
}

fn errors(rows: &[&Row]) -> Block {
    let mut columns = vec![words("mix"), words("sharing")];
    columns.extend(ServiceMode::ALL.map(|s| number(s.name(), "error")));
    let mut cells = Vec::new();
    for mix in MIXES {
        for sharing in SharingMode::ALL {
            let mut line: Vec<Cell> = vec![mix.into(), sharing.name().into()];
            line.extend(ServiceMode::ALL.map(|service| {
                let mode = Mode::new(sharing, service);
                let row = rows.iter().find(|r| r.mix == mix && r.mode == mode);
                row.map_or("-".into(), |r| value(&r.error).into())
            }));
            cells.push(line);
        }
    }
    Block::Table(columns, cells)
}

fn find<'a>(effects: &'a [Effect], mix: &str, mode: Mode) -> Option<&'a Effect> {
    effects.iter().find(|e| e.mix == mix && e.mode == mode)
}

/// Rows: mix and service; columns: ways of sharing, compared with one pool.
fn by_sharing(effects: &[Effect], of: &'static str, show: fn(&Change) -> Cell) -> Block {
    let others = &SharingMode::ALL[1..];
    let mut columns = vec![words("mix"), words("service, the same in both")];
    columns.extend(others.iter().map(|s| number(s.name(), of)));
    let mut cells = Vec::new();
    for mix in MIXES {
        for service in ServiceMode::ALL {
            let mut line: Vec<Cell> = vec![mix.into(), service.name().into()];
            line.extend(others.iter().map(|sharing| {
                let effect = find(effects, mix, Mode::new(*sharing, service));
                let change = effect.and_then(|e| e.sharing_alone.as_ref());
                change.map_or("-".into(), show)
            }));
            cells.push(line);
        }
    }
    Block::Table(columns, cells)
}

/// Rows: mix and way of sharing; columns: services, compared with first come, first served.
fn by_service(effects: &[Effect], of: &'static str, show: fn(&Change) -> Cell) -> Block {
    let others = &ServiceMode::ALL[1..];
    let mut columns = vec![words("mix"), words("sharing, the same in both")];
    columns.extend(others.iter().map(|s| number(s.name(), of)));
    let mut cells = Vec::new();
    for mix in MIXES {
        for sharing in SharingMode::ALL {
            let mut line: Vec<Cell> = vec![mix.into(), sharing.name().into()];
            line.extend(others.iter().map(|service| {
                let effect = find(effects, mix, Mode::new(sharing, *service));
                let change = effect.and_then(|e| e.service_alone.as_ref());
                change.map_or("-".into(), show)
            }));
            cells.push(line);
        }
    }
    Block::Table(columns, cells)
}

/// Cell with sign and interval, coloured if the whole interval is above the threshold.
fn signed(v: &Value, scale: f64, digits: usize, less_is_good: bool) -> Cell {
    let half = v.interval.map_or(0.0, |i| i.half());
    let (good, bad) = match less_is_good {
        true => (v.mean + half < -NOTEWORTHY, v.mean - half > NOTEWORTHY),
        false => (v.mean - half > NOTEWORTHY, v.mean + half < -NOTEWORTHY),
    };
    // Rounded here to avoid "-0.000".
    let unit = libm::pow(10.0, digits as f64);
    let shown = libm::round(scale * v.mean * unit) / unit + 0.0;
    Cell {
        text: format!("{shown:+.digits$} ± {:.digits$}", scale * half),
        tone: match (good, bad) {
            (true, _) => Tone::Good,
            (_, true) => Tone::Bad,
            _ => Tone::Plain,
        },
    }
}

fn error_change(change: &Change) -> Cell {
    signed(&change.error, 1.0, 3, true)
}

fn iops_change(change: &Change) -> Cell {
    signed(&change.iops, 100.0, 1, false)
}

fn details(rows: &[&Row]) -> Block {
    let columns = vec![
        words("mix"),
        words("sharing"),
        words("service"),
        words("bandwidth, relative"),
        number("error", ""),
        number("IOPS, all", "/s"),
        number("WAF", ""),
        words("own moves, %"),
        words("OPS, % of flash"),
    ];
    let row = |r: &&Row| -> Vec<Cell> {
        vec![
            r.mix.clone().into(),
            r.mode.sharing.name().into(),
            r.mode.service.name().into(),
            list(&r.proportionality, 2).into(),
            value(&r.error).into(),
            format!("{:.0}", r.iops.mean).into(),
            value(&r.waf).into(),
            percents(&r.own_share, 0).into(),
            percents(&r.spare_share, 2).into(),
        ]
    };
    Block::Table(columns, rows.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_changes_have_a_sign_and_a_colour() {
        let shown = |mean: f64| {
            let value = Value {
                mean,
                interval: None,
            };
            let cell = signed(&value, 1.0, 3, true);
            (cell.text, cell.tone)
        };
        assert_eq!(shown(-0.0002), ("+0.000 ± 0.000".into(), Tone::Plain));
        assert_eq!(shown(-0.25), ("-0.250 ± 0.000".into(), Tone::Good));
        assert_eq!(shown(0.25), ("+0.250 ± 0.000".into(), Tone::Bad));
        let gain = Value {
            mean: 0.25,
            interval: None,
        };
        let cell = signed(&gain, 100.0, 1, false);
        assert_eq!((cell.text.as_str(), cell.tone), ("+25.0 ± 0.0", Tone::Good));
    }
}
