//! Step 8: methods to route a workload's requests through an appliance and back, transparently (the paper's table 1).
//!
//! The methods are implementations of one interface. They only evaluate: each returns whether it is possible, the pause of
//! requests and its cost. The driver of the appliance does the re-routing.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Protocol between a workload and its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// NFS version 3: no state on the server.
    Nfs3,
    /// NFS version 4.1 with layouts.
    Nfs41,
    /// SCSI with extended copy.
    ScsiCopy,
    Nbd,
}

/// Properties of a workload that a method depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Protocol of the storage.
    pub protocol: Protocol,
    /// Storage addresses that belong to this workload alone.
    pub own_addresses: u32,
    /// Support for storage migration by its hypervisor.
    pub hypervisor: Hypervisor,
    /// Presence of a proxy in its path.
    pub proxy: Proxy,
}

/// Support of a hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// It delegates the copying in a storage migration to the storage.
    OffloadsCopies,
    /// No useful support.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// All requests go through a proxy.
    Between,
    /// No proxy.
    Absent,
}

/// Cost of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutePrice {
    /// Pause of the requests.
    pub pause: Nanos,
    /// Memory in permanent use, also without an appliance.
    pub standing_memory: Bytes,
    /// Virtual CPUs in permanent use.
    pub standing_cpus: u32,
}

/// Method of re-routing.
pub trait Reroute {
    fn name(&self) -> &'static str;

    /// Returns the cost for a workload.
    ///
    /// # Errors
    /// The constraint that is not met, without the workload's name.
    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str>;
}

/// Moves a storage address of the workload to the appliance (the paper's choice). Each workload needs its own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressMigration {
    /// Time until the network has learnt the new location of the address.
    pub pause: Nanos,
}

/// The metadata server revokes the layout. The client requests a new one, which directs it to the appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutRevoke {
    /// Time until the client has the new layout.
    pub pause: Nanos,
}

/// Storage migration to the appliance, whose copy the storage acknowledges without copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullCopyOffload {
    /// Time until the hypervisor has switched.
    pub pause: Nanos,
}

/// A proxy that is always in the path, and whose target is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermanentProxy {
    /// Memory of the proxy.
    pub memory: Bytes,
    /// Virtual CPUs of the proxy.
    pub cpus: u32,
}

impl Reroute for AddressMigration {
    fn name(&self) -> &'static str {
        "address-migration"
    }

    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str> {
        if at.protocol != Protocol::Nfs3 {
            return Err("needs a protocol without sessions, such as NFSv3");
        }
        if at.own_addresses == 0 {
            return Err("the workload has no storage address of its own");
        }
        Ok(paused(self.pause))
    }
}

impl Reroute for LayoutRevoke {
    fn name(&self) -> &'static str {
        "layout-revoke"
    }

    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str> {
        match at.protocol {
            Protocol::Nfs41 => Ok(paused(self.pause)),
            _ => Err("needs NFS 4.1 with layouts"),
        }
    }
}

impl Reroute for NullCopyOffload {
    fn name(&self) -> &'static str {
        "null-copy-offload"
    }

    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str> {
        match (at.hypervisor, at.protocol) {
            (Hypervisor::Plain, _) => Err("the hypervisor does not offload copies to the storage"),
            (_, Protocol::Nbd) => Err("needs SCSI or NFS"),
            _ => Ok(paused(self.pause)),
        }
    }
}

impl Reroute for PermanentProxy {
    fn name(&self) -> &'static str {
        "permanent-proxy"
    }

    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str> {
        match at.proxy {
            Proxy::Absent => Err("no proxy is in the path of its requests"),
            Proxy::Between => Ok(RoutePrice {
                pause: Nanos::ZERO,
                standing_memory: self.memory,
                standing_cpus: self.cpus,
            }),
        }
    }
}

fn paused(pause: Nanos) -> RoutePrice {
    RoutePrice {
        pause,
        standing_memory: Bytes::ZERO,
        standing_cpus: 0,
    }
}

/// Returns all methods of the paper's table. The pauses are ours, as the paper gives none.
pub fn ways() -> Vec<Box<dyn Reroute>> {
    vec![
        Box::new(AddressMigration {
            pause: Nanos::from_secs(1),
        }),
        Box::new(LayoutRevoke {
            pause: Nanos::from_millis(200),
        }),
        Box::new(NullCopyOffload {
            pause: Nanos::from_secs(2),
        }),
        Box::new(PermanentProxy {
            memory: Bytes::gib(1),
            cpus: 1,
        }),
    ]
}

/// Result of one method for one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WayFinding {
    pub way: &'static str,
    /// Cost, if the method is possible.
    pub price: Option<RoutePrice>,
    /// Reason why it is not possible.
    pub refused: Option<&'static str>,
}

/// Returns the index of the possible method with the shortest pause, the first among equals, and the findings of all
/// methods.
pub fn choose_way(ways: &[Box<dyn Reroute>], at: &Attachment) -> (Option<usize>, Vec<WayFinding>) {
    let findings: Vec<WayFinding> = ways
        .iter()
        .map(|way| {
            let price = way.price(at);
            WayFinding {
                way: way.name(),
                price: price.ok(),
                refused: price.err(),
            }
        })
        .collect();
    let best = findings
        .iter()
        .enumerate()
        .filter_map(|(i, f)| f.price.map(|p| (p.pause, i)))
        .min();
    (best.map(|(_, i)| i), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rerouting_method_has_its_constraint() {
        let paper = Attachment {
            protocol: Protocol::Nfs3,
            own_addresses: 1,
            hypervisor: Hypervisor::Plain,
            proxy: Proxy::Absent,
        };
        let pick = |at: Attachment| {
            let ways = ways();
            choose_way(&ways, &at).0.map(|i| ways[i].name())
        };
        assert_eq!(pick(paper), Some("address-migration"));
        let no_address = Attachment {
            own_addresses: 0,
            ..paper
        };
        assert_eq!(pick(no_address), None);
        let (_, findings) = choose_way(&ways(), &no_address);
        assert!(findings.iter().all(|f| f.refused.is_some()));
        let offloads = Attachment {
            hypervisor: Hypervisor::OffloadsCopies,
            ..no_address
        };
        assert_eq!(pick(offloads), Some("null-copy-offload"));
        let layouts = Attachment {
            protocol: Protocol::Nfs41,
            ..offloads
        };
        assert_eq!(pick(layouts), Some("layout-revoke"));
        let proxied = Attachment {
            protocol: Protocol::Nbd,
            proxy: Proxy::Between,
            ..no_address
        };
        assert_eq!(pick(proxied), Some("permanent-proxy"));
    }
}
