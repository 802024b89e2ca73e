//! Comparison of numeric objectives with the capability of the drive.

use super::control::Slo;
use super::load::Generator;
use super::plan::TenantPlan;
use crate::drive::{DriveConfig, Op};
use crate::model::sizing::{Feasibility, Objective, feasibility};

/// Returns the mean pages read and pages written per request, from the first requests of a load.
fn profile(plan: &TenantPlan, page: u64) -> (f64, f64) {
    const DRAWS: u32 = 4000;
    let mut generator = Generator::new(plan.load.clone(), plan.bytes.0, 1, 0);
    let (mut n, mut read, mut written) = (0, 0, 0);
    while n < DRAWS {
        let Some(r) = generator.next_request() else {
            break;
        };
        let pages = (r.offset + u64::from(r.bytes)).div_ceil(page) - r.offset / page;
        match r.op {
            Op::Read => read += pages,
            Op::Write => written += pages,
            Op::Trim => {}
        }
        n += 1;
    }
    let each = |pages: u64| pages as f64 / f64::from(n.max(1));
    (each(read), each(written))
}

/// Estimates with the cost model if all numeric objectives can be met together; `None` if no tenant has one.
///
/// Tenants without a numeric objective count with their data only. [`feasibility`] lists the limits of the model.
pub fn objectives(
    config: &DriveConfig,
    plans: &[TenantPlan],
    spare_share: f64,
) -> Option<Feasibility> {
    let page = config.page.0;
    let tenants: Vec<Objective> = plans
        .iter()
        .map(|plan| {
            let (reads, writes) = profile(plan, page);
            let per_s = match plan.slo {
                Slo::Weight => 0.0,
                Slo::Iops(want) => want,
                Slo::BytesPerSecond(want) => want / ((reads + writes).max(1e-9) * page as f64),
            };
            Objective {
                data: plan.bytes.0 as f64,
                writes_per_s: writes * per_s,
                reads_per_s: reads * per_s,
            }
        })
        .collect();
    let any = plans.iter().any(|p| p.slo != Slo::Weight);
    any.then(|| feasibility(&config.page_cost(), config.units(), &tenants, spare_share))
}

/// Minimum device time of a tenant without an objective, as a share of the total.
const REST_LEAST: f64 = 0.01;

/// Sets the shares of device time that the model computes for the numeric objectives. Tenants without one divide the
/// rest. Shares marked in `given` are not changed.
pub fn shares_for_objectives(plans: &mut [TenantPlan], needs: &Feasibility, given: &[bool]) {
    let rest = plans.iter().filter(|p| p.slo == Slo::Weight).count();
    let each = ((1.0 - needs.busy) / rest.max(1) as f64).max(REST_LEAST);
    for ((plan, time), given) in plans.iter_mut().zip(&needs.times).zip(given) {
        if !given {
            plan.time_share = match plan.slo {
                Slo::Weight => each,
                _ => time.max(1e-6),
            };
        }
    }
}
