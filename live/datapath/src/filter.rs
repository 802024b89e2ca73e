//! Stages in front of an export of another server: measured, limited, delayed, recorded. The data stays at its place.
//!
//! ```text
//!  guest ──▶ measure ─▶ throttle ─▶ one extent ─▶ remote export
//!        ◀── record ◀── inject ◀────────────────
//! ```
//!
//! Without an array, the volume's map is one extent, which is never moved and never freed. Operations that the remote
//! does not offer (trims, zeroes, forced unit access, writes) are not offered here either.
//!
//! Memory of this host, or a file on its flash, can replace the remote. Such a cache node holds the L2 cache of
//! another host.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{BlockSizes, Export, ExportFlags, Uri};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use thiserror::Error;
use units::{Bytes, BytesPerSec, DeviceId, Iops, Nanos, VolumeId};
use volume::{Limits, VolumeMap};

use crate::client::{self, ClientError};
use crate::device::{Device, nameless_file};
use crate::error::DatapathError;
use crate::registry::{Home, REQUEST_BYTES_MAX};
use crate::server::{Server, ServerConfig, ServerError, StopError, fits};
use crate::stages::record::{Recorder, RecordingStatus};
use crate::stages::throttle::Share;
use crate::stages::{StageVolume, StagesSetup};
use crate::worker::{Answer, Message, Question, VolumeSetup, VolumeStatus};

/// Time limit of the worker's connection to the remote. Another connection has just succeeded.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Descriptions of exports of lent memory and lent flash.
const MEMORY_DESCRIPTION: &str = "memory";
const FLASH_DESCRIPTION: &str = "flash";

/// Returns true if an export is that of a cache node, by its description.
pub(crate) fn is_lent(export: &Export) -> bool {
    [MEMORY_DESCRIPTION, FLASH_DESCRIPTION].contains(&export.description.as_str())
}

/// The only volume.
const VOLUME: VolumeId = VolumeId(0);

/// Options of a filter.
#[derive(Debug, Clone)]
pub struct FilterOptions {
    /// Name of the export. Default: the remote's name; empty for memory.
    pub name: Option<String>,
    /// Configuration of the server. The filter always has one worker, because it has one volume.
    pub server: ServerConfig,
    /// Limit of requests per second.
    pub iops: Option<Iops>,
    /// Limit of bytes per second.
    pub bandwidth: Option<BytesPerSec>,
    /// Delays of reads and of writes.
    pub delays: [Nanos; 2],
    /// File of the recording.
    pub record: Option<PathBuf>,
}

/// Reason why a filter cannot start or work.
#[derive(Debug, Error)]
pub enum FilterError {
    /// The remote does not respond or refuses the connection.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The remote export has no bytes.
    #[error("{uri} is empty")]
    Empty {
        /// URI of the export.
        uri: String,
    },
    /// The system cannot allocate memory in the form of a file.
    #[error("cannot allocate memory")]
    NoMemory(#[source] std::io::Error),
    /// The second connection to the remote failed, although the first one succeeded.
    #[error("{uri}: no second connection within {} s", CONNECT_TIME.as_secs())]
    Away {
        /// URI of the export.
        uri: String,
    },
    /// The server cannot start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The directory of a cache node cannot have its file, or the worker does not carry out a request.
    #[error(transparent)]
    Request(#[from] DatapathError),
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The recording cannot be written.
    #[error("cannot write the recording")]
    Record(#[source] trace::TraceError),
}

/// Running filter.
pub struct Filter {
    /// Server of the filter. The caller lets it listen.
    pub server: Server,
    /// Name of the export.
    pub name: String,
    pub size: Bytes,
    recording: bool,
}

impl Filter {
    /// Connects to the remote and starts to serve it.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn start(uri: &Uri, options: FilterOptions) -> Result<Self, FilterError> {
        let remote = client::connect(uri)?.session.export;
        if remote.size == 0 {
            let uri = uri.to_string();
            return Err(FilterError::Empty { uri });
        }
        let name = options.name.clone();
        let name = name.unwrap_or_else(|| remote.name.clone());
        let device = Device::remote(uri.to_string(), uri.clone());
        let filter = Self::serve(device, name.clone(), Bytes(remote.size), options)?;
        filter.wait_for_remote(uri)?;
        filter.let_in(offered(&remote, name));
        Ok(filter)
    }

    /// Serves `size` bytes of this host's memory. The data is lost when the filter stops.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn start_on_memory(size: Bytes, options: FilterOptions) -> Result<Self, FilterError> {
        fits(size)?;
        let no_memory = |errno: rustix::io::Errno| FilterError::NoMemory(errno.into());
        let file = memfd_create("terrace-cache-node", MemfdFlags::CLOEXEC).map_err(no_memory)?;
        ftruncate(&file, size.0).map_err(no_memory)?;
        let device = Device::lent_memory(File::from(file), size);
        Self::serve_lent(device, size, MEMORY_DESCRIPTION, options)
    }

    /// Serves a nameless file of `size` bytes in a directory. The file disappears with this process.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn start_on_flash(
        dir: &Path,
        size: Bytes,
        options: FilterOptions,
    ) -> Result<Self, FilterError> {
        let file = nameless_file(dir, size)?;
        let device = Device::lent_flash(dir.display().to_string(), file, size);
        Self::serve_lent(device, size, FLASH_DESCRIPTION, options)
    }

