//! Exchanges of extents between devices, chosen by response time with regard to service classes.
//!
//! ```text
//!   loads of extents ─▶ devices: utilization, wait, price of congestion ─▶ best pair ─▶ exchange ─▶ … ─▶ list, best first
//!   weights of volumes ─▶                                     ▲_________ new loads of the two _________│
//! ```
//!
//! The objective is F = Σ over extents of weight · (reads/s + share · writes/s) · RT(device), with RT of M/G/1
//! ([`algo::OfferedLoad`]). The derivative of F with respect to the load of a device is its price of congestion: the delay
//! that one more request per second causes for all other requests there. An extent e on device d costs C(e, d) = reads ·
//! (weight · RT + price of a read) + writes · (share · weight · RT + price of a write). The gain of an exchange of e on d
//! for f on d' is
//!
//! ```text
//!   C(e, d) − C(e, d') + C(f, d') − C(f, d) − (cost of both copies at the same prices, spread over the horizon)
//! ```
//!
//! to first order (pairs are ranked without the cost of copies). Before an exchange is accepted, the change of F is computed
//! exactly from the sums of the two devices, copies included. Weights are rounded to half octaves, so the number of kinds of
//! extents is small. The search is greedy and lazy: a heap orders pairs of devices by gain. If one of the devices of the top
//! pair has changed, its gain is recomputed. All pairs are recomputed every [`REFRESH`] exchanges. An extent moves at most
//! once.
//!
//! Sources: the objective, exchanges within a budget and analytic models of components are from Lipetz, Hazan, Natanzon and
//! Bachmat, Automated Tiering in a QoS Environment Using Coarse Data (HPCC 2013; cited by Abashkin, Natanzon and Bachmat as
//! "sparse data"). Only its abstract was available; the rest (the price, the pair heap, φ(x) = x) is our own. Related:
//! Symptimizer (Arnan and others, TOS 3(1), 2007), which also judges swaps from sums.
//!
//! When not to use it: for load with bursts that an hourly mean hides (M/G/1 then underestimates), or for devices that
//! differ in more than service times (wear has no price).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use algo::{OfferedLoad, RequestLoad, ServiceTime};
use model::Op;
use units::{Bytes, Nanos};

#[cfg(test)]
mod tests;

/// Number of exchanges after which all pairs of devices are recomputed.
const REFRESH: usize = 256;
/// Range of the factors of volume weights.
const FACTOR_RANGE: (f64, f64) = (0.25, 4.0);
/// Steps in which gains and weights are compared, so rounding in the last bit cannot change a choice.
const STEPS: f64 = 1e3;

/// A device behind the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Station {
    /// Service times.
    pub service: ServiceTime,
    /// Response time of a read and of a write on the idle device, nanoseconds; `None` if it is the service time. A device
    /// with internal parallelism responds faster than its caps suggest.
    pub bare_ns: Option<[f64; 2]>,
}

/// Load of an extent behind the cache: read misses and destaged writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExtentLoad {
    /// Volume of the extent: index of the weights.
    pub volume: u32,
    /// Device that holds the extent.
    pub device: u16,
    /// Reads per second that reach the device.
    pub reads: f32,
    /// Writes per second that reach the device.
    pub writes: f32,
}

/// Returns the next factor of a volume's weight. It is multiplied by the root of response time over target, within ¼ and 4.
pub fn next_factor(factor: f64, response_over_target: f64) -> f64 {
    (factor * response_over_target.sqrt()).clamp(FACTOR_RANGE.0, FACTOR_RANGE.1)
}

/// Limits and prices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExchangeTerms {
    /// Largest number of exchanges (paper 2: 15,000 per hour).
    pub most: u32,
    /// Size of one request behind the cache.
    pub request: Bytes,
    /// Size of an extent.
    pub extent: Bytes,
    /// Time in which an exchange must recover the cost of its copies: until the next decision.
    pub horizon: Nanos,
    /// Factor for all loads, at least 1: the next hour has peaks, and its means differ from those of the last hour.
    pub burst: f64,
    /// Weight of a write's response relative to a read's, 0..=1. Clients do not wait for destaging, but they wait for a full
    /// write cache.
    pub write_share: f64,
}

