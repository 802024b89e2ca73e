//! Headers of images: references to other files. A program that could write to an image, for example the guest of a
//! raw image, may have written such a reference. An image that names /etc/shadow must not bring this file into a
//! volume.

use std::fs::File;
use std::io;

use super::{qcow, read_at};
use crate::error::{DatapathError, Result};
use crate::text::shell_word;

/// Longest part of a descriptor that QEMU reads.
const DESCRIPTOR_BYTES: usize = 1 << 20;

/// Offset at which QEMU looks for the parent of a vmdk that is not a descriptor, independent of its header.
const PARENT_AT: u64 = 512;

/// Flag of a qcow2 header: the data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// Flag of a QED header: a backing file exists.
const QED_BACKING: u64 = 1;

/// Type of a VHD that has only the changes to another one.
const DIFFERENCING: [u8; 4] = [0, 0, 0, 4];

/// File that a vmdk descriptor names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) name: String,
    /// True for a raw file.
    pub(super) is_flat: bool,
    /// Offset in a raw file up to which it is read.
    pub(super) end: u64,
}

/// Returns the files that a vmdk descriptor names; `None` if the file is not a descriptor and has its own data.
///
/// # Errors
/// Errors of reads.
pub(super) fn vmdk_extents(file: &File) -> io::Result<Option<Vec<Extent>>> {
    if matches!(&read_at(file, 0, 4)?[..], b"KDMV" | b"COWD") {
        return Ok(None);
    }
    let bytes = read_at(file, 0, DESCRIPTOR_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let one = |line: &str| {
        let (before, after) = line.split_once('"')?;
        let (name, after) = after.split_once('"')?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let [_, sectors, kind] = words[..] else {
            return None;
        };
        let sectors: u64 = sectors.parse().ok()?;
        let from: u64 = after
            .split_whitespace()
            .next()
            .unwrap_or("0")
            .parse()
            .ok()?;
        Some(Extent {
            name: name.into(),
            is_flat: matches!(kind, "FLAT" | "VMFS"),
            end: from.saturating_add(sectors).saturating_mul(512),
        })
    };
    Ok(Some(text.lines().filter_map(one).collect()))
}

/// Describes the content of a qcow2 other than the disk; `None` for other formats.
///
/// # Errors
/// [`DatapathError::Image`]: QEMU does not read the image correctly. QEMU itself refuses a file that is not a qcow2.
pub(super) fn more_than_disk(file: &File, from: &str, format: &str) -> Result<Option<String>> {
    if !matches!(format, "qcow2" | "qcow") {
        return Ok(None);
    }
    let Ok(header) = qcow::Header::read(file) else {
        return Ok(None);
    };
    header
        .is_readable()
        .map_err(|why| DatapathError::Image(format!("{from} {why}")))?;
    Ok(header.more_than_disk())
}

/// Refuses an image that refers to other files.
///
/// # Errors
/// [`DatapathError::Image`] with the field that has the reference, and the remedy.
pub(super) fn stands_alone(file: &File, from: &str, format: &str) -> Result<()> {
    let failed = || DatapathError::system("read", &from);
    let head = read_at(file, 0, 512).map_err(failed())?;
    let named = match &head[..] {
        [b'Q', b'F', b'I', 0xfb, ..] => qcow(&head),
        [b'Q', b'E', b'D', 0, ..] if little(&head, 16) & QED_BACKING != 0 => {
            Some("features (a backing file)".into())
        }
        _ if head.starts_with(b"conectix") && head.get(60..64) == Some(&DIFFERENCING) => {
            Some("disk_type (a differencing disk)".into())
        }
        _ if format == "vmdk" => vmdk(file, &head).map_err(failed())?,
        _ => None,
    };
    let (word, to) = (shell_word(from), shell_word(&format!("{from}.raw")));
    match named {
        None => Ok(()),
        Some(field) => Err(DatapathError::Image(format!(
            "{from} depends on another file ({field} in its header), and only self-contained images can be imported; if you trust its origin, convert it with `qemu-img convert -f {format} -O raw {word} {to}`"
        ))),
    }
}

/// Checks qcow2, and qcow, which also has the first field.
fn qcow(head: &[u8]) -> Option<String> {
    let big = |at: usize| u64::from_be_bytes(bytes(head, at));
    let version = big(0) as u32;
    if big(8) != 0 {
        return Some("backing_file_offset".into());
    }
    let external = version >= 3 && big(72) & EXTERNAL_DATA != 0;
    external.then(|| "incompatible_features (external data file)".into())
}

/// Checks a vmdk. A file without a known magic is treated as a descriptor, as in QEMU.
fn vmdk(file: &File, head: &[u8]) -> io::Result<Option<String>> {
    let places = match head {
        [b'K', b'D', b'M', b'V', ..] => vec![little(head, 28).saturating_mul(512), PARENT_AT],
        [b'C', b'O', b'W', b'D', ..] => vec![PARENT_AT],
        _ => vec![0],
    };
    for at in places {
        let named = descriptor(&read_at(file, at, DESCRIPTOR_BYTES)?);
        if named.is_some() {
            return Ok(named);
        }
    }
    Ok(None)
}

/// Checks lines such as `RW 4096 FLAT "disk-flat.vmdk" 0` and `parentFileNameHint="other.vmdk"`. Files in the same
/// directory are permitted.
fn descriptor(bytes: &[u8]) -> Option<String> {
    const PARENT: &str = "parentFileNameHint";
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let parent = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("parentCID="));
    if parent.is_some_and(|cid| !cid.trim().eq_ignore_ascii_case("ffffffff")) {
        return Some("parentCID".into());
    }
    let mut parents = text.split(PARENT).skip(1);
    if parents.any(|rest| !rest.starts_with("=\"\"")) {
        return Some(PARENT.into());
    }
    text.lines().find_map(|line| {
        let (before, after) = line.split_once('"')?;
        let name = after.split('"').next().unwrap_or_default();
        let elsewhere = !before.contains('=') && name.contains(['/', ':']);
        elsewhere.then(|| format!("extent {name:?}"))
    })
}

