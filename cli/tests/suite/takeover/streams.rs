//! Clients with many large requests that read their replies late: the server sends every byte of a reply exactly once.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use datapath::Client;

use super::{Site, wait};
use crate::support::wait_for;

/// Bytes of a request.
const EACH: usize = 1 << 20;

const READ: u16 = 0;
const WRITE: u16 = 1;
const GOODBYE: u16 = 2;

/// Returns the content of a piece of the volume.
fn piece(number: u64) -> Vec<u8> {
    let words = (0..EACH as u64 / 8).map(|at| number << 32 | at);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Opens a raw connection to an export and completes the handshake.
fn connect(site: &Site, volume: &str) -> UnixStream {
    let mut socket = UnixStream::connect(site.socket()).unwrap();
    socket.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend(1u32.to_be_bytes());
    hello.extend((volume.len() as u32).to_be_bytes());
    hello.extend(volume.as_bytes());
    socket.write_all(&hello).unwrap();
    socket.read_exact(&mut [0; 10]).unwrap();
    socket
}

fn request(command: u16, cookie: u64, number: u64) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(0u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((number * EACH as u64).to_be_bytes());
    bytes.extend((EACH as u32).to_be_bytes());
    bytes
}

/// Reads the header of a reply; returns the cookie of its request.
fn answered(socket: &mut UnixStream) -> u64 {
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(
        head[..8],
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
        "no success"
    );
    u64::from_be_bytes(head[8..].try_into().unwrap())
}

/// Reads the reply to a read and verifies the piece that its cookie names.
fn read_answered(socket: &mut UnixStream) -> u64 {
    let cookie = answered(socket);
    let mut bytes = vec![0; EACH];
    socket.read_exact(&mut bytes).unwrap();
    assert!(
        bytes == piece(cookie % PIECES),
        "piece {cookie} is another one"
    );
    cookie
}

/// Number of pieces of the volume that are read.
const PIECES: u64 = 32;

fn filled() -> Site {
    let mut site = Site::new(&[("db", 64)]);
    site.serve(&[]);
    site.copies_are_current();
    let mut client = Client::connect(&site.uri("db").parse().unwrap()).unwrap();
    for number in 0..PIECES {
        client.write(number * EACH as u64, &piece(number)).unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    site
}

#[test]
fn unsent_replies_and_partial_writes_are_completed_after_a_take_over() {
    let mut site = filled();
    let mut socket = connect(&site, "db");
    for cookie in 0..PIECES {
        socket.write_all(&request(READ, cookie, cookie)).unwrap();
    }
    let written = piece(99);
    let (half, other) = written.split_at(EACH / 2 + 77);
    socket.write_all(&request(WRITE, 99, PIECES)).unwrap();
    socket.write_all(half).unwrap();
    wait(300);
    for _ in 0..2 {
        site.take_over(&[]);
        wait(200);
    }
    let mut seen: Vec<u64> = (0..PIECES).map(|_| read_answered(&mut socket)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..PIECES).collect::<Vec<u64>>());
    socket.write_all(other).unwrap();
    assert_eq!(answered(&mut socket), 99);
    let mut client = Client::connect(&site.uri("db").parse().unwrap()).unwrap();
    let read = client.read(PIECES * EACH as u64, EACH as u32).unwrap();
    assert!(read == written, "the write is another one");
}

#[test]
fn stream_of_replies_continues_through_many_take_overs() {
    let mut site = filled();
    let mut socket = connect(&site, "db");
    let mut asks = socket.try_clone().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stopped = over.clone();
    let answers = Arc::new(AtomicU64::new(0));
    let counted = answers.clone();
    let reader = std::thread::spawn(move || {
        let (mut next, mut taken, mut asked) = (0, 0, BTreeSet::new());
        loop {
            while asked.len() < 8 && !stopped.load(Ordering::Relaxed) {
                asks.write_all(&request(READ, next, next % PIECES)).unwrap();
                asked.insert(next);
                next += 1;
            }
            if asked.is_empty() {
                return taken;
            }
            let cookie = read_answered(&mut socket);
            assert!(asked.remove(&cookie), "{cookie} is answered twice");
            taken += 1;
            counted.store(taken, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    for _ in 0..6 {
        wait(150);
        site.take_over(&[]);
    }
    wait_for("many are answered", || {
        answers.load(Ordering::Relaxed) > 100
    });
    over.store(true, Ordering::Relaxed);
    let taken = reader.join().unwrap();
    println!("{taken} answers of {EACH} bytes, each as it should be");
    assert!(taken > 100, "{taken}");
}

#[test]
fn disconnecting_client_gets_all_replies_after_an_abandoned_take_over() {
    let mut site = filled();
    let mut socket = connect(&site, "db");
    // More requests than the server processes at a time, then a disconnect request behind them.
    for cookie in 0..64 {
        socket
            .write_all(&request(READ, cookie, cookie % PIECES))
            .unwrap();
    }
    socket.write_all(&request(GOODBYE, 99, 0)).unwrap();
    wait(200);
    let mut other = connect(&site, "db");
    let begin = || {
        use datapath::control::CONTROL_SOCKET;
        use std::io::{BufRead, BufReader};
        let mut asks = UnixStream::connect(site.path("array").join(CONTROL_SOCKET)).unwrap();
        let take = "{\"v\":1,\"ask\":\"take-over\",\"format\":1}\n";
        asks.write_all(take.as_bytes()).unwrap();
        BufReader::new(&asks).read_line(&mut String::new()).unwrap();
        let door = format!("nbd unix:{}", site.socket().display());
        let wishes = format!("{{\"doors\":[\"{door}\"],\"vhost_user\":null,\"volumes\":[]}}");
        asks.write_all(b"B").unwrap();
        asks.write_all(&(wishes.len() as u64).to_le_bytes())
            .unwrap();
        asks.write_all(wishes.as_bytes()).unwrap();
        // The process receives the offer of the array and does not reply.
        asks.read_exact(&mut [0; 9]).unwrap();
    };
    begin();
    wait_for("the others are served as before", || {
        site.log().contains("are served again")
    });
    // The other clients continue.
    other.write_all(&request(READ, 5, 5)).unwrap();
    assert_eq!(read_answered(&mut other), 5);
    let mut rest = vec![];
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 64 * (EACH + 16), "every request is answered");
    site.take_over(&[]);
}
