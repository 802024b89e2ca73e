//! Claim of an array on a remote device. It names the server that may write to the device.
//!
//! ```text
//! offset  size  field                                       all numbers little-endian
//! ──────  ────  ───────────────────────────────────────
//! 0       8     magic: 89 'T' 'R' 'C' 0D 0A 1A 0A
//! 8       4     version: 1
//! 12      1     state: 1 released, 2 claiming, 3 owned
//! 13      3     zero
//! 16      16    array id
//! 32      16    home: the array directory of the owner
//! 48      16    owner id, random at each start
//! 64      8     generation: rises by one with each new owner
//! 72      8     counter: rises by one with each heartbeat
//! 80      4     interval of heartbeats, milliseconds
//! 84      4     process id of the owner
//! 88      8     time of the heartbeat, seconds since 1970, by the owner's clock
//! 96      64    host name of the owner, UTF-8, filled up with zeroes
//! 160     344   zero
//! 504     8     XXH3-64 of bytes 0..504
//! ```
//!
//! The first MiB of a remote device has two such blocks. The owner's claim is at [`OWNER_AT`], the
//! claim of a server that wants to become the owner at [`CONTENDER_AT`]. A block of zeroes is no
//! claim.

use array::ArrayId;
use xxhash_rust::xxh3::xxh3_64;

/// Offset of the owner's claim on the device.
pub(crate) const OWNER_AT: u64 = 16 << 10;

/// Offset of a contender's claim. It is in another page than the owner's: the two claims must never
/// be written together.
pub(crate) const CONTENDER_AT: u64 = 20 << 10;

/// Range of a remote device that is reserved for claims.
pub(in crate::device) const CLAIMS: std::ops::Range<u64> = OWNER_AT..CONTENDER_AT + (4 << 10);

/// Length of a claim: one sector, which disks write atomically.
pub(crate) const CLAIM_BYTES: usize = 512;

const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'C', 0x0D, 0x0A, 0x1A, 0x0A];
const VERSION: u32 = 1;
const HOST_BYTES: usize = 64;
const SUM_AT: usize = CLAIM_BYTES - 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClaimState {
    /// The last owner stopped in an orderly way.
    Released,
    /// Written by a server before it knows that it is the owner.
    Claiming,
    Owned,
}

/// A claim on a remote device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub state: ClaimState,
    pub array: ArrayId,
    /// Id of the array directory. Each copy of a directory has its own.
    pub home: u128,
    /// Random at each start.
    pub owner: u128,
    pub generation: u64,
    pub counter: u64,
    pub interval_ms: u32,
    pub pid: u32,
    /// Time of the write in seconds since 1970, by the writer's clock. For messages only.
    pub written_s: u64,
    pub host: String,
}

/// Content of a place for claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ClaimContent {
    /// Zeroes.
    Blank,
    Claim(Claim),
    /// Neither zeroes nor a claim of a known version.
    Damaged,
}

