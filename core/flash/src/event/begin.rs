//! First operations of a request on units and channels.

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

    /// Returns the pages that a request touches, within its tenant; for a trim, only the whole pages.
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

    /// Sends pages to the buffer, or to the units if the drive has no buffer. Partly written pages are read first.
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
            // Never-written page: a page of zeros is transferred over a channel; no unit is used.
            None => {
                let unit = (page % self.units.len() as u64) as u32;
                let node = self.node(unit, Work::Zeros { request, page });
                self.ask_channel(node);
            }
        }
    }

    /// Handles a page that was read, either for the host or before a partial write.
    pub(super) fn page_read(&mut self, request: u32, page: u64) {
        if self.requests[request as usize].request.op == Op::Write {
            self.pages_waiting.push_back((request, page));
            self.give_slots();
        } else {
            self.page_done(request);
        }
    }
}
