//! Words for operators: errors with their causes, names that are not known.

use std::error::Error;

/// An error and what caused it, each thing said once: some errors quote their cause, others leave it to their source.
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

/// A word for a shell, in quotes if it needs them.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Lists names, or says that there are none.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "none".into(),
        names => names.join(", "),
    }
}

/// Says that there is no such thing, and what was probably meant.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance = |k: &&'a str| (strsim::damerau_levenshtein(k, name), *k);
    let near = known.iter().map(distance).min();
    let known = match near {
        Some((d, near)) if d <= 2.max(name.len() / 3) => format!(", did you mean {near:?}?"),
        None => "; none exist".into(),
        Some(_) => format!("; known: {}", known.join(", ")),
    };
    format!("unknown {what} {name:?}{known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the map: {0}")]
    struct Quotes(#[source] std::io::Error);

    #[test]
    fn a_cause_is_said_once() {
        let error = Quotes(std::io::Error::other("the disk is gone"));
        assert_eq!(explain(&error), "cannot read the map: the disk is gone");
    }

    #[test]
    fn words_for_a_shell_are_quoted_where_it_would_split_or_expand_them() {
        assert_eq!(shell_word("/srv/disk-1.raw"), "/srv/disk-1.raw");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn what_was_meant() {
        let said = |name| unknown("tier", name, ["fast", "slow"]);
        assert_eq!(
            said("fats"),
            "unknown tier \"fats\", did you mean \"fast\"?"
        );
        assert_eq!(
            said("archive"),
            "unknown tier \"archive\"; known: fast, slow"
        );
        assert_eq!(
            unknown("volume", "x", []),
            "unknown volume \"x\"; none exist"
        );
    }
}