    fn serve_lent(
        device: Device,
        size: Bytes,
        description: &str,
        options: FilterOptions,
    ) -> Result<Self, FilterError> {
        let own = ExportFlags::HAS_FLAGS.with(ExportFlags::CAN_MULTI_CONN);
        let export = Export {
            name: options.name.clone().unwrap_or_default(),
            description: description.into(),
            size: size.0,
            flags: own.with(ExportFlags::SEND_FLUSH),
            block: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: REQUEST_BYTES_MAX,
            },
        };
        let filter = Self::serve(device, export.name.clone(), size, options)?;
        filter.let_in(export);
        Ok(filter)
    }

    /// Starts to serve a device. Guests cannot connect yet.
    fn serve(
        device: Device,
        name: String,
        size: Bytes,
        options: FilterOptions,
    ) -> Result<Self, FilterError> {
        let config = ServerConfig {
            workers: 1,
            ..options.server
        };
        let server = Server::start(None, config)?;
        let share = Arc::new(Share::default());
        share.limit(Limits {
            iops: options.iops,
            bandwidth: options.bandwidth,
        });
        // One byte that no request reaches. So no trim covers the whole extent, and the extent is never freed.
        let bytes = Bytes(size.0.saturating_add(1));
        server.workers[0].send(Message::Device(Arc::new(device)));
        server.workers[0].send(Message::Attach(Box::new(VolumeSetup {
            lost: vec![],
            cached: Some(size),
            id: VOLUME,
            name: name.clone(),
            class: String::new(),
            map: VolumeMap::new(bytes, bytes, DeviceId(0)),
            limits: config.limits,
            resume: None,
            import: None,
            stages: StagesSetup {
                measure: config.measure(),
                throttle: share,
                ..StagesSetup::default()
            },
            objective: Arc::default(),
        })));
        let filter = Self {
            server,
            name: name.clone(),
            size,
            recording: options.record.is_some(),
        };
        if options.delays != [Nanos::ZERO; 2] {
            let delays = options.delays.map(|d| d.0);
            filter.at_stages(move |v| {
                v.stages.inject.begin(v.now_ns, delays, u64::MAX);
                Ok(())
            })?;
        }
        if let Some(path) = options.record {
            filter.at_stages(|v| v.stages.record.begin(path, v.name))?;
        }
        Ok(filter)
    }

    fn let_in(&self, export: Export) {
        let home = Home {
            worker: 0,
            volume: VOLUME,
        };
        self.server.shared.registry.insert(export, home);
    }

    fn wait_for_remote(&self, uri: &Uri) -> Result<(), FilterError> {
        let until = Instant::now() + CONNECT_TIME;
        while !self.status()?.away.is_empty() {
            if Instant::now() > until {
                let uri = uri.to_string();
                return Err(FilterError::Away { uri });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn at_stages<R: Send + 'static>(
        &self,
        what: impl FnOnce(StageVolume<'_>) -> Result<R, DatapathError> + Send + 'static,
    ) -> Result<R, FilterError> {
        Ok(self.server.workers[0].at_stages(VOLUME, what)?)
    }

    /// Returns the state and measurements of the volume.
    ///
    /// # Errors
    /// When the worker has ended, or does not respond.
    pub fn status(&self) -> Result<VolumeStatus, FilterError> {
        let worker = &self.server.workers[0];
        let asked = worker.ask(|answer| Message::Ask(VOLUME, Question::Status, answer));
        match asked.map_err(DatapathError::from)?? {
            Answer::Status(status) => Ok(*status),
            _ => {
                let why = "the worker sent an unexpected reply".into();
                Err(DatapathError::Refused(why).into())
            }
        }
    }

    /// Stops the filter, and completes its recording if it has one.
    ///
    /// # Errors
    /// When the worker does not stop, or the recording cannot be written.
    pub fn stop(mut self) -> Result<Option<RecordingStatus>, FilterError> {
        let end = || self.at_stages(|v| v.stages.record.end());
        let recorder = self.recording.then(end);
        self.server.stop()?;
        let recorded = recorder.transpose()?.map(Recorder::finish).transpose();
        recorded.map_err(FilterError::Record)
    }
}

/// Returns the export with the operations that this server can pass on to the remote.
fn offered(remote: &Export, name: String) -> Export {
    let passed = [
        ExportFlags::READ_ONLY,
        ExportFlags::SEND_FLUSH,
        ExportFlags::SEND_FUA,
        ExportFlags::ROTATIONAL,
        ExportFlags::SEND_TRIM,
        ExportFlags::SEND_WRITE_ZEROES,
    ];
    let passed = passed.into_iter().filter(|f| remote.flags.contains(*f));
    // All guests share one connection to the remote, so they see one another's writes.
    let own = ExportFlags::HAS_FLAGS.with(ExportFlags::CAN_MULTI_CONN);
    Export {
        name,
        description: remote.description.clone(),
        size: remote.size,
        flags: passed.fold(own, |all, flag| all.with(flag)),
        block: BlockSizes {
            maximum: remote.block.maximum.min(REQUEST_BYTES_MAX),
            ..remote.block
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_with_a_stalled_worker_is_reported() {
        let options = FilterOptions {
            name: Some("node".into()),
            server: ServerConfig::default(),
            iops: None,
            bandwidth: None,
            delays: [Nanos::ZERO; 2],
            record: None,
        };
        let filter = Filter::start_on_memory(Bytes::mib(1), options).unwrap();
        let (let_go, gate) = std::sync::mpsc::channel::<()>();
        let hangs = filter.at_stages(move |_| {
            let _ = gate.recv_timeout(Duration::from_secs(600));
            Ok(())
        });
        let why = hangs.unwrap_err().to_string();
        assert!(why.starts_with("worker 0 has not responded for "), "{why}");
        assert!(filter.status().is_err());
        let why = filter.stop().unwrap_err().to_string();
        let named = "worker 0, which serves node, did not stop: ";
        assert!(why.starts_with(named), "{why}");
        drop(let_go);
    }
}
