//! Crowds of NBD connections for `bench/stress.sh`. Every connection must make progress in every second.
//!
//! Each request in flight has its own block of 4 KiB. It writes the block, reads it back, compares, and starts again with other content. One
//! thread serves all connections and leaves the other processors to the server.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nbd::{Command, RequestFlags, RequestHeader, encode_request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::nbd_client::{BLOCK, REPLY, shake_hands};
use crate::{BenchResult, WRONG};

/// Request in flight and its block.
struct Slot {
    /// Content of the block: this number, repeated.
    content: u64,
    reads: bool,
}

struct Connection {
    socket: UnixStream,
    first_block: u64,
    slots: Vec<Slot>,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Replies in the current second.
    recent: u64,
    total: u64,
}

impl Connection {
    fn request(&mut self, slot: usize) {
        let Slot { content, reads } = self.slots[slot];
        let header = RequestHeader {
            flags: RequestFlags(0),
            command: if reads { Command::Read } else { Command::Write },
            cookie: slot as u64,
            offset: (self.first_block + slot as u64) * BLOCK as u64,
            length: BLOCK as u32,
        };
        self.out.extend(encode_request(&header));
        if !reads {
            self.out.extend(content.to_le_bytes().repeat(BLOCK / 8));
        }
    }

    /// Writes as much as the socket takes.
    fn send(&mut self) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.socket.write(&self.out[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        self.out.drain(..sent);
        Ok(())
    }

    /// Receives replies and answers each with the slot's next request.
    fn receive(&mut self) -> BenchResult {
        let mut bytes = [0; 64 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(n) => self.input.extend(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let mut at = 0;
        while let Some(header) = self.input.get(at..at + REPLY) {
            if header[..8] != [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0] {
                return Err(format!("a reply begins with {:02x?}", &header[..8]).into());
            }
            let slot = u64::from_be_bytes(header[8..].try_into()?) as usize;
            let Slot { content, reads } = self.slots[slot];
            let end = at + REPLY + if reads { BLOCK } else { 0 };
            let Some(data) = self.input.get(at + REPLY..end) else {
                break;
            };
            if data.chunks(8).any(|c| c != content.to_le_bytes()) {
                let block = self.first_block + slot as u64;
                return Err(format!("block {block} does not have the content {content}").into());
            }
            at = end;
            let content = if reads { content + 1 } else { content };
            self.slots[slot] = Slot {
                content,
                reads: !reads,
            };
            self.recent += 1;
            self.request(slot);
        }
        self.input.drain(..at);
        Ok(())
    }
}

/// Runs the measurement. Arguments: `SOCKET EXPORT CONNECTIONS DEPTH SECONDS`.
pub fn main(words: &[String]) -> BenchResult {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [socket, export, connections, depth, seconds] = words[..] else {
        return Err(WRONG.into());
    };
    let (count, depth): (u64, u64) = (connections.parse()?, depth.parse()?);
    let seconds: u64 = seconds.parse()?;
    let mut all = vec![];
    for index in 0..count {
        let mut socket = UnixStream::connect(socket)?;
        let bytes = shake_hands(&mut socket, export)?;
        if bytes < count * depth * BLOCK as u64 {
            return Err(format!("{bytes} bytes are too few for {} blocks", count * depth).into());
        }
        socket.set_nonblocking(true)?;
        let first_block = index * depth;
        let slots = (0..depth).map(|slot| Slot {
            content: (first_block + slot) << 32,
            reads: false,
        });
        all.push(Connection {
            socket,
            first_block,
            slots: slots.collect(),
            out: vec![],
            input: vec![],
            recent: 0,
            total: 0,
        });
    }
    for connection in &mut all {
        (0..depth as usize).for_each(|slot| connection.request(slot));
        connection.send()?;
    }
    println!("{count} connections, {depth} requests in flight on each, {seconds} s");
    run(&mut all, seconds)
}

fn run(all: &mut [Connection], seconds: u64) -> BenchResult {
    let begun = Instant::now();
    let mut stalls = 0u64;
    let (mut slowest, mut in_a_minute) = (u64::MAX, 0u64);
    for second in 1..=seconds {
        serve_until(all, begun + Duration::from_secs(second))?;
        let without = all.iter().filter(|c| c.recent == 0).count();
        stalls += without as u64;
        if without > 0 {
            println!("second {second}: {without} connections without progress");
        }
        for connection in all.iter_mut() {
            slowest = slowest.min(connection.recent);
            in_a_minute += connection.recent;
            connection.total += std::mem::take(&mut connection.recent);
        }
        if second % 60 == 0 || second == seconds {
            println!(
                "second {second}: {in_a_minute} replies since the last line, at least {slowest} a second on every connection"
            );
            (slowest, in_a_minute) = (u64::MAX, 0);
        }
    }
    let total: u64 = all.iter().map(|c| c.total).sum();
    let least = all.iter().map(|c| c.total).min().unwrap_or(0);
    let most = all.iter().map(|c| c.total).max().unwrap_or(0);
    println!("{total} replies, every content as written; {least} to {most} on each connection");
    match stalls {
        0 => Ok(()),
        n => Err(format!("{n} times a connection made no progress for a second").into()),
    }
}

fn serve_until(all: &mut [Connection], until: Instant) -> BenchResult {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let ready: Vec<usize> = {
            let mut fds: Vec<PollFd<'_>> = all
                .iter()
                .map(|c| match c.out.is_empty() {
                    true => PollFd::new(&c.socket, PollFlags::IN),
                    false => PollFd::new(&c.socket, PollFlags::IN | PollFlags::OUT),
                })
                .collect();
            let wait = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            poll(&mut fds, Some(&wait))?;
            let ready = fds.iter().enumerate();
            ready
                .filter(|(_, fd)| !fd.revents().is_empty())
                .map(|(i, _)| i)
                .collect()
        };
        for index in ready {
            let connection = &mut all[index];
            connection.receive()?;
            connection.send()?;
        }
    }
}
