//! Traces from closed-loop clients: what they would have asked for, had every request taken the same time.
//!
//! A trace has no device, so the clients are answered after a constant latency. The result is a stand-in for parser and
//! replay tests and for open-loop experiments; it no longer reacts to anything. To keep a load that reacts, put the client
//! itself into a scenario.

use algo::EventHeap;
use units::{Bytes, Nanos};

use crate::client::{Client, ClientError, ClientSpec, ClientStep};
use crate::record::{Record, Request};

/// A client and its volume.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedVolume {
    /// Name of the volume.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// What works on it.
    pub client: ClientSpec,
}

/// How long, how fast, which random numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// Length of the trace.
    pub duration: Nanos,
    /// Answer time of every request.
    pub latency: Nanos,
    /// Seed.
    pub seed: u64,
}

/// Calls `emit` with every request in order of time; their number.
///
/// # Errors
/// A client that makes no sense, with its volume's name in the key; or the first error of `emit`.
pub fn generate<E: From<ClientError>>(
    volumes: &[GeneratedVolume],
    options: GenerateOptions,
    emit: &mut dyn FnMut(Record) -> Result<(), E>,
) -> Result<u64, E> {
    let mut clients = Vec::new();
    let mut slots = Vec::new();
    let mut heap = EventHeap::new();
    for (i, v) in volumes.iter().enumerate() {
        let client =
            Client::new(&v.client, v.size, options.seed, i as u64).map_err(|e| ClientError {
                key: format!("{}: {}", v.name, e.key),
                why: e.why,
            })?;
        for slot in 0..client.slots() {
            heap.push(0, slots.len() as u32);
            slots.push((i, slot));
        }
        clients.push(client);
    }
    // No latency at all would let a client ask for ever at one moment.
    let latency_ns = options.latency.0.max(1);
    let mut count = 0;
    while let Some((now, id)) = heap.first().filter(|f| f.0 < options.duration.0) {
        let (volume, slot) = slots[id as usize];
        let next = match clients[volume].next(now, slot) {
            ClientStep::Later(at) => at,
            ClientStep::Issue(r) => {
                emit(Record::new(Request {
                    time_ns: now,
                    volume: volume as u32,
                    op: r.op,
                    offset_bytes: r.offset,
                    length_bytes: r.length,
                }))?;
                count += 1;
                now + latency_ns + clients[volume].think_ns()
            }
        };
        heap.reschedule_first(next);
    }
    Ok(count)
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
        let run = || {
            let mut records = Vec::new();
            let emit = &mut |r| -> Result<(), ClientError> {
                records.push(r);
                Ok(())
            };
            let n = generate(&volumes, options, emit).unwrap();
            assert_eq!(n, records.len() as u64);
            records
        };
        let records = run();
        assert_eq!(records, run());
        assert!(records.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
        assert!(records.iter().all(|r| r.end_offset_bytes() <= 1 << 30));
        let of = |v| records.iter().filter(|r| r.volume() == v).count() as f64 / 2.0;
        assert!((of(0) / 18_300.0 - 1.0).abs() < 0.03, "{}", of(0));
        assert!((of(1) / 6_650.0 - 1.0).abs() < 0.03, "{}", of(1));
    }
}
