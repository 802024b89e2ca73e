//! Tests that compare times, or that need most of the machine: a program of their own, so that no other test runs beside them.

mod agreement;
mod hostile;
mod kill;
mod limits;
mod machines;
mod qemu;
#[path = "../suite/support/mod.rs"]
mod support;
mod takeover;
mod vhost_user;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test, so that none takes the processors from another one.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
