//! All exchange rates and assumptions in one place. An ablation takes each at half and at twice its value.

use algo::normal_cdf;
use model::SloClass;

/// What is worth what; seconds are those in which an objective of weight 1 is missed.
pub(super) struct Rates {
    /// A second at e times the objective, beside the second itself: without a cap, so that a device that is far beyond what it can do shows which
    /// way out is.
    pub excess: f64,
    /// A second at the objective against one at no latency: faster earns next to nothing.
    pub faster: f64,
    /// A second of a volume without objective at e times the latency.
    pub free: f64,
    /// Requests per second from which a volume without objective counts in full.
    pub free_iops: f64,
    /// Wear and risk of copying a GiB.
    pub gib: f64,
    /// Seconds that a bundle takes besides its copies, when bundles are held against one another.
    pub copy_s: f64,
    /// Realised regret that a price needs (γ).
    pub regret: f64,
    /// Migration epochs for which loads are taken to stay as they are, at most.
    pub horizon_epochs: f64,
    /// A load that stayed for so long is taken to stay for this many times as long.
    pub lasting: f64,
    /// Share of the history's epochs in which a bundle has to help.
    pub epochs_helped: f64,
    /// Spread of a percentile about its prediction where the volume is, and elsewhere (sigma of a log-normal).
    pub sigma_here: f64,
    /// Elsewhere, at first.
    pub sigma_there: f64,
    /// Normal quantile of the bounds that are told: 5 and 95 %.
    pub interval_z: f64,
    /// Migration epochs after a move in which its volume goes nowhere else without a cause.
    pub rest_epochs: u64,
}

pub(super) const RATES: Rates = Rates {
    excess: 0.2,
    faster: 0.01,
    free: 0.05,
    free_iops: 50.0,
    gib: 1.0,
    copy_s: 20.0,
    regret: 1.0,
    horizon_epochs: 10.0,
    lasting: 2.0,
    epochs_helped: 0.3,
    sigma_here: 0.1,
    sigma_there: 0.3,
    interval_z: 1.645,
    rest_epochs: 10,
};

impl Rates {
    /// What a volume of a class costs per second at this mean latency and this statistic of its objective, microseconds; `sigma` is the spread of
    /// that statistic about its prediction.
    pub(super) fn cost(
        &self,
        class: &SloClass,
        mean_us: f64,
        statistic_us: f64,
        sigma: f64,
        iops: f64,
    ) -> f64 {
        let Some(target) = class.target else {
            let counts = (iops / self.free_iops).min(1.0);
            return self.free * class.weight * counts * libm::log((mean_us / 10.0).max(1.0));
        };
        let used = statistic_us / target.latency.as_micros_f64();
        let missed = normal_cdf(libm::log(used.max(1e-6)) / sigma);
        let late = libm::log(used.max(1.0));
        class.weight * (missed + self.excess * late + self.faster * used.min(1.0))
    }
}
