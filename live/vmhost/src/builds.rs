//! Builds of QEMU, and the decision whether they may copy a disk to which a guest writes.
//!
//! A build is a version, a package revision and a build-id, because distributions backport fixes
//! without a new version. The rules, in order:
//!
//! ```text
//!   qualification of this build-id found lost writes ─▶ refused
//!   passed qualification of this build-id            ─▶ allowed
//!   version with a known fault, package without fix  ─▶ refused
//!   version of a tested branch                       ─▶ allowed
//!   anything else                                    ─▶ refused: not tested
//! ```

mod id;

use std::fmt;

pub use id::BuildId;

use crate::{Disk, HostError};

/// Version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub micro: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32, micro: u32) -> Self {
        Self {
            major,
            minor,
            micro,
        }
    }

    /// Returns the version in a text such as `10.0.13`.
    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse::<u32>);
        let mut number = || numbers.next()?.ok();
        Some(Self::new(number()?, number()?, number()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// Largest number of characters of a package revision: a program may report any text.
const PACKAGE_CHARS_MAX: usize = 80;

/// Build of QEMU in which a guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    pub version: Version,
    /// Package revision as QEMU reports it, such as `Debian 1:10.0.13+ds-0+deb13u1` or `pve-qemu-kvm_10.2.1-2`; `None`
    /// if QEMU reports none.
    pub package: Option<String>,
    /// Build-id of its program; `None` if the program has none or cannot be read.
    pub id: Option<BuildId>,
    /// Result of `terrace host qualify` for this build-id and the agent's way to copy; `None` without a record.
    pub qualified: Option<Qualification>,
}

/// Result of a qualification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qualification {
    /// Enough copies under verified writes, none lost a write.
    Passed,
    /// Too few copies for a result.
    Undecided,
    /// A copy lost acknowledged writes, or QEMU crashed.
    Failed,
}

impl Build {
    /// Returns a build with the package revision as QEMU reports it, with or without parentheses.
    pub fn new(version: Version, package: &str) -> Self {
        let package = package.trim().trim_start_matches('(').trim_end_matches(')');
        let is_plain = package.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        let is_kept = is_plain && !package.is_empty() && package.len() <= PACKAGE_CHARS_MAX;
        Self {
            version,
            package: is_kept.then(|| package.into()),
            id: None,
            qualified: None,
        }
    }

    /// Returns the recorded fix of issue 3273 that the package carries.
    fn fix(&self) -> Option<&'static Fix> {
        let package = self.package.as_deref()?;
        FIXES.iter().find(|fix| fix.is_in(package, self.version))
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        match &self.package {
            Some(package) => write!(f, " ({package})"),
            None => Ok(()),
        }
    }
}

/// Versions in which a starting mirror may lose writes: QEMU issue 3273. Each range is from its first version to before
/// its second.
///
/// The fault was introduced by QEMU's commit 32125b14606a and fixed by 167ef239fbdc, which 10.0.9 and 10.2.2 contain.
/// `bench/hosts.sh` uses 10.0.2 as the control.
const AFFECTED: [(Version, Version); 2] = [
    (Version::new(8, 0, 0), Version::new(10, 0, 9)),
    (Version::new(10, 1, 0), Version::new(10, 2, 2)),
];

/// Packages of affected versions that carry the fix. An entry removes the known fault; it does not
/// make a build tested.
const FIXES: [Fix; 1] = [
    // Repository proxmox/pve-qemu, commit 63c5803edb04, debian/patches/extra/0008-mirror-Fix-
    // missed-dirty-bitmap-writes-during-startup.patch: "cherry picked from commit 167ef239fbdc".
    // It follows the update to 10.2.1, so the first package that must have it is the second one.
    Fix {
        package: "pve-qemu-kvm",
        version: Version::new(10, 2, 1),
        revision: 2,
    },
];

/// First package revision that carries the fix of issue 3273.
struct Fix {
    package: &'static str,
    version: Version,
    revision: u32,
}

