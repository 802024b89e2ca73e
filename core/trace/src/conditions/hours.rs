//! Hours of a condition: intensities and counts.

use algo::Rng;

use super::stand_in::StandIn;
use super::{Condition, Construction, Slice, SliceRepeat, popularity};

const HOURS_PER_DAY: u32 = 24;
const SLICE_HOURS: u32 = 3;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Load of one hour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hour {
    /// Requests per second, by page.
    pub rates: Vec<f64>,
    /// Counted requests of all pages with at least one, in order of page.
    pub counts: Vec<(u32, u32)>,
}

/// Endless sequence of the hours of a condition.
#[derive(Debug, Clone)]
pub struct Hours {
    next: u32,
    seed: u64,
    hour: Hour,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Slice(Box<Slices>),
    StandIn(Box<Sessions>),
}

impl Hours {
    pub(super) fn new(condition: &Condition, seed: u64) -> Self {
        let kind = match condition {
            Condition::Slice(slice) => Kind::Slice(Box::new(Slices::new(slice, seed))),
            Condition::StandIn(load) => Kind::StandIn(Box::new(Sessions::new(load, seed))),
        };
        Self {
            next: 0,
            seed,
            hour: Hour {
                rates: vec![0.0; condition.pages() as usize],
                counts: vec![],
            },
            kind,
        }
    }

    /// Returns the next hour. The reference is valid until the next call.
    pub fn advance(&mut self) -> &Hour {
        let at = self.next;
        self.next += 1;
        self.hour.counts.clear();
        match &mut self.kind {
            Kind::Slice(slices) => slices.fill(at, self.seed, &mut self.hour),
            Kind::StandIn(sessions) => {
                sessions.fill(at, &mut self.hour.rates);
                draw_counts(
                    &mut Rng::new(self.seed, 0x10_0000 + u64::from(at)),
                    &mut self.hour,
                );
            }
        }
        &self.hour
    }
}

fn draw_counts(rng: &mut Rng, hour: &mut Hour) {
    for (page, rate) in hour.rates.iter().enumerate() {
        let count = rng.poisson(rate * SECONDS_PER_HOUR);
        if count > 0 {
            hour.counts.push((page as u32, count));
        }
    }
}

/// Conditions B to G.
#[derive(Debug, Clone)]
struct Slices {
    slice: Slice,
    ranks: Ranks,
    layouts: Vec<Vec<u32>>,
    /// Requests per second for the page of each rank, in the three hours of the present slice.
    present: [Vec<f64>; SLICE_HOURS as usize],
    /// Counts by page, for sorting by page.
    by_page: Vec<u32>,
}

/// Source of the intensities of a slice.
#[derive(Debug, Clone)]
enum Ranks {
    /// Popularity of each rank, to which jitter is added.
    Popularity(Vec<f64>),
    /// Stand-in for condition A with its pages in order of rank, and the number of its hours used so far.
    Log(Box<Sessions>, u32),
}

impl Slices {
    fn new(slice: &Slice, seed: u64) -> Self {
        let pinned = (slice.pinned_hot * f64::from(slice.pages)).round() as u32;
        let count = HOURS_PER_DAY / slice.cycle.hours();
        let ranks = match slice.construction {
            Construction::Jitter => Ranks::Popularity(popularity(slice.k, slice.pages)),
            Construction::Repeated | Construction::Joined => {
                Ranks::Log(Box::new(Sessions::by_rank(slice, seed)), 0)
            }
        };
        Self {
            ranks,
            layouts: slice.layouts.draw(count, slice.pages, pinned, seed),
            present: Default::default(),
            by_page: vec![0; slice.pages as usize],
            slice: slice.clone(),
        }
    }

    fn fill(&mut self, at: u32, seed: u64, hour: &mut Hour) {
        let of_day = at % HOURS_PER_DAY;
        let lasts = match self.slice.construction {
            Construction::Jitter | Construction::Repeated => HOURS_PER_DAY,
            Construction::Joined => SLICE_HOURS,
        };
        if at.is_multiple_of(lasts) {
            self.begin_slice(at / lasts, seed);
        }
        let layout = &self.layouts[(of_day / self.slice.cycle.hours()) as usize];
        let ranks = &self.present[(of_day % SLICE_HOURS) as usize];
        for (page, rate) in layout.iter().zip(ranks) {
            hour.rates[*page as usize] = *rate;
        }
        match self.slice.repeat {
            SliceRepeat::Intensities => {
                draw_counts(&mut Rng::new(seed, 0x20_0000 + u64::from(at)), hour);
            }
            SliceRepeat::Log => {
                for (page, rate) in layout.iter().zip(ranks) {
                    self.by_page[*page as usize] = (rate * SECONDS_PER_HOUR).round() as u32;
                }
                let asked = self.by_page.iter().enumerate().filter(|(_, n)| **n > 0);
                hour.counts.extend(asked.map(|(page, n)| (page as u32, *n)));
            }
        }
    }

