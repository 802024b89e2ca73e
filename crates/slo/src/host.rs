//! Step 6: where does an appliance run? Beside its workload, else in the same rack, else wherever there is room first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::sample::HostId;

/// What a server has left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Which.
    pub id: HostId,
    /// For people.
    pub name: String,
    /// Its rack.
    pub rack: u16,
    /// Virtual CPUs that nobody has.
    pub cpus_free: u32,
    /// Memory that nobody has.
    pub memory_free: Bytes,
}

/// What an appliance takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, its own included.
    pub memory: Bytes,
}

/// Virtual CPUs of a caching appliance (the paper's, sec. 6).
pub const APPLIANCE_CPUS: u32 = 4;

/// How near a host is to the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nearness {
    /// The same host: hits never cross a link.
    Own,
    /// The same rack.
    Rack,
    /// Anywhere.
    Elsewhere,
}

/// What was found about one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFinding {
    pub host: HostId,
    /// How near.
    pub nearness: Nearness,
    /// Why not; `None` if it would do.
    pub refused: Option<String>,
}

/// The nearest host with room for `needs`, and what was found about all of them in the order in which they were tried.
/// `avoid` are those where it failed lately.
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
    // Stable: within a nearness the first that fits, in the order given.
    findings.sort_by_key(|f| f.nearness);
    let chosen = findings.iter().find(|f| f.refused.is_none());
    (chosen.map(|f| f.host), findings)
}

/// The most memory that some host has for what takes so many virtual CPUs; `avoid` as for [`choose`].
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
    fn own_then_rack_then_first_fit() {
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
