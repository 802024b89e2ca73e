//! Fit of a simulated device to measured loads: bare latencies, caps, bandwidths and the load curve.
//!
//! ```text
//!  points: rate, size, mean latency ──▶ N in flight = rate × latency
//!          [`closed_loop`](crate::closed_loop) with N in flight on a device with these parameters ──▶ latency
//!          Σ (ln predicted − ln measured)² ──▶ as small as possible; outliers count less
//! ```
//!
//! The number in flight is taken from the measurement, so rate and latency form one residual: an error in one implies
//! the error in the other. Residuals are logarithms, so 5 % has the same weight at 20 us and at 20 ms.
//!
//! The curve has fixed knots. If the data does not determine a slope, a prior pulls it to that of f = 1 + U/4 + 2·U⁴ (a
//! deviation by a factor e costs as much as a residual of 1 %). So every fit has a solution. [`Basis`] and the largest
//! measured utilization separate measured values from assumed ones. A cap that no load reached is marked as such: an
//! unsaturated loop shows only that the cap is higher.
//!
//! Limits: a device whose single stream is slower than its bandwidth (the model has one number for both, see
//! [`Directions::one_stream`]), and reads and writes whose latencies grow differently with load (the model has one
//! curve).

use model::{DeviceSpec, LoadCurve};
use units::{BytesPerSec, Nanos};

use crate::closed_loop::Shape;
use crate::{LoadShare, least_squares};

/// Knots of the fitted curve: dense where it bends.
const KNOTS: [f64; 7] = [0.0, 0.25, 0.5, 0.7, 0.85, 0.95, 1.0];
/// Cost of a deviation from the assumed value by a factor e, for values that the data does not determine.
const PULL: f64 = 0.01;
/// Deviation, in factors of e, beyond which the pull is stronger: such growth is a queue behind a cap, not part of the
/// curve.
const PULL_LOOSE: f64 = 2.0;
/// Strength of the stronger pull.
const PULL_TIGHT: f64 = 0.1;
/// Size beyond which a residual counts linearly instead of quadratically, so that one disturbed load does not dominate
/// the fit (Huber).
const OUTLIER: f64 = 0.1;
/// Maximum number of rounds of the fit; each takes a few passes over the points.
const ROUNDS_MAX: u32 = 200;
/// Growth of the rate per growth of the number in flight (both in logarithms) below which a load is saturated.
const ELASTICITY_SATURATED: f64 = 0.4;
/// Ratio of the numbers in flight that this test needs.
const DEPTH_STEP: f64 = 1.3;
/// Maximum number of requests in flight for a load that measures the idle device.
const ALONE: f64 = 1.25;
/// Request size that separates measurements of bandwidth (above) from measurements of the rate (below), for one request
/// at a time.
const SMALL_BYTES: f64 = 20_000.0;
/// 90th percentile of the normal distribution.
const NORMAL_P90: f64 = 1.281_551_565_5;

/// Requests of one direction in a measured load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredFlow {
    /// Requests per second.
    pub iops: f64,
    /// Mean bytes per request.
    pub bytes: f64,
    /// Mean latency, microseconds.
    pub latency_us: f64,
    /// 10th and 90th percentile of the latency, if known.
    pub spread_us: Option<(f64, f64)>,
}

/// Measured load: reads, writes, or both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Reads and writes; all values positive and finite.
    pub flows: [Option<MeasuredFlow>; 2],
}

impl LoadPoint {
    /// Returns the mean number of requests in flight, by Little's law.
    pub fn in_flight(&self) -> f64 {
        let one = |f: &MeasuredFlow| f.iops * f.latency_us / 1e6;
        self.flows.iter().flatten().map(one).sum()
    }

    /// Returns the requests per second.
    pub fn iops(&self) -> f64 {
        self.flows.iter().flatten().map(|f| f.iops).sum()
    }

    fn load(&self) -> [LoadShare; 2] {
        let all = self.iops();
        self.flows.map(|f| LoadShare {
            share: f.map_or(0.0, |f| f.iops / all),
            bytes: f.map_or(4096.0, |f| f.bytes),
        })
    }

