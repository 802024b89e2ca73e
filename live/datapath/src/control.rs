//! Control socket of a served array: operators send requests, the control server replies.
//!
//! ```text
//!  terrace volume list ──▶ ARRAY/control.sock ──▶ {"v":1,"ask":"volumes"}⏎
//!                                             ◀── {"ok":{"answer":"volumes","volumes":[…]}}⏎   or   {"error":"…"}⏎
//! ```
//!
//! Only the owner may open the unix socket. Each direction carries one JSON object per line; a connection may send
//! several requests. A request with any unknown part, even one field, is refused: a partly understood order is worse
//! than none. Each connection has a thread, because operators are few.

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
pub use asking::{ControlError, VolumeHold, ask, order};

use crate::control_server::{ControlAnswer, ControlRequest, ControlServer, Hold};
use crate::error::{DatapathError, Result};
use crate::listen::{ListenError, clear_stale};
use crate::takeover::wire::{Tag, say};
use crate::takeover::{Listener, ListeningSocket, pause_after_accept};

/// Name of the socket in an array's directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// Name of the listener in a hand-over.
pub(crate) const CONTROL: &str = "control";

/// Version of requests.
pub const CONTROL_VERSION: u64 = 1;

/// Field that names the controller that sent an order.
const ORDER_OF: &str = "order_of";

/// Longest request in bytes. Protects memory from a client that sends without end.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Limit of simultaneous connections. Protects the server's threads.
const CONNECTIONS_MAX: usize = 16;

/// Limit of volumes and snapshots that are held at the same time. Each hold occupies a connection until its reader
/// has read all data; the other connections stay free for operators.
const HOLDS_MAX: usize = 8;

/// Longest time between two requests, and for the delivery of a reply. Frees threads of clients that hang.
const LINE_TIME: Duration = Duration::from_secs(10);

/// Longest silence of a client that holds a volume. The client is silent until it has read all data, so the hold ends
/// with the connection and not by time.
const HELD_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Longest path of a unix socket in bytes; limit of Linux.
const SOCKET_PATH_MAX: usize = 107;

/// Control socket with a listening thread.
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
    /// Creates the socket and starts to accept requests for a control server.
    ///
    /// # Errors
    /// [`ListenError`] if another server listens there or a system call fails.
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
        let listener = server.listeners.keep(ListeningSocket { name, socket });
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
        // This connection wakes the accepting thread, which then sees the end.
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

/// Creates a socket that is private from the start: its mode is set before it has a name.
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

/// One of the [`HOLDS_MAX`] holds, until it is dropped.
struct HoldPlace(Arc<AtomicUsize>);

impl HoldPlace {
    fn take(holds: &Arc<AtomicUsize>) -> Result<Self> {
        let place = Self(holds.clone());
        match holds.fetch_add(1, Ordering::AcqRel) < HOLDS_MAX {
            true => Ok(place),
            false => Err(DatapathError::Busy(format!(
                "{HOLDS_MAX} volumes are being saved, which is the maximum: try again when one has finished"
            ))),
        }
    }
}

impl Drop for HoldPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves one connection until it ends, times out or sends an invalid line.
fn converse(
    socket: &mut UnixStream,
    control_server: &Weak<ControlServer>,
    holds: &Arc<AtomicUsize>,
) {
    let mut input = vec![];
    // Hold of this connection.
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
            let ending = || DatapathError::NotServed("the server is ending".into());
            let control_server = control_server.upgrade().ok_or_else(ending)?;
            if let Some(controller) = by {
                return control_server.order_of(controller, ask);
            }
            match ask {
                ControlRequest::Hold { .. } if held.is_some() => Err(DatapathError::Refused(
                    "this connection already holds a volume".into(),
                )),
                ControlRequest::Hold { volume } => {
                    let place = HoldPlace::take(holds)?;
                    let (hold, answer) = control_server.hold(&volume)?;
                    held = Some((hold, place));
                    Ok(answer)
                }
                ControlRequest::Release => {
                    let none = || DatapathError::Refused("this connection holds no volume".into());
                    drop(held.take().ok_or_else(none)?);
                    Ok(ControlAnswer::done("the volume is no longer held".into()))
                }
                ask => control_server.ask(ask),
            }
        });
        let reply = result.map_or_else(|why| Reply::Error(why.to_string()), Reply::Ok);
        if answer(socket, &reply).is_err() {
            return;
        }
    }
}

