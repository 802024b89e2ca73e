//! Tests of the port: trust, tokens, roles, and the rights of agents.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use client::{Client, ClientError, Fingerprint, TlsTrust, Token};
use controller::{Certificate, StartError};
use manager::question::{Choice, Question};
use manager::wire::{PROTOCOL, Register, WireRefusal};
use model::Goal;
use model::Mode;
use model::TierState;

use crate::support::{
    ADMIN, AGENT, Fake, OPERATE, READ, World, private, refused, settings, start, views,
};

fn register(session: u64) -> Register {
    Register {
        protocol: PROTOCOL,
        session,
        version: "0.1.0".into(),
    }
}

#[test]
fn certificate_is_trusted_only_by_fingerprint_or_ca_file() {
    let world = World::start(Fake::new(3));
    assert_eq!(world.remote(READ).volumes().unwrap().len(), 3);
    let with = |trust| Client::new(world.url(), Some(Token::new(READ).unwrap()), trust);
    let ca = TlsTrust::CaFile(world.certificate());
    assert_eq!(with(ca).unwrap().volumes().unwrap().len(), 3);
    let other = TlsTrust::Fingerprint(Fingerprint::of(b"something else"));
    let error = with(other).unwrap().status().unwrap_err();
    assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
    assert!(
        error.to_string().contains("give its fingerprint"),
        "{error}"
    );
    let elsewhere = World::start(Fake::new(1));
    let ca = TlsTrust::CaFile(elsewhere.certificate());
    let error = with(ca).unwrap().status().unwrap_err();
    assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
    let error = with(TlsTrust::Nothing).err().unwrap();
    assert!(matches!(error, ClientError::NoTrust { .. }), "{error:?}");
}

#[test]
fn certificate_of_the_operator_is_used() {
    let theirs = World::start(Fake::new(1));
    let dir = tempfile::tempdir().unwrap();
    let mut own = settings(dir.path());
    let tcp = own.tcp.as_mut().unwrap();
    tcp.certificate = Certificate::Files {
        certificate: theirs.certificate(),
        key: theirs.dir.path().join("controller.key"),
    };
    let running = start(Fake::new(1).shared(), own).unwrap();
    assert_eq!(running.fingerprint(), theirs.running.fingerprint());
    assert!(!dir.path().join("controller.crt").exists());
}

#[test]
fn each_role_has_exactly_its_permissions() {
    let world = World::start(Fake::new(12));
    let forbidden = |error: ClientError, role: &str| {
        let words = error.to_string();
        assert!(matches!(error, ClientError::Forbidden(_)), "{words}");
        assert!(
            words.contains(&format!("this request requires the role {role}")),
            "{words}"
        );
    };
    let mut reader = world.remote(READ);
    reader.status().unwrap();
    assert!(reader.metrics().unwrap().contains("terrace_build_info"));
    forbidden(reader.pause().unwrap_err(), "operate");
    forbidden(reader.register("alpha", &register(1)).unwrap_err(), "agent");

    let mut operator = world.remote(OPERATE);
    operator.status().unwrap();
    operator.pause().unwrap();
    operator.resume().unwrap();
    operator.pin("alpha/db-main", Some("fast")).unwrap();
    operator.pin("db-main", None).unwrap();
    operator.set_tier("slow", TierState::Draining).unwrap();
    operator.cancel(117, Some("alpha")).unwrap();
    let choice = Choice {
        host: Some("alpha".into()),
        generation: 42,
        moves: Some(vec![0]),
    };
    operator.apply(&choice).unwrap();
    forbidden(
        operator.set_mode(Goal::Latency, Mode::Auto).unwrap_err(),
        "admin",
    );
    forbidden(
        operator.register("alpha", &register(1)).unwrap_err(),
        "agent",
    );

    let mut admin = world.remote(ADMIN);
    admin.set_mode(Goal::Latency, Mode::Auto).unwrap();
    admin.register("beta", &register(2)).unwrap();

    let mut agent = world.remote(AGENT);
    forbidden(agent.status().unwrap_err(), "read");
    forbidden(agent.pause().unwrap_err(), "operate");
    agent.register("alpha", &register(3)).unwrap();

    let (actors, orders): (Vec<String>, Vec<Question>) = world.orders().into_iter().unzip();
    assert!(
        actors[..7].iter().all(|a| a == "operator") && actors[7] == "root",
        "{actors:?}"
    );
    let pin = Question::Pin {
        volume: "alpha/db-main".into(),
        tier: Some("fast".into()),
    };
    assert_eq!(orders[2], pin);
    assert_eq!(orders[6], Question::Apply(choice));
}

