//! Conversion of the translation layer's decisions into queued operations of units.

use super::EventDrive;
use super::state::{Operation, Work};
use crate::drive::{Collection, Layout};

impl EventDrive {
    pub(super) fn queue_operation(&mut self, operation: Operation, request: u32) {
        let paced = self.config.collection == Collection::Paced;
        match operation {
            Operation::Program(page) => {
                let unit = self.placing.unit_of(page) as u32;
                let node = self.node(unit, Work::Program { request });
                self.units[unit as usize].queue.push_back(node);
                self.nodes[node as usize].pays = paced;
            }
            Operation::Copy { block, run, to } => {
                let base = block << self.ftl.stride().trailing_zeros();
                let first = self.nodes.len() as u32;
                for survivor in &run {
                    let unit = self.placing.unit_of(base + (survivor >> 32) as u32) as u32;
                    let node = self.node(unit, Work::CopyRead { then: 0 });
                    self.units[unit as usize].push_collection(node, &self.nodes, paced);
                }
                for (i, at) in (0..run.len() as u32).zip(to..) {
                    let unit = self.placing.unit_of(at) as u32;
                    let node = self.node(unit, Work::CopyProgram);
                    self.nodes[node as usize].waits = true;
                    self.nodes[(first + i) as usize].work = Work::CopyRead { then: node };
                    self.units[unit as usize].push_collection(node, &self.nodes, paced);
                }
            }
            Operation::Summary(block) => {
                let page = ((block + 1) << self.ftl.stride().trailing_zeros()) - 1;
                let unit = self.placing.unit_of(page) as u32;
                let node = self.node(unit, Work::Summary);
                self.units[unit as usize].push_collection(node, &self.nodes, paced);
            }
            Operation::Erase {
                block,
                copies,
                valid,
            } => {
                let all = self.units.len() as u32;
                let page = block << self.ftl.stride().trailing_zeros();
                let units = match self.config.layout {
                    Layout::Striped => 0..all,
                    Layout::PerUnit => {
                        let unit = self.placing.unit_of(page) as u32;
                        unit..unit + 1
                    }
                };
                let copy = self.config.read.0 + self.config.program.0;
                let erase = self.config.erase.0 * u64::from(units.end - units.start);
                let freed = u64::from(self.ftl.config().data_pages() - valid).max(1);
                let quantum = (copies * copy + erase) / freed;
                for unit in units {
                    self.units[unit as usize].quantum = quantum as i64;
                    let node = self.node(unit, Work::Erase);
                    self.units[unit as usize].push_collection(node, &self.nodes, paced);
                }
            }
        }
    }
}
