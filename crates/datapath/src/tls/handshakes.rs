//! Where clients come from other hosts: nobody is let in who has not proved who it is.
//!
//! ```text
//!   accept ──▶ waiting (bounded, by peer) ──▶ a thread: greeting, STARTTLS, TLS ──▶ worker
//!                  │                             │
//!                  └───── too many ──▶ closed ◀──┘ no proof, or not in time
//! ```
//!
//! Whoever can reach the address may connect, so this is what strangers may use: so many threads, so many sockets, so much time. None of it is taken
//! from the connections that guests may have: those are counted when they have proved who they are. What one peer may use leaves room for others;
//! who has many addresses can still keep others from coming in, and disturbs nobody who is.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nbd::{HandshakeLimits, Progress, ServerHandshake};
use tracing::warn;

use super::{Channel, ServerTls};
use crate::registry::Registry;
use crate::server::{seldom, widen};
use crate::worker::{Inbox, Message};

/// Handshakes at the same time. Protects guests' share of the processors: each computes for a millisecond or so, and may wait for its peer.
const SHAKING_MAX: usize = 16;
/// Of one peer. Protects other peers.
const SHAKING_OF_ONE_MAX: usize = 8;
/// Sockets that wait for their turn. Protects descriptors; more are closed at once.
const WAITING_MAX: usize = 128;
/// Of one peer. Protects other peers.
const WAITING_OF_ONE_MAX: usize = 64;
/// Descriptors that clients may hold who have not proved who they are.
pub(crate) const OPEN_MAX: usize = SHAKING_MAX + WAITING_MAX;

/// From accepting a client until it has proved who it is, all in all. Protects the above from clients that only connect, or dawdle.
const PROOF_TIME: Duration = Duration::from_secs(10);

/// How little of a processor that somebody else wants such a thread takes.
const NICE: i32 = 19;

/// A client's host that says nothing for so long is asked whether it is there, and is gone if it does not answer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Whose a connection is. Addresses of IPv6 are handed out by networks of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Peer(IpAddr);

impl Peer {
    fn of(address: &SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }
}

struct Waiting {
    socket: TcpStream,
    address: SocketAddr,
    until: Instant,
}

/// Who waits for a handshake, or is in one.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Handshakes by peer; none is zero.
    shaking: BTreeMap<Peer, usize>,
    threads: usize,
}

impl Queue {
    fn waiting_of(&self, peer: Peer) -> usize {
        let of = |w: &&Waiting| Peer::of(&w.address) == peer;
        self.waiting.iter().filter(of).count()
    }

    /// Who is next: of those whose peer has not too many handshakes, the first. Who has waited too long is gone.
    fn next(&mut self, now: Instant) -> Option<Waiting> {
        self.waiting.retain(|w| w.until > now);
        let free = |w: &Waiting| {
            let shaking = self.shaking.get(&Peer::of(&w.address));
            shaking.is_none_or(|n| *n < SHAKING_OF_ONE_MAX)
        };
        let at = self.waiting.iter().position(free)?;
        let next = self.waiting.remove(at)?;
        *self.shaking.entry(Peer::of(&next.address)).or_default() += 1;
        Some(next)
    }

    fn over(&mut self, peer: Peer) {
        if let Some(n) = self.shaking.get_mut(&peer) {
            *n -= 1;
            if *n == 0 {
                self.shaking.remove(&peer);
            }
        }
    }
}

/// Where a connection goes after its handshake.
pub(crate) struct AfterHandshake {
    pub(crate) workers: Vec<Inbox>,
    pub(crate) registry: Arc<Registry>,
    /// Connections of guests, and how many there may be.
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) most: usize,
    /// The worker that gets the next one.
    pub(crate) next: Arc<AtomicUsize>,
}

/// The handshakes of one address.
pub(crate) struct Handshakes {
    tls: Arc<ServerTls>,
    after: AfterHandshake,
    queue: Mutex<Queue>,
    /// There is nothing behind it any more.
    over: AtomicBool,
    said: Mutex<Option<Instant>>,
}

