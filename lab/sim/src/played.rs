//! Trace with other times than recorded. Its pieces are replayed in random order, at times of a Poisson process whose
//! rate changes by slot, with a limited number of outstanding requests.
//!
//! ```text
//!  rates of slots ─▶ time of the next request ─▶ delayed, if the limit of outstanding requests is reached
//!  trace ─▶ random piece ─▶ its requests in their order ─▶ the next piece …
//! ```

use std::sync::Arc;

use algo::{JitterTable, mix};
use trace::Record;
use units::Nanos;

use crate::TraceModel;
use crate::source::{Issue, NEVER, Window};

/// Times of the requests of a played trace.
#[derive(Debug, Clone)]
pub struct RatesModel {
    /// Requests per second by slot. The list repeats after its end.
    pub per_s: Arc<[f64]>,
    /// Length of a slot.
    pub slot: Nanos,
    /// Number of requests per piece.
    pub piece: u32,
}

pub(crate) struct PlayedSource<'a> {
    records: &'a [Record],
    volumes: Vec<u32>,
    rates: &'a RatesModel,
    exponential: Arc<JitterTable>,
    start_ns: u64,
    /// Time after the start at which requests end.
    end_ns: u64,
    window: Window,
    stream: u64,
    /// Number of random numbers drawn so far.
    drawn: u64,
    /// Next request of the piece, and number of remaining requests in it.
    at: usize,
    left: usize,
    first_ns: u64,
}

impl<'a> PlayedSource<'a> {
    pub(crate) fn new(
        model: &'a TraceModel,
        rates: &'a RatesModel,
        exponential: Arc<JitterTable>,
        (stream, end_ns): (u64, u64),
    ) -> Self {
        let mut source = Self {
            records: model.trace.records(),
            volumes: model.volumes.iter().map(|v| v.0).collect(),
            rates,
            exponential,
            start_ns: model.start.0,
            end_ns,
            window: Window::new(model.outstanding.expect("checked when built")),
            stream,
            drawn: 0,
            at: 0,
            left: 0,
            first_ns: NEVER,
        };
        if !source.records.is_empty() {
            source.first_ns = source.due_after(source.start_ns);
        }
        source
    }

    /// Returns the time of the first request.
    pub(crate) fn begins_ns(&self) -> u64 {
        self.first_ns
    }

