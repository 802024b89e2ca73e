//! Requests of a load condition in order of time, as an open loop.
//!
//! ```text
//!   Condition ─▶ Hours ─▶ rates of the hour ─┬─ sum: Poisson arrivals
//!                                            └─ alias table: the page of each
//! ```
//!
//! Arrivals do not wait for replies: requests that the array cannot serve are queued. Requests are not stored; memory
//! is bounded by the number of pages. This is not a replay of counts: the requests of an hour are drawn from its rates,
//! so pages get the condition's rates on average.

use algo::{AliasTable, Rng};
use model::Op;
use units::{Bytes, Nanos};

use crate::conditions::{Condition, Hours};

const HOUR_NS: f64 = 3600e9;

/// Conversion of a condition to requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrivalSpec {
    /// Load condition.
    pub condition: Condition,
    /// Size of a page.
    pub page: Bytes,
    /// Size of every request. A page is a whole number of requests.
    pub request: Bytes,
    /// Share of reads, 0..=1.
    pub read_share: f64,
    /// Share of requests that follow the last sequential one of their page, 0..=1. The others are at random places in
    /// the page.
    pub sequential_share: f64,
}

/// Request of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the start of the condition.
    pub at: Nanos,
    /// Number of the page.
    pub page: u32,
    /// Read or write.
    pub op: Op,
    /// First byte, relative to the start of the page.
    pub offset: u64,
}

/// Endless iterator over the requests of a condition in order of time.
#[derive(Debug, Clone)]
pub struct Arrivals {
    spec: ArrivalSpec,
    hours: Hours,
    pages: AliasTable,
    /// Next sequential request of each page.
    next: Vec<u32>,
    rng: Rng,
    /// Requests per nanosecond in the present hour.
    rate: f64,
    /// Time since the start of the condition. Sums of draws stay exact to the nanosecond for years.
    now_ns: f64,
    hour_end_ns: f64,
}

impl Arrivals {
    /// Creates the requests of a condition. `seed` determines its hours and all requests.
    ///
    /// # Panics
    /// If a page is not a whole number of requests, or empty.
    pub fn new(spec: &ArrivalSpec, seed: u64) -> Self {
        assert!(
            spec.request.0 > 0 && spec.page.0 > 0 && spec.page.0.is_multiple_of(spec.request.0),
            "a page has a whole number of requests"
        );
        let mut arrivals = Self {
            hours: spec.condition.hours(seed),
            pages: AliasTable::default(),
            next: vec![0; spec.condition.pages() as usize],
            rng: Rng::new(seed, 0x50_0000),
            rate: 0.0,
            now_ns: 0.0,
            hour_end_ns: 0.0,
            spec: spec.clone(),
        };
        arrivals.begin_hour();
        arrivals
    }

    fn begin_hour(&mut self) {
        self.now_ns = self.hour_end_ns;
        self.hour_end_ns += HOUR_NS;
        let rates = &self.hours.advance().rates;
        self.rate = rates.iter().sum::<f64>() / 1e9;
        if self.rate > 0.0 {
            self.pages.build(rates);
        }
    }

    /// Returns the next request.
    pub fn advance(&mut self) -> Arrival {
        // Poisson arrivals have no memory: a draw beyond the end of an hour is repeated from there, at the next hour's
        // rate.
        loop {
            let at_ns = self.now_ns + self.rng.exponential() / self.rate;
            if at_ns < self.hour_end_ns {
                self.now_ns = at_ns;
                break;
            }
            self.begin_hour();
        }
        let page = self.pages.draw(self.rng.next_u64());
        let requests = (self.spec.page.0 / self.spec.request.0) as u32;
        let place = if self.rng.unit() < self.spec.sequential_share {
            let next = &mut self.next[page as usize];
            let place = *next;
            *next = (place + 1) % requests;
            place
        } else {
            self.rng.below(u64::from(requests)) as u32
        };
        let op = if self.rng.unit() < self.spec.read_share {
            Op::Read
        } else {
            Op::Write
        };
        Arrival {
            at: Nanos(self.now_ns as u64),
            page,
            op,
            offset: u64::from(place) * self.spec.request.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::condition;

    fn spec(name: &str) -> ArrivalSpec {
        ArrivalSpec {
            condition: condition(name).unwrap(),
            page: Bytes::mib(10),
            request: Bytes(8 << 10),
            read_share: 0.5,
            sequential_share: 0.5,
        }
    }

    #[test]
    fn arrivals_match_the_rates_of_their_hour() {
        let spec = spec("A");
        let mut arrivals = Arrivals::new(&spec, 3);
        let mut hours = spec.condition.hours(3);
        let mut first = arrivals.advance();
        for h in 0..6_u64 {
            let rates = hours.advance().rates.clone();
            let mut counts = vec![0_u32; rates.len()];
            let (mut reads, mut total, mut before) = (0_u32, 0_u32, Nanos::ZERO);
            while first.at.0 < (h + 1) * 3_600_000_000_000 {
                assert!(first.at >= before && first.at.0 >= h * 3_600_000_000_000);
                before = first.at;
                counts[first.page as usize] += 1;
                reads += u32::from(first.op == Op::Read);
                total += 1;
                assert!(first.offset.is_multiple_of(8192) && first.offset < 10 << 20);
                first = arrivals.advance();
            }
            let wanted: f64 = rates.iter().sum::<f64>() * 3600.0;
            // Five standard deviations of a Poisson count, or of a fair coin.
            let close = |got: u32, mean: f64| (f64::from(got) - mean).abs() < 5.0 * mean.sqrt();
            assert!(close(total, wanted), "hour {h}: {total} {wanted}");
            assert!(close(reads, wanted / 2.0), "hour {h}: {reads}");
            let mut hottest: Vec<usize> = (0..rates.len()).collect();
            hottest.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
            let hot = &hottest[..500];
            let expected: f64 = hot.iter().map(|p| rates[*p] * 3600.0).sum();
            let got: u32 = hot.iter().map(|p| counts[*p]).sum();
            assert!(close(got, expected), "hour {h}: {got} {expected}");
        }
    }

    #[test]
    fn half_of_the_accesses_to_a_page_are_sequential() {
        let mut arrivals = Arrivals::new(&spec("B-not-move"), 1);
        let hot = (0..5000).map(|_| arrivals.advance().page);
        let mut pages: Vec<u32> = hot.collect();
        pages.sort_unstable();
        let most = pages
            .chunk_by(|a, b| a == b)
            .max_by_key(|c| c.len())
            .unwrap()[0];
        let mut next = arrivals.next[most as usize];
        let (mut in_order, mut all) = (0, 0);
        while all < 400 {
            let a = arrivals.advance();
            if a.page == most {
                all += 1;
                if a.offset / 8192 == u64::from(next) && arrivals.next[most as usize] == next + 1 {
                    in_order += 1;
                    next += 1;
                }
            }
        }
        assert!((150..250).contains(&in_order), "{in_order}");
    }

    #[test]
    fn arrivals_are_equal_for_one_seed_and_differ_between_seeds() {
        let take = |seed| {
            let mut a = Arrivals::new(&spec("G-1h"), seed);
            (0..1000).map(|_| a.advance()).collect::<Vec<_>>()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }
}
