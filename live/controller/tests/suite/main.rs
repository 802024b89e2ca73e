//! The tests of this crate, in one program.

mod http;
mod metrics;
mod openapi;
mod page;
mod reload;
mod socket;
mod support;
mod tls;
