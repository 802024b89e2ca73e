//! Common parts of the commands that send requests to a controller: its address, credentials, trust, and form of the output.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use client::{Address, Client, Fingerprint, TlsTrust, Token};
use manager::question::Done;
use units::Nanos;

use crate::live::{Form, OutputArg, message};

/// Socket of a controller that was started in this directory.
const SOCKET_HERE: &str = "terrace-state/controller.sock";
/// Environment variable with the address of the controller.
const CONTROLLER: &str = "TERRACE_CONTROLLER";
/// Environment variable with the fingerprint of the certificate to trust.
const FINGERPRINT: &str = "TERRACE_FINGERPRINT";
/// Socket of the controller that runs as a service of this machine.
const SOCKET_OF_SYSTEM: &str = "/run/terrace/controller.sock";

/// Which controller.
#[derive(Debug, Args)]
pub struct ControllerArg {
    /// The controller, unix:PATH or https://HOST:PORT [env: TERRACE_CONTROLLER] [default: terrace-state/controller.sock if
    /// it exists, else /run/terrace/controller.sock]
    #[arg(long, value_name = "ADDRESS", help_heading = "Controller")]
    controller: Option<Address>,
    #[command(flatten)]
    credentials: Credentials,
}

/// Who asks, and which controller to trust.
#[derive(Debug, Args)]
pub struct Credentials {
    /// File with the access token; not needed on a unix socket
    #[arg(
        long,
        value_name = "FILE",
        env = "TERRACE_TOKEN_FILE",
        help_heading = "Controller"
    )]
    token_file: Option<PathBuf>,
    /// Trust the certificate with this SHA-256, which `terrace serve` prints [env: TERRACE_FINGERPRINT, unless --ca is
    /// given]
    #[arg(
        long,
        value_name = "sha256:…",
        conflicts_with = "ca",
        help_heading = "Controller"
    )]
    fingerprint: Option<Fingerprint>,
    /// Trust certificates signed by a certificate in this PEM file
    #[arg(long, value_name = "FILE", help_heading = "Controller")]
    ca: Option<PathBuf>,
}

impl Credentials {
    /// Makes a client of the controller at an address. It sends no request yet.
    pub fn client(&self, address: Address) -> anyhow::Result<Client> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        let trust = match (&self.fingerprint, &self.ca, &address) {
            (Some(fingerprint), _, _) => TlsTrust::Fingerprint(*fingerprint),
            (None, Some(path), _) => TlsTrust::CaFile(path.clone()),
            // A unix socket has no certificate.
            (None, None, Address::Unix(_)) => TlsTrust::Nothing,
            (None, None, Address::Https { .. }) => match from_environment(FINGERPRINT)? {
                Some(fingerprint) => TlsTrust::Fingerprint(fingerprint),
                None => TlsTrust::Nothing,
            },
        };
        Ok(Client::new(address, token, trust)?)
    }
}

/// Parses an environment variable; an empty one counts as absent. Clap can read the variable too, but cannot distinguish it from the command
/// line, which takes precedence.
fn from_environment<T>(name: &str) -> anyhow::Result<Option<T>>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let Some(value) = env::var_os(name).filter(|v| !v.is_empty()) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .with_context(|| format!("{name} is not UTF-8"))?;
    let parsed = text.parse::<T>();
    parsed
        .map(Some)
        .with_context(|| format!("the environment variable {name}"))
}

/// Source of the address of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// Command line.
    Here,
    Environment,
    /// Default address.
    Nowhere,
}

impl ControllerArg {
    /// Returns the address of the controller and the source of the address.
    pub fn address(&self) -> anyhow::Result<(Address, AddressSource)> {
        if let Some(given) = &self.controller {
            return Ok((given.clone(), AddressSource::Here));
        }
        if let Some(address) = from_environment(CONTROLLER)? {
            return Ok((address, AddressSource::Environment));
        }
        let usual = match socket_here() {
            true => SOCKET_HERE,
            false => SOCKET_OF_SYSTEM,
        };
        Ok((Address::Unix(usual.into()), AddressSource::Nowhere))
    }

    /// Makes a client of the controller at the given address. It sends no request yet.
    pub fn client_at(&self, address: Address) -> anyhow::Result<Client> {
        self.credentials.client(address)
    }

    /// Makes a client of the controller. It sends no request yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_at(self.address()?.0)
    }
}

/// Returns true if a default socket of a controller exists.
pub fn usual_socket_is_there() -> bool {
    socket_here() || Path::new(SOCKET_OF_SYSTEM).exists()
}

fn socket_here() -> bool {
    Path::new(SOCKET_HERE).exists()
}

fn token(path: &Path) -> anyhow::Result<Token> {
    let secret = String::from_utf8_lossy(&secret::read(path)?).into_owned();
    Token::new(secret.trim()).with_context(|| format!("in {}", path.display()))
}

/// Which controller, and the form of its answer.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    #[command(flatten)]
    controller: ControllerArg,
    #[command(flatten)]
    pub output: OutputArg,
}

impl ControllerArgs {
    /// Makes a client of the controller. It sends no request yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.controller.client()
    }

    /// Prints the result of an action.
    pub fn done(&self, done: &Done) -> anyhow::Result<()> {
        match self.output.form() {
            Form::Table => {
                message(&done.message);
                Ok(())
            }
            Form::Json => self.output.print("terrace.done/1", done, |_| String::new()),
        }
    }
}

/// Returns the time of the controller's clock.
pub fn time(client: &mut Client) -> anyhow::Result<Nanos> {
    Ok(Nanos(client.status()?.at_ns))
}
