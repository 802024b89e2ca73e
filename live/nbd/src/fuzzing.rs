//! Entry points of the fuzz targets and of ordinary tests: for any input, nothing panics. Both handshakes also get their
//! input in single bytes, which must give the same result, and must stay within their limits of memory and output.

use crate::check::check;
use crate::client::{ClientHandshake, ClientProgress, ClientWishes};
use crate::error::WireError;
use crate::export::{BlockSizes, Export, ExportFlags, Exports, Session};
use crate::limits::{HandshakeLimits, REPLY_BYTES_MAX};
use crate::list::ListHandshake;
use crate::reader::{ReplyHeader, ReplyReader, ReplyStep};
use crate::request::{Command, REQUEST_BYTES, decode_request, encode_request};
use crate::server::{Progress, ServerHandshake};
use crate::uri::Uri;

/// Two exports; the first one is the default.
struct Shelf;

impl Exports for Shelf {
    fn find(&self, name: &str) -> Option<Export> {
        let list = self.list();
        let wanted = if name.is_empty() { "disk" } else { name };
        list.into_iter().find(|export| export.name == wanted)
    }

    fn list(&self) -> Vec<Export> {
        let export = |name: &str, description: &str, flags| Export {
            name: name.into(),
            description: description.into(),
            size: 1 << 20,
            flags: ExportFlags(flags),
            block: BlockSizes {
                minimum: 512,
                preferred: 4096,
                maximum: 1 << 16,
            },
        };
        vec![
            export("disk", "a disk", 0xfff & !0b10),
            export("größe", "", 0b11),
        ]
    }
}

/// Low limits, which short inputs can reach.
const LIMITS: HandshakeLimits = HandshakeLimits {
    max_option_bytes: 256,
    max_skipped_bytes: 512,
    max_received_bytes: 512,
    max_reply_bytes: 1024,
    max_list_reply_bytes: 512,
    max_dirty_contexts: 2,
};

/// Largest output of a server with [`LIMITS`]: its budget plus the replies to the last option, each with a header and a
/// short text.
const ANSWER_BYTES_MAX: usize = 1024 + 5 * (20 + 64) + 512;

/// Returns the largest memory of a side that keeps `bytes` and their header: a vector grows by doubling.
fn kept_max(bytes: u32) -> usize {
    2 * (bytes as usize + 20)
}

/// Feeds pieces of `size` bytes to `step` until it ends, fails, or the input ends. Returns the number of processed bytes and
/// the result.
fn feed<T>(
    bytes: &[u8],
    size: usize,
    mut step: impl FnMut(&[u8]) -> Result<(usize, Option<T>), WireError>,
) -> Result<(usize, Option<T>), WireError> {
    let mut taken = 0;
    for piece in bytes.chunks(size) {
        let (n, end) = step(piece)?;
        taken += n;
        if end.is_some() {
            return Ok((taken, end));
        }
        assert_eq!(n, piece.len(), "bytes left over without an end");
    }
    Ok((taken, None))
}

/// Outcome of a handshake: processed bytes and result, or the error; and the output.
type Outcome<T> = (Result<(usize, Option<T>), WireError>, Vec<u8>);

fn serve(bytes: &[u8], size: usize) -> Outcome<Progress> {
    let (mut handshake, mut out) = (ServerHandshake::new(LIMITS), vec![]);
    let end = feed(bytes, size, |piece| {
        let (n, progress) = handshake.step(piece, &Shelf, &mut out)?;
        assert!(handshake.kept_bytes() <= kept_max(LIMITS.max_option_bytes));
        Ok((n, Some(progress).filter(|p| *p != Progress::More)))
    });
    assert!(
        out.len() <= ANSWER_BYTES_MAX,
        "{} bytes of replies",
        out.len()
    );
    (end, out)
}

/// Runs a server on a client's input: flags, options, and requests after a successful handshake.
pub fn server(bytes: &[u8]) {
    let whole = serve(bytes, usize::MAX);
    assert_eq!(whole, serve(bytes, 1), "in one piece or in many");
    let Ok((taken, Some(Progress::Ready(session)))) = whole.0 else {
        return;
    };
    requests(&bytes[taken..], &session);
}