impl Fix {
    /// Returns true if a package such as `pve-qemu-kvm_10.2.1-2` carries the fix.
    fn is_in(&self, package: &str, version: Version) -> bool {
        let rest = package.strip_prefix(self.package);
        let rest = rest.and_then(|r| r.strip_prefix('_'));
        let Some((number, revision)) = rest.and_then(|r| r.split_once('-')) else {
            return false;
        };
        let revision = revision.parse::<u32>();
        version == self.version
            && Version::of(number) == Some(version)
            && revision.is_ok_and(|r| r >= self.revision)
    }
}

/// Program or person that orders QEMU to copy a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyInitiator {
    /// The agent, through libvirt.
    Libvirt,
    /// The agent, through QMP.
    Us,
    /// An operator, with a printed command of libvirt.
    Person,
}

/// Tested branches, each from its first version to before its second.
///
/// Tested versions are 7.2.22, 10.0.13 and 11.1.3, under libvirt 9.0, 11.3 and 12.9: 120 starts each without a lost
/// write, and 60 pivots under writes with the later two. Kills during moves are tested under 7.2.22, and under 11.1.3
/// without libvirt; `bench/hosts.sh` repeats all tests on each branch.
const TESTED: [(Version, Version); 3] = [
    (Version::new(7, 2, 0), Version::new(8, 0, 0)),
    (Version::new(10, 0, 13), Version::new(10, 1, 0)),
    (Version::new(11, 1, 0), Version::new(11, 2, 0)),
];

/// Tested branches as text.
const TESTED_WORDS: &str = "7.2, 10.0 from 10.0.13 on, 11.1";

/// First version with tested limits of disks.
const LIMITS: Version = Version::new(7, 2, 0);

fn is_in(ranges: &[(Version, Version)], version: Version) -> bool {
    let mut ranges = ranges.iter();
    ranges.any(|(first, end)| version >= *first && version < *end)
}

/// Reason for which a build may not copy disks to which guests write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRefusal {
    pub cause: String,
    /// Advice for a host on which QEMU can be qualified.
    pub advice: String,
}

impl fmt::Display for CopyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.advice)
    }
}

/// Checks that a build may copy disks to which guests write.
///
/// # Errors
/// The reason against the build, with advice.
pub fn check(build: &Build) -> Result<(), CopyRefusal> {
    let refused = |cause: String, advice: String| Err(CopyRefusal { cause, advice });
    match build.qualified {
        Some(Qualification::Passed) => return Ok(()),
        Some(Qualification::Failed) => {
            return refused(
                format!("a copy by QEMU {build} failed in `terrace host qualify`"),
                "restart the domain on another build, or shut it off and convert the image".into(),
            );
        }
        Some(Qualification::Undecided) | None => {}
    }
    if is_in(&AFFECTED, build.version) && build.fix().is_none() {
        return refused(
            format!(
                "with QEMU {build} a copy may lose writes at its start without notice (QEMU issue 3273)"
            ),
            format!(
                "restart the domain on a tested build ({TESTED_WORDS}), or shut it off and convert the image; if the package has the fix, prove it with `terrace host qualify`"
            ),
        );
    }
    if is_in(&TESTED, build.version) {
        return Ok(());
    }
    let advice = match build.qualified {
        Some(_) => "the last `terrace host qualify` was undecided, so repeat it with more minutes",
        None => "test it on this host with `terrace host qualify`",
    };
    refused(
        format!("copies by QEMU {build} are not tested ({TESTED_WORDS} are)"),
        advice.into(),
    )
}

/// Checks that limits of disks are tested with a build. A fault of copies does not affect limits.
///
/// # Errors
/// [`HostError::UntestedLimits`].
pub fn check_limits(build: &Build) -> Result<(), HostError> {
    if build.version >= LIMITS {
        return Ok(());
    }
    Err(HostError::UntestedLimits {
        build: build.to_string(),
        least: LIMITS.to_string(),
    })
}

/// Returns true if the guest must not write while a copy of its disk begins.
///
/// With 7.2.22, a mirror with writes to both images lost one or two acknowledged blocks in 10 of 240 starts if the
/// target discards (in none of 239 if it does not). QEMU crashed in 23 of 24 starts of a disk with an iothread. Neither
/// happened in 200 starts without writes. QEMU's commit 32125b14606a fixed the crash but introduced issue 3273.
pub fn holds_at_start(disk: &Disk) -> bool {
    disk.unmap || disk.iothread
}

