//! Exact counts on real traces outside the repository: in `../shared/traces` next to it, or in the directory
//! `TERRACE_SHARED_TRACES`. Without them the tests print a message and pass.

use std::path::{Path, PathBuf};

use trace::measurements::Measurements;
use trace::{
    Format, IdPlacement, ReadOptions, SkipBad, Times, TraceInfo, TraceStream, convert, load,
};

#[allow(
    clippy::disallowed_methods,
    reason = "a test may be told where its files are"
)]
fn shared_traces() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let directory = std::env::var_os("TERRACE_SHARED_TRACES").map_or_else(beside, PathBuf::from);
    if !directory.is_dir() {
        testkit::needs::skipped("../shared/traces");
        return None;
    }
    Some(directory)
}

struct GoldenTrace {
    file: &'static str,
    format: Format,
    assumed: bool,
    requests: u64,
    reads: u64,
    volumes: usize,
    reversals: u64,
    /// Number of bad records.
    skipped: u64,
    /// Distinct pages of 4 KiB, counted by an independent program.
    pages: u64,
}

const fn golden(file: &'static str, format: Format, counts: [u64; 4]) -> GoldenTrace {
    let [requests, reads, volumes, pages] = counts;
    GoldenTrace {
        file,
        format,
        assumed: false,
        requests,
        reads,
        volumes: volumes as usize,
        reversals: 0,
        skipped: 0,
        pages,
    }
}

fn all() -> Vec<GoldenTrace> {
    use Format::{
        AsciiBytesMs, BlkEvents, Blkparse, DiskMon, DiskSim, HadoopCsv, IbmCos, Lirs, Lis, MqSim,
        Msr, SsdSim, Vscsi1,
    };
    let lirs = |file, references, ids| golden(file, Lirs, [references, references, 1, ids]);
    let cos = "ibm_cos_sample/IBMObjectStoreTrace000Part0.head.csv.xz";
    let assumed = |file, format, counts| GoldenTrace {
        assumed: true,
        ..golden(file, format, counts)
    };
    let vm = "cloudphysics_sample/cloudPhysicsIO.vscsi.xz";
    let hadoop = "hadoop6_blktrace/hadoop_issue.nodes2-3-6.csv.xz";
    let postmark = "ms_ssd_bench/ssd-postmark-aligned.trace.xz";
    let window = "msr_10k_windows/msr.cut.per_10k.rw_40_60.1370.trace.xz";
    let sys1 = golden(
        "diskmon_pc/sys1.trace.xz",
        DiskMon,
        [58_818, 29_590, 1, 174_758],
    );
    vec![
        golden(vm, Vscsi1, [113_872, 46_974, 1, 269_210]),
        golden("msr_small/wdev_1.csv.xz", Msr, [1055, 0, 1, 369]),
        golden("msr_small/wdev_3.csv.xz", Msr, [682, 11, 1, 316]),
        assumed(
            "ms_dtrs/DTRS1K.trace.xz",
            SsdSim,
            [127_043, 113_123, 1, 1_272_267],
        ),
        golden(
            "ms_ssd_bench/pcmark.xz",
            DiskSim,
            [56_088, 41_848, 1, 581_569],
        ),
        golden(postmark, DiskSim, [62_257, 51_780, 1, 1_533_388]),
        golden(
            "diskmon_pc/mayun.txt.xz",
            DiskMon,
            [24_844, 14_180, 1, 68_981],
        ),
        golden(
            "diskmon_pc/mayun4.txt.xz",
            DiskMon,
            [17_428, 6424, 1, 81_699],
        ),
        GoldenTrace {
            reversals: 64,
            ..sys1
        },
        golden(hadoop, HadoopCsv, [308_301, 306_675, 3, 22_217_445]),
        assumed(
            "mqsim_small/tpcc-small.trace.xz",
            MqSim,
            [6999, 4381, 16, 20_470],
        ),
        assumed(
            "mqsim_small/wsrch-small.trace.xz",
            MqSim,
            [24_783, 24_779, 6, 93_029],
        ),
        assumed(window, AsciiBytesMs, [10_000, 4054, 1, 8968]),
        // 186 880 blocks of 512 bytes, eight per page.
        golden("arc_lis/OLTP.lis.zst", Lis, [914_145, 914_145, 1, 23_361]),
        golden("arc_lis/P2.lis.zst", Lis, [666_176, 666_176, 1, 120_308]),
        golden("arc_lis/P3.lis.zst", Lis, [238_578, 238_578, 1, 102_348]),
        lirs("cache_misc/lirs_2_pools.trace.gz", 100_000, 9939),
        lirs("cache_misc/lirs_cpp.trace.gz", 9047, 1223),
        lirs("cache_misc/lirs_cs.trace.gz", 6781, 1409),
        lirs("cache_misc/lirs_gli.trace.gz", 6015, 2529),
        lirs("cache_misc/lirs_multi1.trace.gz", 15_858, 2606),
        lirs("cache_misc/lirs_multi2.trace.gz", 26_311, 5684),
        lirs("cache_misc/lirs_multi3.trace.gz", 30_241, 7454),
        lirs("cache_misc/lirs_ps.trace.gz", 10_448, 3083),
        lirs("cache_misc/lirs_sprite.trace.gz", 133_996, 7075),
        golden(
            "format_fixtures/apress_blktrace.txt.xz",
            Blkparse,
            [15_524, 80, 1, 17_901],
        ),
        golden(
            "format_fixtures/ycsb_ssdtrace-sample.xz",
            Blkparse,
            [1695, 1695, 1, 48_379],
        ),
        golden(
            "format_fixtures/sqlitewal-240k-inserts.blkparse-events.txt.xz",
            BlkEvents,
            [5000, 5000, 1, 5327],
        ),
        GoldenTrace {
            skipped: 1,
            ..golden(
                "format_fixtures/sqlitewal-240k-inserts.mkfs-events.txt.xz",
                BlkEvents,
                [19_999, 48, 1, 16_547],
            )
        },
        golden(
            "format_fixtures/sqlitewal-update.blkparse-events.txt.xz",
            BlkEvents,
            [5008, 4, 1, 2174],
        ),
        golden(cos, IbmCos, [2562, 2322, 1, 2_116_816]),
    ]
}

