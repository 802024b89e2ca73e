//! Cost of a guest's request in a volume's engine, without I/O: `cargo run --release -p bench -- engine-time`.
//!
//! Prints nanoseconds of CPU time per request, to which other processes on the machine do not add. `bench/against.sh COMMIT` compares the
//! result with another commit.

use datapath::EngineLimits;
use datapath::engine::{Effect, Engine, GuestOp, GuestRequest, Zeroes};
use units::{Bytes, DeviceId};
use volume::{Location, VolumeMap};

use crate::BenchResult;
use crate::cpu::cpu_s;

const EXTENT: u64 = 1 << 20;
const EXTENTS: u32 = 1024;
const REQUESTS: u64 = 2_000_000;

/// Requests in flight.
const DEPTH: usize = 32;

pub(crate) fn main(_: &[String]) -> BenchResult {
    // The extents alternate between three devices.
    let at = |e: u32| Location {
        device: DeviceId((e % 3) as u16),
        slot: e / 3,
    };
    let places = (0..EXTENTS).map(|e| Some(at(e))).collect();
    let size = Bytes(u64::from(EXTENTS) * EXTENT);
    let map = VolumeMap::at(size, Bytes(EXTENT), places);
    let mut engine = Engine::new(map, EngineLimits::default());
    let mut effects = vec![];
    let (mut ios, mut replies) = (std::collections::VecDeque::new(), 0);
    let mut random = 1u64;
    let began = cpu_s();
    for number in 0..REQUESTS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let block = (random >> 33) % (size.0 / 4096);
        let (op, offset, length) = match number % 1000 {
            0 => (GuestOp::Flush, 0, 0),
            n if n % 10 < 7 => (GuestOp::Read, block * 4096, 4096),
            _ => (GuestOp::Write, block * 4096, 4096),
        };
        let request = GuestRequest {
            op,
            offset,
            length,
            fua: false,
        };
        engine.submit(number, number, request);
        loop {
            engine.take_effects(&mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Io(io) => ios.push_back(io.io),
                    Effect::Reply { result, .. } => {
                        result.expect("nothing fails");
                        replies += 1;
                    }
                    _ => {}
                }
            }
            if ios.len() <= DEPTH {
                break;
            }
            let io = ios.pop_front().expect("there are some");
            engine.io_done(number, io, Ok(()), Zeroes::No);
        }
    }
    let ns = (cpu_s() - began) * 1e9 / REQUESTS as f64;
    assert!(
        replies + 2 * DEPTH as u64 > REQUESTS,
        "{replies} of {REQUESTS} requests were answered"
    );
    println!("{ns:.1} ns per request");
    Ok(())
}
