//! Catalogue of messages: the texts that the program's source can print, one per line, in one file per review.
//!
//! A message is a string literal of at least three words outside tests. Texts of broken invariants (`panic!`,
//! `assert!`, `expect`) are left out, because they are not for operators. Arguments appear as `{}`.
//! `INSTA_UPDATE=always` accepts a change of words.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, str};

use crate::support::crate_dirs;

/// Crates that no user runs.
const WITHOUT_USERS: [&str; 4] = ["bench", "crashdisk", "exact", "testkit"];
/// Macros, methods and attributes whose texts are for developers.
const FOR_DEVELOPERS: [&str; 11] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "expect",
    "expect_err",
    "panic",
    "todo",
    "unimplemented",
    "unreachable",
];
const WORDS_MIN: usize = 3;

/// Token of Rust source.
enum Token<'a> {
    Word(&'a str),
    /// Content of a string literal, escapes included.
    Text(&'a str),
    Other(char),
}

/// Splits source into tokens without comments, blanks, characters and lifetimes.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (vec![], source);
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((content, length)) = text(rest) {
            out.push(Token::Text(content));
            length
        } else if c == '\'' {
            character(rest)
        } else if is_word(c) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            out.push(Token::Word(&rest[..length]));
            length
        } else {
            if !c.is_whitespace() {
                out.push(Token::Other(c));
            }
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    out
}

/// Returns the content of a string literal at the start of `source`, and its length in bytes.
fn text(source: &str) -> Option<(&str, usize)> {
    let after_prefix = source.strip_prefix(['b', 'c']).unwrap_or(source);
    let raw = after_prefix.strip_prefix('r');
    let after_r = raw.unwrap_or(after_prefix);
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let body = after_r[hashes..].strip_prefix('"')?;
    if hashes > 0 && raw.is_none() {
        return None;
    }
    let mut end = 0;
    let close = format!("\"{}", "#".repeat(hashes));
    while !body[end..].starts_with(&close) {
        let escape = raw.is_none() && body[end..].starts_with('\\');
        let mut step = body[end..].chars();
        end += step.next().expect("a literal has an end").len_utf8();
        end += if escape {
            step.next().map_or(0, char::len_utf8)
        } else {
            0
        };
    }
    let start = source.len() - body.len();
    Some((&body[..end], start + end + close.len()))
}

/// Returns the length of a character literal or of a lifetime.
fn character(source: &str) -> usize {
    let mut chars = source[1..].chars();
    let first = chars.next().map_or(0, char::len_utf8);
    if source[1..].starts_with('\\') {
        let end = source[3..].find('\'').expect("a character has an end");
        return 3 + end + 1;
    }
    if chars.next() == Some('\'') {
        1 + first + 1
    } else {
        1
    }
}

/// Returns the messages of one file in source order, as an operator reads them.
fn messages(source: &str) -> Vec<String> {
    let attribute = "#[cfg(test)]";
    let is_module = |at: &usize| {
        source[at + attribute.len()..]
            .trim_start()
            .starts_with("mod ")
    };
    let tests = source
        .match_indices(attribute)
        .map(|(at, _)| at)
        .find(is_module);
    let mut open: Vec<&str> = vec![];
    let (mut name, mut found) = ("", vec![]);
    for token in tokens(&source[..tests.unwrap_or(source.len())]) {
        match token {
            Token::Word(word) => name = word,
            Token::Other('!') => {}
            Token::Other('(' | '[' | '{') => open.push(std::mem::take(&mut name)),
            Token::Other(')' | ']' | '}') => _ = open.pop(),
            // #[expect(lint, reason = "…")]
            Token::Other('=') if name == "reason" => {}
            Token::Other(_) => name = "",
            Token::Text(text) => {
                let hidden = open.iter().any(|o| FOR_DEVELOPERS.contains(o)) || name == "reason";
                let text = plain(text);
                let words = text
                    .split(' ')
                    .filter(|w| w.chars().any(char::is_alphabetic));
                if !hidden && words.count() >= WORDS_MIN {
                    found.push(text);
                }
            }
        }
    }
    found
}

/// Returns a literal as one line without escapes, with `{}` for arguments.
fn plain(literal: &str) -> String {
    let mut out = String::new();
    let mut rest = literal;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => match rest.chars().next() {
                Some('\n') => rest = rest.trim_start(),
                Some('n' | 't' | 'r') => {
                    rest = &rest[1..];
                    out.push(' ');
                }
                Some(escaped) => {
                    rest = &rest[escaped.len_utf8()..];
                    out.push(escaped);
                }
                None => {}
            },
            '{' if rest.starts_with('{') => {
                rest = &rest[1..];
                out += "{{";
            }
            '{' => {
                rest = rest.split_once('}').map_or("", |(_, after)| after);
                out += "{}";
            }
            c => out.push(c),
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Finds the Rust files below a directory, except files and directories of tests.
pub fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns all messages, by crate.
pub fn catalogue() -> String {
    let mut out = String::new();
    for dir in crate_dirs() {
        let name = dir.file_name().unwrap().to_str().unwrap();
        if WITHOUT_USERS.contains(&name) {
            continue;
        }
        let mut files = vec![];
        sources(&dir.join("src"), &mut files);
        let texts = files.iter().map(|f| fs::read_to_string(f).unwrap());
        let mut all: Vec<String> = texts.flat_map(|text| messages(&text)).collect();
        all.sort();
        all.dedup();
        writeln!(out, "== {name}\n{}\n", all.join("\n")).unwrap();
    }
    out
}

#[test]
fn messages_are_worded_as_reviewed() {
    insta::assert_snapshot!(catalogue());
}

#[test]
fn literals_are_found_outside_comments_and_invariants() {
    let source = r##"
        // "a comment is no message"
        fn f<'a>(c: char, s: &'a str) {
            let quote = '"';
            bail!("volume {name:?} does not \
                   exist: {{here}}");
            note(r#"a "raw" text too"#);
            x.expect("this never happens here");
            assert!(y, "this never happens {z}");
            short("one two");
        }
        #[cfg(test)]
        mod tests { const T: &str = "no message of a user"; }
    "##;
    let found = messages(source);
    assert_eq!(
        found,
        ["volume {} does not exist: {{here}}", "a \"raw\" text too"]
    );
}
