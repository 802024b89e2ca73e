//! Queue of the rare events of a run, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::moving::MoveNo;
use crate::source::NEVER;

/// Rare event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A move continues at a time that it requested, usually for its next piece.
    MoveWake(MoveNo),
    /// A piece of a copy was read.
    CopyRead(MoveNo),
    /// A piece of a copy was written.
    CopyWritten(MoveNo),
    /// A request on a moving volume completes.
    Complete { volume: u32, entry: u32 },
    /// All requests issued before the relocation of a volume's batch are complete.
    Earlier { volume: u32 },
    /// A calibration window ends.
    Calibration { volume: u32, session: u64 },
    /// An operator gives an order.
    Operator(u32),
    /// The agent's process ends.
    AgentLost,
    /// An agent starts again.
    AgentBack,
    /// A delayed report reaches the controller.
    LateReport(u32),
    /// The throttle admits a request of a limited volume.
    Admitted { volume: u32 },
    /// The limit of a volume expires, unless it was renewed.
    LimitOver { volume: u32 },
    /// An appliance has an event.
    Answer(u32),
    /// A reply reaches a link.
    AtLink(u32),
    /// A link that volumes share by turns has sent a reply. The number is that of the server.
    LinkSent(u16),
    /// A reply reaches its guest.
    Answered(u32),
    /// A warm-up continues its reads.
    WarmUp(u32),
    /// Mirrored extents are selected again.
    Mirrors,
    /// The share of reads for second copies is adjusted.
    MirrorLook,
    /// A measurement window ends.
    Window,
}
impl Event {
    /// Returns the order of events at the same time. A window follows all events that belong to it.
    fn rank(self) -> u8 {
        match self {
            Event::Window => 1,
            _ => 0,
        }
    }
}

/// Rare events, ordered by time, then by rank, then by arrival.
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
