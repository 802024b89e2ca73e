//! Service times of disks and flash devices behind an array's cache, and response times under load.
//!
//! The analytic side is M/G/1 with a correction for devices that serve several requests at once: with service time S, arrival
//! rate λ and c units,
//!
//! ```text
//!   ρ = λ·E[S]/c      W = λ·E[S²]/c² · g(ρ) / 2      RT = E[S] + W      g(ρ) = 1/(1−ρ)
//! ```
//!
//! The formula is exact for Poisson arrivals and c = 1 (Pollaczek and Khinchine), and a usual approximation for c > 1.
//! From ρ = 0.98 on, g continues along its tangent: the price of overload is finite and still grows. A simulated device
//! draws its service times from [`ServiceTime::draw_ns`], whose first two moments are those of the formula.
//!
//! Limits: no reordering by the device, no read-ahead, no garbage collection (see crate `flash`). For bursty load the
//! result is too low.

use model::Op;
use serde::Serialize;

/// Utilization from which the price of queueing continues along its tangent.
const RHO_MAX: f64 = 0.98;

/// Service time of one request without waiting: positioning, then transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServiceTime {
    /// Mean time before the first byte of a read, nanoseconds.
    pub read_ns: f64,
    /// Mean time before the first byte of a write, nanoseconds.
    pub write_ns: f64,
    /// Time per byte, nanoseconds.
    pub byte_ns: f64,
    /// E[S²]/E[S]² of the time before the first byte, 1..=4/3 (4/3: uniform from zero to twice the mean).
    pub second_moment: f64,
    /// Number of requests that are served in parallel.
    pub units: u32,
    /// Time before the first byte of a request that begins at the end of the previous one, in nanoseconds: no
    /// positioning.
    pub sequential_ns: f64,
}

impl ServiceTime {
    /// Fibre Channel disk with 15,000 rpm: 3.5 ms seek, 2.0 ms rotation, 0.1 ms electronics; 120 MB/s.
    pub fn fc_15k() -> Self {
        Self::disk(3.5, 2.0, 0.1, 120.0)
    }

    /// SATA disk with 7,200 rpm: 8.5 ms seek, 4.2 ms rotation, 0.2 ms electronics; 80 MB/s.
    pub fn sata_7k2() -> Self {
        Self::disk(8.5, 4.2, 0.2, 80.0)
    }

    fn disk(seek_ms: f64, rotation_ms: f64, electronics_ms: f64, mb_per_s: f64) -> Self {
        let positioning_ns = (seek_ms + rotation_ms + electronics_ms) * 1e6;
        Self {
            read_ns: positioning_ns,
            write_ns: positioning_ns,
            byte_ns: 1e3 / mb_per_s,
            second_moment: 4.0 / 3.0,
            units: 1,
            sequential_ns: electronics_ms * 1e6,
        }
    }

    /// Enterprise flash drive of about 2010: reads 0.25 ms, writes 0.6 ms, 200 MB/s, one request at a time.
    pub fn flash_2010() -> Self {
        Self::flash(0.25, 0.6, 200.0, 1)
    }

    /// TLC NVMe drive: reads 0.08 ms, writes 0.025 ms into its buffer, 16 requests at once, 200 MB/s each.
    pub fn nvme_tlc() -> Self {
        Self::flash(0.08, 0.025, 200.0, 16)
    }

    /// QLC NVMe drive: reads 0.12 ms, writes 0.4 ms (past its buffer), 16 requests at once, 150 MB/s each.
    pub fn nvme_qlc() -> Self {
        Self::flash(0.12, 0.4, 150.0, 16)
    }

    fn flash(read_ms: f64, write_ms: f64, mb_per_s: f64, units: u32) -> Self {
        Self {
            read_ns: read_ms * 1e6,
            write_ns: write_ms * 1e6,
            byte_ns: 1e3 / mb_per_s,
            second_moment: 1.1,
            units,
            sequential_ns: read_ms.min(write_ms) * 1e6,
        }
    }

    fn positioning_ns(&self, op: Op) -> f64 {
        if op == Op::Read {
            self.read_ns
        } else {
            self.write_ns
        }
    }

    /// Returns E[S] of a request of `bytes` in nanoseconds.
    pub fn mean_ns(&self, op: Op, bytes: f64) -> f64 {
        self.positioning_ns(op) + bytes * self.byte_ns
    }

    /// Returns E[S²] of a request of `bytes` in nanoseconds squared. Only the time before the first byte varies.
    pub fn square_ns2(&self, op: Op, bytes: f64) -> f64 {
        let (p, t) = (self.positioning_ns(op), bytes * self.byte_ns);
        self.second_moment * p * p + 2.0 * p * t + t * t
    }

    /// Draws the service time of one request with positioning; `unit` is its random number in [0, 1).
    #[inline]
    pub fn draw_ns(&self, op: Op, bytes: f64, unit: f64) -> f64 {
        self.scattered_ns(self.positioning_ns(op), unit) + bytes * self.byte_ns
    }

    /// Draws a time with this mean and the variation of the time before the first byte; `unit` is its random number in
    /// [0, 1).
    #[inline]
    pub fn scattered_ns(&self, mean_ns: f64, unit: f64) -> f64 {
        // Uniform with half-width a around the mean m has E[S²] = m²(1 + a²/3m²).
        let half = libm::sqrt(3.0 * (self.second_moment - 1.0));
        mean_ns * (1.0 + half * (2.0 * unit - 1.0))
    }
}

