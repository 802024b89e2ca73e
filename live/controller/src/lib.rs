//! Server of the live manager: REST over a unix socket and TLS, metrics, and the web page.
//!
//! ```text
//!  terrace …  ══ unix socket, 0600 ═▶ ┐                                   ┌ queries and orders as JSON
//!  agents     ══ TLS, token ════════▶ ├ access ─▶ routes (one table) ─────┼ metrics
//!  browser    ══ TLS, session ══════▶ ┘              │                    └ page
//!                                                     ▼
//!                                    manager::service::Service behind a mutex
//! ```
//!
//! This crate makes no decisions. One thread runs the event loop. A few blocking threads call the service, one call at a time,
//! because the service commits each change before it replies. [`openapi`] is generated from the table of routes.

mod access;
mod bodies;
mod call;
mod certificate;
mod dispatch;
mod exposition;
mod gate;
mod limits;
mod listen;
mod metrics;
mod openapi;
mod page;
mod problem;
mod reload;
mod routes;
mod server;
mod serving;
mod sessions;
mod tokens;

pub use access::Role;
pub use certificate::Certificate;
pub use limits::Limits;
pub use listen::check_socket;
pub use openapi::openapi;
pub use reload::{ReloadError, ReloadedConfig, Reloader};
pub use server::{Clock, RunningServer, StartError, TcpSettings};
pub use tokens::{LineFault, TokenError};
