//! Comparison of the fast drive with the event queue: the bounds stated in the documentation.

use algo::Rng;
use flash::Drive;
use flash::drive::{DriveConfig, Layout, Op, preset};
use flash::event::{Arrivals, EventDrive, Request, RequestTimes, run_fast};
use units::Bytes;

use crate::speed;

/// Returns mean and 99th percentile of latency, and requests per second, without the first fifth of the requests.
fn figures(answered: &[RequestTimes]) -> [f64; 3] {
    let tail = &answered[answered.len() / 5..];
    let mut latencies: Vec<u64> = tail.iter().map(|a| a.done_ns - a.from_ns).collect();
    latencies.sort_unstable();
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
    let p99 = latencies[latencies.len() * 99 / 100] as f64;
    let begin = tail.iter().map(|a| a.from_ns).min().unwrap();
    let end = tail.iter().map(|a| a.done_ns).max().unwrap();
    [mean, p99, tail.len() as f64 / (end - begin) as f64]
}

/// Ratios of the fast drive's figures to those of the event queue.
fn ratios(config: DriveConfig, mib: u64, reads: u64, arrivals: Arrivals, load: f64) -> [f64; 3] {
    let pages = |random: &mut Rng| (0, 4096 * (1 + random.below(4)));
    ratios_of(config, mib, reads, arrivals, load, 20_000, pages)
}

/// Compares both drives with a number of requests of a given offset within a page and length.
fn ratios_of(
    config: DriveConfig,
    mib: u64,
    reads: u64,
    arrivals: Arrivals,
    load: f64,
    n: u32,
    within: impl Fn(&mut Rng) -> (u64, u64),
) -> [f64; 3] {
    let bytes = Bytes(mib << 20);
    let mut drive = Drive::new(config, bytes).unwrap();
    let tenant = drive.add_tenant(bytes, 0.0).unwrap();
    drive.age(2.0);
    let write_us = drive.config().page_cost().write_us(0.75);
    let between = write_us / f64::from(drive.config().units()) * 1e3 / load;
    let (mut random, mut at) = (Rng::new(3, 3), 0.0);
    let requests: Vec<Request> = (0..n)
        .map(|_| {
            at += random.exponential() * between;
            let op = if random.below(10) < reads {
                Op::Read
            } else {
                Op::Write
            };
            let page = random.below(bytes.0 / 4096) * 4096;
            let (begin, bytes) = within(&mut random);
            Request {
                at_ns: at as u64,
                tenant,
                op,
                offset: page + begin,
                bytes,
            }
        })
        .collect();
    let slow = figures(&EventDrive::like(&drive).run(&requests, arrivals));
    let fast = figures(&run_fast(&mut drive, &requests, arrivals));
    [fast[0] / slow[0], fast[1] / slow[1], fast[2] / slow[2]]
}

const LOADS: [(u64, Arrivals, f64); 5] = [
    (0, Arrivals::Closed(32), 1.0),
    (5, Arrivals::Closed(32), 1.0),
    (0, Arrivals::Closed(1), 1.0),
    (5, Arrivals::Open, 0.1),
    (5, Arrivals::Open, 0.2),
];

#[test]
fn collection_at_once_agrees_within_two_percent() {
    for (name, mib) in [("paper4", 32), ("disksim", 128)] {
        for buffer_pages in [0, 256] {
            for (reads, arrivals, load) in LOADS {
                let config = DriveConfig {
                    buffer_pages,
                    ..preset(name).unwrap()
                };
                let got = ratios(config, mib, reads, arrivals, load);
                let what = format!("{name} {buffer_pages} {reads} {arrivals:?} {load}: {got:?}");
                eprintln!("{what}");
                assert!(got.iter().all(|r| (r - 1.0).abs() < 0.02), "{what}");
            }
        }
    }
}

