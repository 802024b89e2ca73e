//! Writes the page for a small scenario, to look at: `cargo run -p report --example write_page -- out.html`.

// An example stands at the edge: it may open the file it was given.
#![allow(clippy::disallowed_methods)]

#[path = "../tests/suite/support/mod.rs"]
mod support;

use sim::RunResult;
use support::{Shape, made_up, run_all};

const SCENARIO: &str = r#"
seed = 3
duration = "8m"
warmup = "60s"
copy_chunk = "1 MiB"

[[tiers]]
name = "fast"
preset = "pm953"
capacity = "6 GiB"

[[tiers]]
name = "middle"
preset = "pm1633"
capacity = "12 GiB"

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "24 GiB"
devices = 2

[policy]
monitor_epoch = "10s"
migration_epoch = "60s"
copy_bandwidth = "100 MiB/s"

[strategies.autotiering.calibration]
window = "100ms"
windows = 2

[[classes]]
name = "gold"
weight = 2.0
latency = "1ms"

[[classes]]
name = "bronze"
latency = "8ms"
"#;

/// Six volumes under load.
fn scenario() -> String {
    let mut text = String::from(SCENARIO);
    let volumes = [
        (
            "orders-db",
            "shop",
            "gold",
            3,
            "slow",
            "outstanding = 4, read_share = 0.9, rate = \"3000 IOPS\"",
        ),
        (
            "orders-log",
            "shop",
            "gold",
            1,
            "middle",
            "outstanding = 1, read_share = 0.1, rate = \"600 IOPS\"",
        ),
        (
            "mail",
            "mail",
            "bronze",
            4,
            "fast",
            "outstanding = 2, read_share = 0.5, rate = \"300 IOPS\"",
        ),
        (
            "archive",
            "archive",
            "bronze",
            6,
            "slow",
            "outstanding = 1, read_share = 0.7, rate = \"40 IOPS\"",
        ),
        (
            "build-cache",
            "ci",
            "bronze",
            4,
            "middle",
            "outstanding = 4, read_share = 0.5, rate = \"1500 IOPS\"",
        ),
        (
            "a volume with a rather long name <b>&\"",
            "ci",
            "bronze",
            2,
            "slow",
            "outstanding = 1, read_share = 1.0, rate = \"100 IOPS\"",
        ),
    ];
    for (name, vm, class, gib, tier, habits) in volumes {
        text += &format!(
            "\n[[volumes]]\nname = '{name}'\nvm = \"{vm}\"\nclass = \"{class}\"\nsize = \"{gib} GiB\"\ntier = \"{tier}\"\n\
             \n[[clients]]\nvolume = '{name}'\nhabits = {{ {habits} }}\n"
        );
    }
    text
}

/// Many volumes, windows and moves, latencies over four decades.
fn large() -> Vec<RunResult> {
    let shape = Shape {
        windows: 5000,
        volumes: 200,
        tiers: 4,
        moves: 90,
        spread: 3000.0,
    };
    ["noop", "static", "idt", "autotiering"]
        .iter()
        .enumerate()
        .map(|(i, s)| made_up(s, i * 11, shape))
        .collect()
}

/// One window, one tier, one volume, no move.
fn tiny() -> Vec<RunResult> {
    vec![made_up(
        "noop",
        0,
        Shape {
            windows: 1,
            volumes: 1,
            tiers: 1,
            moves: 0,
            spread: 1.0,
        },
    )]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: page OUT.html [run|large|tiny]")?;
    let results = match args.next().as_deref() {
        Some("large") => large(),
        Some("tiny") => tiny(),
        _ => run_all(&scenario(), &["noop", "static", "idt", "autotiering"]),
    };
    if let Some(last) = results.last().filter(|r| r.decisions.is_some()) {
        println!("{}", report::summary(&results));
        println!("{}", report::by_group(&results, sim::GroupKind::Class));
        println!("{}", report::moves(last));
        println!("{}", report::why(last, "orders-db", None)?);
        println!("{}", report::why_not(last, "mail", "fast", None)?);
    }
    std::fs::write(path, report::page(&results, "Comparison of strategies"))?;
    Ok(())
}
