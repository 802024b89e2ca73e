//! Measurements of the guests: latencies by class and stretch of time, and violated objectives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use algo::Histogram;
use algo::objective::{CompletedRequests, OverdueRequests, misses};
use model::{Objective, SloStatistic};
use units::Nanos;

use crate::loads::{CLASSES, CONTROLS, LOADS};

/// Stretch of the demonstration that the table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Beginning of the first half, before the first move can have started.
    Begin,
    /// End of the first half.
    Settled,
    /// Time just after the change of the loads.
    Changed,
    End,
}

impl Stretch {
    /// All stretches, in order.
    pub const ALL: [Stretch; 4] = [
        Stretch::Begin,
        Stretch::Settled,
        Stretch::Changed,
        Stretch::End,
    ];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Stretch::Begin => "begin",
            Stretch::Settled => "settled",
            Stretch::Changed => "changed",
            Stretch::End => "end",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassNumbers {
    pub class: &'static str,
    /// Requests per second, mean and 99th percentile in microseconds, by stretch.
    pub stretches: Vec<(f64, f64, f64)>,
    /// Number of violated windows of a second, added over volumes, in the whole time. Unanswered requests count.
    pub violated_s: u64,
    /// Windows after placement has had time to adapt.
    pub adapted: SteadyWindows,
    /// Number of requests in the whole time.
    pub ios: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Mean latency in the whole time, in microseconds.
    pub mean_us: f64,
    /// 99th percentile in the whole time, in microseconds.
    pub p99_us: f64,
}

/// Windows of a class after placement has had time to adapt to the start or to the change. They end at the change and
/// at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyWindows {
    /// Number of windows of all volumes of the class.
    pub windows: u64,
    /// Number of violated windows by volume.
    pub violated: Vec<(&'static str, u64)>,
    /// Number of windows in which the control of a volume violated the class's objective, added over volumes.
    pub control_violated: u64,
}

impl SteadyWindows {
    /// Returns the number of violated windows of all volumes.
    pub fn violated_all(&self) -> u64 {
        self.violated.iter().map(|(_, windows)| windows).sum()
    }

    /// Returns the share of violated windows; `None` if there is no window.
    pub fn share(&self) -> Option<f64> {
        share(self.violated_all(), self.windows)
    }

    /// Returns the share of violated windows of the controls.
    pub fn control_share(&self) -> Option<f64> {
        share(self.control_violated, self.windows)
    }

    /// Returns the share of violations beyond those of the controls.
    pub fn above_control(&self) -> Option<f64> {
        Some((self.share()? - self.control_share()?).max(0.0))
    }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

/// Length of the windows that are compared with objectives.
const WINDOW_NS: u64 = 1_000_000_000;

/// Counters of the guests' requests. Each volume has a lock, which is taken a few hundred times a second. Times are
/// since the begin of the load.
pub(crate) struct Tally {
    length: Duration,
    /// Time after the start, and after the change, from which placement is compared with the objectives.
    adapts: Duration,
    /// Volumes in order, then the controls.
    volumes: Vec<Mutex<VolumeTally>>,
}

#[derive(Default)]
struct VolumeTally {
    /// Objective of the volume; for a control the objectives of all classes.
    targets: Vec<Objective>,
    /// Number of windows that have ended.
    ended: u64,
    /// Latencies of the requests that were answered in the current window.
    now: Histogram,
    /// Send times of unanswered requests by number.
    waiting: BTreeMap<u64, u64>,
    sent: u64,
    stretches: [Histogram; 4],
    all: Histogram,
    /// Violated windows by objective.
    violated: Vec<Vec<u64>>,
    errors: u64,
}

/// Request that was sent.
pub(crate) struct SentRequest {
    volume: usize,
    number: u64,
}

/// Begin and end of each stretch, as parts of the whole time.
const PARTS: [(f64, f64); 4] = [(0.0, 0.1), (0.4, 0.5), (0.5, 0.6), (0.9, 1.0)];

impl Tally {
    pub(crate) fn new(length: Duration, adapts: Duration) -> Self {
        let volumes = LOADS.iter().map(|l| vec![target(l.class)]);
        let all = || CLASSES.iter().map(|c| target(c.name)).collect();
        let controls = CONTROLS.iter().map(|_| all());
        Self {
            length,
            adapts,
            volumes: volumes.chain(controls).map(VolumeTally::new).collect(),
        }
    }

    fn volume(&self, volume: usize) -> MutexGuard<'_, VolumeTally> {
        let lock = self.volumes[volume].lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an error of a volume that cannot be used at all.
    pub(crate) fn failed(&self, volume: usize) {
        self.volume(volume).errors += 1;
    }

