//! Outcome as a document.

mod charts;
mod isolation;

use report::{Block, Cell, Document, number, words};

use self::charts::{by_depth, by_device, own_moves, series};
use super::cells::LOADS;
use super::device::Device;
use super::figures::Row;
use super::mode::SharingMode;
use super::setup::Outcome;
use crate::claim::Value;
use crate::page::{numbers, scorecard, section, value};

/// Returns the outcome as a document of tables and charts.
pub fn document(outcome: &Outcome) -> Document {
    let setup = &outcome.setup;
    let seeds: Vec<String> = setup.seeds.iter().map(u64::to_string).collect();
    let figures = &outcome.figures;
    let of = |experiment: &str| figures.of(experiment);
    let mut sections = scorecard(&outcome.scorecard);
    sections.extend([
        section("proportionality", "Bandwidth relative to VM-1: disk, clean SSD, aged SSD", vec![
            Block::Text("Four virtual machines with the same load and host weights 1, 2, 5 and 10. Perfect proportionality gives 1, 2, 5, 10.".into()),
            Block::Charts(LOADS.map(|mix| by_device(&of("proportionality"), mix)).into()),
            rates(&of("proportionality")),
        ]),
        section("depth", "Effect of outstanding requests on weights", vec![
            Block::Text("The same runs with fewer and more outstanding requests per virtual machine.".into()),
            Block::Charts(vec![by_depth(&of("depth"))]),
            rates(&of("depth")),
        ]),
        section("moves", "Owners of the pages that garbage collection moves", vec![
            Block::Text("Three virtual machines of equal size on one simulated unit, first come, first served.".into()),
            Block::Charts(vec![own_moves(&of("moves"))]),
            moves(&of("moves")),
        ]),
    ]);
    sections.extend(isolation::sections(figures));
    sections.extend([
        section("components", "Part 2: channels and write cache", vec![
            Block::Text("Four virtual machines with host weights 1, 2, 5 and 10 on the disk, on the SSD, without its write buffer, and with one channel.".into()),
            Block::Charts(["random-write-32k", "fileserver"].map(|mix| by_device(&of("components"), mix)).into()),
            rates(&of("components")),
            Block::Charts(series(&of("components"), "fileserver")),
        ]),
        section("ncq", "Part 2: NCQ", vec![
            Block::Text("Two virtual machines with host weights 1 and 5. With tags the drive starts reads first and then any request that can start; without tags it keeps the host's order.".into()),
            rates(&of("ncq")),
            Block::Charts({
                let mut charts = series(&of("ncq"), "proj");
                charts.extend(series(&of("ncq"), "exchange"));
                charts
            }),
        ]),
        section("assumptions", "Unpublished details and assumptions", vec![Block::List(outcome.assumptions.clone())]),
        numbers(&outcome.scorecard.claims),
    ]);
    Document {
        title: "OPS isolation (paper 4), repeated".into(),
        facts: vec![
            ("seeds".into(), seeds.join(", ")),
            (
                "measured simulated time, one unit".into(),
                format!("{} s", 4 * setup.seconds),
            ),
            (
                "space of a virtual machine".into(),
                format!("{} MiB", setup.tenant_mib),
            ),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

fn list(values: &[Value], digits: usize) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|v| format!("{:.digits$}", v.mean))
        .collect();
    texts.join(" : ")
}

fn percents(values: &[Option<Value>], digits: usize) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|v| v.map_or("-".into(), |v| format!("{:.digits$}", 100.0 * v.mean)))
        .collect();
    texts.join(" : ")
}

fn rates(rows: &[&Row]) -> Block {
    let columns = vec![
        words("load"),
        words("device"),
        words("weights"),
        words("bandwidth, relative"),
        number("error", ""),
        number("IOPS, all", "/s"),
        number("WAF", ""),
        words("p99, ms"),
        number("unsteadiness", "%"),
    ];
    let row = |r: &&Row| -> Vec<Cell> {
        let weights: Vec<String> = r.tenants.iter().map(|(_, w)| w.to_string()).collect();
        let waf = if r.device == Device::Disk {
            "-".into()
        } else {
            value(&r.waf)
        };
        vec![
            r.mix.clone().into(),
            r.device.name().into(),
            weights.join(" : ").into(),
            list(&r.proportionality, 2).into(),
            value(&r.error).into(),
            format!("{:.0}", r.iops.mean).into(),
            waf.into(),
            list(&r.latency_p99_ms, 0).into(),
            format!("{:.1}", 100.0 * r.unsteadiness.mean).into(),
        ]
    };
    Block::Table(columns, rows.iter().map(row).collect())
}

fn moves(rows: &[&Row]) -> Block {
    let columns = vec![
        words("sharing"),
        words("virtual machine"),
        number("own", "% of the pages moved"),
        number("published", "%"),
        number("foreign", "pages"),
        number("WAF of the drive", ""),
    ];
    let mut cells = Vec::new();
    for r in rows {
        for (t, (load, _)) in r.tenants.iter().enumerate() {
            let own = r.own_share[t].map_or("-".into(), |v| format!("{:.1}", 100.0 * v.mean));
            let published = r.mode.sharing == SharingMode::OnePool && t == 0;
            cells.push(vec![
                r.mode.sharing.name().into(),
                (*load).into(),
                own.into(),
                if published { "30" } else { "-" }.into(),
                format!("{:.0}", r.moved_foreign[t].mean).into(),
                value(&r.waf).into(),
            ]);
        }
    }
    Block::Table(columns, cells)
}
