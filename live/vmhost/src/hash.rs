//! Hash of a text for names: FNV-1a.

/// Initial value of a hash.
pub(crate) const BEGINNING: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash with further bytes.
pub(crate) fn hashed(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(hash, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}
