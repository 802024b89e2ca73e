//! Entry point for fuzzers: for any bytes, in pieces of any size, nothing panics, hangs or exceeds its limits.

use crate::{Message, Session};

/// Runs a session on a peer's input; the first byte chooses the size of the pieces.
pub fn session(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    let mut session = Session::default();
    for piece in bytes.chunks(usize::from(*piece) + 1) {
        session.feed(piece);
        while let Ok(Some(message)) = session.poll() {
            if let Message::Ready(_) | Message::Answer { .. } = message {
                // The session accepts commands up to its limit.
                let _ = session.command("query-block-jobs", None);
            }
        }
        session.output();
    }
}
