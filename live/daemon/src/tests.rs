//! Daemon with a hung worker or a faulty store: status of its controller, and stop.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use client::{Address, Client, TlsTrust};
use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource};
use datapath::{Reach, add_device};
use manager::problem::{ProblemKind, ProblemView};
use manager::settings::ManagerConfig;
use model::DirectIo;
use units::Bytes;

use super::*;

/// Limit of each wait. No step takes this long on any machine that can run the test.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG: &str = r#"
strategy = "noop"
window = "500ms"
[array]
dir = "array"
host = "here"
[[tiers]]
name = "fast"
preset = "pm953"
[[classes]]
name = "default"
"#;

/// Starts a daemon with a volume `data` in a directory.
fn daemon(dir: &Path) -> Daemon {
    make_array(dir);
    Daemon::start(settings(CONFIG), dir).unwrap()
}

fn settings(text: &str) -> Settings {
    let (words, text) = config::read::<ManagerConfig>("live.toml", text).unwrap();
    Settings::new(text, words).unwrap()
}

/// Starts all parts that can start, and checks for parts that cannot.
fn degraded(dir: &Path, text: &str) -> Daemon {
    let configured = LoadedConfig {
        settings: settings(text),
        fault: None,
    };
    let accept = AcceptLoss::default();
    let daemon = Daemon::start_from(configured, dir, None, Start::Accepting(&accept)).unwrap();
    assert_eq!(daemon.array().unwrap().volumes(), ["data"]);
    daemon
}

fn make_array(dir: &Path) {
    let array = dir.join("array");
    let new = NewDevice {
        tier: "fast".into(),
        source: NewSource::Dir(dir.into()),
        size: Some(Bytes::mib(64)),
        emulate: None,
        direct: DirectIo::Off,
        force: false,
        thin: false,
    };
    add_device(&array, None, new).unwrap();
    let create = ControlRequest::Create {
        volume: "data".into(),
        size: Bytes::mib(8),
        tier: "fast".into(),
        class: None,
    };
    Reach::find(&array).unwrap().ask(create).unwrap();
}

fn client(daemon: &Daemon) -> Client {
    let socket = Address::Unix(daemon.socket().into());
    Client::new(socket, None, TlsTrust::Nothing).unwrap()
}

/// Returns the controller faults that the array lists, by part.
fn of_controller(dir: &Path) -> Vec<(String, String)> {
    let array = dir.join("array").join(datapath::control::CONTROL_SOCKET);
    let asked = datapath::control::ask(&array, &ControlRequest::Samples).unwrap();
    let ControlAnswer::Samples(samples) = asked else {
        panic!("{asked:?}");
    };
    let problems = samples.problems.into_iter();
    let kind = datapath::control_server::ProblemKind::ControllerDegraded;
    let of_it = problems.filter(|t| t.kind == kind);
    of_it.map(|t| (t.about, t.what)).collect()
}

/// Makes the worker of the volume hang until the sender is dropped.
fn hang(daemon: &Daemon) -> Sender<()> {
    let (let_go, gate) = channel::<()>();
    let array = daemon.array().unwrap().serving();
    let hangs = array.control_server().at_stages("data", move |_| {
        let _ = gate.recv_timeout(PATIENCE * 5);
        Ok(())
    });
    assert!(hangs.is_err(), "it is stalled");
    let_go
}

fn problems(daemon: &Daemon) -> Vec<ProblemView> {
    let problems = client(daemon).status().unwrap().problems;
    let stalled = problems.into_iter();
    stalled
        .filter(|t| t.kind == ProblemKind::WorkerStalled)
        .collect()
}

fn until(what: &str, daemon: &mut Daemon, holds: impl Fn(&Daemon) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds(daemon) {
        assert!(Instant::now() < until, "it does not come true: {what}");
        daemon.tick().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn stalled_worker_is_in_the_status_while_the_daemon_continues() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path());
    until("it reports", &mut daemon, |d| d.agent_problem().is_none());
    assert_eq!(problems(&daemon), []);
    let let_go = hang(&daemon);
    until("it is a problem", &mut daemon, |d| !problems(d).is_empty());
    let problem = problems(&daemon).remove(0);
    assert_eq!(problem.host.as_deref(), Some("here"));
    assert_eq!(problem.subject, "worker 0");
    assert!(problem.what.contains(" It serves data: "), "{problem:?}");
    assert!(problem.undecided.is_some());
    assert_eq!(daemon.agent_problem(), None, "the agent reports");
    drop(let_go);
    until("it is over", &mut daemon, |d| problems(d).is_empty());
    let handover = daemon.stop(&|_| ()).unwrap();
    assert_eq!(handover, Handover::Ending);
}

