//! A worker that hangs: the problem in the status, requests of operators meanwhile, and the state of the array after a stop.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use array::Superblock;
use datapath::control::{CONTROL_SOCKET, VolumeHold};
use datapath::control_server::{
    ControlAnswer, ControlRequest, Problem, ProblemKind, Samples, VolumeInfo, VolumeSample,
};
use datapath::stages::{measure, record};
use datapath::{ArrayServer, Client, ServerConfig};
use units::{Bytes, BytesPerSec};

use crate::support::{PATIENCE, Site, wait_for};

/// Limit for a stop. A longer one counts as a hang.
const STOPS: Duration = Duration::from_secs(120);

/// Serves the volumes `here` and `there`, each on its own worker, with flushed data.
fn site() -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.add("slow", "slow", 64, None);
    site.serve(&[]);
    for (volume, byte) in [("here", 1), ("there", 2)] {
        site.create(volume, 8, "fast");
        let mut guest = site.connect(volume).unwrap();
        guest.write(0, &[byte; 8192]).unwrap();
        guest.flush().unwrap();
        guest.disconnect().unwrap();
    }
    site
}

/// Guard of a worker that hangs. The worker continues when it is dropped.
struct Hang(Sender<()>);

impl Hang {
    /// Lets the worker of a volume hang. Returns when the server has detected it, with the error of the request that hangs.
    fn begin(serving: &ArrayServer, volume: &str) -> (Self, String) {
        let (let_go, gate) = gate();
        let hang = move |_: datapath::stages::StageVolume<'_>| {
            let _ = gate.lock().unwrap().recv_timeout(PATIENCE * 5);
            Ok(())
        };
        let began = Instant::now();
        let why = serving.control_server().at_stages(volume, hang);
        assert!(began.elapsed() < PATIENCE * 2, "it waits for the worker");
        (Self(let_go), why.unwrap_err().to_string())
    }

    fn end(self) {
        drop(self.0);
    }
}

/// A channel whose receiver can move to another thread.
fn gate() -> (Sender<()>, Arc<Mutex<Receiver<()>>>) {
    let (let_go, gate) = channel();
    (let_go, Arc::new(Mutex::new(gate)))
}

fn sample<'a>(samples: &'a Samples, volume: &str) -> &'a VolumeSample {
    let found = samples.volumes.iter().find(|v| v.name == volume);
    found.expect("it is there")
}

fn stalled(samples: &Samples) -> Vec<&Problem> {
    let all = samples.problems.iter();
    all.filter(|t| t.kind == ProblemKind::WorkerStalled)
        .collect()
}

fn show(site: &Site, volume: &str) -> VolumeInfo {
    let volume = volume.into();
    match site.ask(ControlRequest::Show { volume }) {
        Ok(ControlAnswer::Volumes { mut volumes }) => volumes.remove(0),
        other => panic!("{other:?}"),
    }
}

/// Orders about a volume that its worker carries out.
fn orders(volume: &str) -> Vec<ControlRequest> {
    let volume = || volume.to_owned();
    vec![
        ControlRequest::from(measure::Command::Measure {
            volume: volume(),
            on: false,
        }),
        ControlRequest::from(record::Command::Record {
            volume: volume(),
            path: "/nowhere/recording.trc".into(),
        }),
        ControlRequest::TakeSnapshot {
            volume: volume(),
            name: "late".into(),
        },
        ControlRequest::Resize {
            volume: volume(),
            size: Bytes::mib(16),
        },
        ControlRequest::Move {
            volume: volume(),
            to: "slow".into(),
            device: None,
            bandwidth: BytesPerSec(1 << 20),
            extents: None,
        },
        ControlRequest::CancelMove { volume: volume() },
        ControlRequest::StopMirror {
            volume: volume(),
            lent_only: false,
        },
        ControlRequest::Delete {
            volume: volume(),
            force: true,
        },
    ]
}

