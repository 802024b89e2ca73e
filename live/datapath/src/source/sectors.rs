//! Logical block size of a disk. A partition table uses it as unit, so a guest with another size finds no partitions.

use array::LOGICAL_BLOCK_MIN;

/// Block sizes at which a GPT is searched, the common ones first.
const SIZES: [u32; 4] = [512, 4096, 2048, 1024];

/// Bytes at the beginning of a disk that [`logical_block`] examines.
pub(super) const HEAD_BYTES: usize = 8192;

/// Returns the block size of the disk's GPT. Without a GPT, returns that of the device or server, unless an MBR
/// contradicts it. `own` is 512 if the size of the device is unknown; `size` is that of the disk in bytes.
pub(super) fn logical_block(head: &[u8], size: u64, own: u32) -> u32 {
    let sizes = [own].into_iter().chain(SIZES);
    let mut sizes = sizes.filter(|s| *s >= LOGICAL_BLOCK_MIN);
    if let Some(found) = sizes.find(|s| has_gpt(head, *s as usize)) {
        return found;
    }
    match mbr_fits(head, size, own) {
        true => own,
        false => LOGICAL_BLOCK_MIN,
    }
}

/// Recognises a primary GPT header in the second block, by its own fields.
fn has_gpt(head: &[u8], block: usize) -> bool {
    let Some(header) = head.get(block..block + 32) else {
        return false;
    };
    let header_bytes = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    header.starts_with(b"EFI PART\0\0\x01\0")
        && (92..=block as u32).contains(&header_bytes)
        && header[24..32] == 1u64.to_le_bytes()
}

/// Returns true if all partitions end on the disk when counted in blocks of this size.
fn mbr_fits(head: &[u8], size: u64, block: u32) -> bool {
    let Some(sector) = head.get(..512) else {
        return true;
    };
    if sector[510..] != [0x55, 0xaa] {
        return true;
    }
    let number = |b: &[u8]| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let end = |e: &[u8]| (number(&e[8..12]) + number(&e[12..16])) * u64::from(block);
    // A protective entry gives no evidence: it may be truncated to any number.
    let used = |e: &&[u8]| e[4] != 0 && e[4] != 0xee;
    let mut entries = sector[446..510].chunks(16).filter(used);
    entries.all(|e| end(e) <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_gpt(block: usize) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        let header = &mut head[block..];
        header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
        header[24] = 1;
        head
    }

    #[test]
    fn gpt_block_size_takes_precedence_over_the_device() {
        for block in SIZES {
            let head = with_gpt(block as usize);
            for own in [512, 4096] {
                assert_eq!(logical_block(&head, 1 << 30, own), block);
            }
        }
        let mut other = with_gpt(4096);
        other[4096 + 24] = 2;
        assert_eq!(logical_block(&other, 1 << 30, 512), 512);
    }

    #[test]
    fn device_block_size_applies_without_gpt_unless_the_mbr_contradicts() {
        let mut head = vec![0; HEAD_BYTES];
        assert_eq!(logical_block(&head, 1 << 30, 4096), 4096);
        assert_eq!(logical_block(&head, 1 << 30, 512), 512);
        assert_eq!(logical_block(&[], 0, 4096), 4096);
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head[450] = 0x83;
        head[454..458].copy_from_slice(&2048u32.to_le_bytes());
        head[458..462].copy_from_slice(&100_000u32.to_le_bytes());
        assert_eq!(logical_block(&head, 102_048 * 4096, 4096), 4096);
        assert_eq!(logical_block(&head, 102_048 * 512, 4096), 512);
    }
}
