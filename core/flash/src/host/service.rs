//! Service discipline: choice of the next request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Service discipline between tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Bytes in proportion to weights, by start-time fair queueing of the requests in front of the device, as with
    /// cgroup weights. The cost of a request at the device is ignored. Work-conserving: a tenant with an empty queue is
    /// skipped.
    HostWeights,
    /// Device time in proportion to shares, by deficit round robin on nanoseconds of units. Collection is charged to
    /// the tenant whose write caused it; with isolation, that is the owner of the blocks.
    DeviceTime,
}

/// Device time of the smallest share in a round, in nanoseconds.
const QUANTUM_NS: f64 = 1e6;
/// Maximum device time of a share in a round, in nanoseconds. Keeps sums far below overflow.
const QUANTUM_MAX_NS: f64 = 1e15;
/// Weight of the newest request in a tenant's expected cost.
const COST_WEIGHT: i64 = 16;

/// State of the service.
#[derive(Debug, Clone)]
pub(super) struct Server {
    service: Service,
    tenants: Vec<Account>,
    /// Virtual time for weights.
    virtual_now: f64,
    /// Tenant whose turn it is.
    turn: usize,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    share: f64,
    /// Virtual finish time of the last request.
    finish: f64,
    deficit: i64,
    /// Deficit added per round; only the ratios of shares matter.
    quantum: i64,
    expected_ns: i64,
}

impl Server {
    pub(super) fn new(service: Service, shares: &[f64]) -> Self {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let quantum = |share: f64| libm::round(QUANTUM_NS * (share / least)).min(QUANTUM_MAX_NS);
        let account = |share: &f64| Account {
            // Not a number if the smallest share is zero. At least one, so rounds terminate.
            quantum: (quantum(*share) as i64).max(1),
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

    /// Returns the tenant whose request is taken next, and charges its expected cost. `waiting` has time and size of
    /// the first request of each tenant, if any.
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
        if let Some(i) = self.round(waiting) {
            return Some(i);
        }
        self.skip_rounds(waiting);
        // At most one round is left, which may begin at any tenant.
        self.round(waiting)
            .or_else(|| self.round(waiting))
            .or_else(|| (0..waiting.len()).find(|i| waiting[*i].is_some()))
    }

    /// Visits each tenant once, until one is served.
    fn round(&mut self, waiting: &[Option<(u64, u32)>]) -> Option<usize> {
        for _ in 0..waiting.len() {
            let i = self.turn;
            let account = &mut self.tenants[i];
            if waiting[i].is_some() && account.deficit > 0 {
                account.deficit -= account.expected_ns;
                return Some(i);
            }
            if waiting[i].is_none() {
                // A tenant without requests saves nothing; debts stay.
                account.deficit = account.deficit.min(0);
            }
            self.turn = (i + 1) % self.tenants.len();
            let next = &mut self.tenants[self.turn];
            next.deficit += next.quantum;
        }
        None
    }

    /// Skips the rounds in which no tenant could be served, all at once. One request may cost as much as seconds of
    /// rounds.
    fn skip_rounds(&mut self, waiting: &[Option<(u64, u32)>]) {
        let accounts = || self.tenants.iter().zip(waiting);
        let rounds = accounts().filter(|(_, w)| w.is_some());
        let rounds = rounds.map(|(a, _)| (-a.deficit).max(0) / a.quantum).min();
        let rounds = rounds.unwrap_or(0);
        for (account, waiting) in self.tenants.iter_mut().zip(waiting) {
            account.deficit = account
                .deficit
                .saturating_add(rounds.saturating_mul(account.quantum));
            if waiting.is_none() {
                account.deficit = account.deficit.min(0);
            }
        }
    }

    /// Corrects the charge of a request to its actual cost.
    pub(super) fn charge(&mut self, tenant: usize, device_ns: u64) {
        if self.service == Service::DeviceTime {
            let account = &mut self.tenants[tenant];
            account.deficit -= device_ns as i64 - account.expected_ns;
            let expected = account.expected_ns;
            account.expected_ns += (device_ns as i64 - expected) / COST_WEIGHT;
        }
    }

    /// Charges other device time to a tenant.
    pub(super) fn charge_extra(&mut self, tenant: usize, device_ns: u64) {
        self.tenants[tenant].deficit -= device_ns as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a service where all tenants always have requests; costs per request differ.
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
    fn first_come_first_served_ignores_weights_and_costs() {
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
    fn service_depends_only_on_ratios_of_shares() {
        let with = |scale: f64| {
            let weights = [1.0, 3.0, 10.0].map(|w| w * scale);
            shares(
                Service::DeviceTime,
                &weights,
                &[700_000, 5_000_000, 90_000],
                &[4096; 3],
            )
        };
        let one = with(1.0);
        for scale in [1e-6, 0.07, 1e8] {
            assert_eq!(with(scale), one, "{scale}");
        }
        let time = [one[0] * 7.0, one[1] * 50.0, one[2] * 0.9];
        assert!((time[1] / time[0] - 3.0).abs() < 0.05, "{time:?}");
        assert!((time[2] / time[0] - 10.0).abs() < 0.1, "{time:?}");
    }

    #[test]
    fn idle_rounds_are_skipped_and_debts_are_paid_in_proportion() {
        let mut server = Server::new(Service::DeviceTime, &[1.0, 4.0]);
        // An hour and four hours of debt: more than a million rounds.
        server.charge_extra(0, 3_600_000_000_000);
        server.charge_extra(1, 4 * 3_600_000_000_000);
        let mut served = [0_u32; 2];
        for _ in 0..5000 {
            let i = server.pick(&[Some((0, 4096)); 2]).unwrap();
            served[i] += 1;
            server.charge(i, 500_000);
        }
        let ratio = f64::from(served[1]) / f64::from(served[0]);
        assert!((ratio - 4.0).abs() < 0.05, "{served:?}");
    }

    #[test]
    fn single_waiting_tenant_is_served_despite_its_debt() {
        let mut server = Server::new(Service::DeviceTime, &[1.0, 1.0]);
        server.charge_extra(0, 5_000_000_000);
        assert_eq!(server.pick(&[Some((0, 4096)), None]), Some(0));
        assert_eq!(server.pick(&[None, None]), None);
    }
}
