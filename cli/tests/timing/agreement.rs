//! Agreement of live and simulated runs: one closed-loop scenario on the live data path, with emulated devices, and in
//! `sim`.
//!
//! ```text
//!                 ┌─▶ sim ──────────────────────────────────────────────────────▶ latencies, moves ─┐
//!  scenario.toml ─┤      same clients, strategy, policy, seed, executor, device model               ├─▶ compared
//!                 └─▶ server ◀─ guests over NBD;  measurements ─▶ decide ─▶ executor ─▶ control_server: move ─┘
//! ```
//!
//! Both runs must make the same moves in the same order. The mean latency of each volume must agree within a quarter, its
//! 99th percentile within a half. The live run takes the duration of the scenario.
//!
//! The scenario's devices are slow, so the noise of an idle host is small in comparison. The noise of a busy host is
//! measured: a guest reads a control volume during the whole run. The device of the control volume has a known latency, and
//! no decision includes it. The excess latency of the control volume is added to the tolerance of the other volumes, up to
//! a bound. Above the bound the host is too busy for a comparison, and the live run is repeated.
//!
//! The live run is in `live` and `guests`, on a `site`; the simulated run is `sim::run`. `cargo test -p cli --test timing
//! agreement -- --nocapture` prints the numbers. A test of the suite checks that the scenario moves volumes by their load.

mod guests;
mod live;
mod site;

use algo::Histogram;
use sim::{GroupKind, Manifest, Model, RunOptions, RunResult, ScenarioFile};

const SCENARIO: &str = include_str!("agreement/scenario.toml");

/// Largest difference of mean latencies, as a share of the simulated one.
const MEAN_APART: f64 = 0.25;

/// Largest difference of 99th percentiles, as a share of the simulated one.
const P99_APART: f64 = 0.5;

/// Largest difference of the durations of a move, as a share of the simulated one.
const MOVE_APART: f64 = 0.25;

/// Parts of the run that are compared separately, in seconds: before the first move, and after the last one.
const PARTS: [(&str, f64, f64); 2] = [("before", 1.0, 14.0), ("after", 34.0, 38.0)];

/// Completed move: volume, source tier, target tier.
type CompletedMove = (String, String, String);

/// Results of a run.
struct Outcome {
    /// Mean and 99th percentile in microseconds, and number of requests, by volume.
    whole: Vec<(f64, f64, u64)>,
    /// Mean latencies by part and volume.
    parts: Vec<Vec<f64>>,
    /// Moves in the order of their start.
    moves: Vec<CompletedMove>,
    /// Start and end of the moves, for the printed output.
    times: Vec<(f64, f64)>,
}

/// Noise of the host in the live run, in microseconds: the excess of the control volume's latency over that of its device.
#[derive(Debug)]
struct HostNoise {
    mean_us: f64,
    p99_us: f64,
    parts: [f64; PARTS.len()],
}

/// Largest accepted noise. A noisier host is too busy for a comparison, and the cost of the live data path cannot hide
/// behind a larger tolerance.
const LATE_MAX: HostNoise = HostNoise {
    mean_us: 600.0,
    p99_us: 4000.0,
    parts: [600.0; PARTS.len()],
};

/// Number of live runs on a host that is too busy.
const TRIES: usize = 3;

impl HostNoise {
    fn of(control: &VolumeLatencies) -> Self {
        Self {
            mean_us: control.whole.mean_us(),
            p99_us: control.whole.quantile_ns(0.99) as f64 / 1e3,
            parts: [0, 1].map(|p| control.parts[p].mean_us()),
        }
    }

    fn allowed(&self) -> Self {
        Self {
            mean_us: self.mean_us.min(LATE_MAX.mean_us),
            p99_us: self.p99_us.min(LATE_MAX.p99_us),
            parts: [0, 1].map(|p| self.parts[p].min(LATE_MAX.parts[p])),
        }
    }

    fn too_busy(&self) -> bool {
        self.mean_us > LATE_MAX.mean_us || self.p99_us > LATE_MAX.p99_us
    }
}

/// Latencies of one volume in the live run.
#[derive(Clone, Default)]
struct VolumeLatencies {
    whole: Histogram,
    parts: [Histogram; 2],
}

fn scenario() -> Model {
    let file = ScenarioFile::parse("scenario.toml", SCENARIO).unwrap();
    file.build(vec![]).unwrap()
}

fn strategy() -> Box<dyn planner::AnyStrategy> {
    let file = ScenarioFile::parse("scenario.toml", SCENARIO).unwrap();
    file.strategy(&file.scenario.strategy).unwrap()
}

