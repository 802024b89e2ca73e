//! kill -9 under load, with a move under way: nothing that was acknowledged is lost, and the move goes on.
//!
//! Five kills here; `TERRACE_KILLS=50 cargo test --release -p cli --test suite kill` for the long run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use datapath::Client;

use crate::support::{self, Site};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 48 << 20 >> 12;
const WRITERS: u64 = 4;

/// What a writer knows of its blocks: the last number that was acknowledged, and the one that was on its way.
#[derive(Clone, Copy, Default)]
struct Known {
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
fn nothing_acknowledged_is_lost_by_kill_9_in_mid_move() {
    let kills: u64 = match std::env::var("TERRACE_KILLS") {
        Ok(text) => text.parse().expect("TERRACE_KILLS is a number"),
        Err(_) => 5,
    };
    let mut site = Site::new(&[("db", 48)]);
    let uri: nbd::Uri = site.uri("db").parse().unwrap();
    let mut known = vec![Known::default(); BLOCKS as usize];
    let mut number = 0u64;
    for kill in 0..kills {
        site.serve(&["--workers", "2"]);
        check(&uri, &mut known);
        let tier = ["slow", "middle", "fast"][kill as usize % 3];
        // Slow enough to be still under way at the kill, often enough.
        let order = ["volume", "move", "db", "--to", tier];
        let slowly = ["--bandwidth", "60 MiB/s"];
        // Every other move is one of some extents.
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
                let mut state: Vec<Known> = mine.iter().map(|b| known[*b as usize]).collect();
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
    // The last move, if it was cut, goes on by itself and ends.
    site.serve(&[]);
    support::wait_for("the move ends", || {
        let shown = site.json(&["volume", "show", "db"]).to_string();
        !shown.contains("\"moving_to\":\"")
    });
    check(&uri, &mut known);
    // In order: one that is killed may leave a copy of the map behind the other, which a check reports.
    site.stop();
    site.ok(&["volume", "check"]);
}

/// Every block holds what was acknowledged last, or what was on its way when the server was killed.
fn check(uri: &nbd::Uri, known: &mut [Known]) {
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
