//! Asks a controller, as the command line and agents do: one blocking call per route, over its unix socket or TLS.
//!
//! ```text
//!  Client::status() ──▶ GET /v1/status ──▶ unix:/run/terrace/controller.sock    or    https://host:9443
//!  StatusView       ◀── JSON           ◀──
//! ```
//!
//! What goes over the wire are the words of `manager`, and the few bodies of orders in [`body`]. A connection is kept and used
//! again, so that an agent shakes hands once and not every window. Everything ends after a time; see the constants of
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
