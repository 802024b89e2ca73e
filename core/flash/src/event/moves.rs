//! Ends of operations: the next operation of a unit or channel, and notification of waiting operations.

use super::state::{Node, Work};
use super::{Event, EventDrive};

impl EventDrive {
    pub(super) fn ask_channel(&mut self, node: u32) {
        let channel = (self.nodes[node as usize].unit % self.config.channels) as usize;
        self.channels[channel].1.push_back(node);
        self.look_at_channel(channel);
    }

    pub(super) fn look_at_channel(&mut self, channel: usize) {
        if self.channels[channel].0 {
            return;
        }
        if let Some(node) = self.channels[channel].1.pop_front() {
            self.channels[channel].0 = true;
            self.at(
                self.now + self.config.transfer_ns(),
                Event::Transferred(node),
            );
        }
    }

    /// Handles the end of a sense, program or erase.
    pub(super) fn cells_done(&mut self, node: u32) {
        let Node { unit, work, .. } = self.nodes[node as usize];
        match work {
            Work::Read { .. } => {
                self.ask_channel(node);
                if self.config.cache_register {
                    self.idle(unit);
                }
            }
            Work::CopyRead { .. } if !self.config.copy_back => {
                self.ask_channel(node);
                if self.config.cache_register {
                    self.idle(unit);
                }
            }
            Work::CopyRead { then } => {
                self.idle(unit);
                self.release(then);
            }
            Work::Program { request } => {
                if self.config.buffer_pages > 0 {
                    self.free_slots += 1;
                    self.give_slots();
                } else {
                    self.page_done(request);
                }
                self.idle(unit);
            }
            Work::CopyProgram | Work::Summary | Work::Erase => self.idle(unit),
            Work::Zeros { .. } => {}
        }
    }

    pub(super) fn transferred(&mut self, node: u32) {
        let Node { unit, work, .. } = self.nodes[node as usize];
        let channel = (unit % self.config.channels) as usize;
        self.channels[channel].0 = false;
        match work {
            Work::Program { .. } | Work::CopyProgram => {
                self.at(self.now + self.config.program.0, Event::Cells(node));
            }
            Work::Read { request, page } => {
                self.page_read(request, page);
                if !self.config.cache_register {
                    self.idle(unit);
                }
            }
            Work::Zeros { request, page } => self.page_read(request, page),
            Work::CopyRead { then } => {
                if !self.config.cache_register {
                    self.idle(unit);
                }
                self.release(then);
            }
            Work::Erase | Work::Summary => {}
        }
        self.look_at_channel(channel);
    }
}
