//! Texts for operators: errors with their causes, unknown names.

use std::error::Error;

/// Returns the message of an error with its causes, each once: some errors quote their cause, others only link it.
pub fn explain(error: &dyn Error) -> String {
    let mut all = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !all.contains(&words) {
            all += &format!(": {words}");
        }
        source = cause.source();
    }
    all
}

/// Returns a word for a shell, quoted if necessary.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Lists names, or returns "none".
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "none".into(),
        names => names.join(", "),
    }
}

/// Returns the end of the message for an unknown name: the most similar known name, or all.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance = |k: &&'a str| (strsim::damerau_levenshtein(k, name), *k);
    let near = known.iter().map(distance).min();
    match near {
        Some((d, near)) if d <= 2.max(name.len() / 3) => format!(", did you mean {near:?}?"),
        None => "; none exist".into(),
        Some(_) => format!("; known: {}", known.join(", ")),
    }
}

/// Returns "1 connection of a guest is", or "2 connections of guests are".
pub(crate) fn guests(connections: usize, one: &str, more: &str) -> String {
    match connections {
        1 => format!("1 connection of a guest {one}"),
        n => format!("{n} connections of guests {more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DatapathError;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the map: {0}")]
    struct Quotes(#[source] std::io::Error);

    #[test]
    fn cause_is_printed_once() {
        let error = Quotes(std::io::Error::other("the disk is gone"));
        assert_eq!(explain(&error), "cannot read the map: the disk is gone");
    }

    #[test]
    fn shell_words_are_quoted_where_necessary() {
        assert_eq!(shell_word("/srv/disk-1.raw"), "/srv/disk-1.raw");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn unknown_name_suggests_a_similar_one() {
        let said = |name| DatapathError::unknown("tier", name, ["fast", "slow"]).to_string();
        assert_eq!(
            said("fats"),
            "unknown tier \"fats\", did you mean \"fast\"?"
        );
        assert_eq!(
            said("archive"),
            "unknown tier \"archive\"; known: fast, slow"
        );
        assert_eq!(
            DatapathError::unknown("volume", "x", []).to_string(),
            "unknown volume \"x\"; none exist"
        );
    }
}
