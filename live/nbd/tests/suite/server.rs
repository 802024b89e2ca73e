//! Server handshake: bytes as in the specification, and all refusals.

use std::collections::BTreeMap;

use nbd::*;

use crate::common::*;

#[test]
fn greeting_has_the_magic_and_flags() {
    let server = ServerHandshake::new(HandshakeLimits::default());
    assert_eq!(&server.greeting(), b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn go_returns_the_requested_info_and_starts_transmission() {
    let (progress, out) = ask(
        &mut greeted(),
        &[option(GO, &info("disk", &[3, 1, 2, 1, 77]))],
    );
    let flags = [0b1101, 0b0110_1101]; // no DF without structured replies
    let size = (1u64 << 30).to_be_bytes();
    let expected = [
        reply(GO, 3, &[&[0, 0][..], &size, &flags].concat()),
        reply(GO, 3, b"\0\x01disk"),
        reply(GO, 3, b"\0\x02the first"),
        reply(GO, 3, &[0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 0, 16, 0, 0]),
        reply(GO, ACK, &[]),
    ];
    assert_eq!(out, expected.concat());
    let Progress::Ready(session) = progress else {
        panic!("{progress:?}")
    };
    assert_eq!(session.export.name, "disk");
    assert!(!session.structured);
    assert!(!session.export.flags.contains(ExportFlags::SEND_DF));
}

#[test]
fn info_returns_the_same_and_continues_the_handshake() {
    let mut server = greeted();
    let (progress, out) = ask(&mut server, &[option(INFO, &info("", &[]))]);
    assert_eq!(progress, Progress::More);
    assert_eq!(kinds(&out), [(INFO, 3), (INFO, ACK)]);
    // An empty description is not sent.
    let (_, out) = ask(&mut server, &[option(INFO, &info("größe", &[2]))]);
    assert_eq!(kinds(&out), [(INFO, 3), (INFO, ACK)]);
}

#[test]
fn export_name_reply_is_padded_unless_disabled() {
    for (flags, bytes) in [(0u8, 134), (1, 134), (2, 10), (3, 10)] {
        let mut server = ServerHandshake::new(HandshakeLimits::default());
        let input = [
            &[0, 0, 0, flags],
            &option(EXPORT_NAME, b"disk")[..],
            b"rest",
        ]
        .concat();
        let mut out = vec![];
        let (n, progress) = server.step(&input, &shelf(), &mut out).unwrap();
        assert_eq!(n, input.len() - 4, "what follows is not the handshake's");
        assert!(matches!(progress, Progress::Ready(_)));
        assert_eq!(out.len(), bytes);
        assert_eq!(out[..8], (1u64 << 30).to_be_bytes());
        assert!(out[10..].iter().all(|b| *b == 0));
        let again = server.step(b"rest", &shelf(), &mut out);
        assert_eq!(again, Err(WireError::HandshakeOver));
    }
}

fn fatal(input: &[u8]) -> WireError {
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    server.step(input, &shelf(), &mut vec![]).unwrap_err()
}

#[test]
fn unanswerable_request_ends_the_connection() {
    assert_eq!(
        fatal(&[0, 0, 0, 7]),
        WireError::UnknownClientFlags { flags: 7 }
    );
    let fixed = |rest: &[u8]| [&[0, 0, 0, 3], rest].concat();
    let name = "nothing".to_string();
    assert_eq!(
        fatal(&fixed(&option(EXPORT_NAME, name.as_bytes()))),
        WireError::UnknownExport { name }
    );
    let bad = fatal(&fixed(&option(EXPORT_NAME, b"\xff")));
    assert_eq!(bad.to_string(), "export name: not UTF-8");
    let bad = fatal(&fixed(&option(EXPORT_NAME, &[b'x'; 5000])));
    assert_eq!(bad.to_string(), "export name: longer than 4096 bytes");
    let bad = fatal(&fixed(b"IHAVENOT\0\0\0\x02\0\0\0\0"));
    assert!(matches!(
        bad,
        WireError::BadMagic {
            place: "option",
            ..
        }
    ));
    // The option is refused before its data arrives.
    let bad = fatal(&fixed(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff"));
    assert!(matches!(bad, WireError::OptionTooLong { option: GO, .. }));
    let bad = fatal(&fixed(b"IHAVEOPT\0\0\0\x01\0\0\xff\xff"));
    assert!(matches!(bad, WireError::OptionTooLong { option: 1, .. }));
    let plain = [&[0, 0, 0, 0][..], &option(GO, &info("disk", &[]))].concat();
    assert_eq!(fatal(&plain), WireError::NotFixed { option: GO });
    let many = option(STRUCTURED, &[]).repeat((2 << 20) / 16 + 1);
    let (what, limit) = ("options", 2 << 20);
    assert_eq!(
        fatal(&fixed(&many)),
        WireError::HandshakeTooLong { what, limit }
    );
}

#[test]
fn abort_is_acknowledged() {
    let (progress, out) = ask(&mut greeted(), &[option(ABORT, &[])]);
    assert_eq!(progress, Progress::Closed);
    assert_eq!(out, reply(ABORT, ACK, &[]));
}

#[test]
fn list_names_each_export() {
    let (progress, out) = ask(&mut greeted(), &[option(LIST, &[])]);
    assert_eq!(progress, Progress::More);
    let first = [&counted(b"disk")[..], b"the first"].concat();
    let expected = [
        reply(LIST, 2, &first),
        reply(LIST, 2, &counted("größe".as_bytes())),
        reply(LIST, ACK, &[]),
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn list_replies_are_limited() {
    let limits = HandshakeLimits {
        max_list_reply_bytes: 100,
        ..HandshakeLimits::default()
    };
    let mut server = ServerHandshake::new(limits);
    let twice = [vec![0, 0, 0, 3], option(LIST, &[]), option(LIST, &[])].concat();
    let mut out = vec![];
    server.step(&twice, &shelf(), &mut out).unwrap();
    assert_eq!(
        kinds(&out),
        [(LIST, 2), (LIST, 2), (LIST, ACK), (LIST, TOO_BIG)]
    );
}

#[test]
fn handshake_replies_are_limited() {
    let limits = HandshakeLimits {
        max_reply_bytes: 100,
        ..HandshakeLimits::default()
    };
    let mut server = ServerHandshake::new(limits);
    let many = option(STRUCTURED, &[]).repeat(6);
    let input = [&[0, 0, 0, 3], &many[..]].concat();
    let mut out = vec![];
    let ended = server.step(&input, &shelf(), &mut out);
    let (what, limit) = ("replies", 100);
    assert_eq!(ended, Err(WireError::HandshakeTooLong { what, limit }));
    assert_eq!(kinds(&out), [(STRUCTURED, ACK); 5]);
}

/// Exports by name.
struct ExportMap(BTreeMap<String, Export>);

impl Exports for ExportMap {
    fn find(&self, name: &str) -> Option<Export> {
        self.0.get(name).cloned()
    }

    fn list(&self) -> Vec<Export> {
        self.0.values().cloned().collect()
    }
}

#[test]
fn thousand_exports_are_listed_and_described() {
    let disk = shelf().find("disk").unwrap();
    let named = |number: u32| {
        let name = format!("department-{:02}-machine-{number:04}", number % 17);
        let export = Export {
            name: name.clone(),
            ..disk.clone()
        };
        (name, export)
    };
    let many = ExportMap((0..1000).map(named).collect());
    let mut server = greeted();
    let mut step = |input: &[u8]| {
        let mut out = vec![];
        let (taken, progress) = server.step(input, &many, &mut out).unwrap();
        assert_eq!((taken, progress), (input.len(), Progress::More));
        out
    };
    step(&option(STRUCTURED, &[]));
    let listed = kinds(&step(&option(LIST, &[])));
    assert_eq!(listed.len(), 1001);
    // Queries of `nbdinfo --list` for each export; `qemu-nbd --list` sends all but the last one.
    for name in many.0.keys() {
        let asked = [
            option(INFO, &info(name, &[0, 1, 2, 3])),
            option(LIST_META, &contexts(name, &[])),
            option(SET_META, &contexts(name, &["base:allocation"])),
        ];
        let out = step(&asked.concat());
        assert!(kinds(&out).iter().all(|k| k.1 < 1 << 31), "{name}");
    }
}

#[test]
fn malformed_or_unknown_options_get_error_replies() {
    let mut server = greeted();
    ask(&mut server, &[option(STRUCTURED, &[])]);
    let mut no_utf8 = info("disk", &[]);
    no_utf8[4] = 0xff;
    let mut bad_query = contexts("disk", &["base:allocation"]);
    *bad_query.last_mut().unwrap() = 0xff;
    let mut many = contexts("disk", &["base:allocation"]);
    many[8..12].copy_from_slice(&[0xff; 4]);
    for (number, data, kind) in [
        (LIST, vec![0], INVALID),
        (STARTTLS, vec![], POLICY),
        (STARTTLS, vec![0], INVALID),
        (STRUCTURED, vec![0], INVALID),
        (GO, vec![], INVALID),
        (GO, info("disk", &[3])[..11].to_vec(), INVALID),
        (GO, [info("disk", &[3]), vec![0]].concat(), INVALID),
        (GO, vec![0xff; 12], INVALID),
        (GO, no_utf8, INVALID),
        (GO, info("nothing", &[]), UNKNOWN),
        (INFO, info("nothing", &[]), UNKNOWN),
        (SET_META, contexts("nothing", &[]), UNKNOWN),
        (LIST_META, contexts("nothing", &[]), UNKNOWN),
        (SET_META, contexts("disk", &["allocation"]), INVALID),
        (SET_META, bad_query, INVALID),
        (LIST_META, many, INVALID),
        (4, vec![], UNSUP),
        (12, vec![], UNSUP),
        (0xffff_ffff, vec![1, 2, 3], UNSUP),
        (GO, vec![0; 8193], TOO_BIG),
        (99, vec![0; 200_000], TOO_BIG),
    ] {
        let (progress, out) = ask(&mut server, &[option(number, &data)]);
        assert_eq!(progress, Progress::More);
        assert_eq!(kinds(&out), [(number, kind)], "{data:?}");
    }
    // The handshake still works.
    let (progress, _) = ask(&mut server, &[option(GO, &info("disk", &[]))]);
    assert!(matches!(progress, Progress::Ready(_)));
}

fn allocation(options: &[Vec<u8>], name: &str) -> Option<u32> {
    let mut server = greeted();
    ask(&mut server, options);
    match ask(&mut server, &[option(GO, &info(name, &[]))]).0 {
        Progress::Ready(session) => session.allocation_context,
        other => panic!("{other:?}"),
    }
}

#[test]
fn metadata_contexts_are_selected_per_export() {
    let structured = option(STRUCTURED, &[]);
    let set = |name, queries: &[&str]| option(SET_META, &contexts(name, queries));
    let mine = set("disk", &["qemu:x", "base:allocation", "base:allocation"]);

    let mut server = greeted();
    let (_, out) = ask(
        &mut server,
        &[mine.clone(), structured.clone(), mine.clone()],
    );
    let context = reply(SET_META, 4, b"\0\0\0\x01base:allocation");
    let (acks, said) = (reply(SET_META, ACK, &[]), replies(&out));
    assert_eq!(
        (said[0].1, said[1].1),
        (INVALID, ACK),
        "only after structured replies"
    );
    assert!(out.ends_with(&[context, acks].concat()));

    let s = || structured.clone();
    assert_eq!(allocation(&[s(), mine.clone()], "disk"), Some(1));
    assert_eq!(
        allocation(&[s(), mine.clone()], ""),
        Some(1),
        "the same export"
    );
    assert_eq!(
        allocation(&[s(), set("", &["base:allocation"])], "disk"),
        Some(1)
    );
    assert_eq!(
        allocation(&[s(), mine.clone()], "größe"),
        None,
        "another export"
    );
    assert_eq!(allocation(&[mine.clone(), s()], "disk"), None);
    for replaced in [
        set("disk", &[]),
        set("disk", &["base:"]),
        set("nothing", &["base:allocation"]),
        option(SET_META, &[]),
        option(SET_META, &vec![0; 9000]),
    ] {
        let found = allocation(&[s(), mine.clone(), replaced], "disk");
        assert_eq!(found, None, "each one replaces what was before");
    }
}

#[test]
fn metadata_contexts_are_listed() {
    let mut server = greeted();
    ask(&mut server, &[option(STRUCTURED, &[])]);
    for (queries, listed) in [
        (&[][..], true),
        (&["base:"], true),
        (&["base:allocation"], true),
        (&["base:alloc"], false),
        (&["qemu:"], false),
    ] {
        let (_, out) = ask(
            &mut server,
            &[option(LIST_META, &contexts("disk", queries))],
        );
        let mut expected = vec![];
        if listed {
            expected = reply(LIST_META, 4, b"\0\0\0\0base:allocation");
        }
        expected.extend(reply(LIST_META, ACK, &[]));
        assert_eq!(out, expected, "{queries:?}");
    }
    // Listing selects nothing.
    let list = option(LIST_META, &contexts("disk", &[]));
    assert_eq!(allocation(&[option(STRUCTURED, &[]), list], "disk"), None);
}

/// Exports with snapshots; counts the calls of `changed_since`.
struct WithSnapshots {
    shelf: Shelf,
    asked: std::cell::Cell<usize>,
}

impl Exports for WithSnapshots {
    fn find(&self, name: &str) -> Option<Export> {
        self.shelf.find(name)
    }

    fn list(&self) -> Vec<Export> {
        self.shelf.list()
    }

    fn known_since(&self, _: &str) -> Vec<String> {
        (0..50).map(|n| format!("s{n}")).collect()
    }

    fn changed_since(&self, _: &str, since: &str) -> Option<std::sync::Arc<DirtyRanges>> {
        self.asked.set(self.asked.get() + 1);
        let known = self.known_since("disk").iter().any(|name| name == since);
        known.then(|| DirtyRanges::new(4096, vec![1]).into())
    }
}

/// Returns the ids and names of the contexts of each selection, and the number of calls of `changed_since`.
fn select_dirty(selections: &[Vec<String>]) -> (Vec<Vec<String>>, usize) {
    let exports = WithSnapshots {
        shelf: shelf(),
        asked: 0.into(),
    };
    let mut server = greeted();
    ask(&mut server, &[option(STRUCTURED, &[])]);
    let mut selected = vec![];
    for names in selections {
        let queries: Vec<String> = names
            .iter()
            .map(|name| format!("qemu:dirty-bitmap:{name}"))
            .collect();
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        let set = option(SET_META, &contexts("disk", &queries));
        let mut out = vec![];
        server.step(&set, &exports, &mut out).unwrap();
        let mut said = replies(&out);
        assert_eq!(said.pop().unwrap().1, ACK);
        let name =
            |data: &[u8]| String::from_utf8_lossy(&data[4..]).replace("qemu:dirty-bitmap:", "");
        selected.push(said.iter().map(|(_, _, data)| name(data)).collect());
    }
    (selected, exports.asked.get())
}

#[test]
fn dirty_contexts_are_created_once_per_name_up_to_the_limit() {
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("s{n}")).collect::<Vec<_>>();
    let (selected, asked) = select_dirty(&[vec!["s3".into(); 250]]);
    assert_eq!((selected, asked), (vec![vec!["s3".to_owned()]], 1));
    let (selected, asked) = select_dirty(&[names(10..40)]);
    assert_eq!(
        (selected, asked),
        (vec![names(10..10 + DIRTY_MAX)], DIRTY_MAX)
    );
    let unknown = vec!["nothing".into(); 250];
    assert_eq!(select_dirty(&[unknown]), (vec![vec![]], 0));
}

#[test]
fn dirty_contexts_of_one_handshake_are_limited() {
    let limit = HandshakeLimits::default().max_dirty_contexts as usize;
    let again = vec![vec!["s1".to_owned()]; 50];
    let (selected, asked) = select_dirty(&again);
    assert_eq!(asked, limit);
    assert_eq!(selected.iter().filter(|s| !s.is_empty()).count(), limit);
}
