//! Client handshake: against our server over a pipe, and against servers that lack features or send invalid data.

use nbd::*;
use proptest::prelude::*;

use crate::common::*;

const WISHES: ClientWishes = ClientWishes {
    structured: true,
    allocation: true,
};

#[test]
fn handshake_succeeds_with_all_options() {
    let (served, got) = converse(&shelf(), "disk", WISHES, &[usize::MAX]).unwrap();
    assert_eq!(served, got);
    assert!(got.structured);
    assert_eq!(got.allocation_context, Some(ALLOCATION_CONTEXT));
    assert!(got.export.flags.contains(ExportFlags::SEND_DF));
    assert_eq!(got.export.description, "the first");

    let (served, got) = converse(&shelf(), "", ClientWishes::default(), &[1]).unwrap();
    assert_eq!(served, got);
    assert_eq!((got.structured, got.allocation_context), (false, None));

    let error = converse(&shelf(), "nothing", WISHES, &[3]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "option 7: the server refused with 0x80000006: no such export"
    );
}

/// Returns the client's output and result for this input from a server.
fn hear(wishes: ClientWishes, said: &[Vec<u8>]) -> (Vec<u8>, Result<Option<Session>, WireError>) {
    let (mut client, mut out) = (ClientHandshake::new("disk", wishes), vec![]);
    let input = said.concat();
    let end = client.step(&input, &mut out).map(|(n, progress)| {
        assert_eq!(n, input.len());
        match progress {
            ClientProgress::Ready(session) => Some(*session),
            _ => None,
        }
    });
    (out, end)
}

fn greeting(flags: u8) -> Vec<u8> {
    [b"NBDMAGICIHAVEOPT\0", &[flags][..]].concat()
}

fn go() -> Vec<u8> {
    option(GO, &info("disk", &[1, 2, 3]))
}

fn described() -> Vec<u8> {
    reply(GO, 3, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1])
}

#[test]
fn client_accepts_servers_with_fewer_features() {
    let (out, end) = hear(
        WISHES,
        &[
            greeting(3),
            reply(STRUCTURED, UNSUP, b"too old"),
            described(),
            reply(GO, 3, b"\0\x09unknown kinds are skipped"),
            reply(GO, ACK, &[]),
        ],
    );
    assert_eq!(
        out,
        [vec![0, 0, 0, 3], option(STRUCTURED, &[]), go()].concat()
    );
    let session = end.unwrap().unwrap();
    assert_eq!(session.export.size, 65536);
    assert_eq!(session.export.block, BlockSizes::UNKNOWN);
    assert_eq!(
        (session.structured, session.allocation_context),
        (false, None)
    );

    let (out, end) = hear(
        WISHES,
        &[
            greeting(3),
            reply(STRUCTURED, ACK, &[]),
            reply(SET_META, UNSUP, &[]),
            described(),
            reply(GO, ACK, &[]),
        ],
    );
    let set = option(SET_META, &contexts("disk", &["base:allocation"]));
    assert_eq!(
        out,
        [vec![0, 0, 0, 3], option(STRUCTURED, &[]), set, go()].concat()
    );
    let session = end.unwrap().unwrap();
    assert_eq!(
        (session.structured, session.allocation_context),
        (true, None)
    );
}

#[test]
fn client_falls_back_to_export_name() {
    let answer = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let plain = ClientWishes::default();
    let said = [greeting(3), reply(GO, UNSUP, &[]), answer.clone()];
    let (out, end) = hear(plain, &said);
    let name = option(EXPORT_NAME, b"disk");
    assert_eq!(out, [vec![0, 0, 0, 3], go(), name.clone()].concat());
    assert_eq!(end.unwrap().unwrap().export.size, 65536);

    // A server without fixed newstyle, with padding.
    let said = [greeting(0), answer, vec![0; 124]];
    let (out, end) = hear(WISHES, &said);
    assert_eq!(out, [vec![0, 0, 0, 0], name].concat());
    assert_eq!(end.unwrap().unwrap().export.name, "disk");
    assert_eq!(
        hear(WISHES, &said[..2]).1,
        Ok(None),
        "the padding belongs to it"
    );
}

