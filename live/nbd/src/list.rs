//! Client handshake that lists a server's exports and disconnects.

use crate::error::WireError;
use crate::talk::{Talk, client_flags, malformed, unexpected};
use crate::wire::{FIXED_NEWSTYLE, Fields, name, option, option_reply as rep, words};

/// Export in a server's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedExport {
    /// Name of the export.
    pub name: String,
    /// Description by the server; may be empty.
    pub description: String,
}

/// Progress of the list handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListProgress {
    /// All input was processed: send `out` and read more.
    More,
    /// The list is complete: send `out`, then close the connection.
    Ready(Vec<ListedExport>),
}

/// Client handshake for the list of exports: bytes in, bytes out.
#[derive(Debug, Default)]
pub struct ListHandshake {
    talk: Talk,
    greeted: bool,
    over: bool,
    exports: Vec<ListedExport>,
}

impl ListHandshake {
    /// Creates a handshake that only requests the list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes input, as [`crate::ClientHandshake::step`] does.
    pub fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ListProgress), WireError> {
        let mut rest = input;
        loop {
            if self.over {
                return Err(WireError::HandshakeOver);
            }
            let progress = match self.advance(&mut rest, out) {
                Ok(true) if self.over => ListProgress::Ready(std::mem::take(&mut self.exports)),
                Ok(true) => continue,
                Ok(false) => ListProgress::More,
                Err(error) => {
                    self.over = true;
                    return Err(error);
                }
            };
            return Ok((input.len() - rest.len(), progress));
        }
    }

    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, WireError> {
        if !self.greeted {
            let Some(flags) = self.talk.greeting(input)? else {
                return Ok(false);
            };
            let flags = client_flags(flags);
            if flags & FIXED_NEWSTYLE == 0 {
                return Err(WireError::NotFixed {
                    option: option::LIST,
                });
            }
            out.extend_from_slice(&u32::from(flags).to_be_bytes());
            self.talk.ask(option::LIST, &[], out);
            self.greeted = true;
            return Ok(true);
        }
        let Some((kind, data)) = self.talk.reply(input, option::LIST)? else {
            return Ok(false);
        };
        match kind {
            rep::SERVER => {
                let mut fields = Fields::new(&data);
                let text = fields.counted().ok_or("the name exceeds the reply");
                let text = text
                    .and_then(name)
                    .map_err(|why| malformed("listed export", why))?;
                self.exports.push(ListedExport {
                    name: text.into(),
                    description: words(fields.rest()),
                });
            }
            rep::ACK => {
                self.talk.ask(option::ABORT, &[], out);
                self.over = true;
            }
            _ => return Err(unexpected(option::LIST, kind, &data)),
        }
        Ok(true)
    }
}
