//! No input panics: random bytes, and the little files of every format after bounded, seeded damage. The functions
//! are those that the fuzz targets call.

use proptest::prelude::*;
use trace::fuzzing;

use crate::common::{self, corpus, small_native};

/// splitmix64: a few lines, and the same damage on every machine.
struct Damage(u64);

impl Damage {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn apply(&mut self, bytes: &mut Vec<u8>) {
        const TOKENS: [&[u8]; 12] = [
            b"18446744073709551615",
            b"9223372036854775807",
            b"-1",
            b"1e308",
            b"\n",
            b",",
            b"\"",
            b"\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"0",
            b"\t",
            b" ",
        ];
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 if !bytes.is_empty() => bytes[at] = self.next() as u8,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => bytes.truncate(at),
                3 => {
                    let copy = bytes[at..].to_vec();
                    bytes.extend(copy);
                }
                _ => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    bytes.splice(at..at, token.iter().copied());
                }
            }
        }
    }
}

const TARGETS: [fn(&[u8]); 7] = [
    fuzzing::native,
    fuzzing::vscsi,
    fuzzing::csv,
    fuzzing::ascii,
    fuzzing::measurements,
    fuzzing::rows,
    fuzzing::detection,
];

#[test]
fn no_damaged_file_panics() {
    let mut files: Vec<Vec<u8>> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    files.push(small_native());
    files.push(common::MEASUREMENTS.as_bytes().to_vec());
    let packed: Vec<Vec<u8>> = files
        .iter()
        .take(2)
        .map(|bytes| zstd::stream::encode_all(bytes.as_slice(), 1).unwrap())
        .collect();
    files.extend(packed);
    let mut damage = Damage(1);
    for round in 0..120 {
        for file in &files {
            let mut bytes = file.clone();
            if round > 0 {
                damage.apply(&mut bytes);
            }
            TARGETS.iter().for_each(|target| target(&bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        TARGETS.iter().for_each(|target| target(&bytes));
    }

    #[test]
    fn no_text_panics(text in "[0-9,\\t\\n .;eERWrd\"=:-]{0,300}") {
        TARGETS.iter().for_each(|target| target(text.as_bytes()));
    }
}
