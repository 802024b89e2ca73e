//! Traces from closed-loop clients: their requests if every request takes the same time.
//!
//! A trace has no device, so all requests complete after a constant latency. The result replaces a real trace in parser
//! and replay tests and in open-loop experiments, but it does not react to latency. To keep a load that reacts, put the
//! client itself into a scenario.

use algo::EventHeap;
use units::{Bytes, Nanos};

use crate::client::{Client, ClientError, ClientSpec, ClientStep};
use crate::record::{Record, Request};

/// Client and its volume.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedVolume {
    /// Name of the volume.
    pub name: String,
    /// Size of the volume.
    pub size: Bytes,
    /// Client that uses the volume.
    pub client: ClientSpec,
}

impl GeneratedVolume {
    /// Volume with the workload of a preset.
    pub fn of_preset(name: String, preset: &str, size: Bytes) -> Self {
        let client = ClientSpec {
            preset: Some(preset.into()),
            ..ClientSpec::default()
        };
        Self { name, size, client }
    }
}

/// Options of a generated trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// Length of the trace.
    pub duration: Nanos,
    /// Latency of every request.
    pub latency: Nanos,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Requests of clients, one by one in order of time.
#[derive(Debug, Clone)]
pub struct Generator {
    clients: Vec<Client>,
    /// Volume and slot of the client, by the number of the heap's entry.
    slots: Vec<(usize, u32)>,
    heap: EventHeap,
    options: GenerateOptions,
}

impl Generator {
    /// Creates the generator.
    ///
    /// # Errors
    /// An invalid client, with its volume's name in the key.
    pub fn new(volumes: &[GeneratedVolume], options: GenerateOptions) -> Result<Self, ClientError> {
        let mut clients = Vec::new();
        let mut slots = Vec::new();
        let mut heap = EventHeap::new();
        for (i, v) in volumes.iter().enumerate() {
            let client = Client::new(&v.client, v.size, options.seed, i as u64).map_err(|e| {
                ClientError {
                    key: format!("{}: {}", v.name, e.key),
                    why: e.why,
                }
            })?;
            for slot in 0..client.slots() {
                heap.push(0, slots.len() as u32);
                slots.push((i, slot));
            }
            clients.push(client);
        }
        Ok(Self {
            clients,
            slots,
            heap,
            options,
        })
    }
}

impl Iterator for Generator {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        // With zero latency, a client could issue requests for ever at one time.
        let latency_ns = self.options.latency.0.max(1);
        loop {
            let first = self.heap.first();
            let (now, id) = first.filter(|f| f.0 < self.options.duration.0)?;
            let (volume, slot) = self.slots[id as usize];
            let client = &mut self.clients[volume];
            match client.next(now, slot) {
                ClientStep::Later(at) => self.heap.reschedule_first(at),
                ClientStep::Issue(r) => {
                    let think_ns = client.think_ns();
                    self.heap.reschedule_first(now + latency_ns + think_ns);
                    return Some(Record::new(Request {
                        time_ns: now,
                        volume: volume as u32,
                        op: r.op,
                        offset_bytes: r.offset,
                        length_bytes: r.length,
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_records_are_in_order_valid_and_repeatable() {
        let volumes: Vec<GeneratedVolume> = ["jesd", "sync-read"]
            .into_iter()
            .map(|name| GeneratedVolume {
                name: name.into(),
                size: Bytes::gib(1),
                client: ClientSpec {
                    preset: Some(name.into()),
                    ..ClientSpec::default()
                },
            })
            .collect();
        let options = GenerateOptions {
            duration: Nanos::from_secs(2),
            latency: Nanos::from_micros(100),
            seed: 3,
        };
        let run = || -> Vec<Record> { Generator::new(&volumes, options).unwrap().collect() };
        let records = run();
        assert_eq!(records, run());
        assert!(records.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
        assert!(records.iter().all(|r| r.end_offset_bytes() <= 1 << 30));
        let of = |v| records.iter().filter(|r| r.volume() == v).count() as f64 / 2.0;
        assert!((of(0) / 18_300.0 - 1.0).abs() < 0.03, "{}", of(0));
        assert!((of(1) / 6_650.0 - 1.0).abs() < 0.03, "{}", of(1));
    }
}
