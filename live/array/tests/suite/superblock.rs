//! Superblocks: encoding, decoding, and errors of damaged ones.

use algo::Rng;
use array::{ArrayId, SUPERBLOCK_BYTES, Stamp, Superblock, SuperblockError};
use units::{Bytes, DeviceId};
use xxhash_rust::xxh3::xxh3_64;

const GOOD: Superblock = Superblock {
    array: ArrayId(*b"0123456789abcdef"),
    device: DeviceId(0x0102),
    extent: Bytes(1 << 20),
    slots: 0x0304_0506,
    stamp: Stamp {
        generation: 0x0708,
        nonce: 0x090a,
    },
    flushed: true,
    boot: 0x0b0c,
    commits: 0x0d0e,
};

/// Returns a superblock with other bytes at an offset and a valid checksum.
fn with(at: usize, bytes: &[u8]) -> [u8; SUPERBLOCK_BYTES] {
    let mut block = GOOD.encode();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = xxh3_64(&block[..4088]);
    block[4088..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[test]
fn superblock_has_the_documented_layout() {
    let block = GOOD.encode();
    assert_eq!(block[..12], *b"\x89TRD\r\n\x1a\n\x03\0\0\0");
    assert_eq!(block[12..16], [2, 1, 0, 0]);
    assert_eq!(block[16..32], *b"0123456789abcdef");
    assert_eq!(block[32..44], [0, 0, 0x10, 0, 0, 0, 0, 0, 6, 5, 4, 3]);
    assert_eq!(
        block[44..60],
        [8, 7, 0, 0, 0, 0, 0, 0, 10, 9, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(block[60..64], [1, 0, 0, 0]);
    assert_eq!(
        u128::from_le_bytes(block[64..80].try_into().unwrap()),
        0x0b0c
    );
    assert_eq!(block[80..88], [14, 13, 0, 0, 0, 0, 0, 0]);
    assert!(block[88..4088].iter().all(|b| *b == 0));
    assert_eq!(with(0, &[]), block);
    let mut more = block.to_vec();
    more.resize(1 << 20, 7);
    assert_eq!(Superblock::decode(&more), Ok(GOOD));
}

#[test]
fn errors_name_field_and_offset() {
    let text = |block: &[u8]| Superblock::decode(block).unwrap_err().to_string();
    let short = SuperblockError::Short { found: 4095 };
    assert_eq!(Superblock::decode(&[0; 4095]), Err(short));
    assert_eq!(Superblock::decode(&[0; 4096]), Err(SuperblockError::Blank));
    assert!(text(&[0xEB; 4096]).contains("magic at byte 0"));
    for version in [0, 2, 4] {
        let expected = format!("version at byte 8 is {version}, and this program reads version 3");
        assert!(text(&with(8, &[version])).contains(&expected));
    }
    assert!(text(&with(15, &[1])).contains("reserved byte at byte 15"));
    assert!(text(&with(61, &[1])).contains("reserved byte at byte 61"));
    assert!(text(&with(60, &[2])).contains("flushed at byte 60"));
    assert!(text(&with(100, &[1])).contains("reserved byte at byte 100"));
    assert!(text(&with(32, &[1])).contains("extent size at byte 32"));
    assert!(text(&with(34, &[0])).contains("extent size at byte 32"));
    assert!(text(&with(40, &[0; 4])).contains("number of slots at byte 40"));
}

#[test]
fn superblock_with_any_flipped_bit_is_refused() {
    let good = GOOD.encode();
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut block = good;
        block[bit / 8] ^= 1 << (bit % 8);
        let error = Superblock::decode(&block).unwrap_err();
        match bit / 8 {
            0..8 => assert_eq!(error, SuperblockError::Magic),
            _ => assert_eq!(error, SuperblockError::Checksum),
        }
    }
}

#[test]
fn newest_intact_superblock_of_two_counts() {
    let both = |first: &[u8], second: &[u8]| Superblock::decode_both(&[first, second].concat());
    let later = Superblock {
        stamp: Stamp {
            generation: GOOD.stamp.generation + 1,
            nonce: 1,
        },
        flushed: false,
        ..GOOD
    };
    let (good, new) = (GOOD.encode(), later.encode());
    assert_eq!(both(&good, &new), Ok(later));
    assert_eq!(both(&new, &good), Ok(later));
    let mut torn = new;
    torn[..512].copy_from_slice(&good[..512]);
    assert_eq!(both(&torn, &new), Ok(later));
    assert_eq!(both(&good, &torn), Ok(GOOD));
    assert_eq!(both(&torn, &torn), Err(SuperblockError::Checksum));
    // Any other data at the start belongs to another program.
    assert_eq!(both(&[0; 4096], &new), Err(SuperblockError::Blank));
    assert_eq!(both(&[7; 4096], &new), Err(SuperblockError::Magic));
    // If both have one membership, the one that promises less counts.
    let used = Superblock {
        flushed: false,
        ..GOOD
    };
    assert_eq!(both(&good, &used.encode()), Ok(used));
    assert_eq!(both(&used.encode(), &good), Ok(used));
}

/// Content of the medium after a write that was not made durable: the old block, the new one, or parts of both.
fn perhaps(
    rng: &mut Rng,
    old: [u8; SUPERBLOCK_BYTES],
    new: [u8; SUPERBLOCK_BYTES],
) -> [u8; SUPERBLOCK_BYTES] {
    match rng.below(4) {
        0 => old,
        1 => new,
        _ => {
            let mut torn = old;
            let cut = 512 * rng.below(8) as usize;
            torn[cut..cut + 512].copy_from_slice(&new[cut..cut + 512]);
            torn
        }
    }
}

/// Kills, power losses and failed flushes in any order: the medium always has an intact superblock.
#[test]
fn two_superblocks_include_an_intact_one_at_any_crash() {
    testkit::seeds::run(0..2000, |seed| {
        let mut rng = Rng::new(seed, 1);
        let mut medium = [GOOD.encode(); 2];
        let mut cache = medium;
        for generation in 1..40 {
            let mut next = GOOD;
            // Sometimes the same superblock is written again.
            next.stamp.generation = generation / (1 + rng.below(2));
            for (at, block) in next.writes(&cache.concat()) {
                let place = at as usize / SUPERBLOCK_BYTES;
                let event = rng.below(20);
                match event {
                    // The process is killed during the write.
                    0 => cache[place] = perhaps(&mut rng, cache[place], block),
                    _ => cache[place] = block,
                }
                medium[place] = match event {
                    0..4 => perhaps(&mut rng, medium[place], cache[place]),
                    _ => block,
                };
                let found = Superblock::decode_both(&medium.concat());
                if found.is_err() {
                    return Err(format!("generation {generation}: {found:?}"));
                }
                match event {
                    // Power is lost.
                    1 => cache = medium,
                    // The flush fails.
                    0 | 2 | 3 => {}
                    _ => continue,
                }
                break;
            }
        }
        Ok(())
    });
}
