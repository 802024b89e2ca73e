//! Limits on volumes, as operators order them: a request that has to wait is held until its time, in order.
//!
//! The rule is the data path's own ([`volume::Throttle`]). What waits counts from when it was asked for, as the guest sees it.

use std::collections::VecDeque;

use manager::wire::{Throttle, ThrottleOrder};
use model::Op;
use units::{BytesPerSec, Iops};
use volume::Limits;

use crate::agenda::Event;
use crate::engine::Simulation;
use crate::source::Issue;
use crate::world::Held;

/// What one volume is limited to.
#[derive(Default)]
pub(crate) struct Limited {
    clocks: volume::Throttle,
    until_ns: u64,
    /// The limits that were in force at any time of the window.
    in_window: Option<Throttle>,
    /// Requests with the time at which each may go.
    waiting: VecDeque<(u64, Held)>,
}

impl Limited {
    /// When a request may go that is asked for now; none if at once.
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

    pub(crate) fn wait(&mut self, until_ns: u64, held: Held) {
        self.waiting.push_back((until_ns, held));
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> impl ExactSizeIterator<Item = &Held> {
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
    /// Limits what is to be limited, and lets go what is not named.
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

    /// The time of a volume's limit may be over.
    pub(crate) fn limit_over(&mut self, now_ns: u64, volume: usize) {
        let limited = &mut self.world.limited[volume];
        if limited.clocks.limits_anything() && limited.until_ns <= now_ns {
            limited.set(now_ns, None);
            self.world.refresh_limits();
            self.let_go(now_ns, volume, u64::MAX);
        }
    }

    /// Requests whose time has come by `until_ns` go.
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

    /// What a volume was limited to in the window that ends, with the time that is left of it.
    pub(crate) fn take_limit(&mut self, now_ns: u64, volume: usize) -> Option<Throttle> {
        let limited = &mut self.world.limited[volume];
        let in_window = limited.in_window.take();
        limited.in_force(now_ns).or(in_window)
    }
}
