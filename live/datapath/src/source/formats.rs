//! Recognition of files that are not raw disks: images, compressed files, archives, and descriptions of disks.
//!
//! A raw disk may begin with any bytes, so a signature counts only if the fields after it are valid. A partition
//! table outweighs it and, for short signatures, so does a file system: `disk` has the evidence for a raw disk.

use std::io;

use crate::text::shell_word;

/// Bytes at the beginning of a file that are examined: up to the descriptor of an ISO image and that of btrfs.
const HEAD_BYTES: usize = 68 << 10;

/// Limit of archive headers that are read to find a disk. A longer archive is reported without its disk.
const MEMBERS_MAX: usize = 64;

/// Formats of images that `qemu-nbd` reads from one file without a secret.
pub(super) const IMAGE_FORMATS: [&str; 11] = [
    "qcow2",
    "vmdk",
    "vdi",
    "vhdx",
    "vpc",
    "qcow",
    "qed",
    "parallels",
    "dmg",
    "cloop",
    "bochs",
];

/// Function that reads up to a number of bytes at an offset, fewer at the end.
pub(super) type Reads<'a> = &'a mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>;

/// Content of a file that is not a raw disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Image that QEMU reads, with QEMU's name of its format.
    Image(&'static str),
    /// One compressed file.
    Compressed(&'static Compression),
    /// Archive of several files.
    Archive {
        kind: &'static str,
        unpack: &'static str,
        /// First disk among them, with its format if its name shows it.
        disk: Option<(String, Option<&'static str>)>,
    },
    /// Text that describes disks of a virtual machine.
    Description,
    /// Part of an image, named by its descriptor.
    Part,
}

/// Compression, with the program that undoes it and the suffixes of its files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compression {
    name: &'static str,
    unpack: &'static str,
    suffixes: &'static [&'static str],
}

macro_rules! compression {
    ($constant:ident, $name:literal, $unpack:literal, $($suffix:literal),+) => {
        static $constant: Compression = Compression {
            name: $name,
            unpack: $unpack,
            suffixes: &[$($suffix),+],
        };
    };
}
compression!(XZ, "xz", "xz -dc", ".xz");
compression!(LZMA, "lzma", "xz --format=lzma -dc", ".lzma");
compression!(GZIP, "gzip", "gzip -dc", ".gz");
compression!(BZIP2, "bzip2", "bzip2 -dc", ".bz2");
compression!(ZSTD, "zstd", "zstd -dc", ".zst", ".zstd");
compression!(LZ4, "lz4", "lz4 -dc", ".lz4");
compression!(LZIP, "lzip", "lzip -dc", ".lz");
compression!(LZOP, "lzop", "lzop -dc", ".lzo");
compression!(COMPRESS, "compress", "gzip -dc", ".Z");

impl Content {
    /// Returns the message for this content, with the command that converts it to a raw disk. `from` is the path or
    /// the URI.
    pub(super) fn refusal(&self, from: &str) -> String {
        let word = shell_word(from);
        let (what, next) = match self {
            Content::Image(format) => {
                let to = shell_word(&format!("{}.raw", local(from)));
                let convert = format!("`qemu-img convert -f {format} -O raw {word} {to}`");
                let next = match from.contains("://") {
                    true => format!("convert it with {convert} and import that file"),
                    false => format!(
                        "use `--format {format}`, or convert it with {convert} and import that file"
                    ),
                };
                (format!("an image of format {format}"), next)
            }
            Content::Compressed(with) => {
                let name = local(from);
                let suffix = |s: &&&str| name.len() > s.len() && name.ends_with(**s);
                let to = match with.suffixes.iter().find(suffix) {
                    Some(suffix) => name[..name.len() - suffix.len()].to_owned(),
                    None => format!("{name}.unpacked"),
                };
                let (unpack, to) = (with.unpack, shell_word(&to));
                let next = match from.contains("://") {
                    true => format!("copy it to a file and unpack that with `{unpack}`"),
                    false => format!("unpack it with `{unpack} {word} > {to}` and import {to}"),
                };
                (format!("compressed with {}", with.name), next)
            }
            Content::Archive { kind, unpack, disk } => {
                let unpack = match from.contains("://") {
                    true => format!("copy it to a file and unpack that with `{unpack} FILE`"),
                    false => format!("unpack it with `{unpack} {word}`"),
                };
                let next = match disk {
                    Some((disk, Some(format))) => {
                        let (from, to) = (shell_word(disk), shell_word(&format!("{disk}.raw")));
                        format!(
                            "{unpack}, then `qemu-img convert -f {format} -O raw {from} {to}`, and import {to}"
                        )
                    }
                    Some((disk, None)) => format!("{unpack} and import {}", shell_word(disk)),
                    None => format!("{unpack} and import the disk in it"),
                };
                (format!("an archive ({kind})"), next)
            }
            Content::Description => (
                "a description of a virtual machine".into(),
                "import the disk image that it names".into(),
            ),
            Content::Part => (
                "part of a vmdk image".into(),
                "import its descriptor, a text file with the suffix .vmdk".into(),
            ),
        };
        format!(
            "{from} is {what}, not a raw disk: {next}; `--format raw` imports the file unchanged"
        )
    }
}

