//! `STARTTLS` on both sides: options before it, state that survives it, and injected bytes at its start.

use nbd::*;

use crate::common::*;

const WISHES: ClientWishes = ClientWishes {
    structured: true,
    allocation: true,
};

/// Returns a server that requires TLS, after client flags with fixed newstyle.
fn strict() -> ServerHandshake {
    let mut server = ServerHandshake::requiring_tls(HandshakeLimits::default());
    let step = server.step(&[0, 0, 0, 3], &shelf(), &mut vec![]);
    assert_eq!(step, Ok((4, Progress::More)));
    server
}

fn set_meta() -> Vec<u8> {
    option(SET_META, &contexts("disk", &["base:allocation"]))
}

#[test]
fn strict_server_refuses_all_options_before_tls() {
    let asked = [
        option(LIST, &[]),
        option(INFO, &info("disk", &[1, 2, 3])),
        option(GO, &info("disk", &[])),
        option(GO, b"malformed"),
        option(STRUCTURED, &[]),
        set_meta(),
        option(LIST_META, &contexts("disk", &[])),
        option(99, &[1; 300]),
        option(99, &[1; 9000]),
    ];
    let (progress, out) = ask(&mut strict(), &asked);
    assert_eq!(progress, Progress::More);
    let expected = [LIST, INFO, GO, GO, STRUCTURED, SET_META, LIST_META, 99, 99];
    assert_eq!(kinds(&out), expected.map(|option| (option, TLS_REQD)));
    for (_, _, words) in replies(&out) {
        let words = String::from_utf8(words).unwrap();
        assert!(words.contains("requires TLS"), "{words}");
    }
    let mut out = vec![];
    let plain = strict().step(&option(EXPORT_NAME, b"disk"), &shelf(), &mut out);
    assert_eq!(plain, Err(WireError::TlsRequired));
    assert!(out.is_empty(), "EXPORT_NAME has no error reply");
    let (progress, out) = ask(&mut strict(), &[option(ABORT, &[])]);
    assert_eq!(progress, Progress::Closed);
    assert_eq!(kinds(&out), [(ABORT, ACK)]);
}

#[test]
fn options_before_tls_are_forgotten() {
    let mut server = strict();
    let before = [option(STRUCTURED, &[]), set_meta(), option(STARTTLS, &[1])];
    let (_, out) = ask(&mut server, &before);
    let expected = [
        (STRUCTURED, TLS_REQD),
        (SET_META, TLS_REQD),
        (STARTTLS, INVALID),
    ];
    assert_eq!(kinds(&out), expected);
    let (progress, out) = ask(&mut server, &[option(STARTTLS, &[])]);
    assert_eq!(progress, Progress::StartTls);
    assert_eq!(kinds(&out), [(STARTTLS, ACK)]);
    server.secured();
    // Contexts need structured replies, which were not negotiated inside the session.
    let (progress, out) = ask(&mut server, &[set_meta(), option(STARTTLS, &[])]);
    assert_eq!(progress, Progress::More);
    assert_eq!(kinds(&out), [(SET_META, INVALID), (STARTTLS, INVALID)]);
    let (progress, _) = ask(&mut server, &[option(GO, &info("disk", &[]))]);
    let Progress::Ready(session) = progress else {
        panic!("{progress:?}")
    };
    assert!(!session.structured && session.allocation_context.is_none());
}

#[test]
fn handshake_limits_continue_after_tls() {
    let limits = HandshakeLimits {
        max_received_bytes: 64 * 16,
        ..HandshakeLimits::default()
    };
    let mut server = ServerHandshake::requiring_tls(limits);
    let (flags, mut out) = ([0, 0, 0, 3], vec![]);
    server.step(&flags, &shelf(), &mut out).unwrap();
    ask(&mut server, &vec![option(LIST, &[]); 62]);
    ask(&mut server, &[option(STARTTLS, &[])]);
    server.secured();
    let two = option(LIST, &[]).repeat(2);
    let more = server.step(&two, &shelf(), &mut vec![]);
    let (what, limit) = ("options", 64 * 16);
    assert_eq!(more, Err(WireError::HandshakeTooLong { what, limit }));
}