    #[inline]
    fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.stream, self.drawn)
    }

    /// Returns the time of the request after one at `now_ns`; [`NEVER`] if it is after the run.
    #[inline]
    fn due_after(&mut self, now_ns: u64) -> u64 {
        let (slots, slot_ns) = (self.rates.per_s.len() as u64, self.rates.slot.0);
        let bits = self.bits();
        let mut rest = self.exponential.factor(bits);
        let mut now = now_ns - self.start_ns;
        // A gap that crosses the end of a slot continues at the rate of the next slot.
        while now < self.end_ns {
            let slot = now / slot_ns;
            let rate = self.rates.per_s[(slot % slots) as usize] * 1e-9;
            let end = (slot + 1) * slot_ns;
            let possible = (end - now) as f64 * rate;
            if rest < possible {
                return self.start_ns + now + (rest / rate) as u64;
            }
            rest -= possible;
            now = end;
        }
        NEVER
    }

    #[inline]
    pub(crate) fn take(&mut self, now_ns: u64) -> Issue {
        if self.left == 0 {
            let piece = self.rates.piece as usize;
            let pieces = self.records.len().div_ceil(piece);
            let drawn = (u128::from(self.bits()) * pieces as u128) >> 64;
            self.at = drawn as usize * piece;
            self.left = piece.min(self.records.len() - self.at);
        }
        let record = &self.records[self.at];
        self.at += 1;
        self.left -= 1;
        Issue {
            volume: self.volumes[record.volume() as usize],
            op: record.op(),
            offset: record.offset_bytes,
            length: u64::from(record.length_bytes),
            arrival_ns: now_ns,
            bits: mix(self.stream, !self.drawn),
        }
    }

    pub(crate) fn set_out(&mut self, now_ns: u64) -> Option<u64> {
        let at_ns = self.due_after(now_ns);
        self.window.set_out(at_ns)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.window.is_waiting()
    }

    pub(crate) fn answered(&mut self, now_ns: u64) -> Option<u64> {
        self.window.answered(now_ns)
    }

    #[inline]
    pub(crate) fn next_after(&mut self, now_ns: u64, done_ns: u64) -> u64 {
        match self.due_after(now_ns) {
            NEVER => NEVER,
            at_ns => self.window.admit(at_ns, done_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Op;
    use trace::{LoadedTrace, Request};
    use units::VolumeId;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn model(requests: u64, per_s: &[f64], piece: u32) -> TraceModel {
        let record = |n| {
            Record::new(Request {
                time_ns: n,
                volume: 0,
                op: Op::Read,
                offset_bytes: n * 4096,
                length_bytes: 4096,
            })
        };
        let records = (0..requests).map(record).collect();
        TraceModel {
            trace: Arc::new(LoadedTrace::from_records(records, None, &["t"]).unwrap()),
            volumes: vec![VolumeId(0)],
            outstanding: Some(32),
            rates: Some(RatesModel {
                per_s: per_s.into(),
                slot: Nanos(1000 * S),
                piece,
            }),
            speed: 1.0,
            start: Nanos(7 * S),
            repeat: 1,
            period: Nanos(S),
        }
    }

    fn source(model: &TraceModel, end_ns: u64) -> PlayedSource<'_> {
        let rates = model.rates.as_ref().unwrap();
        let exponential = Arc::new(JitterTable::exponential());
        PlayedSource::new(model, rates, exponential, (7, end_ns))
    }

    #[test]
    fn played_rates_match_and_idle_slots_are_idle() {
        let model = model(10, &[100.0, 0.0, 300.0], 4096);
        let mut played = source(&model, 6000 * S);
        let (mut now, mut counts) = (played.begins_ns(), [0u32; 6]);
        while now < 6007 * S {
            counts[((now - 7 * S) / (1000 * S)) as usize] += 1;
            let issue = played.take(now);
            assert_eq!((issue.volume, issue.arrival_ns), (0, now));
            now = played.next_after(now, now);
        }
        // After the last slot the list repeats, and requests end at the end of the run.
        for (count, rate) in counts.iter().zip([1e5, 0.0, 3e5, 1e5, 0.0, 3e5]) {
            assert!(
                (f64::from(*count) - rate).abs() <= 0.02 * rate,
                "{counts:?}"
            );
        }
        assert_eq!(now, NEVER);
    }

    #[test]
    fn played_pieces_are_complete_and_cover_all_pages() {
        let model = model(1000, &[100.0], 64);
        let mut played = source(&model, 6000 * S);
        let (mut seen, mut last) = (vec![0u32; 1000], None);
        for n in 0..64_000u64 {
            let at = played.take(n).offset / 4096;
            // A piece begins at a multiple of its length and is replayed to its end.
            match last {
                Some(before) if (before + 1) % 64 != 0 && before != 999 => {
                    assert_eq!(at, before + 1)
                }
                _ => assert_eq!(at % 64, 0),
            }
            seen[at as usize] += 1;
            last = Some(at);
        }
        assert!(seen.iter().all(|n| *n > 20), "{seen:?}");
    }

    #[test]
    fn requests_beyond_the_in_flight_limit_wait_for_the_first_completion() {
        let mut model = model(10, &[1000.0], 4);
        model.outstanding = Some(2);
        let mut played = source(&model, 6000 * S);
        let now = played.begins_ns();
        played.take(now);
        let second = played.next_after(now, now + 50 * S);
        assert!(second < now + S, "one is in flight, and two may be");
        played.take(second);
        assert_eq!(played.next_after(second, now + 90 * S), now + 50 * S);
    }
}
