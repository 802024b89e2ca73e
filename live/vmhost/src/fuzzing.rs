//! Entry points for fuzzers. No input may cause a panic.

use crate::ImageLocation;
use crate::moving::Intent;
use crate::proxmox;
use crate::qemu::{Machine, Names, Options, add_nodes, mirror};

/// Parses an answer of Proxmox VE as each of its types, and as the text of a drive.
pub fn proxmox(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(drive) = proxmox::Drive::parse("scsi0", text)
    {
        let limits = drive.lowered_limits(Some(100), Some(1 << 20));
        drive.with_limits(&limits.unwrap_or_default());
        drive.size();
        drive.is_cloud_init();
    }
    let Ok(data) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    let _ = proxmox::vms(&data);
    let _ = proxmox::storages(&data);
    let _ = proxmox::contents(&data);
    let _ = proxmox::tasks(&data);
    let _ = proxmox::task_state(&data);
    let _ = proxmox::pending_keys(&data);
    let _ = proxmox::snapshot_names(&data);
    let _ = proxmox::replicated(&data);
    let _ = proxmox::VmConfig::read(&data);
    let _ = proxmox::VmStatus::read(&data);
    let _ = proxmox::Progress::default().read_more(&data);
}

/// Parses answers to [`crate::qemu::queries`], as a list of seven.
pub fn qemu(bytes: &[u8]) {
    let Ok(answers) = serde_json::from_slice::<[serde_json::Value; 7]>(bytes) else {
        return;
    };
    let Ok(machine) = Machine::of(&answers) else {
        return;
    };
    let at = ImageLocation::File("/a".into());
    machine.unused_on(&at);
    machine.images().count();
    machine.goes_away();
    let of = |target: &str| {
        let names = machine.names_of(target);
        names.map_or(Options::default(), |names| Options::of(&[], names))
    };
    machine.domain("a", 1, "", of);
    for target in machine.targets() {
        let image = |at: &ImageLocation| crate::Image {
            at: at.clone(),
            format: "raw".into(),
        };
        let intent = Intent::new(
            "a".into(),
            target.into(),
            image(&at),
            image(&at),
            "/b".into(),
        );
        let names = Names::of(&intent);
        machine.live(target, &names, None);
        add_nodes(&machine, &intent, &names, of(target));
        mirror(&machine, &intent, &names, of(target));
    }
}
