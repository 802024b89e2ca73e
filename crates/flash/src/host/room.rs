//! Erase blocks for those who are there, for those who come, and of those who went.

use super::control::{Slo, spare_split};
use super::load::Generator;
use super::plan::TenantPlan;
use crate::FlashError;
use crate::drive::{Drive, DriveConfig, Op};
use crate::ftl::{Sharing, TenantId};
use crate::model::sizing::{Feasibility, Objective, feasibility};

/// How the spare space of a drive is split when its tenants own their blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// The same for all.
    Equal,
    /// By the cost model, so that tenants' rates are in proportion to their weights while they are served.
    ByModel,
    /// What the plans say, as shares of the drive's flash; those that say nothing share the rest equally, and where all say something
    /// the rest is nobody's.
    Given,
}

/// Adds the tenants that are there from the beginning, and splits the drive's spare blocks among them. Plans are told their shares.
///
/// # Errors
/// When the tenants do not fit, one would get too few spare blocks for its collection, or more is given than is spare.
pub fn place_tenants(
    drive: &mut Drive,
    plans: &mut [TenantPlan],
    split: Split,
) -> Result<(), FlashError> {
    let mut there: Vec<&mut TenantPlan> = plans.iter_mut().filter(|p| p.comes.0 == 0).collect();
    if drive.ftl().config().sharing == Sharing::Isolated {
        let config = drive.ftl().config();
        let all = config.blocks / config.lanes;
        let least = config.spare_blocks_min() + 1;
        let data: Vec<u32> = there
            .iter()
            .map(|p| drive.blocks_needed(p.bytes, 0.0))
            .collect();
        let spare = all.saturating_sub(data.iter().sum());
        let shares: Vec<f64> = match split {
            Split::Equal => vec![1.0; there.len()],
            Split::Given => given(&there, drive.config().ftl.spare_share)?,
            Split::ByModel => {
                let weights: Vec<f64> = there.iter().map(|p| p.weight).collect();
                let data: Vec<f64> = data.iter().map(|d| f64::from(*d)).collect();
                spare_split(&drive.config().page_cost(), &data, &weights, spare.into())
            }
        };
        let total: f64 = match split {
            // Shares of all flash already; what rounding data to blocks takes is taken below.
            Split::Given => f64::from(spare) / f64::from(all),
            _ => shares.iter().sum(),
        };
        // Everybody's collection must work; what is left over is split.
        let floor = least * there.len() as u32;
        for (plan, share) in there.iter_mut().zip(&shares) {
            let part = share / total.max(f64::MIN_POSITIVE) * f64::from(spare);
            let blocks = if split == Split::Given {
                libm::round(part) as u32
            } else if spare <= floor {
                spare / data.len() as u32
            } else {
                (part as u32).max(least)
            };
            plan.spare_share = f64::from(blocks) / f64::from(all);
        }
        // Raising some to the least they need is paid by those with the most.
        let blocks = |p: &TenantPlan| libm::round(p.spare_share * f64::from(all)) as u32;
        while there.iter().map(|p| blocks(p)).sum::<u32>() > spare {
            let Some(most) = there.iter_mut().max_by_key(|p| blocks(p)) else {
                break;
            };
            most.spare_share = f64::from(blocks(most).saturating_sub(1)) / f64::from(all);
        }
    }
    for plan in there {
        drive.add_tenant(plan.bytes, plan.spare_share)?;
    }
    Ok(())
}

/// Shares of the flash as plans give them, and an equal part of the rest for those that give none.
fn given(plans: &[&mut TenantPlan], spare: f64) -> Result<Vec<f64>, FlashError> {
    let taken: f64 = plans.iter().map(|p| p.spare_share).sum();
    let without = plans.iter().filter(|p| p.spare_share == 0.0).count();
    if taken > spare + 1e-9 || (without > 0 && taken > spare - 1e-9) {
        return Err(FlashError::SpareTaken {
            taken: 100.0 * taken,
            spare: 100.0 * spare,
        });
    }
    let rest = (spare - taken) / without.max(1) as f64;
    let share = |p: &&mut TenantPlan| match p.spare_share {
        0.0 => rest,
        share => share,
    };
    Ok(plans.iter().map(share).collect())
}

/// What a load is like on average, from its first requests: share of reads, pages of a read, pages of a write.
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

/// Whether the objectives in numbers can be met together, by the cost model; none where no tenant has one.
///
/// Tenants without one count with nothing but their data. See [`feasibility`] for what the model leaves out.
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

/// Takes spare blocks back from those with the most, until a newcomer's fit. What that cost.
pub(super) fn make_room(drive: &mut Drive, now: u64, plan: &TenantPlan) -> Result<u64, FlashError> {
    if drive.ftl().config().sharing != Sharing::Isolated {
        return Ok(0);
    }
    let needed = drive.blocks_needed(plan.bytes, plan.spare_share);
    let mut cost = 0;
    while drive.ftl().unowned_blocks() < needed {
        let tenants: Vec<TenantId> = drive.ftl().tenants().collect();
        let can = |t: &TenantId| drive.ftl().spare_blocks_to_give(*t).unwrap_or(0);
        let Some(donor) = tenants.into_iter().max_by_key(can).filter(|t| can(t) > 0) else {
            break; // the drive will say what is missing
        };
        cost += drive.hand_over(now, donor, None, 1)?;
    }
    Ok(cost)
}

/// Deals unowned blocks out to those with the least spare space.
pub(super) fn share_out(drive: &mut Drive) -> Result<(), FlashError> {
    if drive.ftl().config().sharing != Sharing::Isolated {
        return Ok(());
    }
    while drive.ftl().unowned_blocks() > 0 {
        let tenants: Vec<TenantId> = drive.ftl().tenants().collect();
        let spare = |t: &TenantId| drive.ftl().spare_blocks(*t).unwrap_or(u32::MAX);
        let Some(least) = tenants.into_iter().min_by_key(spare) else {
            return Ok(());
        };
        drive.ftl_mut().grant(least, 1)?;
    }
    Ok(())
}
