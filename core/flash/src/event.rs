//! Reference model of the drive, with an event queue: every page, transfer, copy and erase waits in its own queue.
//!
//! It is slow and allocates. Its only use is in small runs that show how accurate the fast [`crate::Drive`] is. It
//! shares the translation layer with the fast drive, but none of its timing. Differences from the fast drive:
//!
//! - Channels are first-come-first-served queues of transfers that are requested when the unit is ready, so they have
//!   idle   gaps.
//! - The program of a copy waits for its read, in any unit.
//! - A free buffer slot goes to the first waiting page, not to pages in turn.
//! - Paced collection is done in whole copies and erases, which are not interrupted.
//!
//! Neither model has suspended programs and erases, mapping traffic, host links as a queue, or refresh.

mod begin;
mod moves;
mod operations;
mod request;
mod state;

pub use request::{Arrivals, Request, RequestTimes, run_fast};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::drive::units::Units;
use crate::drive::{Collection, Drive, DriveConfig};
use crate::ftl::Ftl;
use state::{Node, Recorder, Unit, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Begin(u32),
    /// A page of a request is in the buffer, or at the units if the drive has no buffer.
    Accepted(u32, u64),
    /// A unit has completed the cell part of its operation.
    Cells(u32),
    /// A channel has completed the transfer of this operation.
    Transferred(u32),
}

#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    request: Request,
    pages_left: u32,
}

/// Drive with an event queue.
#[derive(Debug)]
pub struct EventDrive {
    config: DriveConfig,
    ftl: Ftl,
    placing: Units,
    units: Vec<Unit>,
    channels: Vec<(bool, VecDeque<u32>)>,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_made: u64,
    free_tags: u32,
    waiting: VecDeque<u32>,
    free_slots: u32,
    pages_waiting: VecDeque<(u32, u64)>,
    requests: Vec<PendingRequest>,
    answered: Vec<RequestTimes>,
    /// First request that has not arrived yet, in a closed loop.
    next: u32,
    closed: bool,
    now: u64,
}

impl EventDrive {
    /// Creates a drive in the state of another one, with idle units.
    ///
    /// # Panics
    /// If the other drive is scaled down.
    pub fn like(drive: &Drive) -> Self {
        let config = drive.config().clone();
        assert!(config.scale == 1, "a sample of a drive has no queues");
        let n = config.units() as usize;
        Self {
            ftl: drive.ftl().clone(),
            placing: Units::new(&config, drive.ftl()),
            units: (0..n).map(|_| Unit::default()).collect(),
            channels: vec![(false, VecDeque::new()); config.channels as usize],
            nodes: Vec::new(),
            events: BinaryHeap::new(),
            events_made: 0,
            free_tags: config.tags,
            waiting: VecDeque::new(),
            free_slots: config.buffer_pages,
            pages_waiting: VecDeque::new(),
            requests: Vec::new(),
            answered: Vec::new(),
            next: 0,
            closed: false,
            now: 0,
            config,
        }
    }

    /// Serves all requests; returns the arrival and reply time of each, in the order of the requests.
    pub fn run(mut self, requests: &[Request], arrivals: Arrivals) -> Vec<RequestTimes> {
        self.requests = requests
            .iter()
            .map(|r| PendingRequest {
                request: *r,
                pages_left: 0,
            })
            .collect();
        self.answered = vec![RequestTimes::default(); requests.len()];
        let n = requests.len() as u32;
        match arrivals {
            Arrivals::Open => {
                for (i, request) in (0..n).zip(requests) {
                    self.at(request.at_ns, Event::Arrive(i));
                }
                self.next = n;
            }
            Arrivals::Closed(depth) => {
                self.closed = true;
                self.next = depth.min(n);
                for i in 0..self.next {
                    self.at(0, Event::Arrive(i));
                }
            }
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            self.handle(event);
        }
        self.answered
    }