fn little(head: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(head, at))
}

/// Returns eight bytes, zeroes after the end.
fn bytes(head: &[u8], at: usize) -> [u8; 8] {
    let mut found = [0; 8];
    let there = head.get(at..).unwrap_or_default();
    let n = there.len().min(8);
    found[..n].copy_from_slice(&there[..n]);
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn with(content: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }

    fn refused(content: &[u8]) -> Option<String> {
        let refused = stands_alone(&with(content), "/srv/x", "vmdk").err();
        refused.map(|why| why.to_string())
    }

    fn qcow2(version: u8, backing: u64, incompatible: u64) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..8].copy_from_slice(&[b'Q', b'F', b'I', 0xfb, 0, 0, 0, version]);
        head[8..16].copy_from_slice(&backing.to_be_bytes());
        head[72..80].copy_from_slice(&incompatible.to_be_bytes());
        head
    }

    #[test]
    fn image_with_an_external_file_is_refused_with_the_header_field() {
        for version in 1..=3 {
            assert_eq!(refused(&qcow2(version, 0, 0)), None);
            let why = refused(&qcow2(version, 0x200, 0)).unwrap();
            assert!(
                why.contains("/srv/x depends on another file")
                    && why.contains("backing_file_offset")
            );
            assert!(
                why.contains("`qemu-img convert -f vmdk -O raw /srv/x /srv/x.raw`"),
                "{why}"
            );
        }
        // Dirty and with a compression type; and a bit without meaning in version 2.
        assert_eq!(refused(&qcow2(3, 0, 0b1001)), None);
        assert_eq!(refused(&qcow2(2, 0, 0b100)), None);
        let why = refused(&qcow2(3, 0, 0b101)).unwrap();
        assert!(why.contains("external data file"), "{why}");
        let mut qed = b"QED\0".to_vec();
        qed.resize(64, 0);
        assert_eq!(refused(&qed), None);
        qed[16] = 1;
        assert!(refused(&qed).unwrap().contains("backing file"));
    }

    #[test]
    fn differencing_vhd_is_refused() {
        let mut head = b"conectix".to_vec();
        head.resize(512, 0);
        head[63] = 3;
        assert_eq!(refused(&head), None);
        head[63] = 4;
        assert!(refused(&head).unwrap().contains("differencing"));
    }

    #[test]
    fn vmdk_descriptor_extents_are_parsed_with_their_ends() {
        let text = "# Disk DescriptorFile\nversion=1\nRW 8 SPARSE \"a b.vmdk\"\nRW 10 FLAT \"c.vmdk\" 2\nRW 4 ZERO\nddb.x = \"y\"\n";
        let extent = |name: &str, is_flat, end| Extent {
            name: name.into(),
            is_flat,
            end,
        };
        let found = vmdk_extents(&with(text.as_bytes())).unwrap().unwrap();
        assert_eq!(
            found,
            [
                extent("a b.vmdk", false, 4096),
                extent("c.vmdk", true, 6144)
            ]
        );
        assert_eq!(
            vmdk_extents(&with(b"KDMV RW 8 SPARSE \"a\"")).unwrap(),
            None
        );
    }

    #[test]
    fn vmdk_descriptor_may_name_only_files_in_its_directory() {
        let text = |line: &str| format!("# Disk\nversion=1\n{line}\nddb.x = \"/a\"\n");
        // The descriptor is at the place in the header, or where the parent is looked for.
        let inside = |magic: &[u8], at: usize, line: &str| {
            let mut image = magic.to_vec();
            image.resize(at * 512, 0);
            image[28] = at as u8;
            image.extend(text(line).as_bytes());
            image
        };
        let all = |line: &str| {
            let [said, fixed] = [4, 1].map(|at| refused(&inside(b"KDMV", at, line)));
            let old = refused(&inside(b"COWD", 1, line));
            [refused(text(line).as_bytes()), said, fixed, old]
        };
        for fine in [
            "RW 4096 SPARSE \"disk-s001.vmdk\"",
            "parentFileNameHint=\"\"",
            "parentCID=ffffffff",
        ] {
            assert!(all(fine).iter().all(Option::is_none), "{fine}");
        }
        for bad in [
            "RW 4096 FLAT \"/etc/shadow\" 0",
            " RW 4096 FLAT \"../secret\" 0",
            "RW 4096\nFLAT\n\"/etc/shadow\" 0",
            "RW 4096 FLAT \"nbd:unix\" 0",
            "parentFileNameHint=\"base.vmdk\"",
            "parentFileNameHint:|/etc/shadow\"",
            "parentCID=12345678",
        ] {
            assert!(all(bad).iter().all(Option::is_some), "{bad}");
        }
        // Other formats are not checked.
        let other = with(text("RW 4096 FLAT \"/etc/shadow\" 0").as_bytes());
        stands_alone(&other, "/srv/x", "vdi").unwrap();
    }
}