fn simulated(model: &Model) -> Outcome {
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    let result = sim::run(model, strategy(), Manifest::default(), options, &mut |_| {}).unwrap();
    let whole = result.of_kind(GroupKind::Volume);
    let whole = whole.map(|g| (g.all.mean_us, g.all.p99_us, g.all.ios));
    let mut moves: Vec<_> = result.move_log.iter().collect();
    assert!(
        moves.iter().all(|m| m.state == model::JobStatus::Done),
        "{moves:?}"
    );
    moves.sort_by(|a, b| a.started_s.partial_cmp(&b.started_s).unwrap());
    let made = |m: &&sim::MoveRecord| (m.volume.clone(), m.from.clone(), m.to.clone());
    Outcome {
        whole: whole.collect(),
        parts: PARTS.map(|(_, from, to)| part(&result, from, to)).into(),
        moves: moves.iter().map(made).collect(),
        times: moves
            .iter()
            .map(|m| (m.started_s.unwrap(), m.ended_s.unwrap()))
            .collect(),
    }
}

/// Returns the mean latency by volume between two times, from the results over time.
fn part(result: &RunResult, from_s: f64, to_s: f64) -> Vec<f64> {
    let series = result.series.as_ref().unwrap();
    let windows = (from_s / series.window_s) as usize..(to_s / series.window_s) as usize;
    let volumes = series.groups.iter().filter(|g| g.kind == GroupKind::Volume);
    let mean = |g: &sim::GroupSeries| {
        let (mut sum, mut requests) = (0.0, 0.0);
        for direction in [&g.reads, &g.writes] {
            for w in windows.clone().filter(|w| *w < direction.iops.len()) {
                sum += direction.iops[w] * direction.mean_us[w];
                requests += direction.iops[w];
            }
        }
        sum / requests
    };
    volumes.map(mean).collect()
}

/// Prints both runs. Returns the values that differ by more than the tolerance plus the noise `late`.
fn compare(model: &Model, sim: &Outcome, live: &Outcome, late: &HostNoise) -> Vec<String> {
    let mut apart = vec![];
    println!("{late:.0?}");
    let late = late.allowed();
    println!("volume   what          sim us   live us   ratio");
    for (v, volume) in model.volumes.iter().enumerate() {
        let mut row = |what: &str, sim: f64, live: f64, most: f64, late: f64| {
            let ratio = live / sim;
            let name = &volume.name;
            println!("{name:8} {what:11} {sim:8.0}  {live:8.0}   {ratio:5.2}");
            // The form of the comparison rejects NaN.
            let near = live >= sim * (1.0 - most) && live <= sim * (1.0 + most) + late;
            if !near {
                apart.push(format!("{name}: {what}: live / sim is {ratio:.2}"));
            }
        };
        let ((mean, p99, _), (live_mean, live_p99, _)) = (sim.whole[v], live.whole[v]);
        row("mean", mean, live_mean, MEAN_APART, late.mean_us);
        row("p99", p99, live_p99, P99_APART, late.p99_us);
        for (p, (name, ..)) in PARTS.iter().enumerate() {
            let what = format!("mean {name}");
            let (sim, live) = (sim.parts[p][v], live.parts[p][v]);
            row(&what, sim, live, MEAN_APART, late.parts[p]);
        }
        let ratio = live.whole[v].2 as f64 / sim.whole[v].2 as f64;
        let (sim, live) = (sim.whole[v].2, live.whole[v].2);
        println!(
            "{:8} requests    {sim:8}  {live:8}   {ratio:5.2}",
            volume.name
        );
    }
    for (which, run) in [("sim", sim), ("live", live)] {
        for ((volume, from, to), (began, ended)) in run.moves.iter().zip(&run.times) {
            println!("{which:4} {volume} {from} -> {to}, {began:.1} s to {ended:.1} s");
        }
    }
    if sim.moves != live.moves {
        apart.push(format!("moves: {:?} and {:?}", sim.moves, live.moves));
        return apart;
    }
    for (((volume, ..), sim), live) in sim.moves.iter().zip(&sim.times).zip(&live.times) {
        let ratio = (live.1 - live.0) / (sim.1 - sim.0);
        if (ratio - 1.0).abs() > MOVE_APART {
            apart.push(format!("{volume}: its move took {ratio:.2} times as long"));
        }
    }
    apart
}

#[test]
fn live_and_simulated_results_agree() {
    let model = scenario();
    let sim = simulated(&model);
    let mut apart = vec![];
    for _ in 0..TRIES {
        let (live, late) = live::run(&model, strategy());
        apart = compare(&model, &sim, &live, &late);
        if apart.is_empty() || !late.too_busy() {
            break;
        }
        println!("the host was too busy to tell: once more");
    }
    assert!(apart.is_empty(), "{apart:#?}");
}

/// Checks that the comparison can fail: the fast tier of one run has twice the latency, and the host has the largest
/// accepted noise.
#[test]
fn comparison_detects_a_device_of_other_latency() {
    let model = scenario();
    let mut other = model.clone();
    for spec in [&mut other.topology.devices[0].spec, &mut other.actual[0]] {
        spec.read_latency = units::Nanos(spec.read_latency.0 * 2);
        spec.write_latency = units::Nanos(spec.write_latency.0 * 2);
    }
    let (one, other) = (simulated(&model), simulated(&other));
    let apart = compare(&model, &one, &other, &LATE_MAX);
    assert!(
        apart.iter().any(|a| a.starts_with("web: mean before")),
        "{apart:#?}"
    );
}
