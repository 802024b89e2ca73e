//! Plain language in all texts for users: the book, the README, the changelog, the help of every command, all messages, and the
//! descriptions of configurations and interfaces; and in the doc comments of all crates.
//!
//! Markers are words that often stand in place of a missing noun ("what waits" for "queued requests"). One marker is no fault; a
//! page with many has sentences that must be read twice. Readability formulas do not find them, since the words are short.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::needs;

use crate::messages;
use crate::support::crate_dirs;

/// Words that count by themselves.
const WORDS: [&str; 14] = [
    "what", "who", "whoever", "whom", "beside", "told", "tell", "tells", "said", "say", "says",
    "asked", "ask", "asks",
];
/// Pairs of words; each side lists alternatives.
const PAIRS: [(&[&str], &[&str]); 7] = [
    (&["is", "are", "was", "were"], &["there"]),
    (&["so"], &["that"]),
    (&["that"], &["which"]),
    (&["those"], &["that", "who"]),
    (&["go", "goes", "went"], &["on"]),
    (&["give", "gives", "given"], &["up"]),
    (&["of"], &["it", "them", "which", "those"]),
];

/// Markers per 1,000 words of a page, and of all pages together.
const PAGE_MAX: f64 = 6.0;
const ALL_MAX: f64 = 3.0;
/// Markers that a page may have however short it is.
const ALWAYS_ALLOWED: usize = 3;
const SENTENCE_WORDS_MAX: usize = 35;
const LINE_MAX: usize = 100;
/// Markers per 1,000 words of the doc comments of a crate.
const COMMENTS_MAX: f64 = 5.0;
/// Crates whose comments have not been rewritten. A crate leaves this list when they are; no crate may enter it.
const CRATES_NOT_REWRITTEN: &[&str] = &[];

/// Pages that have not been rewritten. A page leaves this list when it is; no page may enter it.
const NOT_REWRITTEN: &[&str] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Text without code blocks, code spans and targets of links.
fn prose(markdown: &str) -> String {
    let mut text = String::new();
    for (i, part) in markdown.split("```").enumerate() {
        if i % 2 == 0 {
            text += part;
        }
    }
    let spans = text.split('`').enumerate();
    let text: String = spans
        .map(|(i, part)| if i % 2 == 0 { part } else { "code" })
        .collect();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, target)) = rest.split_once("](") {
        out += before;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    out + rest
}

fn words(text: &str) -> Vec<String> {
    let separators = |c: char| !c.is_alphanumeric() && c != '-' && c != '\'';
    let words = text.split(separators).filter(|w| !w.is_empty());
    words.map(str::to_lowercase).collect()
}

fn markers(words: &[String]) -> Vec<String> {
    let single = words.iter().filter(|w| WORDS.contains(&w.as_str()));
    let pair = |two: &&[String]| {
        let is = |(a, b): &(&[&str], &[&str])| {
            a.contains(&two[0].as_str()) && b.contains(&two[1].as_str())
        };
        PAIRS.iter().any(is)
    };
    let pairs = words.windows(2).filter(pair).map(|two| two.join(" "));
    single.cloned().chain(pairs).collect()
}

/// Paragraphs, items and headings; tables are left out.
fn paragraphs(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for line in text.lines() {
        let line = line.trim();
        let number = line
            .split_once(". ")
            .is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        let begins =
            line.is_empty() || number || ["- ", "* ", "#", "|"].iter().any(|b| line.starts_with(b));
        if begins {
            out.push(String::new());
        }
        if !line.starts_with('|') {
            let last = out.last_mut().expect("there is one from the start");
            last.push_str(line);
            last.push(' ');
        }
    }
    out
}

fn long_sentences(text: &str) -> Vec<String> {
    let ends = [". ", "! ", "? ", ": ", "; "];
    let mut long = vec![];
    for paragraph in paragraphs(text) {
        let mut sentences = vec![paragraph];
        for end in ends {
            let parts = sentences
                .iter()
                .flat_map(|s| s.split(end).map(str::to_owned));
            sentences = parts.collect();
        }
        long.extend(
            sentences
                .into_iter()
                .filter(|s| s.split_whitespace().count() > SENTENCE_WORDS_MAX),
        );
    }
    long
}

