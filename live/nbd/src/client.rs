//! Client side of the handshake.
//!
//! ```text
//!  greeting ─▶ STRUCTURED_REPLY ─▶ SET_META_CONTEXT ─▶ GO ─────────────────────▶ ready
//!     │         (optional)          (optional, needs    │ ERR_UNSUP              ▲
//!     │ not fixed newstyle           structured replies)▼                        │
//!     └─────────────────────────────────────────▶ EXPORT_NAME ───────────────────┘
//! ```
//!
//! With TLS, `STARTTLS` comes first. No bytes may follow the server's acknowledgement, and all other options are sent inside
//! the TLS session.
//!
//! A feature that the server does not support is no error; the session contains the negotiated features. A missing export is
//! an error.

use crate::error::WireError;
use crate::export::{BlockSizes, Export, ExportFlags, Session};
use crate::options::{write_contexts, write_info};
use crate::talk::{Talk, client_flags, malformed, unexpected};
use crate::wire::{
    ALLOCATION, FIXED_NEWSTYLE, Fields, NO_ZEROES, ZEROES_BYTES, info, name, option,
    option_reply as rep, words,
};

/// Optional features that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientWishes {
    /// Structured replies.
    pub structured: bool,
    /// The metadata context `base:allocation`. It requires structured replies, which are requested too.
    pub allocation: bool,
}

/// Progress of a client's handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientProgress {
    /// All input was processed: send `out` and read more.
    More,
    /// Start TLS on the connection, call [`ClientHandshake::secured`], and continue inside the session.
    StartTls,
    /// The handshake is complete and has nothing to send. Remaining input belongs to the transmission phase.
    Ready(Box<Session>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// `STARTTLS` was sent.
    StartTls,
    /// TLS was granted and is being set up.
    Tls,
    Structured,
    Contexts,
    Go,
    ExportName,
    Over,
}

/// Client side of a handshake: bytes in, bytes out.
#[derive(Debug)]
pub struct ClientHandshake {
    wishes: ClientWishes,
    phase: Phase,
    tls: bool,
    talk: Talk,
    zeroes: bool,
    structured: bool,
    allocation_context: Option<u32>,
    /// Properties of the export that are known so far.
    export: Export,
    /// True once its size and flags are known.
    described: bool,
}

impl ClientHandshake {
    /// Creates a handshake for the export of this name.
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

    /// Creates a handshake that starts TLS before all other options and fails without TLS.
    pub fn with_tls(export_name: &str, want: ClientWishes) -> Self {
        Self {
            tls: true,
            ..Self::new(export_name, want)
        }
    }

    /// Continues after [`ClientProgress::StartTls`], once the TLS session exists. `out` and all further bytes go through the
    /// session.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        assert_eq!(self.phase, Phase::Tls, "TLS begins where it was granted");
        self.ask_structured(out);
    }

    /// Processes bytes from the front of `input`, in pieces of any size, and appends bytes to send to `out`. Returns the
    /// number of processed bytes, which is less than all only at the end of the handshake. After an error the connection
    /// must be closed.
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

    /// Returns the memory in use for incomplete input, bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.talk.gathered.bytes.capacity()
    }

    /// Processes one greeting or reply; returns false if it is incomplete.
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

    /// Processes one information record of the export; unknown types are ignored.
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
