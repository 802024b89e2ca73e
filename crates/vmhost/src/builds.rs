//! Which builds of QEMU may copy a disk that somebody writes to: what is known to damage data, with its source, and what was tested.

use std::fmt;

/// A version of QEMU, by its three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build {
    /// Of every spring.
    pub major: u32,
    /// Of its three releases a year.
    pub minor: u32,
    /// Of its stable branch.
    pub micro: u32,
}

impl Build {
    const fn new(major: u32, minor: u32, micro: u32) -> Self {
        Self {
            major,
            minor,
            micro,
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// A fault of mirrors.
struct Fault {
    /// The builds that have it: the first, and the first that has not.
    builds: (Build, Build),
    what: &'static str,
}

const FAULTS: [Fault; 1] = [Fault {
    builds: (Build::new(8, 0, 0), Build::new(11, 0, 0)),
    what: "a mirror may lose writes at its start without anybody noticing (QEMU issue 3273, mended by commit 167ef239 in 2026; whether this build has that is not known)",
}];

/// The oldest build that was tested.
const TESTED: Build = Build::new(7, 2, 0);
/// The first of which nobody knows anything.
const UNKNOWN: Build = Build::new(8, 0, 0);

/// Whether a build may copy disks that are written to.
///
/// # Errors
/// Why not.
pub fn check(build: Build) -> Result<(), String> {
    let affected = |f: &&Fault| build >= f.builds.0 && build < f.builds.1;
    if let Some(fault) = FAULTS.iter().find(affected) {
        return Err(format!("with QEMU {build} {}", fault.what));
    }
    match build {
        b if b < TESTED => Err(format!(
            "QEMU {b} is older than {TESTED}, the oldest that was tested"
        )),
        b if b >= UNKNOWN => Err(format!("QEMU {b} was not tested")),
        _ => Ok(()),
    }
}

/// The build in what `virsh version` says.
pub fn of_virsh(text: &str) -> Option<Build> {
    let mut lines = text.lines();
    let words = lines.find_map(|l| l.trim().strip_prefix("Running hypervisor: QEMU "))?;
    let mut numbers = words.trim().split('.').map(str::parse::<u32>);
    let mut number = || numbers.next()?.ok();
    Some(Build::new(number()?, number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_tested_and_has_no_known_fault_copies() {
        let text = "Compiled against library: libvirt 9.0.0\nRunning hypervisor: QEMU 7.2.22\n";
        assert_eq!(of_virsh(text), Some(Build::new(7, 2, 22)));
        assert_eq!(of_virsh("Running hypervisor: QEMU seven"), None);
        assert_eq!(check(Build::new(7, 2, 22)), Ok(()));
        for (build, said) in [
            (Build::new(6, 2, 0), "older than 7.2.0"),
            (Build::new(8, 0, 0), "issue 3273"),
            (Build::new(10, 2, 1), "issue 3273"),
            (Build::new(11, 0, 0), "was not tested"),
        ] {
            let why = check(build).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
