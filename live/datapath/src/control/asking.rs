//! Client of the control socket: queries and orders to the server of an array.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::ControllerId;
use thiserror::Error;

use super::{CONTROL_VERSION, LINE_BYTES_MAX, ORDER_OF, Reply, read_line};
use crate::control_server::{ControlAnswer, ControlRequest, boundable};
use crate::error::DatapathError;

/// Longest reply that a client accepts: that of some tens of thousands of volumes. Protects its memory from a faulty
/// server.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Longest wait of a client for a reply. Writing a long recording takes much of it.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// Longest wait for the server to notice the end of a hold.
const GIVE_UP_TIME: Duration = Duration::from_secs(3);

/// Reason why a request to a served array failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No server listens.
    #[error("no server listens on {path}")]
    Nobody {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke or timed out.
    #[error("the server on {path} does not respond")]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The server refused the request.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the server of an array.
///
/// # Errors
/// [`ControlError`].
pub fn ask(path: &Path, ask: &ControlRequest) -> Result<ControlAnswer, ControlError> {
    let refused = |why: DatapathError| ControlError::Refused(why.to_string());
    if let ControlRequest::Stage(command) = ask {
        // JSON represents neither infinity nor NaN: the server would treat such a value as omitted.
        command.check().map_err(refused)?;
    }
    if let ControlRequest::Policy {
        overcommit_max: Some(most),
        ..
    } = ask
    {
        boundable(*most).map_err(refused)?; // for the same reason
    }
    let mut socket = connect(path)?;
    ask_on(&mut socket, path, ask)
}

/// Lets the server of an array carry out an order of a controller.
///
/// # Errors
/// [`ControlError`], also if another controller has the array's lease.
pub fn order(
    path: &Path,
    order_of: ControllerId,
    order: &ControlRequest,
) -> Result<ControlAnswer, ControlError> {
    let mut socket = connect(path)?;
    converse_once(&mut socket, path, Some(order_of), order).map(|(answer, _)| answer)
}

fn connect(path: &Path) -> Result<UnixStream, ControlError> {
    UnixStream::connect(path).map_err(|source| ControlError::Nobody {
        path: path.into(),
        source,
    })
}

fn ask_on(
    socket: &mut UnixStream,
    path: &Path,
    ask: &ControlRequest,
) -> Result<ControlAnswer, ControlError> {
    converse_once(socket, path, None, ask).map(|(answer, _)| answer)
}

/// Requests a hand-over from the server of an array. Returns the connection, on which the hand-over continues.
///
/// # Errors
/// [`ControlError`].
pub(crate) fn ask_to_take(path: &Path, ask: &ControlRequest) -> Result<UnixStream, ControlError> {
    let mut socket = connect(path)?;
    let (_, rest) = converse_once(&mut socket, path, None, ask)?;
    match rest.is_empty() {
        true => Ok(socket),
        false => Err(ControlError::Silent {
            path: path.into(),
            source: std::io::ErrorKind::InvalidData.into(),
        }),
    }
}

/// Sends one request. Returns its reply, and all bytes received after it.
fn converse_once(
    socket: &mut UnixStream,
    path: &Path,
    order_of: Option<ControllerId>,
    ask: &ControlRequest,
) -> Result<(ControlAnswer, Vec<u8>), ControlError> {
    let silent = |source| ControlError::Silent {
        path: path.into(),
        source,
    };
    let mut request = serde_json::to_value(ask).map_err(|e| silent(e.into()))?;
    request["v"] = CONTROL_VERSION.into();
    if let Some(controller) = order_of {
        let controller = serde_json::to_value(controller);
        request[ORDER_OF] = controller.map_err(|e| silent(e.into()))?;
    }
    let line = format!("{request}\n");
    if line.len() > LINE_BYTES_MAX {
        let why = "the request is too long".to_string();
        return Err(ControlError::Refused(why));
    }
    // An overloaded server replies and closes the connection: the reply is received although the write fails.
    let written = socket.write_all(line.as_bytes());
    let mut input = vec![];
    let answer = read_line(socket, &mut input, ANSWER_BYTES_MAX, ANSWER_TIME);
    let answer = answer.map_err(silent)?;
    written.map_err(silent)?;
    let answer = answer.ok_or_else(|| silent(std::io::ErrorKind::UnexpectedEof.into()))?;
    match serde_json::from_slice(&answer).map_err(|e| silent(e.into()))? {
        Reply::Ok(answer) => Ok((answer, input)),
        Reply::Error(why) => Err(ControlError::Refused(why)),
    }
}

/// Volume or snapshot that does not change, and to which no guest can connect, until this is dropped:
/// [`ControlRequest::Hold`].
#[derive(Debug)]
pub struct VolumeHold {
    path: PathBuf,
    socket: UnixStream,
    /// Export from which it can be read.
    pub export: String,
    /// Unix sockets of the server that serve this export.
    pub sockets: Vec<PathBuf>,
}

impl VolumeHold {
    /// Lets the server of an array hold a volume. `path` is its control socket.
    ///
    /// # Errors
    /// [`ControlError`], for example if guests are connected to the volume.
    pub fn begin(path: &Path, volume: &str) -> Result<Self, ControlError> {
        let mut socket = connect(path)?;
        let volume = volume.into();
        match ask_on(&mut socket, path, &ControlRequest::Hold { volume })? {
            ControlAnswer::Held { export, sockets } => Ok(Self {
                path: path.into(),
                socket,
                export,
                sockets,
            }),
            other => {
                let why = format!("unexpected reply: {other:?}");
                Err(ControlError::Refused(why))
            }
        }
    }

    /// Ends the hold. If that succeeds, the volume was held until now, and guests can connect again.
    ///
    /// # Errors
    /// [`ControlError`]; the data that was read may then be from different times.
    pub fn end(mut self) -> Result<(), ControlError> {
        ask_on(&mut self.socket, &self.path, &ControlRequest::Release).map(drop)
    }
}

impl Drop for VolumeHold {
    /// Waits until the server has released the volume, so guests that connect next are not refused. The wait is
    /// short, because the server may hang or have ended.
    fn drop(&mut self) {
        // The server closes the connection after the release.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.socket.set_read_timeout(Some(GIVE_UP_TIME));
        let _ = std::io::copy(&mut self.socket, &mut std::io::sink());
    }
}
