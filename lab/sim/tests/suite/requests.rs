//! Log of single requests: it agrees with the summaries, and logging changes no result.

use std::ops::ControlFlow;

use model::Op;
use sim::{Manifest, RequestServer, RunOptions, RunResult, ScenarioFile, ServedRequest};

use crate::support::run_text;

const TEXT: &str = r#"
seed = 5
duration = "20s"
window = "1s"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
capacity = "8 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "16 GiB"
[[volumes]]
name = "a"
size = "1 GiB"
tier = "slow"
[[volumes]]
name = "b"
size = "1 GiB"
tier = "fast"
[[clients]]
volume = "a"
habits = { outstanding = 2, rate = "300 IOPS", read_share = 0.7 }
[[clients]]
volume = "b"
habits = { outstanding = 4, rate = "100 IOPS" }
"#;
const CACHE: &str = "[cache]\nsize = \"64 MiB\"\nparts = [{ volume = \"a\", share = 1.0 }]\n";

fn logged(text: &str) -> (RunResult, Vec<ServedRequest>, usize) {
    let file = ScenarioFile::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    let (mut rows, mut parts) = (vec![], 0);
    let result = sim::run_with_requests(
        &model,
        strategy,
        Manifest::default(),
        options,
        &mut |part| {
            rows.extend_from_slice(part);
            parts += 1;
        },
        &mut |_| ControlFlow::Continue(()),
    );
    (result.unwrap(), rows, parts)
}

#[test]
fn logged_requests_match_the_summary() {
    let (result, rows, parts) = logged(TEXT);
    assert_eq!(result, run_text(TEXT, "noop"));
    assert_eq!(
        rows.len() as u64,
        result.total().all.ios + result.unfinished
    );
    assert!((20..=21).contains(&parts), "one part per window: {parts}");
    let sum: u64 = rows.iter().map(|r| r.latency_ns).sum();
    let mean_us = sum as f64 / rows.len() as f64 / 1e3;
    assert!(
        (mean_us / result.total().all.mean_us - 1.0).abs() < 0.01,
        "{mean_us}"
    );
    let on = |volume: u32| rows.iter().filter(move |r| r.volume == volume);
    let tier = |r: &ServedRequest| match r.by {
        RequestServer::Tier {
            tier,
            missed: false,
        } => tier.index(),
        other => panic!("{other:?}"),
    };
    assert!(on(0).all(|r| tier(r) == 1) && on(1).all(|r| tier(r) == 0));
}

#[test]
fn logged_cache_outcome_matches_the_cache() {
    let text = format!("{TEXT}{CACHE}");
    let (result, rows, _) = logged(&text);
    assert_eq!(result, run_text(&text, "noop"));
    let reads = || rows.iter().filter(|r| r.volume == 0 && r.op == Op::Read);
    let hits = reads().filter(|r| r.by == RequestServer::Cache).count();
    let missed = |r: &&ServedRequest| matches!(r.by, RequestServer::Tier { missed: true, .. });
    assert_eq!(hits + reads().filter(missed).count(), reads().count());
    assert!(hits > 0 && hits < reads().count());
    let uncached = |r: &ServedRequest| matches!(r.by, RequestServer::Tier { missed: false, .. });
    assert!(rows.iter().filter(|r| r.volume == 1).all(uncached));
}
