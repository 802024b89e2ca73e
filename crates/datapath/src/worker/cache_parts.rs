//! Parts of the worker's cache: given by hand, and lent for a time as an answer to a broken objective.
//!
//! ```text
//!   by hand ──▶ given ─────────────┐          what is lent goes before what was given; after it there is what was given by
//!   answer  ──▶ lent until then ───┴▶ has     hand, before or meanwhile
//! ```
//!
//! What is lent ends by itself: whoever ordered it may be gone. All of it ends with the server, and so does what is cached.

use cache::CannotKeep;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use super::Worker;
use super::cached::{LiveCache, WorkerCache};

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
    /// Has the cache keep to what a volume is to have from now on. Where it cannot, all is as before.
    fn keep_to(&mut self, cached: &mut LiveCache, wanted: Parts) -> Result<(), String> {
        let (volume, page) = (cached.cache.volume(), self.memory.page_bytes());
        let pages = self.memory.pages_mut();
        let bytes = |pages: u64| Bytes(pages * page);
        match wanted.has() {
            None => pages.take_part_back(volume),
            Some(part) if pages.part(volume).is_some() && cached.parts.has() == Some(part) => {}
            Some(part) => {
                let count = (part.0 / page).min(u64::from(u32::MAX)) as u32;
                pages.give_part(volume, count).map_err(|why| match why {
                    CannotKeep::TooLarge { asked, all } => format!(
                        "parts of {} do not fit into the {} of its worker, of which others need at least a page",
                        bytes(asked),
                        bytes(all.into())
                    ),
                    other => other.to_string(),
                })?;
            }
        }
        cached.parts = wanted;
        Ok(())
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
            return Err("it is not cached".into());
        };
        let mut wanted = cached.parts;
        change(&mut wanted);
        cache.keep_to(cached, wanted)?;
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
        for live in self.volumes.iter_mut().flatten() {
            let over = |cached: &&mut LiveCache| cached.parts.is_over(self.now_ns);
            let Some(cached) = live.cached.as_mut().filter(over) else {
                continue;
            };
            let given = Parts {
                lent: None,
                ..cached.parts
            };
            if let Err(why) = cache.keep_to(cached, given) {
                // Others were given too much meanwhile: it has what is shared.
                tracing::warn!(volume = live.name, %why, "it does not have again what it was given of the cache");
                let shared = cache.keep_to(cached, Parts::default());
                shared.expect("what is shared has no size");
            }
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
        let so = "will have 32 KiB of the cache for itself once the 128 KiB are taken back";
        assert!(said.contains(so), "{said}");
        assert_eq!(has(&serving), (lent, lent, Some(kib(32))));
        lend(&serving, None, MINUTE).unwrap();
        assert_eq!(has(&serving), (Some(kib(32)), None, Some(kib(32))));
        lend(&serving, Some(kib(128)), Nanos::from_millis(1)).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while has(&serving).1.is_some() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(has(&serving), (Some(kib(32)), None, Some(kib(32))));
        give(&serving, None).unwrap();
        assert_eq!(has(&serving), (None, None, None));
        serving.stop();
    }
}
