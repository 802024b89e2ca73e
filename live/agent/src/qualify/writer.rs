//! Verified writes through an NBD export of QEMU, many in flight at once, and the check of an image against them.
//!
//! ```text
//!   block 0        1        2        3        …
//!         base     hole     base     hole          4 KiB each; clusters of the source's qcow2 image
//!                  written once, in an order without pattern
//! ```
//!
//! Many small allocated ranges prolong QEMU's scan at the start of a mirror. Writes to holes are those that issue 3273
//! loses.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::{
    ClientHandshake, ClientProgress, ClientWishes, Command, RequestFlags, RequestHeader,
    SIMPLE_REPLY_BYTES, encode_request, simple_reply,
};

use crate::error::{AgentError, Result, system_error};

pub(super) const BLOCK: usize = 4096;
/// Number of blocks of an image, a power of two: 64 MiB.
const BLOCKS: u32 = 16_384;
pub(super) const DISK_BYTES: u64 = BLOCKS as u64 * BLOCK as u64;
/// Number of writes in flight.
const DEPTH: usize = 32;
/// Time between two writes. It bounds the load on the storage, at 13 MiB/s.
const PAUSE: Duration = Duration::from_micros(300);
/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the content of a block: the number of the round that wrote it (0 for the base), and the number of the block
/// plus 1.
fn content(round: u64, block: u32) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for pair in bytes.chunks_exact_mut(16) {
        pair[..8].copy_from_slice(&round.to_le_bytes());
        pair[8..].copy_from_slice(&(u64::from(block) + 1).to_le_bytes());
    }
    bytes
}

fn is_base(block: u32) -> bool {
    block.is_multiple_of(2)
}

/// Writes the raw image with which every round begins.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_base(file: &File) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.set_len(DISK_BYTES)?;
    for block in (0..BLOCKS).filter(|b| is_base(*b)) {
        file.write_all_at(&content(0, block), u64::from(block) * BLOCK as u64)?;
    }
    Ok(())
}

/// Returns the n-th hole to write: an odd factor makes a permutation of a power of two.
fn hole(round: u64, n: u32) -> u32 {
    let n = n.wrapping_mul(2_654_435_761).wrapping_add(round as u32) % (BLOCKS / 2);
    2 * n + 1
}

/// Sent and acknowledged writes of a round.
#[derive(Debug, Default)]
pub(super) struct RoundWrites {
    round: u64,
    sent: Vec<bool>,
    acknowledged: Vec<bool>,
}

impl RoundWrites {
    fn new(round: u64) -> Self {
        let none = || vec![false; BLOCKS as usize];
        Self {
            round,
            sent: none(),
            acknowledged: none(),
        }
    }

    /// Returns the number of acknowledged writes.
    pub(super) fn count(&self) -> u64 {
        self.acknowledged.iter().filter(|a| **a).count() as u64
    }

    /// Returns the number of blocks of a raw image that lack their acknowledged content or have content that was never
    /// written to them.
    ///
    /// # Errors
    /// The image cannot be read.
    pub(super) fn lost_in(&self, image: &Path) -> io::Result<u64> {
        let mut file = io::BufReader::with_capacity(1 << 20, File::open(image)?);
        let mut lost = 0;
        for block in 0..BLOCKS {
            let mut found = [0; BLOCK];
            match file.read_exact(&mut found) {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {} // zeroes
                read => read?,
            }
            let at = block as usize;
            let is_right = match (is_base(block), self.acknowledged[at], self.sent[at]) {
                (true, ..) => found == content(0, block),
                (false, true, _) => found == content(self.round, block),
                (false, false, true) => found == [0; BLOCK] || found == content(self.round, block),
                (false, false, false) => found == [0; BLOCK],
            };
            lost += u64::from(!is_right);
        }
        Ok(lost)
    }
}

/// State that the writer's threads and its owner share.
struct WriterState {
    written: Mutex<RoundWrites>,
    acknowledged: AtomicU32,
    refused: AtomicU32,
    /// Number of writes that were sent.
    sent: AtomicU32,
    /// Order to send no further writes, and its confirmation by the sender.
    rests: AtomicBool,
    is_resting: AtomicBool,
    ends: AtomicBool,
}

