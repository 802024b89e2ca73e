//! Minimal tar reader (POSIX ustar, and the output of GNU tar) that streams the regular files of an archive.
//!
//! ```text
//! header, 512 bytes: 0 name 100 · 124 size, octal 12 · 148 checksum, octal 8 · 156 kind · 257 "ustar" · 345 prefix 155
//! contents, padded to a multiple of 512
//! … two blocks of zeros
//! ```
//!
//! Names come from the headers only. An archive with other names (GNU long names, a `path` in a pax header) is rejected
//! instead of being read in part.

use std::io::{self, Read};

const BLOCK_BYTES: usize = 512;
/// Largest pax header that is searched for a path. Protects memory.
const PAX_BYTES_MAX: u64 = 64 << 10;

/// Regular file in an archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    padding: u64,
}

/// Archive that is read sequentially.
pub(super) struct Archive<R> {
    inner: R,
    offset_bytes: u64,
}

/// Error of an archive.
#[derive(Debug)]
pub(super) enum ArchiveError {
    Io(io::Error),
    /// Error at an offset in the (uncompressed) archive.
    At(u64, String),
}

fn checksum_fits(header: &[u8]) -> bool {
    let stored = octal(&header[148..156]);
    // In the sum, the checksum field itself counts as blanks.
    let sum = |bytes: &[u8]| bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
    stored == Some(sum(&header[..148]) + 8 * u64::from(b' ') + sum(&header[156..]))
}

/// Parses an octal number that ends with blanks or zeros.
fn octal(field: &[u8]) -> Option<u64> {
    let text = field.trim_ascii_start();
    let end = text
        .iter()
        .position(|b| matches!(b, 0 | b' '))
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || rest.iter().any(|b| !matches!(b, 0 | b' ')) {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| match b {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}

/// Returns true if a file begins like an archive.
pub(super) fn plausible(first: &[u8]) -> bool {
    first
        .get(..BLOCK_BYTES)
        .is_some_and(|header| &header[257..262] == b"ustar" && checksum_fits(header))
}

/// Returns the name of the first suitable member that begins in the first bytes.
pub(super) fn first_name(first: &[u8]) -> Option<&str> {
    let mut rest = first;
    while let Some(header) = rest.get(..BLOCK_BYTES).filter(|h| plausible(h)) {
        let name = text(&header[..100])?;
        if matches!(header[156], b'0' | 0) && super::read::volume_of(name).is_some() {
            return Some(name);
        }
        let size = octal(&header[124..136])?;
        let skip = size.checked_next_multiple_of(BLOCK_BYTES as u64)?;
        let skip = usize::try_from(skip).ok()?.checked_add(BLOCK_BYTES)?;
        rest = rest.get(skip..)?;
    }
    None
}

impl<R: Read> Archive<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            offset_bytes: 0,
        }
    }

    pub(super) fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Moves to the next regular file; `None` at the end. The rest of the previous one must have been skipped.
    pub(super) fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        loop {
            let at = self.offset_bytes;
            let broken = |what: &str| Err(ArchiveError::At(at, what.to_owned()));
            let mut header = [0; BLOCK_BYTES];
            self.inner
                .read_exact(&mut header)
                .map_err(ArchiveError::Io)?;
            self.offset_bytes += BLOCK_BYTES as u64;
            if header.iter().all(|b| *b == 0) {
                return Ok(None);
            }
            if !plausible(&header) {
                return broken("not the header of a member of a tar archive");
            }
            let Some(size_bytes) = octal(&header[124..136]) else {
                return broken("the size of a member is not a number");
            };
            let padding = size_bytes.wrapping_neg() % BLOCK_BYTES as u64;
            let (Some(name), Some(prefix)) = (text(&header[..100]), text(&header[345..500])) else {
                return broken("the name of a member is not UTF-8");
            };
            let prefixed = &header[257..263] == b"ustar\0" && !prefix.is_empty();
            let mut member = Member {
                name: if prefixed {
                    format!("{prefix}/{name}")
                } else {
                    name.to_owned()
                },
                size_bytes,
                padding,
            };
            match header[156] {
                b'0' | 0 => return Ok(Some(member)),
                b'L' => {
                    return broken(
                        "GNU long names are not supported: pack the files under short names",
                    );
                }
                b'x' | b'g' => {
                    let mut records = Vec::new();
                    let read = (&mut self.inner).take(size_bytes.min(PAX_BYTES_MAX));
                    let n = { read }
                        .read_to_end(&mut records)
                        .map_err(ArchiveError::Io)? as u64;
                    self.offset_bytes += n;
                    member.size_bytes -= n;
                    let renames = [&b" path="[..], b" size="]
                        .iter()
                        .any(|key| memchr::memmem::find(&records, key).is_some());
                    if member.size_bytes > 0 || renames {
                        return broken(
                            "a pax header that renames or resizes its member is not supported",
                        );
                    }
                    self.pass_over(&member, 0)?;
                }
                _ => self.pass_over(&member, 0)?,
            }
        }
    }

    /// Returns the contents of the member that [`Self::next`] returned.
    pub(super) fn contents(&mut self, member: &Member) -> io::Take<&mut R> {
        (&mut self.inner).take(member.size_bytes)
    }

    /// Skips the rest of a member of which `read_bytes` were read.
    pub(super) fn pass_over(
        &mut self,
        member: &Member,
        read_bytes: u64,
    ) -> Result<(), ArchiveError> {
        let left = (member.size_bytes - read_bytes).saturating_add(member.padding);
        let skipped = io::copy(&mut (&mut self.inner).take(left), &mut io::sink())
            .map_err(ArchiveError::Io)?;
        self.offset_bytes = self
            .offset_bytes
            .saturating_add(read_bytes)
            .saturating_add(skipped);
        if skipped < left {
            return Err(ArchiveError::At(
                self.offset_bytes,
                format!("the archive ends within \"{}\"", member.name),
            ));
        }
        Ok(())
    }
}
