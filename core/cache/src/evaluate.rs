//! Simulation of one policy at one size over references, with detailed counts.

use crate::policies::belady::{Belady, TooManyReferences};
use crate::policy::{Counts, Outcome, Policy};
use crate::references::References;
use crate::registry::{AnyPolicy, PolicyKind, PolicyOptions};
use crate::stack::StackSizes;

/// References between two progress reports.
const STEP: usize = 1 << 20;

/// Result of a simulation. For a sample, these are the counts of the sample; see [`Tally::miss_ratio`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// References to pages.
    pub pages: Counts,
    /// Requests; a request is a hit if all its pages were.
    pub requests: Counts,
    /// Bytes of references that hit.
    pub hit_bytes: u64,
    /// Bytes of all references.
    pub bytes: u64,
}

impl Tally {
    /// Returns the estimated share of references of the whole trace that miss, 0..=1. For a sample, its misses are
    /// divided by the expected number of references in it. This corrects for popular pages that happen to be in the
    /// sample or not.
    pub fn miss_ratio(&self, references: &References) -> Option<f64> {
        let expected = match references.config().sample {
            None => self.pages.accesses() as f64,
            Some(share) => references.references() as f64 * share,
        };
        (expected > 0.0).then(|| (self.pages.misses as f64 / expected).min(1.0))
    }

    /// Returns the share of bytes that hit, 0..=1.
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.hit_bytes as f64 / self.bytes as f64)
    }
}

/// Assumed response times of hits and misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTimes {
    /// Response time of a request whose pages all hit.
    pub hit_ns: u64,
    /// Response time of any other request.
    pub miss_ns: u64,
    /// Desired response time of every volume, the target of Priority-LRU.
    pub target_ns: u64,
}

/// Additional counts.
#[derive(Debug, Clone, Default)]
pub struct EvaluateOptions {
    /// Counts by extent.
    pub extents: bool,
    /// Counts by volume, with priorities derived from the response times.
    pub response: Option<ResponseTimes>,
    /// Options of the policy.
    pub policy: PolicyOptions,
}

/// Detailed result of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Totals.
    pub tally: Tally,
    /// Counts by extent, if requested.
    pub extents: Vec<Counts>,
    /// Requests by volume, if response times were given.
    pub volumes: Vec<Counts>,
}

/// Simulates a cache of `capacity` pages (of the sample, if it is one). `progress` receives the number of references
/// processed since its last call.
pub fn evaluate(
    references: &References,
    kind: PolicyKind,
    capacity: u32,
    options: &EvaluateOptions,
    progress: &mut dyn FnMut(u64),
) -> Evaluation {
    let mut policy_options = options.policy.clone();
    policy_options.layout = references.layout();
    let universe = references.universe();
    let mut policy = AnyPolicy::with_options(kind, capacity, universe, &policy_options);
    let layout = references.layout();
    let volumes = options.response.map_or(0, |_| layout.volumes()) as usize;
    let extents = if options.extents {
        layout.extents(universe)
    } else {
        0
    };
    let mut found = Evaluation {
        tally: Tally::default(),
        extents: vec![Counts::default(); extents as usize],
        volumes: vec![Counts::default(); volumes],
    };
    // Requests of the hour and of the slice, by volume.
    let mut hour = vec![Counts::default(); volumes];
    let mut slice = vec![Counts::default(); volumes];
    let mut request_hits = true;
    let mut slices = references.slices().iter().peekable();
    let mut at = 0;
    let pages = references.pages();
    while at < pages.len() {
        let slice_end = slices.peek().map_or(pages.len(), |s| s.at);
        let to = slice_end.min(at + STEP);
        let chunk = &pages[at..to];
        policy.replay_each(chunk, |i, outcome: Outcome| {
            let hit = outcome.is_hit();
            let (bytes, last) = references.part(at + i);
            let tally = &mut found.tally;
            tally.pages.add(hit);
            tally.bytes += bytes;
            tally.hit_bytes += if hit { bytes } else { 0 };
            request_hits &= hit;
            if extents > 0 {
                found.extents[layout.extent(chunk[i]) as usize].add(hit);
            }
            if last {
                tally.requests.add(request_hits);
                if volumes > 0 {
                    let volume = layout.volume(layout.extent(chunk[i])) as usize;
                    hour[volume].add(request_hits);
                    slice[volume].add(request_hits);
                    found.volumes[volume].add(request_hits);
                }
                request_hits = true;
            }
        });
        progress((to - at) as u64);
        at = to;
        while let Some(end) = slices.next_if(|s| s.at <= at) {
            if let Some(response) = options.response {
                let ratio = |(slice, hour): (&Counts, &Counts)| {
                    (slice.accesses() > 0)
                        .then(|| response.mean_ns(hour) / response.target_ns as f64)
                };
                let ratios: Vec<Option<f64>> = slice.iter().zip(&hour).map(ratio).collect();
                policy.prioritize(&ratios);
                slice.fill(Counts::default());
            }
            policy.slice_ended();
            if end.hour {
                policy.hour_ended();
                hour.fill(Counts::default());
            }
        }
    }
    found
}

impl ResponseTimes {
    /// Returns the mean response time of requests in nanoseconds; without requests, that of a hit.
    pub fn mean_ns(&self, requests: &Counts) -> f64 {
        let (hits, misses) = (requests.hits as f64, requests.misses as f64);
        if requests.accesses() == 0 {
            return self.hit_ns as f64;
        }
        (hits * self.hit_ns as f64 + misses * self.miss_ns as f64) / (hits + misses)
    }
}

