//! Golden scenarios: what is done about a broken objective, step by step, and that all ends in a safe state.

use algo::Rng;
use sim::response::{
    Keeps, Load, LoadOp, RecordedRequest, ReductionConfig, ResponseFault, ResponseResult, Uses,
    Writes, respond,
};
use slo::{Promise, Standing};
use units::{Bytes, BytesPerSec, Nanos};

use crate::support::{database, host, s, scenario, told, workload};

#[test]
fn an_appliance_comes_helps_and_goes() {
    let (events, helped) = told(&scenario());
    assert_eq!(
        events,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "580 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
    let mut watched = scenario();
    watched.responder = None;
    let (nothing, unhelped) = told(&watched);
    assert!(nothing.is_empty());
    assert!(helped[0] < 0.3 * unhelped[0], "{helped:?} {unhelped:?}");
}

#[test]
fn samples_tell_the_limit_and_the_tail() {
    let mut model = scenario();
    model.responder = None;
    model.duration = s(700);
    let samples = respond(&model).series.swap_remove(0).samples;
    let (calm, peak) = (&samples[10..39], &samples[50..69]);
    // 120 requests a second seldom fill sixteen slots; 850 are more than four disks do.
    assert!(calm.iter().all(|s| s.limited < 0.3 && !s.backlogged()));
    assert!(peak.iter().all(|s| s.limited > 0.99 && s.backlogged()));
    for sample in &samples {
        let (p50, p99) = (sample.p50_us.unwrap(), sample.p99_us.unwrap());
        assert!(0.0 < p50 && p50 < p99 && sample.latency_us.unwrap() < p99);
        assert!(sample.limited <= sample.occupied);
    }
}

#[test]
fn one_that_is_not_cacheable_is_left_alone() {
    let mut model = scenario();
    model.workloads[0] = database(1200, 0.6);
    model.array.write_back = Nanos::from_micros(3400);
    let (events, _) = told(&model);
    assert!(events.is_empty(), "{events:?}");
    let result = respond(&model);
    // In the first decisions the one jump of both is all that there is, which is no evidence; by the last one there is enough.
    let decision = result.decisions.last().unwrap();
    assert_eq!(decision.set.len(), 2);
    let why: Vec<_> = decision
        .cacheable
        .iter()
        .map(|c| slo::cacheable::why_not(&c.findings))
        .collect();
    let why_not: [Option<String>; 2] = [
        Some("share of writes 0.60 is above 0.40".into()),
        Some("miss ratio with the largest cache 0.69 is above 0.60".into()),
    ];
    assert_eq!(why, why_not);
}

#[test]
fn full_hosts_are_said() {
    let mut model = scenario();
    model.hosts = vec![host(0, 1), host(1, 1)];
    let (events, _) = told(&model);
    assert!(events.is_empty(), "{events:?}");
    let result = respond(&model);
    let refused: Vec<_> = result.decisions[0]
        .hosts
        .iter()
        .map(|h| h.refused.clone().unwrap())
        .collect();
    assert_eq!(refused, ["1 GiB of memory free, needs 2 GiB"; 2]);
}

#[test]
fn a_failed_creation_is_tried_on_another_host() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::CreationFails(0)];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "589 appliance of db failed: it could not be created: the hypervisor refused",
            "590 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "650 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn a_failed_rerouting_that_took_place_is_set_back_first() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::ReroutingFails(0)];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "591 appliance of db failed: requests could not be re-routed: no answer",
            "600 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "660 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn a_violation_that_vanishes_while_the_appliance_boots() {
    let mut model = scenario();
    model.workloads[0] = database(515, 0.05);
    model.appliance.create = s(240);
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "610 appliance of db to go: the violation vanished while it was being created",
            "620 appliance of db is gone"
        ]
    );
}

