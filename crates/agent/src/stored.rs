//! Storage without files, as the programs of LVM and ZFS report it.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use vmhost::stored::{Space, Storage, StoredVolume, lvm, volume_at, zfs};

use crate::process::run;

/// Lists the volumes that have the devices at these paths. A program that fails is a remark: the
/// disks that it knows are not managed then.
pub(crate) fn volumes_of(paths: &BTreeSet<String>) -> (Vec<StoredVolume>, Vec<String>) {
    let (of_zfs, others): (Vec<&String>, Vec<&String>) =
        paths.iter().partition(|path| is_of_zfs(path));
    let (mut volumes, mut warnings) = (vec![], vec![]);
    let mut take = |listed: Result<Vec<StoredVolume>, String>| match listed {
        Ok(listed) => volumes.extend(listed),
        Err(why) => warnings.push(why),
    };
    if others.iter().any(|path| !is_plain_device(path)) {
        take(logical_volumes());
    }
    if !of_zfs.is_empty() {
        take(zfs_volumes());
    }
    for path in paths {
        let known = volume_at(&volumes, path).is_some();
        let device = fs::canonicalize(path).ok().filter(|_| !known);
        let is_it = |v: &&mut StoredVolume| {
            let of = |p: &String| fs::canonicalize(p).ok();
            device.is_some() && v.paths.iter().any(|p| of(p) == device)
        };
        if let Some(volume) = volumes.iter_mut().find(is_it) {
            volume.paths.push(path.clone());
        }
    }
    volumes.retain(|v| v.paths.iter().any(|p| paths.contains(p)));
    let mut of_zfs = volumes.iter_mut().filter(|v| v.name.starts_with("zfs:"));
    if let Some(why) = read_snapshots(&mut of_zfs).err() {
        warnings.push(why);
    }
    (volumes, warnings)
}

fn is_of_zfs(path: &str) -> bool {
    path.starts_with("/dev/zvol/") || path.starts_with("/dev/zd")
}

/// True for names that the kernel gives to disks, which are no volumes of LVM.
fn is_plain_device(path: &str) -> bool {
    let name = path.strip_prefix("/dev/").unwrap_or("");
    !name.contains('/') && !name.starts_with("dm-")
}

fn logical_volumes() -> Result<Vec<StoredVolume>, String> {
    let words = lvm::volumes_arguments();
    let report = report("lvs", &words)?;
    lvm::volumes(&report).map_err(|e| e.to_string())
}

fn zfs_volumes() -> Result<Vec<StoredVolume>, String> {
    let listing = said("zfs", &zfs::VOLUMES_ARGUMENTS)?;
    zfs::volumes(&listing).map_err(|e| e.to_string())
}

fn read_snapshots<'a>(
    volumes: &mut dyn Iterator<Item = &'a mut StoredVolume>,
) -> Result<(), String> {
    let volumes: Vec<&mut StoredVolume> = volumes.collect();
    let dataset = |v: &StoredVolume| v.name.trim_start_matches("zfs:").to_owned();
    let names: Vec<String> = volumes.iter().map(|v| dataset(v)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let listing = said("zfs", &zfs::snapshots_arguments(&words));
    for (volume, name) in volumes.into_iter().zip(&names) {
        volume.snapshots = match &listing {
            Ok(listing) => zfs::snapshots(listing, name),
            Err(_) => vec!["unknown snapshots".into()],
        };
    }
    listing.map(|_| ())
}

/// Space of LVM or ZFS.
///
/// # Errors
/// The program failed, or has no such storage.
pub(crate) fn space(storage: &Storage) -> Result<Space, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{storage}: {why}");
    let space = match storage {
        Storage::Lvm { group, pool: None } => {
            let report = report("vgs", &lvm::group_arguments(group));
            let report = report.map_err(|e| fault(&e))?;
            lvm::group_space(&report).map(|(space, _)| space)
        }
        Storage::Lvm {
            group,
            pool: Some(pool),
        } => {
            let report = report("lvs", &lvm::pool_arguments(group, pool));
            lvm::pool_space(&report.map_err(|e| fault(&e))?)
        }
        Storage::Zfs { dataset } => {
            let listing = said("zfs", &zfs::space_arguments(dataset));
            zfs::space(&listing.map_err(|e| fault(&e))?)
        }
        Storage::Network { .. } => return Err(fault(&"the agent does not read it")),
    };
    space.map_err(|e| fault(&e))
}

fn report(program: &'static str, words: &[String]) -> Result<Value, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = said(program, &words)?;
    serde_json::from_str(&text).map_err(|e| format!("{program}: {e}"))
}

/// Runs a program that changes nothing.
fn said(program: &'static str, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    let said = run(command, program)?;
    match said.success {
        true => Ok(said.out),
        false => Err(format!("{program}: {}", said.error("no reason given"))),
    }
}
