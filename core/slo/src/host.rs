//! Step 6: choice of the host of an appliance: the workload's host, else a host in the same rack, else any host with room.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::sample::HostId;

/// Server with its free CPUs and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Id of the host.
    pub id: HostId,
    /// Name in messages.
    pub name: String,
    /// Number of the rack.
    pub rack: u16,
    /// Virtual CPUs that are not assigned.
    pub cpus_free: u32,
    /// Memory that is not assigned.
    pub memory_free: Bytes,
}

/// CPUs and memory that an appliance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, including the appliance's own use.
    pub memory: Bytes,
}

/// Virtual CPUs of a caching appliance (Dynamite, sec. 6).
pub const APPLIANCE_CPUS: u32 = 4;

/// Distance of a host from the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nearness {
    /// The same host: hits never cross a link.
    Own,
    /// The same rack.
    Rack,
    /// Another rack.
    Elsewhere,
}

/// Result of the check of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFinding {
    pub host: HostId,
    /// Distance from the workload.
    pub nearness: Nearness,
    /// Reason of the rejection; `None` if the host is suitable.
    pub refused: Option<String>,
}

/// Returns the nearest host with room for `needs`, and the findings of all hosts, nearest first. Hosts in `avoid` are
/// rejected because an appliance failed on them recently.
pub fn choose(
    hosts: &[Host],
    own: HostId,
    needs: Needs,
    avoid: &[HostId],
) -> (Option<HostId>, Vec<HostFinding>) {
    let rack = hosts.iter().find(|h| h.id == own).map(|h| h.rack);
    let nearness = |h: &Host| match h {
        h if h.id == own => Nearness::Own,
        h if Some(h.rack) == rack => Nearness::Rack,
        _ => Nearness::Elsewhere,
    };
    let mut findings: Vec<HostFinding> = hosts
        .iter()
        .map(|h| HostFinding {
            host: h.id,
            nearness: nearness(h),
            refused: refusal(h, needs, avoid),
        })
        .collect();
    // The sort is stable: hosts of equal distance stay in the given order.
    findings.sort_by_key(|f| f.nearness);
    let chosen = findings.iter().find(|f| f.refused.is_none());
    (chosen.map(|f| f.host), findings)
}

/// Returns the most free memory of a host with this number of free virtual CPUs; `avoid` as in [`choose`].
pub fn most_room(hosts: &[Host], cpus: u32, avoid: &[HostId]) -> Option<Bytes> {
    let needs = Needs {
        cpus,
        memory: Bytes::ZERO,
    };
    let others = hosts.iter().filter(|h| refusal(h, needs, avoid).is_none());
    others.map(|h| h.memory_free).max()
}

fn refusal(host: &Host, needs: Needs, avoid: &[HostId]) -> Option<String> {
    if avoid.contains(&host.id) {
        Some("an appliance failed there recently".into())
    } else if host.cpus_free < needs.cpus {
        let (free, cpus) = (host.cpus_free, needs.cpus);
        Some(format!("{free} virtual CPUs free, {cpus} needed"))
    } else if host.memory_free < needs.memory {
        let (free, memory) = (host.memory_free, needs.memory);
        Some(format!("{free} of memory free, {memory} needed"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: u16, rack: u16, cpus_free: u32, gib: u64) -> Host {
        Host {
            id: HostId(id),
            name: format!("host {id}"),
            rack,
            cpus_free,
            memory_free: Bytes::gib(gib),
        }
    }

    #[test]
    fn host_choice_prefers_own_host_then_rack_then_first_fit() {
        let needs = Needs {
            cpus: APPLIANCE_CPUS,
            memory: Bytes::gib(4),
        };
        let mut hosts = vec![host(0, 7, 8, 8), host(1, 8, 8, 8), host(2, 7, 8, 8)];
        let pick = |hosts: &[Host], avoid: &[HostId]| choose(hosts, HostId(0), needs, avoid).0;
        assert_eq!(pick(&hosts, &[]), Some(HostId(0)));
        assert_eq!(pick(&hosts, &[HostId(0)]), Some(HostId(2)));
        hosts[0].cpus_free = 3;
        assert_eq!(pick(&hosts, &[]), Some(HostId(2)));
        hosts[2].memory_free = Bytes::gib(3);
        assert_eq!(pick(&hosts, &[]), Some(HostId(1)));
        hosts[1].memory_free = Bytes::ZERO;
        let (none, findings) = choose(&hosts, HostId(0), needs, &[]);
        assert_eq!(none, None);
        let why: Vec<_> = findings
            .iter()
            .map(|f| f.refused.as_deref().unwrap())
            .collect();
        assert_eq!(
            why,
            [
                "3 virtual CPUs free, 4 needed",
                "3 GiB of memory free, 4 GiB needed",
                "0 B of memory free, 4 GiB needed"
            ]
        );
    }
}
