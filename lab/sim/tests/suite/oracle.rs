//! Event loop compared with slow, simple simulations that sort a list of all latencies.

use std::sync::Arc;

use algo::{DeviceModel, Rng, mix};
use model::Op;
use sim::{DirectionSummary, Manifest, Model, RunOptions, RunResult, ScenarioFile};
use trace::{LoadedTrace, Record, Request};

const SCENARIO: &str = r#"
seed = 5
window = "1s"
[[tiers]]
name = "one"
preset = "pm863"
[[volumes]]
name = "a"
size = "1 GiB"
"#;

/// Returns a bursty trace on one volume, `seconds` long, with some bursts far above the device's limit.
fn trace(seconds: u64) -> Vec<Record> {
    let mut rng = Rng::new(11, 0);
    let (mut now, mut out) = (0.0, Vec::new());
    while now < seconds as f64 * 1e9 {
        let busy = (now as u64 / 500_000_000) % 3 == 1;
        now += rng.exponential() * if busy { 4_000.0 } else { 90_000.0 };
        let op = if rng.unit() < 0.7 {
            Op::Read
        } else {
            Op::Write
        };
        let length_bytes = 4096 << rng.below(4);
        let offset_bytes = rng.below(200_000) * 4096;
        out.push(Record::new(Request {
            time_ns: now as u64,
            volume: 0,
            op,
            offset_bytes,
            length_bytes,
        }));
    }
    out
}

/// Runs a model without a strategy, with results over time.
fn run(model: &Model) -> RunResult {
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    sim::run(model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

/// Returns the simulator's results for reads and writes.
fn simulated(records: &[Record], extra: &str) -> [DirectionSummary; 2] {
    let text = format!("{SCENARIO}[[traces]]\nfile = \"t\"\n{extra}\n");
    let file = ScenarioFile::parse("oracle.toml", &text).unwrap();
    let trace = LoadedTrace::from_records(records.to_vec(), None, &["a"]).unwrap();
    let model = file.build(vec![Arc::new(trace)]).unwrap();
    let result = run(&model);
    [result.total().reads, result.total().writes]
}

/// Simulates requests one by one, with at most `limit` in flight if there is a limit. Returns latencies by direction.
fn naive(records: &[Record], limit: Option<usize>) -> [Vec<u64>; 2] {
    let mut device = DeviceModel::new(&model::preset("pm863").unwrap().spec());
    let stream = mix(5, 0x7_0000);
    let mut in_flight: Vec<u64> = Vec::new();
    let mut out = [vec![], vec![]];
    let mut last = 0;
    for (i, r) in records.iter().enumerate() {
        // Requests are issued in order, none before the previous one.
        let mut now = r.time_ns.max(if limit.is_some() { last } else { 0 });
        if let Some(limit) = limit {
            in_flight.retain(|done| *done > now);
            while in_flight.len() >= limit {
                now = *in_flight.iter().min().unwrap();
                in_flight.retain(|done| *done > now);
            }
        }
        last = now;
        let done = device.submit(
            now,
            r.op(),
            u64::from(r.length_bytes),
            mix(stream, i as u64 + 1),
        );
        in_flight.push(done);
        let arrival = if limit.is_some() { now } else { r.time_ns };
        out[usize::from(r.op() != Op::Read)].push(done - arrival);
    }
    out.iter_mut().for_each(|l| l.sort_unstable());
    out
}

fn agree(name: &str, got: [DirectionSummary; 2], want: [Vec<u64>; 2]) {
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got.ios, want.len() as u64, "{name}");
        let mean = want.iter().sum::<u64>() as f64 / want.len() as f64 / 1e3;
        assert!(
            (got.mean_us / mean - 1.0).abs() < 1e-9,
            "{name}: mean {} {mean}",
            got.mean_us
        );
        for (q, got) in [
            (0.5, got.p50_us),
            (0.95, got.p95_us),
            (0.99, got.p99_us),
            (0.999, got.p999_us),
        ] {
            let want = want[(q * want.len() as f64).ceil() as usize - 1] as f64 / 1e3;
            assert!(
                (got / want - 1.0).abs() < 0.009,
                "{name}: quantile {q}: {got} {want}"
            );
        }
    }
}

#[test]
fn open_replay_matches_a_naive_simulation() {
    let records = trace(9);
    agree(
        "open",
        simulated(&records, "replay = \"open\""),
        naive(&records, None),
    );
}

