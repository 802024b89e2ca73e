//! What a guest asks of a volume.

use serde::{Deserialize, Serialize};

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
