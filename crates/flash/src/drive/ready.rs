//! When a request could begin: what a drive that picks among its tags goes by.

use super::{Drive, Layout, Op};
use crate::ftl::TenantId;

impl Drive {
    /// From when on a request that is begun finds what its first page needs free: the unit that it is read from or written to, or a slot
    /// of the write buffer. What comes before that (work on the command, taking the page in, its transfer into a register) is taken off, of
    /// reads and writes alike, so that neither does a unit stand still for it nor does a write come before a read because of it.
    ///
    /// Pages of erase blocks that span all units are written in order, and a write that waits holds up all behind it: it is handed to its
    /// unit when there is no more than one program before it.
    ///
    /// Behind a write buffer units have queues of programs in front of them. A read that waited for its unit to be idle would see others'
    /// writes go first for ever; it takes its place in that queue at once.
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

    /// When the unit that a page is read from is free; none where no unit takes part.
    fn unit_of_read(&mut self, now_ns: u64, tenant: TenantId, page: u64) -> Option<u64> {
        let unit = match self.sampled(page) {
            Some(page) => self.units.unit_of(self.ftl.read(tenant, page)?),
            None => self.next_turn(),
        };
        Some(self.units.free_at(now_ns, unit))
    }

    /// When the unit that a page would be written to is free.
    fn unit_of_write(&mut self, now_ns: u64, tenant: TenantId, page: u64) -> Option<u64> {
        let unit = match self.sampled(page) {
            Some(page) => self.units.unit_of(self.ftl.place_of_write(tenant, page)?),
            None => self.next_turn(),
        };
        Some(self.units.free_at(now_ns, unit))
    }
}