#[test]
fn caller_without_a_token_can_only_read_the_health() {
    let world = World::start(Fake::new(1));
    let trust = TlsTrust::Fingerprint(world.running.fingerprint().unwrap());
    let mut nobody = Client::new(world.url(), None, trust).unwrap();
    nobody.health().unwrap();
    for error in [nobody.status().unwrap_err(), nobody.pause().unwrap_err()] {
        assert!(
            matches!(&error, ClientError::Unauthorized(w) if w.contains("a token is required")),
            "{error}"
        );
    }
    let error = world
        .remote("not-a-token-of-this-one")
        .status()
        .unwrap_err();
    assert!(
        matches!(&error, ClientError::Unauthorized(w) if w.contains("token is unknown")),
        "{error}"
    );
    assert!(world.orders().is_empty());
}

#[test]
fn agents_may_report_only_their_own_host() {
    let world = World::start(Fake::new(1));
    let mut agent = world.remote(AGENT);
    let error = agent.register("beta", &register(1)).unwrap_err();
    assert!(
        matches!(&error, ClientError::Forbidden(w) if w.contains("with the name of the host")),
        "{error}"
    );
    let wire = |error: ClientError| match error {
        ClientError::Wire(refusal) => refusal,
        other => panic!("{other}"),
    };
    let error = agent.report("alpha", &views::report(9, 1, 1)).unwrap_err();
    assert_eq!(wire(error), WireRefusal::Register);
    let mut old = register(9);
    old.protocol = 77;
    assert_eq!(
        wire(agent.register("alpha", &old).unwrap_err()),
        WireRefusal::Protocol { theirs: 77 }
    );
    assert_eq!(
        agent.register("alpha", &register(9)).unwrap().protocol,
        PROTOCOL
    );
    let orders = agent.report("alpha", &views::report(9, 1, 2)).unwrap();
    assert_eq!((orders.session, orders.seq, orders.moves.len()), (9, 1, 1));
    let error = agent.report("alpha", &views::report(9, 1, 2)).unwrap_err();
    assert_eq!(wire(error), WireRefusal::Stale { last_seq: 1 });
}

#[test]
fn report_of_ten_thousand_volumes_is_accepted() {
    let world = World::start(Fake::new(1));
    let mut agent = world.remote(AGENT);
    agent.register("alpha", &register(9)).unwrap();
    let report = views::report(9, 1, 10_000);
    let bytes = serde_json::to_vec(&report).unwrap().len();
    assert!((20 << 20..64 << 20).contains(&bytes), "{bytes}");
    let begun = std::time::Instant::now();
    agent.report("alpha", &report).unwrap();
    println!(
        "a report of 10,000 volumes, {bytes} bytes: {:?}",
        begun.elapsed()
    );
    assert_eq!(world.fake.lock().unwrap().reports, [10_000]);
}

#[test]
fn occupied_port_is_named_and_a_failed_start_leaves_no_socket() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut taken = settings(dir.path());
    taken.tcp.as_mut().unwrap().listen = other.local_addr().unwrap();
    let error = refused(taken.clone());
    assert!(matches!(error, StartError::PortTaken(_)), "{error:?}");
    let port = other.local_addr().unwrap().to_string();
    assert!(
        error.to_string().starts_with(&format!("{port} is in use")),
        "{error}"
    );
    assert!(!taken.socket.exists());
}

#[test]
fn secret_files_readable_by_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let all = settings(dir.path());
    let tokens = all.tcp.as_ref().unwrap().tokens.clone();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = refused(all.clone()).to_string();
    assert!(
        error.contains(&format!("chmod 600 {}", tokens.display())),
        "{error}"
    );
    private(&tokens, "read x\n");
    let error = refused(all).to_string();
    assert!(
        error.contains("line 1: a line is ROLE NAME SECRET"),
        "{error}"
    );
}

#[test]
fn idle_connection_survives_a_server_restart() {
    let (fake, dir) = (Fake::new(1).shared(), tempfile::tempdir().unwrap());
    let mut settings = settings(dir.path());
    // Use a separate address, so that no other test takes the port while the server restarts.
    settings.tcp.as_mut().unwrap().listen = "127.83.1.7:0".parse().unwrap();
    let running = start(fake.clone(), settings.clone()).unwrap();
    settings.tcp.as_mut().unwrap().listen = running.address().unwrap();
    let trust = TlsTrust::Fingerprint(running.fingerprint().unwrap());
    let url = format!("https://{}", running.address().unwrap())
        .parse()
        .unwrap();
    let mut client = Client::new(url, Some(Token::new(READ).unwrap()), trust).unwrap();
    client.status().unwrap();
    client.status().unwrap();
    running.stop();
    assert!(matches!(client.status(), Err(ClientError::Nobody { .. })));
    let running = start(fake, settings).unwrap();
    client.status().unwrap();
    drop(running);
}
