//! Latency histograms of domains, if they are enabled. libvirt 9.0 has no API for them, so QEMU is queried through
//! libvirt's monitor command, which marks the domain as tainted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vmhost::qemu::{CountedDevice, HistogramOwner, bounds, counted_devices};
use vmhost::{Domain, DomainStats, quoted};

use super::AT_ONCE;
use crate::error::{AgentError, Result, in_context};
use crate::virsh::Virsh;

/// Pause after a domain that did not answer. Without it, each look would wait for that domain.
const AGAIN: Duration = Duration::from_secs(60);

/// State of the histograms.
#[derive(Default)]
pub(super) struct Histograms {
    /// Domains and devices without available histograms.
    uncountable: BTreeSet<(String, String)>,
    failed: Option<Instant>,
}

impl Histograms {
    /// Adds the histograms to the statistics, and enables them for devices that have none.
    ///
    /// # Errors
    /// The histograms are unknown now; the error has the reason.
    pub(super) fn look(
        &mut self,
        virsh: &Virsh,
        domains: &[&Domain],
        stats: &mut [DomainStats],
    ) -> Result<()> {
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
    ) -> Result<()> {
        let mut set = vec![];
        for some in domains.chunks(AT_ONCE) {
            for (domain, devices) in some.iter().zip(ask(virsh, some)?) {
                let Some(of) = stats.iter_mut().find(|s| s.domain == domain.name) else {
                    continue;
                };
                for (target, device) in disks_of(domain, &devices) {
                    match device.by {
                        HistogramOwner::Nobody => {
                            set.push((domain.uuid.clone(), device.id.clone()))
                        }
                        HistogramOwner::Us => {
                            let block = of.blocks.iter_mut().find(|b| b.target == target);
                            if let Some(block) = block {
                                // Take all counters from the same moment: libvirt reads its own at another time.
                                let all = &device.stats;
                                (block.reads, block.writes) = (all.reads, all.writes);
                                block.flushes = all.flushes;
                                block.latencies.clone_from(&all.latencies);
                            }
                        }
                        HistogramOwner::Others => {}
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

    /// Disables the histograms that this agent enabled.
    pub(super) fn give_back(virsh: &Virsh, domains: &[&Domain]) {
        for some in domains.chunks(AT_ONCE) {
            let Ok(found) = ask(virsh, some) else {
                return;
            };
            for (domain, devices) in some.iter().zip(found) {
                for (_, device) in disks_of(domain, &devices) {
                    if device.by == HistogramOwner::Us {
                        // A device that no longer exists has no histogram either.
                        let _ = order(virsh, &domain.uuid, json!({ "id": device.id }));
                    }
                }
            }
        }
    }
}

/// Returns the devices of a domain's disks, with the names of the disks.
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

/// Queries the devices of domains. A domain that has just ended has none.
fn ask(virsh: &Virsh, domains: &[&Domain]) -> Result<Vec<Vec<CountedDevice>>> {
    let query = quoted(r#"{"execute":"query-blockstats"}"#);
    let command = |d: &&Domain| format!("qemu-monitor-command {} {query}", quoted(&d.uuid));
    let commands: Vec<String> = domains.iter().map(command).collect();
    let answers = virsh.ask_for_more(&commands)?;
    let read = |(domain, answer): (&&Domain, crate::virsh::Answer)| {
        let Some(text) = answer.some() else {
            return Ok(vec![]);
        };
        let counted = || -> Result<_> {
            let answer: Value = serde_json::from_str(text)?;
            Ok(counted_devices(&answer["return"])?)
        };
        counted().map_err(in_context(format_args!("statistics of {}", domain.name)))
    };
    domains.iter().zip(answers).map(read).collect()
}

fn order(virsh: &Virsh, uuid: &str, arguments: Value) -> Result<()> {
    let order = json!({ "execute": "block-latency-histogram-set", "arguments": arguments });
    let said = virsh.order(&["qemu-monitor-command", uuid, &order.to_string()])?;
    let answer: Value = serde_json::from_str(&said)?;
    match answer.get("return") {
        Some(_) => Ok(()),
        None => Err(AgentError::Refused(answer["error"]["desc"].to_string())),
    }
}
