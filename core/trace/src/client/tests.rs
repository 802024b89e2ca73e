use super::*;
use crate::presets::CLIENT_PRESETS;

/// Runs a client with a constant latency for `seconds`. Returns its requests with their times.
fn run(
    spec: &ClientSpec,
    volume: Bytes,
    latency_ns: u64,
    seconds: u64,
) -> Vec<(u64, ClientRequest)> {
    let mut client = Client::new(spec, volume, 1, 1).unwrap();
    let mut heap = algo::EventHeap::new();
    (0..client.slots()).for_each(|s| heap.push(0, s));
    let mut out = Vec::new();
    while let Some((now, slot)) = heap.first().filter(|f| f.0 < seconds * 1_000_000_000) {
        let next = match client.next(now, slot) {
            ClientStep::Issue(request) => {
                out.push((now, request));
                now + latency_ns + client.think_ns()
            }
            ClientStep::Later(at) => at,
        };
        assert!(next > now || latency_ns == 0);
        heap.reschedule_first(next);
    }
    out
}

fn habits(habits: Habits) -> ClientSpec {
    ClientSpec {
        habits,
        ..ClientSpec::default()
    }
}

#[test]
fn rate_follows_latency_in_a_closed_loop() {
    let spec = habits(Habits {
        outstanding: Some(4),
        ..Habits::default()
    });
    assert_eq!(run(&spec, Bytes::gib(1), 100_000, 1).len(), 40_000);
    assert_eq!(run(&spec, Bytes::gib(1), 200_000, 1).len(), 20_000);
    let thinking = habits(Habits {
        outstanding: Some(4),
        think: Some(Nanos::from_micros(100)),
        ..Habits::default()
    });
    assert_eq!(run(&thinking, Bytes::gib(1), 100_000, 1).len(), 20_000);
}

#[test]
fn request_shares_sizes_and_sequence_match_the_configuration() {
    let sizes = vec![
        SizeShare {
            size: Bytes(4096),
            share: 3.0,
        },
        SizeShare {
            size: Bytes(65536),
            share: 1.0,
        },
    ];
    let spec = habits(Habits {
        read_share: Some(0.7),
        random_share: Some(0.0),
        sizes: Some(sizes),
        ..Habits::default()
    });
    let requests = run(&spec, Bytes::mib(64), 10_000, 1);
    let n = requests.len() as f64;
    let share =
        |f: &dyn Fn(&ClientRequest) -> bool| requests.iter().filter(|r| f(&r.1)).count() as f64 / n;
    assert!((share(&|r| r.op == Op::Read) - 0.7).abs() < 0.01);
    assert!((share(&|r| r.length == 65536) - 0.25).abs() < 0.01);
    let in_sequence = requests
        .windows(2)
        .filter(|w| w[1].1.offset == w[0].1.offset + u64::from(w[0].1.length));
    assert!(in_sequence.count() as f64 > n * 0.99);
    assert!(
        requests
            .iter()
            .all(|r| r.1.offset + u64::from(r.1.length) <= 64 << 20)
    );
}

#[test]
fn phases_and_bursts_change_the_load_over_time() {
    let mut spec = habits(Habits {
        outstanding: Some(2),
        ..Habits::default()
    });
    spec.phases = vec![
        Phase {
            duration: Nanos::from_secs(1),
            idle: false,
            habits: Habits::default(),
        },
        Phase {
            duration: Nanos::from_secs(1),
            idle: true,
            habits: Habits::default(),
        },
        Phase {
            duration: Nanos::from_secs(1),
            idle: false,
            habits: Habits {
                outstanding: Some(8),
                ..Habits::default()
            },
        },
    ];
    let by_second = |requests: &[(u64, ClientRequest)], s: u64| {
        requests.iter().filter(|r| r.0 / 1_000_000_000 == s).count()
    };
    let requests = run(&spec, Bytes::gib(1), 100_000, 6);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|s| by_second(&requests, s)),
        [20_000, 0, 80_000, 20_000, 0, 80_000]
    );
    let mut spec = habits(Habits {
        outstanding: Some(2),
        ..Habits::default()
    });
    spec.bursts = Some(Bursts {
        every: Nanos::from_secs(2),
        length: Nanos::from_secs(1),
        factor: 4.0,
    });
    let requests = run(&spec, Bytes::gib(1), 100_000, 4);
    assert_eq!(
        [0, 1, 2, 3].map(|s| by_second(&requests, s)),
        [80_000, 20_000, 80_000, 20_000]
    );
}

#[test]
fn client_is_behind_if_replies_are_slower_than_its_rate() {
    let behind = |of: Habits, latency_ns: u64| {
        let mut client = Client::new(&habits(of), Bytes::gib(1), 1, 1).unwrap();
        // All slots have had the same delay since the start.
        let mut ready = vec![0u64; client.slots() as usize];
        for now in (0..1_000_000_000).step_by(50_000) {
            for (slot, at) in (0..).zip(ready.iter_mut()) {
                if *at > now {
                    continue;
                }
                *at = match client.next(now, slot) {
                    ClientStep::Issue(_) => now + latency_ns,
                    ClientStep::Later(at) => at,
                };
            }
        }
        client.behind(1_000_000_000)
    };
    let capped = Habits {
        outstanding: Some(8),
        rate: Some(Iops(1000.0)),
        ..Habits::default()
    };
    assert_eq!(behind(capped.clone(), 1_000_000), 0, "it has its rate");
    assert_eq!(behind(capped.clone(), 16_000_000), 8, "half of its rate");
    let greedy = Habits {
        outstanding: Some(4),
        ..Habits::default()
    };
    assert_eq!(behind(greedy, 1_000_000), 4);
    let thinking = Habits {
        think: Some(Nanos::from_micros(100)),
        ..capped
    };
    assert_eq!(behind(thinking, 16_000_000), 0);
}