/// Returns a name for a local file that is converted from a source.
fn local(from: &str) -> &str {
    match from.contains("://") {
        true => "disk",
        false => from,
    }
}

/// Recognises content that is not a raw disk. `size` is that of the whole file.
///
/// # Errors
/// Errors of reads.
pub(super) fn recognize(size: u64, reads: Reads<'_>) -> io::Result<Option<Content>> {
    let head = reads(0, HEAD_BYTES)?;
    if size >= 512 {
        let tail = reads(size - 512, 512)?;
        if is_fixed_vhd(&tail) {
            return Ok(Some(Content::Image("vpc")));
        }
        if tail.starts_with(b"koly\0\0\0\x04\0\0\x02\0") {
            return Ok(Some(Content::Image("dmg")));
        }
    }
    if disk::has_partitions(&head) {
        return Ok(None);
    }
    if let Some(found) = by_long_signature(&head) {
        return Ok(Some(match found {
            Content::Archive { kind, unpack, .. } if kind == TAR => Content::Archive {
                kind,
                unpack,
                disk: disk_in_tar(size, reads)?,
            },
            found => found,
        }));
    }
    Ok(by_short_signature(&head).filter(|_| !disk::has_volume(&head)))
}

const TAR: &str = "tar";

fn archive(kind: &'static str, unpack: &'static str) -> Content {
    let disk = None;
    Content::Archive { kind, unpack, disk }
}

/// Recognises content by signatures that no raw disk has by chance.
fn by_long_signature(head: &[u8]) -> Option<Content> {
    let at = |from: usize, text: &[u8]| head.get(from..).is_some_and(|h| h.starts_with(text));
    let image = match head {
        [b'Q', b'F', b'I', 0xfb, 0, 0, 0, 1, ..] => "qcow",
        [b'Q', b'F', b'I', 0xfb, 0, 0, 0, _, ..] => "qcow2",
        [b'K', b'D', b'M', b'V', 1..=3, 0, 0, 0, ..] | [b'C', b'O', b'W', b'D', 1, 0, 0, 0, ..] => {
            "vmdk"
        }
        _ if at(0, b"vhdxfile") => "vhdx",
        _ if at(0, b"conectix") => "vpc",
        _ if at(0, b"<<< ") && at(64, &[0x7f, 0x10, 0xda, 0xbe]) => "vdi",
        _ if at(0, b"WithoutFreeSpace") || at(0, b"WithouFreSpacExt") => "parallels",
        _ if at(0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop") => "cloop",
        _ if at(0, b"Bochs Virtual HD Image\0") => "bochs",
        _ if is_qed(head) => "qed",
        _ if is_vmdk_descriptor(head) => "vmdk",
        _ => "",
    };
    if !image.is_empty() {
        return Some(Content::Image(image));
    }
    Some(match head {
        [0xfd, b'7', b'z', b'X', b'Z', 0, 0, ..] => Content::Compressed(&XZ),
        [0x5d, 0, 0, _, _, size @ ..] if size.starts_with(&[0xff; 8]) => Content::Compressed(&LZMA),
        [b'B', b'Z', b'h', b'1'..=b'9', block @ ..]
            if block.starts_with(&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59])
                || block.starts_with(&[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]) =>
        {
            Content::Compressed(&BZIP2)
        }
        _ if at(0, b"\x89LZO\0\r\n\x1a\n") => Content::Compressed(&LZOP),
        _ if at(0, &[0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0, 1, 0, 0, 0, 2]) => Content::Part,
        _ if is_tar(head) => archive(TAR, "tar xf"),
        _ if is_cpio(head) => archive("cpio", "cpio -idF"),
        _ if at(0, b"7z\xbc\xaf\x27\x1c") => archive("7z", "7z x"),
        _ if at(0, b"Rar!\x1a\x07") => archive("rar", "unrar x"),
        _ if at(0, b"MSWIM\0\0\0") => archive("wim", "7z x"),
        _ if is_description(head) => Content::Description,
        _ => return None,
    })
}

