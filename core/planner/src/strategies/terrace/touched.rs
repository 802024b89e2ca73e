//! Extents in use of a volume: those that carry its load, by the recent epochs with requests to them.

use model::{ExtentFacts, Objective, SloStatistic};
use serde::{Deserialize, Serialize};
use units::DeviceId;

/// Largest number of parts of a volume: a part is a group of neighbouring extents.
const BUCKETS_MAX: u32 = 512;
/// Number of epochs with requests that count. A part is in use if it had requests in two of them: a scan passes once.
const EPOCHS: u8 = 32;
/// Number of epochs with requests after which the parts in use are known ...
const SEEN_MIN: u32 = 2;
/// ... and number of further epochs after which the requests to other parts are known.
const EPOCHS_MIN: u32 = 4;
/// Weight that counts of requests to parts not in use keep after one more epoch: as long as the epochs that count. So a
/// volume that is written through from one end to the other is not mistaken for the part being written.
const KEEPS: f64 = 0.97;
/// Requests to parts not in use that are assumed in addition: few requests give little information.
const UNSEEN: f64 = 2.0;
/// Largest share of requests to parts not in use, as a share of a percentile's tail, ...
const OF_TAIL: f64 = 0.5;
/// ... as a share of all requests for an objective of the mean, and without an objective.
const OF_MEAN: f64 = 0.01;
const OF_FREE: f64 = 0.02;
/// Letter of age zero. Ages are stored as letters, because a thousand volumes have half a million parts.
const ZERO: u8 = b'0';

/// Number of epochs with requests since the last two epochs with requests to a part; [`EPOCHS`] is never.
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

    /// Records requests in the newest epoch.
    fn touched(&mut self) {
        if self.last > 0 {
            (self.last, self.before) = (0, self.last);
        }
    }

    /// Returns the ages of two parts that become one.
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

/// Requests to the parts of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PartRequests {
    /// Number of extents, and number of extents per part.
    extents: u32,
    per_bucket: u32,
    /// Ages by part.
    #[serde(with = "letters")]
    ages: Vec<Ages>,
    /// Newest epoch added, and number of epochs with requests so far.
    epoch: Option<u64>,
    seen: u32,
    /// Recent requests to parts that were not in use at that time, and all recent requests.
    elsewhere: f64,
    requests: f64,
    /// Device of the part with the load.
    pub home: Option<String>,
}

/// Format with two letters for each part.
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

/// Neighbouring extents on one device and in one part of their volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub end: u32,
    pub device: DeviceId,
    /// True if they carry some of the volume's load.
    pub in_use: bool,
    /// Number of epochs with requests since the last one with requests to them.
    pub age: u8,
    /// Requests of the last epoch, if known.
    pub requests: u64,
}

/// Returns the largest share of requests to other extents at which the extents in use count as all of the volume's load.
fn elsewhere_max(target: Option<Objective>) -> f64 {
    match target.map(|t| t.statistic) {
        Some(SloStatistic::P95) => OF_TAIL * 0.05,
        Some(SloStatistic::P99) => OF_TAIL * 0.01,
        Some(SloStatistic::Mean) => OF_MEAN,
        None => OF_FREE,
    }
}

/// Returns true if this share of requests to other extents is too large for a volume with this objective.
pub(super) fn too_much(share: f64, target: Option<Objective>) -> bool {
    share > elsewhere_max(target)
}

impl PartRequests {
    /// Adds an epoch. Epochs with too few requests and epochs that were added before are ignored.
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

    /// Adapts the parts to this number of extents. Earlier knowledge is kept if the volume has grown.
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

    /// Returns true if the extents in use can be treated as the whole load of a volume with this objective.
    pub(super) fn holds(&self, target: Option<Objective>) -> bool {
        let elsewhere = (self.elsewhere + UNSEEN) / self.requests.max(1.0);
        self.seen >= SEEN_MIN + EPOCHS_MIN && elsewhere <= elsewhere_max(target)
    }

    /// Returns the extents that have a place, in order.
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

    fn in_use(touched: &PartRequests, facts: &ExtentFacts) -> Vec<u32> {
        let runs = touched.runs(facts);
        let used = runs.iter().filter(|r| r.in_use);
        used.flat_map(|r| r.first..r.end).collect()
    }

    fn absorbed(epochs: u64, facts: &ExtentFacts) -> PartRequests {
        let mut touched = PartRequests::default();
        (0..epochs).for_each(|epoch| touched.absorb(epoch, facts, 1));
        touched
    }

    #[test]
    fn extent_touched_twice_is_in_use_until_long_idle() {
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
    fn slow_sequential_writes_are_not_a_working_set() {
        // Each part is written for twenty epochs, then the next.
        let mut touched = PartRequests::default();
        for epoch in 0..200 {
            touched.absorb(epoch, &facts(400, &[(epoch as u32 / 20, 5000)]), 1);
            assert!(epoch < 60 || !touched.holds(None), "epoch {epoch}");
        }
    }

    #[test]
    fn touched_extents_survive_growth_and_are_dropped_on_shrinking() {
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
    fn runs_have_the_request_count_of_their_extents() {
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
    fn touched_state_survives_serialization() {
        let touched = absorbed(3, &facts(700, &[(3, 50), (600, 1)]));
        let text = serde_json::to_string(&touched).unwrap();
        assert_eq!(
            serde_json::from_str::<PartRequests>(&text).unwrap(),
            touched
        );
        assert!(text.len() < 3 * 350, "two letters for each part: {text}");
        for wrong in ["\"0\"", "\"0z\""] {
            let text = format!("{{\"ages\":{wrong}}}");
            assert!(
                serde_json::from_str::<PartRequests>(&text).is_err(),
                "{wrong}"
            );
        }
    }
}
