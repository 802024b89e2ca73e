//! Parallel units and channels, each represented by the time until which it is busy.
//!
//! Simplifications, all measured against [`crate::event`]: a unit serves operations in the order of their submission. A
//! channel is a work-conserving queue without holes (a page whose unit is still busy does not block the channel for
//! others). Copies of a collection occupy the unit that reads and the one that programs, without waiting for each
//! other.

mod work;

use crate::drive::config::{Collection, DriveConfig, Layout};
use crate::ftl::Ftl;

/// Weight of the newest collection in the mean cost.
const COST_WEIGHT: f64 = 1.0 / 64.0;

/// Maximum number of erases that a unit may owe. Beyond it, blocks counted as free are not erased yet, and programs
/// wait.
pub(crate) const ERASES_OWED_MAX: u32 = 2;

/// Operations that a unit owes under paced collection, done in this order.
#[derive(Debug, Clone, Copy, Default)]
struct OwedOperations {
    reads: u32,
    programs: u32,
    erases: u32,
}

impl OwedOperations {
    fn is_nothing(self) -> bool {
        self.reads == 0 && self.programs == 0 && self.erases == 0
    }

    /// Removes the share of the first of several victims, as if all were alike.
    fn first(&mut self) -> OwedOperations {
        let victims = self.erases.max(1);
        let first = OwedOperations {
            reads: self.reads.div_ceil(victims),
            programs: self.programs.div_ceil(victims),
            erases: self.erases.min(1),
        };
        self.reads -= first.reads;
        self.programs -= first.programs;
        self.erases -= first.erases;
        first
    }
}

impl Unit {
    #[inline]
    fn erases_owed(&self) -> u32 {
        self.current.erases + self.later.erases
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    busy_until: u64,
    /// Work of the present victim.
    current: OwedOperations,
    /// Work of the later victims.
    later: OwedOperations,
    /// Time that programs must pay before the next one, minus work done in advance, in nanoseconds.
    credit: i64,
    /// Part of its unit's debt that each program pays.
    quantum: i64,
}

/// Time state of one drive.
#[derive(Debug, Clone)]
pub(crate) struct Units {
    units: Box<[Unit]>,
    channels: Box<[u64]>,
    channel_of: Box<[u32]>,
    shift: u32,
    striped: bool,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    transfer_ns: u64,
    /// Time of the read of a copy. The unit is occupied during the transfer, unless the pages stay in it or it has a
    /// cache register.
    copy_read_ns: u64,
    copy_program_ns: u64,
    copy_back: bool,
    cache_register: bool,
    paced: bool,
    data_pages: u32,
    /// Time of the present operation.
    now: u64,
    done: u64,
    last_unit: usize,
    spent: u64,
    /// Work of the collection in progress.
    victim_work: u64,
    /// Mean collection cost per page written by the host, in nanoseconds.
    mean_cost: f64,
}

impl Units {
    pub(crate) fn new(config: &DriveConfig, ftl: &Ftl) -> Self {
        let n = config.units();
        let transfer = match config.copy_back || config.cache_register {
            true => 0,
            false => config.transfer_ns(),
        };
        Self {
            copy_read_ns: config.read.0 + transfer,
            copy_program_ns: config.program.0 + transfer,
            units: vec![Unit::default(); n as usize].into(),
            channels: vec![0; config.channels as usize].into(),
            channel_of: (0..n).map(|u| u % config.channels).collect(),
            shift: ftl.stride().trailing_zeros(),
            striped: config.layout == Layout::Striped,
            read_ns: config.read.0,
            program_ns: config.program.0,
            erase_ns: config.erase.0,
            transfer_ns: config.transfer_ns(),
            copy_back: config.copy_back,
            cache_register: config.cache_register,
            paced: config.collection == Collection::Paced,
            data_pages: ftl.config().data_pages(),
            now: 0,
            done: 0,
            last_unit: 0,
            spent: 0,
            victim_work: 0,
            mean_cost: 0.0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.units.len()
    }

    /// Sets the time of the following operations; each starts then or when its unit is free.
    #[inline]
    pub(crate) fn set_now(&mut self, now: u64) {
        self.now = now;
        self.done = now;
    }

    /// Returns the end of the last program.
    #[inline]
    pub(crate) fn done_ns(&self) -> u64 {
        self.done
    }

    /// Returns the unit of the last program.
    #[inline]
    pub(crate) fn last_unit(&self) -> usize {
        self.last_unit
    }

    /// Returns the total unit time requested since the start.
    #[inline]
    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent
    }