    /// Returns a key that is equal for loads that differ only in the number in flight.
    fn kind(&self) -> [Option<(u64, u64)>; 2] {
        let all = self.iops();
        self.flows.map(|f| {
            f.map(|f| {
                (
                    (f.bytes / 512.0).round() as u64,
                    (f.iops / all * 20.0).round() as u64,
                )
            })
        })
    }
}

/// Origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Loads that the value limits.
    Measured,
    /// Growth of latency only: no load reached the value, so it is at least the largest measured one.
    NotReached,
    /// The given device: no measurement determines the value.
    Given,
}

/// A fitted value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// Value.
    pub value: f64,
    /// Origin.
    pub basis: Basis,
}

/// Fitted values of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Directions {
    /// Latency of the idle device without the transfer, in microseconds.
    pub base_us: Value,
    /// Requests per second.
    pub iops: Value,
    /// Bytes per second.
    pub bandwidth: Value,
    /// Bytes per second with one request at a time, from the latencies of the smallest and the largest size.
    pub one_stream: Option<f64>,
    /// Goodness of fit.
    pub quality: Quality,
}

/// Goodness of fit of one direction's latencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Number of points.
    pub points: u32,
    /// Share of the variance of the logarithm of the latency that is explained; `None` without variance.
    pub r2: Option<f64>,
    /// Root mean square of predicted over measured latency, minus one.
    pub rms_relative: f64,
    /// Index of the point with the largest residual.
    pub worst_point: usize,
    /// Its predicted over its measured latency, minus one.
    pub worst_relative: f64,
}

/// Prediction of the fitted device for one point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedPoint {
    /// Mean number of requests in flight.
    pub in_flight: f64,
    /// Measured rate times the fitted device's server time per request; above 1 by the error of the fit.
    pub utilization: f64,
    /// Predicted rate, both directions.
    pub iops: f64,
    /// Predicted latency of reads and of writes, in microseconds.
    pub latency_us: [f64; 2],
}

/// Device fitted to measured loads.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFit {
    /// Values by direction; `None` for a direction without measurements.
    pub directions: [Option<Directions>; 2],
    /// Growth of latency with load.
    pub curve: LoadCurve,
    /// Largest utilization among the points. Beyond it the curve is assumed.
    pub utilization_max: f64,
    /// Variation between equal requests, from percentiles of loads with one request in flight.
    pub jitter_sigma: Option<f64>,
    /// Predictions for the points, in the order given.
    pub points: Vec<FittedPoint>,
    /// Fitted device, with values of `given` where no measurement determines them.
    pub spec: DeviceSpec,
}

/// Free parameters of a direction.
#[derive(Debug, Clone, Copy)]
struct FreeParameters {
    iops: bool,
    bandwidth: bool,
}

/// Fits a device to `points`; values that they do not determine are those of `given`. `None` without a point.
pub fn fit_device(points: &[LoadPoint], given: &DeviceSpec) -> Option<DeviceFit> {
    if points.is_empty() {
        return None;
    }
    let free = [0, 1].map(|dir| free_of(points, dir));
    let start = start_of(points, given, &free);
    let loads: Vec<([LoadShare; 2], f64)> =
        points.iter().map(|p| (p.load(), p.in_flight())).collect();
    let first = pack(&start, &free);
    let shape_of = |parameters: &[f64]| unpack(parameters, &start, &free);
    let found = least_squares(&first, ROUNDS_MAX, |parameters| {
        let shape = shape_of(parameters);
        let mut residuals = Vec::with_capacity(2 * points.len() + parameters.len());
        for (point, (load, in_flight)) in points.iter().zip(&loads) {
            let settled = shape.settle(load, *in_flight);
            for (dir, flow) in point.flows.iter().enumerate() {
                residuals.extend(
                    flow.map(|f| robust(libm::log(settled.latency_us[dir] / f.latency_us))),
                );
            }
        }
        residuals.extend(parameters.iter().zip(&first).map(|(p, f)| pull(p - f)));
        residuals
    });
    Some(finish(points, given, shape_of(&found), &free))
}