/// Poisson load of one device, as sums to which requests are added and from which they are subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OfferedLoad {
    /// Share of the device's time that is requested, 0.. (may be above 1).
    pub utilization: f64,
    /// Σ λ·E[S²]/c², nanoseconds.
    pub square_ns: f64,
}

/// Load of one request per second of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestLoad {
    /// Mean service time, nanoseconds.
    pub mean_ns: f64,
    /// Utilization by one request per second.
    pub utilization: f64,
    /// Nanoseconds of λ·E[S²]/c² by one request per second.
    pub square_ns: f64,
}

impl RequestLoad {
    /// Computes the load of requests of `bytes`.
    pub fn of(service: &ServiceTime, op: Op, bytes: f64) -> Self {
        let units = f64::from(service.units);
        let mean_ns = service.mean_ns(op, bytes);
        Self {
            mean_ns,
            utilization: mean_ns * 1e-9 / units,
            square_ns: service.square_ns2(op, bytes) * 1e-9 / (units * units),
        }
    }
}

impl OfferedLoad {
    /// Adds `rate` requests per second; a negative rate subtracts them.
    #[inline]
    pub fn add(&mut self, request: &RequestLoad, rate: f64) {
        self.utilization += rate * request.utilization;
        self.square_ns += rate * request.square_ns;
    }

    /// Returns the mean time in the queue in nanoseconds.
    #[inline]
    pub fn wait_ns(&self) -> f64 {
        self.square_ns * 0.5 * congestion(self.utilization)
    }

    /// Returns the increase of every other request's time in the queue by one more request per second, in nanoseconds.
    #[inline]
    pub fn marginal_wait_ns(&self, request: &RequestLoad) -> f64 {
        0.5 * (request.square_ns * congestion(self.utilization)
            + self.square_ns * request.utilization * congestion_slope(self.utilization))
    }
}

/// g(ρ).
#[inline]
fn congestion(rho: f64) -> f64 {
    if rho < RHO_MAX {
        1.0 / (1.0 - rho.max(0.0))
    } else {
        let edge = 1.0 / (1.0 - RHO_MAX);
        edge + edge * edge * (rho - RHO_MAX)
    }
}

/// g′(ρ).
#[inline]
fn congestion_slope(rho: f64) -> f64 {
    let at = rho.clamp(0.0, RHO_MAX);
    1.0 / ((1.0 - at) * (1.0 - at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn drawn_service_times_have_the_moments_of_the_formula() {
        let mut rng = Rng::new(7, 0);
        for service in [
            ServiceTime::fc_15k(),
            ServiceTime::sata_7k2(),
            ServiceTime::flash_2010(),
        ] {
            let (mut sum, mut square, n) = (0.0, 0.0, 200_000);
            for _ in 0..n {
                let s = service.draw_ns(Op::Read, 8192.0, rng.unit());
                sum += s;
                square += s * s;
            }
            let n = f64::from(n);
            let mean = service.mean_ns(Op::Read, 8192.0);
            let squares = service.square_ns2(Op::Read, 8192.0);
            assert!((sum / n / mean - 1.0).abs() < 0.01);
            assert!((square / n / squares - 1.0).abs() < 0.01);
        }
    }

    /// Compares a simulated first-come-first-served queue with the formula.
    #[test]
    fn wait_formula_matches_a_simulated_queue() {
        let service = ServiceTime::fc_15k();
        let request = RequestLoad::of(&service, Op::Read, 8192.0);
        for rho in [0.3, 0.6, 0.85] {
            let rate = rho / request.utilization;
            let mut load = OfferedLoad::default();
            load.add(&request, rate);
            let mut rng = Rng::new(3, 1);
            let (mut now, mut free, mut waited, n) = (0.0, 0.0f64, 0.0, 400_000);
            for _ in 0..n {
                now += rng.exponential() * 1e9 / rate;
                let start = free.max(now);
                waited += start - now;
                free = start + service.draw_ns(Op::Read, 8192.0, rng.unit());
            }
            let ratio = waited / f64::from(n) / load.wait_ns();
            assert!((ratio - 1.0).abs() < 0.05, "at {rho}: {ratio}");
        }
    }

    #[test]
    fn marginal_wait_is_the_derivative() {
        let service = ServiceTime::sata_7k2();
        let request = RequestLoad::of(&service, Op::Write, 65536.0);
        for rho in [0.1, 0.5, 0.97, 1.4] {
            let mut load = OfferedLoad::default();
            load.add(&request, rho / request.utilization);
            let mut more = load;
            more.add(&request, 1e-4);
            let measured = (more.wait_ns() - load.wait_ns()) / 1e-4;
            let ratio = measured / load.marginal_wait_ns(&request);
            assert!((ratio - 1.0).abs() < 1e-3, "at {rho}: {ratio}");
        }
    }

    #[test]
    fn more_units_reduce_the_wait_and_overload_increases_it() {
        let nvme = ServiceTime::nvme_tlc();
        let one = ServiceTime { units: 1, ..nvme };
        let of = |s: &ServiceTime, rate: f64| {
            let request = RequestLoad::of(s, Op::Read, 4096.0);
            let mut load = OfferedLoad::default();
            load.add(&request, rate);
            load.wait_ns()
        };
        assert!(of(&nvme, 5_000.0) < of(&one, 5_000.0) / 16.0);
        assert!(of(&one, 40_000.0) > of(&one, 20_000.0));
        assert!(of(&one, 40_000.0).is_finite());
    }
}
