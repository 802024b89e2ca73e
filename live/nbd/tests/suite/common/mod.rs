//! Test exports, encoded options, and a client and a server on one pipe.
use nbd::*;

pub struct Shelf(pub Vec<Export>);

impl Exports for Shelf {
    fn find(&self, name: &str) -> Option<Export> {
        let wanted = if name.is_empty() { "disk" } else { name };
        self.0.iter().find(|export| export.name == wanted).cloned()
    }

    fn list(&self) -> Vec<Export> {
        self.0.clone()
    }
}

pub fn export(name: &str, description: &str, size: u64) -> Export {
    Export {
        name: name.into(),
        description: description.into(),
        size,
        flags: ExportFlags(0b1101_1110_1101),
        block: BlockSizes {
            minimum: 512,
            preferred: 4096,
            maximum: 1 << 20,
        },
    }
}

pub fn shelf() -> Shelf {
    Shelf(vec![
        export("disk", "the first", 1 << 30),
        export("größe", "", 512),
    ])
}

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED: u32 = 8;
pub const LIST_META: u32 = 9;
pub const SET_META: u32 = 10;

pub const ACK: u32 = 1;
pub const UNSUP: u32 = 0x8000_0001;
pub const POLICY: u32 = 0x8000_0002;
pub const INVALID: u32 = 0x8000_0003;
pub const TLS_REQD: u32 = 0x8000_0005;
pub const UNKNOWN: u32 = 0x8000_0006;
pub const TOO_BIG: u32 = 0x8000_0009;

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length, data].concat()
}

pub fn reply(number: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9];
    let length = (data.len() as u32).to_be_bytes();
    let front = [&number.to_be_bytes()[..], &kind.to_be_bytes()].concat();
    [&magic[..], &front, &length, data].concat()
}

pub fn counted(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text].concat()
}

pub fn info(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = counted(name.as_bytes());
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

pub fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = counted(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| counted(query.as_bytes())));
    data
}

/// Returns (option, type, data) of each reply.
pub fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = vec![];
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let (number, kind, length) = (word(8), word(12), word(16) as usize);
        let data = bytes[20..20 + length].to_vec();
        assert_eq!(&bytes[..20 + length], reply(number, kind, &data));
        bytes = &bytes[20 + length..];
        found.push((number, kind, data));
    }
    found
}

/// Returns (option, type) of each reply.
pub fn kinds(bytes: &[u8]) -> Vec<(u32, u32)> {
    let all = replies(bytes).into_iter();
    all.map(|(option, kind, _)| (option, kind)).collect()
}

/// Returns a server after client flags with fixed newstyle and no zeroes.
pub fn greeted() -> ServerHandshake {
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    let step = server.step(&[0, 0, 0, 3], &shelf(), &mut vec![]);
    assert_eq!(step, Ok((4, Progress::More)));
    server
}

/// Returns the server's progress and output for these options.
pub fn ask(server: &mut ServerHandshake, options: &[Vec<u8>]) -> (Progress, Vec<u8>) {
    let (bytes, mut out) = (options.concat(), vec![]);
    let (n, progress) = server.step(&bytes, &shelf(), &mut out).unwrap();
    assert_eq!(n, bytes.len());
    (progress, out)
}

/// Runs both sides of a handshake over a pipe that passes pieces of the given `sizes` in turn.
pub fn converse(
    exports: &dyn Exports,
    name: &str,
    wishes: ClientWishes,
    sizes: &[usize],
) -> Result<(Session, Session), WireError> {
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    let mut client = ClientHandshake::new(name, wishes);
    let (mut to_client, mut to_server) = (server.greeting().to_vec(), vec![]);
    let (mut served, mut got) = (None, None);
    for size in sizes.iter().cycle() {
        if let (Some(served), Some(got)) = (&served, &got) {
            assert!(to_client.is_empty() && to_server.is_empty());
            return Ok((Session::clone(served), Session::clone(got)));
        }
        assert!(!to_client.is_empty() || !to_server.is_empty(), "stuck");
        let n = (*size).min(to_client.len());
        let piece: Vec<u8> = to_client.drain(..n).collect();
        if n > 0 {
            let (taken, progress) = client.step(&piece, &mut to_server)?;
            assert_eq!(taken, n);
            if let ClientProgress::Ready(session) = progress {
                got = Some(*session);
            }
        }
        let n = (*size).min(to_server.len());
        let piece: Vec<u8> = to_server.drain(..n).collect();
        if n > 0 {
            let (taken, progress) = server.step(&piece, exports, &mut to_client)?;
            assert_eq!(taken, n);
            if let Progress::Ready(session) = progress {
                served = Some(*session);
            }
        }
    }
    unreachable!("sizes go round")
}
