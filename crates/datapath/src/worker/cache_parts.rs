//! Parts of the worker's cache: given by hand, lent for a time as an answer to a broken objective, and shares of classes.
//!
//! ```text
//!   by hand ──▶ given ─────────────┐          what is lent goes before what was given; after it there is what was given by
//!   answer  ──▶ lent until then ───┴▶ has     hand, before or meanwhile
//! ```
//!
//! What is lent ends by itself: whoever ordered it may be gone. All of it ends with the server, and so does what is cached.
//!
//! A volume that has no part of its own is in the part of its class with others, where the class has a share, or in what is left for all. Of a part or a share
//! of nothing nothing is kept.

use std::collections::BTreeSet;

use cache::{CannotKeep, PartNo};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use super::Worker;
use super::cached::{LiveCache, WorkerCache};
use super::volumes::LiveVolume;
use crate::cached::CacheMemory;

/// Who has a share of each worker's cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareOf {
    /// The volumes of a service class, among themselves.
    Class(String),
    /// A volume, for itself; goes before that of its class.
    Volume(String),
}

/// What a class has of the worker's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassShare {
    share: f64,
    /// There while the worker has volumes of the class.
    part: Option<PartNo>,
}

/// A part that a volume has for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentPart {
    /// How much.
    pub part: Bytes,
    /// For how long still, unless it is said again.
    pub left: Nanos,
    /// What it has after that; none is what is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bytes>,
}

