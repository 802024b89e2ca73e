//! The live array of a scenario: emulated devices in memory, volumes full of data, served over a unix socket.

use std::path::Path;

use datapath::desk::{Ask, NewDevice, NewSource, Told, VolumeInfo};
use datapath::{Client, EngineLimits, Listen, ServerConfig, Serving, add_device};
use model::Topology;
use sim::Model;
use tempfile::TempDir;

/// Bytes written at once to fill a volume.
const FILL_BYTES: usize = 256 << 10;

pub struct Site {
    dir: TempDir,
    pub serving: Serving,
}

impl Site {
    /// Devices as in `topology`; volumes as in `model`.
    pub fn new(model: &Model, topology: &Topology) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let dir = dir.unwrap();
        let array = dir.path().join("array");
        for (i, device) in topology.devices.iter().enumerate() {
            let source = dir.path().join(&device.name);
            std::fs::create_dir(&source).unwrap();
            let new = NewDevice {
                tier: topology.tier(device.tier).name.clone(),
                source: NewSource::Dir(source),
                size: Some(device.spec.capacity),
                emulate: Some(device.spec.clone()),
            };
            let extent = (i == 0).then_some(model.extent);
            add_device(&array, extent, new).unwrap();
        }
        let limits = EngineLimits::default();
        assert_eq!(limits.copy_chunk, model.copy_chunk, "one size of a piece");
        let config = ServerConfig {
            limits,
            ..ServerConfig::default()
        };
        let serving = Serving::start(&array, config).unwrap();
        let site = Self { dir, serving };
        for volume in &model.volumes {
            site.ask(Ask::Create {
                volume: volume.name.clone(),
                size: volume.size,
                tier: tier_name(topology, volume.device),
                class: model.classes[volume.class.index()].name.clone(),
            });
        }
        let listen = Listen::Unix(site.dir.path().join("nbd.sock"));
        site.serving.listen(&listen).unwrap();
        for volume in &model.volumes {
            // Not zeroes: copies of those are made in another way.
            let mut client = site.connect(&volume.name);
            let data = vec![0x5A; FILL_BYTES];
            for offset in (0..volume.size.0).step_by(FILL_BYTES) {
                let left = (volume.size.0 - offset).min(FILL_BYTES as u64);
                client.write(offset, &data[..left as usize]).unwrap();
            }
        }
        site
    }

    pub fn connect(&self, volume: &str) -> Client {
        let uri = nbd::Uri {
            address: nbd::Address::Unix(self.dir.path().join("nbd.sock")),
            export: volume.into(),
        };
        Client::connect(&uri).unwrap()
    }

    pub fn ask(&self, ask: Ask) -> Told {
        self.serving.desk().ask(ask).unwrap()
    }

    pub fn show(&self, volume: &str) -> VolumeInfo {
        let volume = volume.to_owned();
        match self.ask(Ask::Show { volume }) {
            Told::Volumes { mut volumes } => volumes.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub fn stop(self) {
        self.serving.stop();
    }
}

pub fn tier_name(topology: &Topology, device: units::DeviceId) -> String {
    topology.tier(topology.tier_of(device)).name.clone()
}
