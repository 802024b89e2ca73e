//! The client's side of the handshake.
//!
//! ```text
//!  greeting ─▶ STRUCTURED_REPLY ─▶ SET_META_CONTEXT ─▶ GO ─────────────────────▶ ready
//!     │         (wished for)        (wished for, and    │ ERR_UNSUP              ▲
//!     │ not fixed newstyle           structured)        ▼                        │
//!     └─────────────────────────────────────────▶ EXPORT_NAME ───────────────────┘
//! ```
//!
//! A wish that the server does not grant is no error; the session says what holds. An export that it does not have is.

use crate::error::WireError;
use crate::export::{BlockSizes, Export, ExportFlags, Session};
use crate::options::{write_contexts, write_info};
use crate::wire::{
    ALLOCATION, FIXED_NEWSTYLE, Fields, GREETING_BYTES, Gathered, NBD_MAGIC, NO_ZEROES,
    OLDSTYLE_MAGIC, OPTION_MAGIC, OPTION_REPLY_BYTES, OPTION_REPLY_MAGIC, ZEROES_BYTES, info,
    length32, name, option, option_reply as rep, words,
};

/// Data of one reply to an option. Protects memory; the longest with a meaning has two strings of 4096 bytes.
const REPLY_BYTES_MAX: u32 = 16 << 10;
/// All replies to one option, headers included. Protects against a server that never comes to an end.
const REPLIES_BYTES_MAX: usize = 4 << 20;

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
    /// Nothing to send; what is left of the input belongs to the transmission phase.
    Ready(Box<Session>),
}

/// The part that every client's handshake shares: the greeting and replies to options.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    pub gathered: Gathered,
    /// Bytes of replies to the option under way.
    replied: usize,
}

impl Talk {
    /// The server's handshake flags.
    pub fn greeting(&mut self, input: &mut &[u8]) -> Result<Option<u16>, WireError> {
        if !self.gathered.fill(input, GREETING_BYTES) {
            return Ok(None);
        }
        let mut fields = Fields::new(&self.gathered.bytes);
        let (Some(first), Some(second), Some(flags)) = (fields.u64(), fields.u64(), fields.u16())
        else {
            return Ok(None);
        };
        let bad = |found| WireError::BadMagic {
            place: "server greeting",
            found,
        };
        match (first, second) {
            (NBD_MAGIC, OPTION_MAGIC) => {}
            (NBD_MAGIC, OLDSTYLE_MAGIC) => return Err(WireError::Oldstyle),
            (NBD_MAGIC, _) => return Err(bad(second)),
            _ => return Err(bad(first)),
        }
        self.gathered.bytes.clear();
        Ok(Some(flags))
    }

    /// Writes an option; its replies are waited for next.
    pub fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        self.replied = 0;
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&length32(data.len()));
        out.extend_from_slice(data);
    }

    /// The next reply to `option`: type and data.
    pub fn reply(
        &mut self,
        input: &mut &[u8],
        option: u32,
    ) -> Result<Option<(u32, Vec<u8>)>, WireError> {
        if !self.gathered.fill(input, OPTION_REPLY_BYTES) {
            return Ok(None);
        }
        let mut fields = Fields::new(&self.gathered.bytes);
        let (Some(magic), Some(found), Some(kind), Some(length)) =
            (fields.u64(), fields.u32(), fields.u32(), fields.u32())
        else {
            return Ok(None);
        };
        if magic != OPTION_REPLY_MAGIC {
            return Err(WireError::BadMagic {
                place: "option reply",
                found: magic,
            });
        }
        if found != option {
            return Err(WireError::WrongOption {
                expected: option,
                found,
            });
        }
        if length > REPLY_BYTES_MAX {
            return Err(WireError::ReplyTooLong {
                place: "option reply",
                length,
                limit: REPLY_BYTES_MAX,
            });
        }
        let whole = OPTION_REPLY_BYTES + length as usize;
        if self.replied + whole > REPLIES_BYTES_MAX {
            return Err(WireError::TooManyReplies {
                option,
                limit: REPLIES_BYTES_MAX,
            });
        }
        if !self.gathered.fill(input, whole) {
            return Ok(None);
        }
        self.replied += whole;
        let data = self.gathered.bytes[OPTION_REPLY_BYTES..].to_vec();
        self.gathered.bytes.clear();
        Ok(Some((kind, data)))
    }
}

/// The server's refusal of an option, or a reply that makes no sense for it.
pub(crate) fn unexpected(option: u32, kind: u32, data: &[u8]) -> WireError {
    if kind & rep::ERROR == 0 {
        return malformed("option reply", "of a type that the option does not have");
    }
    WireError::Refused {
        option,
        code: kind,
        message: words(data),
    }
}

pub(crate) fn malformed(place: &'static str, why: &'static str) -> WireError {
    WireError::BadReply { place, why }
}

/// The flags to answer a greeting with.
pub(crate) fn client_flags(server: u16) -> u16 {
    server & (FIXED_NEWSTYLE | NO_ZEROES)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
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
            if self.phase == Phase::Over {
                debug_assert_ne!(before, Phase::Over);
                let session = Box::new(self.session());
                return Ok((input.len() - rest.len(), ClientProgress::Ready(session)));
            }
        }
    }

    /// One greeting or reply; false when there is not all of it.
    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, WireError> {
        match self.phase {
            Phase::Over => Err(WireError::HandshakeOver),
            Phase::Greeting => self.greeting(input, out),
            Phase::ExportName => self.export_name(input),
            Phase::Structured => {
                let option = option::STRUCTURED_REPLY;
                let Some((kind, data)) = self.talk.reply(input, option)? else {
                    return Ok(false);
                };
                match kind {
                    rep::ACK => self.structured = true,
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
                    rep::ACK => return Err(malformed("go", "ends without the export's size")),
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
        if flags & FIXED_NEWSTYLE == 0 {
            self.ask_export_name(out);
        } else if self.wishes.structured || self.wishes.allocation {
            self.talk.ask(option::STRUCTURED_REPLY, &[], out);
            self.phase = Phase::Structured;
        } else {
            self.ask_go(out);
        }
        Ok(true)
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
            .ok_or(malformed("metadata context", "without an id"))?;
        if fields.rest() != ALLOCATION.as_bytes() || self.allocation_context.is_some() {
            let why = "one that was not asked for, or twice";
            return Err(malformed("metadata context", why));
        }
        self.allocation_context = Some(id);
        Ok(())
    }

    /// One piece of information about the export; of unknown kinds nothing is kept.
    fn info(&mut self, data: &[u8]) -> Result<(), WireError> {
        let short = || malformed("export information", "shorter or longer than its kind");
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
                        "no powers of two, or out of order",
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
        }
    }
}
