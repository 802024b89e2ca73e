//! Samples of a served array, moves to a named device and service classes, with real sockets and files.

use std::time::{Duration, Instant};

use datapath::control_server::{
    ControlAnswer, ControlRequest, DeviceSample, NewDevice, NewSource, Samples, VolumeSample,
};
use datapath::stages::{inject, measure};
use datapath::{Counts, LastMove, Reach, add_device};
use model::{DirectIo, ExtentRanges};
use units::{Bytes, BytesPerSec, Nanos};

use crate::support::{MIB, PATIENCE, Site};

/// Creates an array with the tiers `fast` (one device) and `slow` (two, the first of them emulated). It is not
/// served.
fn array() -> Site {
    let site = Site::empty();
    let emulated = model::preset("sata-ssd").unwrap().spec();
    site.add("fast", "a", 64, None);
    site.add("slow", "b", 128, Some(emulated));
    site.add("slow", "c", 32, None);
    site
}

impl Site {
    fn until(&self, what: &str, holds: impl Fn(&Samples) -> bool) -> Samples {
        let until = Instant::now() + PATIENCE;
        loop {
            let samples = self.samples();
            if holds(&samples) {
                return samples;
            }
            assert!(Instant::now() < until, "not {what}: {samples:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn start_move(
        &self,
        to: &str,
        device: Option<&str>,
        mib_s: u64,
    ) -> Result<ControlAnswer, String> {
        self.ask(ControlRequest::Move {
            volume: "data".into(),
            to: to.into(),
            device: device.map(String::from),
            bandwidth: BytesPerSec(mib_s * MIB),
            extents: None,
        })
    }
}

fn volume<'a>(samples: &'a Samples, name: &str) -> &'a VolumeSample {
    samples.volumes.iter().find(|v| v.name == name).unwrap()
}

fn device<'a>(samples: &'a Samples, name: &str) -> &'a DeviceSample {
    samples.devices.iter().find(|d| d.name == name).unwrap()
}

fn counts(samples: &Samples) -> &Counts {
    volume(samples, "data")
        .stages
        .measure
        .counts
        .as_ref()
        .unwrap()
}

fn placed(samples: &Samples) -> Vec<(&str, u64)> {
    let placed = volume(samples, "data").placed.iter();
    placed.map(|(d, b)| (d.as_str(), b.0 / MIB)).collect()
}

#[test]
fn guest_requests_are_counted_for_volume_and_device() {
    let mut site = array();
    site.create("data", 16, "fast");
    site.create("idle", 16, "slow");
    site.serve(&["data", "idle"]);
    let mut client = site.connect("data").unwrap();
    // The first write of an extent waits for its place.
    client.write(0, &[1; MIB as usize]).unwrap();
    client.write(MIB, &[2; MIB as usize]).unwrap();
    let before = site.samples();
    for i in 0..40 {
        client.write(i * 8192, &[i as u8; 8192]).unwrap();
    }
    for i in 0..100 {
        client.read(i * 4096, 4096).unwrap();
    }
    client.flush().unwrap();
    let after = site.samples();

    let window = counts(&after).since(counts(&before)).unwrap();
    assert_eq!((window.reads.ios, window.reads.bytes), (100, 100 * 4096));
    assert_eq!((window.writes.ios, window.writes.bytes), (41, 40 * 8192));
    for direction in [&window.reads, &window.writes] {
        let in_buckets: u64 = direction.buckets.iter().map(|b| b.1).sum();
        assert_eq!(in_buckets, direction.ios);
        assert!(direction.buckets.is_sorted_by_key(|b| b.0));
        let value = |b: &(u16, u64)| algo::bucket_value_ns(b.0.into()) * b.1;
        let about: u64 = direction.buckets.iter().map(value).sum();
        let sum = direction.sum_ns;
        assert!(about.abs_diff(sum) < sum / 50 + 100 * 64, "{about} {sum}");
        assert_eq!(direction.held_ns, 0);
    }
    assert_eq!((window.errors, window.outstanding), (0, 0));
    // With one request at a time, the queue depth is 1 exactly while a request is in flight.
    let latency_ns = window.reads.sum_ns + window.writes.sum_ns;
    let passed_ns = after.at_ns - before.at_ns;
    assert_eq!(window.depth_ns, latency_ns);
    assert!(window.depth_ns < passed_ns, "{window:?} in {passed_ns}");

    let (was, is) = (device(&before, "fast-0"), device(&after, "fast-0"));
    assert_eq!(is.reads - was.reads, 100);
    assert_eq!(is.read_bytes - was.read_bytes, 100 * 4096);
    assert_eq!(is.writes - was.writes, 41, "and the flush");
    assert_eq!(is.write_bytes - was.write_bytes, 40 * 8192);
    assert_eq!(
        (is.since_ns, is.stages.emulate.busy_ns),
        (was.since_ns, None)
    );
    assert_eq!((is.size, is.used), (Bytes::mib(64), Bytes::mib(2)));
    assert_eq!((device(&after, "slow-0").writes, is.connected), (0, true));

    let data = volume(&after, "data");
    assert_eq!(
        (data.exported, data.healthy, data.connections),
        (true, true, Some(1))
    );
    assert_eq!((data.home.as_str(), data.size), ("fast", Bytes::mib(16)));
    assert_eq!(placed(&after), [("fast-0", 2)]);
    let idle = volume(&after, "idle");
    assert_eq!((idle.connections, idle.placed.len()), (Some(0), 0));
    assert_eq!(idle.stages.measure.counts.as_ref().unwrap().reads.ios, 0);
    assert_eq!(after.tiers, ["fast", "slow"]);
    assert_eq!(after.extent, Bytes::mib(1));
    site.stop();
}