    /// Returns the translation layer in its present state.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((time, self.events_made, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(request) => {
                self.answered[request as usize].from_ns = self.now;
                self.waiting.push_back(request);
                self.give_tags();
            }
            Event::Begin(request) => self.begin(request),
            Event::Accepted(request, page) => self.accepted(request, page),
            Event::Cells(node) => self.cells_done(node),
            Event::Transferred(node) => self.transferred(node),
        }
    }

    fn give_tags(&mut self) {
        while self.free_tags > 0 {
            let Some(request) = self.waiting.pop_front() else {
                return;
            };
            self.free_tags -= 1;
            self.at(self.now + self.config.command.0, Event::Begin(request));
        }
    }

    fn give_slots(&mut self) {
        while self.config.buffer_pages == 0 || self.free_slots > 0 {
            let Some((request, page)) = self.pages_waiting.pop_front() else {
                return;
            };
            self.free_slots = self.free_slots.saturating_sub(1);
            self.at(
                self.now + self.config.accept.0,
                Event::Accepted(request, page),
            );
        }
    }

    /// Lets the translation layer decide, and queues the resulting operations.
    fn accepted(&mut self, request: u32, page: u64) {
        let tenant = self.requests[request as usize].request.tenant;
        let mut recorder = Recorder::default();
        self.ftl.write(tenant, page as u32, &mut recorder);
        for operation in recorder.operations {
            self.queue_operation(operation, request);
        }
        if self.config.buffer_pages > 0 {
            self.page_done(request);
        }
        for unit in 0..self.units.len() as u32 {
            self.look_at(unit);
        }
    }

    fn node(&mut self, unit: u32, work: Work) -> u32 {
        self.nodes.push(Node {
            unit,
            work,
            waits: false,
            pays: false,
        });
        self.nodes.len() as u32 - 1
    }

    /// Starts the next operation on an idle unit.
    fn look_at(&mut self, unit: u32) {
        let Some(node) = self.units[unit as usize].next(&mut self.nodes) else {
            return;
        };
        self.units[unit as usize].busy = true;
        if let Some(duration) = self.duration_of(node) {
            self.units[unit as usize].credit -= duration;
        }
        let over_channel = !self.config.copy_back;
        match self.nodes[node as usize].work {
            Work::Program { .. } => self.ask_channel(node),
            Work::CopyProgram if over_channel => self.ask_channel(node),
            Work::CopyProgram | Work::Summary => {
                self.at(self.now + self.config.program.0, Event::Cells(node))
            }
            Work::Read { .. } | Work::CopyRead { .. } => {
                self.at(self.now + self.config.read.0, Event::Cells(node));
            }
            Work::Erase => self.at(self.now + self.config.erase.0, Event::Cells(node)),
            // Never in a unit's queue.
            Work::Zeros { .. } => {}
        }
    }

    /// Returns the credit that an operation of paced collection uses.
    fn duration_of(&self, node: u32) -> Option<i64> {
        if self.config.collection != Collection::Paced {
            return None;
        }
        match self.nodes[node as usize].work {
            Work::CopyRead { .. } => Some(self.config.read.0 as i64),
            Work::CopyProgram | Work::Summary => Some(self.config.program.0 as i64),
            Work::Erase => Some(self.config.erase.0 as i64),
            Work::Program { .. } | Work::Read { .. } | Work::Zeros { .. } => None,
        }
    }

    fn release(&mut self, node: u32) {
        self.nodes[node as usize].waits = false;
        self.look_at(self.nodes[node as usize].unit);
    }

    fn idle(&mut self, unit: u32) {
        self.units[unit as usize].busy = false;
        self.look_at(unit);
    }

    fn page_done(&mut self, request: u32) {
        let pending = &mut self.requests[request as usize];
        pending.pages_left -= 1;
        if pending.pages_left == 0 {
            self.answer(request);
        }
    }

    fn answer(&mut self, request: u32) {
        self.answered[request as usize].done_ns = self.now;
        self.free_tags += 1;
        if self.closed && (self.next as usize) < self.requests.len() {
            self.at(self.now, Event::Arrive(self.next));
            self.next += 1;
        }
        self.give_tags();
    }
}