/// Throughput and mean latency agree within 7 %, the 99th percentile within a quarter. The fast drive writes a page
/// right after it was read; with queues, other operations come between.
#[test]
fn partially_written_pages_are_read_first_in_both_models() {
    // Sectors of 512 bytes: most pages at the ends of requests are written in part.
    let sectors = |random: &mut Rng| (512 * random.below(8), 512 * (1 + random.below(32)));
    for (name, mib) in [("paper4", 32), ("disksim", 128)] {
        for buffer_pages in [0, 256] {
            for (reads, arrivals, load) in LOADS {
                let config = DriveConfig {
                    buffer_pages,
                    read_modify_write: true,
                    ..preset(name).unwrap()
                };
                // A quarter of the other loads: requests touch up to five pages, and two of these are also read.
                let got = ratios_of(config, mib, reads, arrivals, load / 4.0, 20_000, sectors);
                let what = format!("{name} {buffer_pages} {reads} {arrivals:?} {load}: {got:?}");
                let [mean, p99, rate] = got;
                assert!((mean - 1.0).abs() < 0.07, "{what}");
                assert!((rate - 1.0).abs() < 0.07, "{what}");
                assert!((p99 - 1.0).abs() < 0.25, "{what}");
            }
        }
    }
}

/// A partial write takes an additional read. Writes of whole pages take none.
#[test]
fn only_partially_written_pages_are_read() {
    for (read_modify_write, begin, bytes, reads) in [
        (true, 0, 8192, 0),
        (true, 512, 8192, 2),
        (true, 512, 512, 1),
        (true, 4096, 6144, 1),
        (false, 512, 8192, 0),
    ] {
        let config = DriveConfig {
            read_modify_write,
            ..preset("disksim").unwrap()
        };
        let bytes_all = Bytes(64 << 20);
        let mut drive = Drive::new(config, bytes_all).unwrap();
        let tenant = drive.add_tenant(bytes_all, 0.0).unwrap();
        drive.ftl_mut().fill(tenant).unwrap();
        let one = Request {
            at_ns: 0,
            tenant,
            op: Op::Write,
            offset: begin,
            bytes,
        };
        let slow = EventDrive::like(&drive).run(&[one], Arrivals::Open);
        let fast = run_fast(&mut drive, &[one], Arrivals::Open);
        assert_eq!(fast, slow, "{begin} {bytes}");
        assert_eq!(drive.read_pages(), reads, "{begin} {bytes}");
    }
}

/// Throughput agrees within 12 %, mean latency within a fifth, the 99th percentile within a factor of two (except for
/// one request at a time behind a full buffer).
#[test]
fn paced_collection_agrees_within_its_bounds() {
    for name in ["tlc-nvme", "qlc-nvme"] {
        for layout in [Layout::Striped, Layout::PerUnit] {
            for buffer_pages in [0, 256] {
                for (reads, arrivals, load) in LOADS {
                    let mut config = preset(name).unwrap();
                    config.layout = layout;
                    config.buffer_pages = buffer_pages;
                    // Small enough for the event queue: the number of blocks of a larger drive, but shorter blocks.
                    config.channels = 4;
                    config.pages_per_block = 16;
                    config.erase.0 /= 4;
                    config.ftl.spare_share = 0.15;
                    let [mean, p99, rate] = ratios(config, 512, reads, arrivals, load);
                    let what = format!(
                        "{name} {layout:?} {buffer_pages} {reads} {arrivals:?} {load}: {mean} {p99} {rate}"
                    );
                    assert!((rate - 1.0).abs() < 0.12, "{what}");
                    assert!((mean - 1.0).abs() < 0.20, "{what}");
                    // One at a time behind a full buffer: stalls begin at one in a hundred requests, so the percentile
                    // depends on chance.
                    if buffer_pages == 0 || arrivals != Arrivals::Closed(1) {
                        assert!(p99 < 2.0 && p99 > 0.5, "{what}");
                    }
                }
            }
        }
    }
}