impl Claim {
    pub fn encode(&self) -> [u8; CLAIM_BYTES] {
        let mut block = [0; CLAIM_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(
            12,
            &[match self.state {
                ClaimState::Released => 1,
                ClaimState::Claiming => 2,
                ClaimState::Owned => 3,
            }],
        );
        put(16, &self.array.0);
        put(32, &self.home.to_le_bytes());
        put(48, &self.owner.to_le_bytes());
        put(64, &self.generation.to_le_bytes());
        put(72, &self.counter.to_le_bytes());
        put(80, &self.interval_ms.to_le_bytes());
        put(84, &self.pid.to_le_bytes());
        put(88, &self.written_s.to_le_bytes());
        put(96, shortened(&self.host).as_bytes());
        let sum = xxh3_64(&block[..SUM_AT]);
        block[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        block
    }
}

/// Returns the part of a host name that fits into a claim.
fn shortened(host: &str) -> &str {
    let fits = (0..=HOST_BYTES.min(host.len())).rev();
    let end = fits.into_iter().find(|end| host.is_char_boundary(*end));
    &host[..end.unwrap_or(0)]
}

impl ClaimContent {
    /// Decodes the content of a place for claims.
    pub fn decode(bytes: &[u8]) -> Self {
        let Some(block) = bytes.first_chunk::<CLAIM_BYTES>() else {
            return ClaimContent::Damaged;
        };
        if block.iter().all(|b| *b == 0) {
            return ClaimContent::Blank;
        }
        decode(block).map_or(ClaimContent::Damaged, ClaimContent::Claim)
    }

    pub fn claim(&self) -> Option<&Claim> {
        match self {
            ClaimContent::Claim(claim) => Some(claim),
            ClaimContent::Blank | ClaimContent::Damaged => None,
        }
    }
}

fn decode(block: &[u8; CLAIM_BYTES]) -> Option<Claim> {
    fn array<const N: usize>(block: &[u8; CLAIM_BYTES], at: usize) -> [u8; N] {
        block[at..at + N].try_into().expect("it is inside")
    }
    let sum = xxh3_64(&block[..SUM_AT]);
    let known = block[..8] == MAGIC && u32::from_le_bytes(array(block, 8)) == VERSION;
    if !known || block[SUM_AT..] != sum.to_le_bytes() {
        return None;
    }
    let state = match block[12] {
        1 => ClaimState::Released,
        2 => ClaimState::Claiming,
        3 => ClaimState::Owned,
        _ => return None,
    };
    let host: [u8; HOST_BYTES] = array(block, 96);
    let length = host.iter().position(|b| *b == 0).unwrap_or(HOST_BYTES);
    Some(Claim {
        state,
        array: ArrayId(array(block, 16)),
        home: u128::from_le_bytes(array(block, 32)),
        owner: u128::from_le_bytes(array(block, 48)),
        generation: u64::from_le_bytes(array(block, 64)),
        counter: u64::from_le_bytes(array(block, 72)),
        interval_ms: u32::from_le_bytes(array(block, 80)),
        pid: u32::from_le_bytes(array(block, 84)),
        written_s: u64::from_le_bytes(array(block, 88)),
        host: String::from_utf8_lossy(&host[..length]).into_owned(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a claim of the given owner and home.
    pub fn claim(state: ClaimState, home: u128, owner: u128) -> Claim {
        Claim {
            state,
            array: ArrayId([7; 16]),
            home,
            owner,
            generation: 1,
            counter: 1,
            interval_ms: 2000,
            pid: 4711,
            written_s: 1_800_000_000,
            host: "node-1".into(),
        }
    }

    #[test]
    fn claim_encoded_and_decoded_is_the_same() {
        for state in [
            ClaimState::Released,
            ClaimState::Claiming,
            ClaimState::Owned,
        ] {
            let claim = claim(state, u128::MAX - 1, 1 << 100);
            assert_eq!(
                ClaimContent::decode(&claim.encode()),
                ClaimContent::Claim(claim)
            );
        }
        assert_eq!(ClaimContent::decode(&[0; CLAIM_BYTES]), ClaimContent::Blank);
    }

    #[test]
    fn claim_with_any_flipped_bit_is_damaged() {
        let block = claim(ClaimState::Owned, 1, 2).encode();
        for bit in 0..CLAIM_BYTES * 8 {
            let mut block = block;
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                ClaimContent::decode(&block),
                ClaimContent::Damaged,
                "bit {bit}"
            );
        }
        assert_eq!(ClaimContent::decode(&block[..511]), ClaimContent::Damaged);
    }

    #[test]
    fn long_host_name_in_a_claim_is_cut_at_a_character() {
        let mut long = claim(ClaimState::Owned, 1, 2);
        long.host = format!("{}é", "x".repeat(HOST_BYTES - 1));
        let found = ClaimContent::decode(&long.encode());
        assert_eq!(
            found.claim().unwrap().host,
            "x".repeat(HOST_BYTES - 1).as_str()
        );
    }
}