impl Default for ExchangeTerms {
    /// Values of paper 2: 15,000 exchanges, extents of 60 pages of 64 KiB, one hour. The share of writes is an assumption.
    fn default() -> Self {
        Self {
            most: 15_000,
            request: Bytes(64 << 10),
            extent: Bytes(60 * (64 << 10)),
            horizon: Nanos::from_secs(3600),
            burst: 1.0,
            write_share: 0.05,
        }
    }
}

/// Two extents that change places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// First extent, an index of the loads.
    pub a: u32,
    /// Second extent, an index of the loads.
    pub b: u32,
}

/// Result of [`exchange`].
#[derive(Debug, Clone, PartialEq)]
pub struct Exchanges {
    /// Exchanges in order of choice: the first gains most.
    pub list: Vec<Exchange>,
    /// F before, weighted nanoseconds of response per second.
    pub before: f64,
    /// F after all exchanges, without the cost of copies.
    pub after: f64,
}

/// Sums of one device.
#[derive(Debug, Clone, Copy)]
struct Device {
    read: RequestLoad,
    write: RequestLoad,
    load: OfferedLoad,
    /// Σ weight · reads.
    reads: f64,
    /// Σ weight · writes · share of writes.
    writes: f64,
    /// Read and write of one extent.
    copy: [RequestLoad; 2],
    /// All fields below are derived from the sums.
    wait_ns: f64,
    price_read: f64,
    price_write: f64,
    version: u32,
}

impl Device {
    fn new(station: &Station, terms: &ExchangeTerms) -> Self {
        let of = |op, bytes: Bytes| RequestLoad::of(&station.service, op, bytes.as_f64());
        let mut read = of(Op::Read, terms.request);
        let mut write = of(Op::Write, terms.request);
        if let Some(bare_ns) = station.bare_ns {
            [read.mean_ns, write.mean_ns] = bare_ns;
        }
        Self {
            read,
            write,
            load: OfferedLoad::default(),
            reads: 0.0,
            writes: 0.0,
            copy: [of(Op::Read, terms.extent), of(Op::Write, terms.extent)],
            wait_ns: 0.0,
            price_read: 0.0,
            price_write: 0.0,
            version: 0,
        }
    }

    fn add(&mut self, item: &Item, sign: f64) {
        self.load.add(&self.read, sign * item.reads);
        self.load.add(&self.write, sign * item.writes);
        self.reads += sign * item.weight * item.reads;
        self.writes += sign * item.weight * item.writes * item.share;
    }

    fn settle(&mut self) {
        let waiting = self.reads + self.writes;
        self.wait_ns = self.load.wait_ns();
        self.price_read = waiting * self.load.marginal_wait_ns(&self.read);
        self.price_write = waiting * self.load.marginal_wait_ns(&self.write);
        self.version += 1;
    }

    /// Share of the device in F.
    fn objective(&self) -> f64 {
        self.reads * self.read.mean_ns
            + self.writes * self.write.mean_ns
            + (self.reads + self.writes) * self.load.wait_ns()
    }

    /// C(e, this device).
    fn cost(&self, item: &Item) -> f64 {
        let read = item.weight * (self.read.mean_ns + self.wait_ns) + self.price_read;
        let write = item.weight * item.share * (self.write.mean_ns + self.wait_ns);
        item.reads * read + item.writes * (write + self.price_write)
    }

    /// Cost of reading one extent and writing another for all requests of the device, spread over the horizon.
    fn copy_cost(&self, horizon_s: f64) -> f64 {
        let waiting = self.reads + self.writes;
        let both = self.copy.iter().map(|c| self.load.marginal_wait_ns(c));
        waiting * both.sum::<f64>() / horizon_s
    }
}

/// An extent with its weight.
#[derive(Debug, Clone, Copy)]
struct Item {
    reads: f64,
    writes: f64,
    weight: f64,
    share: f64,
}

/// Extents of one device and one kind, busiest first. Extents between `first` and `end` have not moved.
#[derive(Debug, Clone, Default)]
struct Rank {
    extents: Vec<u32>,
    first: usize,
    end: usize,
}

