//! Transmission phase: bytes as in the specification, refusals of the check, and round trips.

use nbd::*;
use proptest::prelude::*;

fn session() -> Session {
    Session {
        export: Export {
            name: "disk".into(),
            description: String::new(),
            size: 1 << 20,
            flags: ExportFlags(0b1101_1110_1101),
            block: BlockSizes {
                minimum: 512,
                preferred: 4096,
                maximum: 1 << 16,
            },
        },
        structured: true,
        allocation_context: Some(1),
        dirty: vec![],
    }
}

fn request(command: Command, flags: u16, offset: u64, length: u32) -> RequestHeader {
    RequestHeader {
        flags: RequestFlags(flags),
        command,
        cookie: 0x0102_0304_0506_0708,
        offset,
        length,
    }
}

#[test]
fn request_has_the_documented_bytes() {
    let bytes = [
        0x25, 0x60, 0x95, 0x13, // magic
        0, 1, // flags: FUA
        0, 1, // write
        1, 2, 3, 4, 5, 6, 7, 8, // cookie
        0, 0, 0, 1, 0, 0, 2, 0, // offset
        0, 0, 0x10, 0, // length
    ];
    let header = request(Command::Write, 1, 0x1_0000_0200, 4096);
    assert_eq!(encode_request(&header), bytes);
    assert_eq!(decode_request(&bytes), Ok(header));

    let mut unknown = bytes;
    unknown[7] = 8;
    let expected = WireError::UnknownCommand {
        number: 8,
        cookie: 0x0102_0304_0506_0708,
        length: 4096,
    };
    assert_eq!(decode_request(&unknown), Err(expected));

    let mut foreign = bytes;
    foreign[0] = 0x26;
    let error = decode_request(&foreign).unwrap_err();
    assert_eq!(error.to_string(), "request: bad magic 0x26609513");
}

#[test]
fn replies_have_the_documented_bytes() {
    let cookie = [1, 2, 3, 4, 5, 6, 7, 8];
    let number = u64::from_be_bytes(cookie);
    let simple = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28], cookie.as_slice()].concat();
    assert_eq!(
        simple_reply(number, Some(ErrorCode::NoSpc)).to_vec(),
        simple
    );

    // Magic, flags, type, cookie, length.
    let chunk = |flags: u8, kind: [u8; 2], length: u8| {
        let front = [0x66, 0x8e, 0x33, 0xef, 0, flags, kind[0], kind[1]];
        [&front, cookie.as_slice(), &[0, 0, 0, length]].concat()
    };
    let offset = [0, 0, 0, 0, 0, 1, 0, 0];
    let data = [chunk(0, [0, 1], 72), offset.to_vec()].concat();
    assert_eq!(data_chunk(number, 65536, 64, false).to_vec(), data);
    let hole = [chunk(1, [0, 2], 12), offset.to_vec(), vec![0, 0, 2, 0]].concat();
    assert_eq!(hole_chunk(number, 65536, 512, true).to_vec(), hole);
    assert_eq!(none_chunk(number).to_vec(), chunk(1, [0, 0], 0));

    let mut out = vec![];
    error_chunk(number, ErrorCode::Io, "torn", &mut out);
    let error = [chunk(1, [0x80, 1], 10), b"\0\0\0\x05\0\x04torn".to_vec()].concat();
    assert_eq!(out, error);

    let mut out = vec![];
    let extent = StatusExtent {
        length: 512,
        flags: StatusExtent::HOLE | StatusExtent::ZERO,
    };
    status_chunk(number, 1, &[extent], true, &mut out);
    let payload = vec![0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 3];
    assert_eq!(out, [chunk(1, [0, 5], 12), payload].concat());
}

#[test]
fn overlong_replies_are_truncated() {
    let mut out = vec![];
    error_chunk(1, ErrorCode::Io, &"é".repeat(3000), &mut out);
    assert_eq!(out.len(), 20 + 6 + 4096);
    let extent = StatusExtent {
        length: 1,
        flags: 0,
    };
    out.clear();
    status_chunk(1, 1, &vec![extent; STATUS_EXTENTS_MAX + 1], true, &mut out);
    let step = ReplyReader::new(&session()).next(&out).unwrap();
    let ReplyStep::Header { consumed, reply } = step else {
        panic!("{step:?}")
    };
    assert_eq!(consumed, out.len());
    assert!(
        matches!(reply, ReplyHeader::Status { extents, .. } if extents.len() == STATUS_EXTENTS_MAX)
    );
}

#[test]
fn undefined_error_codes_count_as_invalid() {
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_wire(code.number()), code);
    }
    assert_eq!(ErrorCode::from_wire(2), ErrorCode::Inval);
    assert_eq!(ErrorCode::NotSup.number(), 95);
    assert_eq!(ErrorCode::Shutdown.number(), 108);
}

