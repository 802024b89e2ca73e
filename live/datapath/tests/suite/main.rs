//! Integration tests of this crate, in one program.

mod crash;
mod devices;
mod direct;
mod evidence;
mod guards;
mod holds;
mod lease;
mod mirrors;
mod objectives;
mod old_states;
mod samples;
mod second;
mod snapshots;
mod stalled;
mod support;
mod tls;
mod vhost_user;
mod zeroes;