#[test]
fn injected_delay_is_counted_as_held_time() {
    let mut site = array();
    site.create("data", 4, "fast");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    client.write(0, &[1; 65536]).unwrap();
    let inject = |lasting| {
        ControlRequest::from(inject::Command::Inject {
            volume: "data".into(),
            read: Nanos::from_millis(4),
            write: Nanos::from_millis(2),
            lasting,
        })
    };
    site.ask(inject(Nanos::from_millis(60_000))).unwrap();
    let before = site.samples();
    assert!(volume(&before, "data").stages.inject.injecting);
    for i in 0..20 {
        client.read(i * 512, 512).unwrap();
    }
    for i in 0..10 {
        client.write(i * 512, &[3; 512]).unwrap();
    }
    client.flush().unwrap();
    let after = site.samples();
    let window = counts(&after).since(counts(&before)).unwrap();
    let passed_ns = after.at_ns - before.at_ns;
    let near = |held_ns: u64, wanted_ms: u64| {
        // The measured time is at least the injected delay and at most the time of the whole loop: a busy machine adds delay.
        let wanted_ns = wanted_ms * 1_000_000;
        assert!((wanted_ns..passed_ns).contains(&held_ns), "{window:?}");
    };
    near(window.reads.held_ns, 20 * 4);
    near(window.writes.held_ns, 10 * 2);
    assert!(window.reads.held_ns <= window.reads.sum_ns);
    let injected = match site.ask(ControlRequest::Show {
        volume: "data".into(),
    }) {
        Ok(ControlAnswer::Volumes { volumes }) => {
            volumes[0].status.as_ref().unwrap().stages.inject.injected
        }
        other => panic!("{other:?}"),
    };
    let added = injected.unwrap().added;
    assert_eq!(added.count, 30);
    let held_us = (window.reads.held_ns + window.writes.held_ns) as f64 / 1e3;
    assert!((added.mean_us * 30.0 - held_us).abs() < 1.0, "one truth");
    site.ask(inject(Nanos::ZERO)).unwrap();
    client.read(0, 512).unwrap();
    let now = site.samples();
    assert!(!volume(&now, "data").stages.inject.injecting);
    assert_eq!(counts(&now).reads.held_ns, counts(&after).reads.held_ns);
    site.stop();
}

