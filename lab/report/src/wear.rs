//! Tables of the wear of devices with a flash model: written and programmed bytes, and lifetime.

use sim::RunResult;

use crate::format::{fixed, gib, maybe};
use crate::run::labels;
use crate::tables::{Column, number, table, words};

/// Columns and rows of one table.
pub(crate) type Rows = (Vec<Column>, Vec<Vec<String>>);

/// Returns the tables of devices, of VMs and, if devices have tenants, of tenants. Each has a row per strategy and device, VM
/// or tenant of a device. `None` without devices with a flash model.
pub(crate) fn rows(results: &[RunResult]) -> Option<Vec<Rows>> {
    results.iter().find(|r| r.wear.is_some())?;
    let (mut devices, mut vms, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
    for (result, label) in results.iter().zip(&labels(results)) {
        let Some(wear) = &result.wear else { continue };
        for d in &wear.devices {
            devices.push(vec![
                label.clone(),
                d.name.clone(),
                d.tier.clone(),
                maybe(d.waf, 2),
                fixed(gib(d.guest_bytes), 2),
                fixed(gib(d.copied_bytes), 2),
                fixed(gib(d.flash_bytes), 2),
                fixed(d.drive_writes_per_day, 2),
                maybe(d.years, 2),
            ]);
        }
        for v in &wear.vms {
            vms.push(vec![
                label.clone(),
                v.vm.clone(),
                fixed(gib(v.guest_bytes), 2),
                fixed(gib(v.copied_bytes), 2),
                fixed(gib(v.flash_bytes), 2),
                fixed(v.drive_writes_per_day, 2),
            ]);
        }
        for t in &wear.tenants {
            tenants.push(vec![
                label.clone(),
                t.device.clone(),
                t.tenant.clone(),
                maybe(t.waf, 2),
                fixed(gib(t.guest_bytes), 2),
                fixed(gib(t.copied_bytes), 2),
                fixed(gib(t.flash_bytes), 2),
                fixed(gib(t.moved_foreign_bytes), 2),
                fixed(gib(t.moved_by_others_bytes), 2),
                maybe(t.over_provisioned_bytes.map(gib), 2),
                maybe(t.over_provisioned_share.map(|s| 100.0 * s), 1),
            ]);
        }
    }
    let written = || {
        [
            number("guest writes", "GiB"),
            number("move writes", "GiB"),
            number("programmed", "GiB"),
            number("drive writes", "per day"),
        ]
    };
    let mut of_devices = vec![words("strategy"), words("device"), words("tier")];
    of_devices.push(number("WAF", ""));
    of_devices.extend(written());
    of_devices.push(number("lifetime", "years"));
    let mut of_vms = vec![words("strategy"), words("vm")];
    of_vms.extend(written());
    let mut out = vec![(of_devices, devices), (of_vms, vms)];
    if !tenants.is_empty() {
        let mut of_tenants = vec![words("strategy"), words("device"), words("tenant")];
        of_tenants.push(number("WAF", ""));
        of_tenants.extend(written().into_iter().take(3));
        of_tenants.push(number("moved foreign", "GiB"));
        of_tenants.push(number("moved by others", "GiB"));
        of_tenants.push(number("over-provisioned", "GiB"));
        of_tenants.push(number("share of all OP", "%"));
        out.push((of_tenants, tenants));
    }
    Some(out)
}

/// Renders the same tables as text; `None` without devices with a flash model.
pub fn wear(results: &[RunResult]) -> Option<String> {
    let tables = rows(results)?.into_iter();
    let tables: Vec<String> = tables
        .map(|(columns, rows)| table(&columns, rows))
        .collect();
    Some(tables.join("\n"))
}
