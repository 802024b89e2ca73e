//! Speed of the simulator: requests per second that one core replays through the whole array. Run it with `bench/replay.sh`.
//!
//! All percentiles, histograms and series are on. The kinds are open, window-limited and closed-loop replay of devices alone, then closed
//! loops with a cache, with compute servers, and with compute servers and remedies (`[response]`).

use std::sync::Arc;
use std::time::Instant;

use algo::{Popularity, Rng};
use model::Op;
use sim::{Manifest, RunOptions, ScenarioFile};
use trace::{LoadedTrace, Record, Request};

use crate::BenchResult;

const VOLUMES: u64 = 48;
const RUNS: usize = 5;
/// Kinds of runs: with devices alone, then with additional stages in front of them.
const KINDS: [&str; 6] = ["open", "window", "closed", "cache", "hosts", "answers"];
const CACHE: &str = "[cache]\nshare = 0.05\npage = \"64 KiB\"\n";
const HOSTS: &str =
    "[hosts.one]\nlink = \"25 GB/s\"\nlatency = \"20us\"\nmemory = \"64 GiB\"\ncpus = 64\n";

fn scenario(kind: &str, requests: u64) -> String {
    let mut text = String::from(
        r#"
window = "1s"
[[tiers]]
name = "nvme"
preset = "nvme-tlc"
devices = 2
[[tiers]]
name = "sas"
preset = "sas-ssd"
devices = 4
[[tiers]]
name = "sata"
preset = "sata-ssd"
devices = 6
[[classes]]
name = "gold"
latency = "1ms"
[[classes]]
name = "bronze"
latency = "10ms"
"#,
    );
    // Smaller volumes, because a cache numbers all pages of all volumes.
    let size = match kind {
        "open" | "window" | "closed" => "100 GiB",
        _ => "8 GiB",
    };
    for v in 0..VOLUMES {
        let class = if v % 3 == 0 { "gold" } else { "bronze" };
        text += &format!(
            "[[volumes]]\nname = \"v{v}\"\nvm = \"vm{}\"\nclass = \"{class}\"\nsize = \"{size}\"\n",
            v / 3
        );
    }
    match kind {
        "open" => text += "[[traces]]\nfile = \"synthetic\"\nreplay = \"open\"\n",
        "window" => {
            text += "[[traces]]\nfile = \"synthetic\"\nreplay = \"window\"\noutstanding = 256\n"
        }
        _ => {
            for v in 0..VOLUMES {
                text += &format!(
                    "[[clients]]\nvolume = \"v{v}\"\nhabits = {{ outstanding = 8, read_share = 0.7, skew = 0.9 }}\n"
                );
            }
            text += match kind {
                "cache" => CACHE,
                "hosts" => HOSTS,
                _ => "",
            };
            if kind == "answers" {
                text += HOSTS;
                text += "[response]\n";
            }
            // Long enough for about the requested number of requests.
            text = format!("duration = \"{}s\"\n{text}", (requests / 1_700_000).max(2));
        }
    }
    text
}

/// Generates a trace of 48 volumes with Zipf popularity and exponential gaps, at 500,000 requests per second in total.
fn synthetic(requests: u64) -> LoadedTrace {
    let mut rng = Rng::new(1, 1);
    let volumes = Popularity::new(VOLUMES, 0.8);
    let pages = Popularity::new((100 << 30) / 4096 - 8, 0.9);
    let mut now = 0.0;
    let records: Vec<Record> = (0..requests)
        .map(|_| {
            now += rng.exponential() * 2000.0;
            let bits = rng.next_u64();
            Record::new(Request {
                time_ns: now as u64,
                volume: volumes.page(rng.next_u64()) as u32,
                op: if bits & 0xFF < 179 {
                    Op::Read
                } else {
                    Op::Write
                },
                offset_bytes: pages.page(rng.next_u64()) * 4096,
                length_bytes: 4096 << (bits >> 8 & 3),
            })
        })
        .collect();
    let names: Vec<String> = (0..VOLUMES).map(|v| format!("v{v}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    LoadedTrace::from_records(records, None, &names).expect("records are valid")
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let requests: u64 = args
        .first()
        .map_or(20_000_000, |n| n.parse().expect("a number of requests"));
    let trace = Arc::new(synthetic(requests));
    println!(
        "requests per run: about {requests}; {VOLUMES} volumes, 12 devices; medians of {RUNS} runs, one core"
    );
    println!(
        "{:<8} {:>14} {:>22}",
        "replay", "M requests/s", "(min - max)"
    );
    let asked = |kind: &&str| args.len() < 2 || args[1..].iter().any(|a| a == kind);
    for kind in KINDS.into_iter().filter(asked) {
        let file = ScenarioFile::parse("bench.toml", &scenario(kind, requests)).expect("valid");
        let traces = match kind {
            "open" | "window" => vec![Arc::clone(&trace)],
            _ => vec![],
        };
        let model = file.build(traces).expect("valid");
        let mut rates: Vec<f64> = (0..RUNS)
            .map(|_| {
                let manifest = Manifest::default();
                let options = RunOptions {
                    series: true,
                    decisions: true,
                    optimum: None,
                };
                let strategy = planner::build("noop", Default::default()).expect("known");
                let start = Instant::now();
                let result =
                    sim::run(&model, strategy, manifest, options, &mut |_| {}).expect("runs");
                result.total().all.ios as f64 / start.elapsed().as_secs_f64() / 1e6
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        let (low, high) = (rates[0], rates[RUNS - 1]);
        println!(
            "{kind:<8} {:>14.1} {:>22}",
            rates[RUNS / 2],
            format!("({low:.1} - {high:.1})")
        );
    }
    Ok(())
}