impl Handshakes {
    pub(crate) fn new(tls: Arc<ServerTls>, after: AfterHandshake) -> Arc<Self> {
        Arc::new(Self {
            tls,
            after,
            queue: Mutex::default(),
            over: AtomicBool::new(false),
            said: Mutex::default(),
        })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What strangers can cause as often as they like is said seldom.
    fn say(&self, peer: &SocketAddr, why: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if seldom(&mut said) {
            warn!(%peer, why, "rejected a connection: the client was not authenticated");
        }
    }

    /// Somebody has connected.
    pub(crate) fn accept(
        self: &Arc<Self>,
        socket: TcpStream,
        address: SocketAddr,
    ) -> ControlFlow<()> {
        if self.over.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if prepare(&socket).is_ok() {
            self.queue_up(socket, address);
        }
        ControlFlow::Continue(())
    }

    fn queue_up(self: &Arc<Self>, socket: TcpStream, address: SocketAddr) {
        let now = Instant::now();
        let mut queue = self.queue();
        queue.waiting.retain(|w| w.until > now);
        if queue.waiting.len() >= WAITING_MAX
            || queue.waiting_of(Peer::of(&address)) >= WAITING_OF_ONE_MAX
        {
            drop(queue);
            return self.say(
                &address,
                "too many connections are waiting for authentication",
            );
        }
        queue.waiting.push_back(Waiting {
            socket,
            address,
            until: now + PROOF_TIME,
        });
        if queue.threads >= SHAKING_MAX {
            return; // one of them takes it
        }
        queue.threads += 1;
        drop(queue);
        let handshakes = self.clone();
        let thread = std::thread::Builder::new().name("terrace-tls".into());
        if thread.spawn(move || handshakes.work()).is_err() {
            self.queue().threads -= 1;
        }
    }

    /// Lets in whoever is next, until nobody is.
    fn work(&self) {
        // Guests come first, however many knock.
        let _ = rustix::process::nice(NICE);
        loop {
            let mut queue = self.queue();
            let Some(next) = queue.next(Instant::now()) else {
                queue.threads -= 1;
                return;
            };
            drop(queue);
            let address = next.address;
            let ended = Ended(self, Peer::of(&address));
            if let Err(why) = self.let_in(next) {
                self.say(&address, &why);
            }
            drop(ended);
        }
    }

    fn let_in(&self, waiting: Waiting) -> Result<(), String> {
        let socket = waiting.socket;
        let mut timed = Timed {
            socket: &socket,
            until: waiting.until,
        };
        let proved = prove(&mut timed, &self.tls, &self.after.registry);
        let (handshake, tls) = proved.inspect_err(|_| {
            let _ = socket.shutdown(Shutdown::Write); // what was said last arrives
        })?;
        let after = &self.after;
        if after.open.fetch_add(1, Ordering::AcqRel) >= after.most {
            after.open.fetch_sub(1, Ordering::AcqRel);
            return Err("too many open connections".into());
        }
        let ready = socket
            .set_read_timeout(None)
            .and_then(|()| socket.set_write_timeout(None));
        let worker = Inbox::in_turn(&after.workers, &after.next);
        let socket = socket.into();
        widen(&socket);
        let message = Message::Secured {
            socket,
            handshake: Box::new(handshake),
            tls: Box::new(tls),
        };
        if ready.is_err() {
            after.open.fetch_sub(1, Ordering::AcqRel);
        } else if !worker.send(message) {
            after.open.fetch_sub(1, Ordering::AcqRel);
            self.over.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A handshake is over, however it ended.
struct Ended<'a>(&'a Handshakes, Peer);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.over(self.1);
        if std::thread::panicking() {
            queue.threads -= 1;
        }
    }
}

/// Makes a socket ready that was accepted.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    rustix::net::sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    Ok(())
}