#[test]
fn bytes_after_starttls_end_the_connection_on_either_side() {
    // Such bytes would be processed as the authenticated client's.
    for behind in [&[0][..], &option(GO, &info("disk", &[])), b"\x16\x03\x01"] {
        let (mut server, mut out) = (strict(), vec![]);
        let input = [&option(STARTTLS, &[])[..], behind].concat();
        let step = server.step(&input, &shelf(), &mut out);
        assert_eq!(step, Err(WireError::BeforeTls));
        assert!(out.is_empty(), "it is not granted either");
        let again = server.step(behind, &shelf(), &mut out);
        assert_eq!(again, Err(WireError::HandshakeOver));

        let mut client = ClientHandshake::with_tls("disk", WISHES);
        let greeting = b"NBDMAGICIHAVEOPT\0\x03";
        client.step(greeting, &mut vec![]).unwrap();
        let input = [&reply(STARTTLS, ACK, &[])[..], behind].concat();
        let mut out = vec![];
        assert_eq!(client.step(&input, &mut out), Err(WireError::BeforeTls));
        assert!(out.is_empty());
        let again = client.step(behind, &mut out);
        assert_eq!(again, Err(WireError::HandshakeOver));
    }
    // Later bytes are not part of the handshake until the TLS session exists.
    let mut server = strict();
    ask(&mut server, &[option(STARTTLS, &[])]);
    let later = server.step(&option(LIST, &[]), &shelf(), &mut vec![]);
    assert_eq!(later, Err(WireError::HandshakeOver));
}

#[test]
fn client_and_server_negotiate_tls() {
    for size in [1, 7, usize::MAX] {
        let mut server = ServerHandshake::requiring_tls(HandshakeLimits::default());
        let mut client = ClientHandshake::with_tls("disk", WISHES);
        let (mut to_client, mut to_server) = (server.greeting().to_vec(), vec![]);
        let (mut served, mut got, mut secured) = (None, None, [false; 2]);
        while !to_client.is_empty() || !to_server.is_empty() {
            let n = size.min(to_client.len());
            let piece: Vec<u8> = to_client.drain(..n).collect();
            if n > 0 {
                match client.step(&piece, &mut to_server).unwrap().1 {
                    ClientProgress::More => {}
                    ClientProgress::StartTls => {
                        assert!(secured[1], "the server has granted it");
                        secured[0] = true;
                        client.secured(&mut to_server);
                    }
                    ClientProgress::Ready(session) => got = Some(session),
                }
            }
            let n = size.min(to_server.len());
            let piece: Vec<u8> = to_server.drain(..n).collect();
            if n > 0 {
                match server.step(&piece, &shelf(), &mut to_client).unwrap().1 {
                    Progress::More => {}
                    Progress::StartTls => {
                        secured[1] = true;
                        server.secured();
                    }
                    Progress::Ready(session) => served = Some(session),
                    Progress::Closed => panic!("it wants the export"),
                }
            }
        }
        assert!(got.is_some() && got == served && secured == [true; 2]);
    }
}

/// Returns the client's error for this input from a server.
fn hear(mut client: ClientHandshake, said: &[Vec<u8>]) -> WireError {
    let greeting = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let input = [vec![greeting], said.to_vec()].concat().concat();
    client.step(&input, &mut vec![]).unwrap_err()
}

#[test]
fn client_that_requires_tls_never_continues_without_it() {
    let client = || ClientHandshake::with_tls("disk", WISHES);
    for refusal in [UNSUP, POLICY, INVALID] {
        let error = hear(client(), &[reply(STARTTLS, refusal, b"not here")]);
        let message = "not here".into();
        assert_eq!(error, WireError::NoTls { message });
    }
    let old = client().step(b"NBDMAGICIHAVEOPT\0\0", &mut vec![]);
    assert!(matches!(old, Err(WireError::NoTls { .. })), "{old:?}");
    // A client without TLS gets a clear error from a server that requires it.
    let plain = ClientHandshake::new("disk", WISHES);
    let error = hear(plain, &[reply(STRUCTURED, TLS_REQD, b"")]);
    assert!(error.to_string().contains("use nbds://"), "{error}");
    let plain = ClientHandshake::new("disk", ClientWishes::default());
    assert_eq!(
        hear(plain, &[reply(GO, TLS_REQD, b"")]),
        WireError::TlsRequired
    );
}
