//! Comparison of the fast drive model with the event-driven model, over presets and loads. Each row has mean, 99th percentile and
//! throughput of both, and their ratios. `tests/suite/agreement.rs` tests the bounds of the ratios.

use algo::Rng;
use flash::Drive;
use flash::drive::{Layout, Op, preset};
use flash::event::{Arrivals, EventDrive, Request, RequestTimes, run_fast};
use units::Bytes;

use crate::BenchResult;

fn figures(answered: &[RequestTimes]) -> (f64, f64, f64) {
    let tail = &answered[answered.len() / 5..];
    let mut latencies: Vec<u64> = tail.iter().map(|a| a.done_ns - a.from_ns).collect();
    latencies.sort_unstable();
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64 / 1e3;
    let p99 = latencies[latencies.len() * 99 / 100] as f64 / 1e3;
    let begin = tail.iter().map(|a| a.from_ns).min().unwrap_or(0);
    let end = tail.iter().map(|a| a.done_ns).max().unwrap_or(1);
    (mean, p99, tail.len() as f64 / ((end - begin) as f64 / 1e9))
}

pub(crate) fn main(_: &[String]) -> BenchResult {
    for (name, mib) in [
        ("paper4", 64),
        ("disksim", 256),
        ("tlc-nvme", 2048),
        ("qlc-nvme", 2048),
    ] {
        for layout in [None, Some(Layout::PerUnit)] {
            for buffer in [true, false] {
                let mut config = preset(name).ok_or("a preset")?;
                if layout.is_some() && config.layout == Layout::PerUnit {
                    continue;
                }
                config.layout = layout.unwrap_or(config.layout);
                config.buffer_pages = if buffer { 256 } else { 0 };
                if name.ends_with("nvme") {
                    // Small enough for the event-driven model: as many erase blocks as a large drive, but shorter ones.
                    config.pages_per_block = 16;
                    config.erase.0 /= 4;
                    config.ftl.spare_share = 0.15;
                }
                let bytes = Bytes(mib << 20);
                let mut drive = Drive::new(config, bytes)?;
                let tenant = drive.add_tenant(bytes, 0.0)?;
                drive.age(3.0);
                let model =
                    drive.config().page_cost().write_us(0.75) / f64::from(drive.config().units());
                for (reads, arrivals, load) in [
                    (0, Arrivals::Closed(32), 0.0),
                    (5, Arrivals::Closed(32), 0.0),
                    (0, Arrivals::Closed(1), 0.0),
                    (5, Arrivals::Open, 0.3),
                    (5, Arrivals::Open, 0.6),
                ] {
                    let mut random = Rng::new(3, 3);
                    let mut at = 0.0;
                    let requests: Vec<Request> = (0..40_000)
                        .map(|_| {
                            at += random.exponential() * model * 1e3
                                / if load > 0.0 { load } else { 1.0 };
                            Request {
                                at_ns: at as u64,
                                tenant,
                                op: if random.below(10) < reads {
                                    Op::Read
                                } else {
                                    Op::Write
                                },
                                offset: random.below(bytes.0 / 4096) * 4096,
                                bytes: 4096,
                            }
                        })
                        .collect();
                    let slow = figures(&EventDrive::like(&drive).run(&requests, arrivals));
                    let fast = figures(&run_fast(&mut drive.clone(), &requests, arrivals));
                    println!(
                        "{name:9} {:?} buffer {buffer} reads {reads} {arrivals:?} {load}: mean {:.0}/{:.0} {:.3} p99 {:.0}/{:.0} {:.3} iops {:.0}/{:.0} {:.3}",
                        drive.config().layout,
                        fast.0,
                        slow.0,
                        fast.0 / slow.0,
                        fast.1,
                        slow.1,
                        fast.1 / slow.1,
                        fast.2,
                        slow.2,
                        fast.2 / slow.2
                    );
                }
            }
        }
    }
    Ok(())
}