#[test]
fn stalled_worker_is_a_problem_and_other_volumes_are_served() {
    let mut site = site();
    let placed = sample(&site.samples(), "there").placed.clone();
    let (hang, why) = Hang::begin(site.serving(), "there");
    let begun = "volume \"there\": worker 1 has not responded for ";
    assert!(why.starts_with(begun), "{why}");
    assert!(
        why.contains("may take effect when it recovers"),
        "the worker has begun it: {why}"
    );

    // New connections go to workers in turn, whatever their volume.
    let mut guests: Vec<Client> = (0..4).map(|_| site.connect("here").unwrap()).collect();
    let guest = &mut guests[0];
    let before = site.samples();
    assert_eq!(guest.read(0, 8192).unwrap(), [1; 8192]);
    let samples = site.samples();
    let problems = stalled(&samples);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].about, "worker 1");
    let what = &problems[0].what;
    assert!(what.starts_with("worker 1: no response for "), "{what}");
    assert!(what.contains(" It serves there: "), "{what}");
    assert!(what.contains("Restart the server"), "{what}");

    let reads = |samples: &Samples| {
        let here = sample(samples, "here");
        assert!(here.exported);
        here.stages.measure.counts.as_ref().unwrap().reads.ios
    };
    assert_eq!(reads(&samples), reads(&before) + 1);
    let there = sample(&samples, "there");
    assert_eq!(there.placed, placed, "the map knows");
    assert!(!there.exported && there.healthy);
    assert_eq!((there.connections, there.held_back), (None, None));
    assert_eq!(there.stages.measure.counts, None, "unknown is not zero");
    assert_eq!(samples.looked, None);
    let (here, there) = (show(&site, "here"), show(&site, "there"));
    assert!(here.exported && !here.stalled);
    assert!(there.stalled && there.status.is_none());

    for order in orders("there") {
        let why = site.ask(order.clone()).unwrap_err();
        assert!(why.contains("worker 1 has not responded"), "{why}");
        assert!(why.contains("nothing was done"), "{order:?}: {why}");
    }
    let control = site.path("array").join(CONTROL_SOCKET);
    let why = VolumeHold::begin(&control, "there")
        .unwrap_err()
        .to_string();
    assert!(why.contains("worker 1 has not responded"), "{why}");
    site.done(ControlRequest::TakeSnapshot {
        volume: "here".into(),
        name: "soon".into(),
    });
    site.done(ControlRequest::Resize {
        volume: "here".into(),
        size: Bytes::mib(16),
    });
    assert!(site.serving_mut().tick(), "it is served");

    hang.end();
    wait_for("it recovers", || stalled(&site.samples()).is_empty());
    let mut guest = site.connect("there").unwrap();
    assert_eq!(guest.read(0, 8192).unwrap(), [2; 8192]);
    let info = show(&site, "there");
    assert!(info.exported && !info.stalled);
    assert_eq!((info.size, info.moving_to), (Bytes::mib(8), None));
    let samples = site.samples();
    let there = sample(&samples, "there");
    assert!(there.stages.measure.counts.is_some(), "it is measured");
    assert!(samples.looked.is_some());
    let volumes = match site.ask(ControlRequest::Volumes) {
        Ok(ControlAnswer::Volumes { volumes }) => volumes,
        other => panic!("{other:?}"),
    };
    assert!(volumes.iter().all(|v| v.name != "there@late"));
    site.stop();
}

