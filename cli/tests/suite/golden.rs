//! Golden scenarios: the exact output of the tool for small arrays. `cargo insta review` shows the differences.

use std::fs;
use std::path::Path;

use crate::run::{err, out, terrace};

fn stdout_of(dir: &Path, args: &[&str]) -> String {
    let output = terrace(dir, args);
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    out(&output)
}

/// Returns the comparison, then the reason for the tier of each of `volumes`, under each strategy.
fn story(scenario: &str, questions: &[&[&str]]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scenarios")
        .join(scenario);
    fs::copy(source, dir.path().join(scenario)).unwrap();
    let mut text = stdout_of(dir.path(), &["sim", "compare", scenario]);
    for question in questions {
        text += &format!(
            "\n$ terrace {}\n{}",
            question.join(" "),
            stdout_of(dir.path(), question)
        );
    }
    // Ignores trailing blanks of tables.
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn full_tiers() {
    insta::assert_snapshot!(story(
        "full-tiers.toml",
        &[&["why", "busy"], &["why-not", "idle", "--tier", "fast"]]
    ));
}

#[test]
fn rules() {
    insta::assert_snapshot!(story(
        "rules.toml",
        &[
            &["why-not", "pinned", "--tier", "fast", "--strategy", "idt"],
            &["why-not", "too-big", "--tier", "fast", "--strategy", "idt"],
            &[
                "why-not",
                "too-big",
                "--tier",
                "middle",
                "--strategy",
                "idt"
            ],
            &["why-not", "left", "--tier", "fast", "--strategy", "idt"],
            &[
                "why-not",
                "over-budget",
                "--tier",
                "fast",
                "--strategy",
                "idt"
            ],
            &["why", "over-budget", "--strategy", "static"],
        ]
    ));
}

#[test]
fn extents() {
    insta::assert_snapshot!(story(
        "extents.toml",
        &[
            &["why", "hot", "--strategy", "hourly"],
            &["why", "warm", "--strategy", "halves"],
            &[
                "why-not",
                "pinned",
                "--tier",
                "fast",
                "--strategy",
                "hourly"
            ],
        ]
    ));
}
