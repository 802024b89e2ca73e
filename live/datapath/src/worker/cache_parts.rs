//! Parts of the worker's cache: set by an operator, lent for a limited time as a remedy for an SLO violation, and shares of
//! classes.
//!
//! ```text
//!   operator ──▶ given ────────────────┐
//!                                      ├──▶ part of the volume: the lent one if it exists, else the given one
//!   remedy ────▶ lent, until its end ──┘
//! ```
//!
//! A lent part ends by itself, because the controller that ordered it may have failed. A part that an operator sets
//! meanwhile takes effect then. All parts end with the server, together with the content of the cache.
//!
//! A volume without a part of its own shares the part of its class, if the class has a share, or else the common part. A
//! volume whose part or share is empty is not cached.

use std::collections::BTreeSet;

use cache::{CachePartError, PartNo};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use super::Worker;
use super::cached::{LiveCache, WorkerCache};
use super::volumes::LiveVolume;
use crate::cached::CacheMemory;
use crate::error::{DatapathError, Result};

/// Owner of a share of each worker's cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareOf {
    /// All volumes of a service class together.
    Class(String),
    /// One volume; takes precedence over the share of its class.
    Volume(String),
}

/// Share of a class in the worker's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassShare {
    share: f64,
    /// Part in the cache; none while the worker has no volumes of the class.
    part: Option<PartNo>,
}

/// Part that a volume has for a limited time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentPart {
    /// Size of the part.
    pub part: Bytes,
    /// Time until the part ends, unless it is renewed.
    pub left: Nanos,
    /// Part that the volume has afterwards; none for the common part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bytes>,
}

/// Wanted parts of a volume in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    given: Option<Bytes>,
    /// Size of the lent part, and the time of its end.
    lent: Option<(Bytes, u64)>,
}

impl Parts {
    fn has(&self) -> Option<Bytes> {
        self.lent.map(|(part, _)| part).or(self.given)
    }

    fn is_over(&self, now_ns: u64) -> bool {
        self.lent.is_some_and(|(_, until_ns)| until_ns <= now_ns)
    }

    pub(super) fn lent(&self, now_ns: u64) -> Option<LentPart> {
        let (part, until_ns) = self.lent?;
        Some(LentPart {
            part,
            left: Nanos(until_ns.saturating_sub(now_ns)),
            given: self.given,
        })
    }
}

impl WorkerCache {
    fn bytes_of(&self, share: f64) -> Bytes {
        let all = u64::from(self.memory.pages().capacity()) * self.memory.page_bytes();
        Bytes((share * all as f64) as u64)
    }

    fn can_give(&self, share: Option<f64>) -> Result<()> {
        match share.is_some_and(|s| s > 0.0) {
            true => self.memory.pages().can_have_parts(),
            false => Ok(()),
        }
        .map_err(DatapathError::failed)
    }

    /// Applies the wanted parts of a volume to the cache. After an error, nothing has changed.
    fn keep_to(&mut self, cached: &mut LiveCache, wanted: Parts) -> Result<()> {
        let (volume, page) = (cached.cache.volume(), self.memory.page_bytes());
        let pages = self.memory.pages_mut();
        match wanted.has() {
            None | Some(Bytes::ZERO) => pages.take_part_back(volume),
            Some(part) if pages.part(volume).is_some() && cached.parts.has() == Some(part) => {}
            Some(part) => {
                let count = (part.0 / page).min(u64::from(u32::MAX)) as u32;
                let given = pages.give_part(volume, count);
                given.map_err(|why| in_bytes(page, why))?;
            }
        }
        cached.parts = wanted;
        cached.keep_out(&mut self.memory);
        Ok(())
    }

    /// Creates, resizes or ends the part of a class, and returns it; none if the class has no share or no volumes.
    fn part_of_class(
        &mut self,
        part: Option<PartNo>,
        share: f64,
        has_volumes: bool,
    ) -> Result<Option<PartNo>, CachePartError> {
        let pages = self.memory.pages_mut();
        let wanted =
            (share > 0.0 && has_volumes).then(|| (share * f64::from(pages.capacity())) as u32);
        match (part, wanted) {
            (None, None) => Ok(None),
            (None, Some(n)) => pages.new_part(n).map(Some),
            (Some(part), Some(n)) => pages.resize_part(part, n).map(|()| Some(part)),
            (Some(part), None) => {
                pages.end_part(part);
                Ok(None)
            }
        }
    }
}

fn in_bytes(page: u64, why: CachePartError) -> DatapathError {
    let bytes = |pages: u64| Bytes(pages * page);
    match why {
        CachePartError::TooLarge { asked, all } => DatapathError::Refused(format!(
            "cache parts of {} do not fit into the {} of the worker: at least one page must remain for other volumes",
            bytes(asked),
            bytes(all.into())
        )),
        other => DatapathError::failed(other),
    }
}