/// Recognises content by signatures of up to four bytes, with the fields after them.
fn by_short_signature(head: &[u8]) -> Option<Content> {
    Some(match head {
        // Deflate, no reserved flag, a known speed.
        [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, _, ..] if flags & 0xe0 == 0 => {
            Content::Compressed(&GZIP)
        }
        [0x1f, 0x9d, bits, ..] if bits & 0x60 == 0 && (9..=16).contains(&(bits & 0x1f)) => {
            Content::Compressed(&COMPRESS)
        }
        [0x28, 0xb5, 0x2f, 0xfd, descriptor, ..] if descriptor & 8 == 0 => {
            Content::Compressed(&ZSTD)
        }
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, length @ ..] => {
            let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
            let frame = head.get(8usize.checked_add(length)?..)?;
            if frame.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
                Content::Compressed(&ZSTD)
            } else if frame.starts_with(&[0x04, 0x22, 0x4d, 0x18]) {
                Content::Compressed(&LZ4)
            } else {
                return None;
            }
        }
        [0x04, 0x22, 0x4d, 0x18, flags, block, ..]
            if flags >> 6 == 1 && flags & 2 == 0 && block & 0x8f == 0 =>
        {
            Content::Compressed(&LZ4)
        }
        [0x02, 0x21, 0x4c, 0x18, ..] => Content::Compressed(&LZ4),
        [b'L', b'Z', b'I', b'P', 0 | 1, ..] => Content::Compressed(&LZIP),
        // Required version, and a name.
        [b'P', b'K', 3, 4, 10..=63, _, ..] if head.get(26..28).is_some_and(|n| n != [0, 0]) => {
            archive("zip", "unzip")
        }
        _ => return None,
    })
}

/// Recognises the footer after a raw disk, of type 2, with a valid checksum.
fn is_fixed_vhd(footer: &[u8]) -> bool {
    if footer.len() < 512 || !footer.starts_with(b"conectix") || footer[60..64] != [0, 0, 0, 2] {
        return false;
    }
    let sum: u32 = footer.iter().map(|b| u32::from(*b)).sum();
    let own: u32 = footer[64..68].iter().map(|b| u32::from(*b)).sum();
    footer[64..68] == (!(sum - own)).to_be_bytes()
}

fn is_qed(head: &[u8]) -> bool {
    let field = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|b| b.first_chunk());
        bytes.map_or(0, |b| u32::from_le_bytes(*b))
    };
    let fits = |n: u32, from: u32, to: u32| n.is_power_of_two() && (from..=to).contains(&n);
    head.starts_with(b"QED\0") && fits(field(4), 4096, 64 << 20) && fits(field(8), 1, 16)
}

/// Recognises comments followed by `version=`, as QEMU does, or the first line that all programs write.
fn is_vmdk_descriptor(head: &[u8]) -> bool {
    let text = head.split(|b| *b == 0).next().unwrap_or_default();
    let mut lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.clone().next().unwrap_or_default();
    let named = first.to_ascii_lowercase();
    if named.starts_with(b"# disk descriptorfile") {
        return true;
    }
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    matches!(
        line,
        Some([b'v', b'e', b'r', b's', b'i', b'o', b'n', b'=', b'1'..=b'3'])
    )
}

/// Recognises any kind of tar by a header with a valid checksum.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else {
        return false;
    };
    let Some(sum) = octal(&header[148..156]) else {
        return false;
    };
    let blank = 8 * u64::from(b' ');
    let bytes = header[..148].iter().chain(&header[156..]);
    header[0] != 0 && sum == blank + bytes.map(|b| u64::from(*b)).sum::<u64>()
}

/// Parses an octal number that is surrounded by blanks and ends at NUL.
fn octal(field: &[u8]) -> Option<u64> {
    let text = field.split(|b| *b == 0).next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok()
}

