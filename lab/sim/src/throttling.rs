//! Throttles that operators set for volumes. A delayed request is held until its time; requests keep their order.
//!
//! The rule is that of the data path ([`volume::Throttle`]). The latency of a delayed request counts from its arrival,
//! as the guest sees it.

use std::collections::VecDeque;

use manager::wire::{Throttle, ThrottleOrder};
use model::Op;
use units::{BytesPerSec, Iops};
use volume::Limits;

use crate::agenda::Event;
use crate::engine::Simulation;
use crate::source::Issue;
use crate::world::HeldRequest;

/// Throttle of one volume.
#[derive(Default)]
pub(crate) struct VolumeThrottle {
    clocks: volume::Throttle,
    until_ns: u64,
    /// Limits that were in force at any time of the window.
    in_window: Option<Throttle>,
    /// Waiting requests with the times at which they may be issued.
    waiting: VecDeque<(u64, HeldRequest)>,
}

impl VolumeThrottle {
    /// Returns the time at which a request that arrives now may be issued; `None` for at once.
    #[inline]
    pub(crate) fn until(&mut self, now_ns: u64, issue: &Issue) -> Option<u64> {
        if !self.clocks.limits_anything() || !matches!(issue.op, Op::Read | Op::Write) {
            return None;
        }
        let at_ns = self.clocks.admit(now_ns, issue.length);
        (at_ns > now_ns).then_some(at_ns)
    }

    pub(crate) fn limits_anything(&self) -> bool {
        self.clocks.limits_anything()
    }

    pub(crate) fn wait(&mut self, until_ns: u64, held: HeldRequest) {
        self.waiting.push_back((until_ns, held));
    }

    /// Returns the waiting requests.
    pub(crate) fn waiting(&self) -> impl ExactSizeIterator<Item = &HeldRequest> {
        self.waiting.iter().map(|(_, held)| held)
    }

    fn in_force(&self, now_ns: u64) -> Option<Throttle> {
        let Limits { iops, bandwidth } = self.clocks.limits();
        self.clocks.limits_anything().then(|| Throttle {
            iops: iops.map(|i| i.0 as u64),
            bandwidth_bytes_per_s: bandwidth.map(|b| b.0),
            lasting_ns: self.until_ns.saturating_sub(now_ns),
        })
    }

    fn set(&mut self, now_ns: u64, to: Option<&Throttle>) {
        self.in_window = self.in_window.or(self.in_force(now_ns));
        let limits = to.map_or(Limits::default(), |t| Limits {
            iops: t.iops.map(|i| Iops(i as f64)),
            bandwidth: t.bandwidth_bytes_per_s.map(BytesPerSec),
        });
        self.clocks.set(limits);
        self.until_ns = now_ns + to.map_or(0, |t| t.lasting_ns);
    }
}

impl Simulation<'_> {
    /// Sets the ordered limits and removes all others.
    pub(crate) fn limit(&mut self, now_ns: u64, orders: &[ThrottleOrder]) {
        if orders.is_empty() && !self.world.limits {
            return;
        }
        for v in 0..self.model.volumes.len() {
            let name = &self.model.volumes[v].name;
            let order = orders.iter().find(|o| o.volume == *name);
            let limited = &mut self.world.limited[v];
            if order.is_none() && !limited.clocks.limits_anything() {
                continue;
            }
            limited.set(now_ns, order.map(|o| &o.throttle));
            match order {
                Some(_) => {
                    let until_ns = limited.until_ns;
                    let volume = v as u32;
                    self.agenda.at(until_ns, Event::LimitOver { volume });
                }
                None => self.let_go(now_ns, v, u64::MAX),
            }
        }
        self.world.refresh_limits();
    }

    /// Removes the limit of a volume if it has expired.
    pub(crate) fn limit_over(&mut self, now_ns: u64, volume: usize) {
        let limited = &mut self.world.limited[volume];
        if limited.clocks.limits_anything() && limited.until_ns <= now_ns {
            limited.set(now_ns, None);
            self.world.refresh_limits();
            self.let_go(now_ns, volume, u64::MAX);
        }
    }

    /// Issues the requests whose time has come by `until_ns`.
    pub(crate) fn let_go(&mut self, now_ns: u64, volume: usize, until_ns: u64) {
        while let Some((_, held)) = self.world.limited[volume]
            .waiting
            .pop_front_if(|(at_ns, _)| *at_ns <= until_ns)
        {
            if let Some(held) = self.issue_late(now_ns, held) {
                self.world.held[volume].push_back(held);
            }
        }
    }

    /// Takes the limits of a volume in the window that ends. The lease is the remaining time.
    pub(crate) fn take_limit(&mut self, now_ns: u64, volume: usize) -> Option<Throttle> {
        let limited = &mut self.world.limited[volume];
        let in_window = limited.in_window.take();
        limited.in_force(now_ns).or(in_window)
    }
}
