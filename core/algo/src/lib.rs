//! Small algorithms that several crates share: no I/O, no clocks, no global state.
//!
//! All random values are functions of a seed, all transcendental functions come from `libm`, and floating-point
//! arithmetic is plain IEEE in a fixed order: the same inputs give the same bits on every system.

mod alias;
mod averages;
mod closed_loop;
pub mod coarse;
mod dense_ids;
mod dense_set;
mod device;
mod device_fit;
mod distributions;
mod error;
mod heap;
mod heat;
mod histogram;
mod interference;
mod interval;
mod least_squares;
mod lossy;
pub mod mrc;
mod nonnegative;
pub mod objective;
pub mod packed;
mod popularity;
mod random;
mod regression;
mod reuse;
mod service;
mod sketch;
mod top;

pub use alias::AliasTable;
pub use averages::Averages;
pub use closed_loop::{LoadShare, SteadyState, closed_loop};
pub use dense_ids::DenseIds;
pub use dense_set::DenseSet;
pub use device::{DeviceCounters, DeviceModel};
pub use device_fit::{
    Basis, DeviceFit, Directions, FittedPoint, LoadPoint, MeasuredFlow, Quality, Value, fit_device,
};
pub use error::StateError;
pub use heap::EventHeap;
pub use heat::HeatCounters;
pub use histogram::{
    BUCKETS, Histogram, WindowHistograms, WindowSums, bucket_of, bucket_quantile_ns,
    bucket_value_ns, buckets_since, merged_buckets,
};
pub use interference::{
    Correlation, Interference, InterferenceRule, MeasuredSeries, PairTest, interference,
    interference_strength,
};
pub use interval::Interval;
pub use least_squares::least_squares;
pub use lossy::{Frequent, LossyCounter};
pub use nonnegative::NonNegativeFit;
pub use popularity::Popularity;
pub use random::{JitterTable, Rng, mix, normal_cdf, unit};
pub use regression::{Line, fit_line};
pub use reuse::ReuseStack;
pub use service::{OfferedLoad, RequestLoad, ServiceTime};
pub use sketch::HeatSketch;
pub use top::{Choice, Fill, TopCounts};
