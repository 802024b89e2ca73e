//! Requirements of tests that not every machine fulfils.

use std::process::{Command, Stdio};

/// Environment variable with the requirements that this machine fulfils, separated by blanks, such as
/// `TERRACE_HAS="root nbdkit fio"`. A test that needs one of these then fails instead of being skipped.
pub const HAS: &str = "TERRACE_HAS";

/// Reports that a test is skipped, and its requirement.
///
/// # Panics
/// [`HAS`] lists the requirement.
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

/// Returns true if all of these programs are installed. Otherwise it reports a missing one with [`skipped`].
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
