//! Hostile vhost-user guests of one volume, next to well-behaved guests of another volume on the same worker.
//!
//! `TERRACE_SECONDS=3600 cargo test --release -p cli --test suite hostile -- --nocapture` runs for an hour.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use algo::Rng;
use datapath::Client;
use testkit::vhost_user::{DiskRequest, Guest, GuestSpec};
use testkit::virtio::Form;

use crate::support::{PATIENCE, Site};

/// Duration in seconds as part of the whole test suite.
const BOUNDED: u64 = 4;

/// Number of hostile guests at a time.
const HOSTILE: u64 = 3;

/// Limit of the server's memory growth after its start. It covers the requests in flight of all hostile guests.
const GROWTH_MIB: u64 = 96;

/// Limit of the server's open descriptors after the hostile guests have ended.
const DESCRIPTORS: usize = 40;

const MIB: u64 = 1 << 20;

fn seconds() -> Duration {
    let said = std::env::var("TERRACE_SECONDS").ok();
    let seconds = said.map(|s| s.parse().expect("TERRACE_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(BOUNDED))
}

fn like(rng: &mut Rng) -> GuestSpec {
    GuestSpec {
        queues: 1 + rng.below(4) as u16,
        size: 1 << rng.below(9),
        data: 4096 << rng.below(5),
        without: rng.next_u64() & rng.next_u64() & rng.next_u64() & 0x3fff_ffff,
        keeps: rng.below(4) > 0,
        form: [Form::Direct, Form::Indirect][rng.below(2) as usize],
        astray: rng.below(20) == 0,
    }
}

/// Returns a random request, which may be valid.
fn ask(rng: &mut Rng, data: u32) -> DiskRequest {
    let at = match rng.below(4) {
        0 => rng.next_u64(),
        _ => rng.below(8 * MIB),
    };
    let length = match rng.below(4) {
        0 => rng.below(u64::from(data) + 1) as u32,
        _ => 512 * (1 + rng.below(u64::from(data / 512))) as u32,
    };
    match rng.below(8) {
        0 | 1 => DiskRequest::Read(at, length),
        2 | 3 => DiskRequest::Write(at, length),
        4 => DiskRequest::Flush,
        5 => DiskRequest::Discard(at, length),
        6 => DiskRequest::ZeroUnmapped(at, length),
        _ => DiskRequest::Other(rng.next_u64() as u32),
    }
}

/// Acts as one hostile guest: sends random bytes to the socket, or up to 200 random operations.
fn harm(socket: &PathBuf, rng: &mut Rng) {
    if rng.below(6) == 0 {
        let Ok(mut raw) = UnixStream::connect(socket) else {
            return;
        };
        let bytes: Vec<u8> = (0..rng.below(400)).map(|_| rng.next_u64() as u8).collect();
        let _ = raw.write_all(&bytes);
        return;
    }
    let like = like(rng);
    let mut guest = Guest::new(like);
    if guest.connect(socket).is_err() {
        return;
    }
    for _ in 0..rng.below(200) {
        let queue = rng.below(like.queues.into()) as usize;
        let [table, available, used] = guest.driver(queue).places();
        match rng.below(16) {
            0..8 => {
                if let Some(slot) = guest.slot(queue) {
                    let ask = ask(rng, like.data);
                    guest.try_hand_in(queue, slot, ask);
                }
            }
            // Writes random bytes at a random place of the request structures.
            8 | 9 => {
                let at = table + rng.below(used - table + 8);
                let bytes = rng.next_u64().to_le_bytes();
                guest
                    .driver(queue)
                    .put(at, &bytes[..1 + rng.below(8) as usize]);
            }
            // Writes a descriptor with random fields.
            10 => {
                let (index, next) = (rng.below(like.size.into()), rng.below(like.size.into()));
                let address = [0, rng.next_u64(), u64::MAX - 7][rng.below(3) as usize];
                let length = [0, 16, u32::MAX][rng.below(3) as usize];
                let flags = rng.below(8) as u16;
                let driver = guest.driver(queue);
                driver.describe(table, index as u16, (address, length), flags, next as u16);
            }
            11 => {
                let index = rng.next_u64() as u16;
                guest.driver(queue).put(available + 2, &index.to_le_bytes());
            }
            12 => {
                let head = rng.below(like.size.into()) as u16;
                guest.driver(queue).offer(head);
            }
            // Changes a buffer while the server writes it.
            13 => {
                if let Some(slot) = guest.slot(queue) {
                    guest.try_hand_in(queue, slot, DiskRequest::Write(0, like.data));
                    guest.kick(queue);
                    guest.fill(queue, slot, &vec![rng.next_u64() as u8; like.data as usize]);
                }
            }
            14 if rng.below(4) == 0 => {
                let _ = guest
                    .stop_queue(queue)
                    .and_then(|_| guest.start_queue(queue));
            }
            14 => drop(guest.set_cached(rng.below(2) == 0)),
            _ => {
                if rng.below(8) == 0 {
                    guest.disconnect();
                    if guest.connect(socket).is_err() {
                        return;
                    }
                }
            }
        }
        guest.kick(queue);
    }
}

#[test]
fn hostile_guests_do_not_affect_other_guests() {
    let mut site = Site::new(&[("good", 8), ("bad", 8)]);
    let dir = site.path("vhost");
    site.serve(&["--workers", "1", "--vhost-user", dir.to_str().unwrap()]);
    let socket = |volume: &str| dir.join(format!("{volume}.sock"));
    let mut guest = Guest::new(GuestSpec::default());
    guest.connect(&socket("good")).unwrap();
    let mut nbd = Client::connect(&site.uri("good").parse().unwrap()).unwrap();
    let (stop, tried) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + seconds();
    let (mut before, mut most, mut rounds) = (None, 0, 0_u64);
    std::thread::scope(|threads| {
        let _over = testkit::flag::SetOnDrop(&stop);
        for number in 0..HOSTILE {
            let (socket, stop, tried) = (socket("bad"), &stop, &tried);
            threads.spawn(move || {
                let mut rng = Rng::new(number, 0x4a);
                while !stop.load(Ordering::Relaxed) {
                    harm(&socket, &mut rng);
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut rng = Rng::new(9, 9);
        // Reads the memory of the server every thousand rounds.
        while Instant::now() < until || rounds < 3000 || tried.load(Ordering::Relaxed) < 20 {
            rounds += 1;
            let block = rng.below(1024) * 4096;
            let bytes = [rng.next_u64() as u8; 4096];
            guest.write(block, &bytes).unwrap();
            assert!(nbd.read(block, 4096).unwrap() == bytes, "round {rounds}");
            let other = 4 * MIB + block;
            nbd.write(other, &bytes).unwrap();
            assert!(guest.read(other, 4096).unwrap() == bytes, "round {rounds}");
            if rounds.is_multiple_of(1000) {
                let now = site.memory_mib();
                most = most.max(now);
                before.get_or_insert(now);
            }
        }
    });
    let descriptors = || {
        let all = format!("/proc/{}/fd", site.server_pid());
        std::fs::read_dir(all).unwrap().count()
    };
    let patience = Instant::now() + PATIENCE;
    while descriptors() > DESCRIPTORS && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (tried, before) = (tried.into_inner(), before.unwrap_or(most));
    println!(
        "{tried} hostile guests, {rounds} rounds of ordinary ones; server: {before} MiB, at most {most} MiB, {} descriptors at the end",
        descriptors()
    );
    assert!(most <= before + GROWTH_MIB, "{before} MiB, then {most}");
    assert!(descriptors() <= DESCRIPTORS, "{}", descriptors());
    guest.flush().unwrap();
    site.stop();
}