/// Returns a value whose square equals that of a small residual and grows linearly with a large one.
fn robust(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= OUTLIER {
        residual
    } else {
        (OUTLIER * (2.0 * size - OUTLIER)).sqrt().copysign(residual)
    }
}

fn pull(away: f64) -> f64 {
    let beyond = (away.abs() - PULL_LOOSE).max(0.0);
    PULL * away + PULL_TIGHT * beyond.copysign(away)
}

/// Requests of a single size cannot separate a rate from a bandwidth.
fn free_of(points: &[LoadPoint], dir: usize) -> Option<FreeParameters> {
    let sizes = || points.iter().filter_map(move |p| Some(p.flows[dir]?.bytes));
    let least = sizes().min_by(f64::total_cmp)?;
    let most = sizes().max_by(f64::total_cmp)?;
    let several = most > 1.5 * least;
    Some(FreeParameters {
        iops: several || least <= SMALL_BYTES,
        bandwidth: several || least > SMALL_BYTES,
    })
}

fn start_of(points: &[LoadPoint], given: &DeviceSpec, free: &[Option<FreeParameters>; 2]) -> Shape {
    let mut shape = Shape::of(given);
    shape.curve = KNOTS
        .iter()
        .map(|u| (*u, 1.0 + 0.25 * u + 2.0 * u * u * u * u))
        .collect();
    for (dir, free) in free.iter().enumerate() {
        let Some(free) = free else { continue };
        let flows = || points.iter().filter_map(move |p| p.flows[dir]);
        let most = |of: fn(&MeasuredFlow) -> f64| flows().map(|f| of(&f)).fold(0.0, f64::max);
        let (iops, bytes_per_s) = (most(|f| f.iops), most(|f| f.iops * f.bytes));
        // A given value below the measured one is wrong.
        shape.iops[dir] = if free.iops {
            iops
        } else {
            shape.iops[dir].max(iops)
        };
        shape.bytes_per_s[dir] = if free.bandwidth {
            bytes_per_s
        } else {
            shape.bytes_per_s[dir].max(bytes_per_s)
        };
        let bare = |f: MeasuredFlow| {
            (f.latency_us - shape.transfer_us(dir, f.bytes)).max(0.2 * f.latency_us)
        };
        shape.base_us[dir] = flows().map(bare).fold(f64::INFINITY, f64::min);
    }
    shape.jitter_sigma = jitter(points, &shape).unwrap_or(shape.jitter_sigma);
    shape
}

fn pack(shape: &Shape, free: &[Option<FreeParameters>; 2]) -> Vec<f64> {
    let mut out = Vec::new();
    for (dir, free) in free.iter().enumerate() {
        let Some(free) = free else { continue };
        out.push(libm::log(shape.base_us[dir]));
        if free.iops {
            out.push(libm::log(shape.iops[dir]));
        }
        if free.bandwidth {
            out.push(libm::log(shape.bytes_per_s[dir]));
        }
    }
    // Logarithms of rises, so the curve cannot fall.
    out.extend(shape.curve.windows(2).map(|w| libm::log(w[1].1 - w[0].1)));
    out
}

fn unpack(parameters: &[f64], start: &Shape, free: &[Option<FreeParameters>; 2]) -> Shape {
    let mut shape = start.clone();
    let mut next = parameters.iter().map(|p| libm::exp(*p));
    let mut take = || next.next().expect("packed with the same choice");
    for (dir, free) in free.iter().enumerate() {
        let Some(free) = free else { continue };
        shape.base_us[dir] = take();
        if free.iops {
            shape.iops[dir] = take();
        }
        if free.bandwidth {
            shape.bytes_per_s[dir] = take();
        }
    }
    for i in 1..shape.curve.len() {
        shape.curve[i].1 = shape.curve[i - 1].1 + take();
    }
    shape
}

