//! Reason for the failure of another program, from its error output.

/// Longest reason in bytes. Protects messages and the store from a program with much output.
const REASON_BYTES_MAX: usize = 1024;

/// Joins all lines of a program's error output without repetitions; `None` if it has no lines.
pub fn reason(errors: &str) -> Option<String> {
    let mut reason = String::new();
    for line in errors.lines().map(str::trim) {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        if line.is_empty() || reason.contains(line) {
            continue;
        }
        if !reason.is_empty() {
            reason += "; ";
        }
        reason += line;
        if reason.len() > REASON_BYTES_MAX {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            reason += "…";
            break;
        }
    }
    (!reason.is_empty()).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_several_lines_is_joined_and_length_limited() {
        let virsh = "error: failed to connect to the hypervisor\n\
                     error: no connection driver available for foo:///x\n\
                     error: failed to connect to the hypervisor\n";
        let expected =
            "failed to connect to the hypervisor; no connection driver available for foo:///x";
        assert_eq!(reason(virsh).as_deref(), Some(expected));
        assert_eq!(reason("\n \n"), None);
        let long = (0..4000).map(|n| format!("ä {n}\n")).collect::<String>();
        let long = reason(&long).unwrap();
        assert!(long.len() <= REASON_BYTES_MAX + "…".len() && long.ends_with('…'));
    }
}