#[test]
fn window_limited_replay_matches_a_naive_simulation() {
    let records = trace(9);
    for limit in [1, 3, 16, 64] {
        let got = simulated(
            &records,
            &format!("replay = \"window\"\noutstanding = {limit}"),
        );
        // A low limit stretches the trace: the run continues until all requests are issued.
        let all = naive(&records, Some(limit));
        agree(&format!("window {limit}"), got, all);
    }
}

#[test]
fn replay_at_double_speed_equals_a_compressed_trace() {
    let records = trace(8);
    let halved: Vec<Record> = records
        .iter()
        .map(|r| {
            Record::new(Request {
                time_ns: r.time_ns / 2,
                volume: 0,
                op: r.op(),
                offset_bytes: r.offset_bytes,
                length_bytes: r.length_bytes,
            })
        })
        .collect();
    agree(
        "speed 2",
        simulated(&records, "replay = \"open\"\nspeed = 2.0"),
        naive(&halved, None),
    );
}

/// Little's law: the mean number of requests in flight is rate times latency. A closed loop without think time keeps
/// its depth.
#[test]
fn closed_loop_satisfies_littles_law() {
    for depth in [1u32, 4, 32] {
        let text = format!(
            "duration = \"5s\"\n{SCENARIO}[[clients]]\nvolume = \"a\"\nhabits = {{ outstanding = {depth}, read_share = 0.8 }}\n"
        );
        let model = ScenarioFile::parse("little.toml", &text)
            .unwrap()
            .build(vec![])
            .unwrap();
        let all = run(&model).total().all;
        let in_flight = all.iops * all.mean_us / 1e6;
        assert!(
            (in_flight / f64::from(depth) - 1.0).abs() < 0.01,
            "{depth}: {in_flight}"
        );
    }
}

/// With more arrivals than the device can serve, reports have the served rate, and no volume counts as idle.
#[test]
fn overloaded_device_reports_the_served_rate() {
    let records: Vec<Record> = (0..60_000u64)
        .map(|i| {
            Record::new(Request {
                time_ns: i * 100_000, // 10,000 per second for six seconds
                volume: 0,
                op: Op::Read,
                offset_bytes: 0,
                length_bytes: 4096,
            })
        })
        .collect();
    let text = format!(
        "duration = \"12s\"\n{}[[classes]]\nname = \"c\"\nlatency = \"10ms\"\n[[traces]]\nfile = \"t\"\nreplay = \"open\"\n",
        SCENARIO
            .replace("[[volumes]]", "[[volumes]]\nclass = \"c\"")
            .replace(
                "preset = \"pm863\"",
                "preset = \"pm863\"\nread_iops = \"1000 IOPS\""
            )
    );
    let build = |text: &str| {
        let trace = LoadedTrace::from_records(records.clone(), None, &["a"]).unwrap();
        ScenarioFile::parse("over.toml", text)
            .unwrap()
            .build(vec![Arc::new(trace)])
            .unwrap()
    };
    let cut = run(&build(&text));
    let all = cut.total().all;
    assert!(
        (all.iops / 1000.0 - 1.0).abs() < 0.01,
        "the cap: {}",
        all.iops
    );
    assert_eq!(all.ios + cut.unfinished, 60_000);
    assert!(cut.traces_ended);
    // From the first window on, every request waits for more than 10 ms.
    assert!(
        cut.total().slo_violation_s.unwrap() >= 11.0,
        "{:?}",
        cut.total().slo_violation_s
    );
    let series = &cut.series.as_ref().unwrap().groups[0].reads;
    assert!(
        series
            .iops
            .iter()
            .skip(1)
            .all(|r| (r / 1000.0 - 1.0).abs() < 0.05),
        "{:?}",
        series.iops
    );
    // Without a length, the run continues until the last completion.
    let whole = text.replace("duration = \"12s\"\n", "");
    let whole = run(&build(&whole));
    assert_eq!((whole.total().all.ios, whole.unfinished), (60_000, 0));
    assert!(
        (whole.simulated_s - 60.0).abs() <= 1.0,
        "{}",
        whole.simulated_s
    );
}

