//! Answers for the live manager: REST over a unix socket and TLS, metrics, and the web page.
//!
//! ```text
//!  terrace …  ══ unix socket, 0600 ═▶ ┐                                   ┌ questions and orders as JSON
//!  agents     ══ TLS, token ════════▶ ├ access ─▶ routes (one table) ─────┼ metrics
//!  browser    ══ TLS, session ══════▶ ┘              │                    └ page
//!                                                     ▼
//!                                    manager::service::Service behind a mutex
//! ```
//!
//! Nothing is decided here. A thread of its own runs the event loop; the service is called on a few blocking threads, one call
//! at a time, since every answer of it is committed before it is given. [`openapi`] is made from the table that also routes.

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
pub use reload::{Fresh, Reloader};
pub use server::{Clock, Running, StartError, TcpSettings};
