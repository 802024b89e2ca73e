//! Exact counts on real traces, which are not part of the repository: `../shared/traces` beside it, or wherever
//! `TERRACE_SHARED_TRACES` points. Without them the tests say so and pass.

use std::path::{Path, PathBuf};

use trace::measurements::Measurements;
use trace::{Format, ReadOptions, TraceInfo, TraceStream, convert, load};

#[allow(
    clippy::disallowed_methods,
    reason = "a test may be told where its files are"
)]
fn shared_traces() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let directory = std::env::var_os("TERRACE_SHARED_TRACES").map_or_else(beside, PathBuf::from);
    if !directory.is_dir() {
        println!("skipped: no ../shared/traces");
        return None;
    }
    Some(directory)
}

struct Golden {
    file: &'static str,
    format: Format,
    assumed: bool,
    requests: u64,
    reads: u64,
    volumes: usize,
    reversals: u64,
    /// Distinct pages of 4 KiB, counted by a program that shares nothing with this one.
    pages: u64,
}

const fn golden(file: &'static str, format: Format, counts: [u64; 4]) -> Golden {
    let [requests, reads, volumes, pages] = counts;
    Golden {
        file,
        format,
        assumed: false,
        requests,
        reads,
        volumes: volumes as usize,
        reversals: 0,
        pages,
    }
}

fn all() -> Vec<Golden> {
    use Format::{AsciiBytesMs, DiskMon, DiskSim, HadoopCsv, MqSim, Msr, SsdSim, Vscsi1};
    let assumed = |file, format, counts| Golden {
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
        Golden {
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
    ]
}

#[test]
fn exact_counts() {
    let Some(directory) = shared_traces() else {
        return;
    };
    for g in all() {
        let options = ReadOptions::default();
        let mut stream = TraceStream::open(&directory.join(g.file), &options).unwrap();
        let info = TraceInfo::collect(&mut stream, &mut |_| {}).unwrap();
        assert_eq!(
            (info.format, info.format_assumed),
            (g.format, g.assumed),
            "{}",
            g.file
        );
        let requests = (info.requests, info.reads, info.writes);
        assert_eq!(
            requests,
            (g.requests, g.reads, g.requests - g.reads),
            "{}",
            g.file
        );
        assert_eq!(
            (info.skipped_records, info.time_reversals),
            (0, g.reversals),
            "{}",
            g.file
        );
        assert_eq!(info.volumes.len(), g.volumes, "{}", g.file);
        assert_eq!(info.footprint_bytes, Some(g.pages * 4096), "{}", g.file);
    }
}

#[test]
fn converting_keeps_every_request() {
    let Some(directory) = shared_traces() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    for g in all() {
        let path = directory.join(g.file);
        let target = out.path().join("x.trc");
        let mut stream = TraceStream::open(&path, &ReadOptions::default()).unwrap();
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
            (native.span_ns, native.origin_unix_ns),
            (foreign.span_ns, foreign.origin_unix_ns)
        );
        assert_eq!(native.content_hash, foreign.content_hash);
    }
}

/// The digest and the archive it was made from: the same numbers, which `xz -dc | awk` adds up to as well.
#[test]
fn measurements_of_production_volumes() {
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