/// A single unit with one operation at a time equals the cost model.
#[test]
fn iops_match_the_cost_model_at_the_measured_utilization() {
    for spare_share in [0.05, 0.10, 0.28] {
        let mut config = preset("paper4").unwrap();
        config.ftl.spare_share = spare_share;
        let bytes = Bytes((2048.0 * 128.0 * (1.0 - spare_share)) as u64 * 4096);
        let mut drive = Drive::new(config, bytes).unwrap();
        let tenant = drive.add_tenant(bytes, 0.0).unwrap();
        drive.age(3.0);
        let (mut random, mut now) = (Rng::new(1, 1), 0);
        let writes = 200_000;
        for _ in 0..writes {
            let offset = random.below(bytes.0 / 4096) * 4096;
            now = drive.submit(now, tenant, Op::Write, offset, 4096).done_ns;
        }
        let iops = f64::from(writes) / (now as f64 / 1e9);
        let u = drive.ftl().victim_utilization().unwrap();
        let model = drive.config().page_cost().iops(u);
        assert!(
            (iops / model - 1.0).abs() < 0.02,
            "{spare_share}: {iops} {model}"
        );
    }
}

/// A drive that simulates one in four runs of pages has the write amplification and lifetime of the full drive.
#[test]
fn scaled_drive_matches_the_full_one() {
    let run = |scale| {
        let mut config = preset("tlc-nvme").unwrap();
        config.scale = scale;
        config.pages_per_block = 8;
        config.ftl.spare_share = 0.15;
        config.channels = 4;
        let bytes = Bytes(1 << 30);
        let mut drive = Drive::new(config, bytes).unwrap();
        let tenant = drive.add_tenant(bytes, 0.0).unwrap();
        drive.age(3.0);
        let (mut random, mut now) = (Rng::new(1, 1), 0);
        for _ in 0..300_000 {
            let offset = random.below(bytes.0 / 4096) * 4096;
            now = drive.submit(now, tenant, Op::Write, offset, 4096).done_ns;
        }
        (drive.report(), now)
    };
    let ((whole, took), (part, scaled)) = (run(1), run(4));
    let near = |a: f64, b: f64, by: f64| assert!((a / b - 1.0).abs() < by, "{a} {b}: {part:?}");
    assert_eq!(whole.host_bytes, part.host_bytes);
    near(whole.waf.unwrap(), part.waf.unwrap(), 0.06);
    near(whole.erases as f64, part.erases as f64, 0.08);
    near(took as f64, scaled as f64, 0.10);
    near(whole.drive_writes, part.drive_writes, 1e-9);
}

#[test]
fn reads_of_unwritten_pages_take_transfer_time_in_both_models() {
    for name in ["paper4", "disksim", "tlc-nvme"] {
        let bytes = Bytes(512 << 20);
        let config = DriveConfig {
            pages_per_block: 16,
            ..preset(name).unwrap()
        };
        let mut drive = Drive::new(config, bytes).unwrap();
        let tenant = drive.add_tenant(bytes, 0.0).unwrap();
        let mut random = Rng::new(3, 5);
        let requests: Vec<Request> = (0..4000)
            .map(|_| Request {
                at_ns: 0,
                tenant,
                op: Op::Read,
                offset: random.below(bytes.0 / 4096) * 4096,
                bytes: 4096,
            })
            .collect();
        let arrivals = Arrivals::Closed(32);
        let slow = figures(&EventDrive::like(&drive).run(&requests, arrivals));
        let fast = figures(&run_fast(&mut drive, &requests, arrivals));
        for (fast, slow) in fast.iter().zip(slow) {
            assert!((fast / slow - 1.0).abs() < 0.02, "{name}: {fast} {slow}");
        }
    }
}

/// Drive of the speed measurement: requests of one page, 32 at a time. The run is long enough that the filling of the
/// large buffer does not dominate (with 20,000 writes it is a quarter of the time). Throughput and mean latency agree
/// within 8 %. For writes alone, the fast model predicts less than half of the 99th percentile, because with queues the
/// buffer's slots become free in bursts.
#[test]
fn drive_of_the_speed_measurement_agrees() {
    for reads in [0, 5] {
        let one = |_: &mut Rng| (0, 4096);
        let arrivals = Arrivals::Closed(32);
        let got = ratios_of(speed::drive(), 512, reads, arrivals, 1.0, 200_000, one);
        let [mean, p99, rate] = got;
        let what = format!("{reads}: mean {mean}, p99 {p99}, rate {rate}");
        println!("{what}");
        assert!((rate - 1.0).abs() < 0.08, "{what}");
        assert!((mean - 1.0).abs() < 0.08, "{what}");
        assert!(p99 > 0.3 && p99 < 1.3, "{what}");
    }
}
