//! Moves yield to guests on shared devices: with real sockets and files, and with objectives as a live manager sets
//! them.

use std::time::{Duration, Instant};

use datapath::control_server::{ControlAnswer, ControlRequest, VolumeSample};
use model::{ClassObjective, Objective, SloStatistic};
use units::{Bytes, BytesPerSec, Nanos};
use volume::CONSERVATIVE;

use crate::support::{MIB, PATIENCE, Site, wait_for};

/// Bandwidth at which the move takes longer than the test.
const RATE: u64 = MIB / 4;

fn promise(site: &Site, latency: Nanos, lasting: Nanos) -> Result<ControlAnswer, String> {
    let objective = ClassObjective {
        class: "gold".into(),
        objective: Objective {
            statistic: SloStatistic::P99,
            latency,
        },
    };
    site.ask(ControlRequest::Objectives {
        objectives: vec![objective],
        lasting,
    })
}

fn sample(site: &Site, name: &str) -> VolumeSample {
    let volumes = site.samples().volumes;
    let found = volumes.into_iter().find(|v| v.name == name);
    found.expect("it is there")
}

#[test]
fn move_yields_to_guests_of_other_volumes_and_at_unknown_latency() {
    let mut site = Site::empty();
    site.add("fast", "a", 96, None);
    site.add("slow", "b", 96, None);
    site.serve(&[]);
    for (name, size, tier, class) in [
        ("moved", 48, "fast", None),
        ("other", 4, "slow", Some("gold")),
    ] {
        let created = site.ask(ControlRequest::Create {
            volume: name.into(),
            size: Bytes::mib(size),
            tier: tier.into(),
            class: class.map(String::from),
        });
        created.unwrap();
    }
    let mut moved = site.connect("moved").unwrap();
    for i in 0..48 {
        moved.write(i * MIB, &vec![1; MIB as usize]).unwrap();
    }
    let mut other = site.connect("other").unwrap();
    other.write(0, &vec![2; MIB as usize]).unwrap();
    assert_eq!(sample(&site, "other").placed[0].0, "slow-0");

    let mut rate_gets = |what: &str, is: &dyn Fn(u64) -> bool| {
        let until = Instant::now() + PATIENCE;
        loop {
            other.read(0, 4096).unwrap();
            let moving = sample(&site, "moved").moving;
            let rate = moving.expect("it takes long enough").rate.0;
            if is(rate) {
                return;
            }
            assert!(Instant::now() < until, "not {what}: {rate} of {RATE}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let careful = |rate: u64| rate <= (RATE as f64 * CONSERVATIVE) as u64;
    let long = Nanos::from_millis(600_000);

    promise(&site, long, long).unwrap();
    let start = || {
        let started = site.ask(ControlRequest::Move {
            volume: "moved".into(),
            to: "slow".into(),
            device: None,
            bandwidth: BytesPerSec(RATE),
            extents: None,
        });
        started.unwrap();
    };
    start();
    rate_gets("at the ordered rate beside one with room", &|rate| {
        rate == RATE
    });
    promise(&site, Nanos(1), long).unwrap();
    rate_gets("careful beside an objective that is missed since", &careful);
    promise(&site, long, Nanos(1)).unwrap();
    rate_gets("careful when objectives are old", &careful);
    promise(&site, long, long).unwrap();
    rate_gets("at the ordered rate again", &|rate| rate == RATE);

    assert!(promise(&site, Nanos::ZERO, long).is_err());
    // Violations before the start of a move do not slow it down, even if an earlier move had yielded to them.
    let cancelled = site.ask(ControlRequest::CancelMove {
        volume: "moved".into(),
    });
    cancelled.unwrap();
    wait_for("the move is over", || {
        sample(&site, "moved").moving.is_none()
    });
    promise(&site, Nanos(1), long).unwrap();
    for _ in 0..100 {
        other.read(0, 4096).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    start();
    let began = Instant::now();
    loop {
        other.read(0, 4096).unwrap();
        let moving = sample(&site, "moved").moving;
        let rate = moving.expect("it takes long enough").rate.0;
        let passed = began.elapsed();
        if passed > Duration::from_millis(300) && rate == RATE {
            break;
        }
        assert!(passed < PATIENCE, "{rate} of {RATE}");
        std::thread::sleep(Duration::from_millis(10));
    }
    site.stop();
}
