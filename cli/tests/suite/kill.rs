//! kill -9 under load during a move: no acknowledged write is lost, and the move continues after the restart.
//!
//! The default is five kills; `TERRACE_KILLS=50 cargo test --release -p cli --test suite kill` is the long run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use datapath::Client;

use crate::support::{self, Site};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 48 << 20 >> 12;
const WRITERS: u64 = 4;

/// State of a block as its writer knows it: the last acknowledged number and the number in flight.
#[derive(Clone, Copy, Default)]
struct BlockState {
    acknowledged: u64,
    tried: u64,
}

fn block_of(number: u64, index: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    if number > 0 {
        for word in block.chunks_exact_mut(16) {
            word[..8].copy_from_slice(&number.to_le_bytes());
            word[8..].copy_from_slice(&index.to_le_bytes());
        }
    }
    block
}

#[test]
fn acknowledged_writes_survive_kill_9_during_a_move() {
    let kills: u64 = match std::env::var("TERRACE_KILLS") {
        Ok(text) => text.parse().expect("TERRACE_KILLS is a number"),
        Err(_) => 5,
    };
    let mut site = Site::new(&[("db", 48)]);
    let uri: nbd::Uri = site.uri("db").parse().unwrap();
    let mut known = vec![BlockState::default(); BLOCKS as usize];
    let mut number = 0u64;
    for kill in 0..kills {
        site.serve(&["--workers", "2"]);
        check(&uri, &mut known);
        let tier = ["slow", "middle", "fast"][kill as usize % 3];
        // Slow enough that the move is often still running at the kill.
        let order = ["volume", "move", "db", "--to", tier];
        let slowly = ["--bandwidth", "60 MiB/s"];
        // Every second order moves a few extents instead of the whole volume.
        let some = format!("--extents={}-20,25,{}-47", kill % 10, 30 + kill % 15);
        let extents = (kill % 2 == 1).then_some(some.as_str());
        let order: Vec<&str> = order.into_iter().chain(slowly).chain(extents).collect();
        let moved = site.run(&order);
        let said = String::from_utf8_lossy(&moved.stderr).into_owned();
        assert!(
            moved.status.success() || said.contains("already moving"),
            "{said}"
        );
        let stop = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (uri, stop, written) = (uri.clone(), stop.clone(), written.clone());
                let mine: Vec<u64> = (0..BLOCKS).filter(|b| b % WRITERS == w).collect();
                let mut state: Vec<BlockState> = mine.iter().map(|b| known[*b as usize]).collect();
                let mut next = number + w;
                std::thread::spawn(move || {
                    let mut client = Client::connect(&uri).unwrap();
                    let mut x = next.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                    while !stop.load(Ordering::Relaxed) {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let i = (x % mine.len() as u64) as usize;
                        next += WRITERS;
                        state[i].tried = next;
                        let offset = mine[i] * BLOCK as u64;
                        if client.write(offset, &block_of(next, mine[i])).is_err() {
                            break;
                        }
                        state[i].acknowledged = next;
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    (mine, state, next)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(150 + kill * 37 % 500));
        support::wait_for("much is written", || written.load(Ordering::Relaxed) > 100);
        site.kill();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            let (mine, state, last) = writer.join().unwrap();
            for (block, state) in mine.into_iter().zip(state) {
                known[block as usize] = state;
            }
            number = number.max(last);
        }
        number += 1;
    }
    // If the last move was interrupted, it resumes by itself and completes.
    site.serve(&[]);
    support::wait_for("the move ends", || {
        let shown = site.json(&["volume", "show", "db"]).to_string();
        !shown.contains("\"moving_to\":\"")
    });
    check(&uri, &mut known);
    // An orderly stop: a killed server may leave one copy of the map behind the other, and the check reports this
    // difference.
    site.stop();
    site.ok(&["volume", "check"]);
}

/// Checks that every block holds its last acknowledged number, or the number in flight at the kill.
fn check(uri: &nbd::Uri, known: &mut [BlockState]) {
    let mut client = Client::connect(uri).unwrap();
    for (index, state) in (0u64..).zip(known) {
        let got = client.read(index * BLOCK as u64, BLOCK as u32).unwrap();
        let is = |number| got == block_of(number, index);
        assert!(
            is(state.acknowledged) || is(state.tried),
            "block {index} holds neither {} (acknowledged) nor {} (tried)",
            state.acknowledged,
            state.tried
        );
        if is(state.tried) {
            state.acknowledged = state.tried;
        }
        state.tried = state.acknowledged;
    }
}
