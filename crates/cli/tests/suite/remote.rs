//! A remote device that misbehaves: answers that leave something out must not show one guest another's bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nbd::{Command, Progress};

use crate::support::Site;

/// Serves a 16 MiB export that keeps its superblocks, and answers every other read with a single byte and says that this is all.
fn short_server(path: &std::path::Path) {
    struct One;
    impl nbd::Exports for One {
        fn find(&self, name: &str) -> Option<nbd::Export> {
            let mut flags = nbd::ExportFlags::HAS_FLAGS;
            for flag in [
                nbd::ExportFlags::SEND_FLUSH,
                nbd::ExportFlags::SEND_FUA,
                nbd::ExportFlags::SEND_WRITE_ZEROES,
            ] {
                flags = flags.with(flag);
            }
            name.is_empty().then(|| nbd::Export {
                name: String::new(),
                description: String::new(),
                size: 16 << 20,
                flags,
                block: nbd::BlockSizes {
                    minimum: 1,
                    preferred: 4096,
                    maximum: 32 << 20,
                },
            })
        }
        fn list(&self) -> Vec<nbd::Export> {
            vec![]
        }
    }
    let listener = UnixListener::bind(path).unwrap();
    let head = Arc::new(Mutex::new(vec![0; 8192]));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let head = head.clone();
            std::thread::spawn(move || {
                let mut handshake = nbd::ServerHandshake::new(nbd::HandshakeLimits::default());
                socket.write_all(&handshake.greeting()).unwrap();
                loop {
                    let (mut input, mut out) = ([0; 4096], vec![]);
                    let n = socket.read(&mut input).unwrap_or(0);
                    if n == 0 {
                        return;
                    }
                    let (_, progress) = handshake.step(&input[..n], &One, &mut out).unwrap();
                    socket.write_all(&out).unwrap();
                    if matches!(progress, Progress::Ready(_)) {
                        break;
                    }
                }
                let mut bytes = [0; nbd::REQUEST_BYTES];
                while socket.read_exact(&mut bytes).is_ok() {
                    let header = nbd::decode_request(&bytes).unwrap();
                    let mut payload = vec![0; header.payload_bytes() as usize];
                    socket.read_exact(&mut payload).unwrap();
                    let at =
                        header.offset as usize..(header.offset + u64::from(header.length)) as usize;
                    let in_head = at.end <= 8192;
                    if in_head && header.command == Command::Write {
                        head.lock().unwrap()[at.clone()].copy_from_slice(&payload);
                    }
                    let answer = if in_head && header.command == Command::Read {
                        let chunk =
                            nbd::data_chunk(header.cookie, header.offset, header.length, true);
                        [&chunk[..], &head.lock().unwrap()[at]].concat()
                    } else if header.command == Command::Read {
                        let head = nbd::data_chunk(header.cookie, header.offset, 1, true);
                        [&head[..], b"x"].concat()
                    } else {
                        nbd::none_chunk(header.cookie).to_vec()
                    };
                    let _ = socket.write_all(&answer);
                }
            });
        }
    });
}

#[test]
fn a_read_that_is_answered_in_part_is_an_error_and_shows_nothing() {
    let mut site = Site::empty();
    let remote = site.path("remote.sock");
    short_server(&remote);
    let (fast, uri) = (
        site.path("fast"),
        format!("nbd+unix:///?socket={}", remote.display()),
    );
    std::fs::create_dir(&fast).unwrap();
    let fast = fast.to_str().unwrap();
    site.ok(&["tier", "add", "fast", "--dir", fast, "--size", "16 MiB"]);
    site.ok(&["tier", "add", "remote", "--nbd", &uri]);
    site.ok(&[
        "volume", "create", "mine", "--size", "8 MiB", "--tier", "fast",
    ]);
    site.ok(&[
        "volume", "create", "other", "--size", "8 MiB", "--tier", "remote",
    ]);
    site.serve(&["--workers", "1"]);
    let connect = |name: &str| datapath::Client::connect(&site.uri(name).parse().unwrap()).unwrap();
    let (mut mine, mut other) = (connect("mine"), connect("other"));
    mine.write(0, &[0x5a; 65536]).unwrap();
    other.write(0, &[1; 4096]).unwrap();
    for _ in 0..20 {
        mine.read(0, 65536).unwrap();
        assert!(
            other.read(0, 4096).is_err(),
            "a partial answer passed for a whole one"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_volume_is_deleted_although_its_guest_has_requests_waiting() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    let uri: nbd::Uri = site.uri("db").parse().unwrap();
    let mut client = datapath::Client::connect(&uri).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    site.ok(&["volume", "set", "db", "--iops", "5"]);
    let busy = std::thread::spawn(move || while client.write(0, &[1; 4096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(300));
    site.ok(&["volume", "delete", "db", "--force"]);
    busy.join().unwrap();
    assert_eq!(
        site.json(&["volume", "list"])["volumes"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
