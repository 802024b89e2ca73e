//! Golden scenarios of the ladder's other rungs: each is taken where it is predicted to do, does about what was predicted, and is taken
//! back when nobody needs it any more.

use sim::response::{Load, ResponseFault, ResponseModel, ResponseResult, respond};
use slo::ladder::{Elsewhere, RungKind, SpareOps, taken};
use slo::{Promise, WorkloadId};
use units::{Bytes, BytesPerSec};

use crate::support::{peaking, reading_all_over, s, scenario};

/// A scenario in which one kind of answer is allowed.
fn with(kind: RungKind) -> ResponseModel {
    let mut model = scenario();
    if let Some(responder) = &mut model.responder {
        responder.allowed = vec![kind];
    }
    model.duration = s(2700);
    model
}

fn events(result: &ResponseResult) -> Vec<String> {
    let line = |e: &sim::response::ResponseEvent| format!("{:.0} {}", e.at_s, e.what);
    result.events.iter().map(line).collect()
}

/// Use of the disks in a sample.
fn busy(sample: &slo::Sample) -> Option<f64> {
    sample.busy[0].map(|b| b.reads + b.writes)
}

/// Use of the disks by all, mean from `from` to `to` seconds.
fn disks(result: &ResponseResult, from: usize, to: usize) -> f64 {
    let one = |series: &sim::response::ResponseSeries| {
        let samples = &series.samples[from / 10..to / 10];
        let all = samples.iter().map(|s| busy(s).expect("it is measured"));
        all.sum::<f64>() / samples.len() as f64
    };
    result.series.iter().map(one).sum()
}

/// Checks that the first answer did what was predicted of it; `before` is a time without it, `after` one in which it has its effect.
fn does_as_predicted(
    model: &ResponseModel,
    before: (usize, usize),
    after: (usize, usize),
) -> ResponseResult {
    let result = respond(model);
    assert_eq!(result.stale, 0);
    assert!(result.routed_away.is_empty());
    let told = events(&result);
    let rung = taken(&result.decisions[0].rungs)
        .unwrap_or_else(|| panic!("{:#?}", result.decisions[0].rungs));
    let predicted = rung.prediction.as_ref().unwrap().uses[0];
    let (then, measured) = (
        disks(&result, before.0, before.1),
        disks(&result, after.0, after.1),
    );
    println!("predicted {predicted:.3}, before {then:.3}, measured {measured:.3}\n{told:#?}");
    assert!(then > 0.9, "the disks are the bottleneck: {then}");
    assert!(measured < then - 0.1, "{then} {measured}");
    assert!(
        (measured - predicted).abs() < 0.1 * predicted,
        "{predicted} {measured}"
    );
    for series in &result.series {
        let late = &series.standings[after.0 / 10..after.1 / 10];
        let violates = late.iter().filter(|s| s.violates()).count();
        assert!(violates * 20 <= late.len(), "{}: {violates}", series.name);
    }
    result
}

#[test]
fn a_throttle_holds_and_does_not_flap() {
    let mut model = with(RungKind::Throttle);
    model.workloads = vec![peaking(850.0, (400, 1200), 0.05), reading_all_over(700.0)];
    model.array.data_disks = 5;
    model.duration = s(5200);
    model.workloads[1].objective = Promise::default();
    let result = does_as_predicted(&model, (460, 520), (700, 1200));
    assert_eq!(
        events(&result),
        [
            "520 search held to 414 requests/s",
            "1410 search held to 875 requests/s",
            "2970 search let go"
        ],
        "let go in two steps, as it has a backlog, and once"
    );
}

#[test]
fn a_part_of_the_memory_is_filled_helps_and_is_given_back() {
    let mut model = with(RungKind::MemoryShare);
    model.workloads = vec![peaking(1100.0, (1000, 2000), 0.02), reading_all_over(500.0)];
    // Small requests over a set that is read again, beside larger ones that push it out.
    if let Load::Generated(load) = &mut model.workloads[0].load {
        load.regions[0].objects = 40_000;
        load.regions[0].theta = 0.2;
    }
    model.workloads[0].object_bytes = 8 << 10;
    model.workloads[1].object_bytes = 28 << 10;
    model.array.memory = [Bytes::mib(320), Bytes::mib(64)];
    let result = does_as_predicted(&model, (1060, 1120), (1400, 2000));
    assert_eq!(
        events(&result),
        [
            "1120 db given 240 MiB of the array's memory",
            "2200 db gives 240 MiB of the array's memory back",
        ]
    );
}

#[test]
fn spare_flash_makes_writes_cheaper_after_its_time_and_is_given_back() {
    let mut model = with(RungKind::OpsShare);
    model.workloads = vec![peaking(800.0, (400, 1800), 0.7), reading_all_over(300.0)];
    model.ops = Some(SpareOps {
        workload: WorkloadId(0),
        waf: 5.0,
        waf_with_spare: 1.2,
    });
    let result = does_as_predicted(&model, (460, 520), (1500, 1800));
    assert_eq!(
        events(&result),
        [
            "520 db given the spare flash",
            "1120 flash writes 1.2 instead of 5.0 times what db does",
            "1990 db gives the spare flash back",
        ]
    );
}

fn moving() -> ResponseModel {
    let mut model = with(RungKind::Move);
    model.workloads = vec![peaking(900.0, (400, 1800), 0.15), reading_all_over(500.0)];
    model.workloads[0].objects = 327_680;
    model.elsewhere = Some(Elsewhere {
        name: "other array".into(),
        spare_per_s: 1500.0,
        free: Bytes::gib(20),
        copy_rate: BytesPerSec(20 << 20),
    });
    model
}

#[test]
fn a_move_loads_the_disks_keeps_up_with_writes_and_stays() {
    let result = does_as_predicted(&moving(), (460, 520), (1200, 1800));
    assert_eq!(
        events(&result),
        [
            "520 db is being copied to other array: 5 GiB",
            "870 db is on other array: 327680 objects copied, 14 of them twice",
        ]
    );
    let moved = result.moves[0];
    assert!(moved.mirrored > 1000, "{moved:?}");
    assert_eq!(moved.objects, 327_680 + moved.again);
    // While it is copied, the copy's reads are in everybody's way.
    let rate = |from: usize, to: usize| {
        let samples = &result.series[1].samples[from / 10..to / 10];
        samples.iter().map(|s| s.rate_per_s()).sum::<f64>() / samples.len() as f64
    };
    assert!(rate(540, 700) < 0.95 * rate(460, 520));
    // What is served elsewhere takes nothing here.
    let samples = &result.series[0].samples[100..];
    assert!(samples.iter().all(|s| busy(s) == Some(0.0)));
}

#[test]
fn a_move_that_fails_leaves_the_workload_where_it_was() {
    let mut model = moving();
    model.faults = vec![ResponseFault::MoveFails(s(600))];
    let result = respond(&model);
    assert_eq!(result.stale, 0);
    assert!(result.moves.is_empty());
    assert_eq!(
        events(&result),
        [
            "520 db is being copied to other array: 5 GiB",
            "600 the copy of db failed: the other backend is full"
        ]
    );
}
