//! The guests of the live run: the scenario's closed-loop clients, a thread and a connection per request in flight.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::Op;
use sim::Model;
use trace::{Client, ClientStep};

use super::site::{CONTROL, CONTROL_NS, Site};
use super::{PARTS, Seen};

/// Time between two requests of the control's guest.
const CONTROL_EVERY_NS: u64 = 4_000_000;

/// All guests, running.
pub struct Guests {
    /// By volume.
    seen: Vec<Arc<Mutex<Seen>>>,
    threads: Vec<JoinHandle<()>>,
    /// What requests took beyond what the control's device takes.
    control: JoinHandle<Seen>,
}

/// Sleeps until so many nanoseconds after the start.
pub fn sleep_until(start: Instant, at_ns: u64) {
    let at = start + Duration::from_nanos(at_ns);
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

pub fn since(start: Instant) -> u64 {
    Instant::now().saturating_duration_since(start).as_nanos() as u64
}

impl Guests {
    /// They begin at `start`, which must be in the future, and end with the scenario.
    pub fn begin(model: &Model, site: &Site, start: Instant) -> Self {
        let seen: Vec<Arc<Mutex<Seen>>> = model.volumes.iter().map(|_| Arc::default()).collect();
        let mut threads = vec![];
        for (i, config) in model.clients.iter().enumerate() {
            let volume = &model.volumes[config.volume.index()];
            // The streams of the simulator: both clients ask for the same, as long as answers come alike.
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

    /// Waits for the end; what each volume's guests saw, and how late the control's requests were.
    pub fn end(self) -> (Vec<Seen>, Seen) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        let taken = |s: Arc<Mutex<Seen>>| s.lock().unwrap().clone();
        let seen = self.seen.into_iter().map(taken).collect();
        (seen, self.control.join().unwrap())
    }
}

/// One read at a time, to the end.
fn control(start: Instant, span_ns: Range<u64>, mut connection: datapath::Client) -> Seen {
    let mut late = Seen::default();
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

/// One request in flight.
struct Slot {
    slot: u32,
    start: Instant,
    span_ns: Range<u64>,
    client: Arc<Mutex<Client>>,
    connection: datapath::Client,
    seen: Arc<Mutex<Seen>>,
}

impl Slot {
    fn run(mut self) {
        let data = vec![0xA5; 1 << 20];
        sleep_until(self.start, 0);
        while since(self.start) < self.span_ns.end {
            let mut client = self.client.lock().unwrap();
            // With the client locked, so that its times do not decrease.
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

impl Seen {
    /// As in the simulator, a request counts when it is answered, within the span that is measured.
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
