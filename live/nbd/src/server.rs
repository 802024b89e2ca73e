//! Server side of the handshake.
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
//! If TLS is required, only `STARTTLS` and `ABORT` are granted before it. Afterwards the handshake discards all earlier
//! state:
//!
//! ```text
//!   options ── STARTTLS ──▶ waiting for TLS ── secured() ──▶ options, without earlier selections
//!      └───── another option, or bytes after it ──▶ ERR_TLS_REQD, or an error
//! ```

use crate::error::WireError;
use crate::export::{
    ALLOCATION_CONTEXT, DIRTY_MAX, DirtyContexts, Export, ExportFlags, Exports, Session,
};
use crate::limits::HandshakeLimits;
use crate::options::{ContextQuery, parse_contexts, parse_info, refuse, reply};
use crate::wire::{
    ALLOCATION, DIRTY, FIXED_NEWSTYLE, Fields, GREETING_BYTES, InputBuffer, NBD_MAGIC, NO_ZEROES,
    OPTION_BYTES, OPTION_MAGIC, OPTION_REPLY_BYTES, STRING_BYTES_MAX, ZEROES_BYTES, cut, info,
    length32, name, option, option_reply as rep,
};

/// Progress of a server's handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// All input was processed: send `out` and read more.
    More,
    /// Send `out`; remaining input belongs to the transmission phase.
    Ready(Box<Session>),
    /// Send `out`, start TLS on the connection, call [`ServerHandshake::secured`], and continue inside the session.
    StartTls,
    /// The client aborted: send `out`, then close the connection.
    Closed,
}

/// State of TLS in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Security {
    /// TLS is not supported.
    Clear,
    /// TLS is required and not established.
    Required,
    /// The handshake is inside a TLS session.
    Secured,
}

#[derive(Debug)]
enum Phase {
    ClientFlags,
    Options,
    /// `STARTTLS` was granted.
    Tls,
    /// Data of an option that is too long is discarded on arrival.
    Skipping {
        option: u32,
        left: u32,
    },
    Over,
}

/// Result of one step.
enum Step {
    Again,
    Starved,
    End(Progress),
}

/// Server side of a handshake: bytes in, bytes out.
#[derive(Debug)]
pub struct ServerHandshake {
    limits: HandshakeLimits,
    phase: Phase,
    security: Security,
    gathered: InputBuffer,
    /// Bytes of received options, including headers.
    received: u32,
    /// Bytes of sent replies.
    replied: usize,
    /// Remaining bytes of `max_list_reply_bytes`.
    list_bytes_left: usize,
    /// Remaining contexts of `max_dirty_contexts`.
    dirty_contexts_left: usize,
    fixed: bool,
    zeroes: bool,
    structured: bool,
    /// Export for which `base:allocation` is selected.
    allocation_of: Option<String>,
    /// Export for which contexts of changed ranges are selected, and these contexts.
    dirty_of: Option<(String, DirtyContexts)>,
}

impl ServerHandshake {
    /// Creates a handshake for a new connection.
    pub fn new(limits: HandshakeLimits) -> Self {
        Self {
            limits,
            phase: Phase::ClientFlags,
            security: Security::Clear,
            gathered: InputBuffer::default(),
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

    /// Creates a handshake that grants nothing before TLS is established.
    pub fn requiring_tls(limits: HandshakeLimits) -> Self {
        Self {
            security: Security::Required,
            ..Self::new(limits)
        }
    }

    /// Continues after [`Progress::StartTls`]: all further input must come through the TLS session. Earlier negotiation
    /// results are discarded; the limits still count earlier bytes.
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

    /// Returns the greeting, which is sent first.
    pub fn greeting(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..18].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Processes bytes from the front of `input`, in pieces of any size, and appends replies to `out`. Returns the number of
    /// processed bytes, which is less than all only at the end of the handshake. After an error the connection must be
    /// closed.
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

    /// Returns the memory in use for incomplete input, bytes.
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
            // An attacker may have injected them, to be processed as the authenticated client's bytes.
            return Err(WireError::BeforeTls);
        }
        let end = self.answer(number, &whole[OPTION_BYTES..], exports, out)?;
        // The allocation is reused for the next option.
        self.gathered.bytes = whole;
        self.gathered.bytes.clear();
        Ok(end.map_or(Step::Again, Step::End))
    }

    /// Counts a further option, with which `received` bytes have arrived in total, if the limits permit it.
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

    /// Clears the selected contexts: each `SET_META_CONTEXT` replaces earlier selections, even if it fails.
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
                return Err(WireError::TlsRequired); // this option has no error reply
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

    /// Answers `INFO` or `GO`. Returns the session that `GO` starts, if the export exists.
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

    /// Answers `LIST_META_CONTEXT` or `SET_META_CONTEXT`. A namespace alone lists its contexts and selects none.
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

    /// Lists or selects contexts of changed ranges.
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
            // A repeated query for the same name matches nothing.
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

    /// Returns the session if the transmission of `export` starts now.
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