#[test]
fn request_abandoned_before_the_worker_starts_it_has_no_effect() {
    let mut site = site();
    let (let_go, gate) = gate();
    let (begun, has_begun) = channel();
    let late = Arc::new(AtomicBool::new(false));
    std::thread::scope(|threads| {
        let control_server = site.serving().control_server();
        let hangs = threads.spawn(move || {
            control_server.at_stages("there", move |_| {
                begun.send(()).unwrap();
                let _ = gate.lock().unwrap().recv_timeout(PATIENCE * 5);
                Ok(())
            })
        });
        has_begun.recv().unwrap();
        let took_effect = late.clone();
        let waits = control_server.at_stages("there", move |_| {
            took_effect.store(true, Ordering::Release);
            Ok(())
        });
        let why = waits.unwrap_err().to_string();
        assert!(why.contains("so nothing was done"), "{why}");
        let why = hangs.join().unwrap().unwrap_err().to_string();
        assert!(why.contains("may take effect"), "{why}");
    });
    drop(let_go);
    wait_for("it recovers", || stalled(&site.samples()).is_empty());
    assert!(!late.load(Ordering::Acquire), "it was withdrawn");
    site.stop();
}

#[test]
fn slow_worker_is_not_reported_as_stalled() {
    let mut site = site();
    let slow = site.serving().control_server().at_stages("there", |_| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(7)
    });
    assert_eq!(slow.unwrap(), 7);
    assert!(stalled(&site.samples()).is_empty());
    site.stop();
}

#[test]
fn vhost_user_guest_of_a_stalled_worker_is_refused() {
    let mut site = site();
    let sockets = site.path("vhost");
    site.serving().listen_vhost_user(&sockets).unwrap();
    let (hang, _) = Hang::begin(site.serving(), "there");
    let mut guest = UnixStream::connect(sockets.join("there.sock")).unwrap();
    guest.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(guest.read(&mut [0]).unwrap(), 0, "it is closed");
    hang.end();
    wait_for("it recovers", || stalled(&site.samples()).is_empty());
    site.stop();
}

/// Returns true if the last stop has stamped the devices.
fn stamped(site: &Site) -> [bool; 2] {
    ["fast", "slow"].map(|tier| {
        let path = site.path(tier).join(format!("{tier}-0.extents"));
        let mut head = vec![];
        let file = std::fs::File::open(path).unwrap();
        file.take(1 << 20).read_to_end(&mut head).unwrap();
        Superblock::decode_both(&head).unwrap().flushed
    })
}

#[test]
fn stop_with_a_stalled_worker_leaves_the_array_as_after_a_crash() {
    let mut site = site();
    site.stop();
    assert_eq!(stamped(&site), [true; 2], "an orderly stop");
    site.serve(&["here", "there"]);
    assert_eq!(stamped(&site), [false; 2], "it is served");
    let mut guest = site.connect("there").unwrap();
    guest.write(8192, &[3; 8192]).unwrap();
    guest.flush().unwrap();
    let (hang, _) = Hang::begin(site.serving(), "there");

    let began = Instant::now();
    let stopped = site.take_serving().stop();
    assert!(began.elapsed() < STOPS);
    let why = stopped.expect_err("a worker has not ended").to_string();
    let named = "worker 1, which serves there, did not stop: ";
    assert!(why.starts_with(named), "{why}");
    assert_eq!(stamped(&site), [false; 2], "I/O may be in flight");

    // A real server process would end here. In the test, the array's locks are free after the worker has ended.
    hang.end();
    let again = Instant::now() + PATIENCE;
    let config = ServerConfig {
        workers: 2,
        ..ServerConfig::default()
    };
    while let Err(why) = site.try_serve_as(config) {
        assert!(Instant::now() < again, "{why}");
    }
    assert_eq!(stamped(&site), [false; 2], "the keeper has not stamped it");
    for volume in ["here", "there"] {
        site.serving().control_server().export(volume).unwrap();
    }
    let mut guest = site.connect("there").unwrap();
    assert_eq!(guest.read(0, 8192).unwrap(), [2; 8192]);
    assert_eq!(guest.read(8192, 8192).unwrap(), [3; 8192]);
    let mut guest = site.connect("here").unwrap();
    assert_eq!(guest.read(0, 8192).unwrap(), [1; 8192]);
    site.stop();
    assert_eq!(stamped(&site), [true; 2]);
}
