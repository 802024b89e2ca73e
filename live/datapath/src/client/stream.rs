//! Connections to NBD servers up to the end of the handshake: unix sockets and TCP, with and without TLS.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::{Address, ClientHandshake, ClientProgress, ClientWishes, Session, TlsWords, Uri};

use super::{ClientConnection, ClientError};
use crate::tls::{self, Channel, OUT_BYTES};

/// Longest wait for a server during the handshake. A server that exceeds it counts as unreachable.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Connection with its encryption; `tls` is `None` without TLS.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Stream,
    tls: Option<Box<Channel>>,
}

/// Time after which a peer that does not respond to keepalive probes counts as gone.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Connects within the time limit of a handshake.
fn connect_tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HANDSHAKE_TIME) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    fn connect(address: &Address) -> std::io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Stream::Unix(socket))
            }
            Address::Tcp { host, port } => {
                let socket = connect_tcp(host, *port)?;
                // Detects the silent loss of a peer, also while nothing is sent.
                rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
                rustix::net::sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
                rustix::net::sockopt::set_tcp_user_timeout(&socket, KEEPALIVE.as_millis() as u32)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Stream::Tcp(socket))
            }
        }
    }

    fn set_timeout(&self, time: Option<Duration>) -> std::io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(time),
            Stream::Tcp(s) => s.set_read_timeout(time),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = match self {
                Stream::Unix(s) => s.read(bytes),
                Stream::Tcp(s) => s.read(bytes),
            };
            match read {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                // A read with a time limit is interrupted when the process is stopped and continued.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let kind = std::io::ErrorKind::TimedOut;
                    return Err(std::io::Error::new(
                        kind,
                        "the server sent no reply in time",
                    ));
                }
                read => return read,
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Unix(s) => s.write_all(bytes),
            Stream::Tcp(s) => s.write_all(bytes),
        }
    }
}

impl Socket {
    pub(super) fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        self.stream.set_timeout(Some(time))
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read(bytes);
        };
        loop {
            let n = tls.read(bytes).map_err(std::io::Error::other)?;
            if n > 0 || bytes.is_empty() {
                return Ok(n);
            }
            if tls.is_closed() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            tls.receive(|room| self.stream.read(room))?;
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(bytes);
        };
        for bytes in bytes.chunks(OUT_BYTES) {
            tls.seal(bytes).map_err(std::io::Error::other)?;
            flush_tls(tls, &mut self.stream)?;
        }
        Ok(())
    }

    pub(super) fn into_connected(self, session: Box<Session>) -> std::io::Result<ClientConnection> {
        let Socket { stream, tls } = self;
        stream.set_timeout(None)?;
        let socket = match stream {
            Stream::Unix(s) => s.into(),
            Stream::Tcp(s) => s.into(),
        };
        Ok(ClientConnection {
            socket,
            tls,
            session,
        })
    }
}

/// Sends the pending bytes of a session.
fn flush_tls(tls: &mut Channel, stream: &mut Stream) -> std::io::Result<()> {
    stream.write_all(tls.unsent())?;
    tls.sent(tls.unsent().len());
    Ok(())
}

/// Begins a session with the server of a URI.
fn secure(uri: &Uri, words: &TlsWords, stream: &mut Stream) -> Result<Channel, ClientError> {
    let failed = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    let refused = |source| ClientError::Tls {
        uri: uri.to_string(),
        source,
    };
    let host = match &uri.address {
        Address::Tcp { host, .. } => host,
        Address::Unix(_) => "localhost",
    };
    let mut tls = tls::connect(words, host).map_err(refused)?;
    loop {
        let shaken = tls.shake();
        let sent = flush_tls(&mut tls, stream);
        let over = shaken.map_err(refused)?;
        sent.map_err(failed)?;
        if over {
            return Ok(tls);
        }
        tls.receive(|room| stream.read(room)).map_err(failed)?;
    }
}

/// Connects and completes the handshake.
pub(super) fn handshake(
    uri: &Uri,
    wishes: ClientWishes,
) -> Result<(Socket, Box<Session>), ClientError> {
    let failed = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    if let Some(words) = &uri.tls {
        // Faults of our own files are reported even if the server is unreachable.
        tls::check(words).map_err(|source| ClientError::Tls {
            uri: uri.to_string(),
            source,
        })?;
    }
    let stream = Stream::connect(&uri.address).map_err(failed)?;
    let mut socket = Socket { stream, tls: None };
    let mut handshake = match uri.tls {
        Some(_) => ClientHandshake::with_tls(&uri.export, wishes),
        None => ClientHandshake::new(&uri.export, wishes),
    };
    let mut input = [0; 4096];
    loop {
        let n = socket.read(&mut input).map_err(failed)?;
        let mut out = vec![];
        let (_, progress) =
            handshake
                .step(&input[..n], &mut out)
                .map_err(|source| ClientError::Wire {
                    uri: uri.to_string(),
                    source,
                })?;
        socket.write_all(&out).map_err(failed)?;
        match (progress, &uri.tls) {
            (ClientProgress::More, _) => {}
            (ClientProgress::StartTls, Some(words)) => {
                socket.tls = Some(Box::new(secure(uri, words, &mut socket.stream)?));
                out.clear();
                handshake.secured(&mut out);
                socket.write_all(&out).map_err(failed)?;
            }
            (ClientProgress::StartTls, None) => unreachable!("the client did not request TLS"),
            // No request was sent yet, so nothing can follow the handshake.
            (ClientProgress::Ready(session), _) => return Ok((socket, session)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn read_waits_for_a_reply_despite_process_suspension() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let mut stream = Stream::Unix(ours);
        let me = std::process::id();
        let script = format!("sleep 0.2; kill -STOP {me}; sleep 0.05; kill -CONT {me}");
        let mut stops = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(stops.wait().unwrap().success());
                std::io::Write::write_all(&mut theirs, b"here").unwrap();
            });
            let mut bytes = [0; 8];
            assert_eq!(stream.read(&mut bytes).unwrap(), 4);
        });
    }
}