fn finish(
    points: &[LoadPoint],
    given: &DeviceSpec,
    mut shape: Shape,
    free: &[Option<FreeParameters>; 2],
) -> DeviceFit {
    let saturated = saturated(points);
    for knot in &mut shape.curve {
        knot.1 = (knot.1 * 1e4).round() / 1e4;
    }
    let mut bases = [[Basis::Given; 2]; 2];
    for (dir, free) in free.iter().enumerate() {
        let Some(free) = free else { continue };
        let flows = || points.iter().filter_map(move |p| p.flows[dir]);
        let most = |of: fn(&MeasuredFlow) -> f64| flows().map(|f| of(&f)).fold(0.0, f64::max);
        let bound = |by_rate: bool| {
            points.iter().zip(&saturated).any(|(p, full)| {
                let Some(flow) = p.flows[dir].filter(|_| *full) else {
                    return false;
                };
                let (rate, bytes) = (1e6 / shape.iops[dir], shape.transfer_us(dir, flow.bytes));
                if by_rate {
                    rate > bytes * 1.02
                } else {
                    bytes > rate * 1.02
                }
            })
        };
        let basis = |free: bool, bound: bool| match (free, bound) {
            (false, _) => Basis::Given,
            (true, true) => Basis::Measured,
            (true, false) => Basis::NotReached,
        };
        bases[dir] = [
            basis(free.iops, bound(true)),
            basis(free.bandwidth, bound(false)),
        ];
        // A measured value is possible.
        if bases[dir][0] != Basis::Measured {
            shape.iops[dir] = shape.iops[dir].max(most(|f| f.iops));
        }
        if bases[dir][1] != Basis::Measured {
            shape.bytes_per_s[dir] = shape.bytes_per_s[dir].max(most(|f| f.iops * f.bytes));
        }
    }
    let spec = DeviceSpec {
        read_iops: shape.iops[0].round().max(1.0),
        write_iops: shape.iops[1].round().max(1.0),
        read_bandwidth: BytesPerSec((shape.bytes_per_s[0] as u64).max(1)),
        write_bandwidth: BytesPerSec((shape.bytes_per_s[1] as u64).max(1)),
        read_latency: Nanos::from_micros_f64(shape.base_us[0]),
        write_latency: Nanos::from_micros_f64(shape.base_us[1]),
        curve: shape.load_curve(),
        ..given.clone()
    };
    // From here on, use the rounded device as it will be stored.
    let shape = Shape::of(&spec);
    let fitted: Vec<FittedPoint> = points.iter().map(|p| fitted_point(&shape, p)).collect();
    let jitter_sigma = jitter(points, &shape);
    let directions = [0, 1].map(|dir| {
        free[dir].map(|_| Directions {
            base_us: Value {
                value: shape.base_us[dir],
                basis: Basis::Measured,
            },
            iops: Value {
                value: shape.iops[dir],
                basis: bases[dir][0],
            },
            bandwidth: Value {
                value: shape.bytes_per_s[dir],
                basis: bases[dir][1],
            },
            one_stream: one_stream(points, dir),
            quality: quality(points, &fitted, dir),
        })
    });
    DeviceFit {
        directions,
        curve: spec.curve.clone(),
        utilization_max: fitted
            .iter()
            .map(|p| p.utilization.min(1.0))
            .fold(0.0, f64::max),
        jitter_sigma,
        points: fitted,
        spec: DeviceSpec {
            jitter_sigma: jitter_sigma.unwrap_or(spec.jitter_sigma),
            ..spec
        },
    }
}

fn fitted_point(shape: &Shape, point: &LoadPoint) -> FittedPoint {
    let in_flight = point.in_flight();
    let settled = shape.settle(&point.load(), in_flight);
    let busy = |(dir, flow): (usize, &Option<MeasuredFlow>)| {
        flow.map_or(0.0, |f| f.iops * shape.occupancy_us(dir, f.bytes) / 1e6)
    };
    FittedPoint {
        in_flight,
        utilization: point.flows.iter().enumerate().map(busy).sum(),
        iops: settled.iops,
        latency_us: settled.latency_us,
    }
}

