//! Client of a vhost-user-blk server that keeps a given number of requests in flight, for `bench/vhost_user.sh`. It sends random requests
//! of 4 KiB on one queue.

use std::path::Path;
use std::time::{Duration, Instant};

use algo::Rng;
use serde_json::json;
use testkit::vhost_user::{DiskRequest, Guest, GuestSpec};

use crate::{BenchResult, WRONG};

const BLOCK: u32 = 4096;

/// Method of waiting for completions.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// The client sleeps until an interrupt.
    Sleep,
    /// The client polls all the time.
    Spin,
}

/// Runs the client. Arguments: `SOCKET fill | SOCKET read|write DEPTH SECONDS sleep|spin`.
pub fn main(words: &[String]) -> BenchResult {
    let [socket, rest @ ..] = words else {
        return Err(WRONG.into());
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let (size, data) = match rest[..] {
        ["fill"] => (16, 1 << 20),
        _ => (128, BLOCK),
    };
    let like = GuestSpec {
        size,
        data,
        ..GuestSpec::default()
    };
    let mut guest = Guest::new(like);
    // As QEMU does, the client uses shared memory for requests in flight if the server offers it.
    if guest.connect(Path::new(socket)).is_err() {
        guest = Guest::new(GuestSpec {
            keeps: false,
            ..like
        });
        guest.connect(Path::new(socket))?;
    }
    let config = guest.config(8)?;
    let sectors = u64::from_le_bytes(config.try_into().map_err(|_| "no capacity")?);
    let bytes = sectors * 512;
    match rest[..] {
        ["fill"] => fill(&mut guest, bytes),
        [op, depth, seconds, wait] => {
            let write = match op {
                "read" => false,
                "write" => true,
                _ => return Err(WRONG.into()),
            };
            let wait = match wait {
                "sleep" => Wait::Sleep,
                "spin" => Wait::Spin,
                _ => return Err(WRONG.into()),
            };
            let time = Duration::from_secs_f64(seconds.parse()?);
            run(&mut guest, bytes, write, depth.parse()?, time, wait)
        }
        _ => Err(WRONG.into()),
    }
}

fn fill(guest: &mut Guest, bytes: u64) -> BenchResult {
    let chunk = vec![0x5a; 1 << 20];
    for at in (0..bytes).step_by(1 << 20) {
        let length = (bytes - at).min(1 << 20) as usize;
        guest.write(at, &chunk[..length])?;
    }
    Ok(guest.flush()?)
}

fn run(
    guest: &mut Guest,
    bytes: u64,
    write: bool,
    depth: u32,
    time: Duration,
    wait: Wait,
) -> BenchResult {
    let mut random = Rng::new(1, 1);
    let blocks = bytes / u64::from(BLOCK);
    let mut hand_in = |guest: &mut Guest| -> BenchResult {
        let slot = guest.slot(0).ok_or("more in flight than there are slots")?;
        let at = random.below(blocks) * u64::from(BLOCK);
        let ask = match write {
            true => DiskRequest::Write(at, BLOCK),
            false => DiskRequest::Read(at, BLOCK),
        };
        guest.hand_in(0, slot, ask);
        Ok(())
    };
    let begun = Instant::now();
    let until = begun + time;
    for _ in 0..depth {
        hand_in(guest)?;
    }
    guest.kick(0);
    let (mut done, mut in_flight) = (0u64, depth);
    let mut over = false;
    while in_flight > 0 {
        let mut answered = 0;
        while let Some(answer) = guest.next(0) {
            if answer.status != 0 {
                return Err(format!("status {}", answer.status).into());
            }
            answered += 1;
            if !over {
                hand_in(guest)?;
            }
        }
        done += u64::from(answered);
        if over {
            in_flight -= answered;
        }
        if answered > 0 {
            guest.kick(0);
            over |= Instant::now() >= until;
        } else if wait == Wait::Sleep {
            guest.sleep(0)?;
        } else {
            std::hint::spin_loop();
        }
    }
    tell(done, begun.elapsed(), depth);
    Ok(())
}

/// Prints number of completed requests, IOPS and mean latency, for `depth` requests in flight.
pub fn tell(done: u64, time: Duration, depth: u32) {
    let seconds = time.as_secs_f64();
    let figures = json!({
        "requests": done,
        "iops": done as f64 / seconds,
        "mean_us": seconds * 1e6 * f64::from(depth) / done as f64,
    });
    println!("{figures}");
}
