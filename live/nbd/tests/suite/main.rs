//! Integration tests of this crate in one program.

mod client;
mod common;
mod robustness;
mod server;
mod starttls;
mod transmission;
mod uri;
