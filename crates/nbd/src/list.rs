//! A client's handshake that asks what a server has, and leaves.

use crate::error::WireError;
use crate::talk::{Talk, client_flags, malformed, unexpected};
use crate::wire::{FIXED_NEWSTYLE, Fields, name, option, option_reply as rep, words};

/// One export as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The server's words about it; may be empty.
    pub description: String,
}

/// How a request for the list stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListProgress {
    /// All input was taken; send what is in `out` and bring more.
    More,
    /// The list is complete: send what is in `out`, then close.
    Ready(Vec<Listed>),
}

/// Lists a server's exports: feed bytes, get bytes.
#[derive(Debug, Default)]
pub struct ListHandshake {
    talk: Talk,
    greeted: bool,
    over: bool,
    exports: Vec<Listed>,
}

impl ListHandshake {
    /// A handshake that only wants the list.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`crate::ClientHandshake::step`].
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
                self.exports.push(Listed {
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