#[test]
fn invalid_requests_are_refused_with_their_error() {
    use Command::*;
    use ErrorCode::*;
    let all = session();
    let plain = |flags: u16| {
        let mut session = session();
        session.export.flags = ExportFlags(flags);
        session.allocation_context = None;
        session
    };
    let bare = plain(1);
    let read_only = plain(0b1101_1110_1111);
    let size = 1u64 << 20;
    let cases = [
        (&all, Read, 0, 0, 512, None),
        (&all, Read, 0, size - 512, 512, None),
        (&all, Read, 0, size, 512, Some(Inval)),
        (&all, Read, 0, u64::MAX - 511, 512, Some(Inval)),
        (&all, Read, 0, 0, 0, Some(Inval)),
        (&all, Read, 0, 256, 512, Some(Inval)),
        (&all, Read, 0, 0, 513, Some(Inval)),
        (&all, Read, 0, 0, 65536, None),
        (&all, Read, 0, 0, 65536 + 512, Some(Inval)),
        (&all, Read, 4, 0, 65536 + 512, Some(Overflow)),
        (&all, Read, 4, 0, 512, None),
        (&all, Read, 1, 0, 512, None),
        (&all, Read, 2, 0, 512, Some(Inval)),
        (&all, Read, 32, 0, 512, Some(Inval)),
        (&all, Write, 1, 0, 512, None),
        (&all, Write, 4, 0, 512, Some(Inval)),
        (&all, Write, 0, size, 512, Some(NoSpc)),
        (&all, Write, 0, u64::MAX, 512, Some(NoSpc)),
        (&all, WriteZeroes, 0b1_0011, 0, 1 << 20, None),
        (&all, WriteZeroes, 0, 512, 1 << 20, Some(NoSpc)),
        (&all, WriteZeroes, 8, 0, 512, Some(Inval)),
        (&all, Trim, 1, 0, 1 << 20, None),
        (&all, Trim, 0, size, 512, Some(Inval)),
        (&all, Cache, 0, 0, 1 << 20, None),
        (&all, Flush, 0, 0, 0, None),
        (&all, Flush, 0, 0, 512, Some(Inval)),
        (&all, Flush, 0, 512, 0, Some(Inval)),
        (&all, BlockStatus, 8, 0, 1 << 20, None),
        (&all, BlockStatus, 0, size, 512, Some(Inval)),
        (&all, Disconnect, 0xffff, 1, 1, None),
        (&bare, Read, 0, 0, 512, None),
        (&bare, Read, 1, 0, 512, Some(Inval)),
        (&bare, Read, 4, 0, 512, Some(Inval)),
        (&bare, Write, 0, 0, 512, None),
        (&bare, Write, 1, 0, 512, Some(Inval)),
        (&bare, Flush, 0, 0, 0, Some(Inval)),
        (&bare, Trim, 0, 0, 512, Some(Inval)),
        (&bare, Cache, 0, 0, 512, Some(Inval)),
        (&bare, WriteZeroes, 0, 0, 512, Some(Inval)),
        (&bare, BlockStatus, 0, 0, 512, Some(Inval)),
        (&read_only, Read, 0, 0, 512, None),
        (&read_only, Write, 0, 0, 512, Some(Perm)),
        (&read_only, Trim, 0, 0, 512, Some(Perm)),
        (&read_only, WriteZeroes, 0, 0, 512, Some(Perm)),
        (&read_only, Flush, 0, 0, 0, None),
    ];
    for (session, command, flags, offset, length, expected) in cases {
        let header = request(command, flags, offset, length);
        let refusal = check(&header, session).err();
        assert_eq!(refusal.map(|r| r.error), expected, "{header:?}");
        assert!(refusal.is_none_or(|r| !r.fatal), "{header:?}");
    }
    // Only a write that is too long to skip ends the connection.
    for session in [&all, &bare, &read_only] {
        let refusal = check(&request(Write, 0, 0, 65536 + 512), session).unwrap_err();
        assert!(refusal.fatal);
        assert_eq!(refusal.error, Inval);
    }
}

#[test]
fn longest_valid_read_fits_a_chunk() {
    let mut session = session();
    session.export.size = u64::MAX;
    session.export.block = BlockSizes {
        minimum: 1,
        preferred: 4096,
        maximum: u32::MAX,
    };
    assert!(check(&request(Command::Read, 0, 0, u32::MAX - 7), &session).is_err());
    let longest = request(Command::Read, 0, 0, u32::MAX - 8);
    assert_eq!(check(&longest, &session), Ok(()));
    data_chunk(1, 0, longest.length, true);
}

fn read_all(session: &Session, bytes: &[u8]) -> Result<ReplyStep, WireError> {
    let mut reader = ReplyReader::new(session);
    let mut have = 0;
    loop {
        match reader.next(&bytes[..have])? {
            ReplyStep::More { need } => {
                assert!(need > have);
                assert!(need <= bytes.len(), "asks for more than there is");
                have = need;
            }
            header => return Ok(header),
        }
    }
}

