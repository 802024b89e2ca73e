//! What an operator types.

use manager::wire::HandMove;

use crate::builds::By;
use crate::{Disk, Fixed, Known, Platform, needed_bytes};

/// A word, for a shell and for virsh's own.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The command for moving a disk by hand: libvirt's, or that of the platform that manages the
/// domain. `{place}`, `{device}` and `{tier}` stand for those of the target, inside of single quotes.
/// `physical` is the number of bytes that its image takes.
pub(crate) fn by_hand(
    known: &Known,
    disk: &Disk,
    path: Option<&str>,
    physical: Option<u64>,
) -> HandMove {
    command(known, disk, path, physical).unwrap_or_else(|why| HandMove::None {
        why: why.to_string(),
    })
}

fn command(
    known: &Known,
    disk: &Disk,
    path: Option<&str>,
    physical: Option<u64>,
) -> Result<HandMove, Fixed> {
    // Braces stand for the target's names.
    let is_unfit = |word: &str| word.contains(|c: char| c.is_control() || c == '{');
    let layout = match (known.verdict(disk, By::Person), &disk.serial) {
        // Cinder's volumes have their own id as serial.
        (Err(Fixed::Platform(Platform::OpenStack)), Some(id)) if !is_unfit(id) => {
            let id = quoted(id);
            return Ok(HandMove::Command {
                text: format!(
                    "openstack volume set --type '{{tier}}' --retype-policy on-demand {id}"
                ),
                needed_bytes: 0,
            });
        }
        (verdict, _) => verdict?,
    };
    let path = path.filter(|path| path.starts_with('/'));
    let file = path.and_then(|path| Some(path.rsplit_once('/')?.1));
    let other = |why: &str| Fixed::Other(why.into());
    let file =
        file.ok_or_else(|| other("its image is not a file, and no command moves such an image"))?;
    if [&*known.domain.name, &*disk.target, file]
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
    let size = info.and_then(|info| info.virtual_size);
    let size = size.ok_or_else(|| Fixed::ImageUnknown("its size is unknown".into()))?;
    let (domain, target) = (quoted(&known.domain.name), quoted(&disk.target));
    let to = format!("'{{place}}/{}'", file.replace('\'', "'\\''"));
    let copy = |format: &str| {
        format!(
            "virsh blockcopy {domain} {target} {to} --format {format} --transient-job --synchronous-writes --wait --verbose --pivot"
        )
    };
    Ok(match layout {
        // libvirt makes the file, and refuses one that exists.
        None => HandMove::Command {
            text: copy("raw"),
            needed_bytes: needed_bytes("raw", size, physical),
        },
        // A file that libvirt made would have other options. `qemu-img create` writes over what
        // exists, so the shell makes the file first, and only where there is none.
        Some(layout) => {
            let options = layout.create_options().map_err(Fixed::Option)?;
            HandMove::Command {
                text: format!(
                    "(umask 077; set -C; : > {to}) && qemu-img create -q -f qcow2 -o {options} {to} {size} && {} --reuse-external",
                    copy("qcow2")
                ),
                needed_bytes: needed_bytes("qcow2", size, physical),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Domain, Metadata};

    #[test]
    fn a_disk_of_a_platform_has_the_platforms_command() {
        let command = |metadata: &str, serial: &str| {
            let xml = format!(
                "<domain><name>a</name><uuid>u</uuid><metadata>{metadata}</metadata><devices><disk type='file'><driver type='raw'/>
                 <source file='/a/b'/><backingStore/><target dev='vda'/>{serial}</disk></devices></domain>"
            );
            let known = Known {
                domain: Domain::of_xml(&xml).unwrap(),
                id: 1,
                build: Err("nobody knows".into()),
                metadata: Ok(Metadata::default()),
                disks: BTreeMap::new(),
            };
            by_hand(&known, &known.domain.disks[0], Some("/a/b"), None)
        };
        let nova = "<n:i xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/>";
        assert_eq!(
            command(nova, "<serial>7b1</serial>"),
            HandMove::Command {
                text: "openstack volume set --type '{tier}' --retype-policy on-demand '7b1'".into(),
                needed_bytes: 0,
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
