//! Messages between the two processes. They use a connection to the control socket that begins like any other. A
//! message has a tag, a length and bytes; open files are passed separately (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Version of the protocol. A server with another version refuses to hand over and continues to serve.
pub const FORMAT: u32 = 1;

/// Most open files in one message; the kernel's limit is 253.
const FILES_MAX: usize = 250;

/// Longest message of the old process: places of its volumes' extents. Protects memory from invalid lengths.
pub const BYTES_MAX: u64 = 4 << 30;

/// Longest configuration of the new process, with names of volumes.
pub const WISHES_MAX: u64 = 16 << 20;

/// Longest other message of the new process: the reason of an abort.
pub const WORDS_MAX: u64 = 64 << 10;

/// Size of one write. The kernel's time limit restarts for each piece of about this size.
const AT_ONCE: usize = 32 << 10;

/// Type of a message and its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// New process: preparations are complete.
    Begin = b'B',
    /// Old process: state as JSON.
    State = b'S',
    /// Old process: bytes that belong to the state.
    Bytes = b'D',
    /// New process: the state is understood and all files have arrived.
    Ready = b'R',
    /// Old process: the map is closed, the new process may open it.
    Go = b'G',
    /// New process: the map records it as the owner of the array.
    Taken = b'T',
    /// Either process: abort, with the reason. The sender has closed its files.
    No = b'N',
}

impl Tag {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Tag::Begin,
            Tag::State,
            Tag::Bytes,
            Tag::Ready,
            Tag::Go,
            Tag::Taken,
            Tag::No,
        ];
        all.into_iter().find(|t| *t as u8 == byte)
    }
}

/// Sends a message within a time limit.
pub fn say(socket: &mut UnixStream, tag: Tag, bytes: &[u8], time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    let mut head = [0; 9];
    head[0] = tag as u8;
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    write_until(socket, &head, until)?;
    write_until(socket, bytes, until)
}

/// Receives a message of at most `most` bytes within a time limit.
///
/// # Errors
/// The time is over, the message is invalid, or the other process has ended.
pub fn hear(socket: &mut UnixStream, time: Duration, most: u64) -> io::Result<(Tag, Vec<u8>)> {
    let until = Instant::now() + time;
    let mut head = [0; 9];
    read_until(socket, &mut head, until)?;
    let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
    let tag = Tag::of(head[0]).filter(|_| length <= most);
    let tag = tag.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut bytes = vec![0; length as usize];
    read_until(socket, &mut bytes, until)?;
    Ok((tag, bytes))
}

fn write_until(socket: &mut UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_write_timeout(Some(left))?;
        match socket.write(&bytes[..bytes.len().min(AT_ONCE)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn read_until(socket: &mut UnixStream, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Passes open files to the other process.
pub fn give_files(socket: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    for some in files.chunks(FILES_MAX) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(
            beside.push(SendAncillaryMessage::ScmRights(some)),
            "there is room for all of them"
        );
        // File descriptors must accompany at least one byte.
        let sent = sendmsg(
            socket,
            &[IoSlice::new(b"F")],
            &mut beside,
            SendFlags::NOSIGNAL,
        )?;
        if sent != 1 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Receives `count` open files.
///
/// # Errors
/// Fewer files arrive, also if this process has reached its descriptor limit.
pub fn take_files(socket: &UnixStream, count: usize, time: Duration) -> io::Result<Vec<OwnedFd>> {
    socket.set_read_timeout(Some(time))?;
    let mut files = vec![];
    while files.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut beside,
            flags,
        )?;
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = files.len();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        let none = files.len() == before || got.flags.contains(ReturnFlags::CTRUNC);
        if none || files.len() > count {
            let why = "received fewer open files than the old server sent: raise the limit of open files of this process";
            return Err(io::Error::other(why));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn messages_and_files_arrive_in_order() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(77).unwrap();
        let all = vec![file.as_fd(); 600];
        let listener = std::thread::spawn(move || {
            let first = hear(&mut other, SOON, BYTES_MAX).unwrap();
            let files = take_files(&other, 600, SOON).unwrap();
            let last = hear(&mut other, SOON, BYTES_MAX).unwrap();
            let end = hear(&mut other, SOON, WORDS_MAX).unwrap_err().kind();
            (first, files, last, end)
        });
        say(&mut one, Tag::State, &vec![7; 1 << 20], SOON).unwrap();
        give_files(&one, &all).unwrap();
        say(&mut one, Tag::Go, &[], SOON).unwrap();
        drop(one);
        let (first, files, last, end) = listener.join().unwrap();
        assert_eq!(first, (Tag::State, vec![7; 1 << 20]));
        assert_eq!(files.len(), 600);
        for file in files {
            assert_eq!(File::from(file).metadata().unwrap().len(), 77);
        }
        assert_eq!(
            (last, end),
            ((Tag::Go, vec![]), io::ErrorKind::UnexpectedEof)
        );
    }

    #[test]
    fn invalid_messages_and_timeouts_are_errors() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(&[b'?', 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let heard = hear(&mut other, SOON, WORDS_MAX).unwrap_err();
        assert_eq!(heard.kind(), io::ErrorKind::InvalidData);
        say(&mut one, Tag::No, &vec![0; 1 + WORDS_MAX as usize], SOON).unwrap();
        let heard = hear(&mut other, SOON, WORDS_MAX).unwrap_err();
        assert_eq!(heard.kind(), io::ErrorKind::InvalidData);
        let (_one, mut other) = UnixStream::pair().unwrap();
        let heard = hear(&mut other, Duration::from_millis(20), WORDS_MAX).unwrap_err();
        assert_eq!(heard.kind(), io::ErrorKind::TimedOut);
    }
    #[test]
    fn send_to_a_slow_reader_ends_at_its_time_limit() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while matches!(other.read(&mut bytes), Ok(n) if n > 0) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // The reader accepts some bytes within each time limit. All bytes would take it a minute.
        let time = Duration::from_millis(200);
        let said = say(&mut one, Tag::Bytes, &vec![0; 64 << 20], time).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::TimedOut);
        drop(one);
        reader.join().unwrap();
    }
}
