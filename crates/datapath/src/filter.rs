//! The stack in front of somebody else's export: measured, limited, delayed, recorded; its data stays where it is.
//!
//! ```text
//!  guest ──▶ measure ─▶ throttle ─▶ one extent ─▶ remote export
//!        ◀── record ◀── inject ◀────────────────
//! ```
//!
//! There is no array: the volume's map is one extent, which is never moved and never given up. What the remote does not
//! offer (trims, zeroes, forced unit access, writes) is not offered here either.
//!
//! In the place of the remote there can be memory of this host, or a file on its flash: a cache node, where another host's cache has its second level.

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
use crate::registry::{Home, REQUEST_BYTES_MAX};
use crate::server::{Server, ServerConfig, ServerError, StopError, fits};
use crate::stages::record::{Recorded, Recorder};
use crate::stages::throttle::Share;
use crate::stages::{Served, StagesSetup};
use crate::worker::{Answer, Message, Question, VolumeSetup, VolumeStatus};

/// The worker's connection to the remote must be there within this time, since another one just was.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// What is lent says of itself that it is memory, or flash.
const MEMORY_DESCRIPTION: &str = "memory";
const FLASH_DESCRIPTION: &str = "flash";

/// Whether an export says that it is a cache node's.
pub(crate) fn is_lent(export: &Export) -> bool {
    [MEMORY_DESCRIPTION, FLASH_DESCRIPTION].contains(&export.description.as_str())
}

/// The only volume.
const VOLUME: VolumeId = VolumeId(0);

/// What to put in front of an export.
#[derive(Debug, Clone)]
pub struct FilterOptions {
    /// Name of the export here; if left out the remote's, and none of memory.
    pub name: Option<String>,
    /// How to serve. There is one worker, whatever it says: there is one volume.
    pub server: ServerConfig,
    /// Requests per second at most.
    pub iops: Option<Iops>,
    /// Bytes per second at most.
    pub bandwidth: Option<BytesPerSec>,
    /// Delays of reads and of writes.
    pub delays: [Nanos; 2],
    /// File to record to.
    pub record: Option<PathBuf>,
}

/// Why there is no filter.
#[derive(Debug, Error)]
pub enum FilterError {
    /// The remote is not there, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It has no bytes.
    #[error("{uri} is empty")]
    Empty {
        /// The export.
        uri: String,
    },
    /// The system gives no memory that is a file.
    #[error("cannot allocate memory")]
    NoMemory(#[source] std::io::Error),
    /// There is no such directory, or no space in it.
    #[error("{0}")]
    NoFlash(String),
    /// It was there, and is not any more.
    #[error("{uri}: no second connection within {} s", CONNECT_TIME.as_secs())]
    Away {
        /// The export.
        uri: String,
    },
    /// No server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The worker does not do what it is told.
    #[error("{0}")]
    Worker(String),
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The recording cannot be written.
    #[error("cannot write the recording")]
    Record(#[source] trace::TraceError),
}

/// A filter that runs.
pub struct Filter {
    /// The server; let it listen.
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

    /// Serves so much memory of this host. What is there is gone when it stops.
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

    /// Serves a file of that size without a name, which is gone with this process.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn start_on_flash(
        dir: &Path,
        size: Bytes,
        options: FilterOptions,
    ) -> Result<Self, FilterError> {
        let file = nameless_file(dir, size).map_err(FilterError::NoFlash)?;
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

    /// Starts to serve what a device has. Nobody is let in yet.
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
        // One byte that no request reaches: so no trim covers the extent, which therefore is never given up.
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
        what: impl FnOnce(Served<'_>) -> Result<R, String> + Send + 'static,
    ) -> Result<R, FilterError> {
        let done = self.server.workers[0].at_stages(VOLUME, what);
        done.map_err(FilterError::Worker)
    }

    /// What was measured.
    ///
    /// # Errors
    /// When the worker has ended, or does not respond.
    pub fn status(&self) -> Result<VolumeStatus, FilterError> {
        let worker = &self.server.workers[0];
        let asked = worker.ask(|answer| Message::Ask(VOLUME, Question::Status, answer));
        let asked = asked.map_err(|why| FilterError::Worker(why.to_string()))?;
        match asked.map_err(FilterError::Worker)? {
            Answer::Status(status) => Ok(*status),
            _ => Err(FilterError::Worker(
                "the worker sent an unexpected reply".into(),
            )),
        }
    }

    /// Ends it, and writes the recording if there is one.
    ///
    /// # Errors
    /// When the worker does not stop, or the recording cannot be written.
    pub fn stop(mut self) -> Result<Option<Recorded>, FilterError> {
        let end = || self.at_stages(|v| v.stages.record.end());
        let recorder = self.recording.then(end);
        self.server.stop()?;
        let recorded = recorder.transpose()?.map(Recorder::finish).transpose();
        recorded.map_err(FilterError::Record)
    }
}

/// What can be passed on of what the remote offers.
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
    // All guests' requests take one connection to the remote, so they see one another's writes.
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
