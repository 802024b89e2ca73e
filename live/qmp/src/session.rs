//! Session with one QEMU process.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{QmpError, Version};

/// Longest message in bytes: the block graph of a domain with hundreds of disks takes some megabytes.
pub const LINE_MAX: usize = 4 << 20;
/// Largest number of pending commands.
pub const PENDING_MAX: usize = 256;

/// Message from QEMU.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The session is ready for commands.
    Ready(Version),
    /// The answer to a command.
    Answer {
        /// Id of the command.
        id: u64,
        /// Name of the command.
        command: &'static str,
        /// Return value, or the error.
        result: Result<Value, CommandError>,
    },
    /// An event.
    Event(Event),
}

/// Error of a command, as QEMU reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {desc}")]
pub struct CommandError {
    /// `GenericError`, `CommandNotFound`, `DeviceNotActive`, `DeviceNotFound` or `KVMMissingCap`.
    pub class: String,
    /// Description for operators.
    pub desc: String,
}

/// Event of QEMU. Some events are rate-limited, so a missing event does not prove that nothing happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name of the event.
    pub name: String,
    /// Data of the event.
    pub data: Value,
    /// Wall-clock time of QEMU, µs since 1970; `None` if QEMU has no time.
    pub at_us: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
enum State {
    #[default]
    Greeting,
    Negotiating(Version),
    Ready,
    Ended(QmpError),
}

/// QMP session: bytes in, messages and commands out.
#[derive(Debug, Default)]
pub struct Session {
    state: State,
    input: Vec<u8>,
    /// Length of the prefix of `input` that is known to contain no newline.
    looked_at: usize,
    /// Number of bytes before `input`.
    offset: u64,
    output: Vec<u8>,
    next_id: u64,
    pending: BTreeMap<u64, &'static str>,
}

impl Session {
    /// Adds bytes from the peer. Bytes after the end of the session are dropped.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !matches!(self.state, State::Ended(_)) {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Returns and removes the bytes to send.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns true if the session accepts commands.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Queues a command and returns its id, which its answer repeats.
    ///
    /// # Errors
    /// A session that is not ready or has ended, or too many pending commands.
    pub fn command(
        &mut self,
        name: &'static str,
        arguments: Option<Value>,
    ) -> Result<u64, QmpError> {
        match &self.state {
            State::Ready => {}
            State::Ended(why) => return Err(why.clone()),
            State::Greeting | State::Negotiating(_) => return Err(QmpError::NotReady),
        }
        if self.pending.len() >= PENDING_MAX {
            return Err(QmpError::TooMany(PENDING_MAX));
        }
        Ok(self.send(name, arguments))
    }

    fn send(&mut self, name: &'static str, arguments: Option<Value>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut command = Map::new();
        command.insert("execute".into(), name.into());
        command.extend(arguments.map(|a| ("arguments".into(), a)));
        command.insert("id".into(), id.into());
        self.output
            .extend_from_slice(Value::Object(command).to_string().as_bytes());
        self.output.push(b'\n');
        self.pending.insert(id, name);
        id
    }

