//! Common parts of client handshakes: the greeting, options, and their replies.
//!
//! ```text
//!  option  │ IHAVEOPT │ option │ length │ data …              reply  │ magic │ option │ type │ length │ data …
//!            64         32       32                                    64      32       32     32
//! ```

use crate::error::WireError;
use crate::limits::{REPLIES_BYTES_MAX, REPLY_BYTES_MAX};
use crate::wire::{
    FIXED_NEWSTYLE, Fields, GREETING_BYTES, InputBuffer, NBD_MAGIC, NO_ZEROES, OLDSTYLE_MAGIC,
    OPTION_MAGIC, OPTION_REPLY_BYTES, OPTION_REPLY_MAGIC, length32, option_reply as rep, words,
};

/// State that all client handshakes share.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    pub gathered: InputBuffer,
    /// Bytes of replies to the current option.
    replied: usize,
}

impl Talk {
    /// Returns the server's handshake flags; `None` if the greeting is incomplete.
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

    /// Appends an option and expects its replies next.
    pub fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        self.replied = 0;
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&length32(data.len()));
        out.extend_from_slice(data);
    }

    /// Returns type and data of the next reply to `option`; `None` if it is incomplete.
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

/// Returns the error for a refused option, or for a reply that is invalid for it.
pub(crate) fn unexpected(option: u32, kind: u32, data: &[u8]) -> WireError {
    if kind & rep::ERROR == 0 {
        return malformed("option reply", "the type is not valid for the option");
    }
    if kind == rep::ERR_TLS_REQD {
        return WireError::TlsRequired;
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

/// Returns the client's flags for a greeting.
pub(crate) fn client_flags(server: u16) -> u16 {
    server & (FIXED_NEWSTYLE | NO_ZEROES)
}
