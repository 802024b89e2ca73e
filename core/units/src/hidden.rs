//! Characters that change the display of the surrounding text on a terminal or page.

use std::borrow::Cow;

/// Returns true for control characters, line separators and characters that set the direction of
/// text. A name with one of them can look like another name, or hide a part of a command.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Returns the reason a text cannot be a name: the first character for which [`is_hidden`] is true.
pub fn hidden_fault(text: &str) -> Option<String> {
    let c = text.chars().find(|c| is_hidden(*c))?;
    let kind = match c.is_control() {
        true => "control character",
        false => "invisible formatting character",
    };
    Some(format!("contains the {kind} {}", c.escape_unicode()))
}

/// Returns the text with `\u{…}` for every character for which [`is_hidden`] is true.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_control_or_direction_characters_are_faults() {
        for good in ["db-main", "größe", "数据", "a b", "vm/disk.0", ""] {
            assert_eq!(hidden_fault(good), None, "{good}");
            assert_eq!(shown(good), good);
        }
        for bad in [
            "a\nb",
            "a\u{1b}[31m",
            "\u{0}",
            "\u{7f}",
            "\u{85}",
            "db\u{202e}nim",
        ] {
            assert!(hidden_fault(bad).is_some(), "{bad:?}");
        }
        for c in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{202a}', '\u{2066}', '\u{2069}',
        ] {
            assert!(is_hidden(c), "{}", c.escape_unicode());
        }
        let fault = hidden_fault("db\u{202e}nim").unwrap();
        assert_eq!(
            fault,
            "contains the invisible formatting character \\u{202e}"
        );
    }

    #[test]
    fn shown_text_names_each_hidden_character() {
        assert_eq!(shown("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
    }
}
