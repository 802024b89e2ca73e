//! Devices that do not respond, that are wrong, or that come and go. Guests of other devices must not notice.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datapath::control_server::{ControlRequest, NewDevice, NewSource, Problem, ProblemKind};
use testkit::export::serve;
use units::Bytes;

use crate::support::{MIB, Site, wait_for};

/// Serves an array with tiers of 64 MiB and volumes of 32 MiB on the first tier.
fn served(tiers: &[&str], volumes: &[&str]) -> Site {
    let mut site = Site::empty();
    for tier in tiers {
        site.add(tier, tier, 64, None);
    }
    site.serve(&[]);
    for volume in volumes {
        site.create(volume, 32, tiers[0]);
    }
    site
}

impl Site {
    fn problem(&self, kind: ProblemKind) -> Option<Problem> {
        let problems = self.samples().problems;
        problems.into_iter().find(|t| t.kind == kind)
    }

    /// Returns the names of the devices.
    fn devices(&self) -> Vec<String> {
        let devices = self.samples().devices;
        devices.into_iter().map(|d| d.name).collect()
    }
}

fn of_dir(tier: &str, dir: &Path) -> NewDevice {
    NewDevice {
        tier: tier.into(),
        source: NewSource::Dir(dir.into()),
        size: Some(Bytes::mib(64)),
        emulate: None,
        direct: model::DirectIo::Off,
        force: false,
        thin: false,
    }
}

fn of_gate(tier: &str, gate: &Path) -> NewDevice {
    NewDevice {
        tier: tier.into(),
        source: NewSource::Nbd(format!("nbd+unix:///?socket={}", gate.display())),
        size: None,
        emulate: None,
        direct: model::DirectIo::Off,
        force: false,
        thin: false,
    }
}

/// State of a connection to a server.
#[derive(Clone)]
enum Way {
    Silent,
    To(PathBuf),
}

/// Proxy in front of a server that can fall silent or switch to another server.
#[derive(Clone)]
struct Gate {
    way: Arc<Mutex<Way>>,
    /// Number of connections that were accepted.
    accepted: Arc<AtomicUsize>,
}

impl Gate {
    fn new(path: &Path, way: Way) -> Self {
        let gate = Self {
            way: Arc::new(Mutex::new(way)),
            accepted: Arc::default(),
        };
        let listener = UnixListener::bind(path).unwrap();
        let myself = gate.clone();
        std::thread::spawn(move || {
            for here in listener.incoming() {
                let (here, gate) = (here.unwrap(), myself.clone());
                gate.accepted.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let Ok(there) = UnixStream::connect(gate.wait()) else {
                        return;
                    };
                    let (a, b) = (here.try_clone().unwrap(), there.try_clone().unwrap());
                    let back = gate.clone();
                    std::thread::spawn(move || back.pass(b, a));
                    gate.pass(here, there);
                });
            }
        });
        gate
    }

    fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    /// Waits until the proxy has a target, and returns it.
    fn wait(&self) -> PathBuf {
        loop {
            if let Way::To(path) = self.way.lock().unwrap().clone() {
                return path;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream) {
        let begun = self.wait();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let n = from.read(&mut bytes).unwrap_or(0);
            // Connections end when the target changes.
            if n == 0 || self.wait() != begun || to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(std::net::Shutdown::Both);
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn unresponsive_new_device_does_not_block_other_requests() {
    let site = served(&["fast", "slow"], &["data"]);
    let (server, path) = (site.path("server.sock"), site.path("gate.sock"));
    serve(&server, usize::MAX);
    let gate = Gate::new(&path, Way::Silent);
    let mut guest = site.connect("data").unwrap();
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| site.ask(ControlRequest::AddDevice(of_gate("remote", &path))));
        wait_for("it waits for the server", || {
            gate.accepted.load(Ordering::Relaxed) > 0
        });
        // A request that waited for the silent device would hang until the gate opens below, or until the addition fails.
        for extent in 0..20 {
            guest.write(extent * MIB, &[7; 4096]).unwrap();
            site.ask(ControlRequest::Copies).unwrap();
        }
        // Another device that is added meanwhile does not wait either.
        let beside = site.path("beside");
        std::fs::create_dir(&beside).unwrap();
        site.ask(ControlRequest::AddDevice(of_dir("remote", &beside)))
            .unwrap();
        assert!(!adding.is_finished(), "it waits for the server");
        gate.set(Way::To(server.clone()));
        adding.join().unwrap().unwrap();
    });
    assert_eq!(site.devices(), ["fast-0", "slow-0", "remote-0", "remote-1"]);
    // The path of a device cannot be used again.
    let again = site.ask(ControlRequest::AddDevice(of_gate("remote", &path)));
    assert!(again.unwrap_err().contains("already"));
}

