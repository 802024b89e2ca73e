//! Commands for an operator who moves a disk by hand.

use manager::wire::{HandMove, StorageCommand};

use crate::builds::CopyInitiator;
use crate::stored::{Storage, volume_name};
use crate::{Disk, ImageLocation, Platform, RunningDomain, Source, StayReason, needed_bytes};

/// Unit to which sizes of volumes of ZFS and RBD are rounded up.
const MIB: u64 = 1 << 20;

/// Quotes a word for a shell and for virsh.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the command that moves a disk by hand: that of libvirt, or of the platform that manages the domain.
/// `{place}`, `{device}` and `{tier}` stand for the target's names, within single quotes. `sizes` are the bytes of the
/// disk and those that its image occupies. `storages` are those of the tiers.
pub(crate) fn by_hand(
    known: &RunningDomain,
    disk: &Disk,
    at: Option<&ImageLocation>,
    sizes: (Option<u64>, Option<u64>),
    storages: &[Storage],
) -> HandMove {
    command(known, disk, at, sizes, storages).unwrap_or_else(|why| HandMove::None {
        why: why.to_string(),
    })
}

fn command(
    known: &RunningDomain,
    disk: &Disk,
    at: Option<&ImageLocation>,
    (capacity, taken): (Option<u64>, Option<u64>),
    storages: &[Storage],
) -> Result<HandMove, StayReason> {
    // Braces mark the placeholders for the target's names.
    let is_unfit = |word: &str| word.contains(|c: char| c.is_control() || c == '{');
    let layout = match (known.verdict(disk, CopyInitiator::Person), &disk.serial) {
        // Cinder sets the serial number of a volume to the id of the volume.
        (Err(StayReason::Platform(Platform::OpenStack)), Some(id)) if !is_unfit(id) => {
            let id = quoted(id);
            return Ok(HandMove::Command {
                text: format!(
                    "openstack volume set --type '{{tier}}' --retype-policy on-demand {id}"
                ),
                needed_bytes: 0,
                storages: vec![],
            });
        }
        (verdict, _) => verdict?,
    };
    let other = |why: &str| StayReason::Other(why.into());
    let name = volume_name(&format!("{}:{}", known.domain.name, disk.target));
    let format = if layout.is_some() { "qcow2" } else { "raw" };
    let file = match at {
        Some(ImageLocation::File(path)) => path.rsplit_once('/').map(|(_, name)| name.to_owned()),
        // The name of a device or of a network image is not a file name.
        Some(ImageLocation::Block { .. } | ImageLocation::Network { .. }) => {
            Some(format!("{name}.{format}"))
        }
        Some(ImageLocation::Nbd { .. }) | None => None,
    };
    let file =
        file.ok_or_else(|| other("its image is not a file, and no command moves such an image"))?;
    if [&*known.domain.name, &*disk.target, &*file]
        .into_iter()
        .any(is_unfit)
    {
        return Err(other(
            "its name or that of its image has control characters or braces",
        ));
    }
    let info = known
        .disks
        .get(&disk.target)
        .and_then(|f| f.info.as_ref().ok());
    let size = info.and_then(|info| info.virtual_size).or(capacity);
    let size = size.ok_or_else(|| StayReason::ImageUnknown("its size is unknown".into()))?;
    let (domain, target) = (quoted(&known.domain.name), quoted(&disk.target));
    let to = format!("'{{place}}/{}'", file.replace('\'', "'\\''"));
    let copy = |words: &str| {
        format!(
            "virsh blockcopy {domain} {target} {words} --transient-job --synchronous-writes --wait --verbose --pivot"
        )
    };
    let text = match layout {
        // libvirt creates the file, and refuses an existing one.
        None => copy(&format!("{to} --format raw")),
        // A file created by libvirt would have other options. `qemu-img create` overwrites an existing file, so the
        // shell creates the file first, and fails if it exists.
        Some(layout) => {
            let options = layout.create_options();
            let options = options.map_err(|why| StayReason::Option(why.to_string()))?;
            format!(
                "(umask 077; set -C; : > {to}) && qemu-img create -q -f qcow2 -o {options} {to} {size} && {} --reuse-external",
                copy(&format!("{to} --format qcow2"))
            )
        }
    };
    let to_storage = |storage: &Storage| {
        let (kind, steps) = to_storage(storage, &name, size, &disk.source)?;
        Some(StorageCommand {
            storage: kind.into(),
            text: format!(
                "p='{{place}}' && {steps} | {}",
                copy("--xml /dev/stdin --reuse-external")
            ),
            needed_bytes: needed_bytes("raw", size, taken),
        })
    };
    let mut commands: Vec<StorageCommand> = storages.iter().filter_map(to_storage).collect();
    commands.sort_by(|a, b| a.storage.cmp(&b.storage));
    commands.dedup();
    Ok(HandMove::Command {
        text,
        needed_bytes: needed_bytes(format, size, taken),
        storages: commands,
    })
}

