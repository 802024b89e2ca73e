//! Whose request is next.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The service between tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Bytes in proportion to weights, as far as the host has a choice: start-time fair queueing of what waits in front of the device, as
    /// with cgroup weights. Blind to what a request costs the device. Without idling: a tenant with nothing in its queue is passed over.
    HostWeights,
    /// Device time in proportion to shares, by deficit round robin on nanoseconds of units. Collection is charged to the tenant whose
    /// write set it off, which with isolation is the one whose blocks they are.
    DeviceTime,
}

/// Rounds of deficits before somebody is served anyway: bounds the work when one request cost seconds.
const ROUNDS_MAX: u32 = 1_000_000;
/// Device time that a share of one gets in a round, nanoseconds.
const QUANTUM_NS: i64 = 1_000_000;
/// Weight of the newest request in a tenant's expected cost.
const COST_WEIGHT: i64 = 16;

/// The state of the service.
#[derive(Debug, Clone)]
pub(super) struct Server {
    service: Service,
    tenants: Vec<Account>,
    /// Virtual time of weights.
    virtual_now: f64,
    /// Whose turn it is.
    turn: usize,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    share: f64,
    /// Virtual finish of the last request.
    finish: f64,
    deficit: i64,
    expected_ns: i64,
}

impl Server {
    pub(super) fn new(service: Service, shares: &[f64]) -> Self {
        let account = |share: &f64| Account {
            share: *share,
            finish: 0.0,
            deficit: 0,
            expected_ns: 0,
        };
        Self {
            service,
            tenants: shares.iter().map(account).collect(),
            virtual_now: 0.0,
            turn: 0,
        }
    }

    /// The tenant whose request is taken next: `waiting` has the time and the size of the first request of each, if any. What it is
    /// expected to cost is charged.
    pub(super) fn pick(&mut self, waiting: &[Option<(u64, u32)>]) -> Option<usize> {
        let some = |i: &usize| waiting[*i].is_some();
        let all = 0..waiting.len();
        match self.service {
            Service::Fcfs => all
                .filter(some)
                .min_by_key(|i| waiting[*i].map(|(at, _)| at)),
            Service::HostWeights => {
                let start = |i: &usize| self.tenants[*i].finish.max(self.virtual_now);
                let next = all
                    .filter(some)
                    .min_by(|a, b| start(a).total_cmp(&start(b)))?;
                self.virtual_now = start(&next);
                let (_, bytes) = waiting[next]?;
                let account = &mut self.tenants[next];
                account.finish = self.virtual_now + f64::from(bytes) / account.share;
                Some(next)
            }
            Service::DeviceTime => self.next_by_deficit(waiting),
        }
    }

    fn next_by_deficit(&mut self, waiting: &[Option<(u64, u32)>]) -> Option<usize> {
        if waiting.iter().all(Option::is_none) {
            return None;
        }
        for _ in 0..ROUNDS_MAX {
            let i = self.turn;
            let account = &mut self.tenants[i];
            if waiting[i].is_some() && account.deficit > 0 {
                account.deficit -= account.expected_ns;
                return Some(i);
            }
            if waiting[i].is_none() {
                // Who does not ask saves nothing up; debts stay.
                account.deficit = account.deficit.min(0);
            }
            self.turn = (i + 1) % self.tenants.len();
            let next = &mut self.tenants[self.turn];
            next.deficit += (QUANTUM_NS as f64 * next.share) as i64;
        }
        (0..waiting.len()).find(|i| waiting[*i].is_some())
    }

    /// A request turned out to cost so much.
    pub(super) fn charge(&mut self, tenant: usize, device_ns: u64) {
        if self.service == Service::DeviceTime {
            let account = &mut self.tenants[tenant];
            account.deficit -= device_ns as i64 - account.expected_ns;
            let expected = account.expected_ns;
            account.expected_ns += (device_ns as i64 - expected) / COST_WEIGHT;
        }
    }

    /// A tenant did something else that cost device time.
    pub(super) fn charge_extra(&mut self, tenant: usize, device_ns: u64) {
        self.tenants[tenant].deficit -= device_ns as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everybody always waits; costs per request differ.
    fn shares(service: Service, weights: &[f64], costs: &[u64], bytes: &[u32]) -> Vec<f64> {
        let mut server = Server::new(service, weights);
        let (mut served, mut clock) = (vec![0.0; weights.len()], vec![0_u64; weights.len()]);
        for _ in 0..60_000 {
            let waiting: Vec<_> = (0..weights.len())
                .map(|i| Some((clock[i], bytes[i])))
                .collect();
            let i = server.pick(&waiting).unwrap();
            clock[i] += 1;
            served[i] += 1.0;
            server.charge(i, costs[i]);
        }
        served
    }

    #[test]
    fn first_come_is_blind_to_weights_and_costs() {
        let got = shares(Service::Fcfs, &[1.0, 9.0], &[10, 1_000_000], &[1, 9]);
        assert_eq!(got[0], got[1]);
    }

    #[test]
    fn weights_share_bytes_and_device_time_shares_time() {
        let got = shares(
            Service::HostWeights,
            &[1.0, 4.0],
            &[10, 90_000],
            &[4096, 8192],
        );
        assert!((got[1] * 2.0 / got[0] - 4.0).abs() < 0.01, "{got:?}");
        let got = shares(
            Service::DeviceTime,
            &[1.0, 4.0],
            &[100_000, 900_000],
            &[4096, 8192],
        );
        assert!((got[1] * 9.0 / got[0] - 4.0).abs() < 0.05, "{got:?}");
    }

    #[test]
    fn who_waits_alone_is_served_however_deep_in_debt() {
        let mut server = Server::new(Service::DeviceTime, &[1.0, 1.0]);
        server.charge_extra(0, 5_000_000_000);
        assert_eq!(server.pick(&[Some((0, 4096)), None]), Some(0));
        assert_eq!(server.pick(&[None, None]), None);
    }
}
