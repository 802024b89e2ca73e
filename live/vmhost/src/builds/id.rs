//! Build-id of a program: the note `NT_GNU_BUILD_ID` of its ELF file, which identifies one build of one source. Only
//! 64-bit little-endian files are supported. The amount of data read is bounded.

use std::fmt;

/// Largest number of program headers, and of bytes of a segment of notes, that are read. A linker writes about ten
/// headers, and notes of less than a kilobyte.
const HEADERS_MAX: u16 = 64;
const NOTES_MAX: u64 = 64 << 10;
/// Largest number of bytes of a build-id; linkers write 8 to 32.
const BYTES_MAX: usize = 64;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// Build-id of a program, in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildId(String);

impl BuildId {
    /// Returns the build-id in an ELF file. `read` returns a number of bytes at an offset, or `None` if the file is
    /// shorter. The result is `None` if the file is not ELF or has no build-id.
    pub fn of_elf(read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Self> {
        let header = read(0, HEADER_BYTES)?;
        // Magic number, class 64, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") || u16_at(&header, 54)? != PROGRAM_HEADER_BYTES {
            return None;
        }
        let (first, count) = (u64_at(&header, 32)?, u16_at(&header, 56)?);
        (0..count.min(HEADERS_MAX)).find_map(|n| {
            let at = first.checked_add(u64::from(n * PROGRAM_HEADER_BYTES))?;
            let header = read(at, PROGRAM_HEADER_BYTES.into())?;
            let (bytes, align) = (u64_at(&header, 32)?, u64_at(&header, 48)?);
            if u32_at(&header, 0)? != PT_NOTE || bytes > NOTES_MAX {
                return None;
            }
            let notes = read(u64_at(&header, 8)?, usize::try_from(bytes).ok()?)?;
            in_notes(&notes, if align == 8 { 8 } else { 4 })
        })
    }

    /// Parses a build-id from hexadecimal digits.
    pub fn of_text(text: &str) -> Option<Self> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_id = !text.is_empty() && text.len().is_multiple_of(2) && text.len() <= 2 * BYTES_MAX;
        (is_id && text.bytes().all(is_digit)).then(|| Self(text.into()))
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the build-id from a list of notes: size of name, size of content, type, name, content.
fn in_notes(mut notes: &[u8], align: usize) -> Option<BuildId> {
    loop {
        let (name_bytes, bytes) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let content = 12 + name_bytes.next_multiple_of(4);
        let is_id = u32_at(notes, 8)? == NT_GNU_BUILD_ID && notes.get(12..16)? == b"GNU\0";
        if is_id && name_bytes == 4 && bytes <= BYTES_MAX {
            let id = notes.get(content..content + bytes)?;
            return BuildId::of_text(&id.iter().map(|b| format!("{b:02x}")).collect::<String>());
        }
        notes = notes.get((content + bytes).next_multiple_of(align)..)?;
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8; 4], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = 4_u32.to_le_bytes().to_vec();
        note.extend((content.len() as u32).to_le_bytes());
        note.extend(kind.to_le_bytes());
        note.extend(name);
        note.extend(content);
        note
    }

    /// Returns an ELF file with two segments; the second one has notes.
    fn elf(notes: &[u8]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(HEADER_BYTES + 2 * 56, 0);
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &64_u64.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &2_u16.to_le_bytes());
        put(64, &1_u32.to_le_bytes());
        put(120, &PT_NOTE.to_le_bytes());
        put(128, &176_u64.to_le_bytes());
        put(152, &(notes.len() as u64).to_le_bytes());
        put(168, &4_u64.to_le_bytes());
        file.extend(notes);
        file
    }

    fn id(file: &[u8]) -> Option<String> {
        let read = |at: u64, bytes: usize| {
            let at = usize::try_from(at).ok()?;
            Some(file.get(at..at.checked_add(bytes)?)?.to_vec())
        };
        BuildId::of_elf(read).map(|id| id.to_string())
    }

    #[test]
    fn build_id_is_found_behind_other_notes() {
        let own = note(b"GNU\0", NT_GNU_BUILD_ID, &[0xab, 0x01, 0xff, 0x20]);
        let other = note(b"GNU\0", 1, &[0; 16]);
        let file = elf(&[other, own].concat());
        assert_eq!(id(&file).as_deref(), Some("ab01ff20"));
    }

    #[test]
    fn files_without_build_id_have_none() {
        let own = note(b"GNU\0", NT_GNU_BUILD_ID, &[1, 2, 3, 4]);
        let file = elf(&own);
        assert!(id(&file).is_some());
        for length in 0..file.len() {
            assert_eq!(id(&file[..length]), None, "{length} bytes");
        }
        assert_eq!(id(&elf(&note(b"abc\0", NT_GNU_BUILD_ID, &[1; 4]))), None);
        assert_eq!(id(&elf(&note(b"GNU\0", NT_GNU_BUILD_ID, &[1; 96]))), None);
        for at in 0..file.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = file.clone();
                changed[at] = byte;
                assert!(id(&changed).is_none_or(|id| !id.is_empty()), "byte {at}");
            }
        }
        let mut huge = elf(&own);
        huge[176..180].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(id(&huge), None);
        let mut other = file.clone();
        other[4] = 1;
        assert_eq!(id(&other), None);
        assert_eq!(id(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn text_without_hex_digits_is_no_build_id() {
        assert!(BuildId::of_text("00ff").is_some());
        for text in ["", "0", "FF", "../x", &"0".repeat(130)] {
            assert_eq!(BuildId::of_text(text), None, "{text}");
        }
    }
}
