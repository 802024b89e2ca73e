//! An array in a directory of its own, served or not, asked as another process asks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource, Samples};
use datapath::{Client, ClientError, Listen, Reach, ServeError, ServerConfig, Serving, add_device};
use model::{DeviceSpec, DirectIo};
use tempfile::TempDir;
use units::Bytes;

pub const MIB: u64 = 1 << 20;

/// Longest wait for something that comes true.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Site {
    dir: TempDir,
    serving: Option<Serving>,
}

impl Site {
    /// Nothing yet.
    pub fn empty() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            serving: None,
        }
    }

    /// A device of so many MiB in a directory of its own; nobody serves the array.
    pub fn add(&self, tier: &str, part: &str, mib: u64, emulate: Option<DeviceSpec>) {
        let source = self.path(part);
        std::fs::create_dir(&source).unwrap();
        let new = NewDevice {
            tier: tier.into(),
            source: NewSource::Dir(source),
            size: Some(Bytes::mib(mib)),
            emulate,
            direct: DirectIo::Off,
            force: false,
            thin: false,
        };
        add_device(&self.path("array"), None, new).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Serves it, with some of its volumes exported; those that are created from here on are as well.
    pub fn serve(&mut self, volumes: &[&str]) {
        self.serve_as(ServerConfig {
            workers: 2,
            ..ServerConfig::default()
        });
        let serving = self.serving.as_ref().unwrap();
        for volume in volumes {
            serving.control_server().export(volume).unwrap();
        }
    }

    /// Serves it in some way; volumes that are created from here on are exported.
    pub fn serve_as(&mut self, config: ServerConfig) {
        self.try_serve_as(config).unwrap();
    }

    pub fn try_serve_as(&mut self, config: ServerConfig) -> Result<(), ServeError> {
        let serving = Serving::start(&self.path("array"), config)?;
        serving.listen(&self.listen())?;
        self.serving = Some(serving);
        Ok(())
    }

    pub fn serving(&self) -> &Serving {
        self.serving.as_ref().unwrap()
    }

    pub fn serving_mut(&mut self) -> &mut Serving {
        self.serving.as_mut().unwrap()
    }

    /// Takes the server out of the site, for a test that stops it by itself.
    pub fn take_serving(&mut self) -> Serving {
        self.serving.take().unwrap()
    }

    pub fn stop(&mut self) {
        self.serving.take().unwrap().stop().unwrap();
    }

    pub fn listen(&self) -> Listen {
        Listen::Unix(self.path("nbd.sock"))
    }

    pub fn connect(&self, volume: &str) -> Result<Client, ClientError> {
        Client::connect(&self.listen().uri(volume).parse().unwrap())
    }

    /// By the control socket while it is served.
    pub fn ask(&self, ask: ControlRequest) -> Result<ControlAnswer, String> {
        Reach::find(&self.path("array")).unwrap().ask(ask)
    }

    pub fn done(&self, ask: ControlRequest) -> String {
        match self.ask(ask) {
            Ok(ControlAnswer::Done { message }) => message,
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&self, volume: &str, mib: u64, tier: &str) {
        self.done(ControlRequest::Create {
            volume: volume.into(),
            size: Bytes::mib(mib),
            tier: tier.into(),
            class: None,
        });
    }

    pub fn samples(&self) -> Samples {
        match self.ask(ControlRequest::Samples) {
            Ok(ControlAnswer::Samples(samples)) => samples,
            other => panic!("{other:?}"),
        }
    }
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it does not come true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
