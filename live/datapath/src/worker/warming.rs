//! Warm-up of the L2 cache: reads much used zones of a volume before its guests do, in the given order and at a limited
//! rate.
//!
//! A read for the warm-up goes to the engine like the read of a guest, with the same rules for pages that change meanwhile.
//! It is not counted for a guest, touches no page in memory, and its data goes only to the L2 cache. The warm-up ends with
//! the L2 cache or with the first failed read.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::engine::{Fault, GuestOp, GuestRequest, Presence};
use crate::error::DatapathError;
use crate::io::Buf;

use super::Worker;
use super::guests::{AnswerTo, Guest, HEAD};
use super::second::FILLING_MAX;
use super::timers::TimerAction;

/// Largest number of reads in flight.
const AT_ONCE: u32 = 4;

/// Largest number of zones in a warm-up.
const ZONES_MAX: usize = 1 << 16;

/// Largest number of pieces that one turn skips. Protects the turns of guests.
const LOOKED_AT_MAX: usize = 256;

/// Time until the next attempt when no read is possible now.
const AGAIN_NS: u64 = 20_000_000;

/// Lowest permitted rate, reads per second.
const RATE_MIN: f64 = 0.001;

/// Zones of a volume to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Numbers of the zones, in order.
    pub zones: Vec<u64>,
    /// Size of a zone.
    pub zone: Bytes,
    /// Rate in reads per second, of one page each; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_s: Option<f64>,
}

