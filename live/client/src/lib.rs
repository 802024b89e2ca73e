//! Client of a controller for the command line and agents: one blocking call per route, over a unix socket or TLS.
//!
//! ```text
//!  Client::status() ──▶ GET /v1/status ──▶ unix:/run/terrace/controller.sock    or    https://host:9443
//!  StatusView       ◀── JSON           ◀──
//! ```
//!
//! Messages are types of `manager`, and the few request bodies in [`body`]. A connection is kept for later calls, so an
//! agent does not repeat the TLS handshake for each window. Each operation has a time limit; see the constants of
//! [`connection`].

pub mod address;
pub mod body;
mod calls;
pub mod connection;
mod error;
pub mod trust;

pub use address::Address;
pub use connection::{Answer, Client, Token};
pub use error::ClientError;
pub use trust::{Fingerprint, TlsTrust};