#[test]
fn restart_of_counts_is_visible_and_unmeasured_is_not_zero() {
    let mut site = array();
    site.create("data", 4, "fast");
    site.create("cold", 4, "fast");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    client.read(0, 512).unwrap();
    let measure = |on| {
        ControlRequest::from(measure::Command::Measure {
            volume: "data".into(),
            on,
        })
    };
    let before = site.samples();
    assert_eq!(volume(&before, "cold").stages.measure.counts, None);
    assert!(!volume(&before, "cold").exported);
    site.ask(measure(false)).unwrap();
    assert_eq!(volume(&site.samples(), "data").stages.measure.counts, None);
    site.ask(measure(true)).unwrap();
    let again = site.samples();
    assert_eq!(counts(&again).since(counts(&before)), None);
    client.read(0, 512).unwrap();
    let window = counts(&site.samples()).since(counts(&again)).unwrap();
    assert_eq!(window.reads.ios, 1);

    let since = |s: &Samples| device(s, "fast-0").since_ns;
    site.stop();
    site.serve(&["data"]);
    let restarted = site.samples();
    assert!(since(&restarted) > since(&again));
    assert_eq!(counts(&restarted).since(counts(&again)), None);
    site.stop();
}

#[test]
fn emulated_device_reports_its_busy_time() {
    let mut site = array();
    site.create("data", 8, "slow");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    client.write(0, &[1; MIB as usize]).unwrap();
    let before = site.samples();
    let spec = device(&before, "slow-0").emulate.clone().unwrap();
    assert_eq!(spec, model::preset("sata-ssd").unwrap().spec());
    for i in 0..50 {
        client.read(i * 4096, 4096).unwrap();
    }
    let after = site.samples();
    let busy = |s: &Samples| device(s, "slow-0").stages.emulate.busy_ns.unwrap();
    let each_ns = 1e9 / spec.read_iops;
    let want = 50.0 * each_ns.max(4096.0 * 1e9 / spec.read_bandwidth.as_f64());
    let got = (busy(&after) - busy(&before)) as f64;
    assert!((got - want).abs() < want / 100.0, "{got} {want}");
    assert_eq!(device(&after, "slow-1").stages.emulate.busy_ns, None);
    site.stop();
}

#[test]
fn move_uses_the_given_target_device() {
    let mut site = array();
    site.create("data", 64, "fast");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    for i in 0..24 {
        client.write(i * MIB, &[i as u8 + 1; MIB as usize]).unwrap();
    }
    let refused = |to, device| site.start_move(to, Some(device), 400).unwrap_err();
    assert_eq!(
        refused("fast", "slow-1"),
        "device \"slow-1\" belongs to tier \"slow\", not to \"fast\""
    );
    assert_eq!(
        refused("slow", "slow-7"),
        "unknown device \"slow-7\", did you mean \"slow-0\"?"
    );
    assert_eq!(volume(&site.samples(), "data").home, "fast");
    let before = site.samples();
    // slow-0 has more room.
    site.start_move("slow", Some("slow-1"), 400).unwrap();
    let moved = site.until("moved", |s| volume(s, "data").moving.is_none());
    assert_eq!(placed(&moved), [("slow-1", 24)]);
    assert_eq!(volume(&moved, "data").home, "slow");
    let copied = Bytes::mib(24);
    let last = volume(&moved, "data").last_move.clone();
    assert_eq!(last, Some(LastMove::Done { copied }));
    // Copies count on both devices.
    let bytes = |s: &Samples| device(s, "fast-0").read_bytes + device(s, "slow-1").write_bytes;
    assert_eq!(bytes(&moved) - bytes(&before), 2 * copied.0);
    assert_eq!(counts(&moved).reads.ios, 0, "guests did not read");

    // Moves within a tier, and to a device with too little room.
    for i in 24..40 {
        client.write(i * MIB, &[1; MIB as usize]).unwrap();
    }
    let at = placed(&site.samples()).iter().map(|p| p.1).sum::<u64>();
    assert_eq!(at, 40);
    site.start_move("slow", Some("slow-0"), 400).unwrap();
    let moved = site.until("moved", |s| volume(s, "data").moving.is_none());
    assert_eq!(placed(&moved), [("slow-0", 40)]);
    assert_eq!(
        site.start_move("slow", Some("slow-1"), 400).unwrap_err(),
        "device \"slow-1\" has 32 MiB free, the volume needs 40 MiB"
    );
    site.start_move("fast", None, 400).unwrap();
    let moved = site.until("moved", |s| volume(s, "data").moving.is_none());
    assert_eq!(placed(&moved), [("fast-0", 40)]);
    site.stop();
}