/// Hands the array over to the process at the other end. If that fails, this process continues, and both report the
/// reason.
fn hand_over(socket: &mut UnixStream, control_server: &Weak<ControlServer>, format: u32) {
    let Some(control_server) = control_server.upgrade() else {
        return;
    };
    let prepared = match control_server.prepare_to_hand(format) {
        Ok(prepared) => prepared,
        Err(why) => {
            let why = why.to_string();
            warn!(why, "another process could not take over the array");
            let _ = answer(socket, &Reply::Error(why));
            return;
        }
    };
    let message = "the array can be taken over".into();
    if answer(socket, &Reply::Ok(ControlAnswer::Done { message })).is_err() {
        return;
    }
    let why = prepared.hand_over(socket).to_string();
    warn!(why, "another process failed to take over the array");
    let _ = say(socket, Tag::No, why.as_bytes(), LINE_TIME); // the other process may have ended
}

fn answer(socket: &mut UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// Reads one line without its terminator; `None` if the other side closed the connection between lines.
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

/// Parses a request completely, or refuses it. Returns it with the controller that sent the order; `None` for an
/// operator's request.
///
/// # Errors
/// [`DatapathError::Invalid`].
fn parse(line: &[u8]) -> Result<(Option<ControllerId>, ControlRequest)> {
    let invalid = DatapathError::Invalid;
    let text = std::str::from_utf8(line).map_err(|_| invalid("the request is not UTF-8".into()))?;
    let value: Value =
        serde_json::from_str(text).map_err(|e| invalid(format!("the request is not JSON: {e}")))?;
    let Value::Object(mut fields) = value else {
        return Err(invalid("the request is not a JSON object".into()));
    };
    match fields.remove("v") {
        Some(Value::Number(v)) if v.as_u64() == Some(CONTROL_VERSION) => {}
        Some(other) => {
            return Err(invalid(format!(
                "the request has version {other}, this server understands {CONTROL_VERSION}: use the same version of terrace on both sides"
            )));
        }
        None => {
            return Err(invalid(format!(
                "the request has no version: add \"v\":{CONTROL_VERSION}"
            )));
        }
    }
    let by = fields.remove(ORDER_OF).map(serde_json::from_value);
    let by = by.transpose();
    let by = by.map_err(|e| invalid(format!("the controller of the order is invalid: {e}")))?;
    // Serialization omits this default, so the check below would report it as unknown.
    if fields.get("ask") == Some(&"delete".into()) && fields.get("force") == Some(&false.into()) {
        fields.remove("force");
    }
    let ask: ControlRequest = serde_json::from_value(Value::Object(fields.clone()))
        .map_err(|e| invalid(format!("the request is invalid: {e}")))?;
    let understood = serde_json::to_value(&ask).map_err(DatapathError::failed)?;
    match &understood {
        Value::Object(understood) => match stranger(&fields, understood) {
            Some(name) => Err(invalid(format!(
                "the request has an unknown field {name:?}"
            ))),
            None => Ok((by, ask)),
        },
        _ => Ok((by, ask)),
    }
}

/// Returns the first field that was sent but not understood.
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

    /// Parses a request of an operator.
    fn parse(line: &[u8]) -> Result<ControlRequest, String> {
        let parsed = super::parse(line).map_err(|why| why.to_string());
        parsed.map(|(by, ask)| {
            assert_eq!(by, None);
            ask
        })
    }

    fn refused(line: &str) -> String {
        parse(line.as_bytes()).expect_err("it is nonsense")
    }

    #[test]
    fn control_request_is_parsed_completely_or_refused() {
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
    fn controller_order_is_parsed_completely_or_refused() {
        let line = r#"{"v":1,"ask":"cancel-move","volume":"v","order_of":{"store":1,"epoch":2,"start":3}}"#;
        let id = ControllerId {
            store: 1,
            epoch: 2,
            start: 3,
        };
        let volume = "v".into();
        let order = (Some(id), ControlRequest::CancelMove { volume });
        assert_eq!(super::parse(line.as_bytes()).unwrap(), order);
        let more = line.replace("\"start\"", "\"end\"");
        let why = super::parse(more.as_bytes()).unwrap_err().to_string();
        assert!(
            why.starts_with("the controller of the order is invalid"),
            "{why}"
        );
    }

    #[test]
    fn stage_commands_are_parsed_completely_or_refused() {
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
    fn optional_fields_may_be_absent_and_default_values_are_not_sent() {
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
    fn move_request_without_a_device_is_accepted() {
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
    fn weight_without_json_representation_is_refused_before_it_is_sent() {
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
    fn move_order_of_the_maximum_range_count_fits_one_line() {
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
    fn control_requests_survive_serialization() {
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
