//! Virtual machines of a Proxmox VE cluster, by its API.
//!
//! ```text
//!   [proxmox] ─▶ ProxmoxKeys ─open─▶ Proxmox (Host) ─▶ Api ─▶ https://NODE:8006
//!                                      ├─▶ Moves      move_disk, tasks, unused volumes
//!                                      └─▶ Throttles  limits in the configuration of VMs
//! ```
//!
//! [`vmhost::proxmox`] parses answers, decides which disks may move, and has the steps of a move.

mod api;
mod host;
mod moves;
mod survey;
mod throttles;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use client::{Address, Client, TlsTrust, Token};
use manager::settings::MachinesConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmhost::proxmox::{TierStorages, missing, needed};

use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::machines::MachinesSettings;
use crate::places::{PlacesOf, TierOf};
use crate::platform::{KeyFault, Keys};
use crate::survey::{Candidate, SurveyRequest};
use api::Api;
use host::Proxmox;

/// Port of the API if the address has none.
const PORT: u16 = 8006;

/// Prefix of the header with an API token (pve-http-server, `Formatter.pm`).
const SCHEME: &str = "PVEAPIToken=";

/// Virtual machines of a Proxmox VE cluster.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProxmoxKeys {
    /// Address of the API on any node, such as "https://pve1.example:8006".
    address: String,
    /// File with an API token, one line `USER@REALM!ID=UUID`, that only its owner can read. Relative
    /// to the directory of the file.
    token: String,
    /// PEM file of the cluster's CA, /etc/pve/pve-root-ca.pem of a node. This or `fingerprint` is
    /// required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// SHA-256 fingerprint of the certificate of that node, instead of `ca`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    /// Names of the nodes whose VMs are managed; all nodes of the cluster if omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
    #[serde(flatten)]
    common: MachinesConfig,
}

impl Keys for ProxmoxKeys {
    const NAME: &'static str = "proxmox";

    fn title(&self) -> String {
        format!("virtual machines of Proxmox VE at {}", self.address)
    }

    fn open(self, base: &Path, settings: MachinesSettings) -> Result<Box<dyn Host>, KeyFault> {
        let tiers = tiers_of(&settings.tiers)?;
        let api = self.api(base)?;
        Ok(Box::new(Proxmox::new(api, self.nodes, tiers, settings)))
    }

    fn candidates(wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
        survey::candidates(wanted)
    }

    fn check(&self, base: &Path, settings: &MachinesSettings) -> Result<Vec<String>, KeyFault> {
        let tiers = tiers_of(&settings.tiers)?;
        let storages = tiers.into_iter().flat_map(|t| t.storages);
        let storages: BTreeSet<String> = storages.collect();
        let storages: Vec<String> = storages.into_iter().collect();
        let mut api = self.api(base)?;
        self.check_token(&mut api, &storages, settings.moving.is_some())
            .map_err(|e| ("proxmox", e.to_string()))
    }
}

impl ProxmoxKeys {
    fn api(&self, base: &Path) -> Result<Api, KeyFault> {
        let bad = |key, why: String| -> KeyFault { (key, why) };
        let address = match self.address.strip_prefix("https://") {
            Some(rest) if !rest.trim_end_matches('/').contains(':') => {
                format!("https://{}:{PORT}", rest.trim_end_matches('/'))
            }
            _ => self.address.clone(),
        };
        let address: Option<Address> = address.parse().ok();
        let address = address.filter(|a| matches!(a, Address::Https { .. }));
        let address = address.ok_or_else(|| {
            let given = &self.address;
            bad(
                "proxmox.address",
                format!("{given:?} is not https://HOST:PORT"),
            )
        })?;
        let text = secret::read(&base.join(&self.token));
        let text = text.map_err(|e| bad("proxmox.token", e.to_string()))?;
        let token = std::str::from_utf8(&text).ok().and_then(header);
        let token = token.ok_or_else(|| {
            let file = &self.token;
            bad(
                "proxmox.token",
                format!("{file} is not one line USER@REALM!ID=UUID"),
            )
        })?;
        let trust = match (&self.ca, &self.fingerprint) {
            (Some(ca), None) => TlsTrust::CaFile(base.join(ca)),
            (None, Some(text)) => TlsTrust::Fingerprint(
                text.parse()
                    .map_err(|e: client::ClientError| bad("proxmox.fingerprint", e.to_string()))?,
            ),
            _ => {
                let why = "or proxmox.fingerprint is required, and not both: the certificate of a cluster is signed by its own CA";
                return Err(bad("proxmox.ca", why.into()));
            }
        };
        let client = Client::new(address, Some(token), trust);
        Ok(Api::new(
            client.map_err(|e| bad("proxmox.ca", e.to_string()))?,
        ))
    }