    /// Returns the time at which a unit ends the work started by now, including collection in idle time.
    #[inline]
    pub(crate) fn free_at(&mut self, now: u64, u: usize) -> u64 {
        self.set_now(now);
        self.settle_idle(u);
        self.units[u].busy_until
    }

    /// Returns the unit of a physical page.
    #[inline]
    pub(crate) fn unit_of(&self, page: u32) -> usize {
        let turn = match self.striped {
            true => page,
            false => page >> self.shift,
        };
        let n = self.units.len() as u32;
        (match n.is_power_of_two() {
            true => turn & (n - 1),
            false => turn % n,
        }) as usize
    }

    /// Computes the mean collection cost per page written by the host from the moves and erases so far.
    pub(crate) fn learn_cost(&mut self, ftl: &Ftl) {
        if let Some(waf) = ftl.write_amplification() {
            let copy = (self.copy_read_ns + self.copy_program_ns) as f64;
            let units = if self.striped { self.units.len() } else { 1 };
            let erases = ftl.erases() as f64 / ftl.host_writes() as f64 * units as f64;
            self.mean_cost = (waf - 1.0) * copy + erases * self.erase_ns as f64;
        }
    }

    /// Returns the collection cost per page written by the host, in nanoseconds of unit time.
    #[cfg(test)]
    pub(crate) fn mean_cost(&self) -> f64 {
        self.mean_cost
    }

    /// Reads a physical page; returns the time at which the host has it.
    #[inline]
    pub(crate) fn read(&mut self, page: u32) -> u64 {
        self.read_at(self.unit_of(page))
    }

    #[inline]
    pub(crate) fn read_at(&mut self, u: usize) -> u64 {
        self.settle_idle(u);
        let channel = self.transfer(u);
        let sensed = self.units[u].busy_until.max(self.now) + self.read_ns;
        let done = (sensed + self.transfer_ns).max(channel);
        self.spent += self.read_ns + self.unit_transfer_ns();
        self.units[u].busy_until = match self.cache_register {
            true => sensed,
            false => done,
        };
        done
    }

    /// Transfers a page that is in no cell over the channel of a unit, without using the unit; returns the time at
    /// which the host has it.
    #[inline]
    pub(crate) fn transfer_only(&mut self, u: usize) -> u64 {
        self.spent += self.transfer_ns;
        self.transfer(u)
    }

    /// Programs a page outside the translation layer. It pays the mean cost of collection.
    pub(crate) fn program_on_average(&mut self, u: usize) {
        let cost = self.mean_cost as u64;
        self.units[u].busy_until = self.units[u].busy_until.max(self.now) + cost;
        self.spent += cost;
        self.program(u);
    }

    /// Spreads work outside the sample equally over all units.
    pub(crate) fn spread(&mut self, work: u64) {
        let each = work / self.units.len() as u64;
        if each == 0 {
            return;
        }
        for u in 0..self.units.len() {
            self.begin_owing(u);
            let unit = &mut self.units[u];
            if self.paced && self.erase_ns > 0 {
                // Owed like the sample's own work, so no request waits for all of it at once. Erases represent any kind
                // of work.
                unit.later.erases += each.div_ceil(self.erase_ns) as u32;
            } else {
                unit.busy_until = unit.busy_until.max(self.now) + each;
            }
        }
        self.spent += each * self.units.len() as u64;
    }

    /// Returns the time that a transfer occupies the unit: zero with a cache register.
    #[inline]
    fn unit_transfer_ns(&self) -> u64 {
        match self.cache_register {
            true => 0,
            false => self.transfer_ns,
        }
    }