fn is_cpio(head: &[u8]) -> bool {
    let digits = |from: usize, n: usize, base: u32| {
        let field = head.get(from..from + n);
        field.is_some_and(|f| f.iter().all(|b| char::from(*b).is_digit(base)))
    };
    if head.starts_with(b"070701") || head.starts_with(b"070702") {
        return digits(6, 104, 16);
    }
    if head.starts_with(b"070707") {
        return digits(6, 70, 8);
    }
    // Old form in either byte order: a file type, and a name of the given length.
    let swapped = match head {
        [0xc7, 0x71, ..] => false,
        [0x71, 0xc7, ..] => true,
        _ => return false,
    };
    let field = |at: usize| {
        let bytes = head.get(at..at + 2).and_then(|b| b.first_chunk());
        let number = if swapped {
            u16::from_be_bytes
        } else {
            u16::from_le_bytes
        };
        bytes.map_or(0, |b| number(*b))
    };
    let (kind, length) = (field(6) >> 12, usize::from(field(20)));
    let name = head.get(26..26 + length).unwrap_or_default();
    let named = name.split_last().is_some_and(|(end, name)| {
        *end == 0 && !name.is_empty() && name.iter().all(|b| *b >= b' ')
    });
    [1, 2, 4, 6, 8, 10, 12].contains(&kind) && field(12) > 0 && named
}

/// Recognises XML of OVF, libvirt or VirtualBox.
fn is_description(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let text = text.split(|b| *b == 0).next().unwrap_or_default();
    let text = text.trim_ascii_start();
    let has = |word: &[u8]| text.windows(word.len()).any(|w| w == word);
    let xml = text.starts_with(b"<?xml") || text.starts_with(b"<!--");
    let machine = ["Envelope", "<domain", "<VirtualBox"];
    [&b"<Envelope"[..], b"<ovf:Envelope", b"<domain type="]
        .iter()
        .any(|t| text.starts_with(t))
        || xml && machine.iter().any(|m| has(m.as_bytes()))
}

/// Returns the first of the examined members of a tar that has the name of a disk.
fn disk_in_tar(size: u64, reads: Reads<'_>) -> io::Result<Option<(String, Option<&'static str>)>> {
    let mut at = 0;
    for _ in 0..MEMBERS_MAX {
        if at >= size {
            break;
        }
        let header = reads(at, 512)?;
        if !is_tar(&header) {
            break;
        }
        let is_file = matches!(header[156], 0 | b'0');
        let name = header[..100].split(|b| *b == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        if let Some(format) = format_of_name(&name).filter(|_| is_file) {
            return Ok(Some((name, format)));
        }
        let Some(length) = octal(&header[124..136]) else {
            break;
        };
        at = at
            .saturating_add(512)
            .saturating_add(length.div_ceil(512).saturating_mul(512));
    }
    Ok(None)
}

/// Returns the format of a disk by its file name, with `Some(None)` for a raw or compressed one; `None` if it is not
/// the name of a disk.
fn format_of_name(name: &str) -> Option<Option<&'static str>> {
    let (_, suffix) = name.rsplit_once('.')?;
    let suffix = suffix.to_ascii_lowercase();
    let format = match &*suffix {
        "raw" | "img" | "iso" | "gz" | "xz" | "zst" | "bz2" => None,
        "vhd" => Some("vpc"),
        "hds" | "hdd" => Some("parallels"),
        "qcow2" | "vmdk" | "vdi" | "vhdx" | "qcow" | "qed" | "dmg" => {
            IMAGE_FORMATS.into_iter().find(|f| *f == suffix)
        }
        _ => return None,
    };
    Some(format)
}

/// Evidence for a raw disk.
mod disk {
    /// Recognises a PC partition table with an entry, or a GPT.
    pub(super) fn has_partitions(head: &[u8]) -> bool {
        let Some(sector) = head.get(..512) else {
            return false;
        };
        let mut entries = sector[446..510].chunks(16);
        let sound = entries.clone().all(|e| matches!(e[0], 0 | 0x80));
        let used = entries.any(|e| e[4] != 0 && e[12..16] != [0; 4]);
        let table = sector[510..] == [0x55, 0xaa] && sound && used;
        table
            || [512, 4096]
                .iter()
                .any(|at| has(head, *at, b"EFI PART\0\0\x01\0"))
    }

