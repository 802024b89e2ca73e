//! What a volume's worker and the sharer of its tier tell one another: counts up, limits down. Read for each request.

use std::sync::atomic::{AtomicU64, Ordering};

use units::{BytesPerSec, Iops};
use volume::Limits;

/// No limit.
const NONE: u64 = u64::MAX;

/// One volume's part.
#[derive(Debug)]
pub struct Share {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests per second as the bits of an `f64`, or [`NONE`].
    iops: AtomicU64,
    bandwidth: AtomicU64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            iops: AtomicU64::new(NONE),
            bandwidth: AtomicU64::new(NONE),
        }
    }
}

impl Share {
    /// A request of so many bytes wants to be served.
    #[inline]
    pub fn arrived(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Requests and bytes up to now.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.requests.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// Sets the limits.
    pub fn limit(&self, limits: Limits) {
        let iops = limits.iops.map_or(NONE, |i| i.0.to_bits());
        let bandwidth = limits.bandwidth.map_or(NONE, |b| b.0);
        self.iops.store(iops, Ordering::Relaxed);
        self.bandwidth.store(bandwidth, Ordering::Relaxed);
    }

    /// The limits now.
    #[inline]
    pub fn limits(&self) -> Limits {
        let iops = self.iops.load(Ordering::Relaxed);
        let bandwidth = self.bandwidth.load(Ordering::Relaxed);
        Limits {
            iops: (iops != NONE).then(|| Iops(f64::from_bits(iops))),
            bandwidth: (bandwidth != NONE).then_some(BytesPerSec(bandwidth)),
        }
    }
}
