//! Which QEMU it is.

use std::fmt;

/// QEMU's version, as its greeting has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Major.
    pub major: u64,
    /// Minor.
    pub minor: u64,
    /// Micro.
    pub micro: u64,
    /// What its packager calls it, such as `Debian 1:7.2+dfsg-7`; may be empty.
    pub package: String,
}

impl Version {
    /// Whether it is that one or a later one.
    pub fn is_at_least(&self, major: u64, minor: u64) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)?;
        match self.package.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.package),
        }
    }
}
