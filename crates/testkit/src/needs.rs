//! Tests that need something that not every machine has.

use std::process::{Command, Stdio};

/// The variable that says what this machine has, in words: there a test that needs one of them fails instead of being skipped.
/// `TERRACE_HAS="root nbdkit fio"`.
pub const HAS: &str = "TERRACE_HAS";

/// Says that a test is skipped, and what it needs.
///
/// # Panics
/// Where [`HAS`] has that.
pub fn skipped(needs: &str) {
    #[expect(
        clippy::disallowed_methods,
        reason = "what a machine has, only it can say"
    )]
    let has = std::env::var(HAS).unwrap_or_default();
    let promised = has.split_whitespace().any(|word| word == needs);
    assert!(!promised, "{HAS} lists {needs}, which is not available");
    eprintln!("skipped: needs {needs}");
}

/// Whether all of these programs are installed; else [`skipped`] says which is not.
pub fn programs(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !is_installed(name));
    missing.inspect(|name| skipped(name)).is_none()
}

fn is_installed(name: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("command -v {name}")]);
    let found = command.stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