/// Returns true for each point at which more requests in flight no longer raise the rate.
fn saturated(points: &[LoadPoint]) -> Vec<bool> {
    points
        .iter()
        .map(|p| {
            // Nearest load of the same kind with clearly fewer requests in flight.
            let fewer = points
                .iter()
                .filter(|o| o.kind() == p.kind() && o.in_flight() * DEPTH_STEP <= p.in_flight())
                .max_by(|a, b| a.in_flight().total_cmp(&b.in_flight()));
            fewer.is_some_and(|o| {
                let growth = libm::log(p.iops() / o.iops());
                growth < ELASTICITY_SATURATED * libm::log(p.in_flight() / o.in_flight())
            })
        })
        .collect()
}

/// Returns the loads of only that direction with one request in flight.
fn alone(points: &[LoadPoint], dir: usize) -> impl Iterator<Item = MeasuredFlow> {
    points
        .iter()
        .filter(move |p| p.flows[1 - dir].is_none() && p.in_flight() <= ALONE)
        .filter_map(move |p| p.flows[dir])
}

fn one_stream(points: &[LoadPoint], dir: usize) -> Option<f64> {
    let small = alone(points, dir).min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
    let large = alone(points, dir).max_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
    let (bytes, us) = (
        large.bytes - small.bytes,
        large.latency_us - small.latency_us,
    );
    (bytes > small.bytes && us > 0.0).then(|| bytes * 1e6 / us)
}

/// Sigma of the log-normal factor on the bare latency: mean over the directions, each from its smallest size.
fn jitter(points: &[LoadPoint], shape: &Shape) -> Option<f64> {
    let sigmas: Vec<f64> = (0..2)
        .filter_map(|dir| {
            let flow = alone(points, dir)
                .filter(|f| f.spread_us.is_some())
                .min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
            let (p10, p90) = flow.spread_us?;
            let transfer = shape.transfer_us(dir, flow.bytes);
            let (low, high) = (p10 - transfer, p90 - transfer);
            (low > 0.0 && high >= low)
                .then(|| (libm::log(high / low) / (2.0 * NORMAL_P90)).min(3.0))
        })
        .collect();
    let n = sigmas.len() as f64;
    (!sigmas.is_empty()).then(|| (sigmas.iter().sum::<f64>() / n * 1e3).round() / 1e3)
}

fn quality(points: &[LoadPoint], fitted: &[FittedPoint], dir: usize) -> Quality {
    let pairs: Vec<(usize, f64, f64)> = points
        .iter()
        .zip(fitted)
        .enumerate()
        .filter_map(|(i, (p, f))| Some((i, p.flows[dir]?.latency_us, f.latency_us[dir])))
        .collect();
    let n = pairs.len() as f64;
    let logs: Vec<f64> = pairs.iter().map(|p| libm::log(p.1)).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let variance: f64 = logs.iter().map(|l| (l - mean) * (l - mean)).sum();
    let left: f64 = pairs
        .iter()
        .map(|p| libm::log(p.2 / p.1))
        .map(|r| r * r)
        .sum();
    let relative = |p: &(usize, f64, f64)| p.2 / p.1 - 1.0;
    let square: f64 = pairs.iter().map(|p| relative(p) * relative(p)).sum();
    let worst = pairs
        .iter()
        .max_by(|a, b| relative(a).abs().total_cmp(&relative(b).abs()))
        .expect("a direction has points");
    Quality {
        points: pairs.len() as u32,
        // If all latencies lie within a percent, there is no variance to explain.
        r2: (variance > n * 1e-4).then(|| 1.0 - left / variance),
        rms_relative: (square / n).sqrt(),
        worst_point: worst.0,
        worst_relative: relative(worst),
    }
}

#[cfg(test)]
mod tests;
