//! Everything rare of a run, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::moving::MoveNo;
use crate::source::NEVER;

/// Something rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The time that a move asked for: mostly that of its next piece.
    MoveWake(MoveNo),
    /// A piece was read.
    CopyRead(MoveNo),
    /// A piece was written.
    CopyWritten(MoveNo),
    /// A request on a volume that is being moved is complete.
    Complete { volume: u32, entry: u32 },
    /// Every request that was issued before the relocation of a volume's batch began is complete.
    Earlier { volume: u32 },
    /// A calibration window ends.
    Calibration { volume: u32, session: u64 },
    /// An operator does something.
    Operator(u32),
    /// The agent's process ends.
    AgentLost,
    /// There is an agent again.
    AgentBack,
    /// A report that was late gets to the controller.
    LateReport(u32),
    /// A request of a volume that is limited may go.
    Admitted { volume: u32 },
    /// The limit of a volume ends by itself, unless there is a later one.
    LimitOver { volume: u32 },
    /// Something about an appliance is due.
    Answer(u32),
    /// An answer is at a link.
    AtLink(u32),
    /// A link that volumes take turns on has sent an answer, by server.
    LinkSent(u16),
    /// An answer is there.
    Answered(u32),
    /// A warm-up reads on.
    WarmUp(u32),
    /// Extents that get a second copy are chosen anew.
    Mirrors,
    /// How many reads go to second copies is looked at.
    MirrorLook,
    /// A measurement window ends.
    Window,
}
impl Event {
    /// Order of events at the same time: a window sees what ended in it.
    fn rank(self) -> u8 {
        match self {
            Event::Window => 1,
            _ => 0,
        }
    }
}

/// The rare events, in order of time and, at the same time, of rank and arrival.
#[derive(Default)]
pub(crate) struct Agenda {
    events: BinaryHeap<Reverse<(u64, u8, u64, Event)>>,
    next: u64,
}

impl Agenda {
    pub(crate) fn at(&mut self, time_ns: u64, event: Event) {
        self.events
            .push(Reverse((time_ns, event.rank(), self.next, event)));
        self.next += 1;
    }

    pub(crate) fn first_time(&self) -> u64 {
        self.events.peek().map_or(NEVER, |e| e.0.0)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.events
            .pop()
            .map(|Reverse((time, _, _, event))| (time, event))
    }
}
