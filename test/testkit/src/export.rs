//! NBD server for tests. It keeps an export in memory, and can send incomplete replies.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nbd::{
    BlockSizes, Command, Export, ExportFlags, Exports, HandshakeLimits, Progress, REQUEST_BYTES,
    ServerHandshake,
};

/// Size of the export.
const BYTES: usize = 16 << 20;

/// Exports of the server: one, without a name.
struct SingleExport;

impl Exports for SingleExport {
    fn find(&self, name: &str) -> Option<Export> {
        let can = [
            ExportFlags::SEND_FLUSH,
            ExportFlags::SEND_FUA,
            ExportFlags::SEND_WRITE_ZEROES,
        ];
        name.is_empty().then(|| Export {
            name: String::new(),
            description: String::new(),
            size: BYTES as u64,
            flags: can
                .into_iter()
                .fold(ExportFlags::HAS_FLAGS, ExportFlags::with),
            block: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 32 << 20,
            },
        })
    }

    fn list(&self) -> Vec<Export> {
        vec![]
    }
}

/// Serves 16 MiB as the export without a name until the process ends. A read that ends beyond the first `whole` bytes
/// gets a complete reply with one byte only. Reads of 1 MiB or more are answered in full, so the export can be added to
/// an array.
///
/// # Panics
/// The socket cannot be created, for example because a file exists at its path.
#[expect(
    clippy::disallowed_methods,
    reason = "a server beside the test that it serves"
)]
pub fn serve(socket: &Path, whole: usize) {
    let listener = UnixListener::bind(socket).expect("the socket's place is free");
    let bytes = Arc::new(Mutex::new(vec![0; BYTES]));
    std::thread::spawn(move || {
        for guest in listener.incoming().flatten() {
            let bytes = bytes.clone();
            std::thread::spawn(move || serve_one(guest, &bytes, whole));
        }
    });
}

/// Serves one connection until the guest closes it.
fn serve_one(mut guest: UnixStream, bytes: &Mutex<Vec<u8>>, whole: usize) -> io::Result<()> {
    let mut handshake = ServerHandshake::new(HandshakeLimits::default());
    guest.write_all(&handshake.greeting())?;
    loop {
        let (mut input, mut out) = ([0; 4096], vec![]);
        let n = guest.read(&mut input)?;
        if n == 0 {
            return Ok(());
        }
        let stepped = handshake.step(&input[..n], &SingleExport, &mut out);
        let (_, progress) = stepped.map_err(io::Error::other)?;
        guest.write_all(&out)?;
        if matches!(progress, Progress::Ready(_)) {
            break;
        }
    }
    let mut head = [0; REQUEST_BYTES];
    loop {
        guest.read_exact(&mut head)?;
        let asked = nbd::decode_request(&head).map_err(io::Error::other)?;
        let mut payload = vec![0; asked.payload_bytes() as usize];
        guest.read_exact(&mut payload)?;
        let from = asked.offset as usize;
        let range = from..from + asked.length as usize;
        let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match asked.command {
            Command::Disconnect => return Ok(()),
            Command::Read if range.end > whole && asked.length < 1 << 20 => {
                let one = nbd::data_chunk(asked.cookie, asked.offset, 1, true);
                [&one[..], b"x"].concat()
            }
            Command::Read => {
                let all = nbd::data_chunk(asked.cookie, asked.offset, asked.length, true);
                [&all[..], &bytes[range]].concat()
            }
            Command::BlockStatus => {
                let (length, flags) = (asked.length, 0);
                let mut all_data = vec![];
                let extents = [nbd::StatusExtent { length, flags }];
                nbd::status_chunk(
                    asked.cookie,
                    nbd::ALLOCATION_CONTEXT,
                    &extents,
                    true,
                    &mut all_data,
                );
                all_data
            }
            command => {
                match command {
                    Command::Write => bytes[range].copy_from_slice(&payload),
                    Command::WriteZeroes => bytes[range].fill(0),
                    _ => {}
                }
                nbd::none_chunk(asked.cookie).to_vec()
            }
        };
        drop(bytes);
        guest.write_all(&answer)?;
    }
}
