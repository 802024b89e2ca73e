//! Guests of the demonstration: threads with an NBD connection each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algo::{Rng, mix};
use datapath::Client;
use model::Op;
use nbd::Uri;
use trace::{LoadedTrace, ReadOptions, TraceStream};

use crate::loads::{AccessPattern, CONTROLS, Habit, LOADS, Load, RecordedTrace};
use crate::tally::Tally;

/// Longest sleep, and thus the longest delay until a client notices the end.
const NAP: Duration = Duration::from_millis(100);

/// Size of a page: requests are whole pages.
const PAGE: u64 = 4096;

/// Begin of the load, and time of its change.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: Instant,
    pub(crate) change: Instant,
}

/// Guests of all volumes.
pub(crate) struct Guests {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Guests {
    /// Starts the guests. `uris` are the exports of the volumes in order, followed by those of the controls.
    pub(crate) fn start(
        uris: &[Uri],
        times: Times,
        tally: &Arc<Tally>,
        seed: u64,
    ) -> io::Result<Self> {
        let mut guests = Self {
            over: Arc::new(AtomicBool::new(false)),
            threads: vec![],
        };
        let loads = LOADS.iter().chain(&CONTROLS);
        for (volume, (load, uri)) in loads.zip(uris).enumerate() {
            let count = load.habits.iter().map(clients).max().unwrap_or(0);
            for number in 0..count {
                let guest = Guest {
                    uri: uri.clone(),
                    volume,
                    load,
                    number,
                    times,
                    tally: tally.clone(),
                    over: guests.over.clone(),
                    rng: Rng::new(seed, mix(volume as u64, u64::from(number))),
                };
                let thread = std::thread::Builder::new().name(format!("guest-{volume}-{number}"));
                guests.threads.push(thread.spawn(move || guest.run())?);
            }
        }
        Ok(guests)
    }

    /// Stops the guests.
    pub(crate) fn stop(self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn clients(habit: &Habit) -> u32 {
    match habit {
        Habit::Closed { clients, .. } => *clients,
        Habit::Log { .. } | Habit::Trace { .. } => 1,
    }
}

struct Guest {
    uri: Uri,
    volume: usize,
    load: &'static Load,
    number: u32,
    times: Times,
    tally: Arc<Tally>,
    over: Arc<AtomicBool>,
    rng: Rng,
}

impl Guest {
    fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn habit(&self) -> Habit {
        let changed = Instant::now() >= self.times.change;
        self.load.habits[usize::from(changed)]
    }

    /// Sleeps until this time or until the end, in naps.
    fn sleep_until(&self, then: Instant) {
        while !self.over() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// Sleeps between half and one and a half times the think time, so guests do not run in step.
    fn think(&mut self, think_us: u64) {
        let think_us = think_us / 2 + self.rng.below(think_us.max(1));
        self.sleep_until(Instant::now() + Duration::from_micros(think_us));
    }

    fn run(mut self) {
        let Ok(mut client) = Client::connect(&self.uri) else {
            self.tally.failed(self.volume);
            return;
        };
        let mut place = 0;
        self.sleep_until(self.times.begin);
        while !self.over() {
            match self.habit() {
                Habit::Trace { trace, speed } => return self.replay(client, trace, speed),
                Habit::Log { think_us, kib } => {
                    let length = u64::from(kib) << 10;
                    let place = self.rng.below(client.size() / length);
                    self.request(&mut client, Op::Write, place * length, length);
                    self.request(&mut client, Op::Flush, 0, 0);
                    self.think(think_us);
                }
                Habit::Closed { clients, .. } if self.number >= clients => {
                    self.sleep_until(Instant::now() + NAP);
                }
                Habit::Closed {
                    think_us,
                    read_percent,
                    kib,
                    order,
                    ..
                } => {
                    let length = u64::from(kib) << 10;
                    let slots = client.size() / length;
                    place = match order {
                        AccessPattern::Random => self.rng.below(slots),
                        AccessPattern::Sequential => (place + 1) % slots,
                    };
                    let op = if self.rng.below(100) < read_percent {
                        Op::Read
                    } else {
                        Op::Write
                    };
                    self.request(&mut client, op, place * length, length);
                    self.think(think_us);
                }
            }
        }
        let _ = client.disconnect();
    }

    fn request(&self, client: &mut Client, op: Op, offset: u64, length: u64) {
        let since = || Instant::now().saturating_duration_since(self.times.begin);
        let sent = self.tally.sent(self.volume, since());
        let done = match op {
            Op::Read => client.read(offset, length as u32).map(|_| ()),
            Op::Write => client.write(offset, &vec![0x5A; length as usize]),
            Op::Flush => client.flush(),
            Op::Trim => Ok(()), // volumes stay as full as they are
        };
        self.tally.ended(&sent, since(), done.is_ok());
    }

    /// Sends one request at a time, at its recorded time or as soon as the previous one is answered. Repeats the trace
    /// until the end.
    fn replay(self, mut client: Client, trace: RecordedTrace, speed: f64) {
        let (name, bytes) = trace.file();
        let options = ReadOptions::default();
        let stream = TraceStream::from_reader(name, bytes, &options);
        let Ok(loaded) = stream.and_then(|s| trace::load_stream(s, &options)) else {
            self.tally.failed(self.volume);
            return;
        };
        while !self.over() {
            self.replay_once(&mut client, &loaded, speed);
        }
        let _ = client.disconnect();
    }

    fn replay_once(&self, client: &mut Client, trace: &LoadedTrace, speed: f64) {
        let (begin, size) = (Instant::now(), client.size());
        let first_ns = trace.records().first().map_or(0, |r| r.time_ns);
        for record in trace.records() {
            let at = Duration::from_nanos(((record.time_ns - first_ns) as f64 / speed) as u64);
            self.sleep_until(begin + at);
            if self.over() {
                return;
            }
            // The recorded volume was larger: fold its addresses.
            let length = u64::from(record.length_bytes).min(size / 2);
            let offset = record.offset_bytes % (size - length) / PAGE * PAGE;
            self.request(client, record.op(), offset, length);
        }
    }
}