    /// Draws the slice of a day from the log. If the log is repeated, its intensities are used.
    fn begin_slice(&mut self, day: u32, seed: u64) {
        let (slice, sigma) = (&self.slice, self.slice.jitter);
        if let Ranks::Log(log, done) = &mut self.ranks {
            let from = day * HOURS_PER_DAY + slice.start_hour;
            (*done..from).for_each(|_| log.turn_over_bursts());
            *done = from + SLICE_HOURS;
        }
        for (hour, ranks) in self.present.iter_mut().enumerate() {
            let stream = u64::from(day * SLICE_HOURS) + hour as u64;
            let mut rng = Rng::new(seed, 0x30_0000 + stream);
            // Number of requests that a log has in an hour at that rate.
            let logged = |rng: &mut Rng, rate: f64| match slice.repeat {
                SliceRepeat::Intensities => rate,
                SliceRepeat::Log => {
                    f64::from(rng.poisson(rate * SECONDS_PER_HOUR)) / SECONDS_PER_HOUR
                }
            };
            ranks.clear();
            match &mut self.ranks {
                Ranks::Popularity(shares) => ranks.extend(shares.iter().map(|share| {
                    let factor = if sigma > 0.0 {
                        libm::exp(sigma * rng.normal() - sigma * sigma / 2.0)
                    } else {
                        1.0
                    };
                    logged(&mut rng, share * slice.iops * factor)
                })),
                Ranks::Log(log, _) => {
                    ranks.resize(slice.pages as usize, 0.0);
                    log.fill(slice.start_hour + hour as u32, ranks);
                    for rate in ranks {
                        *rate = logged(&mut rng, *rate);
                    }
                }
            }
        }
    }
}

/// Stand-in for condition A.
#[derive(Debug, Clone)]
struct Sessions {
    load: StandIn,
    popularity: Vec<f64>,
    /// Page of each rank.
    pages: Vec<u32>,
    /// Page, first hour of the day and weight of each session.
    sessions: Vec<(u32, u32, f64)>,
    /// Weight of the burst on each page; 0 without a burst.
    bursts: Vec<f64>,
    bursting: u32,
    rng: Rng,
}

impl Sessions {
    fn new(load: &StandIn, seed: u64) -> Self {
        let pages = super::Layouts::Permutation
            .draw(1, load.pages, 0, seed)
            .remove(0);
        let mut rng = Rng::new(seed, 0x40_0000);
        let mut starts: Vec<Option<(u32, f64)>> = vec![None; load.pages as usize];
        // The later session is used if a page is drawn twice.
        for _ in 0..load.sessions {
            let page = rng.below(u64::from(load.pages)) as usize;
            starts[page] = Some((
                rng.below(u64::from(HOURS_PER_DAY)) as u32,
                rng.exponential(),
            ));
        }
        let of_page = |(page, start): (usize, &Option<(u32, f64)>)| {
            start.map(|(hour, weight)| (page as u32, hour, weight))
        };
        Self {
            popularity: popularity(load.k, load.pages),
            sessions: starts.iter().enumerate().filter_map(of_page).collect(),
            bursts: vec![0.0; load.pages as usize],
            bursting: 0,
            load: load.clone(),
            pages,
            rng,
        }
    }

    /// Returns the stand-in's sessions and bursts with a slice's intensity, locality and number of pages. Page n has
    /// rank n.
    fn by_rank(slice: &Slice, seed: u64) -> Self {
        let load = StandIn {
            pages: slice.pages,
            iops: slice.iops,
            peak: 1.0,
            k: slice.k,
            ..StandIn::first()
        };
        Self {
            pages: (0..slice.pages).collect(),
            ..Self::new(&load, seed)
        }
    }

