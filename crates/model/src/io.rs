//! What a guest asks of a volume.

use serde::{Deserialize, Serialize};

/// Whether I/O on a file or block device passes the host's page cache by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectIo {
    /// As is measured to be better when the device is opened.
    Auto,
    /// It does.
    On,
    /// It goes through the page cache.
    #[default]
    Off,
}

impl std::fmt::Display for DirectIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DirectIo::Auto => "auto",
            DirectIo::On => "on",
            DirectIo::Off => "off",
        })
    }
}

impl std::str::FromStr for DirectIo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DirectIo::Auto),
            "on" => Ok(DirectIo::On),
            "off" => Ok(DirectIo::Off),
            _ => Err(format!("{text:?} must be auto, on or off")),
        }
    }
}

/// The kind of one I/O request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Op {
    /// Data to the guest.
    Read = 0,
    /// Data from the guest.
    Write = 1,
    /// The guest no longer needs the range (discard, unmap).
    Trim = 2,
    /// All acknowledged writes become durable; carries no range.
    Flush = 3,
}

impl Op {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];

    /// From its number; `None` for a number that is no kind.
    #[inline]
    pub fn from_u8(n: u8) -> Option<Op> {
        Op::ALL.get(n as usize).copied()
    }
}
