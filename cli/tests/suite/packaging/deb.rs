//! Checks of the built Debian package before its installation.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{err, out};

/// Programs that the build and the inspection of a package need.
pub const BUILD: [&str; 4] = ["dpkg-deb", "strip", "readelf", "gzip"];

/// Builds a package of the tested program.
pub fn build(into: &Path, version: &[&str]) -> PathBuf {
    let script = super::root().join("packaging/deb/build.sh");
    let output = Command::new(script)
        .args(["-Z", "none", "-p", env!("CARGO_BIN_EXE_terrace"), "-o"])
        .arg(into)
        .args(version)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    out(&output).trim_end().into()
}

fn dpkg_deb(args: &[&str], package: &Path) -> String {
    let output = Command::new("dpkg-deb").args(args).arg(package).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    out(&output)
}

/// Returns the files and directories below `dir`, relative to it and sorted.
fn files(dir: &Path) -> Vec<String> {
    let found = Command::new("find")
        .current_dir(dir)
        .args(["-mindepth", "1", "-type", "f", "-printf", "%P\\n"])
        .output();
    let mut files: Vec<String> = out(&found.unwrap()).lines().map(Into::into).collect();
    files.sort();
    files
}

#[test]
fn package_has_exactly_the_expected_files() {
    if !testkit::needs::programs(&BUILD) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let package = build(dir.path(), &["1:2.3.4-5"]);
    let name = package.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("terrace_2.3.4-5_"), "{name}");
    let root = dir.path().join("root");
    let raw = Command::new("dpkg-deb")
        .arg("-R")
        .args([&package, &root])
        .status();
    assert!(raw.unwrap().success());
    let files = files(&root);
    let pages = |f: &&String| f.starts_with("usr/share/man/man1/terrace") && f.ends_with(".1.gz");
    assert!(files.iter().filter(pages).count() > 80);
    let others: Vec<_> = files.iter().filter(|f| !pages(f)).collect();
    assert_eq!(
        others,
        [
            "DEBIAN/conffiles",
            "DEBIAN/control",
            "DEBIAN/md5sums",
            "DEBIAN/postinst",
            "DEBIAN/postrm",
            "DEBIAN/prerm",
            "etc/default/terrace",
            "etc/needrestart/conf.d/terrace.conf",
            "etc/terrace/terrace.toml",
            "usr/bin/terrace",
            "usr/lib/systemd/system/terrace-agent.service",
            "usr/lib/systemd/system/terrace-cache-node.service",
            "usr/lib/systemd/system/terrace-export.service",
            "usr/lib/systemd/system/terrace.service",
            "usr/lib/sysusers.d/terrace.conf",
            "usr/share/bash-completion/completions/terrace",
            "usr/share/doc/terrace/changelog.Debian.gz",
            "usr/share/doc/terrace/changelog.gz",
            "usr/share/doc/terrace/copyright",
            "usr/share/doc/terrace/examples/grafana/terrace.json",
            "usr/share/doc/terrace/examples/prometheus/alerts.yml",
            "usr/share/doc/terrace/examples/systemd/machines.conf",
            "usr/share/doc/terrace/examples/terrace.toml",
            "usr/share/fish/vendor_completions.d/terrace.fish",
            "usr/share/zsh/vendor-completions/_terrace",
        ]
    );
    for file in &files {
        let programs = ["usr/bin/terrace", "DEBIAN/p"];
        let is_program = programs.iter().any(|p| file.starts_with(p));
        let mode = fs::metadata(root.join(file)).unwrap().mode() & 0o7777;
        assert_eq!(mode, if is_program { 0o755 } else { 0o644 }, "{file}");
    }
    // Everything belongs to root, in directories that every user may read.
    for line in dpkg_deb(&["-c"], &package).lines() {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(owner, "root/root", "{line}");
        let directory = mode.starts_with('d');
        assert!(!directory || mode == "drwxr-xr-x", "{line}");
    }
    assert_eq!(
        fs::read_to_string(root.join("DEBIAN/conffiles")).unwrap(),
        "/etc/default/terrace\n/etc/needrestart/conf.d/terrace.conf\n/etc/terrace/terrace.toml\n"
    );
    let sums = Command::new("md5sum")
        .args(["--check", "--quiet", "DEBIAN/md5sums"])
        .current_dir(&root)
        .status();
    assert!(sums.unwrap().success());

    let field = |name: &str| {
        let control = fs::read_to_string(root.join("DEBIAN/control")).unwrap();
        let line = control.lines().find_map(|l| {
            let (key, value) = l.split_once(": ")?;
            (key == name).then(|| value.to_owned())
        });
        line.unwrap_or_else(|| panic!("no {name}: {control}"))
    };
    assert_eq!(field("Version"), "1:2.3.4-5");
    let depends = field("Depends");
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
    // Only TLS with pre-shared keys needs a library of the system.
    let psk = cfg!(feature = "psk");
    assert_eq!(depends.contains("libssl"), psk, "{depends}");
    assert!(depends.ends_with(", systemd | systemd-standalone-sysusers | systemd-sysusers"));
    let kib: u64 = field("Installed-Size").parse().unwrap();
    let program = fs::metadata(root.join("usr/bin/terrace")).unwrap().len();
    assert!((1..1 << 13).contains(&(kib - program / 1024)), "{kib}");

    let changelog = Command::new("zcat")
        .arg(root.join("usr/share/doc/terrace/changelog.Debian.gz"))
        .output();
    let changelog = out(&changelog.unwrap());
    assert!(changelog.starts_with("terrace (1:2.3.4-5) unstable; urgency=medium\n\n  * "));
    let copyright = fs::read_to_string(root.join("usr/share/doc/terrace/copyright")).unwrap();
    assert!(copyright.contains("\nLicense: Expat\n Permission is hereby granted"));
    for script in ["postinst", "prerm", "postrm"] {
        let path = root.join("DEBIAN").join(script);
        let checked = Command::new("sh").arg("-n").arg(&path).status();
        assert!(checked.unwrap().success(), "{script}");
        let wrong = Command::new("sh").arg(&path).arg("nonsense").output();
        assert_eq!(wrong.unwrap().status.code(), Some(1), "{script}");
    }
}