    /// Returns the end of a transfer that starts now, if its unit were free.
    #[inline]
    fn transfer(&mut self, u: usize) -> u64 {
        let channel = &mut self.channels[self.channel_of[u] as usize];
        *channel = (*channel).max(self.now) + self.transfer_ns;
        *channel
    }

    #[inline]
    fn program(&mut self, u: usize) {
        let channel = self.transfer(u);
        if self.paced {
            self.settle_idle(u);
            self.pay(u);
        }
        let free = self.units[u].busy_until.max(self.now);
        let begins = match self.cache_register {
            true => free.max(channel),
            false => channel.max(free + self.transfer_ns),
        };
        self.spent += self.program_ns + self.unit_transfer_ns();
        self.done = begins + self.program_ns;
        self.last_unit = u;
        self.units[u].busy_until = self.done;
    }

    /// Does owed work in past idle time of a unit, in whole operations, which are not interrupted.
    #[inline]
    fn settle_idle(&mut self, u: usize) {
        while self.units[u].busy_until < self.now && self.next_owed(u, self.units[u].busy_until) {}
    }

    /// Work that arises now cannot have been done in earlier idle time.
    #[inline]
    fn begin_owing(&mut self, u: usize) {
        if self.units[u].busy_until < self.now {
            self.settle_idle(u);
            let unit = &mut self.units[u];
            unit.busy_until = unit.busy_until.max(self.now);
        }
    }

    /// Does the owed work that is due before a program.
    #[inline]
    fn pay(&mut self, u: usize) {
        let unit = &mut self.units[u];
        unit.credit += unit.quantum;
        unit.busy_until = unit.busy_until.max(self.now);
        while self.units[u].credit > 0 || self.units[u].erases_owed() > ERASES_OWED_MAX {
            if !self.next_owed(u, self.now) {
                self.units[u].credit = self.units[u].credit.min(0);
                return;
            }
        }
    }

    /// Does the next operation that a unit owes, if any.
    #[inline]
    fn next_owed(&mut self, u: usize, now: u64) -> bool {
        let unit = &mut self.units[u];
        if unit.current.is_nothing() {
            unit.current = unit.later.first();
        }
        let owed = &mut unit.current;
        let (work, moves) = if owed.reads > 0 {
            owed.reads -= 1;
            (self.copy_read_ns, true)
        } else if owed.programs > 0 {
            owed.programs -= 1;
            (self.copy_program_ns, true)
        } else if owed.erases > 0 {
            owed.erases -= 1;
            (self.erase_ns, false)
        } else {
            return false;
        };
        unit.busy_until += work;
        unit.credit -= work as i64;
        if moves && !self.copy_back {
            let channel = &mut self.channels[self.channel_of[u] as usize];
            *channel = (*channel).max(now) + self.transfer_ns;
        }
        true
    }

    /// Adds the work of a collection to a unit: owed if collection is paced, else done at once.
    #[inline]
    fn collect(&mut self, u: usize, work: u64, owe: impl FnOnce(&mut OwedOperations)) {
        self.victim_work += work;
        self.spent += work;
        self.begin_owing(u);
        let unit = &mut self.units[u];
        if self.paced {
            owe(&mut unit.later);
        } else {
            unit.busy_until = unit.busy_until.max(self.now) + work;
        }
    }

    /// Copies pages of a collection: read from one unit, programmed on another one or the same.
    #[inline]
    fn copy(&mut self, u: usize, reads: u32, programs: u32) {
        let work =
            u64::from(reads) * self.copy_read_ns + u64::from(programs) * self.copy_program_ns;
        self.collect(u, work, |later| {
            later.reads += reads;
            later.programs += programs;
        });
        if !self.paced && !self.copy_back {
            let channel = &mut self.channels[self.channel_of[u] as usize];
            *channel = (*channel).max(self.now) + u64::from(reads + programs) * self.transfer_ns;
        }
    }

    fn erase(&mut self, u: usize) {
        self.collect(u, self.erase_ns, |later| later.erases += 1);
    }
}