    /// Records a sent request of a volume.
    pub(crate) fn sent(&self, volume: usize, at: Duration) -> SentRequest {
        let mut v = self.volume(volume);
        v.roll(self.windows_at(at));
        let number = v.sent;
        v.sent += 1;
        v.waiting.insert(number, nanos(at));
        SentRequest { volume, number }
    }

    /// Records the end of a request.
    pub(crate) fn ended(&self, sent: &SentRequest, at: Duration, ok: bool) {
        let mut v = self.volume(sent.volume);
        v.roll(self.windows_at(at));
        let sent_ns = v.waiting.remove(&sent.number).expect("it was sent, once");
        if !ok {
            v.errors += 1;
            return;
        }
        let latency_ns = nanos(at).saturating_sub(sent_ns);
        v.now.record(latency_ns);
        v.all.record(latency_ns);
        let part = sent_ns as f64 / nanos(self.length) as f64;
        for (i, (from, to)) in PARTS.iter().enumerate() {
            if (*from..*to).contains(&part) {
                v.stretches[i].record(latency_ns);
            }
        }
    }

    /// Returns the number of windows that have ended at this time, within the length of the load.
    fn windows_at(&self, at: Duration) -> u64 {
        nanos(at.min(self.length)) / WINDOW_NS
    }

    /// Returns the windows in which placement is compared with the objectives.
    fn adapted_windows(&self) -> [Range<u64>; 2] {
        let half = self.length / 2;
        [(Duration::ZERO, half), (half, self.length)]
            .map(|(from, to)| nanos(from + self.adapts).div_ceil(WINDOW_NS)..nanos(to) / WINDOW_NS)
    }

    /// Returns the numbers by class.
    pub(crate) fn numbers(&self) -> Vec<ClassNumbers> {
        let classes = CLASSES.iter().enumerate();
        classes
            .map(|(i, class)| self.of_class(i, class.name))
            .collect()
    }

    fn of_class(&self, number: usize, class: &'static str) -> ClassNumbers {
        let adapted = self.adapted_windows();
        let counts = |violated: &[u64]| {
            let counts = |w: &&u64| adapted.iter().any(|part| part.contains(*w));
            violated.iter().filter(counts).count() as u64
        };
        let each: u64 = adapted
            .iter()
            .map(|part| part.end.saturating_sub(part.start))
            .sum();
        let (mut violated, mut violated_s, mut control_violated) = (vec![], 0, 0);
        let mut sum = VolumeTally::default();
        for (i, load) in LOADS.iter().enumerate().filter(|(_, l)| l.class == class) {
            let mut v = self.volume(i);
            v.roll(self.windows_at(self.length));
            violated.push((load.name, counts(&v.violated[0])));
            violated_s += v.violated[0].len() as u64;
            let mut control = self.volume(LOADS.len() + load.control());
            control.roll(self.windows_at(self.length));
            control_violated += counts(&control.violated[number]);
            for (to, from) in sum.stretches.iter_mut().zip(&v.stretches) {
                to.merge(from);
            }
            sum.all.merge(&v.all);
            sum.errors += v.errors;
        }
        let adapted = SteadyWindows {
            windows: each * violated.len() as u64,
            violated,
            control_violated,
        };
        let us = |h: &Histogram| (h.mean_us(), h.quantile_ns(0.99) as f64 / 1e3);
        let stretches = sum.stretches.iter().zip(PARTS).map(|(h, (from, to))| {
            let (mean, p99) = us(h);
            let seconds = (to - from) * self.length.as_secs_f64();
            (h.count() as f64 / seconds, mean, p99)
        });
        let (mean_us, p99_us) = us(&sum.all);
        ClassNumbers {
            class,
            stretches: stretches.collect(),
            violated_s,
            adapted,
            ios: sum.all.count(),
            errors: sum.errors,
            mean_us,
            p99_us,
        }
    }
}

impl VolumeTally {
    fn new(targets: Vec<Objective>) -> Mutex<Self> {
        let violated = vec![vec![]; targets.len()];
        Mutex::new(Self {
            targets,
            violated,
            ..Self::default()
        })
    }