#[test]
fn shared_traces_have_exact_counts() {
    let Some(directory) = shared_traces() else {
        return;
    };
    for g in all() {
        let options = ReadOptions {
            skip_bad: SkipBad { limit: g.skipped },
            ..ReadOptions::default()
        };
        let mut stream = TraceStream::open(&directory.join(g.file), &options).unwrap();
        let info = TraceInfo::collect(&mut stream, &mut |_| {}).unwrap();
        assert_eq!(
            (info.format, info.format_assumed),
            (g.format, g.assumed),
            "{}",
            g.file
        );
        let requests = (info.requests, info.reads, info.writes + info.trims);
        assert_eq!(
            requests,
            (g.requests, g.reads, g.requests - g.reads),
            "{}",
            g.file
        );
        assert_eq!(
            (info.skipped_records, info.time_reversals),
            (g.skipped, g.reversals),
            "{}",
            g.file
        );
        assert_eq!(info.volumes.len(), g.volumes, "{}", g.file);
        assert_eq!(info.footprint_bytes, Some(g.pages * 4096), "{}", g.file);
    }
}

#[test]
fn conversion_preserves_each_request() {
    let Some(directory) = shared_traces() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    for g in all() {
        let path = directory.join(g.file);
        let target = out.path().join("x.trc");
        let skip_bad = SkipBad { limit: g.skipped };
        let detected = ReadOptions {
            skip_bad,
            ..ReadOptions::default()
        };
        let mut stream = TraceStream::open(&path, &detected).unwrap();
        let converted = convert(&mut stream, &target, &mut |_| {});
        if g.assumed {
            assert!(
                converted.unwrap_err().to_string().contains("--format"),
                "{}",
                g.file
            );
        }
        let options = ReadOptions {
            format: Some(g.format),
            skip_bad,
            ..ReadOptions::default()
        };
        let mut stream = TraceStream::open(&path, &options).unwrap();
        convert(&mut stream, &target, &mut |_| {}).unwrap();
        let (foreign, native) = (
            load(&path, &options).unwrap(),
            load(&target, &ReadOptions::default()).unwrap(),
        );
        assert!(native.is_mapped() && !foreign.is_mapped());
        assert_eq!(native.records(), foreign.records(), "{}", g.file);
        assert_eq!(native.latencies(), foreign.latencies());
        assert_eq!(native.volumes, foreign.volumes);
        assert_eq!(
            (native.span_ns, native.origin_unix_ns, native.times),
            (foreign.span_ns, foreign.origin_unix_ns, foreign.times)
        );
        assert_eq!(native.content_hash, foreign.content_hash);
    }
}

