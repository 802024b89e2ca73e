//! A number of a text, for names: FNV-1a.

/// Begins a number.
pub(crate) const BEGINNING: u64 = 0xcbf2_9ce4_8422_2325;

/// Goes on with a number by more bytes.
pub(crate) fn hashed(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(hash, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}