    /// Ends windows up to this number. Windows without any request or answer are ended late, at the next one: the same
    /// requests were unanswered during them.
    fn roll(&mut self, windows: u64) {
        while self.ended < windows {
            let end_ns = (self.ended + 1) * WINDOW_NS;
            for (target, violated) in self.targets.iter().zip(&mut self.violated) {
                let mut overdue = OverdueRequests::default();
                for sent_ns in self.waiting.values() {
                    overdue.add(*target, end_ns.saturating_sub(*sent_ns));
                }
                let answered =
                    CompletedRequests::of_buckets(*target, self.now.buckets(), self.now.sum_ns());
                if misses(*target, answered, overdue) {
                    violated.push(self.ended);
                }
            }
            self.ended += 1;
            self.now.clear();
        }
    }
}

/// Returns the objective of a class.
fn target(class: &str) -> Objective {
    let class = CLASSES.iter().find(|c| c.name == class);
    Objective {
        statistic: SloStatistic::P99,
        latency: Nanos(nanos(class.expect("loads name classes").p99)),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);
    const ADAPTS: Duration = Duration::from_secs(2);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn violated(tally: &Tally) -> u64 {
        tally.numbers().iter().map(|c| c.violated_s).sum()
    }

    /// Records one request of the first volume, whose class allows 5 ms.
    fn one(tally: &Tally, sent: u64, ended: u64) {
        let request = tally.sent(0, ms(sent));
        tally.ended(&request, ms(ended), true);
    }

    #[test]
    fn second_is_violated_by_the_requests_completed_in_it() {
        let tally = Tally::new(LENGTH, ADAPTS);
        one(&tally, 100, 104);
        one(&tally, 1100, 1104);
        one(&tally, 2100, 2110);
        one(&tally, 3100, 3104);
        assert_eq!(violated(&tally), 1);
    }

    #[test]
    fn hanging_volume_violates_each_second_it_hangs() {
        let tally = Tally::new(LENGTH, ADAPTS);
        one(&tally, 100, 104);
        let hangs = tally.sent(0, ms(1500));
        one(&tally, 1600, 1603);
        // It is unanswered at the end of seconds 1, 2, 3 and 4, and answered in second 5.
        tally.ended(&hangs, ms(5500), true);
        one(&tally, 6100, 6104);
        assert_eq!(violated(&tally), 5);
        let gold = &tally.numbers()[0];
        assert_eq!((gold.ios, gold.errors), (4, 0));
    }

    #[test]
    fn request_without_a_reply_counts_until_the_end_of_the_run() {
        let tally = Tally::new(LENGTH, ADAPTS);
        let hangs = tally.sent(0, ms(7500));
        tally.ended(&hangs, ms(60_000), false);
        assert_eq!(violated(&tally), 3, "seconds 7, 8 and 9");
        assert_eq!(tally.numbers()[0].errors, 1);
        // It is sent so late that it can still be in time when the second ends.
        let tally = Tally::new(LENGTH, ADAPTS);
        one(&tally, 1998, 2001);
        assert_eq!(violated(&tally), 0);
    }

    #[test]
    fn violations_after_adaptation_are_compared_with_the_controls() {
        let tally = Tally::new(LENGTH, ADAPTS);
        assert_eq!(tally.adapted_windows(), [2..5, 7..10]);
        // The first volume is late in every second. Its control is late in seconds 1 and 3, by less than the objective
        // of silver allows.
        let control = LOADS.len() + LOADS[0].control();
        for second in 0..10 {
            let at = second * 1000 + 100;
            one(&tally, at, at + 7);
            let request = tally.sent(control, ms(at));
            let took = if second == 1 || second == 3 { 6 } else { 1 };
            tally.ended(&request, ms(at + took), true);
        }
        let numbers = tally.numbers();
        let gold = &numbers[0];
        assert_eq!(gold.violated_s, 10);
        assert_eq!(gold.adapted.violated[0], (LOADS[0].name, 6));
        let golden = || LOADS.iter().filter(|l| l.class == "gold");
        assert_eq!(gold.adapted.violated_all(), 6);
        assert_eq!(gold.adapted.windows, 6 * golden().count() as u64);
        let alike = golden().filter(|l| l.control() == LOADS[0].control());
        let alike = alike.count() as u64;
        assert_eq!(gold.adapted.control_violated, alike);
        let above = (6 - alike) as f64 / gold.adapted.windows as f64;
        assert!((gold.adapted.above_control().unwrap() - above).abs() < 1e-9);
        assert_eq!(numbers[1].adapted.control_violated, 0);
        assert_eq!(numbers[1].adapted.above_control(), Some(0.0));
        // Requests of a control belong to no class.
        assert_eq!(gold.ios, 10);
    }

    #[test]
    fn load_with_flushes_has_a_control_with_flushes() {
        let named = |name: &str| LOADS.iter().find(|l| l.name == name).unwrap();
        assert_eq!(CONTROLS[named("shop-wal").control()].name, "control-log");
        assert_eq!(CONTROLS[named("shop-db").control()].name, "control");
    }
}
