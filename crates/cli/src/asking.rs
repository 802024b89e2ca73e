//! What the commands that ask a controller share: where it is, who asks, what is trusted, forms of output.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use client::{Address, Client, Fingerprint, TlsTrust, Token};
use manager::question::Done;
use units::Nanos;

use crate::live::{Form, OutputArg, message};

/// Where a controller that was started here has its socket.
const SOCKET_HERE: &str = "terrace-state/controller.sock";
/// Where the controller of this machine has its socket.
const SOCKET_OF_SYSTEM: &str = "/run/terrace/controller.sock";

/// Which controller.
#[derive(Debug, Args)]
pub struct ControllerArg {
    /// The controller, unix:PATH or https://HOST:PORT [default: terrace-state/controller.sock if it is there, else
    /// /run/terrace/controller.sock]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TERRACE_CONTROLLER",
        help_heading = "Controller"
    )]
    controller: Option<Address>,
    #[command(flatten)]
    credentials: Credentials,
}

/// Who asks, and which controller to trust.
#[derive(Debug, Args)]
pub struct Credentials {
    /// A file with the token that says who asks; not needed on a socket
    #[arg(
        long,
        value_name = "FILE",
        env = "TERRACE_TOKEN_FILE",
        help_heading = "Controller"
    )]
    token_file: Option<PathBuf>,
    /// Trust the certificate with this SHA-256, which `terrace serve` prints
    #[arg(
        long,
        value_name = "sha256:…",
        conflicts_with = "ca",
        help_heading = "Controller"
    )]
    fingerprint: Option<Fingerprint>,
    /// Trust certificates that one of this PEM file signed
    #[arg(long, value_name = "FILE", help_heading = "Controller")]
    ca: Option<PathBuf>,
}

impl Credentials {
    /// A client of the controller at an address. Nothing is asked yet.
    pub fn client(&self, address: Address) -> anyhow::Result<Client> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        let trust = match (&self.fingerprint, &self.ca) {
            (Some(fingerprint), _) => TlsTrust::Fingerprint(*fingerprint),
            (None, Some(path)) => TlsTrust::CaFile(path.clone()),
            (None, None) => TlsTrust::Nothing,
        };
        Ok(Client::new(address, token, trust)?)
    }
}

impl ControllerArg {
    /// Whether a controller was named.
    pub fn named(&self) -> bool {
        self.controller.is_some()
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        let usual = || match socket_here() {
            true => SOCKET_HERE,
            false => SOCKET_OF_SYSTEM,
        };
        let given = self.controller.clone();
        given.unwrap_or_else(|| Address::Unix(usual().into()))
    }

    /// A client. Nothing is asked yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.credentials.client(self.address())
    }
}

/// Whether a controller has a socket where one is looked for.
pub fn usual_socket_is_there() -> bool {
    socket_here() || Path::new(SOCKET_OF_SYSTEM).exists()
}

fn socket_here() -> bool {
    Path::new(SOCKET_HERE).exists()
}

fn token(path: &Path) -> anyhow::Result<Token> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Token::new(text.trim()).with_context(|| format!("in {}", path.display()))
}

/// Which controller, and the form of its answer.
#[derive(Debug, Args)]
pub struct Asking {
    #[command(flatten)]
    controller: ControllerArg,
    #[command(flatten)]
    pub output: OutputArg,
}

impl Asking {
    /// A client. Nothing is asked yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.controller.client()
    }

    /// Says what was done.
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

/// The controller's time.
pub fn time(client: &mut Client) -> anyhow::Result<Nanos> {
    Ok(Nanos(client.status()?.at_ns))
}
