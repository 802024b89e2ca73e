//! Wear of devices with flash inside: what was written, what was programmed, how long the blocks last.

use sim::RunResult;

use crate::format::{fixed, gib, maybe};
use crate::run::labels;
use crate::tables::{Column, number, table, words};

/// Columns and rows of one table.
pub(crate) type Rows = (Vec<Column>, Vec<Vec<String>>);

/// Tables of devices and of VMs, a row per strategy and device or VM; none without such devices.
pub(crate) fn rows(results: &[RunResult]) -> Option<[Rows; 2]> {
    results.iter().find(|r| r.wear.is_some())?;
    let (mut devices, mut vms) = (Vec::new(), Vec::new());
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
    }
    let written = || {
        [
            number("by guests", "GiB"),
            number("by moves", "GiB"),
            number("programmed", "GiB"),
            number("drive writes", "per day"),
        ]
    };
    let mut of_devices = vec![words("strategy"), words("device"), words("tier")];
    of_devices.push(number("WAF", ""));
    of_devices.extend(written());
    of_devices.push(number("lasts", "years"));
    let mut of_vms = vec![words("strategy"), words("vm")];
    of_vms.extend(written());
    Some([(of_devices, devices), (of_vms, vms)])
}

/// The same as text; none without such devices.
pub fn wear(results: &[RunResult]) -> Option<String> {
    let [(device_columns, devices), (vm_columns, vms)] = rows(results)?;
    let (devices, vms) = (table(&device_columns, devices), table(&vm_columns, vms));
    Some(format!("{devices}\n{vms}"))
}
