//! Guests of the live run: the scenario's closed-loop clients, with one thread and one connection per request in flight.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::Op;
use sim::Model;
use trace::{Client, ClientStep};

use super::site::{CONTROL, CONTROL_NS, Site};
use super::{PARTS, VolumeLatencies};

/// Time between two requests of the control volume's guest.
const CONTROL_EVERY_NS: u64 = 4_000_000;

/// Running guests.
pub struct Guests {
    /// Latencies by volume.
    seen: Vec<Arc<Mutex<VolumeLatencies>>>,
    threads: Vec<JoinHandle<()>>,
    /// Excess of the control volume's latency over that of its device.
    control: JoinHandle<VolumeLatencies>,
}

/// Sleeps until this number of nanoseconds after the start.
pub fn sleep_until(start: Instant, at_ns: u64) {
    let at = start + Duration::from_nanos(at_ns);
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

pub fn since(start: Instant) -> u64 {
    Instant::now().saturating_duration_since(start).as_nanos() as u64
}

impl Guests {
    /// Starts the guests. They send their first requests at `start`, which must be in the future, and end with the
    /// scenario.
    pub fn begin(model: &Model, site: &Site, start: Instant) -> Self {
        let seen: Vec<Arc<Mutex<VolumeLatencies>>> =
            model.volumes.iter().map(|_| Arc::default()).collect();
        let mut threads = vec![];
        for (i, config) in model.clients.iter().enumerate() {
            let volume = &model.volumes[config.volume.index()];
            // Same random streams as in the simulator: the requests are identical as long as the replies come in the same
            // order.
            let stream = 0xC_0000 + i as u64;
            let client = Client::new(&config.spec, volume.size, model.seed, stream).unwrap();
            let slots = client.slots();
            let client = Arc::new(Mutex::new(client));
            for slot in 0..slots {
                let worker = Slot {
                    slot,
                    start,
                    span_ns: model.warmup.0..model.duration.0,
                    client: client.clone(),
                    connection: site.connect(&volume.name),
                    seen: seen[config.volume.index()].clone(),
                };
                threads.push(std::thread::spawn(move || worker.run()));
            }
        }
        let span_ns = model.warmup.0..model.duration.0;
        let connection = site.connect(CONTROL);
        Self {
            seen,
            threads,
            control: std::thread::spawn(move || control(start, span_ns, connection)),
        }
    }

    /// Waits for the end; returns the latencies of each volume and the excess latency of the control volume.
    pub fn end(self) -> (Vec<VolumeLatencies>, VolumeLatencies) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        let taken = |s: Arc<Mutex<VolumeLatencies>>| s.lock().unwrap().clone();
        let seen = self.seen.into_iter().map(taken).collect();
        (seen, self.control.join().unwrap())
    }
}

/// Sends one read at a time until the end of the run.
fn control(
    start: Instant,
    span_ns: Range<u64>,
    mut connection: datapath::Client,
) -> VolumeLatencies {
    let mut late = VolumeLatencies::default();
    let mut next_ns = 0;
    while next_ns < span_ns.end {
        sleep_until(start, next_ns);
        let asked_ns = since(start);
        connection.read(0, 4096).unwrap();
        let done_ns = since(start);
        let latency_ns = done_ns - asked_ns;
        late.saw(&span_ns, done_ns, latency_ns.saturating_sub(CONTROL_NS));
        next_ns = done_ns + CONTROL_EVERY_NS;
    }
    late
}

/// Client of one request in flight.
struct Slot {
    slot: u32,
    start: Instant,
    span_ns: Range<u64>,
    client: Arc<Mutex<Client>>,
    connection: datapath::Client,
    seen: Arc<Mutex<VolumeLatencies>>,
}

impl Slot {
    fn run(mut self) {
        let data = vec![0xA5; 1 << 20];
        sleep_until(self.start, 0);
        while since(self.start) < self.span_ns.end {
            let mut client = self.client.lock().unwrap();
            // The client is locked, so its times do not decrease.
            let now_ns = since(self.start);
            let (request, think_ns) = match client.next(now_ns, self.slot) {
                ClientStep::Issue(request) => (request, client.think_ns()),
                ClientStep::Later(at_ns) => {
                    drop(client);
                    sleep_until(self.start, at_ns.min(self.span_ns.end));
                    continue;
                }
            };
            drop(client);
            let asked_ns = since(self.start);
            let (at, length) = (request.offset, request.length);
            let answer = match request.op {
                Op::Read => self.connection.read(at, length).map(drop),
                _ => self.connection.write(at, &data[..length as usize]),
            };
            answer.unwrap();
            let done_ns = since(self.start);
            let mut seen = self.seen.lock().unwrap();
            seen.saw(&self.span_ns, done_ns, done_ns - asked_ns);
            drop(seen);
            sleep_until(self.start, done_ns + think_ns);
        }
    }
}

impl VolumeLatencies {
    /// Adds a latency. As in the simulator, a request counts at its completion, if that is within the measured span.
    fn saw(&mut self, span_ns: &Range<u64>, done_ns: u64, latency_ns: u64) {
        let done_s = done_ns as f64 / 1e9;
        if span_ns.contains(&done_ns) {
            self.whole.record(latency_ns);
        }
        for (part, (_, from_s, to_s)) in self.parts.iter_mut().zip(PARTS) {
            if (from_s..to_s).contains(&done_s) {
                part.record(latency_ns);
            }
        }
    }
}
