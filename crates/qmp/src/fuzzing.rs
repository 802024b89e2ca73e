//! Entry points for fuzzers: any bytes, in any pieces, and nothing panics, hangs or is kept beyond its limit.

use crate::{Message, Session};

/// What a peer sent; the first byte says in what pieces it arrives.
pub fn session(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    let mut session = Session::default();
    for piece in bytes.chunks(usize::from(*piece) + 1) {
        session.feed(piece);
        while let Ok(Some(message)) = session.poll() {
            if let Message::Ready(_) | Message::Answer { .. } = message {
                // As many as it takes.
                let _ = session.command("query-block-jobs", None);
            }
        }
        session.output();
    }
}
