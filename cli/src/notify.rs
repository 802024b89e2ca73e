//! Notifications of a service manager by sd_notify(3): one datagram per message to the socket that `NOTIFY_SOCKET` names. Without this
//! variable nothing is sent.
//!
//! A slow service manager does not block the server for long: a message is lost if its socket stays full. A lost `WATCHDOG=1` is replaced
//! by the next one.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::{error, info, warn};

/// Number of attempts to send a message, and the time between two attempts.
const TRIES: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// Shortest time between two watchdog notifications. A worker completes several rounds in this time, so a worker without progress hangs.
const LOOK: Duration = Duration::from_millis(500);

/// Sender of notifications to the service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    to: Option<Way>,
    /// Time without a watchdog notification after which the service manager ends this process.
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Way {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Way {
    fn to(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => return Err(io::Error::other("neither a path nor @NAME")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    fn send(&self, message: &str) -> io::Result<()> {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        sent.map(|_| ())
    }

    /// Sends a message; repeats it while the socket is full, up to [`TRIES`] times.
    fn send_surely(&self, message: &str) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.send(message) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(BETWEEN),
                sent => return sent,
            }
        }
        self.send(message)
    }
}

impl Notifier {
    /// Makes a notifier from the environment.
    pub fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        let to = Way::to(&name).inspect_err(
            |why| warn!(socket = %name.display(), %why, "the service manager cannot be reached"),
        );
        let word = |name: &str| std::env::var(name).ok();
        let watchdog = watchdog(
            word("WATCHDOG_USEC").as_deref(),
            word("WATCHDOG_PID").as_deref(),
        );
        Self {
            to: to.ok(),
            watchdog,
        }
    }

    /// Returns a second notifier for another thread, without the watchdog.
    ///
    /// # Errors
    /// If no file descriptor is available.
    pub fn another(&self) -> io::Result<Self> {
        let to = self.to.as_ref().map(|way| {
            Ok::<_, io::Error>(Way {
                socket: way.socket.try_clone()?,
                address: way.address.clone(),
            })
        });
        Ok(Self {
            to: to.transpose()?,
            watchdog: None,
        })
    }

    /// Reports the new main process of this service.
    pub fn main_pid(&self, pid: u32) {
        self.say(&format!("MAINPID={pid}"));
    }

    /// Reports that the start is complete, with a short status.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\n{}", line(status)));
    }

    /// Reports a short status.
    pub fn status(&self, status: &str) {
        self.say(&line(status));
    }

    /// Reports the start of an orderly stop.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=stopping: flushing devices");
    }

    fn say(&self, message: &str) {
        if let Some(to) = &self.to
            && let Err(why) = to.send_surely(message)
        {
            warn!(%why, "cannot notify the service manager");
        }
    }

    /// Starts a thread that sends `WATCHDOG=1` while `alive` returns true, if the service manager requests a watchdog. Other threads may wait
    /// for disks, which must not end a process that serves guests.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watch(self, mut alive: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        let Some(time) = self.watchdog else {
            return Ok(self);
        };
        let Some(to) = self.another()?.to else {
            return Ok(self);
        };
        let watch = move || {
            let mut said = true;
            loop {
                // Three notifications per interval of the watchdog: one may be lost.
                std::thread::sleep((time / 3).max(LOOK));
                let lives = alive();
                if lives {
                    let _ = to.send("WATCHDOG=1");
                }
                if said != lives {
                    match lives {
                        true => info!("all workers respond: the watchdog is notified again"),
                        false => error!("a worker does not respond: the watchdog is not notified"),
                    }
                }
                said = lives;
            }
        };
        std::thread::Builder::new()
            .name("terrace-watchdog".into())
            .spawn(watch)?;
        Ok(self)
    }
}

/// Formats a status, which must be one line.
fn line(status: &str) -> String {
    format!("STATUS={}", report::printable(status))
}

/// Returns the time in `WATCHDOG_USEC`, if `WATCHDOG_PID` is absent or names this process.
fn watchdog(usec: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let own = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let usec = usec?.parse().ok().filter(|u| *u > 0 && own)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        loop {
            match socket.recv(&mut bytes) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                heard => return String::from_utf8(bytes[..heard.unwrap()].to_vec()).unwrap(),
            }
        }
    }

    fn patient(socket: UnixDatagram) -> UnixDatagram {
        let time = Some(Duration::from_secs(120));
        socket.set_read_timeout(time).unwrap();
        socket
    }

    fn to(name: &str) -> Notifier {
        Notifier {
            to: Some(Way::to(OsStr::new(name)).unwrap()),
            watchdog: None,
        }
    }

    #[test]
    fn notification_arrives_at_socket_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = patient(UnixDatagram::bind(&path).unwrap());
        let notifier = to(path.to_str().unwrap());
        notifier.status("opening");
        notifier.ready("serving\nREADY=2");
        notifier.stopping();
        assert_eq!(heard(&socket), "STATUS=opening");
        let ready = heard(&socket);
        assert!(ready.starts_with("READY=1\nSTATUS=serving"), "{ready}");
        assert_eq!(ready.lines().count(), 2, "a status is one line: {ready}");
        assert!(heard(&socket).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn notification_arrives_at_abstract_socket() {
        let name = format!("terrace-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = patient(UnixDatagram::bind_addr(&address).unwrap());
        to(&format!("@{name}")).ready("serving");
        assert_eq!(heard(&socket), "READY=1\nSTATUS=serving");
    }

    #[test]
    fn missing_notify_socket_is_ignored() {
        Notifier::default().ready("serving");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        to(path.to_str().unwrap()).ready("serving");
        assert!(Way::to(OsStr::new("vsock:2:1")).is_err());
    }

    #[test]
    fn watchdog_applies_to_the_named_process_only() {
        let own = std::process::id().to_string();
        let minute = Some(Duration::from_secs(60));
        assert_eq!(watchdog(Some("60000000"), Some(&own)), minute);
        assert_eq!(watchdog(Some("60000000"), None), minute);
        assert_eq!(watchdog(Some("60000000"), Some("1")), None);
        assert_eq!(watchdog(Some("0"), None), None);
        assert_eq!(watchdog(None, None), None);
    }

    #[test]
    fn watchdog_messages_stop_when_the_process_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = patient(UnixDatagram::bind(&path).unwrap());
        let notifier = Notifier {
            watchdog: Some(Duration::from_millis(30)),
            ..to(path.to_str().unwrap())
        };
        let alive = Arc::new(AtomicBool::new(true));
        let asked = alive.clone();
        let notifier = notifier.watch(move || asked.load(Ordering::Relaxed));
        assert_eq!(heard(&socket), "WATCHDOG=1");
        alive.store(false, Ordering::Relaxed);
        // One more notification may have been sent before.
        socket.set_read_timeout(Some(LOOK * 3)).unwrap();
        let more = (0..3).filter(|_| socket.recv(&mut [0; 64]).is_ok());
        assert!(more.count() <= 1, "it goes on");
        drop(notifier);
    }
}
