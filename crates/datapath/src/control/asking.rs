//! The other end of the control socket: questions and orders to the server of an array.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::ControllerId;
use thiserror::Error;

use super::{CONTROL_VERSION, LINE_BYTES_MAX, ORDER_OF, Reply, read_line};
use crate::control_server::{ControlAnswer, ControlRequest, boundable};

/// Longest answer that a client takes: some tens of thousands of volumes. Protects its memory from a server gone mad.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A client gives up on an answer after this long: writing a long recording takes its time.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// Who gives a hold up waits no longer for the server to have seen that.
const GIVE_UP_TIME: Duration = Duration::from_secs(3);

/// Why a served array could not be asked.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no server listens on {path}")]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke, or took too long.
    #[error("the server on {path} does not respond")]
    Silent {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It says no.
    #[error("{0}")]
    Refused(String),
}

/// Asks the server of an array.
///
/// # Errors
/// [`ControlError`].
pub fn ask(path: &Path, ask: &ControlRequest) -> Result<ControlAnswer, ControlError> {
    if let ControlRequest::Stage(command) = ask {
        // JSON has no words for infinite and for not a number: the server would take it for left out.
        command.check().map_err(ControlError::Refused)?;
    }
    if let ControlRequest::Policy {
        overcommit_max: Some(most),
        ..
    } = ask
    {
        boundable(*most).map_err(ControlError::Refused)?; // likewise
    }
    let mut socket = connect(path)?;
    ask_on(&mut socket, path, ask)
}

/// Has the server of an array carry out an order of a controller.
///
/// # Errors
/// [`ControlError`], also when another controller has the array's lease.
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

/// Asks the server of an array to hand it over: the connection, on which the rest is said.
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

/// One question and its answer, and what has come behind that.
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
    // A server that has too many to answer says so and closes: then the answer is there, and writing fails.
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

/// A volume, or a snapshot, that does not change, and to which no guest can connect, until this is dropped: [`ControlRequest::Hold`].
#[derive(Debug)]
pub struct Holding {
    path: PathBuf,
    socket: UnixStream,
    /// The export that it can be read by.
    pub export: String,
    /// Unix sockets that its server listens on, where that export is.
    pub sockets: Vec<PathBuf>,
}

impl Holding {
    /// Asks the server of an array, at its control socket, to hold a volume.
    ///
    /// # Errors
    /// [`ControlError`], when guests are connected to it among others.
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

    /// Lets go of it. When that succeeds it was held all the time, and guests can connect again.
    ///
    /// # Errors
    /// [`ControlError`]; then what was read may be of no one moment.
    pub fn end(mut self) -> Result<(), ControlError> {
        ask_on(&mut self.socket, &self.path, &ControlRequest::Release).map(drop)
    }
}

impl Drop for Holding {
    /// Waits until the server has let go of it, so that guests who come next are not refused; not for long, as it may hang, or be gone.
    fn drop(&mut self) {
        // It closes the connection when what that held is free.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.socket.set_read_timeout(Some(GIVE_UP_TIME));
        let _ = std::io::copy(&mut self.socket, &mut std::io::sink());
    }
}
