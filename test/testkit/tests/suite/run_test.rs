//! Tests of `run-test`, the runner of test programs, with scripts that act like libtest programs.

#![expect(
    clippy::disallowed_methods,
    reason = "the script under test runs programs from files"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Writes a program to `deps/`, the directory in which cargo puts test programs.
fn program(dir: &Path, script: &str) -> PathBuf {
    let deps = dir.join("deps");
    std::fs::create_dir_all(&deps).unwrap();
    let path = deps.join("suite-0123");
    std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn run(program: &Path, environment: &[(&str, &str)]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run-test");
    let mut command = Command::new(script);
    command.arg(program).env_remove("NEXTEST");
    command.envs(environment.iter().copied());
    loop {
        let out = command.output().unwrap();
        // A child of another test may have inherited the file while it was open for writing.
        if !text(&out.stderr).contains("Text file busy") {
            return out;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn program_that_ends_keeps_its_output_and_status() {
    let dir = tempfile::tempdir().unwrap();
    for limit in [&[][..], &[("NEXTEST", "1")]] {
        let path = program(dir.path(), "echo out; echo err >&2; exit 7");
        let out = run(&path, limit);
        assert_eq!(out.status.code(), Some(7));
        assert_eq!(
            (text(&out.stdout), text(&out.stderr)),
            ("out\n".into(), "err\n".into())
        );
    }
}

#[test]
fn test_over_its_limit_is_named_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    // The other tests keep printing, as under libtest.
    let script = "echo 'test a::quick ... ok'
echo 'test a::slow_but_ends has been running for over 60 seconds'
echo 'test a::hangs has been running for over 60 seconds'
echo 'test a::slow_but_ends ... ok'
while :; do echo more; sleep 0.1; done";
    let path = program(dir.path(), script);
    let out = run(&path, &[("TERRACE_TEST_LIMIT", "62")]);
    assert!(!out.status.success());
    let said = text(&out.stderr);
    assert!(said.contains("HANGS: test a::hangs of "), "{said}");
    assert!(!said.contains("slow_but_ends"), "{said}");
}

#[test]
fn single_hanging_test_is_named_and_ended_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "sleep 1000 & echo $! >\"$(dirname \"$0\")/child\"; printf 'test b::hangs ... '; wait";
    let path = program(dir.path(), script);
    let out = run(&path, &[("TERRACE_TEST_LIMIT", "2")]);
    assert!(!out.status.success());
    let said = text(&out.stderr);
    assert!(said.contains("HANGS: test b::hangs of "), "{said}");
    // Both processes are listed, and none is left.
    assert!(said.contains("sleep 1000"), "{said}");
    let child = std::fs::read_to_string(path.with_file_name("child")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
    assert!(stat.is_err() || stat.is_ok_and(|s| s.contains(") Z ")));
}

#[test]
fn non_test_program_is_executed_directly() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run-test");
    let mut command = Command::new(script);
    let out = command
        .args(["/bin/sh", "-c", "echo $0; exit 3", "me"])
        .output();
    let out = out.unwrap();
    assert_eq!(
        (out.status.code(), text(&out.stdout)),
        (Some(3), "me\n".into())
    );
}
