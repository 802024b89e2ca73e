//! Small algorithms that several crates share: no I/O, no clocks, no global state.
//!
//! Everything random is a function of a seed, every transcendental function comes from `libm`, and floating-point work
//! is plain IEEE arithmetic in a fixed order: the same inputs give the same bits on every system.

mod closed_loop;
mod device;
mod device_fit;
mod heap;
mod histogram;
mod least_squares;
mod popularity;
mod random;
mod regression;

pub use closed_loop::{LoadShare, Settled, closed_loop};
pub use device::{DeviceCounters, DeviceModel};
pub use device_fit::{
    Basis, DeviceFit, Directions, FittedPoint, LoadPoint, MeasuredFlow, Quality, Value, fit_device,
};
pub use heap::EventHeap;
pub use histogram::{
    BUCKETS, Histogram, WindowHistograms, WindowSums, bucket_of, bucket_value_ns, buckets_since,
};
pub use least_squares::least_squares;
pub use popularity::Popularity;
pub use random::{JitterTable, Rng, mix};
pub use regression::{Line, fit_line};
