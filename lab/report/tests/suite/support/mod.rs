//! Results for tests and for looking at: small real runs, and made-up ones of any shape.

#![allow(dead_code)] // each user takes a part

use model::JobStatus;
use serde_json::Value;
use sim::{
    DeviceSeries, DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary,
    Manifest, MoveRecord, MoveTotals, RUN_SCHEMA, RunOptions, RunResult, ScenarioFile, Series,
};

pub fn manifest(strategy: &str, duration_s: f64, warmup_s: f64) -> Manifest {
    Manifest {
        version: "0.0.0-test".into(),
        scenario: "test".into(),
        scenario_xxh3: "0123456789abcdef".into(),
        traces: vec![],
        strategy: strategy.into(),
        strategy_config: Value::Null,
        seed: 3,
        duration_s,
        warmup_s,
    }
}

/// Runs a scenario under some strategies.
pub fn run_all(text: &str, strategies: &[&str]) -> Vec<RunResult> {
    let run = |strategy: &&str| {
        let file = ScenarioFile::parse("test.toml", text).unwrap();
        let config = file
            .scenario
            .strategies
            .get(*strategy)
            .cloned()
            .unwrap_or(Value::Null);
        let model = file.build(vec![]).unwrap();
        let manifest = Manifest {
            strategy_config: config.clone(),
            ..manifest(
                strategy,
                model.duration.as_secs_f64(),
                model.warmup.as_secs_f64(),
            )
        };
        let options = RunOptions {
            series: true,
            decisions: true,
            optimum: None,
        };
        let strategy = planner::build(strategy, config).unwrap();
        sim::run(&model, strategy, manifest, options, &mut |_| {}).unwrap()
    };
    strategies.iter().map(run).collect()
}

/// Shape of made-up results.
#[derive(Clone, Copy)]
pub struct Shape {
    pub windows: usize,
    pub volumes: usize,
    pub tiers: usize,
    pub moves: usize,
    /// Largest over smallest latency.
    pub spread: f64,
}

/// A number between 0 and 1 that looks random.
fn noise(i: usize) -> f64 {
    let x = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 24) as f64
}

fn direction(shape: Shape, salt: usize) -> DirectionSeries {
    let per_window = |of: &dyn Fn(usize) -> f64| (0..shape.windows).map(of).collect::<Vec<f64>>();
    let busy = |i: usize| (i + salt) % 97 != 5;
    let iops = per_window(&|i| {
        if busy(i) {
            200.0 + 800.0 * noise(i / 20 + salt * 31)
        } else {
            0.0
        }
    });
    let mean_us = per_window(&|i| {
        let slow = if (i + 40 * salt) % 211 < 12 {
            shape.spread
        } else {
            1.0
        };
        if busy(i) {
            (80.0 + 40.0 * noise(i * 3 + salt)) * slow
        } else {
            0.0
        }
    });
    let times = |f: f64| mean_us.iter().map(|m| m * f).collect::<Vec<f64>>();
    DirectionSeries {
        mib_per_s: iops.iter().map(|v| v / 64.0).collect(),
        p50_us: times(0.8),
        p95_us: times(2.0),
        p99_us: times(4.0),
        p999_us: times(9.0),
        iops,
        mean_us,
    }
}

fn summary(salt: usize) -> DirectionSummary {
    let mean_us = 90.0 + 60.0 * noise(salt);
    DirectionSummary {
        ios: 1000 + salt as u64,
        bytes: 4096 * (1000 + salt as u64),
        iops: 500.0 * noise(salt + 7),
        mib_per_s: 2.0 * noise(salt + 7),
        mean_us,
        p50_us: mean_us * 0.8,
        p95_us: mean_us * 2.0,
        p99_us: mean_us * 4.0,
        p999_us: mean_us * 9.0,
    }
}

/// Made-up results of one strategy.
pub fn made_up(strategy: &str, salt: usize, shape: Shape) -> RunResult {
    let window_s = 10.0;
    let end_s = shape.windows as f64 * window_s;
    let tier = |i: usize| format!("tier-{}", i % shape.tiers.max(1));
    let named = |kind: GroupKind, count: usize, prefix: &'static str| {
        (0..count).map(move |i| (kind, format!("{prefix}-{i}")))
    };
    let names: Vec<(GroupKind, String)> = [(GroupKind::Total, "total".to_string())]
        .into_iter()
        .chain(named(GroupKind::Tier, shape.tiers, "tier"))
        .chain(named(GroupKind::Class, 1, "class"))
        .chain(named(GroupKind::Volume, shape.volumes, "volume"))
        .collect();
    let groups = names
        .iter()
        .enumerate()
        .map(|(i, (kind, name))| GroupSummary {
            kind: *kind,
            name: name.clone(),
            reads: summary(salt + i),
            writes: summary(salt + i + 1),
            all: summary(salt + i + 2),
            slo_excess_s: None,
            slo_violation_s: Some(10.0 * (i % 5) as f64),
        });
    let group_series = names
        .iter()
        .enumerate()
        .map(|(i, (kind, name))| GroupSeries {
            kind: *kind,
            name: name.clone(),
            reads: direction(shape, salt + i),
            writes: direction(shape, salt + i + 3),
            violating: (0..shape.windows)
                .map(|w| u32::from((w + 40 * (salt + i)) % 211 < 12))
                .collect(),
        });
    let devices = (0..shape.tiers).map(|t| DeviceSeries {
        name: tier(t),
        tier: tier(t),
        capacity_bytes: 100 << 30,
        utilization: (0..shape.windows).map(|w| noise(w + t)).collect(),
        used_bytes: (0..shape.windows)
            .map(|w| ((30 + (w * 40 / shape.windows.max(1)) as u64) << 30) + t as u64)
            .collect(),
    });
    let move_log: Vec<MoveRecord> = (0..shape.moves)
        .map(|i| {
            let planned_s = end_s * 0.95 * i as f64 / shape.moves as f64;
            use JobStatus::{Active, Done, Failed};
            let state = [Done, Done, Done, Failed, Active][i % 5];
            MoveRecord {
                volume: format!("volume-{}", i % shape.volumes.max(1)),
                vm: "vm".into(),
                from: tier(i),
                to: tier(i + 1),
                planned_s,
                started_s: Some(planned_s + end_s * 0.005),
                ended_s: (state != Active).then_some(planned_s + end_s * 0.03),
                state,
                why_not: (state == Failed).then(|| "the target refused".into()),
                reason: "rank 1 by score on the target (score 0.5, here 0.1)".into(),
                is_remedy: false,
                bytes: 5 << 30,
                predicted_us: Some(80.0),
                devices: Default::default(),
                range_us: None,
                observed_us: None,
                before_us: Some(120.0),
                extents: None,
                ranges: None,
            }
        })
        .collect();
    RunResult {
        schema: RUN_SCHEMA.into(),
        manifest: manifest(strategy, end_s, 0.0),
        simulated_s: 100.0,
        traces_ended: false,
        stretches: None,
        unfinished: 0,
        counted_s: end_s,
        groups: groups.collect(),
        moves: MoveTotals {
            done: shape.moves as u64,
            bytes: 5 << 30,
            ..MoveTotals::default()
        },
        move_log,
        wear: None,
        cache: None,
        response: None,
        mirrors: None,
        events: vec![],
        final_tiers: (0..shape.volumes)
            .map(|i| (format!("volume-{i}"), tier(i)))
            .collect(),
        series: Some(Series {
            window_s,
            groups: group_series.collect(),
            devices: devices.collect(),
            cache_read_hit_ratio: vec![],
        }),
        decisions: None,
        assignments: vec![],
    }
}