#[test]
fn stop_with_a_stalled_worker_ends_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path());
    let let_go = hang(&daemon);
    let steps = Mutex::new(vec![]);
    let began = Instant::now();
    let stopped = daemon.stop(&|step| steps.lock().unwrap().push(step));
    assert!(began.elapsed() < PATIENCE);
    let why = datapath::explain(&stopped.unwrap_err());
    let named = "worker 0, which serves data, did not stop: ";
    assert!(why.starts_with(named), "{why}");
    let all = [
        "handing over the array",
        "stopping the controller and its agent",
        "stopping the array",
    ];
    assert_eq!(steps.into_inner().unwrap(), all);
    drop(let_go);
}

/// Checks that volumes are served and that every list has the failure of the store, although the store cannot be read.
fn serves_without_its_store(dir: &Path, why: &str) -> Daemon {
    let mut daemon = degraded(dir, CONFIG);
    until("the controller was tried", &mut daemon, |d| {
        d.controller_was_tried()
    });
    until("the array says so", &mut daemon, |_| {
        let said = of_controller(dir);
        said.iter()
            .any(|(part, what)| part == "store" && what.contains(why))
    });
    // The controller reads the agent's reports but sends no orders.
    until("it is reported", &mut daemon, |d| {
        client(d).status().unwrap().volumes == 1
    });
    let status = client(&daemon).status().unwrap();
    assert!(
        status.store_failure.as_ref().unwrap().contains(why),
        "{status:?}"
    );
    let kinds: Vec<ProblemKind> = status.problems.iter().map(|t| t.kind).collect();
    assert!(kinds.contains(&ProblemKind::StoreFailing), "{kinds:?}");
    let metrics = client(&daemon).metrics().unwrap();
    assert!(metrics.contains("\nterrace_store_up 0\n"), "{metrics}");
    assert!(metrics.contains("terrace_volume_info{"), "{metrics}");
    let health = client(&daemon).health().unwrap_err();
    assert!(health.to_string().contains(why), "{health}");
    let refused = client(&daemon).pause().unwrap_err();
    let reason = "nothing is decided or ordered";
    assert!(refused.to_string().contains(reason), "{refused}");
    daemon
}

#[test]
fn damaged_store_is_a_problem_and_volumes_are_served() {
    let dir = tempfile::tempdir().unwrap();
    make_array(dir.path());
    let state = dir.path().join("terrace-state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join(STORE_FILE), [0x55; 8192]).unwrap();
    let found = check(&settings(CONFIG), dir.path());
    let damaged = |f: &Finding| matches!(f, Finding::Degraded(what) if what.contains("damaged"));
    assert!(found.len() == 1 && found.iter().all(damaged), "{found:?}");
    let mut daemon = serves_without_its_store(dir.path(), "is damaged");
    // The file is moved away, as the message advises: the next attempt creates a new store.
    for name in std::fs::read_dir(&state).unwrap().flatten() {
        if name.file_name().to_string_lossy().starts_with(STORE_FILE) {
            std::fs::remove_file(name.path()).unwrap();
        }
    }
    until("it decides again", &mut daemon, |d| {
        client(d).pause().is_ok()
    });
    until("the array forgets it", &mut daemon, |_| {
        of_controller(dir.path()).is_empty()
    });
    assert_eq!(client(&daemon).status().unwrap().store_failure, None);
    assert_eq!(check(&settings(CONFIG), dir.path()), []);
    daemon.stop(&|_| ()).unwrap();
}

#[test]
fn file_as_state_directory_is_a_problem_and_volumes_are_served() {
    let dir = tempfile::tempdir().unwrap();
    make_array(dir.path());
    std::fs::write(dir.path().join("terrace-state"), "").unwrap();
    let mut daemon = degraded(dir.path(), CONFIG);
    // The controller's socket is in that directory too, so only the array can report the fault.
    until("the array says so", &mut daemon, |_| {
        let said = of_controller(dir.path());
        let of = |part: &str| said.iter().any(|(p, _)| p == part);
        of("store") && of("socket")
    });
    std::fs::remove_file(dir.path().join("terrace-state")).unwrap();
    until("it runs", &mut daemon, |d| client(d).status().is_ok());
    daemon.stop(&|_| ()).unwrap();
}

#[test]
fn deleted_store_refuses_orders_until_it_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path());
    let (state, away) = (dir.path().join("terrace-state"), dir.path().join("away"));
    client(&daemon).pause().unwrap();
    std::fs::rename(state.join(STORE_FILE), &away).unwrap();
    let refused = |d: &Daemon| client(d).resume().unwrap_err().to_string();
    let gone = "it was deleted or moved while in use";
    until("it is seen", &mut daemon, |d| refused(d).contains(gone));
    // A copy in the same place is another file.
    std::fs::copy(&away, state.join(STORE_FILE)).unwrap();
    until("it is seen", &mut daemon, |d| {
        refused(d).contains("it was replaced while in use")
    });
    std::fs::rename(&away, state.join(STORE_FILE)).unwrap();
    until("it goes on", &mut daemon, |d| client(d).resume().is_ok());
    daemon.stop(&|_| ()).unwrap();
}

