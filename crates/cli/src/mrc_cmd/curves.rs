//! The curves of one trace's records.

use algo::DenseIds;
use algo::mrc::{
    Confidence, Curve, Exact, FixedRate, FixedSize, ReuseTimes, SAMPLED_BLOCKS_MIN, Sampler,
    WorkingSets,
};
use trace::{PageReferences, Record, Touch};

use super::{Method, Rate};

/// Pages of the fixed-size sample.
const BLOCKS_MAX: usize = 8192;
/// The published rate, for footprints of which it samples enough.
const RATE_USUAL: f64 = 0.001;
/// Where this much would have to be sampled, everything is looked at instead.
const RATE_MAX: f64 = 0.5;
/// More than enough pages are aimed at, since how many a rate gives is chance.
const MARGIN: f64 = 1.25;
/// References between two looks at the tables.
const PART: usize = 1 << 16;

pub struct Asked<'a> {
    pub methods: &'a [Method],
    pub rate: Rate,
    pub seed: u64,
}

/// One curve.
pub struct Estimate {
    pub method: Method,
    pub curve: Curve,
    /// As sampled, without the correction.
    pub raw: Option<Curve>,
    /// Share of the pages that was sampled, at the end.
    pub rate: Option<f64>,
}

/// The curves in the order of the methods. What has to be said meanwhile goes to `note`.
pub fn estimates(
    records: &[Record],
    pages: &PageReferences,
    asked: &Asked<'_>,
    note: &mut impl FnMut(String),
) -> Vec<Estimate> {
    let wants = |method| asked.methods.contains(&method);
    let mut dense = Dense::default();
    if wants(Method::Exact) || wants(Method::Aet) {
        dense = Dense::of(records, pages, wants(Method::Exact), wants(Method::Aet));
    }
    let mut estimates: Vec<Estimate> = Vec::new();
    for method in asked.methods {
        if estimates.iter().any(|e| e.method == *method) {
            continue;
        }
        let estimate = match method {
            Method::Exact => dense
                .exact
                .as_ref()
                .map(|exact| plain(*method, exact.curve())),
            Method::Aet => dense
                .times
                .as_ref()
                .map(|times| plain(*method, times.curve())),
            Method::Wss => Some(plain(*method, working_sets(records, pages))),
            Method::ShardsSize => Some(fixed_size(records, pages, asked.seed)),
            Method::Shards => {
                let blocks = dense.blocks();
                match fixed_rate(records, pages, asked, blocks) {
                    Some(estimate) => {
                        let confidence = estimate.curve.confidence;
                        if !confidence.enough_blocks() {
                            note(format!(
                                "warning: {} sampled pages are too few for a reliable curve: {} are needed; use a higher rate",
                                confidence.blocks,
                                Confidence::BLOCKS_MIN
                            ));
                        }
                        Some(estimate)
                    }
                    None => {
                        note(format!(
                            "too few pages for samples of {}: exact instead of shards",
                            Confidence::BLOCKS_MIN
                        ));
                        if dense.exact.is_none() {
                            dense = Dense {
                                times: dense.times.take(),
                                ..Dense::of(records, pages, true, false)
                            };
                        }
                        // Once is enough.
                        let there = wants(Method::Exact);
                        let exact = dense.exact.as_ref().filter(|_| !there);
                        exact.map(|exact| plain(Method::Exact, exact.curve()))
                    }
                }
            }
        };
        estimates.extend(estimate);
    }
    estimates
}

fn plain(method: Method, curve: Curve) -> Estimate {
    Estimate {
        method,
        curve,
        raw: None,
        rate: None,
    }
}

/// What needs every page to have a number.
#[derive(Default)]
struct Dense {
    ids: DenseIds,
    exact: Option<Exact>,
    times: Option<ReuseTimes>,
    references: u64,
    names: Vec<u64>,
    found: Vec<u32>,
}

impl Dense {
    fn of(records: &[Record], pages: &PageReferences, exact: bool, times: bool) -> Self {
        let mut dense = Self {
            exact: exact.then(Exact::new),
            times: times.then(ReuseTimes::new),
            ..Self::default()
        };
        pages.each(records, |name, touch| match touch {
            Touch::Reference => {
                dense.names.push(name);
                if dense.names.len() == PART {
                    dense.flush();
                }
            }
            Touch::Drop => {
                // What was read before it comes first.
                dense.flush();
                dense.invalidate(name);
            }
        });
        dense.flush();
        dense
    }

    /// Distinct pages, if they were counted.
    fn blocks(&self) -> Option<u64> {
        (self.references > 0).then(|| u64::from(self.ids.len()))
    }

    fn flush(&mut self) {
        self.found.clear();
        self.ids.ids(&self.names, &mut self.found);
        self.names.clear();
        if let Some(exact) = &mut self.exact {
            exact.feed(&self.found);
        }
        if let Some(times) = &mut self.times {
            times.feed(&self.found, self.references);
        }
        self.references += self.found.len() as u64;
    }

    fn invalidate(&mut self, name: u64) {
        let Some(id) = self.ids.get(name) else {
            return;
        };
        if let Some(exact) = &mut self.exact {
            exact.invalidate(id);
        }
        if let Some(times) = &mut self.times {
            times.invalidate(id, self.references, 1.0);
        }
    }
}

fn working_sets(records: &[Record], pages: &PageReferences) -> Curve {
    let mut sets = WorkingSets::new();
    pages.each(records, |name, _| sets.reference(name));
    sets.curve()
}

fn fixed_size(records: &[Record], pages: &PageReferences, seed: u64) -> Estimate {
    let mut shards = FixedSize::new(BLOCKS_MAX, seed);
    pages.each(records, |name, touch| match touch {
        Touch::Reference => shards.reference(name),
        Touch::Drop => shards.invalidate(name),
    });
    Estimate {
        method: Method::ShardsSize,
        curve: shards.curve(),
        raw: Some(shards.curve_raw()),
        rate: Some(shards.sampler().rate()),
    }
}

/// `None` if so few pages are touched that exact is better; `blocks` if their number is known.
fn fixed_rate(
    records: &[Record],
    pages: &PageReferences,
    asked: &Asked<'_>,
    blocks: Option<u64>,
) -> Option<Estimate> {
    let enough = SAMPLED_BLOCKS_MIN as f64 * MARGIN;
    let (mut rate, auto) = match (asked.rate, blocks) {
        (Rate::Share(rate), _) => (rate, false),
        (Rate::Auto, Some(blocks)) => (RATE_USUAL.max(enough / blocks.max(1) as f64), true),
        (Rate::Auto, None) => (RATE_USUAL, true),
    };
    loop {
        if auto && rate > RATE_MAX {
            return None;
        }
        let shards = sampled(records, pages, Sampler::new(rate, asked.seed));
        if !auto || shards.confidence().enough_blocks() {
            return Some(Estimate {
                method: Method::Shards,
                curve: shards.curve(),
                raw: Some(shards.curve_raw()),
                rate: Some(shards.sampler().rate()),
            });
        }
        // A sample says how large the next has to be; of a few pages it says little, so steps are bounded, but not too small.
        let factor = enough / shards.blocks().max(1) as f64;
        rate *= factor.clamp(MARGIN, 100.0);
    }
}

fn sampled(records: &[Record], pages: &PageReferences, sampler: Sampler) -> FixedRate {
    let mut shards = FixedRate::new(sampler);
    let passed = pages.sampled(records, &sampler, |name, touch| match touch {
        Touch::Reference => shards.sampled_reference(name),
        Touch::Drop => shards.invalidate(name),
    });
    shards.passed(passed);
    shards
}
