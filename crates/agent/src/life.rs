//! Processes, told apart from those that have their numbers later.

use std::fs;

/// A process, of which there is another one after its end, whatever its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pid: i32,
    /// In ticks since the host's boot.
    began: u64,
}

impl Life {
    /// The one of a process now; none if it has ended.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // A name may have anything in it, parentheses too.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?;
        let began = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, began })
    }

    pub(crate) fn goes_on(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    pub(crate) fn number(self) -> u32 {
        self.pid.cast_unsigned() ^ (self.began as u32).rotate_left(16)
    }
}