#[test]
fn move_is_sampled_while_it_runs_and_while_it_waits() {
    let mut site = array();
    site.create("data", 32, "fast");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    for i in 0..20 {
        client.write(i * MIB, &[7; MIB as usize]).unwrap();
    }
    // The move takes 20 s.
    site.start_move("slow", Some("slow-1"), 1).unwrap();
    let copying = site.until("copying", |s| {
        let moving = volume(s, "data").moving.as_ref();
        moving.is_some_and(|m| m.copied.0 > 0)
    });
    let moving = volume(&copying, "data").moving.clone().unwrap();
    assert_eq!(
        (moving.to.as_str(), moving.left),
        ("slow-1", Bytes::mib(20))
    );
    assert!((1..=MIB).contains(&moving.rate.0), "{moving:?}");
    assert!(device(&copying, "slow-1").used > Bytes(0), "reserved");
    site.stop();

    let waiting = site.samples();
    let moving = volume(&waiting, "data").moving.clone().unwrap();
    assert_eq!((moving.to.as_str(), &*moving.phase), ("slow-1", "waiting"));
    assert_eq!((moving.copied, moving.left), (Bytes(0), Bytes::mib(20)));
    let data = volume(&waiting, "data");
    assert_eq!((data.exported, data.home.as_str()), (false, "slow"));
    assert_eq!(placed(&waiting), [("fast-0", 20)]);
    assert_eq!(device(&waiting, "fast-0").reads, 0);
}

#[test]
fn volume_class_is_durable_and_survives_a_move() {
    let mut site = array();
    site.create("data", 8, "fast");
    let class_of = |site: &Site| volume(&site.samples(), "data").class.clone();
    let set = |site: &Site, volume: &str, class: &str| {
        let (volume, class) = (volume.into(), class.into());
        site.ask(ControlRequest::SetClass { volume, class })
    };
    let message = "volume data now has class gold".to_string();
    assert_eq!(
        set(&site, "data", "gold"),
        Ok(ControlAnswer::Done { message })
    );
    assert_eq!(class_of(&site), "gold");
    site.serve(&["data"]);
    assert_eq!(class_of(&site), "gold");
    set(&site, "data", "bronze").unwrap();
    site.connect("data").unwrap().write(0, &[1; 4096]).unwrap();
    site.start_move("slow", None, 100).unwrap();
    site.until("moved", |s| volume(s, "data").moving.is_none());
    assert_eq!(
        set(&site, "data", "").unwrap_err(),
        "class \"\": must not be empty"
    );
    assert_eq!(
        set(&site, "dta", "gold").unwrap_err(),
        "unknown volume \"dta\", did you mean \"data\"?"
    );
    site.stop();
    assert_eq!(class_of(&site), "bronze");
    site.serve(&["data"]);
    assert_eq!(class_of(&site), "bronze");
    site.stop();
}

#[test]
fn remote_device_is_connected_while_its_server_runs() {
    let mut far = array();
    far.create("lent", 16, "fast");
    far.serve(&["lent"]);
    let mut site = array();
    let uri = far.listen().uri("lent");
    let new = NewDevice {
        tier: "far".into(),
        source: NewSource::Nbd(uri),
        size: None,
        emulate: None,
        direct: DirectIo::Off,
        force: false,
        thin: false,
    };
    add_device(&site.path("array"), None, new).unwrap();
    let connected = |s: &Samples| device(s, "far-0").connected;
    assert!(!connected(&site.samples()), "nobody is");
    site.create("data", 8, "far");
    site.serve(&["data"]);
    site.until("connected", connected);
    let mut client = site.connect("data").unwrap();
    client.write(0, &[5; 4096]).unwrap();
    client.read(0, 4096).unwrap();
    let samples = site.samples();
    let remote = device(&samples, "far-0");
    assert_eq!((remote.reads, remote.read_bytes), (1, 4096));
    assert_eq!((remote.writes, remote.write_bytes), (1, 4096));
    // The array that uses the export is a guest like any other.
    let delete = |force| ControlRequest::Delete {
        volume: "lent".into(),
        force,
    };
    let refused = far.ask(delete(false)).unwrap_err();
    assert!(
        refused.starts_with("volume \"lent\" is in use: "),
        "{refused}"
    );
    far.ask(delete(true)).unwrap();
    site.until("away", |s| !connected(s));
    assert!(client.read(0, 4096).is_err());
    let samples = site.samples();
    assert_eq!(counts(&samples).errors, 1);
    assert_eq!(device(&samples, "far-0").reads, 1, "it failed");
    site.stop();
    far.stop();
}

