//! For any input, neither side panics or exceeds its limits of memory and output. The inputs are random bytes, and valid
//! conversations with bounded, seeded damage. The fuzz targets call the same functions.

use nbd::{fuzzing, *};
use proptest::prelude::*;
use testkit::damage::Damage;

use crate::common::*;

fn damage(by: &mut Damage, bytes: &mut Vec<u8>) {
    for _ in 0..=by.below(3) {
        let at = by.below(bytes.len());
        match by.below(6) {
            0 if !bytes.is_empty() => bytes[at] = by.number() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << by.below(8),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let copy = bytes[at..].to_vec();
                bytes.extend(copy);
            }
            _ => drop(bytes.splice(at..at, [0xff; 4])),
        }
    }
}

/// Returns client inputs that reach all parts of the server.
fn clients() -> Vec<Vec<u8>> {
    let flags = vec![0, 0, 0, 3];
    let requests: Vec<u8> = Command::ALL
        .into_iter()
        .filter(|command| *command != Command::Disconnect)
        .flat_map(|command| {
            let header = RequestHeader {
                flags: RequestFlags(0),
                command,
                cookie: 1,
                offset: 512,
                length: 512,
            };
            let payload = vec![7; header.payload_bytes() as usize];
            [encode_request(&header).to_vec(), payload].concat()
        })
        .collect();
    let options = [
        option(LIST, &[]),
        option(STRUCTURED, &[]),
        option(LIST_META, &contexts("disk", &[])),
        option(SET_META, &contexts("disk", &["base:allocation", "x:y"])),
        option(INFO, &info("größe", &[1, 2, 3])),
        option(STARTTLS, &[]),
        option(99, &[1; 300]),
    ]
    .concat();
    let go = option(GO, &info("disk", &[1, 2, 3]));
    vec![
        [flags.clone(), options.clone(), go.clone(), requests.clone()].concat(),
        [flags.clone(), go.clone(), requests.clone()].concat(),
        [flags.clone(), option(STARTTLS, &[]), go, requests.clone()].concat(),
        [flags.clone(), option(EXPORT_NAME, b""), requests].concat(),
        [flags, options, option(ABORT, &[])].concat(),
    ]
}

/// Returns server inputs and URIs.
fn servers() -> Vec<Vec<u8>> {
    let mut out = vec![];
    out.extend(data_chunk(1, 512, 16, false));
    out.extend([7; 16]);
    out.extend(hole_chunk(1, 4096, 512, false));
    out.extend(none_chunk(1));
    error_chunk(2, ErrorCode::Io, "torn", &mut out);
    let extent = StatusExtent {
        length: 512,
        flags: 3,
    };
    status_chunk(3, 1, &[extent; 3], true, &mut out);
    out.extend(simple_reply(4, Some(ErrorCode::NoSpc)));
    let greeting = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let mut all = vec![
        out.clone(),
        b"nbd://[::1]:10810/gr%C3%B6%C3%9Fe".to_vec(),
        b"nbd+unix:///disk?socket=/run/nbd%20.sock".to_vec(),
        b"nbds://h/disk?tls-certificates=/etc/pki&tls-hostname=nas".to_vec(),
        b"nbds+unix://a@/disk?socket=/s&tls-psk-file=/etc/keys.psk".to_vec(),
    ];
    for clients in clients() {
        let mut said = vec![];
        let mut server = ServerHandshake::new(HandshakeLimits::default());
        server.step(&clients, &shelf(), &mut said).unwrap();
        all.push([greeting.clone(), said].concat());
    }
    let go = [
        reply(GO, 3, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
        reply(GO, ACK, &[]),
    ]
    .concat();
    let meta = [
        reply(SET_META, 4, b"\0\0\0\x01base:allocation"),
        reply(SET_META, ACK, &[]),
    ]
    .concat();
    let structured = reply(STRUCTURED, ACK, &[]);
    all.push(
        [
            greeting.clone(),
            structured.clone(),
            meta,
            go.clone(),
            out.clone(),
        ]
        .concat(),
    );
    all.push([greeting.clone(), structured, go.clone(), out.clone()].concat());
    let tls = reply(STARTTLS, ACK, &[]);
    all.push([greeting.clone(), tls, go.clone(), out.clone()].concat());
    all.push([greeting.clone(), go, out].concat());
    all.push([greeting, reply(GO, UNSUP, &[]), vec![0; 10]].concat());
    all
}

#[test]
fn damaged_conversation_does_not_panic() {
    let mut by = Damage(1);
    for (target, corpus) in [
        (fuzzing::server as fn(&[u8]), clients()),
        (fuzzing::strict_server, clients()),
        (fuzzing::client, servers()),
    ] {
        for valid in corpus {
            target(&valid);
            for _ in 0..400 {
                let mut bytes = valid.clone();
                damage(&mut by, &mut bytes);
                target(&bytes);
            }
        }
    }
}

#[test]
fn announced_length_allocates_no_memory() {
    let mut server = greeted();
    let mut out = vec![];
    // Seven options of the largest skipped length; the data of the last one never arrives.
    let long = option(GO, &vec![0; 256 << 10]);
    for _ in 0..7 {
        let step = server.step(&long, &shelf(), &mut out);
        assert_eq!(step, Ok((long.len(), Progress::More)));
    }
    assert!(out.len() < 7 * 64);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::server(&bytes);
        fuzzing::client(&bytes);
        // Random bytes after a valid beginning.
        fuzzing::server(&[&[0, 0, 0, 3][..], b"IHAVEOPT\0\0\0", &bytes].concat());
        fuzzing::client(&[b"NBDMAGICIHAVEOPT\0\x03", &bytes[..]].concat());
    }

    #[test]
    fn split_input_gives_the_same_result(
        which in 0..4usize, sizes in prop::collection::vec(1..60usize, 1..20),
    ) {
        let bytes = clients().swap_remove(which);
        let run = |sizes: &[usize]| {
            let mut server = ServerHandshake::new(HandshakeLimits::default());
            let (mut out, mut at) = (vec![], 0usize);
            for size in sizes.iter().cycle() {
                let end = at.saturating_add(*size).min(bytes.len());
                let (n, progress) = server.step(&bytes[at..end], &shelf(), &mut out).unwrap();
                at += n;
                if progress != Progress::More {
                    return (at, progress, out);
                }
            }
            unreachable!("sizes go round")
        };
        prop_assert_eq!(run(&sizes), run(&[usize::MAX]));
    }
}
