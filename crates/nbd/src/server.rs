//! The server's side of the handshake.
//!
//! ```text
//!              client flags            GO, EXPORT_NAME of an export
//!   flags ───────────────────▶ options ──────────────────────────────▶ ready
//!                               │  ▲ │  ABORT
//!     longer than max_option_bytes │ └──────────▶ closed
//!                               ▼  │ skipped, ERR_TOO_BIG
//!                              skipping
//! ```
//!
//! Where TLS is required, nothing but `STARTTLS` and `ABORT` is granted before it, and the handshake forgets what it was told:
//!
//! ```text
//!   options ── STARTTLS ──▶ waiting for TLS ── secured() ──▶ options, of which nothing is selected yet
//!      └───── another, or bytes behind it ──▶ ERR_TLS_REQD, or an error
//! ```

use crate::error::WireError;
use crate::export::{
    ALLOCATION_CONTEXT, DIRTY_MAX, DirtyContexts, Export, ExportFlags, Exports, Session,
};
use crate::limits::HandshakeLimits;
use crate::options::{ContextQuery, parse_contexts, parse_info, refuse, reply};
use crate::wire::{
    ALLOCATION, DIRTY, FIXED_NEWSTYLE, Fields, GREETING_BYTES, Gathered, NBD_MAGIC, NO_ZEROES,
    OPTION_BYTES, OPTION_MAGIC, OPTION_REPLY_BYTES, STRING_BYTES_MAX, ZEROES_BYTES, cut, info,
    length32, name, option, option_reply as rep,
};

/// How a server's handshake stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// All input was taken; send what is in `out` and bring more.
    More,
    /// Send what is in `out`; what is left of the input belongs to the transmission phase.
    Ready(Box<Session>),
    /// Send what is in `out`, make a TLS session of the connection, say [`ServerHandshake::secured`], and go on inside it.
    StartTls,
    /// The client gave up: send what is in `out`, then close.
    Closed,
}

/// How a server stands to TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Security {
    /// There is none.
    Clear,
    /// Without it nothing is granted.
    Required,
    /// The handshake goes on inside a session.
    Secured,
}

#[derive(Debug)]
enum Phase {
    ClientFlags,
    Options,
    /// `STARTTLS` was granted.
    Tls,
    /// Data of an option that is too long, thrown away as it comes.
    Skipping {
        option: u32,
        left: u32,
    },
    Over,
}

/// What one advance came to.
enum Step {
    Again,
    Starved,
    End(Progress),
}

