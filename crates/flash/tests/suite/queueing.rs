//! What a drive that has several requests at a time begins first.

use flash::Drive;
use flash::drive::{DriveConfig, Layout, Op, Served, preset};
use flash::event::{Arrivals, Request, run_fast};
use flash::ftl::TenantId;
use flash::host::{HostConfig, Load, Recorded, Target, TenantPlan, run};
use units::{Bytes, Nanos};

const SIZE: Bytes = Bytes(1 << 30);

/// Writes down what is begun when.
struct Watched {
    drive: Drive,
    begun: Vec<(u64, Op, u64)>,
    at_a_time: usize,
    ends: Vec<u64>,
}

impl Target for Watched {
    fn serve(&mut self, now_ns: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> Served {
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

fn watched(config: DriveConfig) -> Watched {
    let mut drive = Drive::new(config, SIZE).unwrap();
    let tenant = drive.add_tenant(SIZE, 0.0).unwrap();
    drive.ftl_mut().fill(tenant).unwrap();
    drive.clear_counts();
    Watched {
        drive,
        begun: Vec::new(),
        at_a_time: 0,
        ends: Vec::new(),
    }
}

/// Serves requests that come in this order, all at the beginning.
fn serve(target: &mut Watched, requests: &[(Op, u64)], tags: u32) -> f64 {
    let one = |(op, page): &(Op, u64)| Recorded {
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

/// Twenty writes for which there is only one place at a time, and a read of another.
fn writes_and_a_read() -> Vec<(Op, u64)> {
    let writes = (0..20).map(|i| (Op::Write, i * 64));
    writes.chain([(Op::Read, 5)]).collect()
}

#[test]
fn a_read_overtakes_writes_that_wait_for_a_unit_although_there_are_more_units_than_tags() {
    let mut target = watched(config(Layout::PerUnit, 0));
    serve(&mut target, &writes_and_a_read(), 32);
    let read = target.begun.iter().position(|b| b.1 == Op::Read).unwrap();
    assert!(read <= 2, "{:?}", target.begun);
    assert_eq!(target.begun[read].0, 0);
    // The writes went one after the other.
    let times: Vec<u64> = target
        .begun
        .iter()
        .filter(|b| b.1 == Op::Write)
        .map(|b| b.0)
        .collect();
    assert!(times.windows(2).skip(2).all(|w| w[1] > w[0]), "{times:?}");
}

#[test]
fn a_read_overtakes_writes_that_wait_for_a_place_in_the_buffer() {
    for layout in [Layout::PerUnit, Layout::Striped] {
        let mut target = watched(config(layout, 2));
        serve(&mut target, &writes_and_a_read(), 32);
        let read = target.begun.iter().position(|b| b.1 == Op::Read).unwrap();
        assert!(read <= 2, "{layout:?} {:?}", target.begun);
    }
}

#[test]
fn with_one_tag_nothing_overtakes_and_one_is_begun_at_a_time() {
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
fn writes_that_reads_pass_over_have_their_turn() {
    // A write that waits for the unit of all reads, of which there is always one more.
    let mut target = watched(config(Layout::PerUnit, 0));
    let mut requests: Vec<(Op, u64)> = (0..400).map(|i| (Op::Read, i * 64)).collect();
    requests.insert(0, (Op::Read, 64));
    requests.insert(1, (Op::Write, 128));
    serve(&mut target, &requests, 32);
    let write = target.begun.iter().position(|b| b.1 == Op::Write).unwrap();
    // It was passed over for a while, and then no more.
    assert!((33..=66).contains(&write), "{write}");
}

#[test]
fn waiting_in_tags_costs_reads_nothing() {
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
                    .map(|r| Recorded {
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