#[test]
fn rate_cap_is_respected() {
    let spec = habits(Habits {
        outstanding: Some(8),
        rate: Some(Iops(1000.0)),
        ..Habits::default()
    });
    let n = run(&spec, Bytes::gib(1), 100_000, 10).len();
    assert!((9_990..=10_020).contains(&n), "{n}");
    let slow = run(&spec, Bytes::gib(1), 16_000_000, 10).len();
    assert!(
        (4_990..=5_010).contains(&slow),
        "eight slots of 16 ms give 500 a second: {slow}"
    );
}

#[test]
fn invalid_client_option_is_refused_with_its_key() {
    let cases = [
        (
            habits(Habits {
                read_share: Some(1.5),
                ..Habits::default()
            }),
            "habits.read_share",
        ),
        (
            habits(Habits {
                outstanding: Some(0),
                ..Habits::default()
            }),
            "habits.outstanding",
        ),
        (
            habits(Habits {
                rate: Some(Iops(0.0)),
                ..Habits::default()
            }),
            "habits.rate",
        ),
        (
            habits(Habits {
                skew: Some(f64::NAN),
                ..Habits::default()
            }),
            "habits.skew",
        ),
        (
            habits(Habits {
                footprint: Some(0.0),
                ..Habits::default()
            }),
            "habits.footprint",
        ),
        (
            habits(Habits {
                sizes: Some(vec![]),
                ..Habits::default()
            }),
            "habits.sizes",
        ),
        (
            habits(Habits {
                sizes: Some(vec![SizeShare {
                    size: Bytes(100),
                    share: 1.0,
                }]),
                ..Habits::default()
            }),
            "habits.sizes",
        ),
        (
            ClientSpec {
                preset: Some("zipff".into()),
                ..ClientSpec::default()
            },
            "preset",
        ),
    ];
    for (spec, key) in cases {
        assert_eq!(
            Client::new(&spec, Bytes::gib(1), 1, 1).unwrap_err().key,
            key
        );
    }
}

/// With the mixes of fio, rate and bandwidth are the published ones of the same rows.
#[test]
fn fio_presets_match_table_v() {
    use crate::presets::{FIO_PRESETS, NULL_ENGINE};
    let rows = CLIENT_PRESETS.iter().filter(|p| p.name != NULL_ENGINE);
    for (row, fio) in rows.zip(FIO_PRESETS) {
        assert_eq!(fio.name, format!("fio-{}", row.name));
        assert_eq!((fio.iops, fio.mib_per_s), (row.iops, row.mib_per_s));
        let habits = fio.habits();
        let sizes = habits.sizes.unwrap();
        let all: f64 = sizes.iter().map(|s| s.share).sum();
        let mean: f64 = sizes.iter().map(|s| s.size.as_f64() * s.share).sum::<f64>() / all;
        let asked = mean * fio.iops / f64::from(1 << 20);
        // Table V rounds "25 MiB/s" of 6,650 4 KiB requests.
        assert!(
            (asked / fio.mib_per_s - 1.0).abs() < 0.05,
            "{}: {asked}",
            fio.name
        );
    }
    assert_eq!(FIO_PRESETS.len(), 13);
}

/// The presets reach their published rate on an idle PM953, and their published bandwidth follows.
#[test]
fn presets_match_table_v_on_tier_1() {
    let spec = model::preset("pm953").unwrap().spec();
    for preset in CLIENT_PRESETS {
        let client = ClientSpec {
            preset: Some(preset.name.into()),
            ..ClientSpec::default()
        };
        let mut running = Client::new(&client, Bytes::gib(100), 1, 1).unwrap();
        let mut device = algo::DeviceModel::new(&spec);
        let mut heap = algo::EventHeap::new();
        (0..running.slots()).for_each(|s| heap.push(0, s));
        let (mut n, mut bytes, seconds) = (0u64, 0u64, if preset.iops < 100.0 { 60 } else { 2 });
        while let Some((now, slot)) = heap.first().filter(|f| f.0 < seconds * 1_000_000_000) {
            let next = match running.next(now, slot) {
                ClientStep::Issue(r) => {
                    n += 1;
                    bytes += u64::from(r.length);
                    device.submit(now, r.op, u64::from(r.length), algo::mix(1, n))
                        + running.think_ns()
                }
                ClientStep::Later(at) => at,
            };
            heap.reschedule_first(next);
        }
        let iops = n as f64 / seconds as f64;
        let want = preset.target_iops();
        assert!(
            (iops / want - 1.0).abs() < 0.03,
            "{}: {iops:.0} IOPS, published {want}",
            preset.name
        );
        let mib = bytes as f64 / seconds as f64 / (1 << 20) as f64;
        let want_mib = preset.mib_per_s * want / preset.iops;
        assert!(
            (mib / want_mib - 1.0).abs() < 0.06,
            "{}: {mib:.2} MiB/s, published {want_mib:.2}",
            preset.name
        );
    }
}
