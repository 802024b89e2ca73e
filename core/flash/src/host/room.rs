//! Erase blocks of present, future and departed tenants.

use super::control::spare_split;
use super::plan::TenantPlan;
use crate::FlashError;
use crate::drive::Drive;
use crate::ftl::{Sharing, TenantId};

/// Split of a drive's spare space among tenants that own their blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Equal parts.
    Equal,
    /// By the cost model: the rates of tenants, while they are served, are in proportion to their weights.
    ByModel,
    /// As the plans say, in shares of the drive's flash. Plans without a share split the rest equally. If all plans
    /// have one, the rest has no owner.
    Given,
}

/// Adds the tenants that are present from the start, and splits the drive's spare blocks among all plans. The result is
/// stored in the plans.
///
/// The blocks of later tenants have no owner until they arrive, so no other tenant must return them. A later tenant
/// that fits only after another one has left is excluded from the split. When it arrives, it takes the blocks that
/// others can spare, and gets no more than its collection needs unless its plan says more.
///
/// # Errors
/// The tenants do not fit, a tenant would get too few spare blocks for its collection, or the given shares exceed the
/// spare space.
pub fn place_tenants(
    drive: &mut Drive,
    plans: &mut [TenantPlan],
    split: Split,
) -> Result<(), FlashError> {
    if drive.ftl().config().sharing == Sharing::Isolated {
        split_spare(drive, plans, split)?;
    }
    for plan in plans.iter().filter(|p| p.comes.0 == 0) {
        drive.add_tenant(plan.bytes, plan.spare_share)?;
    }
    Ok(())
}

/// Plan with its needs, in blocks per lane.
struct Part<'a> {
    plan: &'a mut TenantPlan,
    data: u32,
    /// Minimum number of spare blocks.
    least: u32,
    /// Assigned spare blocks.
    spare: u32,
}

fn split_spare(drive: &Drive, plans: &mut [TenantPlan], split: Split) -> Result<(), FlashError> {
    let config = drive.ftl().config();
    let all = config.blocks / config.lanes;
    let mut parts = fitting(drive, plans, split);
    let spare = all.saturating_sub(parts.iter().map(|p| p.data).sum());
    let floor: u32 = parts.iter().map(|p| p.least).sum();
    let n = parts.len().max(1) as u32;
    let shares: Vec<f64> = match split {
        Split::Equal => vec![1.0 / f64::from(n); parts.len()],
        Split::Given => given(&parts, drive.config().ftl.spare_share)?,
        Split::ByModel => {
            let weights: Vec<f64> = parts.iter().map(|p| p.plan.weight).collect();
            let data: Vec<f64> = parts.iter().map(|p| f64::from(p.data)).collect();
            let shares = spare_split(&drive.config().page_cost(), &data, &weights, spare.into());
            let total = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            shares.iter().map(|s| s / total).collect()
        }
    };
    for (part, share) in parts.iter_mut().zip(shares) {
        part.spare = match split {
            // Share of all flash. Losses by rounding data to blocks are subtracted below.
            Split::Given => libm::round(share * f64::from(all)) as u32,
            // Too little for all tenants: the drive will return an error.
            _ if spare < floor => spare / n,
            // Every tenant's collection must work; the rest is split.
            _ => ((share * f64::from(spare)) as u32).max(part.least),
        };
    }
    // Tenants that were raised to their minimum are paid for by those with the most.
    while parts.iter().map(|p| p.spare).sum::<u32>() > spare {
        let most = parts
            .iter_mut()
            .filter(|p| p.spare > 0)
            .max_by_key(|p| i64::from(p.spare) - i64::from(p.least));
        let Some(most) = most else {
            break;
        };
        most.spare -= 1;
    }
    for part in parts {
        part.plan.spare_share = f64::from(part.spare) / f64::from(all);
        // Report the error now, not when the tenant arrives.
        drive.check_tenant(part.plan.bytes, part.plan.spare_share)?;
    }
    Ok(())
}

