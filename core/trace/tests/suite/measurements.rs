//! Load measurements: both forms, their errors, and their statistics.

use std::io::Cursor;

use trace::measurements::{Interval, Measurements, VolumeMeasurements};
use units::{Bytes, Nanos};

const HEADER: &str =
    "vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes\n";
const ROWS: &str = "\
a,0,1799000000,1800,1800,8192,4096,8192
b,0,1000,0,90000,4096,0,4096
a,1,1799000000,0,0,0,0,0
a,2,3600000001,0,36000,4096,0,4096
a,4,7200500000,10,0,4096,4096,0
";

fn read(bytes: impl Into<Vec<u8>>) -> Result<Measurements, String> {
    Measurements::from_reader("m", Cursor::new(bytes.into())).map_err(|e| e.to_string())
}

fn good() -> Measurements {
    read(format!("{HEADER}{ROWS}")).unwrap()
}

/// Returns a member of a tar archive.
fn member(name: &str, contents: &str) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut out = header.to_vec();
    out.extend(contents.as_bytes());
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

const SNAPSHOT: &str = "\
ts,index,write_block_req_count,block_req_count,read_block_req_count,comment,page_working_set_size,\
read_page_working_set_size,write_page_working_set_size
1799000000,0,1800,3600,1800,1e-3,8192,4096,8192
1799000000,1,0,0,0,,0,0,0
3600000001,2,36000,36000,0,,4096,0,4096
7200500000,4,0,10,10,,4096,4096,0
";

fn archive() -> Vec<u8> {
    let other = "ts,index,write_block_req_count,block_req_count,read_block_req_count,comment,page_working_set_size,\
                 read_page_working_set_size,write_page_working_set_size\n1000,0,90000,90000,0,,4096,0,4096\n";
    let mut out = member("sums.csv", "not,ours\n");
    out.extend(member("x/block_snap_a.csv", SNAPSHOT));
    out.extend(member("x/block_snap_b.csv", other));
    out.extend([0; 1024]);
    out
}

#[test]
fn rows_become_slots_with_gaps_and_a_truncated_end() {
    let got = good();
    let names: Vec<&str> = got.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let spans = |v: &VolumeMeasurements| -> Vec<(u64, u64)> {
        v.intervals
            .iter()
            .map(|i| (i.start.0 / 1_000_000, i.end.0 / 1_000_000))
            .collect()
    };
    let half_hour = 1_800_000;
    assert_eq!(
        spans(&got.volumes[0]),
        [
            (0, half_hour),
            (half_hour, 2 * half_hour),
            (2 * half_hour, 3 * half_hour),
            (4 * half_hour, 4 * half_hour + 500),
        ]
    );
    assert_eq!(spans(&got.volumes[1]), [(0, 1)]);
    let first = got.volumes[0].intervals[0];
    assert_eq!((first.read_pages, first.write_pages), (1800, 1800));
    assert_eq!(
        (
            first.working_set,
            first.read_working_set,
            first.write_working_set
        ),
        (Bytes(8192), Bytes(4096), Bytes(8192))
    );
    assert_eq!(got.volumes[1].intervals[0].end, Nanos(1_000_000));
}

/// A last request at exactly 30 minutes belongs to the slot that ends, or to the one that begins. Both kinds of files
/// can be read.
#[test]
fn end_on_a_slot_boundary_belongs_to_either_slot() {
    let half_hour = 1_800_000_000_000;
    let spans = |rows: &str| -> Vec<(u64, u64)> {
        let got = read(format!("{HEADER}{rows}\n")).unwrap();
        let intervals = got.volumes[0].intervals.iter();
        intervals.map(|i| (i.start.0, i.end.0)).collect()
    };
    // It belongs to the slot that ends, also in the last row, and also with an idle slot after it that repeats the end.
    assert_eq!(spans("a,0,1800000000,1,0,0,0,0"), [(0, half_hour)]);
    assert_eq!(
        spans("a,0,1800000000,1,0,0,0,0\na,1,1800000000,0,0,0,0,0"),
        [(0, half_hour), (half_hour, 2 * half_hour)]
    );
    assert_eq!(
        spans("a,0,1800000000,1,0,0,0,0\na,1,1800000500,1,0,0,0,0"),
        [(0, half_hour), (half_hour, half_hour + 500_000)]
    );
    // It belongs to the slot that begins. The real end of the last slot is unknown.
    assert_eq!(
        spans("a,1,1800000000,1,0,0,0,0\na,2,3600000000,1,0,0,0,0"),
        [(half_hour, 2 * half_hour), (2 * half_hour, 3 * half_hour)]
    );
    let loads = read(format!("{HEADER}a,0,1800000000,1800,0,0,0,0\n"))
        .unwrap()
        .loads();
    assert_eq!(loads[0].measured_s, 1800.0);
}

#[test]
fn columns_are_read_by_name_and_an_archive_gives_the_same() {
    let swapped = "write_wss_bytes,vm,index,more,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes\n\
                   8192,a,0,x,1799000000,1800,1800,8192,4096\n";
    let interval = read(swapped).unwrap().volumes[0].intervals[0];
    // Here this is the volume's last row in the file, so the interval ends with its last request.
    let end = Nanos(1_799_000_000_000);
    assert_eq!(
        interval,
        Interval {
            end,
            ..good().volumes[0].intervals[0]
        }
    );
    assert_eq!(read(archive()).unwrap(), good());
    let packed = zstd::stream::encode_all(archive().as_slice(), 1).unwrap();
    assert_eq!(read(packed).unwrap(), good());
}