/// Five thousand requests at once, on disks that serve 182 a second: those that completed are in time on average, those that wait are not.
#[test]
fn what_waits_counts_for_a_latency_that_was_promised() {
    let requests = (0..5000u32).map(|object| RecordedRequest {
        at: Nanos::ZERO,
        object,
        objects: 1,
        op: LoadOp::Read,
    });
    let mut model = scenario();
    let mut burst = workload("burst", Load::Recorded(requests.collect()), 0.0);
    burst.outstanding_max = 5000;
    burst.uses = Uses::OwnDisks;
    burst.objective = Promise {
        rate_min_per_s: None,
        latency_max: Some(s(8)),
        ..Promise::default()
    };
    model.workloads = vec![burst];
    model.responder = None;
    model.duration = s(60);
    let result = respond(&model);
    let (first, standings) = (&result.series[0].samples[0], &result.series[0].standings);
    assert!(first.latency_us.unwrap() < 6e6, "{first:?}");
    let completed = (first.rate_per_s() * 10.0).round() as u64;
    assert_eq!(completed + first.overdue, 5000);
    assert!((first.overdue_us.unwrap() - 10e6).abs() < 1.0);
    assert_eq!(standings[0], Standing::TooLate);
    let last = result.series[0].samples.last().unwrap();
    assert_eq!((last.overdue, last.overdue_us), (0, None));
    assert_eq!(standings[5], Standing::Kept, "all is done");
}

/// While its appliance is lost nothing of a workload is under way, and still something waits.
#[test]
fn on_a_path_that_stands_still_something_waits() {
    let mut model = scenario();
    model.workloads[0].objective.latency_max = Some(Nanos::from_millis(200));
    model.faults = vec![ResponseFault::HostLost(Nanos::from_millis(909_500))];
    let result = respond(&model);
    let sample = |ends_s: usize| &result.series[0].samples[ends_s / 10 - 1];
    assert_eq!(sample(910).overdue, 1, "{:?}", sample(910));
    let age_us = sample(910).overdue_us.unwrap();
    assert!((400e3..=500e3).contains(&age_us), "{age_us}");
    for calm in [900, 920] {
        assert_eq!(sample(calm).overdue, 0);
    }
}

