//! Live array of a scenario: emulated devices in memory, volumes full of data, served over a unix socket.

use std::path::{Path, PathBuf};

use datapath::control::CONTROL_SOCKET;

use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource};
use datapath::{ArrayServer, Client, EngineLimits, Listen, ServerConfig, add_device};
use model::{DeviceSpec, DirectIo, LoadCurve, Topology};
use sim::Model;
use tempfile::TempDir;
use units::{Bytes, BytesPerSec, Nanos};

/// Bytes written at once to fill a volume.
const FILL_BYTES: usize = 256 << 10;

/// Control volume: no decision includes it, and it is alone on a device whose latency is always [`CONTROL_NS`]. Any further
/// latency is caused by the host, not by the array.
pub const CONTROL: &str = "control";
pub const CONTROL_NS: u64 = 1_000_000;
const CONTROL_SIZE: Bytes = Bytes(1 << 20);

pub struct Site {
    dir: TempDir,
    pub serving: ArrayServer,
}

impl Site {
    /// Creates devices as in `topology` and volumes as in `model`.
    pub fn new(model: &Model, topology: &Topology) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let dir = dir.unwrap();
        let array = dir.path().join("array");
        let control = control_spec(&topology.devices[0].spec);
        let devices = topology.devices.iter().map(|d| {
            let tier = topology.tier(d.tier).name.as_str();
            (d.name.as_str(), tier, &d.spec)
        });
        let devices = devices.chain([(CONTROL, CONTROL, &control)]);
        for (i, (name, tier, spec)) in devices.enumerate() {
            let source = dir.path().join(name);
            std::fs::create_dir(&source).unwrap();
            let new = NewDevice {
                tier: tier.into(),
                source: NewSource::Dir(source),
                size: Some(spec.capacity),
                emulate: Some(spec.clone()),
                direct: DirectIo::Off,
                force: false,
                thin: false,
            };
            let extent = (i == 0).then_some(model.extent);
            add_device(&array, extent, new).unwrap();
        }
        let limits = EngineLimits {
            copy_chunk: model.copy_chunk,
            copy_chunk_max: model.copy_chunk,
            ..EngineLimits::default()
        };
        let config = ServerConfig {
            limits,
            ..ServerConfig::default()
        };
        let serving = ArrayServer::start(&array, config).unwrap();
        let site = Self { dir, serving };
        for volume in &model.volumes {
            site.ask(ControlRequest::Create {
                volume: volume.name.clone(),
                size: volume.size,
                tier: tier_name(topology, volume.device),
                class: Some(model.classes[volume.class.index()].name.clone()),
            });
        }
        site.ask(ControlRequest::Create {
            volume: CONTROL.into(),
            size: CONTROL_SIZE,
            tier: CONTROL.into(),
            class: Some(model.classes[0].name.clone()),
        });
        let listen = Listen::Unix(site.dir.path().join("nbd.sock"));
        site.serving.listen(&listen).unwrap();
        for volume in &model.volumes {
            site.fill(&volume.name, volume.size);
        }
        site.fill(CONTROL, CONTROL_SIZE);
        site
    }

    fn fill(&self, volume: &str, size: Bytes) {
        // The data is not zero, because zeroes are copied in a different way.
        let mut client = self.connect(volume);
        let data = vec![0x5A; FILL_BYTES];
        for offset in (0..size.0).step_by(FILL_BYTES) {
            let left = (size.0 - offset).min(FILL_BYTES as u64);
            client.write(offset, &data[..left as usize]).unwrap();
        }
    }

    pub fn connect(&self, volume: &str) -> Client {
        let uri = nbd::Uri {
            address: nbd::Address::Unix(self.dir.path().join("nbd.sock")),
            export: volume.into(),
            tls: None,
        };
        Client::connect(&uri).unwrap()
    }

    /// Returns the path of the array's control socket.
    pub fn control(&self) -> PathBuf {
        self.dir.path().join("array").join(CONTROL_SOCKET)
    }

    pub fn ask(&self, ask: ControlRequest) -> ControlAnswer {
        self.serving.control_server().ask(ask).unwrap()
    }

    pub fn stop(self) {
        self.serving.stop().unwrap();
    }
}

/// Returns a device with a constant latency: no growth with load, no jitter, and a negligible transfer time.
fn control_spec(like: &DeviceSpec) -> DeviceSpec {
    DeviceSpec {
        capacity: Bytes(16 << 20),
        read_latency: Nanos(CONTROL_NS),
        write_latency: Nanos(CONTROL_NS),
        read_iops: 1e6,
        write_iops: 1e6,
        read_bandwidth: BytesPerSec(u64::from(u32::MAX)),
        write_bandwidth: BytesPerSec(u64::from(u32::MAX)),
        curve: LoadCurve::flat(),
        jitter_sigma: 0.0,
        ..like.clone()
    }
}

pub fn tier_name(topology: &Topology, device: units::DeviceId) -> String {
    topology.tier(topology.tier_of(device)).name.clone()
}
