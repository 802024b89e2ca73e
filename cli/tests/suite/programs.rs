//! External programs that `terrace` runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a command again while its file is busy: another test's forked child may still have the new file open.
fn run(command: &mut Command) -> Output {
    loop {
        match command.output() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            Ok(said) if String::from_utf8_lossy(&said.stderr).contains("Text file busy") => {}
            other => return other.unwrap(),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn reproduce_command_runs_a_separate_program() {
    let dir = tempfile::tempdir().unwrap();
    let terrace = dir.path().join("terrace");
    fs::copy(env!("CARGO_BIN_EXE_terrace"), &terrace).unwrap();
    let mut command = Command::new(&terrace);
    command
        .args(["reproduce", "dual-period", "--quick", "--help"])
        .env("PATH", dir.path());
    let said = run(&mut command);
    assert_eq!(said.status.code(), Some(1));
    let error = String::from_utf8(said.stderr).unwrap();
    assert!(error.contains("cargo build --release -p terrace-reproduce"));

    // The program receives the arguments as typed, and its exit code is that of the command.
    let program = dir.path().join("terrace-reproduce");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let said = run(&mut command);
    assert_eq!(said.status.code(), Some(3));
    assert_eq!(said.stdout, b"dual-period --quick --help\n");
}