#[test]
fn package_builds_are_reproducible() {
    if !testkit::needs::programs(&BUILD) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|d| dir.path().join(d));
    // A program with other times and modes, built with another umask at another time.
    let program = dir.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_terrace"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let first = build(&one, &[]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let again = Command::new("sh")
        .args(["-c", "umask 077; exec \"$@\"", "sh"])
        .arg(super::root().join("packaging/deb/build.sh"))
        .args(["-Z", "none", "-p"])
        .arg(&program)
        .arg("-o")
        .arg(&other)
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "Asia/Tokyo")
        .env("TERRACE_ARRAY", "/elsewhere")
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", err(&again));
    let second = PathBuf::from(out(&again).trim_end());
    assert_eq!(first.file_name(), second.file_name());
    let version = format!("terrace_{}-1_", env!("CARGO_PKG_VERSION"));
    let name = first.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&version), "{name}");
    assert!(
        fs::read(&first).unwrap() == fs::read(&second).unwrap(),
        "the packages differ"
    );
}

#[test]
fn invalid_package_arguments_are_refused() {
    if !testkit::needs::programs(&BUILD) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let output = Command::new(super::root().join("packaging/deb/build.sh"))
            .args(["-p", env!("CARGO_BIN_EXE_terrace"), "-o"])
            .arg(dir.path())
            .args(args)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{args:?}");
        err(&output)
    };
    assert!(refused(&["version one"]).contains("version"));
    assert!(refused(&["1.0", "2.0"]).starts_with("usage: "));
    assert!(refused(&["-x"]).contains("usage: "));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
