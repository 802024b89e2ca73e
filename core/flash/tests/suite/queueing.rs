//! Order in which a drive begins several outstanding requests.

use flash::Drive;
use flash::drive::{DriveConfig, Layout, Op, RequestResult, preset};
use flash::event::{Arrivals, Request, run_fast};
use flash::ftl::TenantId;
use flash::host::{HostConfig, Load, RecordedRequest, Target, TenantPlan, run};
use units::{Bytes, Nanos};

const SIZE: Bytes = Bytes(1 << 30);

/// Target that records the start of each request.
struct RecordingDrive {
    drive: Drive,
    begun: Vec<(u64, Op, u64)>,
    at_a_time: usize,
    ends: Vec<u64>,
}

impl Target for RecordingDrive {
    fn serve(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
        let served = self.drive.submit(now_ns, tenant, op, offset, bytes);
        self.begun.push((now_ns, op, offset));
        self.ends.retain(|end| *end > now_ns);
        self.ends.push(served.done_ns);
        self.at_a_time = self.at_a_time.max(self.ends.len());
        served
    }

    fn ready_ns(&mut self, now: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> u64 {
        self.drive.ready_ns(now, tenant, op, offset, bytes)
    }

    fn units(&self) -> usize {
        self.drive.config().units() as usize
    }

    fn tags(&self) -> u32 {
        self.drive.config().tags
    }

    fn drive(&mut self) -> Option<&mut Drive> {
        Some(&mut self.drive)
    }
}

fn config(layout: Layout, buffer_pages: u32) -> DriveConfig {
    DriveConfig {
        layout,
        buffer_pages,
        pages_per_block: 16,
        ..preset("tlc-nvme").unwrap()
    }
}

fn watched(config: DriveConfig) -> RecordingDrive {
    let mut drive = Drive::new(config, SIZE).unwrap();
    let tenant = drive.add_tenant(SIZE, 0.0).unwrap();
    drive.ftl_mut().fill(tenant).unwrap();
    drive.clear_counts();
    RecordingDrive {
        drive,
        begun: Vec::new(),
        at_a_time: 0,
        ends: Vec::new(),
    }
}

/// Serves requests in this order, all submitted at the start.
fn serve(target: &mut RecordingDrive, requests: &[(Op, u64)], tags: u32) -> f64 {
    let one = |(op, page): &(Op, u64)| RecordedRequest {
        at_ns: 0,
        op: *op,
        offset: page * 4096,
        bytes: 4096,
    };
    let plan = TenantPlan {
        load: Load::Recorded(requests.iter().map(one).collect()),
        depth: requests.len() as u32,
        ..TenantPlan::new("a", SIZE, "zipf".parse().unwrap())
    };
    let config = HostConfig {
        tags,
        duration: Nanos::from_secs(1),
        ..HostConfig::default()
    };
    let got = run(target, &[plan], &config).unwrap();
    assert_eq!(target.begun.len(), requests.len());
    got.tenants[0].latency.mean_us
}

/// Twenty writes that need the same unit, and a read of another unit.
fn writes_and_a_read() -> Vec<(Op, u64)> {
    let writes = (0..20).map(|i| (Op::Write, i * 64));
    writes.chain([(Op::Read, 5)]).collect()
}

#[test]
fn read_overtakes_writes_that_wait_for_a_unit() {
    let mut target = watched(config(Layout::PerUnit, 0));
    serve(&mut target, &writes_and_a_read(), 32);
    let read = target.begun.iter().position(|b| b.1 == Op::Read).unwrap();
    assert!(read <= 2, "{:?}", target.begun);
    assert_eq!(target.begun[read].0, 0);
    // The writes were served one after the other.
    let times: Vec<u64> = target
        .begun
        .iter()
        .filter(|b| b.1 == Op::Write)
        .map(|b| b.0)
        .collect();
    assert!(times.windows(2).skip(2).all(|w| w[1] > w[0]), "{times:?}");
}

#[test]
fn read_overtakes_writes_that_wait_for_the_buffer() {
    for layout in [Layout::PerUnit, Layout::Striped] {
        let mut target = watched(config(layout, 2));
        serve(&mut target, &writes_and_a_read(), 32);
        let read = target.begun.iter().position(|b| b.1 == Op::Read).unwrap();
        assert!(read <= 2, "{layout:?} {:?}", target.begun);
    }
}

#[test]
fn single_tag_serves_requests_one_at_a_time_in_order() {
    for (host, drive) in [(1, 32), (32, 1)] {
        for buffer_pages in [0, 2] {
            let mut target = watched(DriveConfig {
                tags: drive,
                ..config(Layout::PerUnit, buffer_pages)
            });
            serve(&mut target, &writes_and_a_read(), host);
            assert_eq!(target.begun.last().unwrap().1, Op::Read);
            assert_eq!(target.at_a_time, 1, "{host} {drive}");
        }
    }
}

#[test]
fn writes_overtaken_by_reads_are_served_eventually() {
    // A write that waits for the unit of a continuous sequence of reads.
    let mut target = watched(config(Layout::PerUnit, 0));
    let mut requests: Vec<(Op, u64)> = (0..400).map(|i| (Op::Read, i * 64)).collect();
    requests.insert(0, (Op::Read, 64));
    requests.insert(1, (Op::Write, 128));
    serve(&mut target, &requests, 32);
    let write = target.begun.iter().position(|b| b.1 == Op::Write).unwrap();
    // Reads overtook it for a while, then it was served.
    assert!((33..=66).contains(&write), "{write}");
}

#[test]
fn queueing_in_tags_does_not_slow_reads() {
    let mut random = algo::Rng::new(1, 9);
    let pages: Vec<u64> = (0..20_000).map(|_| random.below(SIZE.0 / 4096)).collect();
    for depth in [1, 8, 32] {
        let mut target = watched(config(Layout::Striped, 0));
        let requests: Vec<Request> = pages
            .iter()
            .map(|page| Request {
                at_ns: 0,
                tenant: TenantId(0),
                op: Op::Read,
                offset: page * 4096,
                bytes: 4096,
            })
            .collect();
        let at_once = run_fast(
            &mut target.drive.clone(),
            &requests,
            Arrivals::Closed(depth),
        );
        let plan = TenantPlan {
            load: Load::Recorded(
                requests
                    .iter()
                    .map(|r| RecordedRequest {
                        at_ns: 0,
                        op: r.op,
                        offset: r.offset,
                        bytes: 4096,
                    })
                    .collect(),
            ),
            depth,
            ..TenantPlan::new("a", SIZE, "zipf".parse().unwrap())
        };
        run(&mut target, &[plan], &HostConfig::default()).unwrap();
        let last = *target.ends.iter().max().unwrap() as f64;
        let other = at_once.iter().map(|a| a.done_ns).max().unwrap() as f64;
        assert!((last / other - 1.0).abs() < 0.01, "{depth}: {last} {other}");
    }
}