#[test]
fn client_refuses_invalid_server_replies() {
    let go = |replies: &[Vec<u8>]| {
        let said = [&[greeting(3)], replies].concat();
        hear(ClientWishes::default(), &said)
            .1
            .unwrap_err()
            .to_string()
    };
    let sizes = |sizes: [u32; 3]| {
        let sizes = sizes.map(u32::to_be_bytes).concat();
        go(&[reply(GO, 3, &[&[0, 3][..], &sizes].concat())])
    };
    assert_eq!(
        go(&[reply(GO, ACK, &[])]),
        "go: no size of the export before the end"
    );
    assert_eq!(
        go(&[reply(INFO, ACK, &[])]),
        "option reply: for option 6, expected option 7"
    );
    assert!(go(&[reply(GO, 2, &[])]).contains("the type is not valid for the option"));
    assert!(go(&[reply(GO, 3, &[0, 0, 1])]).contains("wrong length for its type"));
    assert!(go(&[reply(GO, 3, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1])]).contains("wrong length"));
    assert!(go(&[reply(GO, 3, b"\0\x01\xff")]).contains("not UTF-8"));
    assert!(sizes([0, 4096, 4096]).contains("block sizes"));
    assert!(sizes([512, 4096, 256]).contains("block sizes"));
    assert!(sizes([3, 4096, 4096]).contains("block sizes"));
    // An announced length alone is refused at once.
    let mut long = reply(GO, 3, &[]);
    long[16] = 0x7f;
    assert!(go(&[long]).contains("at most 16384 are accepted"));
    // Endless replies.
    let endless = vec![reply(GO, 3, &[0; 12]); 200_000];
    assert!(go(&endless).contains("more than 4194304 bytes of replies"));

    let twice = reply(SET_META, 4, b"\0\0\0\x07base:allocation");
    let said = [
        greeting(3),
        reply(STRUCTURED, ACK, &[]),
        twice.clone(),
        twice,
    ];
    assert!(hear(WISHES, &said).1.is_err());
    let other = reply(SET_META, 4, b"\0\0\0\x07qemu:x");
    let said = [greeting(3), reply(STRUCTURED, ACK, &[]), other];
    assert!(hear(WISHES, &said).1.is_err());

    let old = [
        b"NBDMAGIC",
        &0x0000_4202_8186_1253u64.to_be_bytes()[..],
        b"\0\0",
    ]
    .concat();
    assert_eq!(hear(WISHES, &[old]).1, Err(WireError::Oldstyle));
    let web = b"HTTP/1.1 400 Bad Request".to_vec();
    let error = hear(WISHES, &[web]).1.unwrap_err();
    assert!(error.to_string().starts_with("server greeting: bad magic"));
    let mut long = ClientHandshake::new(&"x".repeat(4097), WISHES);
    assert!(long.step(&greeting(3), &mut vec![]).is_err());
}

#[test]
fn client_lists_the_exports_of_a_server() {
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    let (mut client, mut out) = (ListHandshake::new(), vec![]);
    let greeting = server.greeting();
    assert_eq!(
        client.step(&greeting, &mut out),
        Ok((18, ListProgress::More))
    );
    let mut answer = vec![];
    server.step(&out, &shelf(), &mut answer).unwrap();
    out.clear();
    let (n, progress) = client.step(&answer, &mut out).unwrap();
    assert_eq!(n, answer.len());
    let listed = |name: &str, description: &str| ListedExport {
        name: name.into(),
        description: description.into(),
    };
    let expected = vec![listed("disk", "the first"), listed("größe", "")];
    assert_eq!(progress, ListProgress::Ready(expected));
    let end = server.step(&out, &shelf(), &mut answer);
    assert_eq!(end, Ok((16, Progress::Closed)));
    assert!(client.step(&[], &mut out).is_err());
}

proptest! {
    #[test]
    fn client_and_server_agree_for_any_split_of_bytes(
        name in "[^\0]{1,20}", description in "[^\0]{0,20}", size: u64, flags: u16,
        minimum in 0..13u32, structured: bool, allocation: bool,
        sizes in prop::collection::vec(1..40usize, 1..20),
    ) {
        let mut served = export(&name, &description, size);
        served.flags = ExportFlags(flags);
        served.block.minimum = 1 << minimum;
        let wishes = ClientWishes { structured, allocation };
        let (server, client) = converse(&Shelf(vec![served]), &name, wishes, &sizes).unwrap();
        prop_assert_eq!(&server, &client);
        prop_assert_eq!(server.structured, structured || allocation);
        prop_assert_eq!(server.allocation_context.is_some(), allocation);
    }
}