#[test]
fn means_and_peaks_of_measurements_are_computed() {
    let loads = good().loads();
    let a = loads[0];
    assert_eq!((a.intervals, a.measured_s), (4, 5400.5));
    assert_eq!((a.reads_4k, a.writes_4k), (1810, 37_800));
    assert_eq!(a.iops_4k_mean, 39_610.0 / 5400.5);
    // 36 000 in half an hour. The 10 accesses in the last half second are not a peak.
    assert_eq!(
        (a.iops_4k_peak, a.bandwidth_bytes_per_s_peak),
        (20.0, 81_920.0)
    );
    assert_eq!(a.peak_to_mean, Some(20.0 / (39_610.0 / 5400.5)));
    assert_eq!(a.write_share, Some(37_800.0 / 39_610.0));
    assert_eq!(a.working_set_bytes_max, 8192);
    // The only interval is shortened, so it is its own peak.
    assert_eq!(
        (loads[1].iops_4k_mean, loads[1].iops_4k_peak),
        (90_000_000.0, 90_000_000.0)
    );
    let total = good().total_load();
    assert_eq!((total.intervals, total.measured_s), (4, 5400.5));
    assert_eq!(total.iops_4k_peak, 93_600.0 / 1800.0);
    assert_eq!(
        (total.reads_4k, total.writes_4k, total.working_set_bytes_max),
        (1810, 127_800, 12_288)
    );
}

#[test]
fn invalid_rows_are_refused_by_line_and_column() {
    for (rows, says) in [
        (
            "a,x,1,1,0,0,0,0",
            "m: line 2: index \"x\": not a whole number",
        ),
        (
            "a,0,1,1,0,0,0",
            "line 2: line \"a,0,1,1,0,0,0\": 7 columns, but the header has 8",
        ),
        (
            "a,0,1,1,0,0,0,0\na,0,2,1,0,0,0,0",
            "line 3: index \"0\": not after 0",
        ),
        (
            "a,1,2000000000,1,0,0,0,0\n\na,0,2,1,0,0,0,0",
            "line 4: index \"0\": not after 1",
        ),
        (
            "a,1,1799999999,1,0,0,0,0",
            "end_us \"1799999999\": not within the 30 minutes of index 1",
        ),
        (
            "a,0,1800000001,1,0,0,0,0",
            "not within the 30 minutes of index 0",
        ),
        (
            "a,0,9,1,0,0,0,0\na,1,8,0,0,0,0,0",
            "line 3: end_us \"8\": before 9",
        ),
        ("a,0,9,18446744073709551615,1,0,0,0", "exceeds 2^64"),
        ("a,0,18446744073709551615,1,1,0,0,0", "not within"),
        ("a,99999999999999,1,1,1,0,0,0", "beyond 2^64 ns"),
        (
            "a,0,9,1,1,4096,8192,0",
            "read_wss_bytes \"8192\": more than 4096",
        ),
        (",0,9,1,1,0,0,0", "vm \"\": a volume needs a name"),
        ("", "the file has no measurements"),
    ] {
        let error = read(format!("{HEADER}{rows}\n")).unwrap_err();
        assert!(error.contains(says), "{rows}: {error}");
    }
    for (text, says) in [
        (
            "vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes\n",
            "missing column \"write_wss_bytes\"",
        ),
        (
            &format!("{},vm\n", HEADER.trim()),
            "duplicate column \"vm\"",
        ),
        ("time_s,op\n", "not measurements"),
        ("", "not measurements"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn invalid_archive_is_refused_by_member_and_line() {
    let damaged = |from: &str, to: &str| {
        read(
            [
                member("block_snap_a.csv", &SNAPSHOT.replace(from, to)),
                vec![0; 1024],
            ]
            .concat(),
        )
    };
    let error = damaged(",3600,", ",3601,").unwrap_err();
    assert!(
        error.contains("m: block_snap_a.csv: line 2: block_req_count \"3601\": not the sum"),
        "{error}"
    );
    assert!(
        damaged("ts,", "when,")
            .unwrap_err()
            .contains("missing column \"ts\"")
    );
    let twice = [
        member("block_snap_a.csv", SNAPSHOT),
        member("y/block_snap_a.csv", SNAPSHOT),
    ]
    .concat();
    assert!(read(twice).unwrap_err().contains("duplicate volume \"a\""));
    // A truncated file is an error at any length, never a shorter list.
    let whole = archive();
    for length in (0..whole.len() - 1023).step_by(61) {
        assert!(read(&whole[..length]).is_err(), "cut to {length}");
    }
    let mut long = member("block_snap_a.csv", SNAPSHOT);
    let mut name = member("././@LongLink", "a name\0");
    name[156] = b'L';
    let sum: u32 = name[..148]
        .iter()
        .chain(&name[156..512])
        .map(|b| u32::from(*b))
        .sum::<u32>()
        + 8 * 32;
    name[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    long.extend(name);
    assert!(read(long).unwrap_err().contains("long names"));
}
