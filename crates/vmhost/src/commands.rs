//! What an operator types.

use crate::{Disk, Domain, Platform, builds};

/// A word, for a shell and for virsh's own.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What an operator types to move a disk: libvirt's command, or that of the platform which owns the domain. `{place}`, `{device}` and `{tier}`
/// stand for those of the target, inside of single quotes. None where there is no such command.
pub(crate) fn by_hand(domain: &Domain, disk: &Disk, path: Option<&str>) -> Option<String> {
    match domain.platform {
        None => {}
        // Cinder's volumes have their own id as serial.
        Some(Platform::OpenStack) => {
            let id = quoted(disk.serial.as_deref()?);
            return Some(format!(
                "openstack volume set --type '{{tier}}' --retype-policy on-demand {id}"
            ));
        }
        Some(Platform::KubeVirt | Platform::OVirt) => return None,
    }
    // QEMU 7.2 may lose writes or crash unless the guest rests meanwhile: no command that is pasted does that well.
    if builds::holds_at_start(disk) || !path?.starts_with('/') {
        return None;
    }
    let (_, file) = path?.rsplit_once('/')?;
    let (domain, target) = (quoted(&domain.name), quoted(&disk.target));
    let (file, format) = (file.replace('\'', "'\\''"), disk.format.as_ref()?);
    Some(format!(
        "virsh blockcopy {domain} {target} '{{place}}/{file}' --format {format} --transient-job --synchronous-writes --wait --verbose --pivot"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_its_platforms_command() {
        let xml = |metadata: &str| {
            format!(
                "<domain><name>it's</name><uuid>u</uuid><metadata>{metadata}</metadata><devices><disk type='file'><driver type='raw'/>
                 <source file='/a/b c'/><backingStore/><target dev='vda'/><serial>7b1</serial></disk></devices></domain>"
            )
        };
        let command = |metadata: &str| {
            let domain = Domain::of_xml(&xml(metadata)).unwrap();
            by_hand(&domain, &domain.disks[0], Some("/a/b c"))
        };
        let plain = command("").unwrap();
        assert!(
            plain.starts_with("virsh blockcopy 'it'\\''s' 'vda' '{place}/b c' --format raw "),
            "{plain}"
        );
        assert_eq!(
            command("<n:i xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/>").unwrap(),
            "openstack volume set --type '{tier}' --retype-policy on-demand '7b1'"
        );
        assert_eq!(command("<k:v xmlns:k='http://kubevirt.io'/>"), None);
    }
}
