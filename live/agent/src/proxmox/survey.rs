//! Survey of a cluster that is observed before it has a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use vmhost::proxmox::{Storage, TierStorages};
use vmhost::{Medium, Transport, guessed};

use super::api::Api;
use super::host::Proxmox;
use super::{ProxmoxKeys, tiers_of};
use crate::error::{AgentError, Result};
use crate::machines::MachinesSettings;
use crate::places::TierOf;
use crate::platform::{KeyFault, Keys};
use crate::survey::{Candidate, FoundPlace, NETWORK, Survey, SurveyRequest, SurveyResult};

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

pub(super) fn candidates(wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
    let address = match (&wanted.host, &wanted.token) {
        (Some(address), _) if address.starts_with("https://") => address,
        (None, Some(_)) => LOCAL,
        _ => return Ok(vec![]),
    };
    let token = wanted.token.as_ref();
    let token = token.ok_or_else(|| {
        AgentError::Setting(format!("{address} needs an API token: name the file that has it, one line USER@REALM!ID=UUID, with --token"))
    })?;
    let mut table = json!({ "address": address, "token": token });
    match (&wanted.ca, &wanted.fingerprint) {
        (None, Some(fingerprint)) => table["fingerprint"] = fingerprint.as_str().into(),
        (Some(ca), _) => table["ca"] = json!(ca),
        (None, None) if Path::new(LOCAL_CA).exists() => table["ca"] = LOCAL_CA.into(),
        (None, None) => {
            return Err(AgentError::Setting(match wanted.host {
                Some(_) => format!(
                    "{address} has a certificate of its own CA: name the file of the CA (pve-root-ca.pem of a node) with --ca, or the certificate with --fingerprint"
                ),
                None => {
                    "this machine is no node of Proxmox VE: name a node as https://NODE:8006".into()
                }
            }));
        }
    }
    let keys = ProxmoxKeys::deserialize(&table)?;
    Ok(vec![Candidate {
        platform: ProxmoxKeys::NAME,
        title: address.into(),
        table,
        survey: Box::new(ClusterSurvey(keys)),
    }])
}

/// Returns the error of a fault, without its key: a survey has no configuration.
fn setting((_, why): KeyFault) -> AgentError {
    AgentError::Setting(why)
}

struct ClusterSurvey(ProxmoxKeys);

impl ClusterSurvey {
    fn api(&self) -> Result<Api> {
        self.0.api(Path::new("/")).map_err(setting)
    }

    fn look(&self, tiers: Vec<TierStorages>) -> Result<Proxmox> {
        let api = self.api()?;
        let mut cluster = Proxmox::new(api, vec![], tiers, MachinesSettings::default());
        cluster.look()?;
        Ok(cluster)
    }

    /// Storages for disks, with the number of nodes that have each.
    fn storages(&self) -> Result<BTreeMap<String, (Storage, usize)>> {
        let mut api = self.api()?;
        let mut found: BTreeMap<String, (Storage, usize)> = BTreeMap::new();
        for node in api.nodes()? {
            // A node that is down lists no storages.
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
    fn find(&mut self) -> Result<SurveyResult> {
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
        Ok(SurveyResult { places, disks })
    }

    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>> {
        let tiers = tiers_of(tiers).map_err(setting)?;
        Ok(self.look(tiers)?.left_out())
    }
}

/// Returns the medium of a type of storage. The API does not report devices, so only network storages are known.
fn medium(kind: &str) -> Medium {
    match NETWORKS.contains(&kind) {
        true => NETWORK,
        false => Medium {
            transport: Transport::Unknown,
            rotational: None,
        },
    }
}