/// Returns the kind of a storage, and the commands that create a volume there and print libvirt's XML for it. The size
/// of a volume is rounded up; a slice preserves that of the disk. `$p` is the storage.
fn to_storage(
    storage: &Storage,
    name: &str,
    size: u64,
    source: &Source,
) -> Option<(&'static str, String)> {
    let rounded = size.next_multiple_of(MIB);
    let (kind, create, of, path, access) = match storage {
        Storage::Lvm { pool: None, .. } => (
            "lvm",
            format!("lvcreate --yes --size {size}b --name '{name}' \"$p\""),
            "block",
            ("source dev='/dev/", "\"$p\""),
            String::new(),
        ),
        Storage::Lvm { pool: Some(_), .. } => (
            "thin",
            format!("lvcreate --yes --virtualsize {size}b --thinpool \"$p\" --name '{name}'"),
            "block",
            ("source dev='/dev/", "\"${p%%/*}\""),
            String::new(),
        ),
        Storage::Zfs { .. } => (
            "zfs",
            format!("zfs create -V {rounded} \"$p/{name}\" && udevadm settle"),
            "block",
            ("source dev='/dev/zvol/", "\"$p\""),
            String::new(),
        ),
        // The command takes the credentials for the cluster from a disk that is stored there.
        Storage::Network { protocol, .. } if protocol == "rbd" => (
            "rbd",
            format!("rbd create --size {}M \"$p/{name}\"", rounded / MIB),
            "network",
            ("source protocol='rbd' name='", "\"$p\""),
            access_of(source)?,
        ),
        Storage::Network { .. } => return None,
    };
    let (element, place) = path;
    let xml = format!(
        "<disk type='{of}'><driver type='raw'/><{element}%s/{name}'>{access}<slices><slice type='storage' offset='0' size='{size}'/></slices></source></disk>"
    );
    Some((kind, format!("{create} && printf \"{xml}\" {place}")))
}

/// Returns the hosts and credentials of an RBD image, if a shell and `printf` leave their text unchanged.
fn access_of(source: &Source) -> Option<String> {
    let Source::Network {
        protocol, access, ..
    } = source
    else {
        return None;
    };
    let text: String = access.lines().map(str::trim).collect();
    let is_special = |c: char| c.is_control() || "\"$`\\%!{".contains(c);
    let fits = protocol == "rbd" && !text.is_empty() && !text.contains(is_special);
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Domain, HostError, Metadata};

    #[test]
    fn disk_of_a_platform_has_the_command_of_the_platform() {
        let command = |metadata: &str, serial: &str| {
            let xml = format!(
                "<domain><name>a</name><uuid>u</uuid><metadata>{metadata}</metadata><devices><disk type='file'><driver type='raw'/>
                 <source file='/a/b'/><backingStore/><target dev='vda'/>{serial}</disk></devices></domain>"
            );
            let known = RunningDomain {
                domain: Domain::of_xml(&xml).unwrap(),
                id: 1,
                build: Err(HostError::unread("nobody knows")),
                metadata: Ok(Metadata::default()),
                disks: BTreeMap::new(),
            };
            let at = ImageLocation::File("/a/b".into());
            by_hand(&known, &known.domain.disks[0], Some(&at), (None, None), &[])
        };
        let nova = "<n:i xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/>";
        assert_eq!(
            command(nova, "<serial>7b1</serial>"),
            HandMove::Command {
                text: "openstack volume set --type '{tier}' --retype-policy on-demand '7b1'".into(),
                needed_bytes: 0,
                storages: vec![],
            }
        );
        let none = |why: &str| HandMove::None { why: why.into() };
        let why = "OpenStack owns its domain: move the disk with the tools of that platform";
        assert_eq!(command(nova, ""), none(why));
        let why = "KubeVirt owns its domain: move the disk with the tools of that platform";
        assert_eq!(
            command("<k:v xmlns:k='http://kubevirt.io'/>", ""),
            none(why)
        );
    }
}