/// Writer of one round.
pub(super) struct Writer {
    shared: Arc<WriterState>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<()>,
    stream: UnixStream,
}

impl Writer {
    /// Starts to write. `durable` writes are on disk when they are acknowledged, so QEMU may be killed.
    ///
    /// # Errors
    /// The server refuses the connection.
    pub(super) fn start(
        mut stream: UnixStream,
        export: &str,
        round: u64,
        durable: bool,
    ) -> Result<Self> {
        const EXPORT: &str = "the NBD export of QEMU";
        let ready = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| shake_hands(&mut stream, export))
            // There may be any time between two replies.
            .and_then(|()| stream.set_read_timeout(None));
        ready.map_err(system_error(EXPORT))?;
        let shared = Arc::new(WriterState {
            written: Mutex::new(RoundWrites::new(round)),
            acknowledged: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            rests: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        });
        let (begun, over) = sync_channel(DEPTH);
        let clone = || stream.try_clone().map_err(system_error(EXPORT));
        let (mut out, mut input) = (clone()?, clone()?);
        let of_sender = Arc::clone(&shared);
        let sender = std::thread::spawn(move || {
            let flags = match durable {
                true => RequestFlags::FUA,
                false => RequestFlags(0),
            };
            let _ = of_sender.send(&mut out, round, flags, &begun);
        });
        let of_receiver = Arc::clone(&shared);
        let receiver = std::thread::spawn(move || of_receiver.receive(&mut input, &over));
        Ok(Self {
            shared,
            sender,
            receiver,
            stream,
        })
    }

    /// Returns the number of writes that were acknowledged so far.
    pub(super) fn acknowledged(&self) -> u32 {
        self.shared.acknowledged.load(Ordering::Acquire)
    }

    /// Stops sending writes, or continues. After a stop no write is in flight, as if the guest were paused.
    ///
    /// # Errors
    /// QEMU does not finish the writes in flight.
    pub(super) fn rest(&self, rests: bool) -> Result<()> {
        let shared = &self.shared;
        shared.is_resting.store(false, Ordering::Release);
        shared.rests.store(rests, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        let in_flight = || {
            let done = self.acknowledged() + shared.refused.load(Ordering::Acquire);
            shared.sent.load(Ordering::Acquire) - done
        };
        while rests && !(shared.is_resting.load(Ordering::Acquire) && in_flight() == 0) {
            if Instant::now() > until {
                return Err(AgentError::Silent("QEMU does not finish its writes".into()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the writes: waits for those in flight, and flushes.
    ///
    /// # Errors
    /// QEMU has refused writes, which is a fault.
    pub(super) fn end(self) -> Result<RoundWrites> {
        self.shared.ends.store(true, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        while !self.receiver.is_finished() && Instant::now() < until {
            std::thread::sleep(10 * PAUSE);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.sender.join();
        let _ = self.receiver.join();
        let mut written = self.shared.written();
        match self.shared.refused.load(Ordering::Acquire) {
            0 => Ok(std::mem::take(&mut *written)),
            n => Err(AgentError::Refused(format!("QEMU refused {n} writes"))),
        }
    }
}

impl WriterState {
    fn written(&self) -> std::sync::MutexGuard<'_, RoundWrites> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends writes. Each request occupies a slot of `begun` until it is complete.
    fn send(
        &self,
        out: &mut UnixStream,
        round: u64,
        flags: RequestFlags,
        begun: &SyncSender<()>,
    ) -> io::Result<()> {
        let gone = |_| io::Error::from(ErrorKind::BrokenPipe);
        for n in 0..BLOCKS / 2 {
            while self.rests.load(Ordering::Acquire) && !self.ends.load(Ordering::Acquire) {
                self.is_resting.store(true, Ordering::Release);
                std::thread::sleep(PAUSE);
            }
            if self.ends.load(Ordering::Acquire) {
                break;
            }
            let block = hole(round, n);
            begun.send(()).map_err(gone)?;
            self.sent.fetch_add(1, Ordering::AcqRel);
            self.written().sent[block as usize] = true;
            let header = RequestHeader {
                flags,
                command: Command::Write,
                cookie: block.into(),
                offset: u64::from(block) * BLOCK as u64,
                length: BLOCK as u32,
            };
            out.write_all(&[&encode_request(&header)[..], &content(round, block)].concat())?;
            std::thread::sleep(PAUSE);
        }
        while !self.ends.load(Ordering::Acquire) {
            self.is_resting.store(true, Ordering::Release);
            std::thread::sleep(PAUSE);
        }
        begun.send(()).map_err(gone)?;
        let flush = RequestHeader {
            flags: RequestFlags(0),
            command: Command::Flush,
            cookie: u64::MAX,
            offset: 0,
            length: 0,
        };
        out.write_all(&encode_request(&flush))
    }

    /// Reads replies until that of the flush or the end of the connection.
    fn receive(&self, input: &mut UnixStream, over: &Receiver<()>) {
        loop {
            let mut reply = [0; SIMPLE_REPLY_BYTES];
            if input.read_exact(&mut reply).is_err() {
                return;
            }
            let [.., c0, c1, c2, c3, c4, c5, c6, c7] = reply;
            let cookie = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
            let is_done = reply == simple_reply(cookie, None);
            if !is_done {
                self.refused.fetch_add(1, Ordering::AcqRel);
            }
            let _ = over.recv();
            match usize::try_from(cookie) {
                Ok(block) if block < BLOCKS as usize && is_done => {
                    self.written().acknowledged[block] = true;
                    self.acknowledged.fetch_add(1, Ordering::AcqRel);
                }
                Ok(block) if block < BLOCKS as usize => {}
                _ => return,
            }
        }
    }
}

fn shake_hands(stream: &mut UnixStream, export: &str) -> io::Result<()> {
    let mut handshake = ClientHandshake::new(export, ClientWishes::default());
    loop {
        let mut input = [0; 4096];
        let n = stream.read(&mut input)?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut out = vec![];
        let step = handshake.step(&input[..n], &mut out);
        let (_, progress) = step.map_err(io::Error::other)?;
        stream.write_all(&out)?;
        match progress {
            ClientProgress::Ready(_) => return Ok(()),
            ClientProgress::More => {}
            ClientProgress::StartTls => return Err(io::Error::other("the server requires TLS")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_are_distinct_and_outside_the_base_image() {
        let holes: BTreeSet<u32> = (0..BLOCKS / 2).map(|n| hole(7, n)).collect();
        assert_eq!(holes.len() as u32, BLOCKS / 2);
        assert!(holes.iter().all(|b| !is_base(*b) && *b < BLOCKS));
    }

    #[test]
    fn image_is_checked_block_by_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("raw");
        let file = File::create_new(&path).unwrap();
        write_base(&file).unwrap();
        let put = |block: u32, bytes: &[u8; BLOCK]| {
            file.write_all_at(bytes, u64::from(block) * BLOCK as u64)
                .unwrap();
        };
        let mut written = RoundWrites::new(3);
        assert_eq!(written.lost_in(&path).unwrap(), 0);
        written.sent[1] = true;
        written.sent[3] = true;
        written.acknowledged[1] = true;
        // An acknowledged write that is missing counts as lost; one that was only sent does not.
        assert_eq!(written.lost_in(&path).unwrap(), 1);
        put(1, &content(3, 1));
        put(3, &content(3, 3));
        assert_eq!((written.lost_in(&path).unwrap(), written.count()), (0, 1));
        // Content of another block, of an old round, of a block that was not sent, and a changed base block.
        put(1, &content(3, 5));
        put(3, &content(2, 3));
        put(7, &content(3, 7));
        put(8, &[0; BLOCK]);
        assert_eq!(written.lost_in(&path).unwrap(), 4);
        file.set_len(8 * BLOCK as u64).unwrap();
        let base = u64::from(BLOCKS / 2 - 4);
        assert_eq!(written.lost_in(&path).unwrap(), 3 + base);
    }
}