/// Returns the plans among which spare space is split: the tenants present from the start, and later tenants that fit
/// in addition, in order of arrival. The others get the minimum.
fn fitting<'a>(drive: &Drive, plans: &'a mut [TenantPlan], split: Split) -> Vec<Part<'a>> {
    let config = drive.ftl().config();
    let all = config.blocks / config.lanes;
    let mut parts: Vec<Part> = Vec::with_capacity(plans.len());
    for plan in plans {
        let data = drive.blocks_needed(plan.bytes, 0.0);
        let least = config.spare_blocks_least(data);
        parts.push(Part {
            plan,
            data,
            least,
            spare: 0,
        });
    }
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|i| parts[*i].plan.comes);
    let (mut blocks, mut share) = (all, drive.config().ftl.spare_share + 1e-9);
    let mut fits = vec![false; parts.len()];
    for i in order {
        let part = &parts[i];
        let wants = match split {
            Split::Given => part.plan.spare_share,
            Split::Equal | Split::ByModel => 0.0,
        };
        let needed = part.data.saturating_add(part.least);
        if part.plan.comes.0 == 0 || (needed <= blocks && wants <= share) {
            fits[i] = true;
            blocks = blocks.saturating_sub(needed);
            share -= wants;
        } else {
            let least = f64::from(part.least) / f64::from(all);
            let plan = &mut *parts[i].plan;
            plan.spare_share = plan.spare_share.max(least);
        }
    }
    let mut fits = fits.into_iter();
    parts.retain(|_| fits.next() == Some(true));
    parts
}

/// Returns the given shares of the flash, and an equal part of the rest for plans without one.
fn given(parts: &[Part], spare: f64) -> Result<Vec<f64>, FlashError> {
    let plans = || parts.iter().map(|p| &*p.plan);
    let taken: f64 = plans().map(|p| p.spare_share).sum();
    let without = plans().filter(|p| p.spare_share == 0.0).count();
    if taken > spare + 1e-9 || (without > 0 && taken > spare - 1e-9) {
        return Err(FlashError::SpareTaken {
            taken: 100.0 * taken,
            spare: 100.0 * spare,
        });
    }
    let rest = (spare - taken) / without.max(1) as f64;
    let share = |p: &TenantPlan| match p.spare_share {
        0.0 => rest,
        share => share,
    };
    Ok(plans().map(share).collect())
}

/// Takes spare blocks from the tenants with the most until a new tenant fits; returns the donors and the unit time of
/// their collections.
pub(super) fn make_room(
    drive: &mut Drive,
    now: u64,
    plan: &TenantPlan,
) -> Result<Vec<(TenantId, u64)>, FlashError> {
    let mut costs = Vec::new();
    if drive.ftl().config().sharing != Sharing::Isolated {
        return Ok(costs);
    }
    let needed = drive.blocks_needed(plan.bytes, plan.spare_share);
    while drive.ftl().unowned_blocks() < needed {
        let tenants: Vec<TenantId> = drive.ftl().tenants().collect();
        let can = |t: &TenantId| drive.ftl().spare_blocks_to_give(*t).unwrap_or(0);
        let Some(donor) = tenants.into_iter().max_by_key(can).filter(|t| can(t) > 0) else {
            break; // the drive will report the shortage
        };
        costs.push((donor, drive.hand_over(now, donor, None, 1)?));
    }
    Ok(costs)
}

/// Distributes unowned blocks to the tenants with the least spare space, until at most `keep` are left in each lane.
pub(super) fn share_out(drive: &mut Drive, keep: u32) -> Result<(), FlashError> {
    while drive.ftl().unowned_blocks() > keep {
        let tenants: Vec<TenantId> = drive.ftl().tenants().collect();
        let spare = |t: &TenantId| drive.ftl().spare_blocks(*t).unwrap_or(u32::MAX);
        let Some(least) = tenants.into_iter().min_by_key(spare) else {
            return Ok(());
        };
        drive.ftl_mut().grant(least, 1)?;
    }
    Ok(())
}