fn pages() -> Vec<PathBuf> {
    let mut found = ["README.md", "CHANGELOG.md"]
        .map(|page| root().join(page))
        .to_vec();
    let mut open = vec![root().join("docs")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// Results that a program has written are data.
fn is_generated(page: &str) -> bool {
    page.starts_with("docs/results/reproductions/")
}

#[test]
fn pages_have_no_dialect() {
    let (mut faults, mut all_words, mut all_markers) = (vec![], 0, 0);
    for page in pages() {
        let name = name(&page);
        if is_generated(&name) || NOT_REWRITTEN.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let prose = prose(&text);
        let words = words(&prose);
        let found = markers(&words);
        all_words += words.len();
        all_markers += found.len();
        let allowed = ALWAYS_ALLOWED.max((PAGE_MAX * words.len() as f64 / 1000.0) as usize);
        if found.len() > allowed {
            faults.push(format!(
                "{name}: {} markers, {allowed} allowed: {}",
                found.len(),
                found.join(", ")
            ));
        }
        let long = long_sentences(&prose);
        faults.extend(
            long.iter()
                .map(|s| format!("{name}: more than {SENTENCE_WORDS_MAX} words: {}", s.trim())),
        );
        for (line, text) in outside_code(&text) {
            if text.chars().count() > LINE_MAX && !text.starts_with('|') {
                faults.push(format!("{name}:{line}: longer than {LINE_MAX} characters"));
            }
        }
    }
    for (name, text) in texts_of_the_program() {
        let words = words(&text);
        let found = markers(&words);
        all_words += words.len();
        all_markers += found.len();
        let rate = 1000.0 * found.len() as f64 / words.len() as f64;
        if rate > ALL_MAX {
            faults.push(format!(
                "{name}: {rate:.1} markers per 1,000 words, at most {ALL_MAX}: {}",
                found.join(", ")
            ));
        }
    }
    let rate = 1000.0 * all_markers as f64 / all_words as f64;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(
        rate <= ALL_MAX,
        "{rate:.1} markers per 1,000 words in all pages, at most {ALL_MAX}"
    );
}

/// Doc comments of all Rust files below a directory.
fn doc_comments(dir: &Path, out: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            doc_comments(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(str::trim_start);
            for line in lines {
                if let Some(comment) = line
                    .strip_prefix("///")
                    .or_else(|| line.strip_prefix("//!"))
                {
                    out.push_str(comment);
                    out.push('\n');
                }
            }
        }
    }
}

#[test]
fn comments_of_crates_have_no_dialect() {
    let mut faults = vec![];
    for dir in crate_dirs() {
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        doc_comments(&dir, &mut text);
        let words = words(&prose(&text));
        let rate = 1000.0 * markers(&words).len() as f64 / words.len().max(1) as f64;
        let listed = CRATES_NOT_REWRITTEN.contains(&name.as_str());
        if rate > COMMENTS_MAX && !listed {
            faults.push(format!(
                "{name}: {rate:.1} markers per 1,000 words, at most {COMMENTS_MAX}"
            ));
        } else if rate <= COMMENTS_MAX && listed {
            faults.push(format!(
                "{name}: {rate:.1} markers per 1,000 words: remove it from the list"
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Help of all commands, all messages, and the descriptions of configurations, scenarios and the REST interface.
fn texts_of_the_program() -> Vec<(&'static str, String)> {
    let help = include_str!("../../src/snapshots/terrace__tests__help.snap");
    let mut texts = vec![
        ("help", help.to_owned()),
        ("messages", messages::catalogue()),
    ];
    for name in ["live.schema.json", "scenario.schema.json", "openapi.json"] {
        let path = root().join("docs/reference").join(name);
        let document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut found = vec![];
        descriptions(&document, &mut found);
        assert!(found.len() > 100, "{name}: {} descriptions", found.len());
        texts.push((name, prose(&found.join("\n\n"))));
    }
    texts
}

fn descriptions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "description" || key == "summary" => {
                        found.push(text);
                    }
                    other => descriptions(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| descriptions(item, found)),
        _ => {}
    }
}

fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((number, line))
    })
}

#[test]
fn pages_listed_as_not_rewritten_exist() {
    for page in NOT_REWRITTEN {
        assert!(
            root().join(page).exists(),
            "{page} is gone: remove it from the list"
        );
    }
}

/// Words that hunspell's British dictionary does not have. A word with a digit is none.
fn unknown_words(text: &str) -> BTreeSet<String> {
    let mut hunspell = Command::new("hunspell")
        .args(["-l", "-d", "en_GB", "-i", "utf-8"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = hunspell.stdin.take().unwrap();
    let text = text.to_owned();
    let feeder = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let out = hunspell.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(out.status.success(), "hunspell lacks its dictionary en_GB");
    let words = String::from_utf8(out.stdout).unwrap();
    let words = words.lines().map(|w| w.strip_suffix("'s").unwrap_or(w));
    let is_word = |w: &&str| w.chars().count() > 1 && !w.contains(|c: char| c.is_ascii_digit());
    words.filter(is_word).map(str::to_owned).collect()
}

/// Terms of the field and names, one per line. A term that no page has any more leaves the file.
#[test]
fn pages_have_no_misspelled_words() {
    if !needs::programs(&["hunspell"]) {
        return;
    }
    let dictionary: BTreeSet<String> = include_str!("dictionary.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    let mut faults = vec![];
    let mut all = BTreeSet::new();
    for page in pages() {
        let name = name(&page);
        let text = prose(&fs::read_to_string(&page).unwrap());
        let found = unknown_words(&text);
        let unknown: Vec<&str> = found.difference(&dictionary).map(String::as_str).collect();
        if !unknown.is_empty() {
            faults.push(format!("{name}: {}", unknown.join(" ")));
        }
        all.extend(found);
    }
    assert!(
        faults.is_empty(),
        "misspelled, or missing in cli/tests/suite/dictionary.txt:\n{}",
        faults.join("\n")
    );
    let unused: Vec<&String> = dictionary.difference(&all).collect();
    assert!(unused.is_empty(), "in no page any more: {unused:?}");
    assert_eq!(unknown_words("A sentense about `code`.").len(), 1);
}

#[test]
fn prose_check_finds_dialect_and_long_sentences() {
    let text = "What waits is told to whoever asks, so that what is there goes on beside it.";
    let found = markers(&words(text));
    let expected = [
        "what", "told", "whoever", "asks", "what", "beside", "so that", "is there", "goes on",
    ];
    assert_eq!(found, expected);
    let plain = "Queued requests are reported to the caller. `terrace what` prints them.";
    assert!(markers(&words(&prose(plain))).is_empty());
    let long = "word ".repeat(SENTENCE_WORDS_MAX + 1);
    assert_eq!(long_sentences(&long).len(), 1);
    assert!(long_sentences("one two. three").is_empty());
}
