//! Identity of processes, which distinguishes a process from later ones with the same id.

use std::fs;

/// Identity of one process. A later process with the same id has another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pid: i32,
    /// Start of the process in ticks since the host's boot.
    began: u64,
}

impl Life {
    /// Returns the identity of a running process; `None` if it has ended.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of a process may contain any characters, including parentheses.
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
