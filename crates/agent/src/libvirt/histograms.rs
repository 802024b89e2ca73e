//! Latency histograms of domains, where they are asked for: libvirt 9.0 has no words for them, so QEMU is asked through libvirt's monitor command,
//! which marks the domain as tainted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vmhost::qemu::{Counted, CountedDevice, bounds, counted_devices};
use vmhost::{Domain, DomainStats, quoted};

use super::AT_ONCE;
use crate::virsh::Virsh;

/// After a domain that does not answer nobody is asked for so long: each look would wait for it.
const AGAIN: Duration = Duration::from_secs(60);

/// What is counted, and what cannot be.
#[derive(Default)]
pub(super) struct Histograms {
    /// Domains and devices whose histograms cannot be had.
    uncountable: BTreeSet<(String, String)>,
    failed: Option<Instant>,
}

impl Histograms {
    /// Adds what was counted to the statistics, and has those counted that nobody counts.
    ///
    /// # Errors
    /// Why nothing is known now.
    pub(super) fn look(
        &mut self,
        virsh: &Virsh,
        domains: &[&Domain],
        stats: &mut [DomainStats],
    ) -> Result<(), String> {
        if self.failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return Ok(());
        }
        let looked = self.look_now(virsh, domains, stats);
        self.failed = looked.is_err().then(Instant::now);
        looked
    }

    fn look_now(
        &mut self,
        virsh: &Virsh,
        domains: &[&Domain],
        stats: &mut [DomainStats],
    ) -> Result<(), String> {
        let mut set = vec![];
        for some in domains.chunks(AT_ONCE) {
            for (domain, devices) in some.iter().zip(ask(virsh, some)?) {
                let Some(of) = stats.iter_mut().find(|s| s.domain == domain.name) else {
                    continue;
                };
                for (target, device) in disks_of(domain, &devices) {
                    match device.by {
                        Counted::Nobody => set.push((domain.uuid.clone(), device.id.clone())),
                        Counted::Us => {
                            let block = of.blocks.iter_mut().find(|b| b.target == target);
                            if let Some(block) = block {
                                // All of one moment: libvirt's own are of another.
                                let all = &device.stats;
                                (block.reads, block.writes) = (all.reads, all.writes);
                                block.flushes = all.flushes;
                                block.latencies.clone_from(&all.latencies);
                            }
                        }
                        Counted::Others => {}
                    }
                }
            }
        }
        let runs = |uuid: &String| domains.iter().any(|d| d.uuid == *uuid);
        self.uncountable.retain(|(uuid, _)| runs(uuid));
        set.retain(|of| !self.uncountable.contains(of));
        for of in set {
            let bounds = json!({ "id": of.1, "boundaries": bounds() });
            if order(virsh, &of.0, bounds).is_err() {
                self.uncountable.insert(of); // or it has ended
            }
        }
        Ok(())
    }

    /// Takes back what was set.
    pub(super) fn give_back(virsh: &Virsh, domains: &[&Domain]) {
        for some in domains.chunks(AT_ONCE) {
            let Ok(found) = ask(virsh, some) else {
                return;
            };
            for (domain, devices) in some.iter().zip(found) {
                for (_, device) in disks_of(domain, &devices) {
                    if device.by == Counted::Us {
                        // One that is gone has no histogram either.
                        let _ = order(virsh, &domain.uuid, json!({ "id": device.id }));
                    }
                }
            }
        }
    }
}

/// Devices of a domain's disks, by the disks' names.
fn disks_of<'a>(
    domain: &'a Domain,
    devices: &'a [CountedDevice],
) -> impl Iterator<Item = (&'a str, &'a CountedDevice)> {
    domain.disks.iter().filter_map(|disk| {
        let alias = disk.alias.as_deref()?;
        let device = devices.iter().find(|d| d.is(alias))?;
        (disk.kind == vmhost::DiskKind::Disk).then_some((&*disk.target, device))
    })
}

/// One that has just ended has no devices.
fn ask(virsh: &Virsh, domains: &[&Domain]) -> Result<Vec<Vec<CountedDevice>>, String> {
    let query = quoted(r#"{"execute":"query-blockstats"}"#);
    let command = |d: &&Domain| format!("qemu-monitor-command {} {query}", quoted(&d.uuid));
    let commands: Vec<String> = domains.iter().map(command).collect();
    let answers = virsh.ask_for_more(&commands)?;
    let read = |(domain, answer): (&&Domain, crate::virsh::Answer)| {
        let Some(text) = answer.some() else {
            return Ok(vec![]);
        };
        let said = |e: &dyn std::fmt::Display| format!("statistics of {}: {e}", domain.name);
        let answer: Value = serde_json::from_str(text).map_err(|e| said(&e))?;
        counted_devices(&answer["return"]).map_err(|e| said(&e))
    };
    domains.iter().zip(answers).map(read).collect()
}

fn order(virsh: &Virsh, uuid: &str, arguments: Value) -> Result<(), String> {
    let order = json!({ "execute": "block-latency-histogram-set", "arguments": arguments });
    let said = virsh.order(&["qemu-monitor-command", uuid, &order.to_string()]);
    let said = said.map_err(crate::moves::Refusal::why)?;
    let answer: Value = serde_json::from_str(&said).map_err(|e| e.to_string())?;
    match answer.get("return") {
        Some(_) => Ok(()),
        None => Err(answer["error"]["desc"].to_string()),
    }
}
