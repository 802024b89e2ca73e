//! Comparison of HR-LRU and Priority-LRU with a slow oracle: one list, ratios computed for each access, segments
//! computed at the end of each slice.

use algo::Rng;
use cache::{
    Ageing, AnyPolicy, OnHit, Outcome, PageLayout, Policy, PolicyKind, PolicyOptions, RatesConfig,
    UnknownExtent,
};

const UNIVERSE: u32 = 600;
const EXTENT: u32 = 12;
const EXTENTS: u32 = UNIVERSE / EXTENT;
const VOLUMES: u32 = 5;
/// Fewer than the accesses between two searches for the best ratio, so within a slice it only rises.
const SLICE: u32 = 700;
const HOUR: u32 = 12;

#[derive(Clone, Copy, Default)]
struct Extent {
    hits: f64,
    accesses: f64,
    hits_before: f64,
    accesses_before: f64,
    in_slice: u32,
}

struct NaiveList {
    capacity: usize,
    options: PolicyOptions,
    /// The next page to be evicted is first; each page has the slice of its last insertion or hit.
    list: Vec<(u32, u32)>,
    extents: Vec<Extent>,
    /// Percent, by volume.
    priorities: Vec<i32>,
    best: [f64; 2],
    slice: u32,
}

impl NaiveList {
    fn ratio(&self, extent: u32) -> Option<f64> {
        let e = &self.extents[extent as usize];
        let weight = self.options.rates.previous_hour_weight;
        let accesses = e.accesses + weight * e.accesses_before;
        (accesses > 0.0).then(|| (e.hits + weight * e.hits_before) / accesses)
    }

    /// Best ratio of extents in this slice with enough accesses.
    fn best_now(&self) -> f64 {
        let least = self.options.rates.accesses_for_best_min.max(1);
        let counting = (0..EXTENTS).filter(|e| self.extents[*e as usize].in_slice >= least);
        counting.filter_map(|e| self.ratio(e)).fold(0.0, f64::max)
    }

    /// Percent.
    fn place(&self, page: u32) -> usize {
        let extent = page / EXTENT;
        let best = self.best[0].max(self.best[1]);
        let place = match self.ratio(extent) {
            _ if best == 0.0 => 100,
            None if self.options.rates.unknown_extent == UnknownExtent::Top => 100,
            None => 20,
            Some(ratio) if ratio / best < 0.2 => 20,
            Some(ratio) if ratio / best < 0.4 => 40,
            Some(ratio) if ratio / best < 0.7 => 70,
            Some(_) => 100,
        };
        (place + self.priorities[(extent % VOLUMES) as usize]).clamp(20, 100) as usize
    }

    fn access(&mut self, page: u32) -> Outcome {
        // All positions are multiples of 5 %.
        let mut below = self.place(page) / 5 * self.list.len() / 20;
        let at = self.list.iter().position(|entry| entry.0 == page);
        let outcome = match at {
            Some(at) => {
                self.list.remove(at);
                below = match self.options.on_hit {
                    OnHit::Top => self.list.len(),
                    OnHit::Again => below - usize::from(at < below),
                };
                Outcome::Hit
            }
            None => Outcome::Miss {
                evicted: (self.list.len() == self.capacity).then(|| {
                    below = below.saturating_sub(1);
                    self.list.remove(0).0
                }),
            },
        };
        self.list.insert(below, (page, self.slice));
        let e = &mut self.extents[(page / EXTENT) as usize];
        e.in_slice += 1;
        e.accesses += 1.0;
        e.hits += f64::from(u8::from(outcome.is_hit()));
        self.best[0] = self.best[0].max(self.best_now());
        outcome
    }

    fn slice_ended(&mut self, response_over_target: &[Option<f64>]) {
        for (priority, ratio) in self.priorities.iter_mut().zip(response_over_target) {
            *priority = match ratio {
                None => *priority,
                Some(ratio) if *ratio > 1.0 => 30.min(*priority + 5),
                Some(_) => (-30).max(*priority - 5),
            };
        }
        self.best = [0.0, self.best_now()];
        self.extents.iter_mut().for_each(|e| e.in_slice = 0);
        if self.options.ageing == Ageing::TwoSlices {
            let count = self.list.len();
            let mut segments: Vec<Vec<(u32, u32)>> = (0..20)
                .map(|s| self.list[s * count / 20..(s + 1) * count / 20].to_vec())
                .collect();
            for from in 4..20 {
                for _ in 0..segments[from].len().div_ceil(4) {
                    if segments[from][0].1 + 2 > self.slice {
                        break;
                    }
                    let old = segments[from].remove(0);
                    segments[0].push(old);
                }
            }
            self.list = segments.concat();
        }
        self.slice += 1;
    }

    fn hour_ended(&mut self) {
        for e in &mut self.extents {
            (e.hits_before, e.accesses_before) = (e.hits, e.accesses);
            (e.hits, e.accesses) = (0.0, 0.0);
        }
    }
}

