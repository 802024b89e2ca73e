//! Client of an NBD server that keeps a given number of requests in flight, for `bench/vhost_user.sh`. It sends random requests of 4 KiB
//! over one unix socket, as `vhost-client` does. It uses simple replies, which are the shortest.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use algo::Rng;
use nbd::{
    ClientHandshake, ClientProgress, ClientWishes, Command, RequestFlags, RequestHeader,
    encode_request,
};

use crate::vhost_client::tell;
use crate::{BenchResult, WRONG};

pub(crate) const BLOCK: usize = 4096;

/// Length of the header of a simple reply, bytes.
pub(crate) const REPLY: usize = 16;

/// Runs the client. Arguments: `SOCKET EXPORT read|write DEPTH SECONDS sleep|spin`.
pub fn main(words: &[String]) -> BenchResult {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [socket, export, op, depth, seconds, wait] = words[..] else {
        return Err(WRONG.into());
    };
    let command = match op {
        "read" => Command::Read,
        "write" => Command::Write,
        _ => return Err(WRONG.into()),
    };
    let spins = match wait {
        "sleep" => false,
        "spin" => true,
        _ => return Err(WRONG.into()),
    };
    let mut socket = UnixStream::connect(socket)?;
    let bytes = shake_hands(&mut socket, export)?;
    socket.set_nonblocking(spins)?;
    let guest = Guest {
        socket,
        spins,
        command,
        random: Rng::new(1, 1),
        blocks: bytes / BLOCK as u64,
        out: vec![],
    };
    guest.run(depth.parse()?, Duration::from_secs_f64(seconds.parse()?))
}

/// Negotiates with the server. Returns the size of the export in bytes.
pub(crate) fn shake_hands(
    socket: &mut UnixStream,
    export: &str,
) -> Result<u64, Box<dyn std::error::Error>> {
    let wishes = ClientWishes {
        structured: false,
        allocation: false,
    };
    let mut handshake = ClientHandshake::new(export, wishes);
    let mut input = [0; 4096];
    loop {
        let n = socket.read(&mut input)?;
        if n == 0 {
            return Err("the server has closed the connection".into());
        }
        let mut out = vec![];
        let (_, progress) = handshake.step(&input[..n], &mut out)?;
        socket.write_all(&out)?;
        if let ClientProgress::Ready(session) = progress {
            return Ok(session.export.size);
        }
    }
}

struct Guest {
    socket: UnixStream,
    spins: bool,
    command: Command,
    random: Rng,
    blocks: u64,
    out: Vec<u8>,
}

impl Guest {
    fn hand_in(&mut self) {
        let header = RequestHeader {
            flags: RequestFlags(0),
            command: self.command,
            cookie: 0,
            offset: self.random.below(self.blocks) * BLOCK as u64,
            length: BLOCK as u32,
        };
        self.out.extend(encode_request(&header));
        if self.command == Command::Write {
            self.out.extend([0x5a; BLOCK]);
        }
    }

    fn send(&mut self) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.socket.write(&self.out[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        Ok(())
    }

    fn run(mut self, depth: u32, time: Duration) -> BenchResult {
        let reply = match self.command {
            Command::Read => REPLY + BLOCK,
            _ => REPLY,
        };
        let mut input = vec![0; 64 << 10];
        let mut have = 0;
        let begun = Instant::now();
        let until = begun + time;
        (0..depth).for_each(|_| self.hand_in());
        self.send()?;
        let (mut done, mut in_flight, mut over) = (0u64, depth, false);
        while in_flight > 0 {
            match self.socket.read(&mut input[have..]) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Ok(n) => have += n,
                Err(e) if self.spins && e.kind() == ErrorKind::WouldBlock => {
                    std::hint::spin_loop();
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
            let answered = have / reply;
            for answer in input.chunks_exact(reply).take(answered) {
                if answer[..8] != [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0] {
                    return Err(format!("the reply begins with {:?}", &answer[..8]).into());
                }
                if !over {
                    self.hand_in();
                }
            }
            input.copy_within(answered * reply..have, 0);
            have -= answered * reply;
            done += answered as u64;
            if over {
                in_flight -= answered as u32;
            }
            if answered > 0 {
                self.send()?;
                over |= Instant::now() >= until;
            }
        }
        tell(done, begun.elapsed(), depth);
        Ok(())
    }
}
