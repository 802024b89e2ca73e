//! Authentication of clients from other hosts. Unauthenticated clients are not admitted.
//!
//! ```text
//!   accept ──▶ waiting (bounded, by peer) ──▶ a thread: greeting, STARTTLS, TLS ──▶ worker
//!                  │                             │
//!                  └───── too many ──▶ closed ◀──┘ authentication failed or timed out
//! ```
//!
//! Any host that reaches the address can connect. This file limits the threads, sockets and time of unauthenticated
//! clients. None of these is taken from the limits of guests' connections, which count only authenticated clients.
//! The limits per peer leave room for others. An attacker with many addresses can still keep new clients out, but
//! does not disturb admitted ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nbd::{HandshakeLimits, Progress, ServerHandshake};
use tracing::warn;

use super::{Channel, ServerTls};
use crate::error::DatapathError;
use crate::registry::Registry;
use crate::server::{seldom, widen};
use crate::worker::{Inbox, Message};

/// Limit of simultaneous handshakes. Protects guests' share of the processors: each handshake computes for about a
/// millisecond and may wait for its peer.
const SHAKING_MAX: usize = 16;
/// The same limit for one peer. Protects other peers.
const SHAKING_OF_ONE_MAX: usize = 8;
/// Limit of sockets that wait for a handshake; more are closed at once. Protects descriptors.
const WAITING_MAX: usize = 128;
/// The same limit for one peer. Protects other peers.
const WAITING_OF_ONE_MAX: usize = 64;
/// Limit of descriptors of unauthenticated clients.
pub(crate) const OPEN_MAX: usize = SHAKING_MAX + WAITING_MAX;

/// Time limit from the accept of a client to its authentication. Protects the limits above from clients that only
/// connect or respond slowly.
const PROOF_TIME: Duration = Duration::from_secs(10);

/// Nice value of handshake threads, which leaves the processor to other threads.
const NICE: i32 = 19;

/// Idle time after which a client's host is probed by TCP keepalive. The connection ends if the host does not
/// respond.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Peer that limits apply to: an address of IPv4, or a network of 64 bits of IPv6, which is the unit of assignment.
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

struct PendingHandshake {
    socket: TcpStream,
    address: SocketAddr,
    until: Instant,
}

/// Clients that wait for a handshake, and running handshakes.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<PendingHandshake>,
    /// Number of running handshakes by peer, without zeroes.
    shaking: BTreeMap<Peer, usize>,
    threads: usize,
}

impl Queue {
    fn waiting_of(&self, peer: Peer) -> usize {
        let of = |w: &&PendingHandshake| Peer::of(&w.address) == peer;
        self.waiting.iter().filter(of).count()
    }

    /// Returns the first waiting client whose peer is below its limit of handshakes. Drops clients that have waited
    /// too long.
    fn next(&mut self, now: Instant) -> Option<PendingHandshake> {
        self.waiting.retain(|w| w.until > now);
        let free = |w: &PendingHandshake| {
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

/// Destination of connections after their handshake.
pub(crate) struct AfterHandshake {
    pub(crate) workers: Vec<Inbox>,
    pub(crate) registry: Arc<Registry>,
    /// Number of guests' connections; `most` is its limit.
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) most: usize,
    /// Counter that selects the worker of the next connection.
    pub(crate) next: Arc<AtomicUsize>,
}

/// Handshakes of one listening address.
pub(crate) struct Handshakes {
    tls: Arc<ServerTls>,
    after: AfterHandshake,
    queue: Mutex<Queue>,
    /// True once the workers have ended.
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

    /// Logs a rejection. The rate is limited, because unauthenticated clients can cause any number of them.
    fn say(&self, peer: &SocketAddr, why: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if seldom(&mut said) {
            warn!(%peer, why, "rejected a connection: the client was not authenticated");
        }
    }

    /// Queues a new connection.
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
        queue.waiting.push_back(PendingHandshake {
            socket,
            address,
            until: now + PROOF_TIME,
        });
        if queue.threads >= SHAKING_MAX {
            return; // a running thread takes it
        }
        queue.threads += 1;
        drop(queue);
        let handshakes = self.clone();
        let thread = std::thread::Builder::new().name("terrace-tls".into());
        if thread.spawn(move || handshakes.work()).is_err() {
            self.queue().threads -= 1;
        }
    }

    /// Runs handshakes until no client waits.
    fn work(&self) {
        // Guests have priority over any number of handshakes.
        let _ = rustix::process::nice(NICE);
        loop {
            let mut queue = self.queue();
            let Some(next) = queue.next(Instant::now()) else {
                queue.threads -= 1;
                return;
            };
            drop(queue);
            let address = next.address;
            let ended = HandshakeGuard(self, Peer::of(&address));
            if let Err(why) = self.let_in(next) {
                self.say(&address, &why.to_string());
            }
            drop(ended);
        }
    }

    fn let_in(&self, waiting: PendingHandshake) -> Result<(), DatapathError> {
        let socket = waiting.socket;
        let mut timed = TimedSocket {
            socket: &socket,
            until: waiting.until,
        };
        let proved = prove(&mut timed, &self.tls, &self.after.registry);
        let (handshake, tls) = proved.inspect_err(|_| {
            let _ = socket.shutdown(Shutdown::Write); // lets the last message arrive
        })?;
        let after = &self.after;
        if after.open.fetch_add(1, Ordering::AcqRel) >= after.most {
            after.open.fetch_sub(1, Ordering::AcqRel);
            return Err(DatapathError::Refused("too many open connections".into()));
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

/// Ends a handshake when it is dropped, with any result.
struct HandshakeGuard<'a>(&'a Handshakes, Peer);

impl Drop for HandshakeGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.over(self.1);
        if std::thread::panicking() {
            queue.threads -= 1;
        }
    }
}

/// Sets the options of an accepted socket.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    rustix::net::sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    Ok(())
}

