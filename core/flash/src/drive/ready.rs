//! Earliest useful start of a request, by which a drive picks among its tags.

use super::{Drive, Layout, Op};
use crate::ftl::TenantId;

impl Drive {
    /// Returns the time from which a request finds the resource of its first page free: the unit that reads or programs
    /// the page, or a slot of the write buffer. The preparation before that (command processing, accepting the page,
    /// its transfer into a register) is subtracted, for reads and writes alike. So no unit idles during the
    /// preparation, and no write overtakes a read because of it.
    ///
    /// Pages of erase blocks that span all units are written in order, so a waiting write blocks all later ones. It is
    /// passed to its unit as soon as at most one program is ahead of it.
    ///
    /// Behind a write buffer, each unit has a queue of programs. A read that waited for an idle unit would be overtaken
    /// by writes for ever, so it takes its place in that queue at once.
    pub fn ready_ns(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> u64 {
        let page = offset / self.page_bytes;
        let beyond = page >= self.host_pages[usize::from(tenant.0)];
        if op == Op::Trim || beyond || bytes == 0 {
            return now_ns;
        }
        let config = &self.config;
        let reads_first =
            op == Op::Read || (config.read_modify_write && self.is_partial(page, offset, bytes));
        if !self.slots.is_none() {
            return match reads_first {
                true => now_ns,
                false => self.slots.first_free_ns().saturating_sub(self.command_ns),
            };
        }
        let register = match config.cache_register {
            true => config.transfer_ns(),
            false => 0,
        };
        let mut before = self.command_ns + config.accept.0 + register;
        let free = if reads_first {
            self.unit_of_read(now_ns, tenant, page)
        } else {
            if config.layout == Layout::Striped {
                before += config.program.0;
            }
            self.unit_of_write(now_ns, tenant, page)
        };
        free.map_or(now_ns, |ns| ns.saturating_sub(before))
    }

    /// Returns the time at which the unit of a page's data is free; `None` if the read uses no unit.
    fn unit_of_read(&mut self, now_ns: u64, tenant: TenantId, page: u64) -> Option<u64> {
        let unit = match self.sampled(page) {
            Some(page) => self.units.unit_of(self.ftl.read(tenant, page)?),
            None => self.next_turn(),
        };
        Some(self.units.free_at(now_ns, unit))
    }

    /// Returns the time at which the unit that would program a page is free.
    fn unit_of_write(&mut self, now_ns: u64, tenant: TenantId, page: u64) -> Option<u64> {
        let unit = match self.sampled(page) {
            Some(page) => self.units.unit_of(self.ftl.place_of_write(tenant, page)?),
            None => self.next_turn(),
        };
        Some(self.units.free_at(now_ns, unit))
    }
}
