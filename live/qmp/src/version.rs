//! Version of QEMU.

use std::fmt;

/// QEMU's version from its greeting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Major version.
    pub major: u64,
    /// Minor version.
    pub minor: u64,
    /// Micro version.
    pub micro: u64,
    /// Package version, such as `Debian 1:7.2+dfsg-7`; may be empty.
    pub package: String,
}

impl Version {
    /// Returns true for this version or a later one.
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