    /// Returns one line per needed privilege, with its state for the token.
    ///
    /// # Errors
    /// Privileges are missing, or the API does not answer.
    fn check_token(&self, api: &mut Api, storages: &[String], moves: bool) -> Result<Vec<String>> {
        let nodes = match self.nodes.is_empty() {
            true => api.nodes()?,
            false => self.nodes.clone(),
        };
        let rights = needed(storages, &nodes, moves);
        let mut answers = BTreeMap::new();
        for right in &rights {
            if !answers.contains_key(&right.path) {
                let answer = api.permissions(&right.path)?;
                answers.insert(right.path.clone(), answer);
            }
        }
        let missing = missing(&rights, &answers)?;
        let line = |right: &vmhost::proxmox::Right| {
            let state = match missing.contains(&right) {
                true => "missing",
                false => "held",
            };
            let (privilege, path, purpose) = (right.privilege, &right.path, right.purpose);
            format!("{state}: {privilege} on {path} ({purpose})")
        };
        let lines: Vec<String> = rights.iter().map(line).collect();
        match missing.is_empty() {
            true => Ok(lines),
            false => Err(AgentError::Unsupported(format!(
                "the API token lacks privileges; grant a role with them to the token and to its user, with propagation:\n{}",
                lines.join("\n")
            ))),
        }
    }
}

/// Returns the header for a file with a token.
fn header(text: &str) -> Option<Token> {
    let text = text.trim();
    let text = text.strip_prefix(SCHEME).unwrap_or(text);
    let (id, secret) = text.split_once('=')?;
    let (user, name) = id.split_once('!')?;
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic());
    let all = user.contains('@') && [user, name, secret].into_iter().all(plain);
    all.then(|| Token::of_header(&format!("{SCHEME}{text}")).ok())?
}

/// Returns the storages of the configured tiers.
fn tiers_of(tiers: &[TierOf]) -> Result<Vec<TierStorages>, KeyFault> {
    let bad = |why: String| -> KeyFault { ("tiers.pools", why) };
    let mut seen = BTreeSet::new();
    let mut found = vec![];
    for tier in tiers {
        let mut storages = vec![];
        for place in &tier.places {
            let PlacesOf::Pool(name) = place else {
                let why = format!(
                    "tier {}: {place} is no storage of Proxmox VE: name storages as in the web interface",
                    tier.name
                );
                return Err(bad(why));
            };
            if !seen.insert(name.clone()) {
                return Err(bad(format!("storage {name} is in two tiers")));
            }
            storages.push(name.clone());
        }
        found.push(TierStorages {
            name: tier.name.clone(),
            storages,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod key_tests {
    use super::*;

    #[test]
    fn proxmox_token_file_is_one_line_with_a_token() {
        for text in [
            "terrace@pve!agent=1b0a-4c\n",
            "PVEAPIToken=terrace@pve!agent=1b0a-4c",
        ] {
            assert!(header(text).is_some(), "{text}");
        }
        for text in [
            "",
            "secret",
            "terrace@pve=1",
            "terrace!a=1",
            "terrace@pve!a=",
            "t@pve!a=1\nx",
        ] {
            assert!(header(text).is_none(), "{text}");
        }
    }

    #[test]
    fn tiers_consist_of_storages() {
        let tiers = |texts: &[&str]| {
            let tiers: Vec<TierOf> = texts.iter().map(|t| t.parse().unwrap()).collect();
            tiers_of(&tiers)
        };
        assert_eq!(tiers(&["fast=nvme,ceph", "slow=hdd"]).unwrap().len(), 2);
        let (_, why) = tiers(&["fast=/srv"]).unwrap_err();
        assert!(why.contains("no storage"), "{why}");
        let (_, why) = tiers(&["fast=a", "slow=a"]).unwrap_err();
        assert_eq!(why, "storage a is in two tiers");
    }

    #[test]
    fn invalid_proxmox_keys_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "terrace@pve!agent=1b0a\n").unwrap();
        let mode = |mode| {
            use std::os::unix::fs::PermissionsExt;
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&token, permissions).unwrap();
        };
        mode(0o600);
        let print = format!("sha256:{}", "0".repeat(64));
        let keys = |address: &str, ca: Option<&str>, fingerprint: Option<&str>| {
            let mut table = serde_json::json!({ "address": address, "token": "token" });
            table["ca"] = ca.into();
            table["fingerprint"] = fingerprint.into();
            ProxmoxKeys::deserialize(table).unwrap()
        };
        let fault = |keys: ProxmoxKeys| keys.api(dir.path()).err();
        assert!(fault(keys("https://pve1", None, Some(&print))).is_none());
        for (keys, key) in [
            (
                keys("http://pve1:8006", None, Some(&print)),
                "proxmox.address",
            ),
            (keys("unix:/x", None, Some(&print)), "proxmox.address"),
            (keys("https://pve1", None, None), "proxmox.ca"),
            (keys("https://pve1", Some("none.pem"), None), "proxmox.ca"),
            (
                keys("https://pve1", None, Some("ab")),
                "proxmox.fingerprint",
            ),
        ] {
            assert_eq!(fault(keys).unwrap().0, key);
        }
        mode(0o644);
        let (key, why) = fault(keys("https://pve1", None, Some(&print))).unwrap();
        assert!(key == "proxmox.token" && why.contains("chmod 600"), "{why}");
    }
}