#[test]
fn heat_readers_see_changes_since_their_own_last_read() {
    let mut site = array();
    site.create("data", 16, "fast");
    let heat = |site: &Site, since| match site.ask(ControlRequest::Heat {
        volume: "data".into(),
        since,
    }) {
        Ok(ControlAnswer::Heat(sample)) => sample,
        other => panic!("{other:?}"),
    };
    let at_rest = heat(&site, None);
    assert_eq!((at_rest.extents, at_rest.heat), (16, None));
    assert_eq!(String::from(at_rest.places), "16x-");
    site.serve(&["data"]);
    let mut client = site.connect("data").unwrap();
    client.write(3 * MIB, &[1; 2 * MIB as usize]).unwrap();
    for _ in 0..5 {
        client.read(4 * MIB, 512).unwrap();
    }
    let first = heat(&site, None);
    assert_eq!(
        (first.devices, String::from(first.places)),
        (vec!["fast-0".into()], "3x-,2x0,11x-".into())
    );
    let first = first.heat.unwrap();
    assert_eq!(first.touched(), [(3, 0, 1), (4, 5, 1)]);
    client.read(9 * MIB, 512).unwrap();
    client.read(4 * MIB, 512).unwrap();
    client.trim(0, MIB as u32).unwrap();
    // A reader from the start, a new reader, and a reader of the first look.
    for since in [None, Some(first.cursor)] {
        let seen = heat(&site, since).heat.unwrap();
        let all = [(3, 0, 1), (4, 6, 1), (9, 1, 0)];
        let new = &all[usize::from(since.is_some())..];
        assert_eq!(seen.touched(), new);
        assert_eq!(seen.cursor.since_ns, first.cursor.since_ns);
        let nothing = heat(&site, Some(seen.cursor)).heat.unwrap();
        assert_eq!(nothing.touched(), []);
    }
    let anew = measure::Command::Measure {
        volume: "data".into(),
        on: true,
    };
    site.ask(anew.into()).unwrap();
    client.read(0, 512).unwrap();
    let anew = heat(&site, Some(first.cursor)).heat.unwrap();
    assert!(anew.cursor.since_ns > first.cursor.since_ns);
    assert_eq!(anew.touched(), [(0, 1, 0)]);
    site.stop();
}

/// Exactly one of several simultaneous orders is accepted, and its record is durable.
#[test]
fn record_of_a_move_is_that_of_the_accepted_order() {
    let mut site = array();
    site.create("data", 16, "fast");
    for round in 0..5 {
        site.serve(&["data"]);
        let mut client = site.connect("data").unwrap();
        client
            .write(0, &vec![round + 1; 16 * MIB as usize])
            .unwrap();
        let order = |from: u32| ControlRequest::Move {
            volume: "data".into(),
            to: "slow".into(),
            device: Some("slow-1".into()),
            // The move takes longer than the test.
            bandwidth: BytesPerSec(4096),
            extents: Some(ExtentRanges::from_sorted(from..from + 4)),
        };
        let orders = std::thread::scope(|scope| {
            let ordered = [0, 4, 8, 12].map(|from| {
                let reach = Reach::find(&site.path("array")).unwrap();
                scope.spawn(move || (from, reach.ask(order(from))))
            });
            ordered.map(|o| o.join().unwrap())
        });
        let taken = orders.iter().filter(|(_, answer)| answer.is_ok());
        let taken: Vec<u32> = taken.map(|(from, _)| *from).collect();
        assert_eq!(taken.len(), 1, "{orders:?}");
        site.stop();
        let array = array::Array::open(&site.path("array")).unwrap();
        let records = array.moves().unwrap();
        let recorded: Vec<_> = records.iter().map(|r| r.extents.clone()).collect();
        let wanted = ExtentRanges::from_sorted(taken[0]..taken[0] + 4);
        assert_eq!(recorded, [Some(wanted)], "round {round}: {orders:?}");
        drop(array);
        site.serve(&["data"]);
        let cancel = ControlRequest::CancelMove {
            volume: "data".into(),
        };
        site.ask(cancel).unwrap();
        site.until("over", |s| volume(s, "data").moving.is_none());
        site.stop();
    }
}