    /// Recognises a boot sector, a file system, a physical volume or swap, with or without partitions.
    pub(super) fn has_volume(head: &[u8]) -> bool {
        let lvm = (0..4).any(|n| has(head, n * 512, b"LABELONE"));
        let ext = has(head, 1080, &[0x53, 0xef])
            // State, behaviour on errors, and revision.
            && head.get(1082..1086).is_some_and(|s| s[0] < 8 && s[1] == 0 && matches!(s[2], 1..=3))
            && head.get(1100..1104).is_some_and(|r| matches!(r, [0 | 1, 0, 0, 0]));
        let swap = [4086, 65526].iter().any(|at| has(head, *at, b"SWAPSPACE2"));
        let iso = has(head, 32769, b"CD001") || has(head, 32769, b"BEA01");
        let btrfs = has(head, 65600, b"_BHRfS_M");
        let boot = has(head, 510, &[0x55, 0xaa]);
        boot || lvm || ext || swap || iso || btrfs
    }

    fn has(head: &[u8], at: usize, signature: &[u8]) -> bool {
        head.get(at..).is_some_and(|h| h.starts_with(signature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(bytes: &[u8]) -> Option<Content> {
        let read = |at: u64, length: usize| {
            let from = (at as usize).min(bytes.len());
            Ok(bytes[from..bytes.len().min(from + length)].to_vec())
        };
        recognize(bytes.len() as u64, &mut { read }).unwrap()
    }

    /// Returns 64 KiB that begin with the given bytes.
    fn sector(begin: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        bytes[..begin.len()].copy_from_slice(begin);
        bytes
    }

    fn with(mut bytes: Vec<u8>, at: usize, more: &[u8]) -> Vec<u8> {
        bytes[at..at + more.len()].copy_from_slice(more);
        bytes
    }

    const GZIPPED: &[u8] = &[0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 0, 3, 0xed];

    #[test]
    fn images_are_recognized_by_their_signatures() {
        for (begin, format) in [
            (&b"QFI\xfb\0\0\0\x03rest"[..], "qcow2"),
            (b"QFI\xfb\0\0\0\x02", "qcow2"),
            (b"QFI\xfb\0\0\0\x01", "qcow"),
            (b"vhdxfile", "vhdx"),
            (b"conectix", "vpc"),
            (b"KDMV\x01\0\0\0", "vmdk"),
            (b"COWD\x01\0\0\0", "vmdk"),
            (b"# Disk DescriptorFile\nversion=1\n", "vmdk"),
            (b"# by hand\n\nversion=3\n", "vmdk"),
            (b"WithoutFreeSpace\x02", "parallels"),
            (b"WithouFreSpacExt\x02", "parallels"),
            (b"Bochs Virtual HD Image\0", "bochs"),
            (b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop file=$0", "cloop"),
            (b"QED\0\0\0\x01\0\x04\0\0\0", "qed"),
        ] {
            assert_eq!(recognized(&sector(begin)), Some(Content::Image(format)));
        }
        let vdi = with(sector(b"<<< Oracle VM"), 64, &[0x7f, 0x10, 0xda, 0xbe]);
        assert_eq!(recognized(&vdi), Some(Content::Image("vdi")));
        let dmg = with(sector(b""), 65024, b"koly\0\0\0\x04\0\0\x02\0");
        assert_eq!(recognized(&dmg), Some(Content::Image("dmg")));
    }

    #[test]
    fn compressed_files_and_archives_are_recognized() {
        for (begin, command) in [
            (&b"\xfd7zXZ\0\0\x04"[..], "`xz -dc /d/a > "),
            (GZIPPED, "`gzip -dc /d/a > "),
            (b"BZh91AY&SY", "`bzip2 -dc /d/a > "),
            (b"\x28\xb5\x2f\xfd\x04", "`zstd -dc /d/a > "),
            (
                b"\x50\x2a\x4d\x18\x04\0\0\0....\x28\xb5\x2f\xfd",
                "`zstd -dc /d/a > ",
            ),
            (b"\x04\x22\x4d\x18\x64\x40", "`lz4 -dc /d/a > "),
            (
                b"PK\x03\x04\x14\0\0\0\x08\0................\x05\0",
                "`unzip /d/a`",
            ),
            (b"7z\xbc\xaf\x27\x1c\0\x04", "`7z x /d/a`"),
            (&[b'0'; 110], "raw"),
            (
                b"<?xml version='1.0'?><Envelope>",
                "the disk image that it names",
            ),
        ] {
            match (recognized(&sector(begin)), command) {
                (None, "raw") => {}
                (found, _) => {
                    let said = found.expect(command).refusal("/d/a");
                    assert!(said.contains(command), "{said}");
                }
            }
        }
        let newc = [&b"070701"[..], &[b'0'; 104], b"name\0"].concat();
        assert!(
            recognized(&newc)
                .unwrap()
                .refusal("a")
                .contains("`cpio -idF a`")
        );
    }

    #[test]
    fn archived_disk_image_is_named_with_its_conversion_command() {
        let member = |name: &str, length: usize| {
            let mut header = sector(name.as_bytes())[..512].to_vec();
            header[124..135].copy_from_slice(format!("{length:011o}").as_bytes());
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            header.resize(512 + length.next_multiple_of(512), 1);
            header
        };
        let ova = [member("vm.ovf", 700), member("it's.vmdk", 512)].concat();
        let said = recognized(&ova).unwrap().refusal("/d/my vm.ova");
        assert!(said.contains("`tar xf '/d/my vm.ova'`"), "{said}");
        let convert = r"`qemu-img convert -f vmdk -O raw 'it'\''s.vmdk' 'it'\''s.vmdk.raw'`";
        assert!(said.contains(convert), "{said}");
    }

    #[test]
    fn commands_quote_names_and_strip_suffixes() {
        let said = |content: Content, from: &str| content.refusal(from);
        let xz = said(Content::Compressed(&XZ), "/d/a b.qcow2.xz");
        assert!(
            xz.contains("`xz -dc '/d/a b.qcow2.xz' > '/d/a b.qcow2'`"),
            "{xz}"
        );
        let odd = said(Content::Compressed(&XZ), "/d/.xz");
        assert!(
            odd.contains("`xz -dc /d/.xz > /d/`") || odd.contains(".unpacked"),
            "{odd}"
        );
        let vdi = said(Content::Image("vdi"), "/d/a;b.vdi");
        assert!(vdi.contains("--format vdi"));
        let convert = "`qemu-img convert -f vdi -O raw '/d/a;b.vdi' '/d/a;b.vdi.raw'`";
        assert!(vdi.contains(convert), "{vdi}");
        let export = said(Content::Image("qcow2"), "nbd://host/x");
        assert!(!export.contains("--format qcow2"), "{export}");
        assert!(export.contains("-O raw nbd://host/x disk.raw"), "{export}");
    }

    #[test]
    fn fixed_vhd_is_recognized_by_its_footer_despite_a_partition_table() {
        let mut footer = vec![0; 512];
        footer[..8].copy_from_slice(b"conectix");
        footer[60..64].copy_from_slice(&[0, 0, 0, 2]);
        let sum: u32 = footer.iter().map(|b| u32::from(*b)).sum();
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        let disk = partitioned(b"");
        let vhd = [&disk[..], &footer].concat();
        assert_eq!(recognized(&vhd), Some(Content::Image("vpc")));
        footer[70] = 1;
        assert_eq!(recognized(&[disk, footer].concat()), None);
    }

    fn partitioned(begin: &[u8]) -> Vec<u8> {
        let entry = [0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
        with(with(sector(begin), 446, &entry), 510, &[0x55, 0xaa])
    }

    #[test]
    fn raw_disks_with_similar_signatures_are_raw() {
        let blocks: Vec<Vec<u8>> = vec![
            sector(b""),
            sector(b"QFI"),
            sector(b"KDMV"),
            sector(b"<<< not a disk image"),
            sector(b"LUKS\xba\xbe\0\x02"),
            sector(b"\xeb\x3c\x90MSDOS5.0"),
            sector(b"XFSB"),
            sector(b"QED\0"),
            sector(b"PK\x05\x06"),
            sector(b"BZh9"),
            partitioned(b"QFI\xfb\0\0\0\x03"),
            partitioned(b"KDMV\x01\0\0\0"),
            partitioned(GZIPPED),
            with(sector(b"\xfd7zXZ\0\0"), 512, b"EFI PART\0\0\x01\0"),
            with(sector(GZIPPED), 510, &[0x55, 0xaa]),
            with(sector(GZIPPED), 512, b"LABELONE"),
            with(sector(GZIPPED), 4086, b"SWAPSPACE2"),
            with(sector(GZIPPED), 32769, b"CD001"),
            with(
                with(sector(GZIPPED), 1080, &[0x53, 0xef, 1, 0, 1, 0]),
                1100,
                &[1, 0, 0, 0],
            ),
            vec![],
            vec![0; 7],
        ];
        for (n, bytes) in blocks.iter().enumerate() {
            assert_eq!(recognized(bytes), None, "{n}");
        }
    }
}
