//! XML for libvirt: disks of a definition, and targets of copies.

use std::ops::Range;

use crate::xml::{Xml, child, parsed};
use crate::{HostError, Image, ImageLocation};

/// Escapes a text for an attribute in single quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\'' => out += "&apos;",
            '"' => out += "&quot;",
            '\n' | '\t' | '\r' => out += &format!("&#{};", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// Returns the type of a disk with an image at this place, and its `<source>`.
fn source(at: &ImageLocation) -> (&'static str, String) {
    match at {
        ImageLocation::File(path) => ("file", format!("<source file='{}'/>", escaped(path))),
        ImageLocation::Nbd { socket, export } => (
            "network",
            format!(
                "<source protocol='nbd' name='{}'><host transport='unix' socket='{}'/></source>",
                escaped(export),
                escaped(socket)
            ),
        ),
        ImageLocation::Block { path, bytes: None } => {
            ("block", format!("<source dev='{}'/>", escaped(path)))
        }
        ImageLocation::Block {
            path,
            bytes: Some(bytes),
        } => (
            "block",
            format!(
                "<source dev='{}'><slices><slice type='storage' offset='0' size='{bytes}'/></slices></source>",
                escaped(path)
            ),
        ),
        ImageLocation::Network { protocol, name } => (
            "network",
            format!(
                "<source protocol='{}' name='{}'/>",
                escaped(protocol),
                escaped(name)
            ),
        ),
    }
}

/// Returns the XML of a target for `virsh blockcopy --xml`.
pub fn copy_target(image: &Image) -> String {
    let (kind, source) = source(&image.at);
    format!(
        "<disk type='{kind}'><driver type='{}'/>{source}</disk>",
        escaped(&image.format)
    )
}

/// Returns the `<disk>` of an image for a domain's definition. It has no cache in QEMU, because the server of the image
/// has one. A guest sees sectors of `logical_block` bytes, or of 512 bytes on an IDE bus.
pub fn disk_of(image: &Image, target: &str, logical_block: u32) -> String {
    let (kind, source) = source(&image.at);
    let bus = match target {
        t if t.starts_with("vd") => "virtio",
        t if t.starts_with("sd") => "scsi",
        _ => "ide",
    };
    let (format, target) = (escaped(&image.format), escaped(target));
    let blocks = match logical_block {
        512 => String::new(),
        n => format!("\n  <blockio logical_block_size='{n}' physical_block_size='4096'/>"),
    };
    format!(
        "<disk type='{kind}' device='disk'>
  <driver name='qemu' type='{format}' cache='none' discard='unmap'/>
  {source}{blocks}
  <target dev='{target}' bus='{bus}'/>
</disk>
"
    )
}

/// Returns the `<disk>` of a volume that vhost-user serves at this socket. The domain reconnects to the next server
/// after one ends.
pub fn vhost_user_disk(socket: &str, target: &str) -> String {
    let (socket, target) = (escaped(socket), escaped(target));
    format!(
        "<disk type='vhostuser' device='disk'>
  <driver name='qemu' type='raw'/>
  <source type='unix' path='{socket}'>
    <reconnect enabled='yes' timeout='1'/>
  </source>
  <target dev='{target}' bus='virtio'/>
</disk>
"
    )
}

/// Returns a definition with another image for one disk. All other text is preserved, byte by byte.
///
/// # Errors
/// The fault of the definition, with its line.
pub fn with_image(definition: &str, target: &str, image: &Image) -> Result<String, HostError> {
    let document = parsed("domain", definition)?;
    let xml = Xml {
        document: &document,
        what: "domain",
    };
    let root = document.root_element();
    let devices = child(root, "devices");
    let mut disks = devices
        .into_iter()
        .flat_map(|d| d.children())
        .filter(|d| d.has_tag_name("disk"));
    let is_it = |d: &roxmltree::Node<'_, '_>| {
        child(*d, "target").and_then(|t| t.attribute("dev")) == Some(target)
    };
    let disk = disks
        .find(is_it)
        .ok_or_else(|| xml.fault(root, &format!("the domain has no disk {target}")))?;
    let missing = |what: &str| xml.fault(disk, &format!("disk {target} has no {what}"));
    let old = child(disk, "source").ok_or_else(|| missing("<source>"))?;
    let driver = child(disk, "driver").ok_or_else(|| missing("<driver>"))?;
    let kind = disk.attribute_node("type").ok_or_else(|| missing("type"))?;
    let format = driver
        .attribute_node("type")
        .ok_or_else(|| missing("<driver type=…>"))?;
    let (new_kind, new_source) = source(&image.at);
    let mut edits: Vec<(Range<usize>, String)> = vec![
        (kind.range_value(), new_kind.into()),
        (format.range_value(), escaped(&image.format)),
        (old.range(), new_source),
    ];
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = definition.to_owned();
    for (range, text) in edits.iter().rev() {
        out.replace_range(range.clone(), text);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Domain;

    const DEFINITION: &str = "<domain type='qemu'>
  <name>w&amp;b</name><uuid>u</uuid><!-- mine -->
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' discard='unmap'/>
      <source file='/slow/a.qcow2' startupPolicy='optional'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/slow/b'></source><target dev='vdb'/></disk>
  </devices>
</domain>";

    #[test]
    fn image_of_one_disk_is_replaced_and_other_text_is_unchanged() {
        let image = Image {
            at: ImageLocation::File("/fast/it's <a>.raw".into()),
            format: "raw".into(),
        };
        let text = with_image(DEFINITION, "vda", &image).unwrap();
        let expected = DEFINITION.replace("type='qcow2'", "type='raw'").replace(
            "<source file='/slow/a.qcow2' startupPolicy='optional'/>",
            "<source file='/fast/it&apos;s &lt;a&gt;.raw'/>",
        );
        assert_eq!(text, expected);
        let nbd = Image {
            at: ImageLocation::Nbd {
                socket: "/run/s".into(),
                export: "e".into(),
            },
            format: "raw".into(),
        };
        let text = with_image(DEFINITION, "vdb", &nbd).unwrap();
        let domain = Domain::of_xml(&text).unwrap();
        assert_eq!(domain.disks[1].image(|_| None), Some(nbd));
        assert_eq!(
            domain.disks[0],
            Domain::of_xml(DEFINITION).unwrap().disks[0]
        );
        for bytes in [None, Some(1000)] {
            let path = "/dev/vg0/it's".to_owned();
            let device = Image {
                at: ImageLocation::Block { path, bytes },
                format: "raw".into(),
            };
            let text = with_image(DEFINITION, "vdb", &device).unwrap();
            let domain = Domain::of_xml(&text).unwrap();
            assert_eq!(domain.disks[1].image(|_| None), Some(device));
            assert_eq!(domain.disks[1].bound, None);
        }
        let said = with_image(DEFINITION, "vdc", &image).unwrap_err();
        assert_eq!(
            said.to_string(),
            "domain, line 1: the domain has no disk vdc"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_paths_round_trip(path in "/[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\u{9f}\\u{fffe}\\u{ffff}]{0,40}", format in "raw|qcow2") {
            let image = Image { at: ImageLocation::File(path), format };
            let text = with_image(DEFINITION, "vda", &image).unwrap();
            prop_assert_eq!(Domain::of_xml(&text).unwrap().disks[0].image(|_| None), Some(image.clone()));
            prop_assert!(roxmltree::Document::parse(&copy_target(&image)).is_ok());
            let domain = format!("<domain><name>a</name><uuid>u</uuid><devices>{}</devices></domain>", disk_of(&image, "sda", 4096));
            prop_assert_eq!(Domain::of_xml(&domain).unwrap().disks[0].image(|_| None), Some(image));
        }
    }
}