    fn fill(&mut self, at: u32, rates: &mut [f64]) {
        self.turn_over_bursts();
        let (load, of_day) = (&self.load, at % HOURS_PER_DAY);
        let peak = if (3..6).contains(&of_day) {
            load.peak
        } else {
            1.0
        };
        let iops = load.iops * peak;
        let open =
            |start: u32| (of_day + HOURS_PER_DAY - start) % HOURS_PER_DAY < load.session_hours;
        let in_sessions: f64 = self
            .sessions
            .iter()
            .filter(|s| open(s.1))
            .map(|s| s.2)
            .sum();
        let in_bursts: f64 = self.bursts.iter().sum();
        let stable = 1.0 - load.recurring - load.bursting;
        for (page, share) in self.pages.iter().zip(&self.popularity) {
            rates[*page as usize] = iops * stable * share;
        }
        for (page, start, weight) in &self.sessions {
            if open(*start) {
                rates[*page as usize] += iops * load.recurring * weight / in_sessions;
            }
        }
        for (rate, weight) in rates.iter_mut().zip(&self.bursts) {
            if *weight > 0.0 {
                *rate += iops * load.bursting * weight / in_bursts;
            }
        }
    }

    /// Ends bursts at random and starts new ones up to the required number.
    fn turn_over_bursts(&mut self) {
        let (ends, wanted) = (
            1.0 / self.load.burst_hours,
            self.load.bursts.min(self.load.pages),
        );
        for weight in &mut self.bursts {
            if *weight > 0.0 && self.rng.unit() < ends {
                *weight = 0.0;
                self.bursting -= 1;
            }
        }
        while self.bursting < wanted {
            let page = self.rng.below(self.bursts.len() as u64) as usize;
            if self.bursts[page] == 0.0 {
                // Never exactly zero, because zero means no burst.
                self.bursts[page] = self.rng.exponential().max(1e-12);
                self.bursting += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cycle, condition, cumulative_share};
    use super::*;

    fn total(hour: &Hour) -> f64 {
        hour.counts.iter().map(|(_, n)| f64::from(*n)).sum()
    }

    /// Checks the published curve of condition B on generated requests, not only by the formula.
    #[test]
    fn locality_matches_the_published_values() {
        let mut slice = Slice::new(10.0, 78.0, Cycle::NotMove);
        slice.jitter = 0.0;
        let mut hours = Condition::Slice(slice).hours(1);
        let mut sums = vec![0u64; super::super::PAGES as usize];
        for _ in 0..24 * 10 {
            for (page, n) in &hours.advance().counts {
                sums[*page as usize] += u64::from(*n);
            }
        }
        sums.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = sums.iter().sum();
        let mean_iops = all as f64 / (240.0 * 3600.0);
        assert!((mean_iops - 78.0).abs() < 0.3, "{mean_iops}");
        for (share, published) in [(0.1, 0.63), (0.2, 0.84), (0.3, 0.95)] {
            let top: u64 = sums[..(share * sums.len() as f64) as usize].iter().sum();
            let got = top as f64 / all as f64;
            assert!(
                (got - cumulative_share(10.0, share)).abs() < 0.004,
                "{share}: {got}"
            );
            assert!(
                (got - published).abs() < 0.03,
                "{share}: {got}, published {published}"
            );
        }
    }

    #[test]
    fn logs_repeat_within_the_day_and_layouts_daily() {
        let mut hours = condition("D-3h").unwrap().hours(5);
        let all: Vec<Hour> = (0..48).map(|_| hours.advance().clone()).collect();
        let sorted = |h: &Hour| {
            let mut counts: Vec<u32> = h.counts.iter().map(|(_, n)| *n).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(sorted(&all[0]), sorted(&all[3]), "the same counts");
        assert_ne!(all[0].counts, all[3].counts, "on other pages");
        assert_ne!(
            sorted(&all[0]),
            sorted(&all[24]),
            "and others on the next day"
        );
        // Hot pages of an hour are hot at the same hour of the next day.
        let hot = |h: &Hour| {
            let mut by_count = h.counts.clone();
            by_count.sort_unstable_by_key(|(page, n)| (std::cmp::Reverse(*n), *page));
            by_count.truncate(1000);
            by_count.sort_unstable();
            by_count
                .into_iter()
                .map(|(page, _)| page)
                .collect::<Vec<_>>()
        };
        let shared = |a: &Hour, b: &Hour| {
            let theirs = hot(b);
            hot(a)
                .iter()
                .filter(|p| theirs.binary_search(p).is_ok())
                .count()
        };
        assert!(
            shared(&all[4], &all[28]) > 600,
            "{}",
            shared(&all[4], &all[28])
        );
        // 434 pages are pinned. Two layouts share about 1 in 8 of the others.
        assert!(
            shared(&all[4], &all[7]) < 600,
            "{}",
            shared(&all[4], &all[7])
        );
    }

    /// Returns hours of B-not-move with a construction.
    fn built(construction: Construction, hours: usize) -> Vec<Hour> {
        let condition = condition("B-not-move").unwrap();
        let mut all = condition.constructed(construction).hours(5);
        (0..hours).map(|_| all.advance().clone()).collect()
    }

    #[test]
    fn slices_of_a_log_repeat_for_a_day_or_are_joined_by_day() {
        for (construction, same_within_the_day) in [
            (Construction::Jitter, true),
            (Construction::Repeated, true),
            (Construction::Joined, false),
        ] {
            let all = built(construction, 48);
            let again = all[0].counts == all[3].counts;
            assert_eq!(again, same_within_the_day, "{construction:?}");
            assert_ne!(all[0].counts, all[24].counts, "{construction:?}");
            let requests: f64 = all.iter().map(total).sum();
            let iops = requests / (48.0 * 3600.0);
            assert!((iops - 78.0).abs() < 1.0, "{construction:?}: {iops}");
        }
        // The eight slices of a joined day are the first slices of eight repeated days.
        let (joined, repeated) = (
            built(Construction::Joined, 24),
            built(Construction::Repeated, 8 * 24),
        );
        for slice in 0..8 {
            assert_eq!(joined[3 * slice].counts, repeated[24 * slice].counts);
        }
    }

    /// Causes of hot pages with a low rank: sessions return with the next slice, bursts do not.
    #[test]
    fn sessions_recur_in_the_next_slice_and_bursts_do_not() {
        let hot = |h: &Hour| -> Vec<u32> {
            let hot = h.counts.iter().filter(|(_, n)| *n > 150);
            hot.map(|(page, _)| *page).collect()
        };
        let shared = |a: &Hour, b: &Hour| {
            let theirs = hot(b);
            let both = hot(a).into_iter().filter(|p| theirs.contains(p)).count();
            both as f64 / theirs.len() as f64
        };
        let all = built(Construction::Joined, 24);
        // Within a slice both stay. A day later only sessions and the highest ranks are still hot.
        let (within, later) = (shared(&all[0], &all[1]), shared(&all[0], &all[3]));
        assert!(within > later + 0.05 && later > 0.5, "{within} {later}");
        let jitter = built(Construction::Jitter, 48);
        let (within, later) = (
            shared(&jitter[0], &jitter[1]),
            shared(&jitter[0], &jitter[24]),
        );
        assert!((within - later).abs() < 0.05, "{within} {later}");
    }

    #[test]
    fn stand_in_load_has_peak_sessions_and_bursts() {
        let load = StandIn::first();
        let mut hours = Condition::StandIn(load.clone()).hours(2);
        let all: Vec<Hour> = (0..72).map(|_| hours.advance().clone()).collect();
        let at = |h: usize| total(&all[h]) / 3600.0;
        assert!((at(1) - 80.0).abs() < 1.5, "{}", at(1));
        assert!((at(28) - 80.0 * 5.2).abs() < 4.0, "{}", at(28));
        for hour in &all {
            assert!(hour.counts.windows(2).all(|w| w[0].0 < w[1].0));
            let of_pages: f64 = hour.rates.iter().sum();
            assert!((of_pages - 80.0).abs() < 1e-6 || (of_pages - 416.0).abs() < 1e-6);
        }
        // Without sessions and bursts, all hours are similar except for the peak.
        let stable = StandIn {
            bursting: 0.0,
            bursts: 0,
            ..load
        }
        .with_recurring(0.0);
        let mut hours = Condition::StandIn(stable).hours(2);
        let first = hours.advance().rates.clone();
        assert_eq!(hours.advance().rates, first);
    }

    #[test]
    fn conditions_are_deterministic_per_seed() {
        for name in ["A", "C-6h"] {
            let condition = condition(name).unwrap();
            let hour = |seed| condition.hours(seed).advance().clone();
            assert_eq!(hour(1), hour(1));
            assert_ne!(hour(1), hour(2));
        }
    }
}