/// A socket that waits for its peer until a time, however often it is asked.
struct Timed<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(to)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a client through what is in the clear, and through the handshake of TLS.
pub(crate) fn prove(
    peer: &mut (impl Read + Write),
    tls: &ServerTls,
    registry: &Registry,
) -> Result<(ServerHandshake, Channel), String> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "the client did not finish the handshake in time".to_owned()
        }
        _ => error.to_string(),
    };
    let mut handshake = ServerHandshake::requiring_tls(HandshakeLimits::default());
    peer.write_all(&handshake.greeting()).map_err(gone)?;
    let (mut input, mut out) = ([0; 4096], vec![]);
    loop {
        let n = match peer.read(&mut input).map_err(gone)? {
            0 => return Err("the client closed the connection before TLS".into()),
            n => n,
        };
        let step = handshake.step(&input[..n], registry, &mut out);
        let sent = peer.write_all(&out);
        let progress = step.map_err(|e| e.to_string())?.1;
        sent.map_err(gone)?;
        out.clear();
        match progress {
            Progress::More => {}
            Progress::StartTls => break,
            Progress::Closed => {
                return Err("TLS is required and the client did not request it".into());
            }
            Progress::Ready(_) => unreachable!("nothing is granted before TLS"),
        }
    }
    handshake.secured();
    let mut channel = tls.begin().map_err(|e| crate::text::explain(&e))?;
    loop {
        let shaken = channel.shake();
        while !channel.unsent().is_empty() {
            match peer.write(channel.unsent()).map_err(gone) {
                Ok(n) => channel.sent(n),
                // Why it failed is more than that it cannot be told.
                Err(why) => return Err(shaken.err().map_or(why, |e| e.to_string())),
            }
        }
        if shaken.map_err(|e| e.to_string())? {
            return Ok((handshake, channel));
        }
        let received = channel.receive(|room| peer.read(room)).map_err(gone)?;
        if received == 0 {
            return Err("the client closed the connection during the TLS handshake".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who knocks from here, at this time.
    fn from(address: &str, at: Instant, socket: &TcpStream) -> Waiting {
        Waiting {
            socket: socket.try_clone().unwrap(),
            address: address.parse().unwrap(),
            until: at + PROOF_TIME,
        }
    }

    #[test]
    fn a_peer_leaves_turns_for_others_and_nobody_waits_for_ever() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut queue, now) = (Queue::default(), Instant::now());
        let many = [
            "[2001:db8::1]:1",
            "[2001:db8::2:2]:2",
            "[::ffff:10.0.0.1]:3",
        ];
        for n in 0..60 {
            let address = many[n % 2];
            queue.waiting.push_back(from(address, now, &socket));
        }
        queue.waiting.push_back(from(many[2], now, &socket));
        queue.waiting.push_back(from("10.0.0.1:4", now, &socket));
        // One network of IPv6 is one peer, and so is one address of IPv4 however it is written.
        assert_eq!(queue.waiting_of(Peer::of(&many[0].parse().unwrap())), 60);
        assert_eq!(queue.waiting_of(Peer::of(&many[2].parse().unwrap())), 2);
        let next = |queue: &mut Queue, at| queue.next(at).map(|w| w.address.port());
        for n in 0..SHAKING_OF_ONE_MAX {
            assert_eq!(next(&mut queue, now), Some(n as u16 % 2 + 1));
        }
        assert_eq!(next(&mut queue, now), Some(3), "others pass by");
        assert_eq!(next(&mut queue, now), Some(4));
        assert_eq!(next(&mut queue, now), None, "all wait for their own");
        queue.over(Peer::of(&many[1].parse().unwrap()));
        assert_eq!(next(&mut queue, now), Some(1));
        for _ in 0..SHAKING_OF_ONE_MAX {
            queue.over(Peer::of(&many[0].parse().unwrap()));
        }
        assert_eq!(
            next(&mut queue, now + PROOF_TIME),
            None,
            "they have waited too long"
        );
        assert!(queue.waiting.is_empty());
    }
}