/// Counts LRU caches of several sizes in one pass. The result has ascending, distinct sizes.
pub fn evaluate_stack(
    references: &References,
    sizes: &[u32],
    progress: &mut dyn FnMut(u64),
) -> Vec<(u32, Tally)> {
    let mut stack = StackSizes::new(sizes, references.universe());
    let sizes: Vec<u32> = stack.counts().iter().map(|c| c.0).collect();
    // By band: hits in caches of this size and larger, but not in smaller ones.
    let mut bands = vec![(0u64, 0u64, 0u64); sizes.len() + 1];
    let mut at = 0;
    let mut worst = 0;
    for chunk in references.pages().chunks(STEP) {
        stack.replay_each(chunk, |i, band| {
            let (bytes, last) = references.part(at + i);
            bands[band].0 += 1;
            bands[band].1 += bytes;
            worst = worst.max(band);
            if last {
                bands[worst].2 += 1;
                worst = 0;
            }
        });
        at += chunk.len();
        progress(chunk.len() as u64);
    }
    let all = bands
        .iter()
        .fold((0, 0, 0), |s, b| (s.0 + b.0, s.1 + b.1, s.2 + b.2));
    let mut hits = (0, 0, 0);
    let sizes = sizes.iter().zip(&bands);
    sizes
        .map(|(size, band)| {
            hits = (hits.0 + band.0, hits.1 + band.1, hits.2 + band.2);
            let counts = |hits, all| Counts {
                hits,
                misses: all - hits,
            };
            let tally = Tally {
                pages: counts(hits.0, all.0),
                requests: counts(hits.2, all.2),
                hit_bytes: hits.1,
                bytes: all.1,
            };
            (*size, tally)
        })
        .collect()
}

/// Counts hits of the optimal policy at several sizes.
pub fn evaluate_optimum(
    references: &References,
    sizes: &[u32],
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Tally>, TooManyReferences> {
    let belady = Belady::new(references.pages().to_vec(), references.universe())?;
    let tallies = sizes.iter().map(|size| {
        let mut tally = Tally::default();
        let mut request_hits = true;
        belady.replay_each(*size, |at, hit| {
            let (bytes, last) = references.part(at);
            tally.pages.add(hit);
            tally.bytes += bytes;
            tally.hit_bytes += if hit { bytes } else { 0 };
            request_hits &= hit;
            if last {
                tally.requests.add(request_hits);
                request_hits = true;
            }
        });
        progress(references.pages().len() as u64);
        tally
    });
    Ok(tallies.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::references::{ReferencesBuilder, ReferencesConfig};
    use crate::registry::REGISTRY;

    /// Zipf-like references over two volumes for three hours.
    fn made(sample: Option<f64>) -> References {
        let config = ReferencesConfig {
            page_bytes: 4096,
            sample,
            seed: 3,
        };
        let mut builder = ReferencesBuilder::new(config).unwrap();
        let popularity = algo::Popularity::new(40_000, 0.8);
        let mut rng = algo::Rng::new(5, 5);
        for i in 0..200_000u64 {
            let page = popularity.page(rng.next_u64());
            let length = 1000 + rng.below(9000) as u32;
            builder
                .push(Some(i * 54_000_000), (page % 2) as u32, page * 4096, length)
                .unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn single_pass_over_all_sizes_equals_one_pass_per_size() {
        let references = made(None);
        let mut done = 0;
        let together = evaluate_stack(&references, &[4000, 100, 900], &mut |n| done += n);
        assert_eq!(done, references.references());
        assert_eq!(
            together.iter().map(|t| t.0).collect::<Vec<_>>(),
            [100, 900, 4000]
        );
        for (size, tally) in together {
            let options = EvaluateOptions::default();
            let alone = evaluate(&references, PolicyKind::Lru, size, &options, &mut |_| ());
            assert_eq!(alone.tally, tally, "{size}");
            assert_eq!(tally.requests.accesses(), 200_000);
            assert_eq!(tally.bytes, references.bytes());
        }
    }

    #[test]
    fn parts_add_up_and_the_optimum_hits_most() {
        let references = made(None);
        let options = EvaluateOptions {
            extents: true,
            response: Some(ResponseTimes {
                hit_ns: 20_000,
                miss_ns: 6_000_000,
                target_ns: 2_000_000,
            }),
            policy: PolicyOptions::default(),
        };
        let best = evaluate_optimum(&references, &[2000], &mut |_| ()).unwrap()[0];
        for entry in REGISTRY {
            let found = evaluate(&references, entry.kind, 2000, &options, &mut |_| ());
            let sum = |counts: &[Counts]| {
                counts
                    .iter()
                    .fold((0, 0), |s, c| (s.0 + c.hits, s.1 + c.misses))
            };
            let tally = found.tally;
            assert_eq!(sum(&found.extents), (tally.pages.hits, tally.pages.misses));
            assert_eq!(
                sum(&found.volumes),
                (tally.requests.hits, tally.requests.misses)
            );
            assert!(tally.pages.hits <= best.pages.hits, "{}", entry.name);
            assert!(tally.hit_bytes > 0 && tally.hit_bytes < tally.bytes);
        }
    }

    #[test]
    fn sampled_miss_ratio_is_near_the_full_one() {
        let (all, some) = (made(None), made(Some(0.2)));
        for kind in [PolicyKind::Lru, PolicyKind::Arc, PolicyKind::S3Fifo] {
            let ratio = |references: &References| {
                let capacity = references.scaled(4000);
                let options = EvaluateOptions::default();
                let found = evaluate(references, kind, capacity, &options, &mut |_| ());
                found.tally.miss_ratio(references).unwrap()
            };
            let (exact, estimate) = (ratio(&all), ratio(&some));
            assert!(
                (exact - estimate).abs() < 0.02,
                "{kind}: {exact} {estimate}"
            );
        }
    }
}
