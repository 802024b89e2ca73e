//! Writes the page for a small scenario, to look at: `cargo run -p report --example page -- out.html`.

// An example stands at the edge: it may open the file it was given.
#![allow(clippy::disallowed_methods)]

use sim::{Manifest, RunOptions, RunResult, ScenarioFile, TraceHash};

const SCENARIO: &str = r#"
seed = 3
duration = "20m"
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
migration_epoch = "120s"
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

/// Six volumes; two change their habits half-way.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: page OUT.html")?;
    let text = scenario();
    let file = ScenarioFile::parse("example.toml", &text)?;
    let mut results: Vec<RunResult> = Vec::new();
    for strategy in ["noop", "static", "idt", "autotiering"] {
        let config = file
            .scenario
            .strategies
            .get(strategy)
            .cloned()
            .unwrap_or(serde_json::Value::Null);
        let model = ScenarioFile::parse("example.toml", &text)?.build(vec![])?;
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").into(),
            scenario: "example".into(),
            scenario_xxh3: "0123456789abcdef".into(),
            traces: vec![TraceHash {
                file: "none.lis".into(),
                xxh3: "0".repeat(32),
                requests: 1_234_567,
            }],
            strategy: strategy.into(),
            strategy_config: config.clone(),
            seed: model.seed,
            duration_s: model.duration.as_secs_f64(),
            warmup_s: model.warmup.as_secs_f64(),
        };
        let built = planner::build(strategy, config)?;
        let options = RunOptions {
            series: true,
            decisions: true,
        };
        results.push(sim::run(&model, &*built, manifest, options, &mut |_| {})?);
    }
    println!("{}", report::summary(&results));
    println!("{}", report::by_group(&results, sim::GroupKind::Class));
    let last = results.last().ok_or("no results")?;
    println!("{}", report::moves(last));
    println!("{}", report::why(last, "orders-db", None)?);
    println!("{}", report::why_not(last, "mail", "fast", None)?);
    std::fs::write(path, report::page(&results, "Comparison of strategies"))?;
    Ok(())
}
