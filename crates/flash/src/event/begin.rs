//! What a request asks of units and channels when it begins.

use std::ops::Range;

use super::state::Work;
use super::{EventDrive, Request};
use crate::drive::Op;
use crate::ftl::TenantId;

impl EventDrive {
    pub(super) fn begin(&mut self, request: u32) {
        let Request { tenant, op, .. } = self.requests[request as usize].request;
        let pages = self.pages_of(request);
        self.requests[request as usize].pages_left = (pages.end - pages.start) as u32;
        if pages.is_empty() {
            self.answer(request);
        }
        match op {
            Op::Write => self.write(request, pages),
            Op::Trim => {
                for page in pages {
                    self.ftl.trim(tenant, page as u32);
                    self.page_done(request);
                }
            }
            Op::Read => {
                for page in pages {
                    self.read_page(request, tenant, page);
                }
            }
        }
        self.give_slots();
    }

    /// Pages that a request touches, within its tenant; of a trim only whole ones, which are void.
    fn pages_of(&self, request: u32) -> Range<u64> {
        let Request {
            tenant,
            op,
            offset,
            bytes,
            ..
        } = self.requests[request as usize].request;
        let page = self.config.page.0;
        let end = u64::from(self.ftl.pages_of(tenant).unwrap_or(0));
        let (first, last) = match op {
            Op::Trim => (offset.div_ceil(page), (offset + bytes) / page),
            Op::Read | Op::Write => (offset / page, (offset + bytes).div_ceil(page)),
        };
        let first = first.min(end);
        first..last.clamp(first, end)
    }

    /// Pages go to the buffer, or to units where there is none; those that are written in part are read before.
    fn write(&mut self, request: u32, pages: Range<u64>) {
        let Request {
            tenant,
            offset,
            bytes,
            ..
        } = self.requests[request as usize].request;
        let size = self.config.page.0;
        for page in pages {
            let partial = offset > page * size || offset + bytes < (page + 1) * size;
            if self.config.read_modify_write && partial {
                self.read_page(request, tenant, page);
            } else {
                self.pages_waiting.push_back((request, page));
            }
        }
    }

    fn read_page(&mut self, request: u32, tenant: TenantId, page: u64) {
        match self.ftl.read(tenant, page as u32) {
            Some(at) => {
                let unit = self.placing.unit_of(at) as u32;
                let node = self.node(unit, Work::Read { request, page });
                self.units[unit as usize].queue.push_back(node);
                self.look_at(unit);
            }
            // Never written: a page of zeros goes over a channel, no unit takes part.
            None => {
                let unit = (page % self.units.len() as u64) as u32;
                let node = self.node(unit, Work::Zeros { request, page });
                self.ask_channel(node);
            }
        }
    }

    /// The drive has a page that was read: for the host, or to write the rest of it.
    pub(super) fn page_read(&mut self, request: u32, page: u64) {
        if self.requests[request as usize].request.op == Op::Write {
            self.pages_waiting.push_back((request, page));
            self.give_slots();
        } else {
            self.page_done(request);
        }
    }
}