/// What a volume is to have of the cache for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    given: Option<Bytes>,
    /// And until when.
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

    fn can_give(&self, share: Option<f64>) -> Result<(), String> {
        match share.is_some_and(|s| s > 0.0) {
            true => self.memory.pages().can_have_parts(),
            false => Ok(()),
        }
        .map_err(|why| why.to_string())
    }

    /// Has the cache keep to what a volume is to have from now on. Where it cannot, all is as before.
    fn keep_to(&mut self, cached: &mut LiveCache, wanted: Parts) -> Result<(), String> {
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

    /// The part of a class as it is to be: none where it has no share, or no volumes.
    fn part_of_class(
        &mut self,
        part: Option<PartNo>,
        share: f64,
        has_volumes: bool,
    ) -> Result<Option<PartNo>, CannotKeep> {
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

fn in_bytes(page: u64, why: CannotKeep) -> String {
    let bytes = |pages: u64| Bytes(pages * page);
    match why {
        CannotKeep::TooLarge { asked, all } => format!(
            "cache parts of {} do not fit into the {} of the worker: at least one page must remain for other volumes",
            bytes(asked),
            bytes(all.into())
        ),
        other => other.to_string(),
    }
}

impl LiveCache {
    /// Keeps nothing of it where it is to have nothing.
    fn keep_out(&mut self, memory: &mut CacheMemory) {
        let out = self
            .parts
            .has()
            .map_or(self.class_has_none, |part| part == Bytes::ZERO);
        self.cache.keep_out(memory, out);
    }
}

impl Worker {
    fn with_parts(
        &mut self,
        volume: u32,
        change: impl FnOnce(&mut Parts),
    ) -> Result<Parts, String> {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it was just looked at");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return Err("the volume is not cached".into());
        };
        let mut wanted = cached.parts;
        change(&mut wanted);
        cache.keep_to(cached, wanted)?;
        // There may be room for those now that had none.
        self.settle_classes();
        Ok(wanted)
    }

    /// Gives a volume a part of the worker's cache by hand, or takes it back; what it has meanwhile, where a part is lent to it.
    pub(super) fn share_cache(
        &mut self,
        volume: u32,
        part: Option<Bytes>,
    ) -> Result<Option<Bytes>, String> {
        let parts = self.with_parts(volume, |parts| parts.given = part)?;
        Ok(parts.lent.map(|(lent, _)| lent))
    }

    /// Gives a class or a volume a share of the worker's cache, or takes it back. What it had before; where it cannot be, all is as before.
    pub(super) fn set_share(
        &mut self,
        of: &ShareOf,
        share: Option<f64>,
    ) -> Result<Option<f64>, String> {
        match of {
            ShareOf::Class(class) => self.share_class(class, share),
            ShareOf::Volume(volume) => self.share_volume(volume, share),
        }
    }

    fn share_volume(&mut self, name: &str, share: Option<f64>) -> Result<Option<f64>, String> {
        let cache = self
            .cache
            .as_ref()
            .ok_or("the server has no cache: restart it with `--cache`")?;
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

    /// Its volumes share with all others where it has none.
    fn share_class(&mut self, class: &str, share: Option<f64>) -> Result<Option<f64>, String> {
        let has_volumes = self.cached_classes().contains(class);
        let cache = self
            .cache
            .as_mut()
            .ok_or("the server has no cache: restart it with `--cache`")?;
        let page = cache.memory.page_bytes();
        let part = cache.classes.get(class).and_then(|of| of.part);
        cache.can_give(share)?;
        let others = cache.classes.iter().filter(|(c, _)| *c != class);
        let sum = others.map(|(_, of)| of.share).sum::<f64>() + share.unwrap_or(0.0);
        if sum >= 1.0 {
            return Err(format!(
                "the shares of all classes would add up to {sum}; the sum must be below 1"
            ));
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

    /// A volume has another name: its share goes along.
    pub(super) fn share_renamed(&mut self, from: &str, to: &str) {
        let shares = self.cache.as_mut().map(|c| &mut c.of_volumes);
        if let Some(shares) = shares
            && let Some(share) = shares.remove(from)
        {
            shares.insert(to.into(), share);
        }
    }

    /// A volume that is cached from now on has its share, and is in the part that it belongs to.
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

    /// Classes of volumes that are cached.
    fn cached_classes(&self) -> BTreeSet<String> {
        let live = self.volumes.iter().flatten();
        let cached = live.filter(|l| l.cached.is_some());
        cached.map(|l| l.class.clone()).collect()
    }

    /// Volumes come, go or change their class: each is in the part that it belongs to.
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
                // Others were given too much meanwhile.
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

    /// Lends a volume a part for so long, or ends that.
    pub(super) fn lend_cache(
        &mut self,
        volume: u32,
        part: Option<Bytes>,
        lasting: Nanos,
    ) -> Result<(), String> {
        let until_ns = self.now_ns.saturating_add(lasting.0);
        let lent = part.map(|part| (part, until_ns));
        self.with_parts(volume, |parts| parts.lent = lent)?;
        Ok(())
    }

    /// Ends what was lent for a time that is over.
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
                // Others were given too much meanwhile: it has what is shared.
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
    use crate::serving::{Serving, one_volume_with};

    const MINUTE: Nanos = Nanos::from_secs(60);
    const KIB: Bytes = Bytes(1 << 10);

    fn kib(n: u64) -> Bytes {
        Bytes(n * KIB.0)
    }

    fn done(serving: &Serving, ask: ControlRequest) -> Result<String, String> {
        match serving.control_server().ask(ask)? {
            ControlAnswer::Done { message } => Ok(message),
            other => panic!("{other:?}"),
        }
    }

    fn lend(serving: &Serving, part: Option<Bytes>, lasting: Nanos) -> Result<String, String> {
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

    fn give(serving: &Serving, part: Option<Bytes>) -> Result<String, String> {
        let volume = "data".into();
        done(serving, ControlRequest::ShareCache { volume, part })
    }

    /// What it has, what of that is lent, and what it has after that.
    fn has(serving: &Serving) -> (Option<Bytes>, Option<Bytes>, Option<Bytes>) {
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
    fn what_is_lent_goes_before_what_was_given_by_hand_and_ends_by_itself() {
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
        // More than there is: all stays as it is.
        let refused = lend(&serving, Some(kib(256)), MINUTE).unwrap_err();
        assert!(refused.contains("do not fit"), "{refused}");
        assert_eq!(has(&serving), (lent, lent, given));
        // What is given by hand meanwhile waits.
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

    fn of(serving: &Serving, volume: &str) -> (Option<Bytes>, Option<Bytes>, bool) {
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
    fn a_class_shares_its_part_and_a_share_of_nothing_is_no_cache() {
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
        // What does not fit changes nothing, on any worker.
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
