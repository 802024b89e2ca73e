//! A cluster that is observed before it has a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use vmhost::proxmox::{Storage, TierStorages};
use vmhost::{Medium, Transport, guessed};

use super::api::ApiError;
use super::host::Proxmox;
use super::{ProxmoxKeys, tiers_of};
use crate::machines::MachinesSettings;
use crate::places::TierOf;
use crate::platform::Keys;
use crate::survey::{Candidate, Found, FoundPlace, NETWORK, Survey, Wanted};

/// Address on a node of the cluster itself, and the CA that every node has.
const LOCAL: &str = "https://localhost:8006";
const LOCAL_CA: &str = "/etc/pve/pve-root-ca.pem";

/// Types of storages behind a network (pve-storage, `PVE/Storage/*Plugin.pm`).
const NETWORKS: [&str; 8] = [
    "nfs",
    "cifs",
    "glusterfs",
    "cephfs",
    "rbd",
    "iscsi",
    "iscsidirect",
    "zfs",
];

/// Name of the only tier of a survey.
const ALL: &str = "all";

pub(super) fn candidates(wanted: &Wanted) -> Result<Vec<Candidate>, String> {
    let address = match (&wanted.host, &wanted.token) {
        (Some(address), _) if address.starts_with("https://") => address,
        (None, Some(_)) => LOCAL,
        _ => return Ok(vec![]),
    };
    let token = wanted.token.as_ref();
    let token = token.ok_or_else(|| {
        format!("{address} needs an API token: name the file that has it, one line USER@REALM!ID=UUID, with --token")
    })?;
    let mut table = json!({ "address": address, "token": token });
    match (&wanted.ca, &wanted.fingerprint) {
        (None, Some(fingerprint)) => table["fingerprint"] = fingerprint.as_str().into(),
        (Some(ca), _) => table["ca"] = json!(ca),
        (None, None) if Path::new(LOCAL_CA).exists() => table["ca"] = LOCAL_CA.into(),
        (None, None) => {
            return Err(match wanted.host {
                Some(_) => format!(
                    "{address} has a certificate of its own CA: name the file of the CA (pve-root-ca.pem of a node) with --ca, or the certificate with --fingerprint"
                ),
                None => {
                    "this machine is no node of Proxmox VE: name a node as https://NODE:8006".into()
                }
            });
        }
    }
    let keys = ProxmoxKeys::deserialize(&table).map_err(|e| e.to_string())?;
    Ok(vec![Candidate {
        platform: ProxmoxKeys::NAME,
        title: address.into(),
        table,
        survey: Box::new(ClusterSurvey(keys)),
    }])
}

struct ClusterSurvey(ProxmoxKeys);

impl ClusterSurvey {
    fn look(&self, tiers: Vec<TierStorages>) -> Result<Proxmox, String> {
        let api = self.0.api(Path::new("/")).map_err(|(_, why)| why)?;
        let mut cluster = Proxmox::new(api, vec![], tiers, MachinesSettings::default());
        cluster.look()?;
        Ok(cluster)
    }

    /// Storages for disks, with the number of nodes that have each.
    fn storages(&self) -> Result<BTreeMap<String, (Storage, usize)>, String> {
        let mut api = self.0.api(Path::new("/")).map_err(|(_, why)| why)?;
        let mut found: BTreeMap<String, (Storage, usize)> = BTreeMap::new();
        for node in api.nodes().map_err(ApiError::why)? {
            // A node that is down has no storages now.
            for storage in api.storages(&node).unwrap_or_default() {
                if storage.images && storage.active {
                    let name = storage.name.clone();
                    found.entry(name).or_insert((storage, 0)).1 += 1;
                }
            }
        }
        Ok(found)
    }
}

impl Survey for ClusterSurvey {
    fn find(&mut self) -> Result<Found, String> {
        let storages = self.storages()?;
        let place = |(storage, nodes): &(Storage, usize)| {
            let kind = &storage.kind;
            FoundPlace {
                name: storage.name.clone(),
                path: storage.name.clone(),
                shares: None,
                images: 0,
                kind: Some(match storage.shared {
                    true => format!("{kind}, shared"),
                    false if *nodes == 1 => format!("{kind}, on one node"),
                    false => format!("{kind}, on each of {nodes} nodes"),
                }),
                guess: guessed(medium(kind)),
            }
        };
        let mut places: Vec<FoundPlace> = storages.values().map(place).collect();
        places.sort_by(|a, b| (a.guess.rank, &a.name).cmp(&(b.guess.rank, &b.name)));
        let all: BTreeSet<String> = storages.into_keys().collect();
        let tier = TierStorages {
            name: ALL.into(),
            storages: all.into_iter().collect(),
        };
        let disks = self.look(vec![tier])?.disks();
        Ok(Found { places, disks })
    }

    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>, String> {
        let tiers = tiers_of(tiers).map_err(|(_, why)| why)?;
        Ok(self.look(tiers)?.left_out())
    }
}

/// The API does not report devices: only networks are known by the type of the storage.
fn medium(kind: &str) -> Medium {
    match NETWORKS.contains(&kind) {
        true => NETWORK,
        false => Medium {
            transport: Transport::Unknown,
            rotational: None,
        },
    }
}
