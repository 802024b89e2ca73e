//! Kinds of I/O requests, and the choice between direct I/O and the page cache.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Use of direct I/O, which bypasses the host's page cache, on a file or block device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectIo {
    /// Choice by a measurement when the device is opened.
    Auto,
    /// Direct I/O.
    On,
    /// I/O through the page cache.
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
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "auto" => Ok(DirectIo::Auto),
            "on" => Ok(DirectIo::On),
            "off" => Ok(DirectIo::Off),
            _ => Err(ModelError::DirectIo(text.into())),
        }
    }
}

/// Kind of an I/O request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Op {
    /// Transfer of data to the guest.
    Read = 0,
    /// Transfer of data from the guest.
    Write = 1,
    /// Release of a range that the guest no longer needs (discard, unmap).
    Trim = 2,
    /// Flush: makes all acknowledged writes durable; has no range.
    Flush = 3,
}

impl Op {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];

    /// Returns the kind with this number; `None` if the number is invalid.
    #[inline]
    pub fn from_u8(n: u8) -> Option<Op> {
        Op::ALL.get(n as usize).copied()
    }
}
