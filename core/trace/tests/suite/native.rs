//! Native format: written traces can be read, and damaged ones are rejected.

use model::Op;
use proptest::prelude::*;
use trace::native::{Latencies, NativeFile, NativeOptions, RECORDS_PER_BLOCK};
use trace::{
    LATENCY_UNKNOWN, LoadedTrace, NativeError, NativeTrace, ReadOptions, TraceError, TraceStream,
    convert, load,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::common::{Row, native, record, small_native};

fn open_verified(bytes: &[u8]) -> Result<NativeTrace, TraceError> {
    let trace = NativeTrace::from_bytes("small.trc", bytes)?;
    trace.verify()?;
    Ok(trace)
}

#[test]
fn native_layout_is_the_documented_one() {
    let bytes = small_native();
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(&bytes[..8], b"\x89TRC\r\n\x1a\n");
    assert_eq!(
        (u32_at(8), u32_at(12), u64_at(16), u64_at(24)),
        (1, 3, 4, 9)
    );
    assert_eq!((u64_at(32) as i64, u32_at(40), u32_at(44)), (-5, 2, 13));
    assert_eq!(
        [u64_at(48), u64_at(56), u64_at(64), u64_at(72)],
        [1, 1, 1, 1]
    );
    assert_eq!([u64_at(80), u64_at(88), u64_at(96)], [512, 4096, 1 << 20]);
    assert_eq!((u32_at(104), u32_at(108)), (16_384, 24));
    assert_eq!(u64_at(120), xxh3_64(&bytes[..120]));
    // Sections: records, latencies, volumes, names (13 bytes, padded), checksums.
    let (latencies, volumes) = (128 + 4 * 24, 128 + 4 * 32);
    let (names, sums) = (volumes + 2 * 64, volumes + 2 * 64 + 16);
    assert_eq!(bytes.len(), sums + 16);
    assert_eq!(
        (
            u64_at(128),
            u64_at(136),
            u32_at(144),
            bytes[148],
            bytes[151]
        ),
        (0, 4096, 512, 1, 0)
    );
    assert_eq!([u64_at(latencies), u64_at(latencies + 8)], [100, u64::MAX]);
    assert_eq!(u64_at(volumes + 64 + 48), (1 << 40) + (1 << 20));
    assert_eq!(&bytes[names..names + 16], b"bootdata disk\0\0\0");
    assert_eq!(
        [u64_at(sums), u64_at(sums + 8)],
        [
            xxh3_64(&bytes[128..latencies]),
            xxh3_64(&bytes[latencies..volumes])
        ]
    );
    assert_eq!(u64_at(112), xxh3_64(&bytes[volumes..]));
}

#[test]
fn native_trace_with_any_flipped_bit_is_refused() {
    let good = small_native();
    open_verified(&good).unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(open_verified(&bad).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn truncated_or_extended_native_trace_is_refused() {
    let good = small_native();
    for length in 0..good.len() {
        assert!(
            NativeTrace::from_bytes("x", &good[..length]).is_err(),
            "{length}"
        );
    }
    let longer = [good.as_slice(), &[0]].concat();
    let error = NativeTrace::from_bytes("x", &longer)
        .unwrap_err()
        .to_string();
    assert!(error.contains("truncated or damaged"), "{error}");
}

/// Recomputes the checksums of [`small_native`] for the present content of its sections.
fn reseal(bytes: &mut [u8]) {
    let (latencies, volumes) = (128 + 4 * 24, 128 + 4 * 32);
    let sums = bytes.len() - 16;
    for (at, range) in [(sums, 128..latencies), (sums + 8, latencies..volumes)] {
        let sum = xxh3_64(&bytes[range]).to_le_bytes();
        bytes[at..at + 8].copy_from_slice(&sum);
    }
    let tables = xxh3_64(&bytes[volumes..]).to_le_bytes();
    bytes[112..120].copy_from_slice(&tables);
    let header = xxh3_64(&bytes[..120]).to_le_bytes();
    bytes[120..128].copy_from_slice(&header);
}

#[test]
fn invalid_native_trace_with_valid_checksums_is_refused() {
    let r = |i: usize| 128 + 24 * i;
    let volumes = 128 + 4 * 32;
    for (at, value, says) in [
        (r(0) + 23, 4, "unknown op code"),
        (r(0) + 20, 2, "beyond the table of volumes"),
        (r(2) + 16, 1, "a flush must have no range"),
        (r(1) + 17, 0, "zero length"),
        (r(0) + 8 + 7, 0xff, "beyond the largest end"),
        (r(1), 6, "time decreases"),
        (24, 8, "totals of the trace"),
        (80, 1, "totals of the trace"),
        (volumes, 7, "totals of volume \"boot\""),
        (volumes + 64 + 55, 0x7f, "totals of volume \"data disk\""),
        (volumes + 128, 0, "control characters"),
        (volumes + 128 + 15, 1, "padding"),
        (volumes + 60, 5, "does not follow"),
        (12, 15, "unknown flags"),
        (40, 1, "bytes, but its header requires"),
        (48, 2, "differs from the number of records"),
        (8, 2, "version 2 is not supported"),
    ] {
        let mut bad = small_native();
        bad[at] = value;
        reseal(&mut bad);
        let error = open_verified(&bad).unwrap_err().to_string();
        assert!(
            error.starts_with("small.trc: ") && error.contains(says),
            "byte {at}: {error}"
        );
    }
    let mut good = small_native();
    reseal(&mut good);
    open_verified(&good).unwrap();
}

#[test]
fn record_count_is_compared_with_the_file_size_first() {
    for records in [5, 1 << 32, (u64::MAX / 24) - 3, u64::MAX / 8, u64::MAX] {
        let mut bad = small_native();
        bad[16..24].copy_from_slice(&records.to_le_bytes());
        bad[48..56].copy_from_slice(&(records - 3).to_le_bytes());
        reseal(&mut bad);
        let error = open_verified(&bad).unwrap_err().to_string();
        assert!(
            error.contains("bytes, but its header requires"),
            "{records}: {error}"
        );
    }
}

#[test]
fn damaged_block_is_named_with_its_position() {
    let records: Vec<_> = (0..2 * RECORDS_PER_BLOCK as u64 + 5)
        .map(|i| record((i, 0, Op::Read, 512 * i, 512)))
        .collect();
    let mut bytes = native(&records, None, &["v"]);
    bytes[128 + 24 * RECORDS_PER_BLOCK + 3] ^= 1;
    let TraceError::Native { error, .. } = open_verified(&bytes).unwrap_err() else {
        panic!()
    };
    let start_byte = 128 + 24 * RECORDS_PER_BLOCK as u64;
    let end_byte = start_byte + 24 * RECORDS_PER_BLOCK as u64;
    assert_eq!(
        error,
        NativeError::Checksum {
            section: "records block 1".into(),
            start_byte,
            end_byte
        }
    );
    let trace = NativeTrace::from_bytes("x", &bytes).unwrap();
    let blocks: Vec<_> = trace.verified_blocks().collect();
    assert!(
        blocks.len() == 2 && blocks[0].is_ok() && blocks[1].is_err(),
        "nothing follows a damaged block"
    );
}

#[test]
fn empty_trace_is_valid() {
    let trace = open_verified(&native(&[], None, &[])).unwrap();
    assert_eq!(
        (
            trace.records().len(),
            trace.span_ns(),
            trace.volumes().len()
        ),
        (0, 0, 0)
    );
    let trace = open_verified(&native(&[], Some(&[]), &["unused"])).unwrap();
    assert_eq!(trace.latencies(), Some(&[][..]));
}

#[test]
fn native_writer_refuses_invalid_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.trc");
    let create = || NativeFile::create(&path, NativeOptions::default(), Latencies::Stored).unwrap();
    let mut file = create();
    file.push(record((5, 0, Op::Read, 0, 512)), None).unwrap();
    for (row, says) in [
        ((4, 0, Op::Read, 0, 512), "1 ns before"),
        ((5, 0, Op::Write, 0, 0), "zero length"),
        ((5, 0, Op::Write, u64::MAX, 512), "beyond 2^64"),
        ((5, 1 << 20, Op::Write, 0, 512), "volume index"),
    ] {
        let error = file.push(record(row), None).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for names in [&[][..], &["a\nb"], &[""], &["same", "same"]] {
        let mut file = create();
        file.push(record((5, 0, Op::Read, 0, 512)), None).unwrap();
        assert!(file.finish(names.iter().copied()).is_err(), "{names:?}");
    }
    drop(file);
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
}

#[test]
fn constructed_records_are_checked_like_read_ones() {
    let good = [(0, 0, Op::Read, 0, 512), (5, 1, Op::Flush, 0, 0)].map(record);
    let trace = LoadedTrace::from_records(good.to_vec(), None, &["a", "b"]).unwrap();
    let native = NativeTrace::from_bytes("x", &native(&good, None, &["a", "b"])).unwrap();
    assert_eq!(
        (trace.content_hash.clone(), trace.span_ns),
        (native.content_hash(), 5)
    );
    assert_eq!(trace.volumes, native.volumes());
    let refused = |records: &[_], latencies, names: &[&str]| {
        LoadedTrace::from_records(records.to_vec(), latencies, names).is_err()
    };
    assert!(refused(&good, None, &["a"]) && refused(&good, None, &["a", "a"]));
    assert!(refused(&good, Some(vec![1]), &["a", "b"]));
    assert!(refused(&[good[1], good[0]], None, &["a", "b"]));
}

#[test]
fn volumes_hash_depends_on_names_and_times() {
    let records = [(0, 0, Op::Read, 0, 512), (5, 1, Op::Read, 0, 512)].map(record);
    let of = |names: &[&str]| LoadedTrace::from_records(records.to_vec(), None, names).unwrap();
    let (trace, mut other) = (of(&["a", "b"]), of(&["b", "a"]));
    assert_eq!(trace.content_hash, other.content_hash);
    assert_ne!(trace.volumes_hash(), other.volumes_hash());
    let exchanged = other.volumes_hash();
    other.times = trace::Times::Order;
    assert_ne!(exchanged, other.volumes_hash());
}

fn requests() -> impl Strategy<Value = Vec<(Row, Option<u64>)>> {
    let op = prop::sample::select(Op::ALL.to_vec());
    let row = (
        0..1u64 << 40,
        0..3u32,
        op,
        0..u64::MAX >> 1,
        1..u32::MAX,
        prop::option::of(0..u64::MAX >> 1),
    );
    prop::collection::vec(row, 1..80).prop_map(|rows| {
        let mut time = 0;
        let mut out = Vec::new();
        for (i, (gap, volume, op, offset, length, latency)) in rows.into_iter().enumerate() {
            time += if i == 0 { 0 } else { gap };
            // Volumes in order of first appearance, as readers of text number them.
            let volume = if i < 3 { i as u32 } else { volume };
            out.push(((time, volume, op, offset, length), latency));
        }
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The conversions native → file → native, and native → CSV (plain and compressed) → native, preserve the trace.
    #[test]
    fn native_trace_round_trips(rows in requests(), quoting in "[a-z\",;' ]{0,6}z") {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let records: Vec<_> = rows.iter().map(|(row, _)| record(*row)).collect();
        let names = [format!("x{quoting}"), "b".into(), "ü".into()];
        let names = || names.iter().take(rows.len()).map(String::as_str);
        let mut file = NativeFile::create(&path("a.trc"), NativeOptions::default(), Latencies::Stored).unwrap();
        for (record, (_, latency)) in records.iter().zip(&rows) {
            file.push(*record, *latency).unwrap();
        }
        let summary = file.finish(names()).unwrap();
        let options = ReadOptions::default();
        let first = load(&path("a.trc"), &options).unwrap();
        prop_assert!(first.is_mapped());
        prop_assert_eq!(first.records(), records.as_slice());
        let latencies: Vec<u64> = rows.iter().map(|(_, l)| l.unwrap_or(LATENCY_UNKNOWN)).collect();
        prop_assert_eq!(first.latencies(), Some(latencies.as_slice()));
        prop_assert_eq!(&first.content_hash, &summary.content_hash);
        for (from, to) in [("a.trc", "b.csv"), ("b.csv", "c.trc"), ("c.trc", "d.csv.zst"), ("d.csv.zst", "e.trc")] {
            let mut stream = TraceStream::open(&path(from), &options).unwrap();
            convert(&mut stream, &path(to), &mut |_| {}).unwrap();
            let again = load(&path(to), &options).unwrap();
            prop_assert_eq!(again.records(), records.as_slice(), "{}", to);
            prop_assert_eq!(again.latencies(), first.latencies());
            prop_assert_eq!(&again.volumes, &first.volumes);
            prop_assert_eq!(&again.content_hash, &first.content_hash);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        trace::fuzzing::native(&bytes);
        let magic = [small_native()[..8].to_vec(), bytes].concat();
        trace::fuzzing::native(&magic);
    }

    /// Damage with valid checksums: the later checks must detect it without them.
    #[test]
    fn damaged_bytes_with_valid_checksums_do_not_panic(damage in prop::collection::vec((0..400usize, any::<u8>()), 1..6)) {
        let mut bytes = small_native();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        reseal(&mut bytes);
        trace::fuzzing::native(&bytes);
    }
}
