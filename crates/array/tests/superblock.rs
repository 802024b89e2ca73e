//! Superblocks: there and back, and what is wrong with those that are not.

use array::{ArrayId, SUPERBLOCK_BYTES, Superblock, SuperblockError};
use units::{Bytes, DeviceId};
use xxhash_rust::xxh3::xxh3_64;

const GOOD: Superblock = Superblock {
    array: ArrayId(*b"0123456789abcdef"),
    device: DeviceId(0x0102),
    extent: Bytes(1 << 20),
    slots: 0x0304_0506,
};

/// With other bytes at a place, and a checksum that fits.
fn with(at: usize, bytes: &[u8]) -> [u8; SUPERBLOCK_BYTES] {
    let mut block = GOOD.encode();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = xxh3_64(&block[..4088]);
    block[4088..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[test]
fn the_layout_is_what_the_page_says() {
    let block = GOOD.encode();
    assert_eq!(block[..12], *b"\x89TRD\r\n\x1a\n\x01\0\0\0");
    assert_eq!(block[12..16], [2, 1, 0, 0]);
    assert_eq!(block[16..32], *b"0123456789abcdef");
    assert_eq!(block[32..44], [0, 0, 0x10, 0, 0, 0, 0, 0, 6, 5, 4, 3]);
    assert!(block[44..4088].iter().all(|b| *b == 0));
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
    assert!(text(&with(8, &[2])).contains("version at byte 8 is 2, newer"));
    assert!(text(&with(8, &[0])).contains("version at byte 8: must not be 0"));
    assert!(text(&with(15, &[1])).contains("reserved byte at byte 15"));
    assert!(text(&with(100, &[1])).contains("reserved byte at byte 100"));
    assert!(text(&with(32, &[1])).contains("extent size at byte 32"));
    assert!(text(&with(34, &[0])).contains("extent size at byte 32"));
    assert!(text(&with(40, &[0; 4])).contains("number of slots at byte 40"));
}

#[test]
fn every_flipped_bit_is_seen() {
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
