//! Host of a trial or of `terrace init`, and its tiers.

use std::path::{Path, PathBuf};

use agent::{Candidate, FoundPlace, SurveyRequest, SurveyResult, TierOf, candidates};
use anyhow::{anyhow, bail};
use clap::Args;
use report::trial::TrialTier;
use units::Nanos;

use super::tiers::{Reading, as_said, guessed, with_presets};
use crate::live::{explained, message};

/// Host of virtual machines and its tiers. Omitted values are found automatically.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// libvirt's URI such as qemu:///system, `qemu`, a directory of QMP sockets, or https://NODE:8006; found by default
    ///
    /// `qemu` uses the QMP sockets of running QEMU processes to which no program is connected. An https address is that of a node of Proxmox VE.
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// File with an API token of Proxmox VE; without HOST, its API on this node is used
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// CA of Proxmox VE; by default /etc/pve/pve-root-ca.pem of this node
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// SHA-256 fingerprint of the certificate of Proxmox VE, instead of its CA
    #[arg(long, value_name = "TEXT", conflicts_with = "ca")]
    fingerprint: Option<String>,
    /// Objective: highest mean latency of the disks
    #[arg(long, value_name = "TIME", default_value = "2ms")]
    pub latency: Nanos,
    /// A tier and its pools, directories or storages, fastest first; by default guessed
    #[arg(long = "tier", id = "tiers", value_name = "NAME=POOL,…")]
    tiers: Vec<TierOf>,
    /// Device preset of a tier (`terrace sim presets`); guessed by default
    #[arg(long = "preset", id = "presets", value_name = "TIER=PRESET", value_parser = parse_preset)]
    presets: Vec<(String, String)>,
    /// Measure each pool or directory with at most 64 reads of 4 KiB in at most 2 s from its largest file
    #[arg(long)]
    probe: bool,
}

fn parse_preset(text: &str) -> Result<(String, String), String> {
    let both = text
        .split_once('=')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    let (tier, preset) = both.ok_or_else(|| format!("{text:?} is not TIER=PRESET"))?;
    Ok((tier.into(), preset.into()))
}

/// Chosen host with its tiers.
pub struct HostChoice {
    pub host: Candidate,
    pub tiers: Vec<TrialTier>,
}

impl HostArgs {
    /// Finds the host, its storage and its tiers; `links` is a directory for links to QMP sockets.
    ///
    /// # Errors
    /// If no host is found, if it does not reply, or if it does not have the given tiers.
    pub fn choose(&self, links: &Path) -> anyhow::Result<HostChoice> {
        let whole = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|p| {
                p.canonicalize()
                    .map_err(|e| anyhow!("cannot use {}: {e}", p.display()))
            })
            .transpose()
        };
        let wanted = SurveyRequest {
            host: self.host.clone(),
            token: whole(&self.token)?,
            ca: whole(&self.ca)?,
            fingerprint: self.fingerprint.clone(),
            links: links.to_owned(),
        };
        let is_cluster = self.host.as_ref().is_none_or(|h| h.starts_with("https://"));
        if !is_cluster && (self.token.is_some() || self.ca.is_some() || self.fingerprint.is_some())
        {
            bail!(
                "--token, --ca and --fingerprint are for Proxmox VE, whose address begins with https://"
            );
        }
        let found = candidates(&wanted).map_err(explained)?;
        let (host, found) = first_with_disks(found, self.host.as_deref())?;
        let tiers = self.tiers(&found.places)?;
        tell(&tiers);
        if self.tiers.is_empty() && found.places.iter().any(|p| p.shares.is_none()) {
            message(
                "the API of Proxmox VE does not report whether storages share disks: if they do, name the tiers with --tier",
            );
        }
        Ok(HostChoice { host, tiers })
    }

    fn tiers(&self, places: &[FoundPlace]) -> anyhow::Result<Vec<TrialTier>> {
        let reading = match self.probe {
            true => Reading::ALittle,
            false => Reading::Off,
        };
        let tiers = match self.tiers.is_empty() {
            true => guessed(places, reading),
            false => as_said(&self.tiers, places, reading)?,
        };
        if tiers.is_empty() {
            bail!(
                "no pool of files and no image of a running machine was found: name the tiers with --tier NAME=DIRECTORY"
            );
        }
        with_presets(tiers, &self.presets)
    }
}

/// Returns the first host with disks, or the first one that replies if none has disks. The other hosts are named in a message.
fn first_with_disks(
    hosts: Vec<Candidate>,
    wanted: Option<&str>,
) -> anyhow::Result<(Candidate, SurveyResult)> {
    let mut others = vec![];
    let mut best: Option<(Candidate, SurveyResult)> = None;
    for mut host in hosts {
        if best.as_ref().is_some_and(|(_, found)| found.disks > 0) {
            others.push(host.title);
            continue;
        }
        match host.survey.find() {
            Ok(found) if best.is_none() || found.disks > 0 => {
                others.extend(best.map(|(host, _)| host.title));
                best = Some((host, found));
            }
            Ok(_) => others.push(host.title),
            Err(why) if wanted.is_some() => bail!("{}: {why}", host.platform),
            Err(why) => message(&format!("{} is not used: {why}", host.title)),
        }
    }
    for other in others {
        message(&format!(
            "this machine also has {other}; name it to use it instead"
        ));
    }
    best.ok_or_else(|| match wanted {
        Some("qemu") => anyhow!("no QEMU has a free QMP socket that this user may use: start it with -qmp, or name a directory of sockets"),
        Some(host) => anyhow!(
            "{host:?} is no URI of libvirt such as qemu:///system, no absolute directory of QMP sockets, and no https address of Proxmox VE"
        ),
        None => anyhow!(
            "no host of virtual machines was found: no libvirt daemon runs, and no QEMU has a free QMP socket; for Proxmox VE, name a file with an API token (--token)"
        ),
    })
}

/// Reports the assumed tiers before the observation, so the user can stop and name others.
fn tell(tiers: &[TrialTier]) {
    for tier in tiers {
        for ((name, path), seen) in tier.places.iter().zip(&tier.found) {
            let device = seen.device.as_deref().unwrap_or("not inspected");
            let read = match (seen.read_us, &seen.not_read) {
                (Some(us), _) => format!(", {us:.0} µs per read"),
                (None, Some(why)) => format!(", not probed: {why}"),
                (None, None) => String::new(),
            };
            let place = match name == path {
                true => name.clone(),
                false => format!("{name} ({path})"),
            };
            message(&format!(
                "tier {}: {place}, {device}{read}, assumed to be {}",
                tier.name, tier.preset
            ));
        }
    }
    if tiers.iter().map(|t| t.places.len()).sum::<usize>() < 2 {
        message("only one pool, directory or storage was found: no move is possible");
    }
}
