//! Live and simulated agree: one closed-loop scenario on the live data path, over emulated devices, and in `sim`.
//!
//! ```text
//!                 ┌─▶ sim ──────────────────────────────────────────────────────▶ latencies, moves ─┐
//!  scenario.toml ─┤      same clients, strategy, policy, seed, executor, device model               ├─▶ compared
//!                 └─▶ server ◀─ guests over NBD;  measurements ─▶ decide ─▶ executor ─▶ control_server: move ─┘
//! ```
//!
//! The moves must be the same ones, in the same order; of every volume the mean latency must be within a quarter, the
//! 99th percentile within a half. The live half takes as long as the scenario says. The scenario's devices are slow enough that the
//! noise of an idle host is small beside them. What a busy one adds is measured, not guessed: a control volume, on a device whose
//! latency is known and which no decision sees, is read all the while, and what its requests take too long is allowed to the others,
//! up to a bound. Beyond that the host is too busy to tell, and the live half is tried again.
//!
//! What each half is: `live` and `guests` for the live one, on a `site`; `sim::run` for the other. `cargo test -p cli --test timing
//! agreement -- --nocapture` prints the numbers. That the scenario moves volumes by their load is a test of the suite.

mod guests;
mod live;
mod site;

use algo::Histogram;
use sim::{GroupKind, Manifest, Model, RunOptions, RunResult, ScenarioFile};

const SCENARIO: &str = include_str!("agreement/scenario.toml");

/// How far apart means may be, as a share of the simulated one.
const MEAN_APART: f64 = 0.25;

/// The same for 99th percentiles.
const P99_APART: f64 = 0.5;

/// The same for the time that a move takes.
const MOVE_APART: f64 = 0.25;

/// Seconds of each part of the run that is looked at by itself: before anything is moved, and after the last move.
const PARTS: [(&str, f64, f64); 2] = [("before", 1.0, 14.0), ("after", 34.0, 38.0)];

/// A move that was made: volume, from, to.
type Made = (String, String, String);

/// What came out of a run.
struct Outcome {
    /// Mean and 99th percentile in microseconds, requests, by volume.
    whole: Vec<(f64, f64, u64)>,
    /// Means by part and volume.
    parts: Vec<Vec<f64>>,
    /// In the order in which they began.
    moves: Vec<Made>,
    /// When they began and ended, for people.
    times: Vec<(f64, f64)>,
}

/// How late the host was in the live run, in microseconds: what requests of the control took beyond what its device takes.
#[derive(Debug)]
struct Late {
    mean_us: f64,
    p99_us: f64,
    parts: [f64; PARTS.len()],
}

/// The most that is allowed: the host is too busy to tell when it is later, and what our own path costs cannot hide behind more.
const LATE_MAX: Late = Late {
    mean_us: 600.0,
    p99_us: 4000.0,
    parts: [600.0; PARTS.len()],
};

/// Live runs on a host that is too busy.
const TRIES: usize = 3;

impl Late {
    fn of(control: &Seen) -> Self {
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
struct Seen {
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

/// Mean latency by volume between two moments, from the results over time.
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

/// Prints both, and says where they are too far apart, by more than what `late` explains.
fn compare(model: &Model, sim: &Outcome, live: &Outcome, late: &Late) -> Vec<String> {
    let mut apart = vec![];
    println!("{late:.0?}");
    let late = late.allowed();
    println!("volume   what          sim us   live us   ratio");
    for (v, volume) in model.volumes.iter().enumerate() {
        let mut row = |what: &str, sim: f64, live: f64, most: f64, late: f64| {
            let ratio = live / sim;
            let name = &volume.name;
            println!("{name:8} {what:11} {sim:8.0}  {live:8.0}   {ratio:5.2}");
            // A number that is none is not near.
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
fn live_and_simulated_agree() {
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

/// That the comparison can fail: against an array whose fast tier has twice the latency, on a host as late as may be.
#[test]
fn another_device_is_noticed() {
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