#[test]
fn devices_added_concurrently_have_distinct_names() {
    let site = served(&["fast"], &[]);
    let dir = site.path("new");
    std::fs::create_dir(&dir).unwrap();
    std::thread::scope(|scope| {
        let add = || site.ask(ControlRequest::AddDevice(of_dir("new", &dir)));
        let all: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
        all.into_iter()
            .for_each(|one| drop(one.join().unwrap().unwrap()));
    });
    let mut names = site.devices();
    names.sort();
    assert_eq!(names, ["fast-0", "new-0", "new-1", "new-2", "new-3"]);
    assert_eq!(site.samples().tiers, ["fast", "new"]);
}

#[test]
fn refused_device_replacement_leaves_no_file() {
    let site = served(&["fast", "slow"], &[]);
    let other = site.path("other");
    std::fs::create_dir(&other).unwrap();
    let replace = |dir: &Path| {
        site.ask(ControlRequest::ReplaceDevice {
            device: "fast-0".into(),
            new: of_dir("", dir),
            accept_loss: false,
        })
    };
    // The second copy of the map is next to the device.
    let why = replace(&other).unwrap_err();
    assert!(why.contains("the second copy of the map"), "{why}");
    assert_eq!(site.devices(), ["fast-0", "slow-0"]);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
    // A replacement next to the copy is accepted.
    replace(&site.path("fast")).unwrap();
    assert_eq!(site.devices(), ["slow-0", "fast-1"]);
    assert!(!site.path("fast/fast-0.extents").exists(), "it is wiped");
}

#[test]
fn deleted_device_file_is_reported_as_a_problem() {
    let site = served(&["fast", "slow"], &["data"]);
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &[7; 4096]).unwrap();
    let file = site.path("fast/fast-0.extents");
    let away = site.path("fast/away");
    assert_eq!(site.problem(ProblemKind::DeviceFileGone), None);
    std::fs::rename(&file, &away).unwrap();
    let gone = || site.problem(ProblemKind::DeviceFileGone);
    wait_for("it is said", || gone().is_some());
    assert!(
        gone().unwrap().what.contains("is no longer at"),
        "{:?}",
        gone()
    );
    std::fs::rename(&away, &file).unwrap();
    wait_for("it is back", || gone().is_none());
    std::fs::remove_file(&file).unwrap();
    wait_for("it is said", || gone().is_some());
    let problem = gone().unwrap();
    assert_eq!(problem.about, "fast-0");
    assert!(problem.what.contains("was deleted"), "{problem:?}");
    assert!(problem.what.contains("terrace tier drain"), "{problem:?}");
    assert_eq!(guest.read(0, 4096).unwrap(), [7; 4096]);
}

#[test]
fn superblock_overwritten_while_served_is_a_problem_and_stops_writes() {
    let mut site = served(&["fast", "slow", "third"], &["data"]);
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &[7; 4096]).unwrap();
    guest.flush().unwrap();
    let path = site.path("fast/fast-0.extents");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9; 2048], 1024).unwrap();
    let damaged = std::fs::read(&path).unwrap();
    assert_eq!(site.problem(ProblemKind::DeviceOverwritten), None);
    // Any change of the membership stamps all devices.
    let beside = site.path("beside");
    std::fs::create_dir(&beside).unwrap();
    site.ask(ControlRequest::AddDevice(of_dir("slow", &beside)))
        .unwrap();
    let problem = site.problem(ProblemKind::DeviceOverwritten).unwrap();
    assert_eq!(problem.about, "fast-0");
    assert!(
        problem.what.contains("in place of the first superblock"),
        "{problem:?}"
    );
    assert!(
        problem.what.contains("`terrace device replace fast-0`"),
        "{problem:?}"
    );
    wait_for("a write of the guest fails", || {
        guest.write(0, &[8; 4096]).is_err()
    });
    assert!(guest.read(0, 4096).is_err(), "no wrong data");
    site.stop();
    assert!(
        std::fs::read(&path).unwrap() == damaged,
        "it was written to"
    );
}

#[test]
fn export_with_data_is_refused_without_force() {
    let site = served(&["fast"], &[]);
    let server = site.path("server.sock");
    serve(&server, usize::MAX);
    let new = of_gate("remote", &server);
    let NewSource::Nbd(uri) = &new.source else {
        unreachable!("it is an export");
    };
    let mut other = datapath::Client::connect(&uri.parse().unwrap()).unwrap();
    let last = other.size() - 512;
    other.write(last, &[9; 512]).unwrap();
    let why = site
        .ask(ControlRequest::AddDevice(new.clone()))
        .unwrap_err();
    assert!(why.contains("the last MiB is not zero"), "{why}");
    let forced = NewDevice { force: true, ..new };
    let done = site.done(ControlRequest::AddDevice(forced));
    assert!(done.contains("; destroyed: unknown data"), "{done}");
    assert_eq!(other.read(last, 512).unwrap(), [0; 512]);
}

#[test]
fn devices_larger_than_their_file_system_are_refused_unless_thin() {
    let site = served(&["fast"], &[]);
    let dir = site.path("fast");
    let stat = rustix::fs::statvfs(dir.as_path()).unwrap();
    // A single device would fit. The first device has 64 MiB.
    let size = Some(Bytes(stat.f_blocks * stat.f_frsize - 32 * MIB));
    let new = NewDevice {
        size,
        ..of_dir("slow", &dir)
    };
    let why = site
        .ask(ControlRequest::AddDevice(new.clone()))
        .unwrap_err();
    assert!(why.contains("--thin"), "{why}");
    let thin = NewDevice { thin: true, ..new };
    site.done(ControlRequest::AddDevice(thin));
}

