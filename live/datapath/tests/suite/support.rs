//! Array in a temporary directory, served or not, with requests like those of another process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use datapath::control_server::{ControlAnswer, ControlRequest, NewDevice, NewSource, Samples};
use datapath::{
    ArrayServer, Client, ClientError, Listen, Reach, ServeError, ServerConfig, add_device,
};
use model::{DeviceSpec, DirectIo};
use tempfile::TempDir;
use units::Bytes;

pub const MIB: u64 = 1 << 20;

/// Longest wait for a condition.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Site {
    dir: TempDir,
    serving: Option<ArrayServer>,
}

impl Site {
    /// Creates a site without an array.
    pub fn empty() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            serving: None,
        }
    }

    /// Adds a device of `mib` MiB in its own directory. The array must not be served.
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

    /// Serves the array and exports some of its volumes, and all volumes that are created later.
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

    /// Serves the array with a configuration. Volumes that are created later are exported.
    pub fn serve_as(&mut self, config: ServerConfig) {
        self.try_serve_as(config).unwrap();
    }

    pub fn try_serve_as(&mut self, config: ServerConfig) -> Result<(), ServeError> {
        let serving = ArrayServer::start(&self.path("array"), config)?;
        serving.listen(&self.listen())?;
        self.serving = Some(serving);
        Ok(())
    }

    pub fn serving(&self) -> &ArrayServer {
        self.serving.as_ref().unwrap()
    }

    pub fn serving_mut(&mut self) -> &mut ArrayServer {
        self.serving.as_mut().unwrap()
    }

    /// Takes the server out of the site, for a test that stops it by itself.
    pub fn take_serving(&mut self) -> ArrayServer {
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

    /// Sends a request, by the control socket while the array is served.
    pub fn ask(&self, ask: ControlRequest) -> Result<ControlAnswer, String> {
        let reach = Reach::find(&self.path("array")).unwrap();
        reach.ask(ask).map_err(|why| why.to_string())
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