fn no_cache() -> DatapathError {
    DatapathError::Refused("the server has no cache: restart it with `--cache`".into())
}

impl LiveCache {
    /// Excludes the volume from the cache if its part or its class's share is empty; else admits it.
    fn keep_out(&mut self, memory: &mut CacheMemory) {
        let out = self
            .parts
            .has()
            .map_or(self.class_has_none, |part| part == Bytes::ZERO);
        self.cache.keep_out(memory, out);
    }
}

impl Worker {
    fn with_parts(&mut self, volume: u32, change: impl FnOnce(&mut Parts)) -> Result<Parts> {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it was just looked at");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return Err(DatapathError::Refused("the volume is not cached".into()));
        };
        let mut wanted = cached.parts;
        change(&mut wanted);
        cache.keep_to(cached, wanted)?;
        // Classes that did not fit before may fit now.
        self.settle_classes();
        Ok(wanted)
    }

    /// Sets the part that a volume has by order of an operator, or removes it. Returns the part that is lent to the volume,
    /// if there is one: it stays in force until its end.
    pub(super) fn share_cache(
        &mut self,
        volume: u32,
        part: Option<Bytes>,
    ) -> Result<Option<Bytes>> {
        let parts = self.with_parts(volume, |parts| parts.given = part)?;
        Ok(parts.lent.map(|(lent, _)| lent))
    }

    /// Sets or removes the share of a class or a volume in the worker's cache, and returns the share before. After an
    /// error, nothing has changed.
    pub(super) fn set_share(&mut self, of: &ShareOf, share: Option<f64>) -> Result<Option<f64>> {
        match of {
            ShareOf::Class(class) => self.share_class(class, share),
            ShareOf::Volume(volume) => self.share_volume(volume, share),
        }
    }

    fn share_volume(&mut self, name: &str, share: Option<f64>) -> Result<Option<f64>> {
        let cache = self.cache.as_ref().ok_or_else(no_cache)?;
        cache.can_give(share)?;
        let given = share.map(|share| cache.bytes_of(share));
        let is_it = |live: &LiveVolume| live.name == name && live.cached.is_some();
        let at = |v: &Option<LiveVolume>| v.as_ref().is_some_and(is_it);
        if let Some(volume) = self.volumes.iter().position(at) {
            self.share_cache(volume as u32, given)?;
        }
        let cache = self.cache.as_mut().expect("as above");
        Ok(match share {
            Some(share) => cache.of_volumes.insert(name.into(), share),
            None => cache.of_volumes.remove(name),
        })
    }

    /// Sets or removes the share of a class. Volumes of a class without a share use the common part.
    fn share_class(&mut self, class: &str, share: Option<f64>) -> Result<Option<f64>> {
        let has_volumes = self.cached_classes().contains(class);
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        let page = cache.memory.page_bytes();
        let part = cache.classes.get(class).and_then(|of| of.part);
        cache.can_give(share)?;
        let others = cache.classes.iter().filter(|(c, _)| *c != class);
        let sum = others.map(|(_, of)| of.share).sum::<f64>() + share.unwrap_or(0.0);
        if sum >= 1.0 {
            return Err(DatapathError::Invalid(format!(
                "the shares of all classes would add up to {sum}; the sum must be below 1"
            )));
        }
        let part = cache.part_of_class(part, share.unwrap_or(0.0), has_volumes);
        let part = part.map_err(|why| in_bytes(page, why))?;
        let before = match share {
            Some(share) => cache
                .classes
                .insert(class.into(), ClassShare { share, part }),
            None => cache.classes.remove(class),
        };
        self.settle();
        Ok(before.map(|of| of.share))
    }

    /// Keeps the share of a volume that is renamed.
    pub(super) fn share_renamed(&mut self, from: &str, to: &str) {
        let shares = self.cache.as_mut().map(|c| &mut c.of_volumes);
        if let Some(shares) = shares
            && let Some(share) = shares.remove(from)
        {
            shares.insert(to.into(), share);
        }
    }

    /// Gives a newly cached volume its own share, and its place in the part of its class.
    pub(super) fn begin_parts(&mut self, volume: u32) {
        let live = self.volumes[volume as usize].as_ref();
        let live = live.filter(|live| live.cached.is_some());
        if let (Some(live), Some(cache)) = (live, &self.cache)
            && let Some(share) = cache.of_volumes.get(&live.name)
        {
            let (name, given) = (live.name.clone(), cache.bytes_of(*share));
            if let Err(why) = self.share_cache(volume, Some(given)) {
                tracing::warn!(volume = name, %why, "the volume uses the common part of the cache");
            }
        }
        self.settle_classes();
    }

    /// Returns the classes of all cached volumes.
    fn cached_classes(&self) -> BTreeSet<String> {
        let live = self.volumes.iter().flatten();
        let cached = live.filter(|l| l.cached.is_some());
        cached.map(|l| l.class.clone()).collect()
    }

    /// Assigns all volumes to the parts of their classes again, after volumes were added, removed or changed their class.
    pub(super) fn settle_classes(&mut self) {
        if self.cache.as_ref().is_some_and(|c| !c.classes.is_empty()) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let there = self.cached_classes();
        let Some(cache) = &mut self.cache else {
            return;
        };
        let mut classes = std::mem::take(&mut cache.classes);
        for (class, of) in &mut classes {
            match cache.part_of_class(of.part, of.share, there.contains(class)) {
                Ok(part) => of.part = part,
                // Other parts have taken the space meanwhile.
                Err(why) => {
                    let why = in_bytes(cache.memory.page_bytes(), why);
                    tracing::warn!(class, %why, "the volumes of the class use the common part of the cache");
                }
            }
        }
        for live in self.volumes.iter_mut().flatten() {
            let Some(cached) = &mut live.cached else {
                continue;
            };
            let of = classes.get(&live.class);
            let (pages, volume) = (cache.memory.pages_mut(), cached.cache.volume());
            pages.put_in(volume, of.and_then(|of| of.part));
            cached.class_has_none = of.is_some_and(|of| of.share <= 0.0);
            cached.keep_out(&mut cache.memory);
        }
        cache.classes = classes;
    }

    /// Lends a volume a part of the cache for the time `lasting`; without `part`, ends the lent part.
    pub(super) fn lend_cache(
        &mut self,
        volume: u32,
        part: Option<Bytes>,
        lasting: Nanos,
    ) -> Result<()> {
        let until_ns = self.now_ns.saturating_add(lasting.0);
        let lent = part.map(|part| (part, until_ns));
        self.with_parts(volume, |parts| parts.lent = lent)?;
        Ok(())
    }

    /// Ends lent parts whose time is over.
    pub(super) fn end_lent_parts(&mut self) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        let mut ended = false;
        for live in self.volumes.iter_mut().flatten() {
            let over = |cached: &&mut LiveCache| cached.parts.is_over(self.now_ns);
            let Some(cached) = live.cached.as_mut().filter(over) else {
                continue;
            };
            ended = true;
            let given = Parts {
                lent: None,
                ..cached.parts
            };
            if let Err(why) = cache.keep_to(cached, given) {
                // Other parts have taken the space meanwhile: the volume uses the common part.
                tracing::warn!(volume = live.name, %why, "the reserved part of the cache could not be restored: the volume uses the common part");
                let shared = cache.keep_to(cached, Parts::default());
                shared.expect("what is shared has no size");
            }
        }
        if ended {
            self.settle_classes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cached::CacheSettings;
    use crate::control_server::{ControlAnswer, ControlRequest};
    use crate::server::ServerConfig;
    use crate::serving::{ArrayServer, one_volume_with};

    const MINUTE: Nanos = Nanos::from_secs(60);
    const KIB: Bytes = Bytes(1 << 10);

    fn kib(n: u64) -> Bytes {
        Bytes(n * KIB.0)
    }

    fn done(serving: &ArrayServer, ask: ControlRequest) -> Result<String, String> {
        match serving.control_server().ask(ask) {
            Ok(ControlAnswer::Done { message }) => Ok(message),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why.to_string()),
        }
    }

    fn lend(serving: &ArrayServer, part: Option<Bytes>, lasting: Nanos) -> Result<String, String> {
        let volume = "data".into();
        done(
            serving,
            ControlRequest::LendCache {
                volume,
                part,
                lasting,
            },
        )
    }

    fn give(serving: &ArrayServer, part: Option<Bytes>) -> Result<String, String> {
        let volume = "data".into();
        done(serving, ControlRequest::ShareCache { volume, part })
    }

    /// Returns the part of the volume, the lent part, and the part that it has afterwards.
    fn has(serving: &ArrayServer) -> (Option<Bytes>, Option<Bytes>, Option<Bytes>) {
        let samples = serving.control_server().ask(ControlRequest::Samples);
        let Ok(ControlAnswer::Samples(samples)) = samples else {
            panic!("it tells what it was asked")
        };
        let cache = samples.volumes[0].cache.expect("it is cached");
        assert!(cache.of.in_parts && cache.of.page == kib(4) && cache.of.size == kib(256));
        let given = cache.lent.map_or(cache.part, |lent| lent.given);
        (cache.part, cache.lent.map(|lent| lent.part), given)
    }

    #[test]
    fn temporary_cache_share_overrides_the_manual_one_and_expires() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            workers: 1,
            cache: Some(CacheSettings::of(kib(256), kib(4))),
            ..ServerConfig::default()
        };
        let (serving, _) = one_volume_with(dir.path(), config);
        assert_eq!(has(&serving), (None, None, None));
        give(&serving, Some(kib(64))).unwrap();
        lend(&serving, Some(kib(128)), MINUTE).unwrap();
        let (given, lent) = (Some(kib(64)), Some(kib(128)));
        assert_eq!(has(&serving), (lent, lent, given));
        // Larger than the cache: nothing changes.
        let refused = lend(&serving, Some(kib(256)), MINUTE).unwrap_err();
        assert!(refused.contains("do not fit"), "{refused}");
        assert_eq!(has(&serving), (lent, lent, given));
        // A part that an operator sets meanwhile takes effect later.
        let said = give(&serving, Some(kib(32))).unwrap();
        let so = "will have 32 KiB of the cache when the remedy for its SLO violation ends";
        assert!(said.contains(so), "{said}");
        assert_eq!(has(&serving), (lent, lent, Some(kib(32))));
        lend(&serving, None, MINUTE).unwrap();
        assert_eq!(has(&serving), (Some(kib(32)), None, Some(kib(32))));
        lend(&serving, Some(kib(128)), Nanos::from_millis(1)).unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        while has(&serving).1.is_some() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(has(&serving), (Some(kib(32)), None, Some(kib(32))));
        give(&serving, None).unwrap();
        assert_eq!(has(&serving), (None, None, None));
        serving.stop().unwrap();
    }

    fn of(serving: &ArrayServer, volume: &str) -> (Option<Bytes>, Option<Bytes>, bool) {
        let samples = serving.control_server().ask(ControlRequest::Samples);
        let Ok(ControlAnswer::Samples(samples)) = samples else {
            panic!("it tells what it was asked")
        };
        let mut volumes = samples.volumes.into_iter();
        let found = volumes.find(|v| v.name == volume).expect("it is served");
        let cache = found.cache.expect("there is a cache");
        (cache.part, cache.class_part, cache.kept_out)
    }

    #[test]
    fn class_members_share_a_cache_share_and_zero_disables_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            workers: 2,
            cache: Some(CacheSettings::of(kib(512), kib(4))),
            ..ServerConfig::default()
        };
        let (serving, _) = one_volume_with(dir.path(), config);
        let set = |of: ShareOf, share| done(&serving, ControlRequest::SetCacheShare { of, share });
        let class = |name: &str| ShareOf::Class(name.into());
        let create = |volume: &str, class: Option<&str>| {
            let create = ControlRequest::Create {
                volume: volume.into(),
                size: Bytes(1 << 20),
                tier: "fast".into(),
                class: class.map(str::to_owned),
            };
            serving.control_server().ask(create).unwrap()
        };
        let said = set(class("gold"), Some(0.5)).unwrap();
        assert_eq!(said, "reserved 0.5 of the cache for class gold");
        set(ShareOf::Volume("late".into()), Some(0.25)).unwrap();
        assert_eq!(of(&serving, "data"), (None, None, false));
        create("two", Some("gold"));
        create("late", Some("gold"));
        let half = Some(kib(128));
        assert_eq!(of(&serving, "two"), (None, half, false));
        assert_eq!(of(&serving, "late"), (Some(kib(64)), None, false));
        let of_class = |volume: &str, class: &str| ControlRequest::SetClass {
            volume: volume.into(),
            class: class.into(),
        };
        done(&serving, of_class("data", "gold")).unwrap();
        assert_eq!(of(&serving, "data"), (None, half, false));
        // A share that does not fit changes nothing, on any worker.
        let refused = set(class("silver"), Some(0.5)).unwrap_err();
        assert!(refused.contains("add up to 1"), "{refused}");
        let refused = set(class("gold"), Some(0.8)).unwrap_err();
        assert!(refused.contains("do not fit"), "{refused}");
        let refused = set(class("gold"), Some(1.0)).unwrap_err();
        assert!(refused.contains("below 1"), "{refused}");
        assert_eq!(of(&serving, "two"), (None, half, false));
        assert_eq!(of(&serving, "data"), (None, half, false));
        set(class("gold"), Some(0.0)).unwrap();
        assert_eq!(of(&serving, "data"), (None, None, true));
        assert_eq!(of(&serving, "late"), (Some(kib(64)), None, false));
        done(&serving, of_class("data", "default")).unwrap();
        assert_eq!(of(&serving, "data"), (None, None, false));
        set(class("gold"), None).unwrap();
        assert_eq!(of(&serving, "two"), (None, None, false));
        serving.stop().unwrap();
    }
}