/// A volume whose requests all take longer than a window violates its objective all the time, with or without
/// completions.
#[test]
fn stalled_volume_violates_its_objective_and_is_not_idle() {
    let text = format!(
        "duration = \"60s\"\n{}[[classes]]\nname = \"c\"\nlatency = \"1ms\"\n[[clients]]\nvolume = \"a\"\nhabits = {{ outstanding = 1 }}\n",
        SCENARIO
            .replace("[[volumes]]", "[[volumes]]\nclass = \"c\"")
            .replace(
                "preset = \"pm863\"",
                "preset = \"pm863\"\nread_latency = \"5s\"\njitter_sigma = 0.0"
            )
    );
    let model = ScenarioFile::parse("stall.toml", &text)
        .unwrap()
        .build(vec![])
        .unwrap();
    let result = run(&model);
    assert_eq!(result.total().all.ios, 11, "one answer every five seconds");
    assert!(
        result.total().slo_violation_s.unwrap() >= 59.0,
        "{:?}",
        result.total().slo_violation_s
    );
}

/// In open replay, no request waits for a write that a move holds, in particular none of another volume of the same
/// trace.
#[test]
fn write_blocked_by_a_move_delays_no_other_request() {
    let records: Vec<Record> = (0..400_000u64)
        .map(|i| {
            Record::new(Request {
                time_ns: i * 50_000,
                volume: (i % 2) as u32,
                // Volume 0 is overwritten in one place during its move. Volume 1 is only read, on its own device.
                op: if i % 2 == 0 { Op::Write } else { Op::Read },
                offset_bytes: (i % 64) * 4096,
                length_bytes: 4096,
            })
        })
        .collect();
    let text = r#"
window = "1s"
copy_chunk = "16 MiB"
[[tiers]]
name = "fast"
preset = "pm953"
[[tiers]]
name = "slow"
preset = "pm863"
devices = 2
[[volumes]]
name = "moved"
size = "1 GiB"
tier = "slow"
[[volumes]]
name = "read"
size = "1 GiB"
tier = "slow"
[[traces]]
file = "t"
replay = "open"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
pins = { moved = "fast", read = "slow" }
"#;
    let trace = LoadedTrace::from_records(records, None, &["moved", "read"]).unwrap();
    let model = ScenarioFile::parse("held.toml", text)
        .unwrap()
        .build(vec![Arc::new(trace)])
        .unwrap();
    let result = run(&model);
    assert_eq!(result.moves.done, 1);
    let of = |name: &str| result.groups.iter().find(|g| g.name == name).unwrap().all;
    assert!(
        of("moved").p999_us > 10_000.0,
        "some writes were held: {:?}",
        of("moved")
    );
    assert!(of("read").p999_us < 1_000.0, "{:?}", of("read"));
    assert_eq!(of("moved").ios + of("read").ios, 400_000);
}

/// Writes to one address during the move of its batch, faster than they can be mirrored one by one. They wait, remain
/// in the counts, and do not count as idle. The volume is one extent, and so one batch.
#[test]
fn requests_blocked_by_a_move_are_counted_as_waiting() {
    let issued = 40_000u64;
    let records: Vec<Record> = (0..issued)
        .map(|i| {
            Record::new(Request {
                time_ns: 8_000_000_000 + i * 250_000,
                volume: 0,
                op: Op::Write,
                offset_bytes: 0,
                length_bytes: 4096,
            })
        })
        .collect();
    let text = r#"
duration = "16s"
window = "1s"
extent = "1 GiB"
[[tiers]]
name = "fast"
preset = "pm953"
[[tiers]]
name = "slow"
preset = "pm863"
write_latency = "5ms"
[[classes]]
name = "c"
latency = "20ms"
[[volumes]]
name = "a"
class = "c"
size = "1 GiB"
tier = "slow"
[[traces]]
file = "t"
replay = "open"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
copy_bandwidth = "60 MiB/s"
pins = { a = "fast" }
"#;
    let trace = LoadedTrace::from_records(records, None, &["a"]).unwrap();
    let model = ScenarioFile::parse("held.toml", text)
        .unwrap()
        .build(vec![Arc::new(trace)])
        .unwrap();
    let result = run(&model);
    // The trace begins at 8 s and issues 4,000 requests per second. The run ends at 16 s.
    let total = result.total();
    assert_eq!(total.all.ios + result.unfinished, 8 * 4_000);
    assert!(result.unfinished > 1_000, "{}", result.unfinished);
    assert!(
        total.slo_violation_s.unwrap() >= 6.0,
        "{:?}",
        total.slo_violation_s
    );
}
