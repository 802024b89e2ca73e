//! Which extents of a volume carry its load, by the epochs of late in which something was asked of them.

use model::{ExtentFacts, Objective, SloStatistic};
use serde::{Deserialize, Serialize};
use units::DeviceId;

/// Parts that a volume is looked at in, at most: neighbouring extents together.
const BUCKETS_MAX: u32 = 512;
/// Epochs with requests that count. A part is in use when something was asked of it in two of them: a scan comes by once.
const EPOCHS: u8 = 32;
/// Epochs with requests from which it is known what is in use ...
const SEEN_MIN: u32 = 2;
/// ... and after which it is known what goes elsewhere.
const EPOCHS_MIN: u32 = 4;
/// What an epoch keeps of what is known of requests that went elsewhere: as long as the epochs that count, so that what is written through from
/// one end to the other, a part after the next, is not taken for the part that it is at.
const KEEPS: f64 = 0.97;
/// Requests that are taken to have gone elsewhere unseen: of few requests not much is known.
const UNSEEN: f64 = 2.0;
/// Share of a percentile's tail that requests to what is not in use may be, ...
const OF_TAIL: f64 = 0.5;
/// ... of all requests where the objective is a mean, and where there is none.
const OF_MEAN: f64 = 0.01;
const OF_FREE: f64 = 0.02;
/// Age zero as a letter; what is kept are letters, as a thousand volumes have half a million parts.
const ZERO: u8 = b'0';

/// Epochs with requests since something was asked of a part, for the last time and for the one before that; [`EPOCHS`] is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ages {
    last: u8,
    before: u8,
}

impl Ages {
    const NEVER: Self = Self {
        last: EPOCHS,
        before: EPOCHS,
    };

    fn in_use(self) -> bool {
        self.before < EPOCHS
    }

    fn older(self) -> Self {
        let older = |age: u8| (age + 1).min(EPOCHS);
        Self {
            last: older(self.last),
            before: older(self.before),
        }
    }

    /// In the newest epoch something was asked of it.
    fn touched(&mut self) {
        if self.last > 0 {
            (self.last, self.before) = (0, self.last);
        }
    }

    /// Of two parts as one.
    fn joined(self, other: Self) -> Self {
        let mut all = [self.last, self.before, other.last, other.before];
        all.sort_unstable();
        let second = all.into_iter().find(|age| *age > all[0]);
        Self {
            last: all[0],
            before: second.unwrap_or(EPOCHS),
        }
    }
}

/// What was asked of a volume's parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Touched {
    /// Extents, and how many of them are one part.
    extents: u32,
    per_bucket: u32,
    /// By part.
    #[serde(with = "letters")]
    ages: Vec<Ages>,
    /// The newest epoch that was looked at, and epochs with requests so far.
    epoch: Option<u64>,
    seen: u32,
    /// Requests of late that went to what was not in use when they came, and all of them.
    elsewhere: f64,
    requests: f64,
    /// The device that had what carries the load.
    pub home: Option<String>,
}

/// Two letters for each part.
mod letters {
    use super::{Ages, EPOCHS, ZERO};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ages: &[Ages], to: S) -> Result<S::Ok, S::Error> {
        let both = |a: &Ages| [a.last, a.before].map(|age| char::from(ZERO + age));
        to.serialize_str(&ages.iter().flat_map(both).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Ages>, D::Error> {
        let text = String::deserialize(from)?;
        let age = |letter: u8| {
            let age = letter.checked_sub(ZERO).filter(|age| *age <= EPOCHS);
            age.ok_or_else(|| D::Error::custom(format!("{text:?} is not a list of ages")))
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(D::Error::custom("a list of ages must have an even length"));
        }
        let ages = |[last, before]: &[u8; 2]| {
            let (last, before) = (age(*last)?, age(*before)?);
            Ok(Ages { last, before })
        };
        pairs.iter().map(ages).collect()
    }
}

/// Neighbouring extents in one place and one part of their volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub end: u32,
    pub device: DeviceId,
    /// Whether they carry some of their volume's load.
    pub in_use: bool,
    /// Epochs with requests since the last one that asked for them.
    pub age: u8,
    /// Requests of the epoch that has just ended, where they are known.
    pub requests: u64,
}