#[test]
fn silent_or_exchanged_remote_device_is_reported() {
    let site = served(&["fast", "slow"], &[]);
    let (right, wrong) = (site.path("right.sock"), site.path("wrong.sock"));
    serve(&right, usize::MAX);
    serve(&wrong, usize::MAX);
    let path = site.path("gate.sock");
    let gate = Gate::new(&path, Way::To(right.clone()));
    site.ask(ControlRequest::AddDevice(of_gate("remote", &path)))
        .unwrap();
    site.create("data", 32, "remote");
    let connected = || site.samples().devices[2].connected;
    wait_for("it is connected", connected);
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &[7; 4096]).unwrap();
    assert_eq!(site.problem(ProblemKind::DeviceUnreachable), None);

    let problem = || site.problem(ProblemKind::DeviceUnreachable);
    gate.set(Way::Silent);
    wait_for("silence is said", || problem().is_some());
    let said = problem().unwrap();
    assert_eq!(said.about, "remote-0");
    assert!(said.what.contains("no response for"), "{said:?}");
    assert!(!connected(), "nothing is moved to it");

    gate.set(Way::To(wrong));
    wait_for("the other one is said", || {
        problem().is_some_and(|t| t.what.contains("another superblock"))
            || problem().is_some_and(|t| t.what.contains("no superblock"))
    });
    assert!(!connected());

    gate.set(Way::To(right));
    wait_for("it is well again", || problem().is_none() && connected());
    let mut guest = site.connect("data").unwrap();
    assert_eq!(guest.read(0, 4096).unwrap(), [7; 4096]);
}

/// A volume grows while its guest writes. The new part reads as zeroes and accepts writes of later connections, also
/// after a restart.
#[test]
fn volume_is_resized_and_renamed_while_a_guest_is_connected() {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.add("slow", "slow", 64, None);
    site.serve(&[]);
    site.serving()
        .listen_vhost_user(&site.path("vhost"))
        .unwrap();
    let resize = |site: &Site, bytes: u64| {
        let (volume, size) = ("data".into(), Bytes(bytes));
        site.ask(ControlRequest::Resize { volume, size })
    };
    site.create("data", 1, "fast");
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &[7; 4096]).unwrap();
    // The only extent is complete now. The next size ends in the middle of an extent.
    for (bytes, before) in [(3 * MIB + 512, MIB), (5 * MIB, 3 * MIB + 512)] {
        resize(&site, bytes).unwrap();
        let mut newer = site.connect("data").unwrap();
        assert_eq!((guest.size(), newer.size()), (MIB, bytes));
        assert!(guest.read(MIB, 512).is_err(), "it was told another size");
        guest.write(512, &[8; 512]).unwrap();
        assert!(newer.read(before, 512).unwrap() == [0; 512], "what is new");
        newer.write(bytes - 512, &[9; 512]).unwrap();
        assert_eq!(newer.read(512, 512).unwrap(), [8; 512]);
        newer.write(before, &[6; 512]).unwrap();
    }
    let refused = resize(&site, MIB).unwrap_err();
    assert!(refused.contains("a volume can only grow"), "{refused}");
    assert!(
        resize(&site, 5 * MIB + 1)
            .unwrap_err()
            .contains("multiple of 512")
    );
    assert!(resize(&site, 5 * MIB).is_ok(), "as it is");
    site.done(ControlRequest::Move {
        volume: "data".into(),
        to: "slow".into(),
        device: None,
        bandwidth: units::BytesPerSec(1 << 20),
        extents: None,
    });
    let refused = resize(&site, 6 * MIB).unwrap_err();
    assert!(refused.contains("is moving"), "{refused}");
    site.done(ControlRequest::CancelMove {
        volume: "data".into(),
    });
    site.create("other", 1, "fast");
    let rename = |to: &str| {
        let (volume, to) = ("data".into(), to.into());
        site.ask(ControlRequest::Rename { volume, to })
    };
    assert!(rename("other").unwrap_err().contains("already"));
    rename("database").unwrap();
    guest.write(1024, &[5; 512]).unwrap();
    assert!(site.connect("data").is_err());
    assert_eq!(site.connect("database").unwrap().size(), 5 * MIB);
    let socket = |name: &str| site.path(&format!("vhost/{name}.sock"));
    assert!(socket("database").exists() && !socket("data").exists());
    drop(guest);
    site.stop();
    site.serve(&["database"]);
    let mut guest = site.connect("database").unwrap();
    assert_eq!(guest.size(), 5 * MIB);
    assert_eq!(guest.read(5 * MIB - 512, 512).unwrap(), [9; 512]);
    assert_eq!(guest.read(1024, 512).unwrap(), [5; 512]);
    assert_eq!(guest.read(3 * MIB + 512, 512).unwrap(), [6; 512]);
}