const PORT: &str = "[controller]\nlisten = \"127.0.0.1:0\"\ntokens = \"tokens\"\n";

#[test]
fn world_readable_token_file_keeps_the_port_closed_until_fixed() {
    let dir = tempfile::tempdir().unwrap();
    make_array(dir.path());
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "operate me 0123456789abcdef\n").unwrap();
    let mode = |mode| std::fs::set_permissions(&tokens, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let config = format!("{CONFIG}{PORT}");
    let found = check(&settings(&config), dir.path());
    let named = |f: &Finding| match f {
        Finding::Degraded(what) => what.starts_with("live.toml:14: ") && what.contains("chmod 600"),
        Finding::NoArray(_) | Finding::NotServed(_) => false,
    };
    assert!(found.len() == 1 && found.iter().all(named), "{found:?}");
    let mut daemon = degraded(dir.path(), &config);
    until("the array says so", &mut daemon, |_| {
        let said = of_controller(dir.path());
        said.iter()
            .any(|(part, what)| part == "port" && what.contains("chmod 600"))
    });
    assert_eq!(daemon.page(), None);
    // All other parts run, and the status reports the fault.
    let status = client(&daemon).status().unwrap();
    let kinds: Vec<ProblemKind> = status.problems.iter().map(|t| t.kind).collect();
    assert!(
        kinds.contains(&ProblemKind::ControllerDegraded),
        "{kinds:?}"
    );
    mode(0o600);
    until("it listens", &mut daemon, |d| d.page().is_some());
    until("it is no problem", &mut daemon, |_| {
        of_controller(dir.path()).is_empty()
    });
    daemon.stop(&|_| ()).unwrap();
}

#[test]
fn invalid_controller_configuration_stops_only_the_controller() {
    let dir = tempfile::tempdir().unwrap();
    make_array(dir.path());
    let fault = Some("live.toml:3: window: must be at least 100ms".to_owned());
    let right = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_right = right.clone();
    let read: ReadSettings =
        Box::new(
            move || match is_right.load(std::sync::atomic::Ordering::Relaxed) {
                true => Ok(settings(CONFIG)),
                false => Err(DaemonError::Configuration("still wrong".into())),
            },
        );
    let configured = LoadedConfig {
        settings: settings(CONFIG),
        fault,
    };
    let accept = AcceptLoss::default();
    let start = Start::Accepting(&accept);
    let mut daemon = Daemon::start_from(configured, dir.path(), Some(read), start).unwrap();
    assert_eq!(daemon.array().unwrap().volumes(), ["data"]);
    until("the array says so", &mut daemon, |_| {
        of_controller(dir.path())
            .iter()
            .any(|(part, _)| part == "configuration")
    });
    right.store(true, std::sync::atomic::Ordering::Relaxed);
    until("it runs", &mut daemon, |d| client(d).status().is_ok());
    daemon.stop(&|_| ()).unwrap();
}

#[test]
fn panicking_controller_restarts_from_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path());
    client(&daemon).pause().unwrap();
    let managed = daemon.control.managed();
    let broken = std::thread::spawn(move || {
        let _held = managed.lock().unwrap();
        panic!("a test breaks the controller");
    });
    assert!(broken.join().is_err());
    until("it answers", &mut daemon, |d| {
        client(d).status().is_ok_and(|s| s.paused)
    });
    until("it takes orders", &mut daemon, |d| {
        client(d).resume().is_ok()
    });
    daemon.stop(&|_| ()).unwrap();
}