/// Runs a server that requires TLS. Bytes after `STARTTLS` are treated as if they came through the TLS session. They are fed
/// one by one, because no byte may follow the option itself.
pub fn strict_server(bytes: &[u8]) {
    let (mut handshake, mut out) = (ServerHandshake::requiring_tls(LIMITS), vec![]);
    let mut secured = false;
    for byte in bytes.chunks(1) {
        let step = handshake.step(byte, &Shelf, &mut out);
        assert!(handshake.kept_bytes() <= kept_max(LIMITS.max_option_bytes));
        assert!(out.len() <= ANSWER_BYTES_MAX);
        match step {
            Ok((_, Progress::More)) => {}
            Ok((_, Progress::StartTls)) => {
                assert!(!secured, "once");
                secured = true;
                handshake.secured();
            }
            Ok((_, Progress::Ready(_))) => {
                assert!(secured, "nobody has an export before that");
                return;
            }
            Ok((_, Progress::Closed)) | Err(_) => return,
        }
    }
}

fn requests(mut bytes: &[u8], session: &Session) {
    while let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_BYTES>() {
        bytes = rest;
        let request = match decode_request(header) {
            Ok(request) => request,
            Err(WireError::UnknownCommand { .. }) => continue,
            Err(_) => return,
        };
        assert_eq!(&encode_request(&request), header);
        match check(&request, session) {
            Err(refusal) if refusal.fatal => return,
            Ok(()) if request.command == Command::Disconnect => return,
            Ok(()) => {
                let end = request.offset.checked_add(request.length.into());
                assert!(end.is_some_and(|end| end <= session.export.size));
            }
            Err(_) => {}
        }
        let payload = request.payload_bytes() as usize;
        assert!(payload <= session.export.block.maximum as usize);
        bytes = &bytes[payload.min(bytes.len())..];
    }
}

fn negotiate(bytes: &[u8], size: usize, wishes: ClientWishes) -> Outcome<Box<Session>> {
    let (mut handshake, mut out) = (ClientHandshake::new("disk", wishes), vec![]);
    let end = feed(bytes, size, |piece| {
        let (n, progress) = handshake.step(piece, &mut out)?;
        assert!(handshake.kept_bytes() <= kept_max(REPLY_BYTES_MAX));
        let end = match progress {
            ClientProgress::More => None,
            ClientProgress::StartTls => unreachable!("it was not asked for"),
            ClientProgress::Ready(session) => Some(session),
        };
        Ok((n, end))
    });
    assert!(out.len() <= 512, "{} bytes of options", out.len());
    (end, out)
}

/// Runs a client on a server's input: greeting, option replies, and request replies after a successful handshake. Also
/// parses a URI.
pub fn client(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(uri) = text.parse::<Uri>()
    {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
    let mut list = (ListHandshake::new(), vec![]);
    let _ = list.0.step(bytes, &mut list.1);
    for (structured, allocation) in [(false, false), (true, false), (true, true)] {
        let wishes = ClientWishes {
            structured,
            allocation,
        };
        let whole = negotiate(bytes, usize::MAX, wishes);
        assert_eq!(
            whole,
            negotiate(bytes, 1, wishes),
            "in one piece or in many"
        );
        if let Ok((taken, Some(session))) = whole.0 {
            replies(&bytes[taken..], &session);
        }
    }
    let (mut strict, mut out) = (
        ClientHandshake::with_tls("disk", ClientWishes::default()),
        vec![],
    );
    let mut secured = false;
    for byte in bytes.chunks(1) {
        match strict.step(byte, &mut out) {
            Ok((_, ClientProgress::More)) => {}
            Ok((_, ClientProgress::StartTls)) => {
                secured = true;
                strict.secured(&mut out);
            }
            Ok((_, ClientProgress::Ready(_))) => {
                assert!(secured, "it takes nothing without TLS");
                break;
            }
            Err(_) => break,
        }
        assert!(strict.kept_bytes() <= kept_max(REPLY_BYTES_MAX));
        assert!(out.len() <= 512, "{} bytes of options", out.len());
    }
    // Also runs the reply reader alone, which a fuzzer reaches sooner.
    let session = Session {
        export: Shelf.list().remove(0),
        structured: true,
        allocation_context: Some(1),
        dirty: vec![],
    };
    replies(bytes, &session);
}

fn replies(mut bytes: &[u8], session: &Session) {
    let mut reader = ReplyReader::new(session);
    loop {
        match reader.next(bytes) {
            Err(_) => return,
            Ok(ReplyStep::More { need }) => {
                assert!(need > bytes.len() && need <= 1 << 20);
                return;
            }
            Ok(ReplyStep::Header { consumed, reply }) => {
                assert!(consumed > 0 && consumed <= bytes.len());
                // One byte less must be incomplete.
                let short = reader.next(&bytes[..consumed - 1]);
                assert!(matches!(short, Ok(ReplyStep::More { .. })), "{short:?}");
                let payload = match reply {
                    ReplyHeader::Data { length, .. } => length as usize,
                    _ => 0,
                };
                bytes = &bytes[consumed..];
                bytes = &bytes[payload.min(bytes.len())..];
            }
        }
    }
}