/// The digest and its archive have the same numbers, and `xz -dc | awk` computes the same sums.
#[test]
fn measurements_of_production_volumes_are_read() {
    let Some(directory) = shared_traces() else {
        return;
    };
    let path = |file: &str| directory.join("cloudphysics_features").join(file);
    let (digest, archive) = (
        path("vm_halfhour_4k.dev.csv.xz"),
        path("block_snapshots.dev.tar.xz"),
    );
    assert!(
        Measurements::recognized(&digest).unwrap() && Measurements::recognized(&archive).unwrap()
    );
    let mut read = Measurements::read(&digest).unwrap();
    let intervals: usize = read.volumes.iter().map(|v| v.intervals.len()).sum();
    assert_eq!((read.volumes.len(), intervals), (53, 16_283));
    let total = read.total_load();
    assert_eq!(total.reads_4k + total.writes_4k, 10_773_482_215);
    let mut snapshots = Measurements::read(&archive).unwrap();
    read.volumes.sort_by(|a, b| a.name.cmp(&b.name));
    snapshots.volumes.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(
        read == snapshots,
        "the digest is not what the snapshots say"
    );
    let error = TraceStream::open(&digest, &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("not requests"), "{error}");
}

/// Every file is a trace or measurements, or its error states the problem.
#[test]
fn shared_files_are_traces_or_explained_errors() {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let Some(directory) = shared_traces() else {
        return;
    };
    let mut files = Vec::new();
    walk(&directory, &mut files);
    let known: Vec<PathBuf> = all().iter().map(|g| directory.join(g.file)).collect();
    for file in files.iter().filter(|file| !known.contains(file)) {
        if Measurements::recognized(file).unwrap() {
            continue;
        }
        let error = TraceStream::open(file, &ReadOptions::default()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("not a trace: neither"), "{said}");
    }
}

/// A trace without times is marked as such, and blocks can have another size.
#[test]
fn traces_without_times_have_no_rates() {
    let Some(directory) = shared_traces() else {
        return;
    };
    let options = ReadOptions {
        ids: Some(IdPlacement::Blocks(units::Bytes(4096))),
        ..ReadOptions::default()
    };
    let path = directory.join("arc_lis/OLTP.lis.zst");
    let mut stream = TraceStream::open(&path, &options).unwrap();
    let info = TraceInfo::collect(&mut stream, &mut |_| {}).unwrap();
    assert_eq!(info.times, Times::Order);
    assert_eq!(
        (info.span_s, info.mean_iops, info.peak_iops_1s),
        (None, None, None)
    );
    assert!(info.load.is_none() && info.volumes[0].load.is_none());
    assert_eq!(info.footprint_bytes, Some(186_880 * 4096));
}

/// Events that are not requests are counted.
#[test]
fn events_other_than_requests_are_counted() {
    let Some(directory) = shared_traces() else {
        return;
    };
    for (file, others) in [
        // One of them is a completion of sectors without a count: that of a flush.
        ("format_fixtures/apress_blktrace.txt.xz", 34_306),
        ("format_fixtures/ycsb_ssdtrace-sample.xz", 6611),
        (
            "ibm_cos_sample/IBMObjectStoreTrace000Part0.head.csv.xz",
            10_000 - 2562,
        ),
        ("cache_misc/lirs_2_pools.trace.gz", 2),
    ] {
        let mut stream = TraceStream::open(&directory.join(file), &ReadOptions::default()).unwrap();
        let info = TraceInfo::collect(&mut stream, &mut |_| {}).unwrap();
        assert_eq!(info.other_events, others, "{file}");
    }
}