/// The share of requests that may go to what is not in use, for the rest to count as all of the volume.
fn elsewhere_max(target: Option<Objective>) -> f64 {
    match target.map(|t| t.statistic) {
        Some(SloStatistic::P95) => OF_TAIL * 0.05,
        Some(SloStatistic::P99) => OF_TAIL * 0.01,
        Some(SloStatistic::Mean) => OF_MEAN,
        None => OF_FREE,
    }
}

/// Whether so large a share of requests elsewhere is too much for a volume with such an objective.
pub(super) fn too_much(share: f64, target: Option<Objective>) -> bool {
    share > elsewhere_max(target)
}

impl Touched {
    /// One more epoch, if it says something: one of a silent volume does not, nor one that was looked at before.
    pub(super) fn absorb(&mut self, epoch: u64, facts: &ExtentFacts, requests_min: u64) {
        self.fit(facts.places.count());
        if self.ages.is_empty() || self.epoch.is_some_and(|newest| newest >= epoch) {
            return;
        }
        let Some(heat) = &facts.heat else { return };
        self.epoch = Some(epoch);
        let of = |(extent, ios): &(u32, u32)| {
            let bucket = (extent / self.per_bucket) as usize;
            (bucket.min(self.ages.len() - 1), u64::from(*ios))
        };
        let touched: Vec<(usize, u64)> = heat.touched().iter().map(of).collect();
        let total: u64 = touched.iter().map(|t| t.1).sum();
        if total < requests_min {
            return;
        }
        if self.seen >= SEEN_MIN {
            let unused = |t: &&(usize, u64)| !self.ages[t.0].in_use();
            let elsewhere: u64 = touched.iter().filter(unused).map(|t| t.1).sum();
            self.elsewhere = KEEPS * self.elsewhere + elsewhere as f64;
            self.requests = KEEPS * self.requests + total as f64;
        }
        self.ages.iter_mut().for_each(|ages| *ages = ages.older());
        touched.iter().for_each(|t| self.ages[t.0].touched());
        self.seen = self.seen.saturating_add(1);
    }

    /// Parts for so many extents: what is known goes on holding where the volume has grown.
    fn fit(&mut self, extents: u32) {
        let per_bucket = extents.div_ceil(BUCKETS_MAX).max(1).next_power_of_two();
        let buckets = extents.div_ceil(per_bucket) as usize;
        if (self.extents, self.per_bucket, self.ages.len()) == (extents, per_bucket, buckets) {
            return;
        }
        let grown = self.per_bucket > 0 && self.extents <= extents && !self.ages.is_empty();
        if !grown {
            *self = Self {
                home: self.home.take(),
                ..Self::default()
            };
        } else if per_bucket > self.per_bucket {
            let together = (per_bucket / self.per_bucket) as usize;
            let joined = |ages: &[Ages]| ages.iter().copied().fold(Ages::NEVER, Ages::joined);
            self.ages = self.ages.chunks(together).map(joined).collect();
        }
        self.ages.resize(buckets, Ages::NEVER);
        (self.extents, self.per_bucket) = (extents, per_bucket);
    }

    /// Whether what is in use can be taken for all of a volume with such an objective.
    pub(super) fn holds(&self, target: Option<Objective>) -> bool {
        let elsewhere = (self.elsewhere + UNSEEN) / self.requests.max(1.0);
        self.seen >= SEEN_MIN + EPOCHS_MIN && elsewhere <= elsewhere_max(target)
    }

