//! Operations, queues of units, and recorded requests of the translation layer.

use std::collections::VecDeque;

use crate::drive::units::ERASES_OWED_MAX;
use crate::ftl::FlashWork;

/// Operation of a unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Read {
        request: u32,
        page: u64,
    },
    Program {
        request: u32,
    },
    /// `then` is the operation that programs the page.
    CopyRead {
        then: u32,
    },
    CopyProgram,
    Summary,
    Erase,
    /// Read of a page that was never written: only a transfer.
    Zeros {
        request: u32,
        page: u64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub unit: u32,
    pub work: Work,
    /// True if another operation must end first.
    pub waits: bool,
    /// True for a program that has yet to pay its share of collection.
    pub pays: bool,
}

#[derive(Debug, Default)]
pub(super) struct Unit {
    pub busy: bool,
    /// Queue in order of arrival.
    pub queue: VecDeque<u32>,
    /// Operations of paced collection.
    collection: VecDeque<u32>,
    /// Collection time due before the next program, in nanoseconds.
    pub credit: i64,
    /// Increase of the credit per program.
    pub quantum: i64,
    erases_owed: u32,
}

impl Unit {
    pub(super) fn push_collection(&mut self, node: u32, nodes: &[Node], paced: bool) {
        if paced {
            self.collection.push_back(node);
            self.erases_owed += u32::from(matches!(nodes[node as usize].work, Work::Erase));
        } else {
            self.queue.push_back(node);
        }
    }

    /// Returns the next operation, if the unit is idle and an operation can begin.
    pub(super) fn next(&mut self, nodes: &mut [Node]) -> Option<u32> {
        if self.busy {
            return None;
        }
        if let Some(head) = self.queue.front() {
            let head = &mut nodes[*head as usize];
            if std::mem::take(&mut head.pays) {
                self.credit += self.quantum;
            }
        }
        let ready = |q: &VecDeque<u32>, nodes: &[Node]| {
            q.front().is_some_and(|n| !nodes[*n as usize].waits)
        };
        let work_of = |q: &VecDeque<u32>| q.front().map(|n| nodes[*n as usize].work);
        if ready(&self.collection, nodes) {
            let program = matches!(work_of(&self.queue), Some(Work::Program { .. }));
            let due = program && (self.credit > 0 || self.erases_owed > ERASES_OWED_MAX);
            if due || self.queue.is_empty() {
                if matches!(work_of(&self.collection), Some(Work::Erase)) {
                    self.erases_owed -= 1;
                }
                return self.collection.pop_front();
            }
        }
        if self.collection.is_empty() {
            self.credit = self.credit.min(0);
        }
        if ready(&self.queue, nodes) {
            self.queue.pop_front()
        } else {
            None
        }
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    Program(u32),
    Copy { block: u32, run: Vec<u64>, to: u32 },
    Summary(u32),
    Erase { block: u32, copies: u64, valid: u32 },
}

/// Records the work that the translation layer requests.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub operations: Vec<Operation>,
    copies: u64,
}

impl FlashWork for Recorder {
    fn programmed(&mut self, page: u32) {
        self.operations.push(Operation::Program(page));
    }
    fn copied(&mut self, block: u32, survivors: &[u64], to: u32) {
        self.copies += survivors.len() as u64;
        let run = survivors.to_vec();
        self.operations.push(Operation::Copy { block, run, to });
    }
    fn summarized(&mut self, block: u32) {
        self.operations.push(Operation::Summary(block));
    }
    fn erased(&mut self, block: u32, valid: u32) {
        let copies = std::mem::take(&mut self.copies);
        self.operations.push(Operation::Erase {
            block,
            copies,
            valid,
        });
    }
}
