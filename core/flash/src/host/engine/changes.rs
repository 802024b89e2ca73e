//! Arriving and departing tenants, and adjustment of spare space to objectives.

use super::{Event, FlashCounts, Host};
use crate::FlashError;
use crate::drive::Drive;
use crate::ftl::TenantId;
use crate::host::control::TenantView;
use crate::host::plan::Target;
use crate::host::room::{make_room, share_out};

/// Returns the number of erase blocks of the drive for a number per lane.
fn blocks_of(drive: &Drive, of_each_lane: u32) -> u64 {
    let lanes = u64::from(drive.ftl().config().lanes);
    u64::from(of_each_lane) * lanes * u64::from(drive.config().scale)
}

impl<T: Target> Host<'_, T> {
    pub(super) fn come(&mut self, i: usize) -> Result<(), FlashError> {
        let plan = &self.plans[i];
        let mut id = TenantId(i as u16);
        let mut costs = Vec::new();
        if let Some(drive) = self.target.drive() {
            costs = make_room(drive, self.now, plan)?;
            id = drive.add_tenant(plan.bytes, plan.spare_share)?;
            drive.age_newcomer(id)?;
            self.handed_over += blocks_of(drive, costs.len() as u32);
        }
        for (donor, cost) in costs {
            self.charge_collection(donor, cost);
        }
        self.states[i].id = Some(id);
        self.tags.look_again();
        self.begin(i);
        Ok(())
    }

    /// Charges a donor for the collection that freed blocks for others.
    fn charge_collection(&mut self, donor: TenantId, cost: u64) {
        self.hand_over_ns += cost;
        let place = self.states.iter().position(|s| s.id == Some(donor));
        if let Some(place) = place {
            self.states[place].device_ns += if self.counting { cost } else { 0 };
            self.server.charge_extra(place, cost);
        }
    }

    /// Removes a tenant. Its pending requests get no reply. Its blocks go to the remaining tenants, except those that
    /// later tenants need.
    pub(super) fn go(&mut self, i: usize) -> Result<(), FlashError> {
        let state = &mut self.states[i];
        state.gone = true;
        state.until_ns = self.now;
        state.waiting.clear();
        self.tags.take_back(i);
        self.tags.look_again();
        let (id, now) = (state.id.take(), self.now);
        let Some(id) = id else {
            return Ok(());
        };
        if let Some(drive) = self.target.drive() {
            let left = FlashCounts::of(drive, id);
            let nobodys = drive.ftl().unowned_blocks();
            let plans = self.plans.iter().zip(&self.states);
            let to_come = plans.filter(|(_, s)| s.id.is_none() && !s.gone);
            let awaited = to_come
                .map(|(p, _)| drive.blocks_needed(p.bytes, p.spare_share))
                .sum();
            drive.remove_tenant(now, id)?;
            share_out(drive, nobodys.max(awaited))?;
            // Work before the counted time does not count.
            self.states[i].left = self.counting.then_some(left);
        }
        Ok(())
    }

    pub(super) fn control(&mut self) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        let interval = controller.control.interval.0.max(1);
        let (now, last) = (self.now, self.last_control);
        let tenants: Vec<TenantView> = self
            .states
            .iter_mut()
            .enumerate()
            .filter_map(|(place, s)| {
                // The time before its arrival does not count for a tenant that arrived in this interval.
                let there = now.saturating_sub(last.max(s.came_ns));
                let got = std::mem::take(&mut s.interval);
                let plan = &self.plans[place];
                // A closed loop always demands more, until its trace ends. If an open loop exceeds its service, its
                // queue grows. The queue includes the next arrival.
                let wanting = match plan.rate.is_none() && plan.depth > 0 {
                    true => got.requests > 0 || !s.waiting.is_empty(),
                    false => s.waiting.len() as u64 > 2 + got.requests / 20,
                };
                Some(TenantView {
                    wanting,
                    tenant: s.id.filter(|_| there > 0)?,
                    place,
                    weight: self.plans[place].weight,
                    slo: self.plans[place].slo,
                    got,
                    seconds: there as f64 / 1e9,
                })
            })
            .collect();
        let mut costs = Vec::new();
        if let Some(drive) = self.target.drive() {
            for move_ in controller.decide(drive, &tenants) {
                let (from, to) = (move_.from, Some(move_.to));
                if let Ok(cost) = drive.hand_over(now, from, to, move_.blocks) {
                    self.handed_over += blocks_of(drive, move_.blocks);
                    costs.push((from, cost));
                }
            }
        }
        for (donor, cost) in costs {
            self.tags.look_again();
            self.charge_collection(donor, cost);
        }
        self.last_control = self.now;
        self.at(self.now + interval, Event::Control);
    }
}