/// A moving hot set, random pages and scans; at first over half of the pages, so that some extents appear late.
fn page(rng: &mut Rng, step: u32) -> u32 {
    let page = match rng.below(10) {
        0..4 => (step / 5000 * 130 + rng.below(40) as u32) % UNIVERSE,
        4..6 => (rng.below(25) * rng.below(25)) as u32 % UNIVERSE,
        6..8 => rng.below(u64::from(UNIVERSE)) as u32,
        _ => step / 3 % UNIVERSE,
    };
    match step < 4 * SLICE {
        true => page % (UNIVERSE / 2),
        false => page,
    }
}

fn agree(kind: PolicyKind, options: &PolicyOptions, capacity: u32, seed: u64) {
    let mut policy = AnyPolicy::with_options(kind, capacity, UNIVERSE, options);
    let mut naive = NaiveList {
        capacity: capacity as usize,
        options: options.clone(),
        list: Vec::new(),
        extents: vec![Extent::default(); EXTENTS as usize],
        priorities: vec![0; VOLUMES as usize],
        best: [0.0; 2],
        slice: 0,
    };
    let mut rng = Rng::new(seed, 11);
    for step in 0..SLICE * (2 * HOUR + 5) {
        let page = page(&mut rng, step);
        assert_eq!(
            policy.access(page),
            naive.access(page),
            "{kind} {options:?} capacity {capacity} step {step} page {page}"
        );
        if (step + 1) % SLICE == 0 {
            // Volume 0 is always slow and 1 always fast; the others change.
            let mut ratios = vec![Some(2.0), Some(1.0)];
            ratios.extend((2..VOLUMES).map(|_| match rng.below(4) {
                0 => None,
                n => Some(n as f64 / 2.0),
            }));
            if kind == PolicyKind::HrLru {
                ratios.fill(None);
            }
            policy.prioritize(&ratios);
            policy.slice_ended();
            naive.slice_ended(&ratios);
            if (step + 1) % (SLICE * HOUR) == 0 {
                policy.hour_ended();
                naive.hour_ended();
            }
        }
    }
    let left = naive.list.iter().filter(|e| policy.contains(e.0));
    assert_eq!(left.count(), policy.len() as usize);
}

#[test]
fn rated_policies_match_their_oracle() {
    let tables = || PageLayout::Tables {
        extent_of: (0..UNIVERSE).map(|p| p / EXTENT).collect(),
        volume_of: (0..EXTENTS).map(|e| e % VOLUMES).collect(),
    };
    let mut seed = 0;
    for kind in [PolicyKind::HrLru, PolicyKind::PriorityLru] {
        for (rates, ageing) in [
            (RatesConfig::literal(), Ageing::Never),
            (RatesConfig::corrected(), Ageing::TwoSlices),
        ] {
            for (on_hit, unknown_extent) in [
                (OnHit::Top, UnknownExtent::Lowest),
                (OnHit::Again, UnknownExtent::Lowest),
                (OnHit::Top, UnknownExtent::Top),
            ] {
                let options = PolicyOptions {
                    layout: tables(),
                    rates: RatesConfig {
                        unknown_extent,
                        ..rates
                    },
                    ageing,
                    on_hit,
                };
                for capacity in [1, 7, 40, 150] {
                    seed += 1;
                    agree(kind, &options, capacity, seed);
                }
            }
        }
    }
}

/// Each option and each slow volume changes the hits.
#[test]
fn rating_options_have_an_effect() {
    let hits = |kind, options: PolicyOptions, ratio: Option<f64>| {
        let mut policy = AnyPolicy::with_options(kind, 100, UNIVERSE, &options);
        let mut rng = Rng::new(1, 11);
        let mut hits = 0;
        for step in 0..SLICE * 20 {
            hits += u32::from(policy.access(page(&mut rng, step)).is_hit());
            if (step + 1) % SLICE == 0 {
                let mut ratios = vec![Some(0.5); VOLUMES as usize];
                ratios[0] = ratio;
                policy.prioritize(&ratios);
                policy.slice_ended();
            }
        }
        hits
    };
    let options = |on_hit, unknown_extent| PolicyOptions {
        layout: PageLayout::Tables {
            extent_of: (0..UNIVERSE).map(|p| p / EXTENT).collect(),
            volume_of: (0..EXTENTS).map(|e| e % VOLUMES).collect(),
        },
        rates: RatesConfig {
            unknown_extent,
            ..RatesConfig::corrected()
        },
        ageing: Ageing::TwoSlices,
        on_hit,
    };
    for kind in [PolicyKind::HrLru, PolicyKind::PriorityLru] {
        let plain = hits(kind, options(OnHit::Top, UnknownExtent::Lowest), Some(0.5));
        let again = hits(
            kind,
            options(OnHit::Again, UnknownExtent::Lowest),
            Some(0.5),
        );
        let top = hits(kind, options(OnHit::Top, UnknownExtent::Top), Some(0.5));
        let slow = hits(kind, options(OnHit::Top, UnknownExtent::Lowest), Some(2.0));
        assert_ne!(plain, again, "{kind}");
        assert_ne!(plain, top, "{kind}");
        assert_eq!(plain != slow, kind != PolicyKind::HrLru, "{kind}");
    }
}