struct Chooser<'a> {
    loads: &'a [ExtentLoad],
    /// Quantized weight of each volume.
    weights: Vec<f64>,
    share: f64,
    burst: f64,
    horizon_s: f64,
    devices: Vec<Device>,
    ranks: Vec<Vec<Rank>>,
}

/// Chooses extents that change places, within the terms. `weights` has the value of a nanosecond of each volume's reads, for
/// example its priority over its response-time target; only the ratios of weights matter.
///
/// # Panics
/// Panics if a load names an unknown device or volume, or if a load or weight is negative or not finite.
pub fn exchange(
    stations: &[Station],
    loads: &[ExtentLoad],
    weights: &[f64],
    terms: &ExchangeTerms,
) -> Exchanges {
    let mut chooser = Chooser::new(stations, loads, weights, terms);
    let before = chooser.objective();
    let mut list = Vec::new();
    let pairs = stations.len() * stations.len();
    // Every step takes an exchange, recomputes a changed pair, or drops a pair.
    let mut steps = 64 * terms.most as usize + 64 * pairs;
    let mut waiting = chooser.all_pairs();
    let mut refreshed = 0;
    while list.len() < terms.most as usize && steps > 0 {
        steps -= 1;
        let Some(pair) = waiting.pop() else {
            if list.len() == refreshed {
                break;
            }
            refreshed = list.len();
            waiting = chooser.all_pairs();
            continue;
        };
        let Pair {
            a, b, versions: v, ..
        } = pair;
        let now = (
            chooser.devices[a as usize].version,
            chooser.devices[b as usize].version,
        );
        if v != now {
            waiting.extend(chooser.pair(a, b));
            continue;
        }
        let Some(taken) = chooser.take(a, b) else {
            continue;
        };
        list.push(taken);
        if list.len() >= refreshed + REFRESH {
            refreshed = list.len();
            waiting = chooser.all_pairs();
        } else {
            waiting.extend(chooser.pair(a, b));
        }
    }
    Exchanges {
        list,
        before,
        after: chooser.objective(),
    }
}

/// Two devices and the gain of their best exchange, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    gain: i64,
    /// Ties go to the first devices.
    order: Reverse<(u16, u16)>,
    a: u16,
    b: u16,
    versions: (u32, u32),
}

impl<'a> Chooser<'a> {
    fn new(
        stations: &[Station],
        loads: &'a [ExtentLoad],
        weights: &[f64],
        terms: &ExchangeTerms,
    ) -> Self {
        assert!(weights.iter().all(|w| w.is_finite() && *w >= 0.0));
        let (weights, levels) = quantized(weights);
        let mut chooser = Self {
            loads,
            weights,
            share: terms.write_share,
            burst: terms.burst,
            horizon_s: terms.horizon.as_secs_f64(),
            devices: stations.iter().map(|s| Device::new(s, terms)).collect(),
            ranks: vec![vec![Rank::default(); 2 * levels.count]; stations.len()],
        };
        for (e, load) in loads.iter().enumerate() {
            assert!(load.reads >= 0.0 && load.writes >= 0.0 && load.reads + load.writes < 1e12);
            let item = chooser.item(e as u32);
            chooser.devices[load.device as usize].add(&item, 1.0);
            let writes = usize::from(load.writes > load.reads);
            let kind = 2 * levels.of_volume[load.volume as usize] + writes;
            chooser.ranks[load.device as usize][kind]
                .extents
                .push(e as u32);
        }
        for rank in chooser.ranks.iter_mut().flatten() {
            let busy = |e: &u32| {
                let load = &loads[*e as usize];
                load.reads + load.writes
            };
            rank.extents
                .sort_by(|x, y| busy(y).total_cmp(&busy(x)).then(x.cmp(y)));
            rank.end = rank.extents.len();
        }
        chooser.devices.iter_mut().for_each(Device::settle);
        chooser
    }

    fn item(&self, extent: u32) -> Item {
        let load = &self.loads[extent as usize];
        Item {
            reads: self.burst * f64::from(load.reads),
            writes: self.burst * f64::from(load.writes),
            weight: self.weights[load.volume as usize],
            share: self.share,
        }
    }

    fn objective(&self) -> f64 {
        self.devices.iter().map(Device::objective).sum()
    }

