//! Hostile clients, with the functions of the fuzz target: conversations that reach every part, intact and damaged.

use testkit::certificates::{Authority, Holds};
use testkit::damage::Damage;
use testkit::seeds;

use super::fuzzing::{self, Parties};
use super::*;

/// Orders for the guest of [`fuzzing`].
fn conversations() -> Vec<Vec<u8>> {
    let data = [0, 40, 5, 255, 6, 255];
    // An endless handshake message with replies in between, followed by reads.
    let half = [
        1, 6, 24, 0, 255, 255, 1, 2, 5, 255, 6, 255, 7, 200, 7, 1, 0, 3, 5, 255, 6, 255,
    ];
    let many = |one: &[u8], n: usize| one.repeat(n);
    let update = [1, 5, 24, 0, 0, 1, 1];
    let goodbye = [2, 2, 1, 0];
    let guests = [
        data.to_vec(),
        many(&data, 40),
        half.to_vec(),
        // Empty records, warnings and key updates in large numbers.
        [many(&[0, 0], 60), vec![5, 255, 5, 255, 6, 255]].concat(),
        [many(&[2, 2, 1, 90], 60), vec![5, 255, 5, 255, 6, 255]].concat(),
        [many(&update, 50), vec![5, 255, 5, 255, 6, 255, 7, 9, 7, 9]].concat(),
        [&update[..], &[5, 255, 6, 255, 7, 255, 7, 255, 7, 255]].concat(),
        // A message in single bytes.
        [many(&[1, 1, 7], 120), many(&[5, 255, 6, 255, 7, 1], 4)].concat(),
        [&data[..], &goodbye, &[5, 255, 6, 255, 7, 9, 6, 1]].concat(),
        [&goodbye[..], &data, &[7, 9]].concat(),
        // Replies while unread records wait.
        [
            many(&[0, 255], 4),
            vec![5, 255, 5, 255, 5, 255, 5, 255],
            many(&[7, 255], 8),
            vec![6, 255],
        ]
        .concat(),
        [&data[..], &[4, 6, 23, 3, 3, 64, 0, 1], &data].concat(),
        [&[3, 99, 3, 1, 2, 3][..], &data].concat(),
        [&[3, 20, 1, 1][..], &data, &[5, 255, 6, 255]].concat(),
    ];
    // Beginnings of a client's data, up to the part that must be valid.
    let hello = [22, 3, 1, 0, 70, 1, 0, 0, 66, 3, 3];
    let long = [22, 3, 1, 64, 0, 1, 0, 255, 255, 3, 3];
    let fragments = many(&[22, 3, 1, 0, 1, 1], 3000);
    let options = [
        &[0, 0, 0, 3][..],
        b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0",
    ]
    .concat();
    let strangers = [
        vec![],
        hello.to_vec(),
        [&hello[..], &[7; 66]].concat(),
        [&long[..], &[7; 70_000]].concat(),
        fragments,
        many(&[20, 3, 3, 0, 1, 1], 200),
        many(&[21, 3, 3, 0, 2, 1, 90], 200),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    let begin = |first: u8| move |rest: Vec<u8>| [&[first][..], &rest].concat();
    let clear = [options.clone(), [&options[..], &hello].concat()];
    let clear = clear.into_iter().map(begin(0));
    let strangers = strangers.into_iter().map(begin(1));
    clear
        .chain(strangers)
        .chain(guests.into_iter().map(begin(2)))
        .collect()
}

#[test]
fn damaged_tls_conversation_causes_no_panic_or_excess_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = (dir.path().join("server"), dir.path().join("client"));
    let authority = Authority::new("ours");
    authority.server(&server, &["localhost"], Holds::Long);
    authority.client(&client, Holds::Long, 1);
    let parties = Parties::load(&server, &client);
    let valid = conversations();
    valid
        .iter()
        .for_each(|bytes| fuzzing::client(&parties, bytes));
    seeds::run(0..20, |seed| {
        let mut by = Damage(seed);
        for bytes in &valid {
            let mut bytes = bytes.clone();
            for _ in 0..=by.below(3) {
                let at = by.below(bytes.len());
                match by.below(5) {
                    0 => bytes[at] = by.number() as u8,
                    1 => bytes[at] ^= 1 << by.below(8),
                    2 if bytes.len() > 1 => drop(bytes.remove(at)),
                    3 => bytes.truncate(at.max(1)),
                    _ => {
                        let copy = bytes[at..].to_vec();
                        bytes.extend(copy);
                    }
                }
            }
            fuzzing::client(&parties, &bytes);
        }
        Ok(())
    });
}

/// Moves the unsent bytes of one side to the other side.
fn deliver(from: &mut Channel, to: &mut Channel) {
    let n = to.receive(|room| {
        let n = from.unsent().len();
        room[..n].copy_from_slice(from.unsent());
        Ok::<_, ()>(n)
    });
    from.sent(n.unwrap());
}

#[test]
fn session_closed_by_both_sides_encrypts_no_more_data() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = (dir.path().join("server"), dir.path().join("client"));
    let authority = Authority::new("ours");
    authority.server(&server, &["localhost"], Holds::Long);
    authority.client(&client, Holds::Long, 1);
    let server = ServerTls::load(Credentials::Certificates(server)).unwrap();
    let mut server = server.begin().unwrap();
    let words = TlsWords {
        certificates: Some(client),
        ..TlsWords::default()
    };
    let mut client = connect(&words, "localhost").unwrap();
    while !(client.shake().unwrap() & server.shake().unwrap()) {
        deliver(&mut client, &mut server);
        deliver(&mut server, &mut client);
    }
    client.close();
    deliver(&mut client, &mut server);
    assert_eq!(server.read(&mut [0; 9]).unwrap(), 0);
    assert!(server.is_closed());
    server.seal(b"the other way is open").unwrap();
    server.close();
    assert!(server.seal(b"nothing").is_err());
}
