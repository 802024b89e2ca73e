//! What images begin with: which format they seem to have, and whether they name other files. Whoever could write to an image, a guest that was
//! given a raw one for instance, can have written that too; an image that names /etc/shadow must not bring it into a volume.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// QEMU reads no more of a descriptor than this.
const DESCRIPTOR_BYTES: usize = 1 << 20;

/// Where QEMU looks for the parent of a vmdk that is no descriptor itself, whatever its header says.
const PARENT_AT: u64 = 512;

/// Where a qcow2 header says that its data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// Where a QED header says that there is a backing file.
const QED_BACKING: u64 = 1;

/// The format that a file seems to have, by what it begins with; none of what begins as a disk may.
pub(super) fn looks_like(file: &File) -> io::Result<Option<&'static str>> {
    let head = read(file, 0, 8)?;
    if head.len() < 8 {
        return Ok(None);
    }
    Ok(match &head[..] {
        [b'Q', b'F', b'I', 0xfb, ..] => Some("qcow2"),
        b"vhdxfile" => Some("vhdx"),
        b"conectix" => Some("vpc"),
        [b'K', b'D', b'M', b'V', ..] => Some("vmdk"),
        [b'<', b'<', b'<', b' ', ..] => Some("vdi"),
        _ => None,
    })
}

/// Refuses an image that names other files to be read with it.
///
/// # Errors
/// The field that names one, and what to do.
pub(super) fn stands_alone(file: &File, from: &str, format: &str) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot read {from}: {e}");
    let head = read(file, 0, 512).map_err(failed)?;
    let named = match &head[..] {
        [b'Q', b'F', b'I', 0xfb, ..] => qcow(&head),
        [b'Q', b'E', b'D', 0, ..] if little(&head, 16) & QED_BACKING != 0 => {
            Some("features (a backing file)".into())
        }
        _ if format == "vmdk" => vmdk(file, &head).map_err(failed)?,
        _ => None,
    };
    match named {
        None => Ok(()),
        Some(field) => Err(format!(
            "{from} names another file, in {field} of its header: only images that stand alone are imported; `qemu-img convert -O qcow2 {from} NEW` makes one, if you trust whoever made this one"
        )),
    }
}

/// qcow2, and qcow, which has the first field too.
fn qcow(head: &[u8]) -> Option<String> {
    let big = |at: usize| u64::from_be_bytes(bytes(head, at));
    let version = big(0) as u32;
    if big(8) != 0 {
        return Some("backing_file_offset".into());
    }
    let external = version >= 3 && big(72) & EXTERNAL_DATA != 0;
    external.then(|| "incompatible_features (external data file)".into())
}

/// What has no magic is taken for a descriptor, as QEMU does.
fn vmdk(file: &File, head: &[u8]) -> io::Result<Option<String>> {
    let places = match head {
        [b'K', b'D', b'M', b'V', ..] => vec![little(head, 28).saturating_mul(512), PARENT_AT],
        [b'C', b'O', b'W', b'D', ..] => vec![PARENT_AT],
        _ => vec![0],
    };
    for at in places {
        let named = descriptor(&read(file, at, DESCRIPTOR_BYTES)?);
        if named.is_some() {
            return Ok(named);
        }
    }
    Ok(None)
}

/// Lines such as `RW 4096 FLAT "disk-flat.vmdk" 0`, and `parentFileNameHint="other.vmdk"`. Files beside it belong to it.
fn descriptor(bytes: &[u8]) -> Option<String> {
    const PARENT: &str = "parentFileNameHint";
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let mut parents = text.split(PARENT).skip(1);
    if parents.any(|rest| !rest.starts_with("=\"\"")) {
        return Some(PARENT.into());
    }
    text.lines().find_map(|line| {
        let (before, after) = line.split_once('"')?;
        let name = after.split('"').next().unwrap_or_default();
        let elsewhere = !before.contains('=') && name.contains(['/', ':']);
        elsewhere.then(|| format!("the extent {name:?}"))
    })
}

/// Bytes of a file, or as many as there are.
fn read(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.read_at(&mut bytes[done..], at.saturating_add(done as u64))? {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn little(head: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(head, at))
}

/// Eight bytes; zeroes behind the end.
fn bytes(head: &[u8], at: usize) -> [u8; 8] {
    let mut found = [0; 8];
    let there = head.get(at..).unwrap_or_default();
    let n = there.len().min(8);
    found[..n].copy_from_slice(&there[..n]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(content: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }

    #[test]
    fn formats_are_known_by_what_they_begin_with() {
        let looks = |head: &[u8]| looks_like(&with(head)).unwrap();
        assert_eq!(looks(b"QFI\xfb\0\0\0\x03rest"), Some("qcow2"));
        assert_eq!(looks(b"vhdxfile"), Some("vhdx"));
        assert_eq!(looks(b"KDMV\x01\0\0\0"), Some("vmdk"));
        assert_eq!(looks(b"<<< Oracle"), Some("vdi"));
        assert_eq!(looks(b"QFI"), None);
        assert_eq!(looks(&[0; 512]), None);
    }

    fn refused(content: &[u8]) -> Option<String> {
        stands_alone(&with(content), "/srv/x", "vmdk").err()
    }

    fn qcow2(version: u8, backing: u64, incompatible: u64) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..8].copy_from_slice(&[b'Q', b'F', b'I', 0xfb, 0, 0, 0, version]);
        head[8..16].copy_from_slice(&backing.to_be_bytes());
        head[72..80].copy_from_slice(&incompatible.to_be_bytes());
        head
    }

    #[test]
    fn an_image_that_names_another_file_is_refused_with_the_field() {
        for version in 1..=3 {
            assert_eq!(refused(&qcow2(version, 0, 0)), None);
            let why = refused(&qcow2(version, 0x200, 0)).unwrap();
            assert!(why.contains("/srv/x names") && why.contains("backing_file_offset"));
            assert!(
                why.contains("qemu-img convert -O qcow2 /srv/x NEW"),
                "{why}"
            );
        }
        // Dirty, and with a kind of compression; and what was of no meaning in version 2.
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
    fn a_descriptor_names_files_beside_it_only() {
        let text = |line: &str| format!("# Disk\nversion=1\n{line}\nddb.x = \"/a\"\n");
        // With its descriptor where its header says, or where its parent is looked for.
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
        ] {
            assert!(all(bad).iter().all(Option::is_some), "{bad}");
        }
        // Nothing is known of other formats.
        let other = with(text("RW 4096 FLAT \"/etc/shadow\" 0").as_bytes());
        assert_eq!(stands_alone(&other, "/srv/x", "vdi"), Ok(()));
    }
}