    /// Returns the next message; `None` if it is incomplete.
    ///
    /// # Errors
    /// The protocol violation. The session has ended, and later calls return the same error.
    pub fn poll(&mut self) -> Result<Option<Message>, QmpError> {
        loop {
            if let State::Ended(why) = &self.state {
                return Err(why.clone());
            }
            match self.step() {
                Ok(Step::Message(message)) => return Ok(Some(message)),
                Ok(Step::Nothing) => return Ok(None),
                Ok(Step::Again) => {}
                Err(why) => {
                    self.state = State::Ended(why);
                    (self.input, self.looked_at) = (vec![], 0);
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, QmpError> {
        let offset = self.offset;
        let end = self.input[self.looked_at..]
            .iter()
            .position(|b| *b == b'\n');
        let Some(end) = end.map(|e| self.looked_at + e) else {
            self.looked_at = self.input.len();
            return match self.input.len() > LINE_MAX {
                true => Err(QmpError::TooLong {
                    offset,
                    max: LINE_MAX,
                }),
                false => Ok(Step::Nothing),
            };
        };
        if end > LINE_MAX {
            let max = LINE_MAX;
            return Err(QmpError::TooLong { offset, max });
        }
        let rest = self.input.split_off(end + 1);
        let line = std::mem::replace(&mut self.input, rest);
        self.looked_at = 0;
        self.offset += line.len() as u64;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(Step::Again);
        }
        let parsed: Result<Value, _> = serde_json::from_slice(line);
        let value = parsed.map_err(|e| QmpError::Syntax {
            offset,
            why: e.to_string(),
        })?;
        let Value::Object(message) = value else {
            return Err(QmpError::Form {
                offset,
                field: "message",
                why: "it is no object".into(),
            });
        };
        let message = Fields { message, offset };
        match std::mem::take(&mut self.state) {
            State::Greeting => {
                let version = message.greeting()?;
                self.send("qmp_capabilities", None);
                self.state = State::Negotiating(version);
                Ok(Step::Again)
            }
            // Events may arrive before the end of the negotiation; they are ignored.
            State::Negotiating(version) if message.message.contains_key("event") => {
                self.state = State::Negotiating(version);
                Ok(Step::Again)
            }
            State::Negotiating(version) => match self.answer(message)? {
                Message::Answer { result: Err(e), .. } => Err(QmpError::Refused {
                    offset,
                    why: e.to_string(),
                }),
                _ => {
                    self.state = State::Ready;
                    Ok(Step::Message(Message::Ready(version)))
                }
            },
            State::Ready => {
                self.state = State::Ready;
                let message = match message.message.contains_key("event") {
                    true => Message::Event(message.event()?),
                    false => self.answer(message)?,
                };
                Ok(Step::Message(message))
            }
            State::Ended(why) => Err(why),
        }
    }

    fn answer(&mut self, mut fields: Fields) -> Result<Message, QmpError> {
        let offset = fields.offset;
        let id = fields.message.get("id").and_then(Value::as_u64);
        let returned = fields.message.remove("return");
        let result = match (returned, fields.message.contains_key("error")) {
            (Some(value), false) => Ok(value),
            (None, true) => Err(fields.error()?),
            _ => {
                return Err(fields.form("message", "it is no greeting, answer or event"));
            }
        };
        let Some(id) = id else {
            let why = match &result {
                Err(e) => format!("it is missing, of an error: {e}"),
                Ok(_) => "it is missing, or no number of ours".into(),
            };
            return Err(fields.form("id", &why));
        };
        let command = self.pending.remove(&id);
        let command = command.ok_or(QmpError::Unasked { offset, id })?;
        Ok(Message::Answer {
            id,
            command,
            result,
        })
    }
}

enum Step {
    Message(Message),
    Again,
    Nothing,
}

/// Message with its offset.
struct Fields {
    message: Map<String, Value>,
    offset: u64,
}

impl Fields {
    fn form(&self, field: &'static str, why: &str) -> QmpError {
        QmpError::Form {
            offset: self.offset,
            field,
            why: why.into(),
        }
    }

    fn greeting(&self) -> Result<Version, QmpError> {
        let version = &self.message.get("QMP").unwrap_or(&Value::Null)["version"];
        let number = |field: &'static str, key: &str| {
            let number = version["qemu"][key].as_u64();
            number.ok_or_else(|| self.form(field, "a greeting has a number there"))
        };
        Ok(Version {
            major: number("QMP.version.qemu.major", "major")?,
            minor: number("QMP.version.qemu.minor", "minor")?,
            micro: number("QMP.version.qemu.micro", "micro")?,
            package: version["package"].as_str().unwrap_or("").trim().into(),
        })
    }

    fn error(&self) -> Result<CommandError, QmpError> {
        let error = &self.message["error"];
        let text = |field: &'static str, key: &str| {
            let text = error[key].as_str().map(String::from);
            text.ok_or_else(|| self.form(field, "an error has a text there"))
        };
        Ok(CommandError {
            class: text("error.class", "class")?,
            desc: text("error.desc", "desc")?,
        })
    }

    fn event(mut self) -> Result<Event, QmpError> {
        let name = self.message["event"].as_str().map(String::from);
        let name = name.ok_or_else(|| self.form("event", "it is no text"))?;
        let part = |key: &str| {
            let time = self.message.get("timestamp");
            time.and_then(|t| t[key].as_u64())
        };
        // If QEMU cannot read its clock, it sends -1.
        let at_us = part("seconds").zip(part("microseconds"));
        let at_us = at_us.and_then(|(s, us)| s.checked_mul(1_000_000)?.checked_add(us));
        Ok(Event {
            data: self.message.remove("data").unwrap_or_default(),
            name,
            at_us,
        })
    }
}
