//! The control socket of a served array: operators ask, the control server answers.
//!
//! ```text
//!  terrace volume list ──▶ ARRAY/control.sock ──▶ {"v":1,"ask":"volumes"}⏎
//!                                             ◀── {"ok":{"answer":"volumes","volumes":[…]}}⏎   or   {"error":"…"}⏎
//! ```
//!
//! A unix socket that only its owner may open. One JSON object per line and direction; a connection may ask several times.
//! What is not understood in full, down to one unknown field, is refused: an order that was half understood is worse than
//! none. A thread per connection: operators are few.

mod asking;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::ControllerId;
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::warn;

pub(crate) use asking::ask_to_take;
pub use asking::{ControlError, Holding, ask, order};

use crate::control_server::{ControlAnswer, ControlRequest, ControlServer, Hold};
use crate::listen::{ListenError, clear_stale};
use crate::takeover::wire::{Tag, say};
use crate::takeover::{Listener, Listening, pause_after_accept};

/// The socket in an array's directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// What its listener is called when it is handed over.
pub(crate) const CONTROL: &str = "control";

/// The version of requests.
pub const CONTROL_VERSION: u64 = 1;

/// The field with the controller whose order a request is.
const ORDER_OF: &str = "order_of";

/// Longest request. Protects memory from whoever writes without an end.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Connections at the same time. Protects the server's threads.
const CONNECTIONS_MAX: usize = 16;

/// Volumes, and snapshots, that are held at the same time. Each keeps a connection for as long as it takes to read all of it: operators have the others.
const HOLDS_MAX: usize = 8;

/// A request must be complete so long after the one before it, and an answer taken. Frees threads of clients that hang.
const LINE_TIME: Duration = Duration::from_secs(10);

/// Who holds a volume says nothing until it has read all of it: the hold ends with the connection, not with a time.
const HELD_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Most bytes of a unix socket's path, as Linux has it.
const SOCKET_PATH_MAX: usize = 107;

/// A control socket that is listened on.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    ended: Arc<AtomicBool>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(ControlAnswer),
    Error(String),
}

