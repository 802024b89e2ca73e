//! A daemon whose worker hangs: status of its controller, and stop.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use datapath::control_server::{ControlRequest, NewDevice, NewSource};
use datapath::{Reach, add_device};
use manager::trouble::{TroubleKind, TroubleView};
use model::DirectIo;
use units::Bytes;

use super::*;

/// Nothing here takes so long on any machine that can run it.
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

/// A daemon with a volume `data`, in a directory.
fn daemon(dir: &Path) -> Daemon {
    let array = dir.join("array");
    let new = NewDevice {
        tier: "fast".into(),
        source: NewSource::Dir(dir.into()),
        size: Some(Bytes::mib(64)),
        emulate: None,
        direct: DirectIo::Off,
        force: false,
    };
    add_device(&array, None, new).unwrap();
    let create = ControlRequest::Create {
        volume: "data".into(),
        size: Bytes::mib(8),
        tier: "fast".into(),
        class: None,
    };
    Reach::find(&array).unwrap().ask(create).unwrap();
    let (words, text) = config::read::<ManagerConfig>("live.toml", CONFIG).unwrap();
    Daemon::start(Settings::new(text, words).unwrap(), dir).unwrap()
}

/// Lets the worker of the volume hang until the sender is dropped.
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

fn problems(daemon: &Daemon) -> Vec<TroubleView> {
    let socket = Address::Unix(daemon.socket().into());
    let mut client = Client::new(socket, None, TlsTrust::Nothing).unwrap();
    let troubles = client.status().unwrap().troubles;
    let stalled = troubles.into_iter();
    stalled
        .filter(|t| t.kind == TroubleKind::WorkerStalled)
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
fn stalled_worker_is_in_the_status_while_the_daemon_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path());
    until("it reports", &mut daemon, |d| d.agent_trouble().is_none());
    assert_eq!(problems(&daemon), []);
    let let_go = hang(&daemon);
    until("it is a problem", &mut daemon, |d| !problems(d).is_empty());
    let problem = problems(&daemon).remove(0);
    assert_eq!(problem.host.as_deref(), Some("here"));
    assert_eq!(problem.subject, "worker 0");
    assert!(problem.what.contains(" It serves data: "), "{problem:?}");
    assert!(problem.undecided.is_some());
    assert_eq!(daemon.agent_trouble(), None, "the agent reports");
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
        "handing the array over",
        "stopping the agent",
        "stopping the controller",
        "stopping the array",
        "closing the store",
    ];
    assert_eq!(steps.into_inner().unwrap(), all);
    drop(let_go);
}
