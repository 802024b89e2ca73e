//! The client's side of the handshake.
//!
//! ```text
//!  greeting ─▶ STRUCTURED_REPLY ─▶ SET_META_CONTEXT ─▶ GO ─────────────────────▶ ready
//!     │         (wished for)        (wished for, and    │ ERR_UNSUP              ▲
//!     │ not fixed newstyle           structured)        ▼                        │
//!     └─────────────────────────────────────────▶ EXPORT_NAME ───────────────────┘
//! ```
//!
//! With TLS, `STARTTLS` comes first: once the server has granted it there must be nothing behind, and everything else is asked inside the session.
//!
//! A wish that the server does not grant is no error; the session says what holds. An export that it does not have is.

use crate::error::WireError;
use crate::export::{BlockSizes, Export, ExportFlags, Session};
use crate::options::{write_contexts, write_info};
use crate::talk::{Talk, client_flags, malformed, unexpected};
use crate::wire::{
    ALLOCATION, FIXED_NEWSTYLE, Fields, NO_ZEROES, ZEROES_BYTES, info, name, option,
    option_reply as rep, words,
};

/// What a client would like to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientWishes {
    /// Structured replies.
    pub structured: bool,
    /// The metadata context `base:allocation`; asks for structured replies too, which it needs.
    pub allocation: bool,
}

/// How a client's handshake stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientProgress {
    /// All input was taken; send what is in `out` and bring more.
    More,
    /// Make a TLS session of the connection, say [`ClientHandshake::secured`], and go on inside it.
    StartTls,
    /// Nothing to send; what is left of the input belongs to the transmission phase.
    Ready(Box<Session>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// Whether there is TLS is asked.
    StartTls,
    /// There is, and the session is being made.
    Tls,
    Structured,
    Contexts,
    Go,
    ExportName,
    Over,
}

/// The client's side of one handshake: feed bytes, get bytes.
#[derive(Debug)]
pub struct ClientHandshake {
    wishes: ClientWishes,
    phase: Phase,
    tls: bool,
    talk: Talk,
    zeroes: bool,
    structured: bool,
    allocation_context: Option<u32>,
    /// What is known of the export so far.
    export: Export,
    /// Whether its size and flags are.
    described: bool,
}

impl ClientHandshake {
    /// A handshake that wants the export of that name.
    pub fn new(export_name: &str, want: ClientWishes) -> Self {
        Self {
            wishes: want,
            phase: Phase::Greeting,
            tls: false,
            talk: Talk::default(),
            zeroes: true,
            structured: false,
            allocation_context: None,
            export: Export {
                name: export_name.into(),
                description: String::new(),
                size: 0,
                flags: ExportFlags(0),
                block: BlockSizes::UNKNOWN,
            },
            described: false,
        }
    }

    /// One that asks for nothing before there is TLS, and for nothing where there is none.
    pub fn with_tls(export_name: &str, want: ClientWishes) -> Self {
        Self {
            tls: true,
            ..Self::new(export_name, want)
        }
    }

