//! Step 8: how a workload's requests are sent through an appliance, and back, without its noticing (the paper's table 1).
//!
//! An interface with several implementations. None of them does it: each says whether it can, how long requests stand still, and
//! what it takes; the driver of the appliance carries it out.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// How a workload reaches its storage.
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

/// What a way of re-routing is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// How the workload reaches its storage.
    pub protocol: Protocol,
    /// Storage addresses that are this workload's alone.
    pub own_addresses: u32,
    /// Whether its hypervisor can be asked to migrate storage.
    pub hypervisor: Hypervisor,
    /// Whether it goes through a proxy already.
    pub proxy: Proxy,
}

/// What a hypervisor can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// Hands the copying of a storage migration to the storage.
    OffloadsCopies,
    /// Nothing of use here.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// All requests go through one.
    Between,
    /// None.
    Absent,
}

/// What a way takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutePrice {
    /// How long requests stand still.
    pub pause: Nanos,
    /// Memory that it takes all the time, also without an appliance.
    pub standing_memory: Bytes,
    /// Virtual CPUs that it takes all the time.
    pub standing_cpus: u32,
}

/// A way of re-routing.
pub trait Reroute {
    fn name(&self) -> &'static str;

    /// What it takes, or why it cannot (a reason without the workload's name).
    ///
    /// # Errors
    /// The constraint that is not met.
    fn price(&self, at: &Attachment) -> Result<RoutePrice, &'static str>;
}

/// Each workload has a storage address of its own, which moves to the appliance (the paper's choice). Takes addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressMigration {
    /// Until the network has learnt the address's new place.
    pub pause: Nanos,
}

/// The metadata server revokes the layout; the client asks again and is sent to the appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutRevoke {
    /// Until the client has the new layout.
    pub pause: Nanos,
}

/// A storage migration to the appliance whose copy the storage answers without copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullCopyOffload {
    /// Until the hypervisor has switched.
    pub pause: Nanos,
}

/// All requests go through a proxy all the time, which is told where to send them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermanentProxy {
    /// Memory that the proxy takes.
    pub memory: Bytes,
    /// Virtual CPUs that it takes.
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

/// All ways of the paper's table, with pauses of our own (it gives none).
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

/// What became of each way for one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WayFinding {
    pub way: &'static str,
    /// What it takes.
    pub price: Option<RoutePrice>,
    /// Why it cannot.
    pub refused: Option<&'static str>,
}

/// The way with the shortest pause that can, first of equals; and what was found about all.
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
    fn each_way_has_its_constraint() {
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
