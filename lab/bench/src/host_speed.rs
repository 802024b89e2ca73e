//! Throughput of a simulated drive with tenants, in requests per second of processor time: `host-speed [SECONDS]`.
//!
//! Four tenants have 16 outstanding requests each on a drive with 64 units and 32 tags. They share device time, and half of the requests
//! are reads.
//!
//! Rows: pages of the write buffer; `waits` if requests wait for free units before they start, `at-once` if they start at once and queue
//! at the units; completed requests; million requests per second of processor time (which includes loads and reports); simulated
//! thousand IOPS.
use flash::Drive;
use flash::drive::{DriveConfig, Op, RequestResult};
use flash::ftl::TenantId;
use flash::host::{HostConfig, Outcome, Service, Target, TenantPlan, run};
use units::{Bytes, Nanos};

use crate::BenchResult;
use crate::cpu::cpu_s;
use crate::speed;

/// Drive that starts every request at once, without waiting for free units.
struct ImmediateDrive(Drive);

impl Target for ImmediateDrive {
    fn serve(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
        self.0.submit(now_ns, tenant, op, offset, bytes)
    }

    fn ready_ns(&mut self, now_ns: u64, _: TenantId, _: Op, _: u64, _: u64) -> u64 {
        now_ns
    }

    fn units(&self) -> usize {
        self.0.config().units() as usize
    }

    fn drive(&mut self) -> Option<&mut Drive> {
        Some(&mut self.0)
    }
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let seconds = args.first().map(|a| a.parse()).transpose()?;
    let tenant = Bytes(2 << 30);
    for buffer_pages in [speed::drive().buffer_pages, 0] {
        let config = DriveConfig {
            buffer_pages,
            ..speed::drive()
        };
        let mut drive = Drive::new(config, Bytes(4 * tenant.0))?;
        let mut plans = Vec::new();
        for name in ["a", "b", "c", "d"] {
            drive.add_tenant(tenant, 0.0)?;
            plans.push(TenantPlan::new(name, tenant, "random-mix-4k".parse()?));
        }
        drive.age(2.0);
        let host = HostConfig {
            service: Service::DeviceTime,
            duration: Nanos::from_secs(seconds.unwrap_or(10)),
            ..HostConfig::default()
        };
        let mut at_once = ImmediateDrive(drive.clone());
        let print = |how: &str, run: &mut dyn FnMut() -> Result<Outcome, flash::FlashError>| {
            let began = cpu_s();
            let outcome = run()?;
            let spent = cpu_s() - began;
            let answered: f64 = outcome.tenants.iter().map(|t| t.iops * t.seconds).sum();
            println!(
                "{buffer_pages} {how} {answered:.0} {:.2} {:.1} k/s",
                answered / spent / 1e6,
                answered / outcome.seconds / 1e3,
            );
            Ok::<(), flash::FlashError>(())
        };
        print("waits", &mut || run(&mut drive, &plans, &host))?;
        print("at-once", &mut || run(&mut at_once, &plans, &host))?;
    }
    Ok(())
}