/// The server's side of one handshake: feed bytes, get bytes.
#[derive(Debug)]
pub struct ServerHandshake {
    limits: HandshakeLimits,
    phase: Phase,
    security: Security,
    gathered: Gathered,
    /// Bytes of options, headers included.
    received: u32,
    /// Bytes of replies.
    replied: usize,
    /// What is left of `max_list_reply_bytes`.
    list_bytes_left: usize,
    /// Remaining contexts of `max_dirty_contexts`.
    dirty_contexts_left: usize,
    fixed: bool,
    zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` is selected.
    allocation_of: Option<String>,
    /// The export for which contexts are selected that say what has changed, and those.
    dirty_of: Option<(String, DirtyContexts)>,
}

impl ServerHandshake {
    /// A handshake with a client that just connected.
    pub fn new(limits: HandshakeLimits) -> Self {
        Self {
            limits,
            phase: Phase::ClientFlags,
            security: Security::Clear,
            gathered: Gathered::default(),
            received: 0,
            replied: 0,
            list_bytes_left: limits.max_list_reply_bytes as usize,
            dirty_contexts_left: limits.max_dirty_contexts as usize,
            fixed: false,
            zeroes: true,
            structured: false,
            allocation_of: None,
            dirty_of: None,
        }
    }

    /// One that grants nothing before the client has asked for TLS, and has got it.
    pub fn requiring_tls(limits: HandshakeLimits) -> Self {
        Self {
            security: Security::Required,
            ..Self::new(limits)
        }
    }

    /// After [`Progress::StartTls`]: there is a TLS session, and what is stepped from now on came through it. Whatever was
    /// negotiated before is forgotten; limits go on.
    pub fn secured(&mut self) {
        assert!(
            matches!(self.phase, Phase::Tls),
            "TLS begins where it was granted"
        );
        self.phase = Phase::Options;
        self.security = Security::Secured;
        self.structured = false;
        self.allocation_of = None;
        self.dirty_of = None;
    }

    /// What to send first.
    pub fn greeting(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..18].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Takes bytes from the front of `input`, in pieces of any size, and appends replies to `out`. Says how many were
    /// taken: all of them, but when the handshake ends. After an error the connection must be closed.
    pub fn step(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Progress), WireError> {
        let mut rest = input;
        loop {
            let before = out.len();
            let advanced = self.advance(&mut rest, exports, out);
            self.replied += out.len() - before;
            let progress = match advanced {
                Ok(Step::Again) => continue,
                Ok(Step::Starved) => Progress::More,
                Ok(Step::End(Progress::StartTls)) => Progress::StartTls,
                Ok(Step::End(progress)) => {
                    self.phase = Phase::Over;
                    progress
                }
                Err(error) => {
                    self.phase = Phase::Over;
                    return Err(error);
                }
            };
            return Ok((input.len() - rest.len(), progress));
        }
    }

    /// Memory held for input that is not complete.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.gathered.bytes.capacity()
    }

    fn advance(
        &mut self,
        input: &mut &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, WireError> {
        match self.phase {
            Phase::Over | Phase::Tls => Err(WireError::HandshakeOver),
            Phase::ClientFlags => self.client_flags(input),
            Phase::Skipping { option, left } => {
                let n = input.len().min(left as usize);
                *input = &input[n..];
                let left = left - n as u32;
                if left > 0 {
                    self.phase = Phase::Skipping { option, left };
                    return Ok(Step::Starved);
                }
                match self.security {
                    Security::Required => self.require_tls(option, out),
                    _ => refuse(out, option, rep::ERR_TOO_BIG, "the option is too long"),
                }
                self.phase = Phase::Options;
                Ok(Step::Again)
            }
            Phase::Options => self.next_option(input, exports, out),
        }
    }

    fn client_flags(&mut self, input: &mut &[u8]) -> Result<Step, WireError> {
        if !self.gathered.fill(input, 4) {
            return Ok(Step::Starved);
        }
        let flags = Fields::new(&self.gathered.bytes).u32().unwrap_or_default();
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(WireError::UnknownClientFlags { flags });
        }
        self.fixed = flags & u32::from(FIXED_NEWSTYLE) != 0;
        self.zeroes = flags & u32::from(NO_ZEROES) == 0;
        self.gathered.bytes.clear();
        self.phase = Phase::Options;
        Ok(Step::Again)
    }

    fn next_option(
        &mut self,
        input: &mut &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, WireError> {
        if !self.gathered.fill(input, OPTION_BYTES) {
            return Ok(Step::Starved);
        }
        let mut fields = Fields::new(&self.gathered.bytes);
        let (Some(magic), Some(number), Some(length)) = (fields.u64(), fields.u32(), fields.u32())
        else {
            return Ok(Step::Starved);
        };
        if magic != OPTION_MAGIC {
            return Err(WireError::BadMagic {
                place: "option",
                found: magic,
            });
        }
        if !self.fixed && number != option::EXPORT_NAME {
            return Err(WireError::NotFixed { option: number });
        }
        let received = self.received.saturating_add(OPTION_BYTES as u32);
        let received = received.saturating_add(length);
        if length > self.limits.max_option_bytes {
            // EXPORT_NAME has no error reply.
            if length > self.limits.max_skipped_bytes || number == option::EXPORT_NAME {
                return Err(WireError::OptionTooLong {
                    option: number,
                    length,
                    limit: self.limits.max_option_bytes,
                });
            }
            self.admit(received)?;
            self.unselect_before(number);
            self.gathered.bytes.clear();
            self.phase = Phase::Skipping {
                option: number,
                left: length,
            };
            return Ok(Step::Again);
        }
        if !self.gathered.fill(input, OPTION_BYTES + length as usize) {
            return Ok(Step::Starved);
        }
        self.admit(received)?;
        self.unselect_before(number);
        let whole = std::mem::take(&mut self.gathered.bytes);
        let starts_tls = number == option::STARTTLS && self.security == Security::Required;
        if starts_tls && !input.is_empty() {
            // Somebody may have put them there who wants them to be taken for the client's, once it has proved who it is.
            return Err(WireError::BeforeTls);
        }
        let end = self.answer(number, &whole[OPTION_BYTES..], exports, out)?;
        // The allocation serves the next option.
        self.gathered.bytes = whole;
        self.gathered.bytes.clear();
        Ok(end.map_or(Step::Again, Step::End))
    }

    /// Takes a further option, with which `received` bytes have come, if the budgets allow it.
    fn admit(&mut self, received: u32) -> Result<(), WireError> {
        let HandshakeLimits {
            max_received_bytes,
            max_reply_bytes,
            ..
        } = self.limits;
        let too_long = |what, limit| Err(WireError::HandshakeTooLong { what, limit });
        if received > max_received_bytes {
            return too_long("options", max_received_bytes);
        }
        if self.replied >= max_reply_bytes as usize {
            return too_long("replies", max_reply_bytes);
        }
        self.received = received;
        Ok(())
    }

    /// Each `SET_META_CONTEXT` replaces what was selected before, also when it fails.
    fn unselect_before(&mut self, number: u32) {
        if number == option::SET_META_CONTEXT {
            self.allocation_of = None;
            self.dirty_of = None;
        }
    }

    fn require_tls(&self, number: u32, out: &mut Vec<u8>) {
        let why = "this server requires TLS: connect with nbds:// and the client's credentials";
        refuse(out, number, rep::ERR_TLS_REQD, why);
    }

    /// Answers one complete option.
    fn answer(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Option<Progress>, WireError> {
        if self.security == Security::Required
            && !matches!(number, option::STARTTLS | option::ABORT)
        {
            if number == option::EXPORT_NAME {
                return Err(WireError::TlsRequired); // it has no error reply
            }
            self.require_tls(number, out);
            return Ok(None);
        }
        match number {
            option::EXPORT_NAME => {
                let session = self.export_name(data, exports, out)?;
                return Ok(Some(Progress::Ready(Box::new(session))));
            }
            option::ABORT => {
                reply(out, number, rep::ACK, &[]);
                return Ok(Some(Progress::Closed));
            }
            option::INFO | option::GO => {
                let session = self.info(number, data, exports, out);
                if number == option::GO {
                    return Ok(session.map(|session| Progress::Ready(Box::new(session))));
                }
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, exports, out);
            }
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY if !data.is_empty() => {
                refuse(
                    out,
                    number,
                    rep::ERR_INVALID,
                    "this option must not have data",
                );
            }
            option::LIST => self.list(exports, out),
            option::STARTTLS => match self.security {
                Security::Clear => refuse(
                    out,
                    number,
                    rep::ERR_POLICY,
                    "this server does not support TLS",
                ),
                Security::Secured => refuse(
                    out,
                    number,
                    rep::ERR_INVALID,
                    "the connection already uses TLS",
                ),
                Security::Required => {
                    reply(out, number, rep::ACK, &[]);
                    self.phase = Phase::Tls;
                    return Ok(Some(Progress::StartTls));
                }
            },
            option::STRUCTURED_REPLY => {
                self.structured = true;
                reply(out, number, rep::ACK, &[]);
            }
            _ => refuse(out, number, rep::ERR_UNSUP, "unknown option"),
        }
        Ok(None)
    }

    fn export_name(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Session, WireError> {
        let name = name(data).map_err(|why| WireError::BadExportName { why })?;
        let export = exports
            .find(name)
            .ok_or_else(|| WireError::UnknownExport { name: name.into() })?;
        let session = self.session(export);
        out.extend_from_slice(&session.export.size.to_be_bytes());
        out.extend_from_slice(&session.export.flags.0.to_be_bytes());
        if self.zeroes {
            out.extend_from_slice(&[0; ZEROES_BYTES]);
        }
        Ok(session)
    }

    /// `INFO` and `GO`; the session that `GO` starts, when the export exists.
    fn info(
        &self,
        number: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Option<Session> {
        let query = match parse_info(data) {
            Ok(query) => query,
            Err(why) => {
                refuse(out, number, rep::ERR_INVALID, why);
                return None;
            }
        };
        let Some(export) = exports.find(query.name) else {
            refuse(out, number, rep::ERR_UNKNOWN, "no such export");
            return None;
        };
        let session = self.session(export);
        let export = &session.export;
        let mut tell = |kind: u16, fields: &[&[u8]]| {
            let data = [&[kind.to_be_bytes().as_slice()], fields].concat().concat();
            reply(out, number, rep::INFO, &data);
        };
        let (size, flags) = (export.size.to_be_bytes(), export.flags.0.to_be_bytes());
        tell(info::EXPORT, &[&size, &flags]);
        if query.wants_name {
            tell(info::NAME, &[export.name.as_bytes()]);
        }
        if query.wants_description && !export.description.is_empty() {
            let description = cut(&export.description, STRING_BYTES_MAX);
            tell(info::DESCRIPTION, &[description.as_bytes()]);
        }
        if query.wants_block_sizes {
            let block = &export.block;
            let sizes = [block.minimum, block.preferred, block.maximum].map(u32::to_be_bytes);
            tell(info::BLOCK_SIZE, &[sizes.as_flattened()]);
        }
        reply(out, number, rep::ACK, &[]);
        Some(session)
    }

    fn list(&mut self, exports: &dyn Exports, out: &mut Vec<u8>) {
        let too_long = "the list of exports is too long";
        if self.list_bytes_left == 0 {
            return refuse(out, option::LIST, rep::ERR_TOO_BIG, too_long);
        }
        let list = exports.list();
        let entry = |export: &Export| {
            let description = cut(&export.description, STRING_BYTES_MAX).as_bytes();
            let name = export.name.as_bytes();
            [&length32(name.len()), name, description].concat()
        };
        let entries: Vec<Vec<u8>> = list.iter().map(entry).collect();
        let bytes: usize = entries.iter().map(|e| OPTION_REPLY_BYTES + e.len()).sum();
        let Some(left) = self.list_bytes_left.checked_sub(bytes) else {
            self.list_bytes_left = 0;
            return refuse(out, option::LIST, rep::ERR_TOO_BIG, too_long);
        };
        self.list_bytes_left = left;
        for entry in entries {
            reply(out, option::LIST, rep::SERVER, &entry);
        }
        reply(out, option::LIST, rep::ACK, &[]);
    }

    /// `LIST_META_CONTEXT` and `SET_META_CONTEXT`. A namespace alone lists what is in it and selects nothing.
    fn contexts(&mut self, number: u32, data: &[u8], exports: &dyn Exports, out: &mut Vec<u8>) {
        let set = number == option::SET_META_CONTEXT;
        if !self.structured {
            let why = "metadata contexts need structured replies";
            return refuse(out, number, rep::ERR_INVALID, why);
        }
        let query = match parse_contexts(data) {
            Ok(query) => query,
            Err(why) => return refuse(out, number, rep::ERR_INVALID, why),
        };
        let Some(export) = exports.find(query.name) else {
            return refuse(out, number, rep::ERR_UNKNOWN, "no such export");
        };
        let listed = !set && (query.empty || query.base);
        if query.allocation || listed {
            let id = if set { ALLOCATION_CONTEXT } else { 0 };
            let data = [&id.to_be_bytes(), ALLOCATION.as_bytes()].concat();
            reply(out, number, rep::META_CONTEXT, &data);
            if set {
                self.allocation_of = Some(export.name.clone());
            }
        }
        self.dirty_contexts(number, &query, &export, exports, out);
        reply(out, number, rep::ACK, &[]);
    }

    /// Contexts that say what has changed.
    fn dirty_contexts(
        &mut self,
        number: u32,
        query: &ContextQuery<'_>,
        export: &Export,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) {
        let tell = |out: &mut Vec<u8>, id: u32, since: &str| {
            let data = [&id.to_be_bytes(), DIRTY.as_bytes(), since.as_bytes()].concat();
            reply(out, number, rep::META_CONTEXT, &data);
        };
        let mut known = exports.known_since(&export.name);
        if number != option::SET_META_CONTEXT {
            let listed = query.empty || query.qemu;
            known.retain(|since| listed || query.dirty.contains(&since.as_str()));
            return known.iter().for_each(|since| tell(out, 0, since));
        }
        let mut selected = vec![];
        for since in &query.dirty {
            if selected.len() == DIRTY_MAX || self.dirty_contexts_left == 0 {
                break;
            }
            // A second query for the same name finds nothing.
            let Some(at) = known.iter().position(|name| name == since) else {
                continue;
            };
            known.swap_remove(at);
            self.dirty_contexts_left -= 1;
            if let Some(dirty) = exports.changed_since(&export.name, since) {
                let id = ALLOCATION_CONTEXT + 1 + selected.len() as u32;
                tell(out, id, since);
                selected.push((id, dirty));
            }
        }
        self.dirty_of = Some((export.name.clone(), selected));
    }

    /// What holds when the transmission of `export` starts now.
    fn session(&self, mut export: Export) -> Session {
        export.flags = export.flags.with(ExportFlags::HAS_FLAGS);
        if !self.structured {
            export.flags = export.flags.without(ExportFlags::SEND_DF);
        }
        let selected = self.allocation_of.as_ref() == Some(&export.name);
        let dirty = self.dirty_of.as_ref();
        let dirty = dirty.filter(|(of, _)| *of == export.name);
        let dirty = dirty.map_or(vec![], |(_, dirty)| dirty.clone());
        Session {
            export,
            structured: self.structured,
            allocation_context: selected.then_some(ALLOCATION_CONTEXT),
            dirty,
        }
    }
}