    /// Its extents that have a place, in order.
    pub(super) fn runs(&self, facts: &ExtentFacts) -> Vec<Run> {
        let per = self.per_bucket.max(1);
        let heat = facts.heat.as_ref().map_or(&[][..], |h| h.touched());
        let mut heat = heat.iter().copied().peekable();
        let mut runs = vec![];
        let mut next = 0;
        for (count, place) in facts.places.runs() {
            let (mut first, end) = (next, next + count);
            next = end;
            let Some(device) = *place else { continue };
            while first < end {
                let bucket = first / per;
                let until = end.min((bucket + 1).saturating_mul(per));
                let ages = self.ages.get(bucket as usize).copied();
                let ages = ages.unwrap_or(Ages::NEVER);
                let mut requests = 0;
                while let Some((extent, ios)) = heat.next_if(|h| h.0 < until) {
                    requests += if extent < first { 0 } else { u64::from(ios) };
                }
                runs.push(Run {
                    first,
                    end: until,
                    device,
                    in_use: ages.in_use(),
                    age: ages.last,
                    requests,
                });
                first = until;
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ExtentHeat, ExtentPlaces};
    use units::Bytes;

    fn facts(count: u32, heat: &[(u32, u32)]) -> ExtentFacts {
        ExtentFacts {
            extent: Bytes::mib(1),
            places: ExtentPlaces::of_runs([(count, Some(DeviceId(0)))]),
            heat: Some(ExtentHeat::of(heat.to_vec())),
        }
    }

    fn in_use(touched: &Touched, facts: &ExtentFacts) -> Vec<u32> {
        let runs = touched.runs(facts);
        let used = runs.iter().filter(|r| r.in_use);
        used.flat_map(|r| r.first..r.end).collect()
    }

    fn absorbed(epochs: u64, facts: &ExtentFacts) -> Touched {
        let mut touched = Touched::default();
        (0..epochs).for_each(|epoch| touched.absorb(epoch, facts, 1));
        touched
    }

    #[test]
    fn what_was_asked_for_twice_is_in_use_until_it_is_long_ago() {
        let once = facts(8, &[(3, 50)]);
        let mut touched = absorbed(1, &once);
        assert!(in_use(&touched, &once).is_empty());
        touched.absorb(0, &once, 1);
        assert!(
            in_use(&touched, &once).is_empty(),
            "the same epoch once more"
        );
        touched.absorb(1, &once, 1);
        assert_eq!(in_use(&touched, &once), [3]);
        let other = facts(8, &[(5, 50)]);
        (2..32).for_each(|epoch| touched.absorb(epoch, &other, 1));
        assert_eq!(in_use(&touched, &other), [3, 5]);
        touched.absorb(32, &other, 1);
        assert_eq!(in_use(&touched, &other), [5]);
    }

    #[test]
    fn what_is_written_through_slowly_is_not_where_it_is_now() {
        // Each part for twenty epochs, then the next.
        let mut touched = Touched::default();
        for epoch in 0..200 {
            touched.absorb(epoch, &facts(400, &[(epoch as u32 / 20, 5000)]), 1);
            assert!(epoch < 60 || !touched.holds(None), "epoch {epoch}");
        }
    }

    #[test]
    fn a_volume_that_grows_is_known_as_before() {
        let small = facts(500, &[(3, 50), (499, 2)]);
        let mut touched = absorbed(8, &small);
        let grown = facts(900, &[(3, 50), (499, 2)]);
        touched.absorb(8, &grown, 1);
        assert_eq!(
            in_use(&touched, &grown),
            [2, 3, 498, 499],
            "two are one part"
        );
        assert!(touched.holds(None));
        let smaller = facts(100, &[(3, 50)]);
        touched.absorb(9, &smaller, 1);
        assert!(in_use(&touched, &smaller).is_empty());
    }

    #[test]
    fn runs_have_the_requests_of_their_extents() {
        let mut facts = facts(0, &[(0, 5), (2, 7), (6, 9), (7, 1)]);
        let (a, b) = (Some(DeviceId(0)), Some(DeviceId(1)));
        facts.places = ExtentPlaces::of_runs([(2, a), (2, None), (3, a), (1, b)]);
        let runs = absorbed(1, &facts).runs(&facts);
        let on = |d: u16| {
            let on = runs.iter().filter(|r| r.device == DeviceId(d));
            on.map(|r| r.requests).sum::<u64>()
        };
        assert_eq!((on(0), on(1)), (14, 1), "what has no place is not counted");
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let touched = absorbed(3, &facts(700, &[(3, 50), (600, 1)]));
        let text = serde_json::to_string(&touched).unwrap();
        assert_eq!(serde_json::from_str::<Touched>(&text).unwrap(), touched);
        assert!(text.len() < 3 * 350, "two letters for each part: {text}");
        for wrong in ["\"0\"", "\"0z\""] {
            let text = format!("{{\"ages\":{wrong}}}");
            assert!(serde_json::from_str::<Touched>(&text).is_err(), "{wrong}");
        }
    }
}
