//! No input causes a panic: random bytes, and small files of every format after limited, seeded damage. The tests call
//! the same functions as the fuzz targets.

use proptest::prelude::*;
use testkit::damage::Damage;
use trace::fuzzing;

use crate::common::{self, corpus, small_native};

fn damage(by: &mut Damage, bytes: &mut Vec<u8>) {
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
    for _ in 0..=by.below(4) {
        let at = by.below(bytes.len());
        match by.below(5) {
            0 if !bytes.is_empty() => bytes[at] = by.number() as u8,
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => {
                let copy = bytes[at..].to_vec();
                bytes.extend(copy);
            }
            _ => {
                let token = TOKENS[by.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
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
fn damaged_files_do_not_panic() {
    let mut files: Vec<Vec<u8>> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    files.push(small_native());
    files.push(common::MEASUREMENTS.as_bytes().to_vec());
    let packed: Vec<Vec<u8>> = files
        .iter()
        .take(2)
        .map(|bytes| zstd::stream::encode_all(bytes.as_slice(), 1).unwrap())
        .collect();
    files.extend(packed);
    let mut by = Damage(1);
    for round in 0..120 {
        for file in &files {
            let mut bytes = file.clone();
            if round > 0 {
                damage(&mut by, &mut bytes);
            }
            TARGETS.iter().for_each(|target| target(&bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        TARGETS.iter().for_each(|target| target(&bytes));
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "[0-9,\\t\\n .;eERWrd\"=:-]{0,300}") {
        TARGETS.iter().for_each(|target| target(text.as_bytes()));
    }
}