/// Returns the build in the first line of `qemu-system-x86_64 --version`.
pub fn of_program(text: &str) -> Option<Build> {
    let line = text.trim_start().lines().next()?;
    let rest = line.strip_prefix("QEMU emulator version ")?;
    let (version, package) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(Build::new(Version::of(version)?, package))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(version: &str, package: &str) -> Build {
        Build::new(Version::of(version).unwrap(), package)
    }

    #[test]
    fn program_version_and_package_are_parsed() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright …\n";
        let found = of_program(text).unwrap();
        assert_eq!(found.version, Version::new(7, 2, 22));
        assert_eq!(
            found.to_string(),
            "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"
        );
        assert_eq!(
            of_program("QEMU emulator version 11.1.3\n")
                .unwrap()
                .package,
            None
        );
        assert_eq!(build("10.0.2", "(\x1b[31m)").package, None);
        assert_eq!(build("10.0.2", &"x".repeat(81)).package, None);
        for text in ["QEMU emulator version seven", "ld.so 2.42", ""] {
            assert_eq!(of_program(text), None);
        }
    }

    #[test]
    fn copies_require_a_tested_branch_without_known_fault() {
        for version in ["7.2.22", "10.0.13", "10.0.14", "11.1.0", "11.1.3"] {
            assert_eq!(check(&build(version, "")), Ok(()), "{version}");
        }
        for (version, expected) in [
            ("6.2.0", "are not tested"),
            ("8.0.0", "issue 3273"),
            ("10.0.8", "issue 3273"),
            ("10.0.9", "are not tested"),
            ("10.0.12", "are not tested"),
            ("10.1.0", "issue 3273"),
            ("10.2.1", "issue 3273"),
            ("10.2.2", "are not tested"),
            ("11.0.0", "are not tested"),
            ("11.2.0", "are not tested"),
        ] {
            let why = check(&build(version, "")).unwrap_err().to_string();
            assert!(
                why.contains(expected) && why.contains("terrace host qualify"),
                "{version}: {why}"
            );
        }
    }

    #[test]
    fn package_with_the_fix_is_untested_instead_of_known_bad() {
        for (package, expected) in [
            ("pve-qemu-kvm_10.2.1-2", "are not tested"),
            ("(pve-qemu-kvm_10.2.1-11)", "are not tested"),
            ("pve-qemu-kvm_10.2.1-1", "issue 3273"),
            ("pve-qemu-kvm_10.2.0-3", "issue 3273"),
            ("pve-qemu-kvm_10.2.1-2+x", "issue 3273"),
            ("Debian 1:10.2.1-2", "issue 3273"),
        ] {
            let why = check(&build("10.2.1", package)).unwrap_err().cause;
            assert!(why.contains(expected), "{package}: {why}");
        }
        let older = check(&build("10.1.2", "pve-qemu-kvm_10.2.1-2"));
        let older = older.unwrap_err().cause;
        assert!(older.contains("issue 3273"), "{older}");
    }

    #[test]
    fn qualification_of_the_same_build_takes_precedence() {
        let with = |version, qualified| {
            let qualified = Some(qualified);
            let checked = check(&Build {
                qualified,
                ..build(version, "")
            });
            checked.map_err(|why| why.to_string())
        };
        assert_eq!(with("10.0.2", Qualification::Passed), Ok(()));
        assert_eq!(with("7.2.22", Qualification::Undecided), Ok(()));
        let why = with("10.0.13", Qualification::Failed).unwrap_err();
        assert!(why.contains("failed in `terrace host qualify`"), "{why}");
        let why = with("10.0.2", Qualification::Undecided).unwrap_err();
        assert!(why.contains("issue 3273"), "{why}");
        let why = with("11.0.0", Qualification::Undecided).unwrap_err();
        assert!(why.contains("repeat it with more minutes"), "{why}");
    }

    #[test]
    fn limits_are_evaluated_separately_from_copies() {
        assert_eq!(check_limits(&build("10.0.2", "")), Ok(()));
        let why = check_limits(&build("6.2.0", "")).unwrap_err();
        assert_eq!(
            why.to_string(),
            "limits of disks by QEMU 6.2.0 are not tested (7.2.0 and later are)"
        );
    }
}
