//! Guests that verify their reads and measure their longest wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datapath::Client;

pub const BLOCK: usize = 4096;

/// Statistics of a guest.
#[derive(Debug, Default, Clone, Copy)]
pub struct GuestStats {
    pub requests: u64,
    pub worst: Duration,
}

/// Guest that writes random blocks of its own part of a volume, and reads and verifies other blocks, until it is
/// stopped.
pub struct Guest {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(GuestStats, Vec<u64>, Client)>,
}

fn block(number: usize, version: u64) -> Vec<u8> {
    let word = (number as u64) << 32 | version;
    word.to_le_bytes().repeat(BLOCK / 8)
}

impl Guest {
    pub fn new(uri: &str, first: usize, blocks: usize, pause: Duration) -> Self {
        let mut client = Client::connect(&uri.parse().unwrap()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut versions = vec![0; blocks];
            let mut seen = GuestStats::default();
            let mut state = first as u64 + 1;
            let mut random = move |below: usize| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 33) as usize % below
            };
            while !stopped.load(Ordering::Relaxed) {
                let at = random(blocks);
                let offset = ((first + at) * BLOCK) as u64;
                let began = Instant::now();
                match random(8) {
                    0..4 => {
                        versions[at] += 1;
                        client
                            .write(offset, &block(first + at, versions[at]))
                            .unwrap();
                    }
                    4 => client.flush().unwrap(),
                    _ => {
                        let read = client.read(offset, BLOCK as u32).unwrap();
                        let expected = match versions[at] {
                            0 => vec![0; BLOCK],
                            version => block(first + at, version),
                        };
                        assert!(read == expected, "block {at} of {first} is another one");
                    }
                }
                seen.worst = seen.worst.max(began.elapsed());
                seen.requests += 1;
                // The pause counts from the start of the request. Delays are not made up for.
                std::thread::sleep(pause.saturating_sub(began.elapsed()));
            }
            (seen, versions, client)
        });
        Self { stop, thread }
    }

    /// Starts a guest that reconnects after a disconnection. A write in flight at that moment has an unknown result, so
    /// the guest reads the block and accepts its old or new version.
    pub fn stubborn(uri: &str, first: usize, blocks: usize) -> Self {
        let uri = uri.to_owned();
        let connect = move || {
            let until = Instant::now() + crate::support::PATIENCE;
            loop {
                match Client::connect(&uri.parse().unwrap()) {
                    Ok(client) => return client,
                    Err(error) => assert!(Instant::now() < until, "nobody serves: {error}"),
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut client = connect();
            let mut versions = vec![0; blocks];
            let mut seen = GuestStats::default();
            let expected = |at, version| match version {
                0 => vec![0; BLOCK],
                version => block(first + at, version),
            };
            let mut at = 0;
            while !stopped.load(Ordering::Relaxed) {
                at = (at + 7) % blocks;
                let offset = ((first + at) * BLOCK) as u64;
                let next = versions[at] + 1;
                let began = Instant::now();
                let read = client.read(offset, BLOCK as u32);
                let read = read.and_then(|read| {
                    assert!(
                        read == expected(at, versions[at]),
                        "block {at} of {first} is another one"
                    );
                    client.write(offset, &block(first + at, next))
                });
                match read {
                    Ok(()) => versions[at] = next,
                    Err(_) => loop {
                        client = connect();
                        let Ok(read) = client.read(offset, BLOCK as u32) else {
                            continue;
                        };
                        if read == block(first + at, next) {
                            versions[at] = next;
                        } else {
                            assert!(
                                read == expected(at, versions[at]),
                                "block {at} of {first} is lost"
                            );
                        }
                        break;
                    },
                }
                seen.worst = seen.worst.max(began.elapsed());
                seen.requests += 1;
            }
            (seen, versions, client)
        });
        Self { stop, thread }
    }

    pub fn goes_on(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Stops the guest, which reads and verifies all its blocks once more on its connection.
    pub fn end(self, first: usize) -> GuestStats {
        self.stop.store(true, Ordering::Relaxed);
        let (seen, versions, mut client) = self.thread.join().unwrap();
        for (at, version) in versions.iter().enumerate().filter(|v| *v.1 > 0) {
            let offset = ((first + at) * BLOCK) as u64;
            let read = client.read(offset, BLOCK as u32).unwrap();
            assert!(
                read == block(first + at, *version),
                "block {at} of {first} is lost"
            );
        }
        client.disconnect().unwrap();
        seen
    }
}