    fn all_pairs(&self) -> BinaryHeap<Pair> {
        let n = self.devices.len() as u16;
        let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
        pairs.filter_map(|(a, b)| self.pair(a, b)).collect()
    }

    /// Returns the gain of the best exchange of two devices, if it is above 0.
    fn pair(&self, a: u16, b: u16) -> Option<Pair> {
        let (_, out) = self.best_out(a, b)?;
        let (_, back) = self.best_out(b, a)?;
        let gain = ((out + back) * STEPS) as i64;
        let versions = (
            self.devices[a as usize].version,
            self.devices[b as usize].version,
        );
        (gain > 0).then_some(Pair {
            gain,
            order: Reverse((a, b)),
            a,
            b,
            versions,
        })
    }

    /// Returns the extent on `from` with the largest gain on `to`, and the gain. Candidates are the busiest and the idlest
    /// of each kind.
    fn best_out(&self, from: u16, to: u16) -> Option<((usize, bool), f64)> {
        let (here, there) = (&self.devices[from as usize], &self.devices[to as usize]);
        let mut best: Option<((usize, bool), f64)> = None;
        for (kind, rank) in self.ranks[from as usize].iter().enumerate() {
            if rank.first == rank.end {
                continue;
            }
            for (last, at) in [(false, rank.first), (true, rank.end - 1)] {
                let item = self.item(rank.extents[at]);
                let gain = here.cost(&item) - there.cost(&item);
                if best.is_none_or(|b| gain > b.1) {
                    best = Some(((kind, last), gain));
                }
            }
        }
        best
    }

    fn extent_at(&self, device: u16, (kind, last): (usize, bool)) -> u32 {
        let rank = &self.ranks[device as usize][kind];
        rank.extents[if last { rank.end - 1 } else { rank.first }]
    }

    fn used_up(&mut self, device: u16, (kind, last): (usize, bool)) {
        let rank = &mut self.ranks[device as usize][kind];
        if last {
            rank.end -= 1;
        } else {
            rank.first += 1;
        }
    }

    /// Carries out the best exchange of two devices if F falls by more than the cost of the copies.
    fn take(&mut self, a: u16, b: u16) -> Option<Exchange> {
        let (from_a, from_b) = (self.best_out(a, b)?.0, self.best_out(b, a)?.0);
        let (e, f) = (self.extent_at(a, from_a), self.extent_at(b, from_b));
        let (item_e, item_f) = (self.item(e), self.item(f));
        let (mut at_a, mut at_b) = (self.devices[a as usize], self.devices[b as usize]);
        let cost = at_a.copy_cost(self.horizon_s) + at_b.copy_cost(self.horizon_s);
        let before = at_a.objective() + at_b.objective();
        at_a.add(&item_e, -1.0);
        at_b.add(&item_e, 1.0);
        at_b.add(&item_f, -1.0);
        at_a.add(&item_f, 1.0);
        let gain = before - at_a.objective() - at_b.objective() - cost;
        if gain * STEPS < 1.0 || gain <= before * 1e-9 {
            return None;
        }
        at_a.settle();
        at_b.settle();
        self.devices[a as usize] = at_a;
        self.devices[b as usize] = at_b;
        self.used_up(a, from_a);
        self.used_up(b, from_b);
        Some(Exchange { a: e, b: f })
    }
}

/// Level of each volume's weight; the number of levels is small.
struct Levels {
    of_volume: Vec<usize>,
    count: usize,
}

/// Rounds weights to half octaves, which leaves few different ones.
fn quantized(weights: &[f64]) -> (Vec<f64>, Levels) {
    let step = |w: f64| (w > 0.0).then(|| libm::round(2.0 * libm::log2(w)) as i32);
    let mut steps: Vec<Option<i32>> = weights.iter().map(|w| step(*w)).collect();
    let of = steps.clone();
    steps.sort_unstable();
    steps.dedup();
    let of_volume: Vec<usize> = of
        .iter()
        .map(|s| steps.binary_search(s).expect("it is among them"))
        .collect();
    let value = |s: &Option<i32>| s.map_or(0.0, |s| libm::exp2(f64::from(s) / 2.0));
    let count = steps.len().max(1);
    (of.iter().map(value).collect(), Levels { of_volume, count })
}