impl WarmUp {
    /// Checks the values.
    ///
    /// # Errors
    /// [`DatapathError::Invalid`] with the invalid value.
    pub fn check(&self) -> Result<(), DatapathError> {
        if self.zone == Bytes::ZERO {
            return Err(DatapathError::Invalid(
                "the zone size of a warm-up must be above 0".into(),
            ));
        }
        if self.zones.len() > ZONES_MAX {
            let count = self.zones.len();
            return Err(DatapathError::Invalid(format!(
                "a warm-up has {count} zones, at most {ZONES_MAX} are allowed"
            )));
        }
        match self.reads_per_s {
            Some(rate) if !(rate.is_finite() && rate >= RATE_MIN) => Err(DatapathError::Invalid(
                format!("the rate of a warm-up is invalid: {rate} reads/s"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the ranges of whole pages, in reverse order.
    fn ranges(&self, size: u64, page: u64) -> Vec<Range<u64>> {
        let range = |zone: &u64| {
            let begin = zone.checked_mul(self.zone.0)?;
            let end = begin.saturating_add(self.zone.0).min(size / page * page);
            let range = begin / page * page..end.div_ceil(page) * page;
            (range.start < range.end).then_some(range)
        };
        let mut ranges: Vec<_> = self.zones.iter().filter_map(range).collect();
        ranges.reverse();
        ranges
    }
}

/// State of a warm-up.
#[derive(Debug)]
pub(super) struct WarmUpState {
    volume: u32,
    /// Ranges that are left, in reverse order.
    left: Vec<Range<u64>>,
    gap_ns: u64,
    /// Earliest time of the next read.
    next_ns: u64,
    under_way: u32,
    /// True if as many reads as permitted are in flight: the warm-up continues when one ends.
    is_full: bool,
    /// Number of bytes that were read and went to the L2 cache.
    pub(super) read: u64,
}

impl WarmUpState {
    pub(super) fn new(volume: u32, of: &WarmUp, size: u64, page: u64) -> Self {
        let gap_ns = of.reads_per_s.map_or(0, |rate| (1e9 / rate) as u64);
        Self {
            volume,
            left: of.ranges(size, page),
            gap_ns,
            next_ns: 0,
            under_way: 0,
            is_full: false,
            read: 0,
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.left.iter().map(|r| r.end - r.start).sum()
    }

    /// Returns the next page.
    fn next(&self, page: u64) -> Option<Range<u64>> {
        let range = self.left.last()?;
        Some(range.start..range.start + page)
    }

    /// Skips the present range up to the byte `to`.
    fn passed(&mut self, to: u64) {
        let range = self.left.last_mut().expect("there was a next one");
        range.start = to;
        if range.start >= range.end {
            self.left.pop();
        }
    }
}

impl Worker {
    /// Starts the next read of the warm-up of the L2 cache with the number `time`, and sets the timer for the one after it.
    pub(super) fn warm(&mut self, time: u32) {
        if time != self.second.time {
            return;
        }
        let Some(mut warming) = self.second.warming.take() else {
            return;
        };
        let next = self.next_to_warm(&mut warming);
        let (volume, over) = (warming.volume, warming.left.is_empty());
        if next.is_some() {
            warming.under_way += 1;
            warming.next_ns = self.now_ns.saturating_add(warming.gap_ns);
        }
        warming.is_full = warming.under_way >= AT_ONCE;
        let waits = warming.is_full;
        let again_ns = match next {
            Some(_) => warming.next_ns,
            None => self.now_ns + AGAIN_NS,
        };
        self.second.warming = Some(warming);
        if !over && !waits {
            self.timers.at(again_ns, TimerAction::Warm(time));
        }
        if let Some(range) = next {
            self.read_to_warm(volume, range);
        }
    }

    /// Returns the range to read now; none if a read is not possible now, or nothing is left.
    fn next_to_warm(&self, warming: &mut WarmUpState) -> Option<Range<u64>> {
        let live = self.volumes[warming.volume as usize].as_ref();
        let live = live.filter(|live| live.detached.is_none());
        let Some((live, cached)) = live.and_then(|l| Some((l, l.cached.as_ref()?))) else {
            // The volume is not served or not cached any more.
            warming.left.clear();
            return None;
        };
        let memory = &self.cache.as_ref()?.memory;
        let page = memory.page_bytes();
        let waits = self.still || live.held || live.resting.is_some();
        let room = self.second.filling() + page <= FILLING_MAX / 2;
        if waits || !room || warming.under_way >= AT_ONCE || !self.second_may() {
            return None;
        }
        for _ in 0..LOOKED_AT_MAX {
            let range = warming.next(page)?;
            let length = range.end - range.start;
            let hole = match live.engine.status(range.start, length, 1).first() {
                Some((hole, Presence::Hole)) => *hole / page * page,
                // The volume is smaller than before: nothing is left to read.
                None => length,
                Some((_, Presence::Data)) => 0,
            };
            if hole > 0 {
                warming.passed(range.start + hole);
                continue;
            }
            warming.passed(range.end);
            if !cached.cache.has_stored(memory, &range) {
                return Some(range);
            }
        }
        None
    }

    fn read_to_warm(&mut self, volume: u32, range: Range<u64>) {
        let request = GuestRequest {
            op: GuestOp::Read,
            offset: range.start,
            length: range.end - range.start,
            fua: false,
        };
        let buf = self.pool.take(HEAD + request.length as usize);
        let live = self.volumes[volume as usize].as_mut();
        let (Some(live), Some(cache)) = (live, &self.cache) else {
            return self.pool.give(buf);
        };
        let Some(cached) = &mut live.cached else {
            return self.pool.give(buf);
        };
        let to = AnswerTo::SecondLevel {
            time: self.second.time,
        };
        let mut guest = Guest::new(to, Some(buf), self.now_ns);
        guest.pass = cached.cache.pass(&cache.memory, &request);
        live.engine.submit_aside(self.now_ns, guest, request);
        self.carry_out(volume);
    }

    /// Handles the end of a read for the warm-up.
    pub(super) fn warm_over(
        &mut self,
        volume: u32,
        guest: Guest,
        request: &GuestRequest,
        result: Result<(), Fault>,
    ) {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has requests");
        let mut kept = false;
        if let (Some(cached), Some(_)) = (&mut live.cached, &self.cache) {
            kept = cached.cache.read_aside_over(guest.pass) && result.is_ok();
        }
        let filling = self.second.filling();
        let buf: Arc<Buf> = guest.buf.expect("a read has a buffer");
        let of_now = guest.to
            == AnswerTo::SecondLevel {
                time: self.second.time,
            };
        if kept && of_now {
            self.fill_second(volume, request, &buf);
        }
        self.pool.give(buf);
        let filled = self.second.filling() - filling;
        if let Some(warming) = self.second.warming.as_mut().filter(|_| of_now) {
            warming.under_way -= 1;
            warming.read += filled;
            if result.is_err() {
                // A warm-up is not worth further load on a device that fails or hangs.
                warming.left.clear();
            }
            if std::mem::take(&mut warming.is_full) {
                let at_ns = warming.next_ns.max(self.now_ns);
                self.timers.at(at_ns, TimerAction::Warm(self.second.time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_read_in_whole_pages_within_the_volume() {
        let warm_up = |zones: &[u64], reads_per_s| WarmUp {
            zones: zones.to_vec(),
            zone: Bytes(100),
            reads_per_s,
        };
        let of = |zones: &[u64]| warm_up(zones, None).ranges(1000, 64);
        assert_eq!(of(&[2, 0]), [0..128, 192..320]);
        // The last page is incomplete and not cached; zones behind the end of the volume are skipped.
        assert_eq!(of(&[9]).first(), Some(&(896..960)));
        assert_eq!(of(&[10, u64::MAX]), Vec::<Range<u64>>::new());
        let mut warming = WarmUpState::new(0, &warm_up(&[2, 0], Some(100.0)), 1000, 64);
        assert_eq!((warming.gap_ns, warming.left()), (10_000_000, 256));
        assert_eq!(warming.next(64), Some(192..256));
        warming.passed(256);
        assert_eq!(warming.next(64), Some(256..320));
        warming.passed(320);
        assert_eq!(warming.next(64), Some(0..64));
        warming.passed(128);
        assert_eq!((warming.next(64), warming.left()), (None, 0));
        for (wrong, why) in [
            (warm_up(&[1], Some(0.0)), "0 reads/s"),
            (warm_up(&[1], Some(f64::NAN)), "NaN reads/s"),
            (warm_up(&[0; ZONES_MAX + 1], None), "at most 65536"),
        ] {
            let said = wrong.check().unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        warm_up(&[1, 2], Some(1.0)).check().unwrap();
    }
}