/// Socket with one time limit for all reads and writes together.
struct TimedSocket<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl TimedSocket<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(to)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the plaintext part of the negotiation and the TLS handshake with a client.
pub(crate) fn prove(
    peer: &mut (impl Read + Write),
    tls: &ServerTls,
    registry: &Registry,
) -> Result<(ServerHandshake, Channel), DatapathError> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            DatapathError::Late("the client did not finish the handshake in time".into())
        }
        _ => DatapathError::failed(error),
    };
    let peer_failed = |why: &dyn Display| DatapathError::Peer(why.to_string());
    let mut handshake = ServerHandshake::requiring_tls(HandshakeLimits::default());
    peer.write_all(&handshake.greeting()).map_err(gone)?;
    let (mut input, mut out) = ([0; 4096], vec![]);
    loop {
        let n = match peer.read(&mut input).map_err(gone)? {
            0 => return Err(peer_failed(&"the client closed the connection before TLS")),
            n => n,
        };
        let step = handshake.step(&input[..n], registry, &mut out);
        let sent = peer.write_all(&out);
        let progress = step.map_err(|e| peer_failed(&e))?.1;
        sent.map_err(gone)?;
        out.clear();
        match progress {
            Progress::More => {}
            Progress::StartTls => break,
            Progress::Closed => {
                let why = "TLS is required and the client did not request it";
                return Err(peer_failed(&why));
            }
            Progress::Ready(_) => unreachable!("nothing is granted before TLS"),
        }
    }
    handshake.secured();
    let mut channel = tls.begin().map_err(DatapathError::failed)?;
    loop {
        let shaken = channel.shake();
        while !channel.unsent().is_empty() {
            match peer.write(channel.unsent()).map_err(gone) {
                Ok(n) => channel.sent(n),
                // The failure of the handshake is a better reason than the failure to send it.
                Err(why) => return Err(shaken.err().map_or(why, |e| peer_failed(&e))),
            }
        }
        if shaken.map_err(|e| peer_failed(&e))? {
            return Ok((handshake, channel));
        }
        let received = channel.receive(|room| peer.read(room)).map_err(gone)?;
        if received == 0 {
            let why = "the client closed the connection during the TLS handshake";
            return Err(peer_failed(&why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a client that connected from an address at a time.
    fn from(address: &str, at: Instant, socket: &TcpStream) -> PendingHandshake {
        PendingHandshake {
            socket: socket.try_clone().unwrap(),
            address: address.parse().unwrap(),
            until: at + PROOF_TIME,
        }
    }

    #[test]
    fn handshakes_are_limited_per_peer_and_waiting_ones_expire() {
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
        // An IPv6 network is one peer, and so is an IPv4 address in each of its notations.
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