    /// After [`ClientProgress::StartTls`]: there is a TLS session. What is in `out` goes through it, as does all that follows.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        assert_eq!(self.phase, Phase::Tls, "TLS begins where it was granted");
        self.ask_structured(out);
    }

    /// Takes bytes from the front of `input`, in pieces of any size, and appends what to send to `out`. Says how many were
    /// taken: all of them, but when the handshake ends. After an error the connection must be closed.
    pub fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ClientProgress), WireError> {
        let mut rest = input;
        loop {
            let before = self.phase;
            match self.advance(&mut rest, out) {
                Ok(true) => {}
                Ok(false) => return Ok((input.len() - rest.len(), ClientProgress::More)),
                Err(error) => {
                    self.phase = Phase::Over;
                    return Err(error);
                }
            }
            if self.phase == Phase::Tls {
                if !rest.is_empty() {
                    self.phase = Phase::Over;
                    return Err(WireError::BeforeTls);
                }
                return Ok((input.len(), ClientProgress::StartTls));
            }
            if self.phase == Phase::Over {
                debug_assert_ne!(before, Phase::Over);
                let session = Box::new(self.session());
                return Ok((input.len() - rest.len(), ClientProgress::Ready(session)));
            }
        }
    }

    /// Memory held for input that is not complete.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.talk.gathered.bytes.capacity()
    }

    /// One greeting or reply; false when there is not all of it.
    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, WireError> {
        match self.phase {
            Phase::Over | Phase::Tls => Err(WireError::HandshakeOver),
            Phase::Greeting => self.greeting(input, out),
            Phase::StartTls => {
                let option = option::STARTTLS;
                let Some((kind, data)) = self.talk.reply(input, option)? else {
                    return Ok(false);
                };
                match kind {
                    rep::ACK => self.phase = Phase::Tls,
                    kind if kind & rep::ERROR != 0 => {
                        let message = match words(&data) {
                            none if none.is_empty() => "no reason given".into(),
                            message => message,
                        };
                        return Err(WireError::NoTls { message });
                    }
                    _ => return Err(unexpected(option, kind, &data)),
                }
                Ok(true)
            }
            Phase::ExportName => self.export_name(input),
            Phase::Structured => {
                let option = option::STRUCTURED_REPLY;
                let Some((kind, data)) = self.talk.reply(input, option)? else {
                    return Ok(false);
                };
                match kind {
                    rep::ACK => self.structured = true,
                    rep::ERR_TLS_REQD => return Err(WireError::TlsRequired),
                    kind if kind & rep::ERROR != 0 => {}
                    _ => return Err(unexpected(option, kind, &data)),
                }
                self.ask_contexts(out);
                Ok(true)
            }
            Phase::Contexts => {
                let option = option::SET_META_CONTEXT;
                let Some((kind, data)) = self.talk.reply(input, option)? else {
                    return Ok(false);
                };
                match kind {
                    rep::META_CONTEXT => self.context(&data)?,
                    rep::ACK => self.ask_go(out),
                    kind if kind & rep::ERROR != 0 => {
                        self.allocation_context = None;
                        self.ask_go(out);
                    }
                    _ => return Err(unexpected(option, kind, &data)),
                }
                Ok(true)
            }
            Phase::Go => {
                let Some((kind, data)) = self.talk.reply(input, option::GO)? else {
                    return Ok(false);
                };
                match kind {
                    rep::INFO => self.info(&data)?,
                    rep::ACK if self.described => self.phase = Phase::Over,
                    rep::ACK => {
                        return Err(malformed("go", "no size of the export before the end"));
                    }
                    rep::ERR_UNSUP => self.ask_export_name(out),
                    _ => return Err(unexpected(option::GO, kind, &data)),
                }
                Ok(true)
            }
        }
    }

    fn greeting(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, WireError> {
        name(self.export.name.as_bytes()).map_err(|why| WireError::BadExportName { why })?;
        let Some(flags) = self.talk.greeting(input)? else {
            return Ok(false);
        };
        let flags = client_flags(flags);
        self.zeroes = flags & NO_ZEROES == 0;
        out.extend_from_slice(&u32::from(flags).to_be_bytes());
        if flags & FIXED_NEWSTYLE == 0 && self.tls {
            let message = "the server does not support options".into();
            return Err(WireError::NoTls { message });
        }
        if flags & FIXED_NEWSTYLE == 0 {
            self.ask_export_name(out);
        } else if self.tls {
            self.talk.ask(option::STARTTLS, &[], out);
            self.phase = Phase::StartTls;
        } else {
            self.ask_structured(out);
        }
        Ok(true)
    }

    fn ask_structured(&mut self, out: &mut Vec<u8>) {
        if self.wishes.structured || self.wishes.allocation {
            self.talk.ask(option::STRUCTURED_REPLY, &[], out);
            self.phase = Phase::Structured;
        } else {
            self.ask_go(out);
        }
    }

    fn ask_contexts(&mut self, out: &mut Vec<u8>) {
        if !self.structured || !self.wishes.allocation {
            return self.ask_go(out);
        }
        let data = write_contexts(&self.export.name);
        self.talk.ask(option::SET_META_CONTEXT, &data, out);
        self.phase = Phase::Contexts;
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        let data = write_info(&self.export.name);
        self.talk.ask(option::GO, &data, out);
        self.phase = Phase::Go;
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        let name = self.export.name.as_bytes();
        self.talk.ask(option::EXPORT_NAME, name, out);
        self.phase = Phase::ExportName;
    }

    fn export_name(&mut self, input: &mut &[u8]) -> Result<bool, WireError> {
        let zeroes = if self.zeroes { ZEROES_BYTES } else { 0 };
        if !self.talk.gathered.fill(input, 10 + zeroes) {
            return Ok(false);
        }
        let mut fields = Fields::new(&self.talk.gathered.bytes);
        self.export.size = fields.u64().unwrap_or_default();
        self.export.flags = ExportFlags(fields.u16().unwrap_or_default());
        self.talk.gathered.bytes.clear();
        self.phase = Phase::Over;
        Ok(true)
    }

    fn context(&mut self, data: &[u8]) -> Result<(), WireError> {
        let mut fields = Fields::new(data);
        let id = fields
            .u32()
            .ok_or(malformed("metadata context", "the id is missing"))?;
        if fields.rest() != ALLOCATION.as_bytes() || self.allocation_context.is_some() {
            let why = "an unrequested or repeated context";
            return Err(malformed("metadata context", why));
        }
        self.allocation_context = Some(id);
        Ok(())
    }

    /// One piece of information about the export; of unknown kinds nothing is kept.
    fn info(&mut self, data: &[u8]) -> Result<(), WireError> {
        let short = || malformed("export information", "wrong length for its type");
        let mut fields = Fields::new(data);
        match fields.u16().ok_or_else(short)? {
            info::EXPORT => {
                self.export.size = fields.u64().ok_or_else(short)?;
                self.export.flags = ExportFlags(fields.u16().ok_or_else(short)?);
                self.described = true;
            }
            info::NAME => {
                let text = name(fields.rest()).map_err(|why| malformed("export name", why))?;
                self.export.name = text.into();
                return Ok(());
            }
            info::DESCRIPTION => {
                self.export.description = words(fields.rest());
                return Ok(());
            }
            info::BLOCK_SIZE => {
                let mut size = || fields.u32().ok_or_else(short);
                self.export.block = BlockSizes {
                    minimum: size()?,
                    preferred: size()?,
                    maximum: size()?,
                };
                if !self.export.block.sound() {
                    return Err(malformed(
                        "block sizes",
                        "not powers of two, or in the wrong order",
                    ));
                }
            }
            _ => return Ok(()),
        }
        if fields.is_empty() {
            Ok(())
        } else {
            Err(short())
        }
    }

    fn session(&self) -> Session {
        let mut export = self.export.clone();
        if !self.structured {
            export.flags = export.flags.without(ExportFlags::SEND_DF);
        }
        Session {
            export,
            structured: self.structured,
            allocation_context: self.allocation_context,
            dirty: vec![],
        }
    }
}
