//! Tests of the unix socket: its mode, its server, and other files at its path.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use client::{Address, Client, ClientError, TlsTrust};
use controller::Limits;

use manager::question::PlaceQuestion;

use crate::support::{Fake, ServerSettings, World, refused, settings, start};

fn only_socket(path: std::path::PathBuf) -> ServerSettings {
    ServerSettings {
        socket: path,
        tcp: None,
        limits: Limits::default(),
        reload: None,
    }
}

#[test]
fn socket_is_private_to_its_owner_and_permits_all_requests() {
    let world = World::start(Fake::new(12));
    let mode = std::fs::metadata(world.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = world.local();
    assert_eq!(client.status().unwrap().strategy, "autotiering");
    let done = client
        .set_mode(model::Goal::Latency, model::Mode::Auto)
        .unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(done.message, format!("done for uid {uid}"));
    assert_eq!(world.orders()[0].0, format!("uid {uid}"));
    // The socket also accepts the messages of an agent.
    let register = manager::wire::Register {
        protocol: manager::wire::PROTOCOL,
        session: 1,
        version: "x".into(),
    };
    assert_eq!(
        client.register("any", &register).unwrap().window_ns,
        5_000_000_000
    );
}

#[test]
fn placement_question_is_transferred_unchanged() {
    let world = World::start(Fake::new(12));
    let asked = PlaceQuestion {
        size: units::Bytes((3 << 30) + 4096),
        class: Some("gold & more".into()),
        like: Some("alpha/db main".into()),
        host: None,
    };
    let place = world.local().place(&asked).unwrap();
    assert_eq!(place, crate::support::views::place(&asked));
}

#[test]
fn stop_removes_the_socket_after_regular_ticks() {
    let begun = std::time::Instant::now();
    let World { fake, dir, running } = World::start(Fake::new(1));
    let socket = dir.path().join("controller.sock");
    let ticks = || fake.lock().unwrap().ticks;
    while ticks() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(running.healthy());
    running.stop();
    assert!(!socket.exists());
    // Ticks: once at the start, and then at most once a second.
    let (ticks, seconds) = (ticks(), begun.elapsed().as_secs());
    assert!(ticks <= seconds + 1, "{ticks} in {seconds} s");
    let mut client = Client::new(Address::Unix(socket), None, TlsTrust::Nothing).unwrap();
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::Nobody { .. }), "{error}");
    assert!(
        error.to_string().contains("is `terrace serve` running?"),
        "{error}"
    );
}

#[test]
fn stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.sock");
    // Dropping a listener leaves its file, as a kill does.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let begin = || start(Fake::new(1).shared(), only_socket(path.clone()));
    let running = begin().unwrap();
    let error = begin().expect_err("it is in use").to_string();
    assert!(
        error.contains("is in use by a running controller"),
        "{error}"
    );
    // The first server is unaffected.
    let mut client = Client::new(Address::Unix(path.clone()), None, TlsTrust::Nothing).unwrap();
    client.status().unwrap();
    drop(client);
    drop(running);
}

#[test]
fn file_at_the_socket_path_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let error = refused(only_socket(path.clone())).to_string();
    assert!(
        error.contains("cannot listen on") && error.contains("precious"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    let long = dir.path().join("x".repeat(120));
    let error = refused(only_socket(long)).to_string();
    assert!(error.contains("at most 107 bytes"), "{error}");
}

#[test]
fn failed_start_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = settings(dir.path());
    if let Some(tcp) = &mut all.tcp {
        tcp.tokens = dir.path().join("nothing-here");
    }
    let error = refused(all.clone()).to_string();
    assert!(
        error.contains("cannot read") && error.contains("nothing-here"),
        "{error}"
    );
    assert!(!all.socket.exists());
}

#[test]
fn failed_service_is_reported_as_unavailable() {
    let world = World::start(Fake::new(1));
    let fake = world.fake.clone();
    let broken = std::thread::spawn(move || {
        let _held = fake.lock().unwrap();
        panic!("a test breaks it");
    });
    assert!(broken.join().is_err());
    let error = world.local().status().unwrap_err();
    assert!(
        matches!(&error, ClientError::Unavailable(why) if why.contains("is restarting")),
        "{error}"
    );
    assert!(matches!(
        world.local().health(),
        Err(ClientError::Unavailable(_))
    ));
}
