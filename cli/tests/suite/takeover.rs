//! A server is taken over by another one while guests write, read and verify: no guest is disconnected, and no data is
//! lost.

use std::time::Duration;

use datapath::Client;
use datapath::control::{self, CONTROL_SOCKET};
use datapath::control_server::{ControlAnswer, ControlRequest};
use model::{ControllerId, LeaseHolder};
use units::Nanos;

use crate::support::checking::{Guest, GuestStats};
use crate::support::{PATIENCE, Site, signal, wait_for};

mod many;
mod refused;
mod streams;

fn wait(time: u64) {
    std::thread::sleep(Duration::from_millis(time));
}

#[test]
fn guests_continue_through_two_take_overs() {
    let mut site = Site::new(&[("db", 64), ("web", 64)]);
    site.serve(&[]);
    site.copies_are_current();
    let uris = [site.uri("db"), site.uri("web")];
    let of = |n: usize| (uris[n % 2].as_str(), n / 2 * 2000);
    let guests: Vec<Guest> = (0..4)
        .map(|n| Guest::new(of(n).0, of(n).1, 2000, Duration::ZERO))
        .collect();
    wait(300);
    for _ in 0..2 {
        let before = site.server_pid();
        site.take_over(&[]);
        assert_ne!(before, site.server_pid());
        wait(300);
        // Commands of operators reach the new server.
        assert!(site.ok(&["volume", "list"]).contains("served"));
    }
    let seen: Vec<GuestStats> = guests
        .into_iter()
        .enumerate()
        .map(|(n, g)| g.end(of(n).1))
        .collect();
    let worst = seen.iter().map(|s| s.worst).max().unwrap();
    let requests: u64 = seen.iter().map(|s| s.requests).sum();
    println!("worst of {requests} requests: {worst:?}\n{}", site.log());
    // New clients connect to the same socket.
    let mut client = Client::connect(&uris[0].parse().unwrap()).unwrap();
    client.read(0, 4096).unwrap();
    client.disconnect().unwrap();
    site.stop();
    assert!(
        site.ok(&["volume", "check"]).contains("no problem"),
        "the map is sound"
    );
}

#[test]
fn moves_and_snapshots_continue_in_the_next_process() {
    let mut site = Site::new(&[("db", 256)]);
    site.serve(&[]);
    site.copies_are_current();
    let guests = [0, 20_000].map(|first| Guest::new(&site.uri("db"), first, 5000, Duration::ZERO));
    wait(500);
    site.ok(&["volume", "snapshot", "create", "db", "one"]);
    site.ok(&[
        "volume",
        "move",
        "db",
        "--to",
        "slow",
        "--bandwidth",
        "20 MiB/s",
    ]);
    for name in ["two", "three"] {
        wait(200);
        site.take_over(&[]);
        site.ok(&["volume", "snapshot", "create", "db", name]);
    }
    let moving = || !site.json(&["volume", "show", "db"])["moving_to"].is_null();
    wait_for("the move is over", || !moving());
    let [one, other] = guests;
    println!("{:?} {:?}", one.end(0), other.end(20_000));
    let shown = site.ok(&["volume", "snapshot", "list"]);
    for name in ["db@one", "db@two", "db@three"] {
        assert!(shown.contains(name), "{shown}");
    }
    site.stop();
    site.ok(&["volume", "check"]);
}

#[test]
fn lease_of_a_controller_continues_in_the_next_process() {
    let mut site = Site::new(&[("db", 64)]);
    site.serve(&[]);
    site.copies_are_current();
    let claim = |site: &Site, store: u64, lasting: Nanos| {
        let (epoch, start) = (1, store);
        let controller = LeaseHolder {
            id: ControllerId {
                store,
                epoch,
                start,
            },
            name: format!("{store}.sock"),
        };
        let claim = ControlRequest::Claim {
            controller,
            lasting,
        };
        match control::ask(&site.path("array").join(CONTROL_SOCKET), &claim) {
            Ok(ControlAnswer::Lease(status)) => status,
            other => panic!("{other:?}"),
        }
    };
    claim(&site, 1, Nanos::from_secs(600));
    // The claim is renewed for a shorter time, which no map records.
    claim(&site, 1, Nanos::from_secs(500));
    site.take_over(&[]);
    let status = claim(&site, 2, Nanos::from_secs(600));
    assert_eq!(status.holder.id.store, 1);
    let left = Nanos(status.left_ns);
    assert!(
        left <= Nanos::from_secs(500) && left > Nanos::from_secs(300),
        "{left:?}"
    );
    site.stop();
}

/// Process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Old,
    New,
}

