//! Why another program failed, by its error output.

/// Longest reason in bytes. Protects messages and the store from a program that writes a lot.
const REASON_BYTES_MAX: usize = 1024;

/// All lines of a program's error output as one, without repetitions; `None` if there are none.
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
    fn every_line_of_a_reason_is_kept_within_a_limit() {
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