#[test]
fn a_host_that_is_lost_takes_no_request_along() {
    let mut model = scenario();
    model.faults = vec![ResponseFault::HostLost(s(900))];
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "580 db goes through its appliance",
            "900 the hosts of all appliances are lost",
            "911 appliance of db failed: its host was lost: no power",
            "1030 appliance for db ordered on host 1: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "1090 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_does_not() {
    let short = |seed| {
        let mut model = scenario();
        model.duration = s(300);
        model.seed = seed;
        respond(&model)
    };
    assert_eq!(short(1), short(1));
    assert_ne!(short(1).series[0].samples, short(2).series[0].samples);
}

#[test]
fn what_is_recorded_is_served_once_and_late_if_the_storage_is_slow() {
    let mut rng = Rng::new(3, 3);
    let requests: Vec<RecordedRequest> = (0..60_000u64)
        .map(|i| RecordedRequest {
            // Two seconds of 15,000 requests, then silence, then the same again.
            at: Nanos(i * 66_000 + if i < 30_000 { 0 } else { 40_000_000_000 }),
            object: rng.below(800_000) as u32,
            objects: 1 + rng.below(4) as u32,
            op: if i % 3 == 0 {
                LoadOp::Write
            } else {
                LoadOp::Read
            },
        })
        .collect();
    let mut model = scenario();
    model.workloads = vec![workload("trace", Load::Recorded(requests.into()), 1.0)];
    model.duration = s(90);
    model.marks = vec![s(2), s(50)];
    model.appliance.writes = Writes::Through;
    let result = respond(&model);
    let series = &result.series[0];
    assert_eq!(series.served + series.unserved + 16, 60_000 + 16);
    let caught = series.caught_up[0].expect("it catches up in the silence");
    assert!(caught > s(10), "{caught}");
    assert!(series.samples[0].waiting > 10_000);
}

#[test]
fn what_cannot_be_destroyed_keeps_its_memory_until_it_is_gone() {
    let mut model = scenario();
    // One host, with room for one appliance.
    model.hosts = vec![host(0, 3)];
    model.hosts[0].cpus_free = 8;
    model.faults = vec![
        ResponseFault::CreationFails(0),
        ResponseFault::DestroyingFailsUntil(s(900)),
    ];
    if let Some(responder) = &mut model.responder {
        responder.avoid_host = s(0);
    }
    assert_eq!(
        told(&model).0,
        [
            "520 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "629 appliance of db is left behind: its virtual machine could not be destroyed: the hypervisor refused",
            "900 what was left of the appliance of db is gone",
            "930 appliance for db ordered on host 0: cache 1 GiB of 2 GiB, address-migration, warm-up of 15 zones at 10/s",
            "990 db goes through its appliance",
            "1380 appliance of db to go: its workload has been quiet",
            "1391 appliance of db is gone"
        ]
    );
    let result = respond(&model);
    let refused = result.decisions[1].hosts[0].refused.as_deref();
    assert_eq!(refused, Some("1 GiB of memory free, needs 2 GiB"));
}

#[test]
fn two_appliances_in_turn_before_a_volume_that_is_written_are_never_stale() {
    for writes in [Writes::Around, Writes::Through] {
        let mut model = scenario();
        model.workloads[0] = database(1200, 0.12);
        model.appliance.writes = writes;
        model.faults = vec![ResponseFault::HostLost(s(900))];
        let (events, _) = told(&model);
        let served = events.iter().filter(|e| e.contains("goes through"));
        assert_eq!(served.count(), 2, "{events:?}");
    }
}

/// A fill that is bounded is slower, ends, and repeats no read by itself: the backend is asked once for each read that is not found.
#[test]
fn a_bounded_fill_helps_later_and_what_it_refuses_is_answered_once() {
    let with = |fill_max| {
        let mut model = scenario();
        model.appliance.fill_max = fill_max;
        respond(&model)
    };
    let (quick, slow) = (with(None), with(Some(BytesPerSec(1 << 20))));
    let db = |r: &ResponseResult| r.series[0].violation_minutes();
    assert!(db(&slow) > db(&quick), "{} {}", db(&slow), db(&quick));
    let asked = |r: &ResponseResult| -> (f64, f64) {
        let samples = r.series[0].samples.iter();
        samples.fold((0.0, 0.0), |(reads, past), s| {
            (reads + s.reads_per_s, past + s.backend_reads_per_s)
        })
    };
    let (reads, past) = asked(&slow);
    assert!(past <= reads + 1e-6, "{past} of {reads}");
    assert!(past > asked(&quick).1, "more is not found");
    assert_eq!(slow.stale, 0);
    // The warm-up is as slow, and has an end all the same.
    let nothing_fits = with(Some(BytesPerSec(1)));
    assert_eq!(nothing_fits.stale, 0);
    assert!(nothing_fits.requests > 0);
}

/// Half the memory with what it keeps reduced to half holds as much, and costs time of its processors.
#[test]
fn an_appliance_that_reduces_holds_more_and_is_slower() {
    let with = |keeps| {
        let mut model = scenario();
        model.appliance.keeps = keeps;
        model.appliance.ssd = Bytes::ZERO;
        // Data that no appliance of a gibibyte holds as it is.
        if let Load::Generated(load) = &mut model.workloads[0].load {
            load.regions[0].objects = 70_000;
            load.regions[0].theta = 0.0;
        }
        if let Some(responder) = &mut model.responder {
            responder.sizing.sizes = vec![Bytes::gib(1)];
        }
        respond(&model)
    };
    let reduced = |per_page| {
        with(Keeps::Reduced(ReductionConfig {
            ratio: 2.0,
            per_page: Nanos(per_page),
        }))
    };
    let past = |r: &ResponseResult| -> f64 {
        let late = r.series[0].samples[80..110].iter();
        late.map(|s| s.backend_reads_per_s).sum()
    };
    let (plain, light, heavy) = (with(Keeps::AsIs), reduced(4_000), reduced(400_000));
    assert!(
        past(&light) < 0.5 * past(&plain),
        "{} {}",
        past(&light),
        past(&plain)
    );
    let rate = |r: &ResponseResult| {
        r.series[0].samples[80..110]
            .iter()
            .map(|s| s.rate_per_s())
            .sum::<f64>()
    };
    assert!(
        rate(&heavy) < 0.9 * rate(&light),
        "{} {}",
        rate(&heavy),
        rate(&light)
    );
}
