//! Shell completions and manual pages that the program writes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::run::{err, out, terrace};

fn script(shell: &str) -> String {
    let output = terrace(Path::new("/"), &["completion", shell]);
    assert!(output.status.success(), "{}", err(&output));
    out(&output)
}

/// Returns the completions that bash offers for the last of these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let line = words.join(" ");
    let ask = format!(
        "{script}
complete -p terrace >&2 || exit 1
COMP_WORDS=({line}) COMP_CWORD={} COMP_LINE='{line}' COMP_POINT={}
_terrace terrace '{}' '{}'
printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.len() - 1,
        line.len(),
        words[words.len() - 1],
        words[words.len() - 2]
    );
    let mut bash = Command::new("bash")
        .args(["--norc", "--noprofile"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = bash.stdin.take().unwrap();
    stdin.write_all(ask.as_bytes()).unwrap();
    drop(stdin);
    let output = bash.wait_with_output().unwrap();
    let said = err(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.starts_with("complete ")
            && said.ends_with(" -F _terrace terrace\n")
            && said.lines().count() == 1,
        "{said}"
    );
    out(&output).lines().map(Into::into).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    if !testkit::needs::programs(&["bash"]) {
        return;
    }
    let script = script("bash");
    let offered = |words: &[&str]| offered(&script, words);
    assert_eq!(offered(&["terrace", "stat"]), ["status"]);
    assert_eq!(offered(&["terrace", "volume", "exp"]), ["export"]);
    assert_eq!(
        offered(&["terrace", "volume", "export", "--vh"]),
        ["--vhost-user"]
    );
    assert_eq!(
        offered(&["terrace", "volume", "export", "--io", "io"]),
        ["io-uring"]
    );
}

#[test]
fn zsh_and_fish_completions_are_generated() {
    assert!(script("zsh").starts_with("#compdef terrace\n"));
    let fish = script("fish");
    assert!(fish.contains("complete -c terrace ") && fish.contains("vhost-user"));
    for (shell, check) in [("zsh", "zsh"), ("fish", "fish")] {
        if testkit::needs::programs(&[check]) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("script");
            fs::write(&path, script(shell)).unwrap();
            let checked = Command::new(check).arg("-n").arg(&path).output().unwrap();
            assert!(checked.status.success(), "{shell}: {}", err(&checked));
        }
    }
    let unknown = terrace(Path::new("/"), &["completion", "tcsh"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = terrace(Path::new("/"), &["man", path]);
    assert!(output.status.success(), "{}", err(&output));
    for page in [
        "terrace",
        "terrace-serve",
        "terrace-volume",
        "terrace-volume-export",
        "terrace-array-backup",
        "terrace-completion",
    ] {
        let text = fs::read_to_string(dir.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1 ")), "{page}: {text}");
        assert!(text.contains("terrace 0."), "{page} names the version");
    }
    let export = fs::read_to_string(dir.path().join("terrace-volume-export.1")).unwrap();
    let export = export.replace("\\-", "-");
    for words in ["terrace volume export", "--vhost-user", "TERRACE_ARRAY"] {
        assert!(export.contains(words), "{words}: {export}");
    }
    // The command is hidden: it is only for package builders.
    assert!(!dir.path().join("terrace-man.1").exists());
    assert!(!out(&terrace(Path::new("/"), &["--help"])).contains("\n  man "));

    let nowhere = terrace(Path::new("/"), &["man", "/nowhere"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(err(&nowhere).contains("cannot write /nowhere/terrace"));
    if !testkit::needs::programs(&["man"]) {
        return;
    }
    let mut pages: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert!(pages.len() > 80, "{} pages", pages.len());
    let read = Command::new("man")
        .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-P", "cat"])
        .args(pages.iter_mut().map(|p| p.as_mut().unwrap().path()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", err(&read));
    assert_eq!(err(&read), "", "warnings");
}
