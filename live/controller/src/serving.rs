//! Connections, from accept to close.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use crate::access::Peer;
use crate::call::State;
use crate::gate::Gate;
use crate::limits::{HEAD_BYTES_MAX, Limits, READ_BYTES_MAX, STOP_TIME, TICK};
use crate::reload::SharedTls;

/// Pause after a failed accept, usually for lack of descriptors. Keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Listening socket.
pub(crate) enum ListenSocket {
    Unix(UnixListener),
    Tls(TcpListener, SharedTls),
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream, IpAddr, TlsAcceptor),
}

impl ListenSocket {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            ListenSocket::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
            ListenSocket::Tls(listener, tls) => {
                let (socket, address) = listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok(Socket::Tcp(socket, address.ip(), tls.acceptor()))
            }
        }
    }
}

/// Serves until a stop is requested, and then until all connections have ended or the time for it is over.
pub(crate) async fn serve(
    mut listening: mpsc::Receiver<ListenSocket>,
    router: Router,
    state: Arc<State>,
    stop: watch::Receiver<()>,
) {
    let limits = state.limits;
    let gate = state.gate.clone();
    let mut rooms = vec![];
    let ticking = tokio::spawn(tick(state));
    let added = async {
        while let Some(listening) = listening.recv().await {
            let room = Arc::new(Semaphore::new(limits.connections_max));
            let serving = ConnectionContext {
                router: router.clone(),
                limits,
                gate: gate.clone(),
                stop: stop.clone(),
            };
            tokio::spawn(serving.accept(listening, room.clone()));
            rooms.push(room);
        }
    };
    let mut stopped = stop.clone();
    tokio::select! {
        () = added => { let _ = stopped.changed().await; }
        _ = stopped.changed() => {}
    }
    ticking.abort();
    let all_ended = async {
        for room in rooms {
            let all = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
            let _ = room.acquire_many(all).await;
        }
    };
    let _ = timeout(STOP_TIME, all_ended).await;
}

/// Passes the time to the service.
async fn tick(state: Arc<State>) {
    let mut times = tokio::time::interval(TICK);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let state = state.clone();
        let _ = tokio::task::spawn_blocking(move || state.tick()).await;
    }
}

#[derive(Clone)]
struct ConnectionContext {
    router: Router,
    limits: Limits,
    gate: Arc<Gate>,
    stop: watch::Receiver<()>,
}

impl ConnectionContext {
    async fn accept(mut self, listening: ListenSocket, room: Arc<Semaphore>) {
        loop {
            let accepted = tokio::select! {
                accepted = listening.accept() => accepted,
                _ = self.stop.changed() => return,
            };
            let Ok(socket) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Without a free place the connection is closed at once, because a reply would need the resources that are exhausted.
            if let Ok(permit) = room.clone().try_acquire_owned() {
                tokio::spawn(self.clone().converse(socket, permit));
            }
        }
    }

    async fn converse(self, socket: Socket, permit: OwnedSemaphorePermit) {
        match socket {
            Socket::Unix(socket) => {
                // A peer without credentials from the kernel is rejected.
                if let Ok(credentials) = socket.peer_cred() {
                    let uid = credentials.uid();
                    self.speak(socket, Peer::Unix { uid }).await;
                }
            }
            Socket::Tcp(socket, address, acceptor) => {
                // The check precedes the handshake, which is expensive.
                let Some(connection) = self.gate.connect(address, Instant::now()) else {
                    return;
                };
                let shaken = timeout(self.limits.handshake_time, acceptor.accept(socket)).await;
                if let Ok(Ok(socket)) = shaken {
                    self.speak(socket, Peer::Tls(connection)).await;
                }
            }
        }
        drop(permit);
    }

    /// Speaks HTTP until either side closes the connection.
    async fn speak(mut self, socket: impl AsyncRead + AsyncWrite + Unpin, peer: Peer) {
        let router = self.router;
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            router.clone().call(request)
        });
        let socket = WatchedSocket::new(socket, self.limits.write_time);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(READ_BYTES_MAX)
            .serve_connection(TokioIo::new(socket), service);
        tokio::pin!(connection);
        // An error on a connection closes it.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = self.stop.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Socket whose writes fail if the peer accepts no byte for too long. HTTP limits the reads.
struct WatchedSocket<S> {
    socket: S,
    time: Duration,
    /// Timer while a write is pending.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WatchedSocket<S> {
    fn new(socket: S, time: Duration) -> Self {
        Self {
            socket,
            time,
            waiting: None,
        }
    }

    /// Fails writes that have been pending for too long.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let time = self.time;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(time)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}