#[test]
fn invalid_replies_are_refused() {
    let session = session();
    let mut plain = session.clone();
    plain.structured = false;
    assert!(read_all(&plain, &none_chunk(1)).is_err());
    let empty_status = {
        let mut out = vec![];
        status_chunk(1, 1, &[], true, &mut out);
        out
    };
    let other_context = {
        let mut out = vec![];
        let extent = StatusExtent {
            length: 1,
            flags: 0,
        };
        status_chunk(1, 2, &[extent], true, &mut out);
        out
    };
    let mut not_done = none_chunk(1);
    not_done[5] = 0;
    let mut unknown = none_chunk(1);
    unknown[7] = 9;
    let mut long_error = none_chunk(1);
    long_error[6..8].copy_from_slice(&[0x80, 1]);
    long_error[16..20].copy_from_slice(&[0, 2, 0, 0]);
    let mut no_error = vec![];
    error_chunk(1, ErrorCode::Io, "", &mut no_error);
    no_error[23] = 0;
    let mut message_too_long = vec![];
    error_chunk(1, ErrorCode::Io, "why", &mut message_too_long);
    message_too_long[25] = 4;
    for bytes in [
        &data_chunk(1, 0, 0, true)[..],
        &data_chunk(1, 1 << 20, 1, true),
        &data_chunk(1, u64::MAX, 1, true),
        &hole_chunk(1, 0, 0, true),
        &hole_chunk(1, u64::MAX, 2, true),
        &empty_status,
        &other_context,
        &not_done,
        &unknown,
        &long_error,
        &no_error,
        &message_too_long,
        &[0; 16],
    ] {
        assert!(read_all(&session, bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn unknown_error_chunk_types_are_errors() {
    let mut bytes = vec![];
    error_chunk(7, ErrorCode::Io, "torn", &mut bytes);
    bytes.extend_from_slice(&4096u64.to_be_bytes());
    bytes[19] += 8;
    for (kind, offset) in [(2, Some(4096)), (99, None)] {
        bytes[7] = kind;
        let expected = ReplyHeader::Error {
            cookie: 7,
            error: ErrorCode::Io,
            message: "torn".into(),
            offset,
            done: true,
        };
        let header = ReplyStep::Header {
            consumed: bytes.len(),
            reply: expected,
        };
        assert_eq!(read_all(&session(), &bytes), Ok(header));
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    (0..8u16).prop_map(|n| Command::from_number(n).unwrap())
}

fn any_error() -> impl Strategy<Value = ErrorCode> {
    (0..8usize).prop_map(|n| ErrorCode::ALL[n])
}

/// Numbers near the ends of ranges, and others.
fn edges() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..4u64).prop_map(|n| u64::MAX - n),
        (0..64u64, 0..3u64).prop_map(|(bit, n)| (1u64 << bit).wrapping_add(n).wrapping_sub(1)),
    ]
}

proptest! {
    #[test]
    fn requests_round_trip(command in any_command(), flags: u16, cookie: u64, offset: u64, length: u32) {
        let header = RequestHeader { flags: RequestFlags(flags), command, cookie, offset, length };
        prop_assert_eq!(decode_request(&encode_request(&header)), Ok(header));
    }

    #[test]
    fn replies_round_trip(
        cookie: u64, error in any_error(), failed: bool, done: bool, message in ".{0,40}",
        offset in 0..1u64 << 19, length in 1..1u32 << 19,
        lengths in prop::collection::vec((1..u32::MAX, 0..4u32), 1..40),
    ) {
        let session = session();
        let error_or_not = failed.then_some(error);
        let extents: Vec<_> =
            lengths.into_iter().map(|(length, flags)| StatusExtent { length, flags }).collect();
        let (mut failure, mut status) = (vec![], vec![]);
        error_chunk(cookie, error, &message, &mut failure);
        status_chunk(cookie, 1, &extents, true, &mut status);
        let replies = [
            (simple_reply(cookie, error_or_not).to_vec(), ReplyHeader::Simple { cookie, error: error_or_not }),
            (data_chunk(cookie, offset, length, done).to_vec(), ReplyHeader::Data { cookie, offset, length, done }),
            (hole_chunk(cookie, offset, length, done).to_vec(), ReplyHeader::Hole { cookie, offset, length, done }),
            (none_chunk(cookie).to_vec(), ReplyHeader::None { cookie }),
            (failure, ReplyHeader::Error { cookie, error, message, offset: None, done: true }),
            (status, ReplyHeader::Status { cookie, context: 1, extents, done: true }),
        ];
        for (bytes, reply) in replies {
            let expected = ReplyStep::Header { consumed: bytes.len(), reply };
            prop_assert_eq!(read_all(&session, &bytes), Ok(expected));
        }
    }

    #[test]
    fn accepted_requests_are_within_the_export(
        command in any_command(), flags in 0..64u16, offset in edges(), length in edges(),
        size in edges(), export_flags: u16, minimum_bit in 0..17u32, maximum in edges(), context: bool,
    ) {
        let mut session = session();
        session.export.size = size;
        session.export.flags = ExportFlags(export_flags);
        session.export.block = BlockSizes { minimum: 1 << minimum_bit, preferred: 4096, maximum: maximum as u32 };
        session.allocation_context = context.then_some(1);
        let header = request(command, flags, offset, length as u32);
        if check(&header, &session).is_ok() && !matches!(command, Command::Flush | Command::Disconnect) {
            prop_assert!(u128::from(offset) + u128::from(header.length) <= u128::from(size));
            prop_assert!(header.length > 0);
        }
    }
}
