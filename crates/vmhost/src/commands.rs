//! What an operator types.

use crate::volume_name;

/// A word, for a shell and for virsh's own.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What copies a running domain's disk to a file that is not there yet, with writes to both, and goes over to it.
pub fn block_copy(domain: &str, target: &str, file: &str, format: &str) -> String {
    format!(
        "virsh blockcopy {} {} {} --format {format} --transient-job --synchronous-writes --wait --verbose --pivot",
        quoted(domain),
        quoted(target),
        quoted(file),
    )
}

/// A domain and its disk's target, of a volume's name.
pub fn domain_and_target(volume: &str) -> Option<(&str, &str)> {
    let both = volume.rsplit_once(':')?;
    debug_assert_eq!(volume_name(both.0, both.1), volume);
    Some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("it's; echo"), "'it'\\''s; echo'");
        assert_eq!(domain_and_target("a:b:vda"), Some(("a:b", "vda")));
    }
}
