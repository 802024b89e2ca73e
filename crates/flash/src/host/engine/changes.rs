//! Tenants that come and go, and spare space that follows objectives.

use super::{Event, Host, OnFlash};
use crate::FlashError;
use crate::ftl::TenantId;
use crate::host::control::Controlled;
use crate::host::plan::Target;
use crate::host::room::{make_room, share_out};

impl<T: Target> Host<'_, T> {
    pub(super) fn come(&mut self, i: usize) -> Result<(), FlashError> {
        let plan = &self.plans[i];
        let mut id = TenantId(i as u16);
        if let Some(drive) = self.target.drive() {
            let cost = make_room(drive, self.now, plan)?;
            self.hand_over_ns += cost;
            id = drive.add_tenant(plan.bytes, plan.spare_share)?;
        }
        self.states[i].id = Some(id);
        self.begin(i);
        Ok(())
    }

    /// What it asked for is answered no more; its blocks go to those who stay.
    pub(super) fn go(&mut self, i: usize) -> Result<(), FlashError> {
        let state = &mut self.states[i];
        state.gone = true;
        state.until_ns = self.now;
        state.waiting.clear();
        self.tagged.retain(|t| t.tenant != i);
        let (id, now) = (state.id.take(), self.now);
        if let (Some(id), Some(drive)) = (id, self.target.drive()) {
            let left = OnFlash::of(drive, id);
            drive.remove_tenant(now, id)?;
            share_out(drive)?;
            // Before anything counts, what it did does not count either.
            self.states[i].left = self.counting.then_some(left);
        }
        Ok(())
    }

    pub(super) fn control(&mut self) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        let interval = controller.control.interval.0.max(1);
        let tenants: Vec<Controlled> = self
            .states
            .iter_mut()
            .enumerate()
            .filter_map(|(place, s)| {
                Some(Controlled {
                    tenant: s.id?,
                    place,
                    weight: self.plans[place].weight,
                    slo: self.plans[place].slo,
                    got: std::mem::take(&mut s.interval),
                })
            })
            .collect();
        let seconds = (self.now - self.last_control) as f64 / 1e9;
        if let Some(drive) = self.target.drive()
            && let Some((from, to, blocks)) = controller.decide(drive, &tenants, seconds)
            && let Ok(cost) = drive.hand_over(self.now, from.tenant, Some(to.tenant), blocks)
        {
            self.handed_over += u64::from(blocks) * u64::from(drive.ftl().config().lanes);
            self.hand_over_ns += cost;
            self.states[from.place].device_ns += if self.counting { cost } else { 0 };
            self.server.charge_extra(from.place, cost);
        }
        self.last_control = self.now;
        self.at(self.now + interval, Event::Control);
    }
}
