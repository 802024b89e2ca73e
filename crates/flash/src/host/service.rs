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

/// Device time that the smallest share gets in a round, nanoseconds.
const QUANTUM_NS: f64 = 1e6;
/// Device time that any share gets in a round at most, nanoseconds: far from where sums of it overflow.
const QUANTUM_MAX_NS: f64 = 1e15;
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
    /// What a round adds to that: only shares' ratios matter.
    quantum: i64,
    expected_ns: i64,
}

impl Server {
    pub(super) fn new(service: Service, shares: &[f64]) -> Self {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let quantum = |share: f64| libm::round(QUANTUM_NS * (share / least)).min(QUANTUM_MAX_NS);
        let account = |share: &f64| Account {
            // Not a number where the least share is zero: at least one, so that rounds have an end.
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
        if let Some(i) = self.round(waiting) {
            return Some(i);
        }
        self.skip_rounds(waiting);
        // The rounds that are left are one at most, which may begin anywhere.
        self.round(waiting)
            .or_else(|| self.round(waiting))
            .or_else(|| (0..waiting.len()).find(|i| waiting[*i].is_some()))
    }

    /// Everybody's turn once, until somebody is served.
    fn round(&mut self, waiting: &[Option<(u64, u32)>]) -> Option<usize> {
        for _ in 0..waiting.len() {
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
            next.deficit += next.quantum;
        }
        None
    }

    /// Rounds after which still nobody could be served, all at once: one request may have cost the rounds of seconds.
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
    fn only_ratios_of_shares_matter() {
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
    fn rounds_that_serve_nobody_are_skipped_and_debts_are_paid_in_proportion() {
        let mut server = Server::new(Service::DeviceTime, &[1.0, 4.0]);
        // An hour and four hours of debt: a million rounds and more.
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
    fn who_waits_alone_is_served_however_deep_in_debt() {
        let mut server = Server::new(Service::DeviceTime, &[1.0, 1.0]);
        server.charge_extra(0, 5_000_000_000);
        assert_eq!(server.pick(&[Some((0, 4096)), None]), Some(0));
        assert_eq!(server.pick(&[None, None]), None);
    }
}