/// Kills one of the two processes during a take-over. Afterwards one server runs, or none runs and a new one can start.
fn kill_one(site: &mut Site, victim: Victim, after: Duration) {
    let mut new = site.begin_to_take_over(&[]);
    std::thread::sleep(after);
    let mut old = site.server_mut().take().unwrap();
    let (mut killed, mut other) = match victim {
        Victim::Old => (old, new),
        Victim::New => {
            new.kill().unwrap();
            std::mem::swap(&mut old, &mut new);
            (old, new)
        }
    };
    let _ = killed.kill();
    killed.wait().unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(ended) = other.try_wait().unwrap() {
            println!("{victim:?} killed after {after:?}: the other one has ended, {ended}");
            site.serve(&[]);
            break;
        }
        // A process that serves no guest reports that as well.
        let asked = site.run(&["volume", "show", "db", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        if shown["exported"] == true {
            println!("{victim:?} killed after {after:?}: the other one serves");
            *site.server_mut() = Some(other);
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", site.log());
        wait(10);
    }
    site.copies_are_current();
}

#[test]
fn take_over_with_either_process_killed_loses_no_write() {
    let mut site = Site::new(&[("db", 64)]);
    site.serve(&[]);
    site.copies_are_current();
    let guests: Vec<Guest> = (0..3)
        .map(|n| Guest::stubborn(&site.uri("db"), n * 3000, 3000))
        .collect();
    wait(200);
    let rounds = std::env::var("TERRACE_KILLS").map_or(16, |n| n.parse().unwrap());
    let (mut state, mut back) = (3u64, 0);
    for round in 0..rounds {
        let victim = if round % 2 == 0 {
            Victim::New
        } else {
            Victim::Old
        };
        // A different moment of the first 40 milliseconds in each round.
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        kill_one(
            &mut site,
            victim,
            Duration::from_micros((state >> 33) % 40_000),
        );
        back += site.log().matches("are served again").count();
        wait(50);
        assert!(guests.iter().all(Guest::goes_on), "{}", site.log());
    }
    let guests = guests.into_iter().enumerate();
    let seen: Vec<GuestStats> = guests.map(|(n, guest)| guest.end(n * 3000)).collect();
    println!("{seen:?}; guests had waited, and went on, {back} times");
    // With this many rounds, some kills occur while guests wait.
    assert!(rounds < 100 || back > 0);
    site.stop();
    site.ok(&["volume", "check"]);
}

#[test]
fn service_manager_is_notified_of_a_take_over_started_by_a_signal() {
    use std::os::unix::net::UnixDatagram;
    let mut site = Site::new(&[("db", 16)]);
    let socket = UnixDatagram::bind(site.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    site.notify = Some(site.path("notify"));
    site.serve(&[]);
    site.copies_are_current();
    let guest = Guest::new(&site.uri("db"), 0, 100, Duration::ZERO);
    signal(site.server_pid(), "-USR2");
    let main = loop {
        let mut bytes = [0; 1024];
        let n = socket.recv(&mut bytes).unwrap();
        let heard = String::from_utf8_lossy(&bytes[..n]).into_owned();
        if let Some(pid) = heard.strip_prefix("MAINPID=") {
            break pid.parse::<u32>().unwrap();
        }
    };
    assert!(site.server_mut().take().unwrap().wait().unwrap().success());
    wait(200);
    guest.end(0);
    assert!(site.ok(&["volume", "list"]).contains("served"));
    signal(main, "-TERM");
    wait_for("it ends", || {
        !std::fs::exists(site.path("array/control.sock")).unwrap()
    });
}

#[test]
fn stop_signal_during_a_take_over_also_stops_the_next_process() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    let mut ended = 0;
    for round in 0..4u64 {
        let mut new = site.begin_to_take_over(&[]);
        std::thread::sleep(Duration::from_millis(5 * round));
        let mut old = site.server_mut().take().unwrap();
        let before = old.try_wait().unwrap().is_some();
        if !before {
            signal(old.id(), "-TERM");
        }
        assert!(old.wait().unwrap().success(), "{}", site.log());
        // The new process was refused, or it has the array and obeys the signal. If it got the signal after the
        // take-over, it keeps serving.
        let has_it = before || site.log().contains("serves the array now");
        let patience = match has_it {
            true => Duration::from_secs(5),
            false => PATIENCE,
        };
        let until = std::time::Instant::now() + patience;
        let mut now = new.try_wait().unwrap();
        while now.is_none() && std::time::Instant::now() < until {
            wait(10);
            now = new.try_wait().unwrap();
        }
        ended += u64::from(now.is_some_and(|n| n.success()));
        if now.is_none() {
            assert!(has_it, "{}", site.log());
            signal(new.id(), "-TERM");
            new.wait().unwrap();
        }
        site.serve(&[]);
        site.copies_are_current();
    }
    println!("{ended} of 4 took the array over and ended in order with the process before");
}