impl ControlSocket {
    /// Lets operators ask a control_server.
    ///
    /// # Errors
    /// When another server listens there, or the system refuses.
    pub fn listen(path: &Path, control_server: &Arc<ControlServer>) -> Result<Self, ListenError> {
        fits(path)?;
        let system = |source| ListenError::System {
            address: path.display().to_string(),
            source,
        };
        let server = control_server
            .server()
            .expect("an array that is asked here is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let name = CONTROL.to_owned();
        let socket = match server.take_handed(&name) {
            Some(socket) => socket,
            None => {
                clear_stale(path)?;
                Arc::new(private(path).map_err(|e| system(e.into()))?)
            }
        };
        let listener = server.listeners.keep(Listening { name, socket });
        let listener = listener.map_err(system)?;
        drop(server);
        let ended = Arc::new(AtomicBool::new(false));
        let (control_server, over) = (Arc::downgrade(control_server), ended.clone());
        std::thread::Builder::new()
            .name("terrace-control".into())
            .spawn(move || accept(&listener, &control_server, &over))
            .map_err(system)?;
        let path = path.to_path_buf();
        Ok(Self { path, ended })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // A connection wakes the one who accepts; it sees that it is over.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) fn fits(path: &Path) -> Result<(), ListenError> {
    let bytes = path.as_os_str().len();
    match bytes <= SOCKET_PATH_MAX {
        true => Ok(()),
        false => Err(ListenError::TooLong {
            path: path.into(),
            bytes,
            most: SOCKET_PATH_MAX,
        }),
    }
}

/// A socket that never was open to others: its mode is set before it has a name.
fn private(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, CONNECTIONS_MAX as i32)?;
    Ok(socket)
}

fn accept(listener: &Listener, control_server: &Weak<ControlServer>, over: &AtomicBool) {
    let (open, holds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    loop {
        listener.wait();
        let accepted = accept_with(listener.as_fd(), SocketFlags::CLOEXEC);
        if over.load(Ordering::Acquire) {
            return;
        }
        let socket = match accepted {
            Ok(socket) => socket,
            Err(why) => {
                pause_after_accept(&why.into());
                continue;
            }
        };
        let mut socket = UnixStream::from(socket);
        let _ = socket.set_write_timeout(Some(LINE_TIME));
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            let busy = "too many commands at the same time: try again";
            let _ = answer(&mut socket, &Reply::Error(busy.into()));
            continue;
        }
        let (control_server, mine, holds) = (control_server.clone(), open.clone(), holds.clone());
        let spawned = std::thread::Builder::new()
            .name("terrace-asked".into())
            .spawn(move || {
                converse(&mut socket, &control_server, &holds);
                mine.fetch_sub(1, Ordering::AcqRel);
            });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// One of the [`HOLDS_MAX`], until it is dropped.
struct HoldPlace(Arc<AtomicUsize>);

impl HoldPlace {
    fn take(holds: &Arc<AtomicUsize>) -> Result<Self, String> {
        let place = Self(holds.clone());
        match holds.fetch_add(1, Ordering::AcqRel) < HOLDS_MAX {
            true => Ok(place),
            false => Err(format!(
                "{HOLDS_MAX} volumes are being saved, which is the maximum: try again when one has finished"
            )),
        }
    }
}

impl Drop for HoldPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers one connection until it ends, hangs or talks nonsense.
fn converse(
    socket: &mut UnixStream,
    control_server: &Weak<ControlServer>,
    holds: &Arc<AtomicUsize>,
) {
    let mut input = vec![];
    // What this connection holds.
    let mut held: Option<(Hold, HoldPlace)> = None;
    loop {
        let time = if held.is_some() { HELD_TIME } else { LINE_TIME };
        let line = match read_line(socket, &mut input, LINE_BYTES_MAX, time) {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => {
                let _ = answer(socket, &Reply::Error(error.to_string()));
                return;
            }
        };
        let ask = parse(&line);
        if let Ok((_, ControlRequest::TakeOver { format })) = ask {
            return hand_over(socket, control_server, format);
        }
        let result = ask.and_then(|(by, ask)| {
            let control_server = control_server.upgrade().ok_or("the server is ending")?;
            if let Some(controller) = by {
                return control_server.order_of(controller, ask);
            }
            match ask {
                ControlRequest::Hold { .. } if held.is_some() => {
                    Err("this connection already holds a volume".into())
                }
                ControlRequest::Hold { volume } => {
                    let place = HoldPlace::take(holds)?;
                    let (hold, answer) = control_server.hold(&volume)?;
                    held = Some((hold, place));
                    Ok(answer)
                }
                ControlRequest::Release => {
                    drop(held.take().ok_or("this connection holds no volume")?);
                    Ok(ControlAnswer::done("the volume is no longer held".into()))
                }
                ask => control_server.ask(ask),
            }
        });
        let reply = result.map_or_else(Reply::Error, Reply::Ok);
        if answer(socket, &reply).is_err() {
            return;
        }
    }
}

/// Lets the process at the other end take over; if that comes to nothing this one goes on, and both say why.
fn hand_over(socket: &mut UnixStream, control_server: &Weak<ControlServer>, format: u32) {
    let Some(control_server) = control_server.upgrade() else {
        return;
    };
    let prepared = match control_server.prepare_to_hand(format) {
        Ok(prepared) => prepared,
        Err(why) => {
            warn!(why, "another process could not take over the array");
            let _ = answer(socket, &Reply::Error(why));
            return;
        }
    };
    let message = "the array can be taken over".into();
    if answer(socket, &Reply::Ok(ControlAnswer::Done { message })).is_err() {
        return;
    }
    let why = prepared.hand_over(socket);
    warn!(why, "another process failed to take over the array");
    let _ = say(socket, Tag::No, why.as_bytes(), LINE_TIME); // it may be gone
}

fn answer(socket: &mut UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// One line without its end; `None` when the other side has ended between lines.
fn read_line(
    socket: &mut UnixStream,
    input: &mut Vec<u8>,
    most: usize,
    time: Duration,
) -> std::io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + time;
    let mut seen = 0;
    loop {
        if let Some(end) = input[seen..].iter().position(|b| *b == b'\n') {
            let mut line: Vec<u8> = input.drain(..=seen + end).collect();
            line.pop();
            return Ok(Some(line));
        }
        if input.len() > most {
            let why = format!("a line of more than {most} bytes");
            return Err(std::io::Error::other(why));
        }
        seen = input.len();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let mut bytes = [0; 4096];
        match socket.read(&mut bytes) {
            Ok(0) if input.is_empty() => return Ok(None),
            Ok(0) => return Err(std::io::Error::other("the request has no end of line")),
            Ok(n) => input.extend(&bytes[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
}

/// Understands a request in full, or not at all; with the controller whose order it is, if it is
/// no operator's.
fn parse(line: &[u8]) -> Result<(Option<ControllerId>, ControlRequest), String> {
    let text = std::str::from_utf8(line).map_err(|_| "the request is not UTF-8".to_string())?;
    let value: Value =
        serde_json::from_str(text).map_err(|e| format!("the request is not JSON: {e}"))?;
    let Value::Object(mut fields) = value else {
        return Err("the request is not a JSON object".into());
    };
    match fields.remove("v") {
        Some(Value::Number(v)) if v.as_u64() == Some(CONTROL_VERSION) => {}
        Some(other) => {
            return Err(format!(
                "the request has version {other}, this server understands {CONTROL_VERSION}: use the same version of terrace on both sides"
            ));
        }
        None => {
            return Err(format!(
                "the request has no version: add \"v\":{CONTROL_VERSION}"
            ));
        }
    }
    let by = fields.remove(ORDER_OF).map(serde_json::from_value);
    let by = by.transpose();
    let by = by.map_err(|e| format!("the controller of the order is invalid: {e}"))?;
    // What is the same as left out is not said, so it would look like a stranger below.
    if fields.get("ask") == Some(&"delete".into()) && fields.get("force") == Some(&false.into()) {
        fields.remove("force");
    }
    let ask: ControlRequest = serde_json::from_value(Value::Object(fields.clone()))
        .map_err(|e| format!("the request is invalid: {e}"))?;
    let understood = serde_json::to_value(&ask).map_err(|e| e.to_string())?;
    match &understood {
        Value::Object(understood) => match stranger(&fields, understood) {
            Some(name) => Err(format!("the request has an unknown field {name:?}")),
            None => Ok((by, ask)),
        },
        _ => Ok((by, ask)),
    }
}

/// The first field that was given and not understood.
fn stranger(given: &Map<String, Value>, understood: &Map<String, Value>) -> Option<String> {
    given.iter().find_map(|(name, value)| {
        let Some(known) = understood.get(name) else {
            return Some(name.clone());
        };
        match (value, known) {
            (Value::Object(given), Value::Object(known)) => {
                stranger(given, known).map(|inner| format!("{name}.{inner}"))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use model::{ClassObjective, Objective, SloStatistic};
    use units::Nanos;

    use super::*;
    use crate::stages::{inject, measure, record, throttle};

    /// An operator's request.
    fn parse(line: &[u8]) -> Result<ControlRequest, String> {
        super::parse(line).map(|(by, ask)| {
            assert_eq!(by, None);
            ask
        })
    }

    fn refused(line: &str) -> String {
        parse(line.as_bytes()).expect_err("it is nonsense")
    }

    #[test]
    fn understands_in_full_or_not_at_all() {
        assert_eq!(
            parse(br#"{"v":1,"ask":"volumes"}"#),
            Ok(ControlRequest::Volumes)
        );
        let create =
            r#"{"v":1,"ask":"create","volume":"a","size":"1 GiB","tier":"t","class":"default"}"#;
        assert!(matches!(
            parse(create.as_bytes()),
            Ok(ControlRequest::Create { .. })
        ));
        let more = create.replace("}", ",\"thick\":true}");
        assert_eq!(refused(&more), "the request has an unknown field \"thick\"");
        assert_eq!(
            refused(r#"{"v":1,"ask":"volumes","x":0}"#),
            "the request has an unknown field \"x\""
        );
        assert_eq!(
            refused(r#"{"ask":"volumes"}"#),
            "the request has no version: add \"v\":1"
        );
        assert!(refused(r#"{"v":2,"ask":"volumes"}"#).contains("has version 2"));
        assert!(refused(r#"{"v":1,"ask":"vloumes"}"#).contains("unknown variant `vloumes`"));
        assert!(refused("[]").contains("not a JSON object"));
        assert!(refused("\u{1}").contains("not JSON"));
        assert!(parse(&[0xff]).is_err_and(|e| e.contains("UTF-8")));
    }

    #[test]
    fn order_of_a_controller_is_understood_in_full_or_not_at_all() {
        let line = r#"{"v":1,"ask":"cancel-move","volume":"v","order_of":{"store":1,"epoch":2,"start":3}}"#;
        let id = ControllerId {
            store: 1,
            epoch: 2,
            start: 3,
        };
        let volume = "v".into();
        let order = (Some(id), ControlRequest::CancelMove { volume });
        assert_eq!(super::parse(line.as_bytes()), Ok(order));
        let more = line.replace("\"start\"", "\"end\"");
        let why = super::parse(more.as_bytes()).unwrap_err();
        assert!(
            why.starts_with("the controller of the order is invalid"),
            "{why}"
        );
    }

    #[test]
    fn words_of_stages_are_understood_in_full_or_not_at_all_as_others_are() {
        let inject =
            r#"{"v":1,"ask":"inject","volume":"v","read":"2 us","write":"0 us","lasting":"1 s"}"#;
        let command = inject::Command::Inject {
            volume: "v".into(),
            read: Nanos(2_000),
            write: Nanos::ZERO,
            lasting: Nanos(1_000_000_000),
        };
        assert_eq!(parse(inject.as_bytes()), Ok(command.into()));
        let limit = r#"{"v":1,"ask":"limit","volume":"v","weight":2.0}"#;
        let command = throttle::Command::Limit {
            volume: "v".into(),
            iops: None,
            bandwidth: None,
            weight: Some(2.0),
        };
        assert_eq!(parse(limit.as_bytes()), Ok(command.into()));
        for known in [inject, limit] {
            assert_eq!(
                refused(&known.replace("}", ",\"x\":0}")),
                "the request has an unknown field \"x\""
            );
        }
        assert_eq!(
            refused(r#"{"v":1,"ask":"measure","volume":"v"}"#),
            "the request is invalid: missing field `on`"
        );
        assert!(refused(r#"{"ask":"record-end","volume":"v"}"#).contains("no version"));
    }

    #[test]
    fn what_was_added_may_be_left_out_and_is_not_said_to_older_servers() {
        let delete = |force| ControlRequest::Delete {
            volume: "v".into(),
            force,
        };
        let line = r#"{"v":1,"ask":"delete","volume":"v"}"#;
        assert_eq!(parse(line.as_bytes()), Ok(delete(false)));
        for force in [false, true] {
            let said = line.replace("}", &format!(",\"force\":{force}}}"));
            assert_eq!(parse(said.as_bytes()), Ok(delete(force)));
        }
        let said = serde_json::to_value(delete(false)).unwrap();
        assert_eq!(said, serde_json::json!({"ask": "delete", "volume": "v"}));
        assert!(refused(&line.replace("}", r#","force":"no"}"#)).contains("expected a boolean"));
        let other = r#"{"v":1,"ask":"show","volume":"v","force":false}"#;
        assert!(refused(other).contains("an unknown field \"force\""));
        let create = r#"{"v":1,"ask":"create","volume":"a","size":"1G","tier":"t"}"#;
        let Ok(ControlRequest::Create { class: None, .. }) = parse(create.as_bytes()) else {
            panic!("{:?}", parse(create.as_bytes()));
        };
        let policy = r#"{"v":1,"ask":"policy","classes":["gold"],"overcommit_max":1.5}"#;
        let taken = ControlRequest::Policy {
            classes: Some(vec!["gold".into()]),
            overcommit_max: Some(1.5),
        };
        assert_eq!(parse(policy.as_bytes()), Ok(taken));
        let objectives = r#"{"v":1,"ask":"objectives","objectives":[{"class":"gold","statistic":"p99","latency":"2 ms"}],"lasting":"30 s"}"#;
        let taken = ControlRequest::Objectives {
            objectives: vec![ClassObjective {
                class: "gold".into(),
                objective: Objective {
                    statistic: SloStatistic::P99,
                    latency: Nanos(2_000_000),
                },
            }],
            lasting: Nanos(30_000_000_000),
        };
        assert_eq!(parse(objectives.as_bytes()), Ok(taken));
    }

    #[test]
    fn a_move_without_a_device_is_understood_as_before() {
        let line = r#"{"v":1,"ask":"move","volume":"v","to":"t","bandwidth":"1 MiB/s"}"#;
        let Ok(ControlRequest::Move {
            device, extents, ..
        }) = parse(line.as_bytes())
        else {
            panic!("{:?}", parse(line.as_bytes()));
        };
        assert_eq!((device, extents), (None, None));
        let some = line.replace("}", r#","extents":"0-9,12"}"#);
        let Ok(ControlRequest::Move { extents, .. }) = parse(some.as_bytes()) else {
            panic!("{:?}", parse(some.as_bytes()));
        };
        assert_eq!(extents, Some("0-9,12".parse().unwrap()));
        let reversed = some.replace("0-9", "9-0");
        assert!(refused(&reversed).contains("extent range 9-0 is empty"));
        let more = line.replace("}", r#","device":"t-1","slot":7}"#);
        assert_eq!(refused(&more), "the request has an unknown field \"slot\"");
    }

    #[test]
    fn a_weight_that_json_cannot_say_is_refused_before_it_is_sent() {
        for (weight, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (0.0, "0")] {
            let limit = throttle::Command::Limit {
                volume: "v".into(),
                iops: None,
                bandwidth: None,
                weight: Some(weight),
            };
            let limit = ControlRequest::from(limit);
            let refused = ask(Path::new("nobody"), &limit).unwrap_err();
            let said = format!("a weight must be between 0.01 and 100, not {text}");
            assert_eq!(refused.to_string(), said);
        }
    }

    #[test]
    fn an_order_of_as_many_ranges_as_there_may_be_fits_a_line() {
        let last = u32::MAX - 1;
        let most = array::MOVE_RANGES_MAX as u32;
        let ranges = (0..most).map(|r| (last - 3 * (most - r), last - 3 * (most - r) + 2));
        let order = ControlRequest::Move {
            volume: "v".repeat(array::NAME_BYTES_MAX),
            to: "t".repeat(array::NAME_BYTES_MAX),
            device: Some("d".repeat(array::NAME_BYTES_MAX)),
            bandwidth: units::BytesPerSec(u64::MAX),
            extents: Some(model::ExtentRanges::from_ranges(ranges.collect()).unwrap()),
        };
        let line = serde_json::to_string(&order).unwrap();
        assert!(
            (40_000..LINE_BYTES_MAX - 64).contains(&line.len()),
            "{}",
            line.len()
        );
    }

    #[test]
    fn every_question_survives_the_wire() {
        let device = crate::control_server::NewDevice {
            tier: "fast".into(),
            source: crate::control_server::NewSource::Dir("/x".into()),
            size: Some(units::Bytes(12345)),
            emulate: model::preset("pm953").map(|p| p.spec()),
            direct: model::DirectIo::Auto,
            force: false,
            thin: false,
        };
        let to = |device: Option<&str>| ControlRequest::Move {
            volume: "v".into(),
            to: "t".into(),
            device: device.map(String::from),
            bandwidth: units::BytesPerSec(1 << 20),
            extents: None,
        };
        let asks = [
            ControlRequest::Tiers,
            ControlRequest::Samples,
            ControlRequest::Heat {
                volume: "v".into(),
                since: Some(crate::control_server::HeatCursor {
                    since_ns: 5,
                    turn: 7,
                }),
            },
            ControlRequest::Reuse { volume: "v".into() },
            ControlRequest::AddDevice(device),
            ControlRequest::SetClass {
                volume: "v".into(),
                class: "gold".into(),
            },
            to(Some("t-1")),
            to(None),
            ControlRequest::from(throttle::Command::Limit {
                volume: "v".into(),
                iops: Some(units::Iops(1500.0)),
                bandwidth: None,
                weight: Some(0.1),
            }),
            ControlRequest::from(inject::Command::Inject {
                volume: "v".into(),
                read: Nanos(1_500),
                write: Nanos::ZERO,
                lasting: Nanos(60_000_000_000),
            }),
            ControlRequest::from(measure::Command::Measure {
                volume: "v".into(),
                on: false,
            }),
            ControlRequest::from(record::Command::Record {
                volume: "v".into(),
                path: "/x/seen.trc".into(),
            }),
            ControlRequest::from(record::Command::RecordEnd { volume: "v".into() }),
        ];
        for ask in asks {
            let mut value = serde_json::to_value(&ask).unwrap();
            value["v"] = 1.into();
            assert_eq!(parse(value.to_string().as_bytes()), Ok(ask));
        }
    }
}
